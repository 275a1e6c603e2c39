//! Runs `bailiwick check` and parses its output.

use std::ops::Deref;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use bailiwick_test_support::checks::Checks;
use bailiwick_test_support::temp_files::{TempFiles, snapshot};
use tokio::process::Command;
use tokio::time::timeout;

/// How long a check may take, whatever the server does.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// How a check ended.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The checks that a report names.
pub(crate) struct Report(Checks);

impl Deref for Report {
    type Target = Checks;

    fn deref(&self) -> &Checks {
        &self.0
    }
}

impl Report {
    pub(crate) fn detail(&self, check: &str) -> &str {
        &self.0[check].1
    }
}

impl Run {
    pub(crate) fn report(&self) -> Report {
        let lines: Vec<&str> = self.stdout.lines().collect();
        let (summary, checks) = lines.split_last().unwrap();
        assert!(
            summary.starts_with(&format!("{} checks: ", checks.len())),
            "{}",
            self.stdout
        );
        let checks = checks.iter().map(|line| {
            let mut parts = line.splitn(3, "  ");
            let mut next = || parts.next().unwrap().trim().to_owned();
            let (outcome, name) = (next(), next());
            (name, (outcome, next()))
        });
        Report(checks.collect())
    }
}

/// The program with `check` and these arguments, and no other variables than `PATH`.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bailiwick"));
    command
        .arg("check")
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Runs the check with these arguments.
pub(crate) async fn check(arguments: &[&str]) -> Run {
    run(&mut command(arguments)).await
}

pub(crate) async fn run(command: &mut Command) -> Run {
    let output = timeout(LIMIT, command.output()).await;
    let output = output.expect("the check ends").unwrap();
    Run {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A directory with a file, which is served.
pub(crate) struct Place(TempFiles);

impl Place {
    pub(crate) fn new() -> Self {
        Self(TempFiles::new(&[("root/notes.txt", "one\ntwo\n")]))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.dir()
    }

    /// Leaked: a test passes it on as an argument.
    pub(crate) fn root(&self) -> &'static str {
        let root = self.0.path("root");
        root.to_str().unwrap().to_owned().leak()
    }

    #[track_caller]
    pub(crate) fn assert_unchanged(&self) {
        let expected = [("notes.txt".into(), b"one\ntwo\n".to_vec())];
        assert_eq!(snapshot(&self.0.path("root")), expected.into());
    }
}
