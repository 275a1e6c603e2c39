//! Tests with third-party clients, servers, conformance suites and a browser.
//!
//! These tests need Node with npm, Python, Chromium and the registries; `cargo test --features interop` runs them.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes its files itself"
)]

mod browser;
mod clients;
mod conformance;
mod console;
mod frameworks;
mod gateway;
mod host_suite;
mod installed;
mod patches;
mod servers;
mod third_party;
mod through_gateway;

use bailiwick_mcp::gateway::{Gateway, Http};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_bailiwick");

/// Serves a gateway without a token on a free loopback port until the guard is dropped; its URL.
async fn serve_http(gateway: &Gateway) -> (String, DropGuard) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let (gateway, stop) = (gateway.clone(), CancellationToken::new());
    let stopped = stop.clone().cancelled_owned();
    let http = Http::without_token();
    tokio::spawn(async move { gateway.serve_http(listener, http, stopped).await });
    (url, stop.drop_guard())
}
