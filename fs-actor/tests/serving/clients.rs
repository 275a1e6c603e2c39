//! Clients that others wrote in, what they made of the gateway and of the program out.

mod rust;

use std::path::{Path, PathBuf};
use std::process::Output;

use bailiwick::{Http, Trust};
use serde_json::{Value, json};

use crate::http::Served;
use crate::support::World;
use crate::{node, python};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bailiwick-fs");

const TOOLS: [&str; 12] = [
    "copy",
    "delete",
    "edit_file",
    "find",
    "grep",
    "list_directory",
    "list_roots",
    "make_directory",
    "move",
    "read_file",
    "stat",
    "write_file",
];

/// Calls of every tool, some of which fail and some of which are previews.
fn calls() -> Value {
    let call = |tool: &str, arguments: Value| json!({"tool": tool, "arguments": arguments, "fails": false, "preview": false});
    let fails = |tool: &str, arguments: Value| json!({"tool": tool, "arguments": arguments, "fails": true, "preview": false});
    let preview = |tool: &str, arguments: Value| json!({"tool": tool, "arguments": arguments, "fails": false, "preview": true});
    let edit =
        |old: &str| json!({"path": "new.txt", "edits": [{"old_text": old, "new_text": "2"}]});
    json!([
        call("list_roots", json!({})),
        call("list_directory", json!({"path": "src"})),
        call("stat", json!({"path": "a.txt"})),
        call("read_file", json!({"path": "a.txt"})),
        fails("read_file", json!({"path": "none"})),
        call("find", json!({"pattern": "*"})),
        call("grep", json!({"pattern": "one"})),
        preview("write_file", json!({"path": "new.txt", "content": "one\n"})),
        fails("stat", json!({"path": "new.txt"})),
        call("write_file", json!({"path": "new.txt", "content": "one\n"})),
        preview("edit_file", edit("one")),
        call("edit_file", edit("one")),
        fails("edit_file", edit("three")),
        call("make_directory", json!({"path": "made"})),
        call("copy", json!({"from": "new.txt", "to": "made/copy.txt"})),
        preview(
            "move",
            json!({"from": "made/copy.txt", "to": "made/moved.txt"})
        ),
        call(
            "move",
            json!({"from": "made/copy.txt", "to": "made/moved.txt"})
        ),
        preview("delete", json!({"path": "made", "recursive": true})),
        call("delete", json!({"path": "made", "recursive": true})),
    ])
}

/// The program over the world's root as a command, and the file to which it also writes what it says.
fn program(world: &World) -> (Vec<String>, PathBuf) {
    let capture = world.host("capture");
    let script = r#""$1" "$2" | tee -a "$3""#;
    let command = ["sh", "-c", script, "sh", PROGRAM];
    let mut command: Vec<_> = command.map(ToOwned::to_owned).into();
    command.extend([world.host("r"), capture.clone()].map(|path| path.display().to_string()));
    (command, capture)
}

/// What a script printed last.
#[track_caller]
fn told(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// Every tool was listed and called, and everything was as it was described.
#[track_caller]
fn content(told: &Value) {
    let expected = json!({
        "tools": TOOLS, "faults": [], "text": "one\ntwo\nthree\n", "prompts": ["review-changes"],
    });
    assert_eq!(told, &expected);
}

/// Whatever the program wrote is messages, one a line.
#[track_caller]
fn only_messages(capture: &Path) {
    let text = std::fs::read_to_string(capture).unwrap();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        let message: Value = serde_json::from_str(line).unwrap();
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
    }
}

/// The official TypeScript client calls every tool over stdio.
async fn typescript_over_stdio(sdk: &str) {
    let world = World::new();
    let (command, capture) = program(&world);
    let mut arguments: Vec<_> = ["call.mjs", sdk].map(ToOwned::to_owned).into();
    arguments.extend([calls().to_string(), "stdio".to_owned()]);
    arguments.extend(command);
    content(&told(&node::run(arguments).await));
    only_messages(&capture);
}

/// The same over HTTP, in this process.
async fn typescript_over_http(sdk: &str) {
    let world = World::new();
    let gateway = world.gateway(Trust::Agent).build();
    let server = Served::of(&gateway, Http::without_token()).await;
    let url = format!("http://{}/mcp", server.address);
    let calls = calls().to_string();
    let arguments = ["call.mjs", sdk, &calls, "http", &url].map(ToOwned::to_owned);
    content(&told(&node::run(arguments.into()).await));
}

#[tokio::test]
async fn the_first_typescript_client_calls_every_tool_over_stdio() {
    typescript_over_stdio("v1").await;
}

#[tokio::test]
async fn the_typescript_client_calls_every_tool_over_stdio_with_a_handshake() {
    typescript_over_stdio("legacy").await;
}

#[tokio::test]
async fn the_typescript_client_calls_every_tool_over_stdio_without_one() {
    typescript_over_stdio("modern").await;
}

#[tokio::test]
async fn the_first_typescript_client_calls_every_tool_over_http() {
    typescript_over_http("v1").await;
}

#[tokio::test]
async fn the_typescript_client_calls_every_tool_over_http_with_a_handshake() {
    typescript_over_http("legacy").await;
}

#[tokio::test]
async fn the_typescript_client_calls_every_tool_over_http_without_one() {
    typescript_over_http("modern").await;
}

/// The official Python client calls every tool over stdio.
async fn python_over_stdio(mode: &str) {
    let world = World::new();
    let (command, capture) = program(&world);
    let mut arguments = vec![mode.to_owned(), calls().to_string()];
    arguments.extend(command);
    content(&told(&python::run("call.py", arguments).await));
    only_messages(&capture);
}

#[tokio::test]
async fn the_python_client_calls_every_tool_with_a_handshake() {
    python_over_stdio("legacy").await;
}

#[tokio::test]
async fn the_python_client_calls_every_tool_without_one() {
    python_over_stdio("2026-07-28").await;
}

#[tokio::test]
async fn the_python_client_finds_out_what_is_spoken() {
    python_over_stdio("auto").await;
}

/// What the Inspector's command line prints for a method.
async fn inspected(world: &World, era: &str, method: &[&str]) -> (Value, PathBuf) {
    let (command, capture) = program(world);
    let launcher = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let mut arguments: Vec<_> = [launcher, "--cli"].map(ToOwned::to_owned).into();
    arguments.extend(command);
    let options = ["--format", "json", "--protocol-era", era, "--method"];
    arguments.extend(options.iter().chain(method).map(|text| (*text).to_owned()));
    let output = node::run(arguments).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}{errors}");
    let printed: Value = serde_json::from_str(&text).unwrap();
    (printed["result"].clone(), capture)
}

async fn inspector(era: &str) {
    let world = World::new();
    let (listed, capture) = inspected(&world, era, &["tools/list"]).await;
    let tools = listed["tools"].as_array().unwrap();
    let mut names: Vec<_> = tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, TOOLS);
    let read = [
        "tools/call",
        "--tool-name",
        "read_file",
        "--tool-args-json",
        r#"{"path":"a.txt"}"#,
    ];
    let (read, _) = inspected(&world, era, &read).await;
    assert_eq!(read["content"][0]["text"], "one\ntwo\nthree\n", "{read}");
    let write = r#"{"path":"new","content":"x"}"#;
    let shown = [
        "tools/call",
        "--tool-name",
        "write_file",
        "--tool-args-json",
        write,
        "--tool-metadata",
        "preview=true",
    ];
    let (shown, _) = inspected(&world, era, &shown).await;
    assert_eq!(shown["_meta"]["preview"], true, "{shown}");
    assert!(!world.host("r/new").exists());
    let (resources, _) = inspected(&world, era, &["resources/list"]).await;
    assert!(resources["resources"][0]["uri"].is_string(), "{resources}");
    only_messages(&capture);
}

#[tokio::test]
async fn the_inspector_lists_calls_and_previews_with_a_handshake() {
    inspector("legacy").await;
}

#[tokio::test]
async fn the_inspector_lists_calls_and_previews_without_one() {
    inspector("modern").await;
}
