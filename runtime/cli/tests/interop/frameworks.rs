//! Tests with agent frameworks: what their models receive.
//!
//! Each script makes the calls of `python/framework.py` or `node/framework.mjs` and fails if a message for the model lacks
//! something. No model is reached: the frameworks run with one that records its requests.

use std::fs;
use std::process::Output;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::PROGRAM;
use crate::installed::{Environment, run_node, run_python};

/// A picture of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// A root with a text, a picture and a file that the server denies.
fn root() -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("root");
    fs::create_dir_all(root.join("secret")).unwrap();
    fs::write(root.join("a.txt"), "first line\nsecond line\nthird line\n").unwrap();
    fs::write(root.join("secret/key"), "hidden content").unwrap();
    let pixel = BASE64_STANDARD.decode(PIXEL).unwrap();
    fs::write(root.join("pixel.png"), pixel).unwrap();
    temp
}

fn arguments(words: &[&str], temp: &tempfile::TempDir) -> Vec<String> {
    let root = temp.path().join("root").display().to_string();
    let words = words.iter().map(|word| (*word).to_owned());
    words.chain([PROGRAM.to_owned(), root]).collect()
}

#[track_caller]
fn succeeded(output: &Output) {
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

async fn python(environment: Environment, script: &str) {
    let temp = root();
    let output = run_python(environment, arguments(&[script], &temp)).await;
    succeeded(&output);
}

async fn node(words: &[&str]) {
    let temp = root();
    succeeded(&run_node(arguments(words, &temp)).await);
}

#[tokio::test]
async fn fastmcp_returns_complete_content_and_data() {
    python(Environment::Current, "fastmcp_client.py").await;
}

#[tokio::test]
async fn models_of_pydantic_ai_receive_file_content() {
    python(Environment::Current, "pydantic_ai_agent.py").await;
}

#[tokio::test]
async fn models_of_openai_agents_receive_text_and_structured_content() {
    python(Environment::Current, "openai_agents.py").await;
}

#[tokio::test]
async fn models_of_google_adk_receive_file_content() {
    python(Environment::Current, "google_adk.py").await;
}

#[tokio::test]
async fn models_of_llama_index_receive_file_content() {
    python(Environment::Current, "llama_index_tools.py").await;
}

#[tokio::test]
async fn models_of_agno_receive_file_content() {
    python(Environment::Current, "agno_tools.py").await;
}

#[tokio::test]
async fn models_of_smolagents_receive_text_and_structured_content() {
    python(Environment::First, "smolagents_agent.py").await;
}

#[tokio::test]
async fn langchain_builds_the_next_request_for_three_providers() {
    python(Environment::First, "langchain_tools.py").await;
}

#[tokio::test]
async fn models_of_mcp_use_receive_file_content() {
    python(Environment::First, "mcp_use_tools.py").await;
}

#[tokio::test]
async fn models_of_the_ai_sdk_receive_file_content() {
    node(&["ai.mjs"]).await;
}

#[tokio::test]
async fn mcporter_prints_file_content_as_text_and_json() {
    node(&["mcporter.mjs"]).await;
}

#[tokio::test]
async fn mcp_remote_forwards_file_content_and_forged_grants_are_ignored() {
    node(&["bridges.mjs", "mcp-remote"]).await;
}

#[tokio::test]
async fn supergateway_forwards_file_content_and_forged_grants_are_ignored() {
    node(&["bridges.mjs", "supergateway"]).await;
}

#[tokio::test]
async fn mcp_proxy_forwards_file_content_and_forged_grants_are_ignored() {
    let program = crate::installed::python_program(Environment::First, "mcp-proxy").await;
    node(&["bridges.mjs", "mcp-proxy", program.to_str().unwrap()]).await;
}
