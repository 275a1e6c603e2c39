//! Pinned packages in, what a Python script says that runs with them out; they are installed when first needed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;

/// Runs a script of `tests/python`.
pub(crate) async fn run(script: &'static str, arguments: Vec<String>) -> Output {
    let run = move || {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(install);
        Command::new(place().join("bin/python"))
            .arg(folder().join(script))
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python")
}

/// The virtual environment.
fn place() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("python")
}

/// Installs what is required unless that is what is installed; one process does it, the others wait.
fn install() {
    let lock = File::create(place().with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let requirements = folder().join("requirements.txt");
    let wanted = std::fs::read(&requirements).unwrap();
    let mark = place().join(".installed");
    if std::fs::read(&mark).is_ok_and(|installed| installed == wanted) {
        return;
    }
    done(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(place()),
    );
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "-r",
    ];
    done(
        Command::new(place().join("bin/python"))
            .args(pip)
            .arg(requirements),
    );
    std::fs::write(mark, wanted).unwrap();
}

fn done(command: &mut Command) {
    match command.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!(
            "{command:?} failed; these tests need the packages in tests/python/requirements.txt:\n{}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => panic!(
            "{command:?} cannot be run ({error}); these tests run a client written in Python, so install Python 3.10 or newer"
        ),
    }
}
