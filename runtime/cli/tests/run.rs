//! Tests of `bailiwick run`.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes the directories of the commands"
)]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};

use bailiwick_test_support::forbidden_calls::forbid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_bailiwick");

/// `bailiwick run` in this directory.
fn program(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("run").args(arguments).env_clear();
    command.current_dir(dir).stdin(Stdio::null());
    command
}

fn run(dir: &Path, arguments: &[&str]) -> Output {
    program(dir, arguments).output().unwrap()
}

/// Runs a shell script with these flags.
fn shell(dir: &Path, flags: &[&str], script: &str) -> Output {
    run(dir, &[flags, &["--", "sh", "-c", script]].concat())
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// Runs a test on a thread whose programs cannot create namespaces, as in a container that forbids them.
fn without_namespaces(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        forbid(&[libc::SYS_unshare], Errno::PERM);
        test();
    });
    thread.join().unwrap();
}

#[test]
fn commands_run_without_namespaces_only_if_that_layer_is_optional() {
    without_namespaces(|| {
        let dir = tempfile::tempdir().unwrap();
        let optional = ["--optional-layers", "namespaces,proc,process-limit"];
        let warning = "commands run without namespaces: ";
        let output = shell(dir.path(), &[], "echo ran");
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert_eq!(stdout(&output), "");
        assert!(stderr(&output).contains("namespaces"), "{output:?}");
        assert!(stderr(&output).contains("`bailiwick doctor`"), "{output:?}");
        let output = shell(dir.path(), &optional[..1], "echo ran");
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let output = shell(dir.path(), &optional, "echo ran");
        assert_eq!(stdout(&output), "ran\n", "{output:?}");
        assert!(stderr(&output).contains(warning), "{output:?}");
        for (flags, status) in [(&optional[..0], 1), (&optional, 0)] {
            let mut serve = Command::new(PROGRAM);
            serve.args(["serve", "--exec"]).args(flags).arg(dir.path());
            let output = serve.env_clear().stdin(Stdio::null()).output().unwrap();
            assert_eq!(output.status.code(), Some(status), "{output:?}");
            assert!(stderr(&output).contains("namespaces"), "{output:?}");
        }
    });
}

#[test]
fn layers_that_are_not_missing_are_used_although_they_are_optional() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--optional-layers", "namespaces"];
    let output = shell(dir.path(), &flags, "echo $$");
    // Its PID namespace has few processes.
    let pid: u32 = stdout(&output).trim().parse().unwrap();
    assert!(pid < 10, "{output:?}");
    assert_eq!(stderr(&output), "");
}

#[test]
fn command_has_a_proxy_only_if_a_host_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let script = "echo $HTTPS_PROXY";
    let allow = ["--allow", "execute:network:crates.io"];
    for (flags, has_proxy) in [
        ([&["--network"], allow.as_slice()].concat(), true),
        (allow.to_vec(), false),
        (vec!["--network"], false),
    ] {
        let output = shell(dir.path(), &flags, script);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let starts = stdout(&output).starts_with("http://127.0.0.1:");
        assert_eq!(starts, has_proxy, "{flags:?}: {output:?}");
    }
}

#[test]
fn streams_and_exit_status_are_those_of_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = program(
        dir.path(),
        &["--", "sh", "-c", "cat; echo error >&2; exit 7"],
    );
    let child = child.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = child.stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"input").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((stdout(&output), stderr(&output)), ("input", "error\n"));
    assert_eq!(output.status.code(), Some(7));
    let killed = shell(dir.path(), &[], "kill -KILL $$");
    assert_eq!(killed.status.code(), Some(128 + 9));
}

#[test]
fn command_that_does_not_run_has_a_status_and_a_code_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("text"), "no program").unwrap();
    let denied = ["--deny-scopes", "execute:command:true", "--", "true"];
    for (arguments, status, text) in [
        (vec!["--", "true"], 0, ""),
        (vec!["--", "no-such-program"], 127, "NOT_FOUND"),
        (vec!["--", "./missing"], 127, "NOT_FOUND"),
        (vec!["--", "./text"], 126, "IO"),
        (denied.to_vec(), 126, "PERMISSION_DENIED"),
        (vec!["--root", "missing", "--", "true"], 125, "missing"),
        (vec!["--no-such-flag", "--", "true"], 125, "--no-such-flag"),
        (vec!["--toolchain", "text", "--", "true"], 125, "text"),
        (vec!["--env", "NOT_SET", "--", "true"], 125, "NOT_SET"),
        (vec![], 125, "COMMAND"),
    ] {
        let output = run(dir.path(), &arguments);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(stderr(&output).contains(text), "{arguments:?} {output:?}");
    }
}

#[test]
fn command_uses_the_current_directory_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    let work = dir.path().join("work");
    fs::create_dir_all(work.join(".git")).unwrap();
    fs::write(&outside, "the secret").unwrap();
    let script = "echo x > file; cat file; cat ../outside /etc/passwd; echo x > ../new; echo x > .git/config; ls /home /root";
    let output = shell(&work, &[], script);
    assert_eq!(stdout(&output), "x\n");
    assert!(!dir.path().join("new").exists() && !work.join(".git/config").exists());
    assert_eq!(fs::read_to_string(work.join("file")).unwrap(), "x\n");
    let outside = dir.path().to_str().unwrap();
    let output = shell(&work, &["--root", outside], "cat ../outside; pwd");
    let pwd = work.canonicalize().unwrap();
    assert_eq!(
        stdout(&output),
        format!("the secret{}\n", pwd.to_str().unwrap())
    );
}

#[test]
fn configuration_restricts_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::write(work.join(".env"), "the secret").unwrap();
    let config = dir.path().join("config.json");
    fs::write(
        &config,
        r#"{ "deny": [".env"], "deny_scopes": ["write:file"] }"#,
    )
    .unwrap();
    let script = "cat .env; echo x > file";
    let free = shell(&work, &[], script);
    assert_eq!(stdout(&free), "the secret");
    fs::remove_file(work.join("file")).unwrap();
    for flags in [
        &["--config", config.to_str().unwrap()][..],
        &["--deny", ".env", "--deny-scopes", "write:file"],
    ] {
        let output = shell(&work, flags, script);
        assert_eq!(stdout(&output), "", "{flags:?}");
        assert!(!work.join("file").exists(), "{flags:?}");
    }
}

#[test]
fn environment_has_only_what_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = program(
        dir.path(),
        &[
            "--env",
            "A",
            "--env",
            "B=2",
            "--",
            "sh",
            "-c",
            "echo $A $B $C $TERM",
        ],
    );
    command.envs([("A", "1"), ("C", "3"), ("TERM", "dumb")]);
    assert_eq!(stdout(&command.output().unwrap()), "1 2 dumb\n");
}

#[test]
fn programs_of_a_toolchain_run_by_name() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    let bin = dir.path().join("toolchain/bin");
    fs::create_dir(&work).unwrap();
    fs::create_dir_all(&bin).unwrap();
    let tool = bin.join("my-tool");
    fs::write(&tool, "#!/bin/sh\necho tool; echo x > $0\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let without = run(&work, &["--", "my-tool"]);
    assert_eq!(without.status.code(), Some(127));
    let output = run(&work, &["--toolchain", "../toolchain", "--", "my-tool"]);
    assert_eq!(stdout(&output), "tool\n", "{output:?}");
    assert!(fs::read_to_string(tool).unwrap().starts_with("#!"));
}

#[test]
fn protected_file_that_the_command_creates_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let output = shell(dir.path(), &[], "mkdir .git");
    assert!(stderr(&output).contains("protected") && stderr(&output).contains(".git"));
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&shell(dir.path(), &[], "mkdir other")), "");
}

#[test]
fn interrupt_kills_everything_that_the_command_started() {
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let dir = tempfile::tempdir().unwrap();
        // The children ignore signals and have sessions of their own; they hold the pipe.
        let script = "trap '' INT TERM; setsid sleep 1000 & echo up; sleep 1000";
        let mut command = program(dir.path(), &["--", "sh", "-c", script]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(status));
        // The pipe is closed, so no process has it.
        assert_eq!(output.read_to_string(&mut line).unwrap(), 0);
    }
}

#[test]
fn command_ends_with_a_killed_program() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = program(dir.path(), &["--", "sh", "-c", "echo up; sleep 1000"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(output.read_to_string(&mut line).unwrap(), 0);
}

#[test]
fn changes_that_are_kept_apart_are_listed_and_not_applied_without_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("old"), "text").unwrap();
    let mut command = Command::new("setsid");
    command.args(["--wait", PROGRAM, "run", "--overlay", "--", "sh", "-c"]);
    let script = "echo more >> old; echo x > new; cat new; exit 3";
    let output = command.arg(script).current_dir(dir.path()).env_clear();
    let output = output.stdin(Stdio::null()).output().unwrap();
    assert_eq!((stdout(&output), output.status.code()), ("x\n", Some(3)));
    let top = dir.path().display();
    for line in [
        format!("not applied: created {top}/new"),
        format!("not applied: changed {top}/old"),
    ] {
        assert!(stderr(&output).contains(&line), "{output:?}");
    }
    assert!(stderr(&output).contains("no terminal"), "{output:?}");
    assert_eq!(fs::read_to_string(dir.path().join("old")).unwrap(), "text");
    assert!(!dir.path().join("new").exists());
    let unchanged = shell(dir.path(), &["--overlay"], "true");
    assert_eq!((stderr(&unchanged), unchanged.status.code()), ("", Some(0)));
}

/// Runs a script with `--overlay` on a terminal, and answers its question. Returns the status and what the terminal showed.
fn on_terminal(dir: &Path, script: &str, answer: &str) -> (ExitStatus, String) {
    let mut command = Command::new("script");
    let command = command.args(["--quiet", "--return", "/dev/null", "--command"]);
    let command = command.arg(format!("'{PROGRAM}' run --overlay -- sh -c '{script}'"));
    command.current_dir(dir).env_clear().stdin(Stdio::piped());
    let mut terminal = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut keyboard = terminal.stdin.take().unwrap();
    let mut screen = terminal.stdout.take().unwrap();
    let (mut shown, mut bytes) = (Vec::new(), [0; 4096]);
    // An answer counts only if its question has been shown for a moment.
    let moment = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    loop {
        let is_still =
            poll(&mut [PollFd::new(&screen, PollFlags::IN)], Some(&moment)).unwrap() == 0;
        if is_still && shown.ends_with(b" to deny: ") {
            writeln!(keyboard, "{answer}").unwrap();
        }
        if is_still {
            continue;
        }
        let length = screen.read(&mut bytes).unwrap();
        if length == 0 {
            break;
        }
        shown.extend(bytes.iter().take(length));
    }
    let shown = String::from_utf8(shown).unwrap();
    (terminal.wait().unwrap(), shown)
}

#[test]
fn changes_that_are_kept_apart_are_applied_if_a_person_allows_it_on_the_terminal() {
    for (answer, is_applied) in [("1", true), ("", false)] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("old"), "text\n").unwrap();
        // What a command does to the terminal ends with it.
        let script = r#"stty -echo; printf "\033[?1049h"; echo more >> old; echo x > new; exit 3"#;
        let (status, shown) = on_terminal(dir.path(), script, answer);
        assert_eq!(status.code(), Some(3), "{shown}");
        let (command, question) = shown.split_once("-- permission q1 --").expect(&shown);
        assert!(command.contains("\x1b[?1049h") && command.contains("\x1b[?1049l"));
        assert!(question.contains(&format!(": {answer}\r\n")), "{shown}");
        assert!(command.contains("not allow now are discarded") && !question.contains("session"));
        assert!(
            question.contains("+more") && question.contains("+x"),
            "{shown}"
        );
        assert_eq!(
            question.contains("bailiwick: applied: "),
            is_applied,
            "{shown}"
        );
        let old = fs::read_to_string(dir.path().join("old")).unwrap();
        assert_eq!(old == "text\nmore\n", is_applied);
        assert_eq!(dir.path().join("new").exists(), is_applied);
    }
}
