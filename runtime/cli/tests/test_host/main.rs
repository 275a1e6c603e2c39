//! Tests of `bailiwick test-host`.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, in its helpers too, and reads files"
)]

mod api;
mod command_line;
#[cfg(feature = "interop")]
mod third_party;

use std::path::Path;

use bailiwick_cli::check::{Connection, Target};
use bailiwick_cli::test_host::{TestHost, TestHostError};
use bailiwick_test_support::{invalid_server, wait};
use serde_json::json;
use tokio::net::TcpListener;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bailiwick");

#[test]
fn invalid_server_process() {
    invalid_server::serve();
}

/// The command of a server whose messages are invalid.
fn invalid_server() -> Vec<&'static str> {
    invalid_server::command("invalid_server_process")
}

/// A test host that has connected to the server of this command.
async fn serving(command: &[&str]) -> TestHost {
    serving_with(command, Connection::default()).await
}

async fn serving_with(command: &[&str], connection: Connection) -> TestHost {
    let (program, arguments) = command.split_first().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = TestHost::serve(listener, Target::command(program, arguments)).unwrap();
    host.connect(connection).await;
    host
}

#[tokio::test]
async fn page_is_served_on_loopback_addresses_only() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let refused = TestHost::serve(listener, Target::command("true", [""; 0]));
    assert!(matches!(refused, Err(TestHostError::NotLoopback(_))));
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let host = TestHost::serve(listener, Target::command("true", [""; 0])).unwrap();
    assert!(host.url().starts_with("http://[::1]:"), "{}", host.url());
}

#[tokio::test]
async fn server_that_ignores_end_of_input_ends_with_its_host() {
    let server = invalid_server();
    for stay in ["", "1"] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let file = file.to_str().unwrap();
        let script = r#"echo $$ >"$1"; export STAY="$2"; shift 2; exec "$@""#;
        let command = [&["sh", "-c", script, "sh", file, stay][..], &server].concat();
        let host = serving(&command).await;
        let state = api::Page::of(&host).ask("state", &json!({})).await;
        assert_eq!(state["status"], "ready", "{state}");
        let id = std::fs::read_to_string(file).unwrap();
        let id = id.trim();
        assert!(Path::new("/proc").join(id).exists());
        host.shutdown().await;
        wait::for_exit(id.parse().unwrap()).await;
    }
}
