//! Tests with the official conformance suite for clients.
//!
//! The suite starts this very program once for each scenario, as the client: it runs `conformance_client_process` alone.

mod client;

use crate::conformance::verdict::{Verdict, required};
use crate::installed::run_node;

#[tokio::test]
async fn conformance_client_process() {
    if std::env::var_os("MCP_CONFORMANCE_SCENARIO").is_some() {
        let url = std::env::args().next_back().unwrap();
        client::run(&url).await;
    }
}

#[tokio::test]
async fn every_scenario_that_2025_11_25_requires_of_clients_passes() {
    judged("2025-11-25", 18).await;
}

#[tokio::test]
async fn every_scenario_that_2026_07_28_requires_of_clients_passes() {
    judged("2026-07-28", 32).await;
}

fn succeeded(verdict: &Verdict) -> usize {
    verdict.tally.get("SUCCESS").copied().unwrap_or_default()
}

/// Runs what `revision` requires of clients, so many scenarios; every check must succeed. Failures of what the suite runs
/// besides do not count: extensions by which a program signs in without a person, or by a key that tokens are bound to,
/// and one that wants a schema sent back.
async fn judged(revision: &str, count: usize) {
    let out = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let suite = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
    let program = format!(
        "{} --exact host_suite::conformance_client_process",
        program.display()
    );
    let out_path = out.path().to_str().unwrap();
    let arguments = [
        "client",
        "--command",
        &program,
        "--requirements",
        revision,
        "-o",
        out_path,
    ];
    let arguments = std::iter::once(suite).chain(arguments);
    let output = run_node(arguments.map(ToOwned::to_owned).collect()).await;
    let mut verdict = Verdict::default();
    let scenarios = required(revision, "client:");
    for scenario in &scenarios {
        let before = succeeded(&verdict);
        verdict.add(out.path(), scenario);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(
            succeeded(&verdict) > before,
            "`{scenario}` proved nothing: {stdout}"
        );
    }
    assert!(
        verdict.failed.is_empty(),
        "{revision}: {:#?}",
        verdict.failed
    );
    assert_eq!(scenarios.len(), count, "{revision}");
}
