//! Tests of `bailiwick doctor`.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and creates the directories that are checked"
)]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// A directory with the root `root` and the home directory `home`.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["root", "home"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self(dir)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    /// Runs `bailiwick COMMAND`; `HOME` is the only variable.
    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_bailiwick"))
            .args(arguments)
            .env_clear()
            .env("HOME", self.path("home"))
            .current_dir(self.0.path())
            .output()
            .unwrap()
    }

    #[track_caller]
    fn json(&self, arguments: &[&str], code: i32) -> Value {
        let output = self.run(&[&["doctor", "--json"], arguments].concat());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert_eq!(errors, "");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

#[track_caller]
fn check<'r>(report: &'r Value, name: &str) -> &'r Value {
    let mut checks = report["checks"].as_array().unwrap().iter();
    checks.find(|check| check["check"] == name).unwrap()
}

fn entries(path: &Path) -> usize {
    fs::read_dir(path).unwrap().count()
}

#[test]
fn text_has_a_line_for_each_check_and_a_summary() {
    let machine = Machine::new();
    let output = machine.run(&["doctor", "root"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stderr, b"");
    let text = String::from_utf8(output.stdout).unwrap();
    let (lines, summary) = text.trim_end().rsplit_once('\n').unwrap();
    let statuses = ["ok ", "limited ", "missing "];
    for line in lines.lines() {
        assert!(statuses.iter().any(|it| line.starts_with(it)), "{line}");
    }
    let count = lines.lines().count();
    assert!(
        summary.starts_with(&format!("{count} checks: ")),
        "{summary}"
    );
    let root = machine.path("root");
    assert!(
        text.contains(&format!("`{}`: a move never", root.display())),
        "{text}"
    );
}

#[test]
fn json_has_the_checks_of_each_root() {
    let machine = Machine::new();
    fs::create_dir(machine.path("other")).unwrap();
    let report = machine.json(&["root", "other"], 0);
    assert_eq!(report["can_serve"], true);
    assert_eq!(check(&report, "roots")["status"], "ok");
    let checks = report["checks"].as_array().unwrap();
    for name in ["rename", "exchange", "fsync", "lock"] {
        let of_roots = checks.iter().filter(|check| check["check"] == name);
        assert_eq!(of_roots.count(), 2, "{name}");
    }
    let counts = report["counts"].as_object().unwrap().values();
    let counted: u64 = counts.filter_map(Value::as_u64).sum();
    assert_eq!(counted, checks.len() as u64);
}

#[test]
fn each_layer_of_the_sandbox_is_tested() {
    let machine = Machine::new();
    let report = machine.json(&[], 0);
    for name in [
        "namespaces",
        "private /proc",
        "process limit",
        "landlock",
        "seccomp",
        "capabilities",
        "cleanup",
        "overlayfs",
    ] {
        let check = check(&report, name);
        assert_eq!(check["status"], "ok", "{check}");
        assert_eq!(check["blocks_serve"], false, "{check}");
    }
    // A machine that allows no namespaces.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$0\" doctor --json";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", script])
        .arg(env!("CARGO_BIN_EXE_bailiwick"))
        .current_dir(machine.0.path())
        .env("HOME", machine.path("home"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let namespaces = check(&report, "namespaces");
    assert_eq!(namespaces["status"], "missing", "{namespaces}");
    let advice = namespaces["advice"].as_str().unwrap();
    assert!(advice.contains("user.max_user_namespaces"), "{advice}");
    assert_eq!(check(&report, "overlayfs")["status"], "limited");
    for name in ["landlock", "seccomp", "capabilities", "cleanup"] {
        assert_eq!(check(&report, name)["status"], "ok", "{name}");
    }
}

#[test]
fn probes_leave_nothing_behind() {
    let machine = Machine::new();
    machine.json(&["root"], 0);
    assert_eq!(entries(&machine.path("root")), 0);
    assert_eq!(entries(&machine.path("home")), 0);
    // Without a ROOT, the current directory is probed.
    let report = machine.json(&[], 0);
    let rename = check(&report, "rename")["detail"].as_str().unwrap();
    let current = machine.0.path().canonicalize().unwrap();
    assert!(rename.contains(current.to_str().unwrap()), "{rename}");
    assert_eq!(entries(machine.0.path()), 2);
}

#[test]
fn roots_that_serve_rejects_fail() {
    let machine = Machine::new();
    for root in ["/", "home", "absent", "/proc"] {
        let report = machine.json(&[root], 1);
        let roots = check(&report, "roots");
        assert_eq!(roots["status"], "missing", "{root}");
        assert_eq!(roots["blocks_serve"], true, "{root}");
        let checks = report["checks"].as_array().unwrap();
        assert!(
            checks.iter().all(|check| check["check"] != "rename"),
            "{root}"
        );
        assert_eq!(
            machine.run(&["serve", root]).status.code(),
            Some(2),
            "{root}"
        );
    }
}

#[test]
fn state_folder_that_servers_reject_is_limited() {
    let machine = Machine::new();
    fs::write(machine.path("mcp.json"), r#"{"mcpServers": {}}"#).unwrap();
    let state = machine.path("home/.local/state/bailiwick");
    fs::create_dir_all(&state).unwrap();
    for (mode, status, code) in [(0o700, "ok", 0), (0o777, "limited", 2)] {
        fs::set_permissions(&state, Permissions::from_mode(mode)).unwrap();
        let report = machine.json(&["root"], 0);
        assert_eq!(check(&report, "state folder")["status"], status, "{mode:o}");
        let served = machine.run(&["serve", "--servers", "mcp.json", "root"]);
        let errors = String::from_utf8(served.stderr).unwrap();
        assert_eq!(served.status.code(), Some(code), "{mode:o}: {errors}");
    }
}

#[test]
fn invalid_arguments_fail_with_usage_error() {
    let machine = Machine::new();
    for arguments in [&["doctor", "--none"][..], &["doctor", "{"]] {
        let output = machine.run(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(output.stdout, b"");
    }
}
