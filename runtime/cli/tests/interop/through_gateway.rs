//! Tests with third-party clients and servers through the gateway.
//!
//! Each runs its own script, or a bridge, with the calls of `python/through_gateway.py` or `node/gateway_calls.mjs`: two are
//! answered, and one is refused.

use std::fs;
use std::process::Output;

use crate::PROGRAM;
use crate::installed::{Environment, python_program, run_node, run_python};
use crate::third_party::ThirdParty;

const KNOWN: &str =
    r#"{"type":"entity","name":"tide","entityType":"event","observations":["high water at noon"]}"#;

/// Two servers, of which `memory` knows one thing.
async fn servers() -> ThirdParty {
    let servers = ThirdParty::with(&["everything", "memory"]).await;
    fs::write(servers.path("home/memory.jsonl"), format!("{KNOWN}\n")).unwrap();
    servers
}

/// The words of a script, and the gateway as a command after them.
fn arguments(words: &[&str], servers: &ThirdParty) -> Vec<String> {
    let at = |variable: &str, name: &str| format!("{variable}{}", servers.path(name).display());
    let words = words.iter().map(|word| (*word).to_owned());
    let environment = [
        "/usr/bin/env".to_owned(),
        at("--chdir=", ""),
        at("HOME=", "home"),
        at("XDG_STATE_HOME=", "state"),
    ];
    let gateway = [
        PROGRAM,
        "serve",
        "--servers",
        "mcp.json",
        "--allow",
        "read:mcp",
    ];
    let gateway = gateway.map(ToOwned::to_owned);
    words.chain(environment).chain(gateway).collect()
}

#[track_caller]
fn succeeded(client: &str, output: &Output, servers: &ThirdParty) {
    assert!(
        output.status.success(),
        "{client}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let known = fs::read_to_string(servers.path("home/memory.jsonl")).unwrap();
    assert_eq!(known.trim_end(), KNOWN, "{client} changed what it may not");
}

async fn python(environment: Environment, scripts: &[&str]) {
    let servers = servers().await;
    for script in scripts {
        let words = ["through_gateway.py", script];
        let output = run_python(environment, arguments(&words, &servers)).await;
        succeeded(script, &output, &servers);
    }
}

async fn node(script: &str, clients: &[&str]) {
    let servers = servers().await;
    for client in clients {
        let output = run_node(arguments(&[script, client], &servers)).await;
        succeeded(client, &output, &servers);
    }
}

#[tokio::test]
async fn frameworks_with_the_current_python_sdk_use_third_party_tools() {
    let scripts = [
        "fastmcp_client.py",
        "pydantic_ai_agent.py",
        "openai_agents.py",
        "google_adk.py",
        "llama_index_tools.py",
        "agno_tools.py",
    ];
    python(Environment::Current, &scripts).await;
}

#[tokio::test]
async fn frameworks_with_the_first_python_sdk_use_third_party_tools() {
    let scripts = [
        "langchain_tools.py",
        "smolagents_agent.py",
        "mcp_use_tools.py",
    ];
    python(Environment::First, &scripts).await;
}

#[tokio::test]
async fn clients_in_javascript_use_third_party_tools() {
    node("through_gateway.mjs", &["ai.mjs", "mcporter.mjs"]).await;
}

#[tokio::test]
async fn clients_behind_bridges_use_third_party_tools() {
    let proxy = python_program(Environment::First, "mcp-proxy").await;
    let bridges = ["mcp-remote", "supergateway", proxy.to_str().unwrap()];
    node("bridge_to_gateway.mjs", &bridges).await;
}
