//! Tests with third-party clients, servers, conformance suites and a browser.
//!
//! These tests need Node with npm, Python, Chromium and the registries; `cargo test --features interop` runs them.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes its files itself"
)]

mod browser;
mod clients;
mod conformance;
mod console;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "../console/support.rs"]
mod console_support;
#[path = "../serving/every_tool.rs"]
mod every_tool;
mod frameworks;
mod gateway;
mod host_suite;
mod installed;
mod patches;
#[path = "../../../../ui-assets/tests/support/playwright.rs"]
mod playwright;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "../upstream/raw.rs"]
mod raw;
mod servers;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "../serving/support.rs"]
mod support;
mod third_party;
mod through_gateway;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "../upstream/support.rs"]
mod upstream_support;

use bailiwick_mcp::gateway::{Gateway, Http};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

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
