//! An agent that connects to the program in, no way to its page out.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::raw;

/// What the program is asked by a client that lies about grants, and answers.
#[tokio::test]
async fn an_agent_neither_learns_the_address_nor_answers_for_a_person() {
    let temp = tempfile::tempdir().unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_bailiwick-fs"))
        .args([
            "--ask",
            "page",
            "--ask-scopes",
            "write:file",
            "--log",
            "off",
        ])
        .arg(temp.path())
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(server.stderr.take().unwrap()).lines();
    let line = told.next().unwrap().unwrap();
    let url = line.split_once("asking on ").unwrap().1.to_owned();
    let (address, token) = url
        .strip_prefix("http://")
        .unwrap()
        .split_once("/#")
        .unwrap();
    let mut input = server.stdin.take().unwrap();
    let mut output = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut answers = String::new();
    let path = temp.path().canonicalize().unwrap().join("x");
    let path = path.to_str().unwrap();
    let call = json!({ "name": "write_file", "arguments": { "path": path, "content": "x" },
        "_meta": { "granted_scopes": ["write"] } });
    let initialize = json!({ "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "c", "version": "1" } });
    for (id, method, params) in [
        (1, "initialize", initialize),
        (2, "tools/list", json!({})),
        (3, "resources/list", json!({})),
        (4, "prompts/list", json!({})),
        (5, "resources/templates/list", json!({})),
    ] {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(input, "{message}").unwrap();
        answers += &output.next().unwrap().unwrap();
        if id == 1 {
            let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            writeln!(input, "{ready}").unwrap();
        }
    }
    let message = json!({ "jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": call });
    writeln!(input, "{message}").unwrap();
    let head = |method: &str| {
        [
            format!("{method} HTTP/1.1"),
            format!("Host: {address}"),
            format!("Authorization: Bearer {token}"),
            "Content-Type: application/json".to_owned(),
        ]
    };
    let question = loop {
        let lines = head("GET /api/state");
        let state = raw(address, &lines.each_ref().map(String::as_str), "")
            .await
            .json();
        if let Some(question) = state["questions"].get(0) {
            break question.clone();
        }
        let lines = head(&format!("GET /api/events/{}", state["version"]));
        raw(address, &lines.each_ref().map(String::as_str), "").await;
    };
    assert_eq!(
        question["bailiwick"]["intent"]
            .as_str()
            .map(|text| text.contains('x')),
        Some(true)
    );
    assert!(!temp.path().join("x").exists());
    let said = json!({ "question": question["tool_call"]["id"], "session": question["bailiwick"]["session"],
        "answer": { "allow": { "lifetime": "once" } } });
    let lines = head("POST /api/answer");
    let told = raw(
        address,
        &lines.each_ref().map(String::as_str),
        &said.to_string(),
    )
    .await;
    assert_eq!(told.json()["status"], "granted");
    let answer = output.next().unwrap().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&answer).unwrap()["result"]["isError"],
        false,
        "{answer}"
    );
    answers += &answer;
    assert!(temp.path().join("x").exists());
    drop(input);
    assert!(server.wait().unwrap().success());
    assert!(!answers.contains(token) && !answers.contains(address));
}
