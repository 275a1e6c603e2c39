//! Tests with the official SDKs and the Inspector.

use crate::installed::{Environment, run_node, run_python};
use crate::{PROGRAM, serve_http};
use bailiwick_mcp::gateway::Trust;
use bailiwick_test_support::file_tools::{self, calls};
use bailiwick_test_support::workspace::Workspace;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Output;

/// The program over the workspace's root as a command, and the file to which it also writes what it says.
fn program(workspace: &Workspace) -> (Vec<String>, PathBuf) {
    let capture = workspace.path("capture");
    let script = r#""$1" serve "$2" | tee -a "$3""#;
    let command = ["sh", "-c", script, "sh", PROGRAM];
    let mut command: Vec<_> = command.map(ToOwned::to_owned).into();
    command.extend([workspace.path("r"), capture.clone()].map(|path| path.display().to_string()));
    (command, capture)
}

/// What a script printed last.
#[track_caller]
fn json_output(output: &Output) -> Value {
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
fn check_content(report: &Value) {
    let expected = json!({
        "tools": file_tools::names(), "faults": [], "text": "one\ntwo\nthree\n", "prompts": ["review-changes"],
    });
    assert_eq!(report, &expected);
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
    let workspace = Workspace::new();
    let (command, capture) = program(&workspace);
    let mut arguments: Vec<_> = ["call.mjs", sdk].map(ToOwned::to_owned).into();
    arguments.extend([calls().to_string(), "stdio".to_owned()]);
    arguments.extend(command);
    check_content(&json_output(&run_node(arguments).await));
    only_messages(&capture);
}

/// The same over HTTP, in this process.
async fn typescript_over_http(sdk: &str) {
    let workspace = Workspace::new();
    let gateway = workspace.gateway(Trust::Agent).build();
    let (url, _stop) = serve_http(&gateway).await;
    let calls = calls().to_string();
    let arguments = ["call.mjs", sdk, &calls, "http", &url].map(ToOwned::to_owned);
    check_content(&json_output(&run_node(arguments.into()).await));
}

#[tokio::test]
async fn first_typescript_client_calls_every_tool_over_stdio() {
    typescript_over_stdio("v1").await;
}

#[tokio::test]
async fn typescript_client_calls_every_tool_over_stdio_with_handshake() {
    typescript_over_stdio("legacy").await;
}

#[tokio::test]
async fn typescript_client_calls_every_tool_over_stdio_without_handshake() {
    typescript_over_stdio("modern").await;
}

#[tokio::test]
async fn first_typescript_client_calls_every_tool_over_http() {
    typescript_over_http("v1").await;
}

#[tokio::test]
async fn typescript_client_calls_every_tool_over_http_with_handshake() {
    typescript_over_http("legacy").await;
}

#[tokio::test]
async fn typescript_client_calls_every_tool_over_http_without_handshake() {
    typescript_over_http("modern").await;
}

/// The official Python client calls every tool over stdio.
async fn python_over_stdio(mode: &str) {
    let workspace = Workspace::new();
    let (command, capture) = program(&workspace);
    let mut arguments = vec!["call.py".to_owned(), mode.to_owned(), calls().to_string()];
    arguments.extend(command);
    check_content(&json_output(
        &run_python(Environment::Current, arguments).await,
    ));
    only_messages(&capture);
}

#[tokio::test]
async fn python_client_calls_every_tool_with_handshake() {
    python_over_stdio("legacy").await;
}

#[tokio::test]
async fn python_client_calls_every_tool_without_handshake() {
    python_over_stdio("2026-07-28").await;
}

#[tokio::test]
async fn python_client_negotiates_the_revision() {
    python_over_stdio("auto").await;
}

/// What the Inspector's command line prints for a method.
async fn inspected(workspace: &Workspace, era: &str, method: &[&str]) -> (Value, PathBuf) {
    let (command, capture) = program(workspace);
    let launcher = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let mut arguments: Vec<_> = [launcher, "--cli"].map(ToOwned::to_owned).into();
    arguments.extend(command);
    let options = ["--format", "json", "--protocol-era", era, "--method"];
    arguments.extend(options.iter().chain(method).map(|text| (*text).to_owned()));
    let output = run_node(arguments).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}{errors}");
    let printed: Value = serde_json::from_str(&text).unwrap();
    (printed["result"].clone(), capture)
}

async fn inspector(era: &str) {
    let workspace = Workspace::new();
    let (listed, capture) = inspected(&workspace, era, &["tools/list"]).await;
    let tools = listed["tools"].as_array().unwrap();
    let mut names: Vec<_> = tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, file_tools::names());
    let read = [
        "tools/call",
        "--tool-name",
        "read_file",
        "--tool-args-json",
        r#"{"path":"a.txt"}"#,
    ];
    let (read, _) = inspected(&workspace, era, &read).await;
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
    let (shown, _) = inspected(&workspace, era, &shown).await;
    assert_eq!(shown["_meta"]["preview"], true, "{shown}");
    assert!(!workspace.path("r/new").exists());
    let (resources, _) = inspected(&workspace, era, &["resources/list"]).await;
    assert!(resources["resources"][0]["uri"].is_string(), "{resources}");
    only_messages(&capture);
}

#[tokio::test]
async fn inspector_lists_calls_and_previews_with_handshake() {
    inspector("legacy").await;
}

#[tokio::test]
async fn inspector_lists_calls_and_previews_without_handshake() {
    inspector("modern").await;
}

/// The most tokens (cl100k_base) that the name, description and arguments of all tools cost a model.
const MAX_TOKENS: u64 = 1_700;

#[tokio::test]
async fn list_of_tools_costs_a_model_at_most_1700_tokens() {
    let arguments = ["tokens.mjs", PROGRAM, "--json"].map(ToOwned::to_owned);
    let listed = json_output(&run_node(arguments.into()).await);
    assert_eq!(listed["tools"], 13, "{listed}");
    assert!(listed["tokens"].as_u64().unwrap() <= MAX_TOKENS, "{listed}");
}

#[tokio::test]
async fn converters_of_model_sdks_keep_schemas() {
    let converters = [
        (Environment::Current, "openai_strict,gemini"),
        (Environment::First, "anthropic,gemini,langchain"),
    ];
    for (environment, converters) in converters {
        let workspace = Workspace::new();
        let (command, _) = program(&workspace);
        let mut arguments = vec!["converters.py".to_owned(), converters.to_owned()];
        arguments.extend(command);
        let report = json_output(&run_python(environment, arguments).await);
        assert_eq!(report, json!({"tools": 13, "faults": []}));
    }
}
