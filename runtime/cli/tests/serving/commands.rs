//! Tests of `serve --exec`: clients run commands.

use std::fs;
use std::process::Command;

use bailiwick_test_support::server::Server;
use bailiwick_test_support::temp_files::TempFiles;
use serde_json::{Value, json};

use crate::{PROGRAM, program};

/// The program with a directory, `--exec` and these flags, after a handshake with a client that can ask its user.
fn started(files: &TempFiles, flags: &[&str]) -> Server {
    let dir = files.dir().to_str().unwrap();
    let mut server = program::start(&[flags, &["--exec", dir]].concat(), &[]);
    let answer = server.initialize(&json!({ "elicitation": {} }));
    assert!(answer["result"].is_object(), "{answer}");
    server
}

fn send(server: &mut Server, argv: &[&str]) {
    let params = json!({ "name": "run_command", "arguments": { "argv": argv } });
    let call = json!({ "jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params });
    server.send(&call);
}

fn answer(server: &mut Server, question: &Value, decision: &str) {
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let result = json!({ "action": "accept", "content": { "decision": decision } });
    server.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
}

#[test]
fn command_is_offered_only_with_the_flag() {
    let files = TempFiles::new(&[]);
    let has_tool = |server: &mut Server| {
        let tools = server.result("tools/list", json!({}))["tools"].clone();
        let mut tools = tools.as_array().unwrap().iter();
        tools.any(|tool| tool["name"] == "run_command")
    };
    assert!(has_tool(&mut started(&files, &[])));
    let mut without = program::start(&[files.dir().to_str().unwrap()], &[]);
    without.initialize(&json!({}));
    assert!(!has_tool(&mut without));
}

#[test]
fn command_runs_if_a_person_allows_it() {
    for (decision, runs) in [("allow", true), ("deny", false)] {
        let files = TempFiles::new(&[]);
        let mut server = started(&files, &[]);
        send(&mut server, &["touch", "new"]);
        let question = server.receive();
        assert!(question.to_string().contains("touch"), "{question}");
        let message = question["params"]["message"].as_str().unwrap();
        let layers = "sandbox: namespaces, a private /proc, ";
        assert!(message.contains(layers), "{message}");
        answer(&mut server, &question, decision);
        let done = server.receive();
        let structured = &done["result"]["structuredContent"];
        if runs {
            assert_eq!(structured["exit_code"], 0, "{done}");
        } else {
            assert_eq!(structured["code"], "PERMISSION_DENIED", "{done}");
        }
        assert_eq!(files.dir().join("new").exists(), runs);
    }
}

#[test]
fn allowed_command_runs_in_a_sandbox_without_a_question() {
    let files = TempFiles::new(&[]);
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    fs::write(&secret, "the secret").unwrap();
    fs::write(files.dir().join("file"), "text").unwrap();
    let mut server = started(&files, &["--allow", "execute:command:cat"]);
    send(&mut server, &["cat", "file", secret.to_str().unwrap()]);
    let done = server.receive();
    let output = &done["result"]["structuredContent"];
    assert_eq!(output["stdout"], "text", "{done}");
    assert_eq!(output["exit_code"], 1, "{done}");
}

#[test]
fn command_is_denied_without_execute() {
    for flags in [
        ["--deny-scopes", "execute:command"],
        ["--verbs", "read,write"],
        ["--grantable", "read:mcp"],
    ] {
        let files = TempFiles::new(&[]);
        let mut server = started(&files, &flags);
        send(&mut server, &["touch", "new"]);
        let done = server.receive();
        let code = &done["result"]["structuredContent"]["code"];
        assert_eq!(code, "PERMISSION_DENIED", "{flags:?} {done}");
        assert!(!files.dir().join("new").exists());
    }
}

#[test]
fn server_starts_only_if_commands_can_be_confined() {
    let files = TempFiles::new(&[]);
    // In a user namespace that allows no other.
    let script =
        "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" serve \"$@\" < /dev/null";
    for (flag, starts) in [("--exec", false), ("--read-only", true)] {
        let output = Command::new("unshare")
            .args(["--user", "--map-root-user", "sh", "-c", script])
            .args([PROGRAM, flag, files.dir().to_str().unwrap()])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), starts, "{flag}: {text}");
        let names_cause =
            text.contains("cannot offer `run_command`") && text.contains("namespaces");
        assert_eq!(names_cause, !starts, "{flag}: {text}");
    }
}
