//! Tests of the arguments, the output and the exit status.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use bailiwick_test_support::temp_files::{assert_fails, stdout};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::{PROGRAM, api, invalid_server};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("test-host").args(arguments);
    command.stdin(Stdio::null());
    command
}

#[test]
fn help_exits_with_0_and_names_options_and_examples() {
    let help = stdout(command(&["--help"]).output().unwrap());
    for part in [
        "bailiwick test-host [OPTIONS] (COMMAND [ARGS]... | --url URL)",
        "--port <PORT>",
        "--bearer-env <VAR>",
        "--configuration <JSON>",
        "Ctrl-C ends the page",
        "bailiwick test-host node server.js",
    ] {
        assert!(help.contains(part), "`{part}` is not in:\n{help}");
    }
    let program = stdout(Command::new(PROGRAM).arg("--help").output().unwrap());
    assert!(program.contains("  test-host  "), "{program}");
}

#[test]
fn missing_server_is_an_error_that_names_the_command() {
    let ways = [
        "missing server: use `bailiwick test-host COMMAND [ARGS]...` to start one over stdio",
        "`bailiwick test-host --url URL`",
    ];
    assert_fails(command(&[]).output().unwrap(), 2, &ways);
}

#[test]
fn unknown_and_conflicting_arguments_are_rejected() {
    let url = ["--url", "http://127.0.0.1:1/"];
    for (arguments, part) in [
        (&["--nonsense", "node"][..], "--nonsense"),
        (&["--json", "node"], "--json"),
        (&["--port", "65536", "node"], "--port"),
        (&[&url[..], &["node"]].concat(), "--url"),
        (&["--bearer-env", "TOKEN", "node"], "--bearer-env"),
        (&["--url", "ftp://x/"], "is not an http:// or https:// URL"),
        (&["--revision", "1999-01-01", "node"], "2026-07-28"),
        (&["--configuration", "[]", "node"], "--configuration"),
    ] {
        assert_fails(command(arguments).output().unwrap(), 2, &[part]);
    }
}

#[test]
fn port_in_use_is_an_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ended = command(&["--port", &port, "true"]).output().unwrap();
    assert_fails(ended, 2, &["in use"]);
}

#[tokio::test]
async fn program_prints_the_url_and_exits_with_0_on_a_signal() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut process = command(&invalid_server())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = lines.next().unwrap().unwrap();
        let connected = json!({"revision": "2025-11-25"});
        let state = api::Page::new(&url).ask("connect", &connected).await;
        assert_eq!(state["status"], "ready", "{state}");
        let id = Pid::from_child(&process);
        kill_process(id, signal).unwrap();
        assert!(process.wait().unwrap().success(), "{signal:?}");
        assert_eq!(lines.count(), 0);
    }
}
