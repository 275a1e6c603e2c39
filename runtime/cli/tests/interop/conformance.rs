//! Tests with the official conformance suite for servers.

mod fixtures;
mod questions;
pub(crate) mod verdict;
mod with_fixtures;

use crate::installed::run_node;
use bailiwick_mcp::gateway::Http;
use bailiwick_mcp::gateway::Trust;
use bailiwick_test_support::workspace::Workspace;
use std::collections::BTreeMap;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use verdict::Verdict;
use verdict::required;
use with_fixtures::WithFixtures;

/// Runs what `revision` requires of servers against a gateway on a free port: how many scenarios there were, and how their
/// checks ended.
async fn run(revision: &str) -> (usize, Verdict) {
    let workspace = Workspace::new();
    let gateway = workspace.gateway(Trust::Agent).build();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let serving = tokio::spawn({
        let stop = stop.clone();
        async move {
            let wrap = WithFixtures::wrapper();
            gateway
                .serve_http_with_handler(listener, Http::without_token(), stop.cancelled(), wrap)
                .await
        }
    });
    let out = tempfile::tempdir().unwrap();
    let suite = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
    let arguments = [suite, "server", "--url", &url, "--requirements", revision];
    let mut arguments: Vec<_> = arguments.map(ToOwned::to_owned).into();
    arguments.extend(["-o".to_owned(), out.path().display().to_string()]);
    let output = run_node(arguments).await;
    stop.cancel();
    serving.await.unwrap().unwrap();
    let required = required(revision, "server:");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let mut verdict = Verdict::default();
    for scenario in &required {
        let seen = verdict.add(out.path(), &format!("server-{scenario}"));
        assert!(seen > 0, "`{scenario}` was not run: {stderr}");
    }
    (required.len(), verdict)
}

/// All checks succeeded, and none was left out.
fn passed(scenarios: usize, checks: usize) -> (usize, Verdict) {
    let tally = BTreeMap::from([("SUCCESS".to_owned(), checks)]);
    let failed = Vec::new();
    (scenarios, Verdict { tally, failed })
}

#[tokio::test]
async fn every_scenario_that_2025_11_25_requires_of_servers_passes() {
    assert_eq!(run("2025-11-25").await, passed(30, 70));
}

#[tokio::test]
async fn every_scenario_that_2026_07_28_requires_of_servers_passes() {
    assert_eq!(run("2026-07-28").await, passed(37, 121));
}
