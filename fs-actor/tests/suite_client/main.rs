//! The official conformance suite's servers in, its verdict on a host that uses them through `Upstreams` out.
//!
//! The suite starts this very program once for each of its scenarios, as the client: `client` is what it does then.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "the tests look at folders from outside, as their owner would"
)]

mod client;
#[path = "../serving/node.rs"]
mod node;
#[path = "../serving/conformance/verdict.rs"]
mod verdict;

use verdict::{Verdict, required};

/// Scenarios that a revision requires and this host does not claim, each with the reason.
const UNCLAIMED: &[(&str, &str)] = &[];

#[tokio::main]
async fn main() {
    if std::env::var_os("MCP_CONFORMANCE_SCENARIO").is_some() {
        let url = std::env::args().next_back().unwrap();
        return client::run(&url).await;
    }
    for revision in ["2025-11-25", "2026-07-28"] {
        judged(revision).await;
    }
}

/// Runs what `revision` requires of clients; every check must succeed.
async fn judged(revision: &str) {
    let out = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let suite = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
    let (program, out_path) = (program.to_str().unwrap(), out.path().to_str().unwrap());
    let arguments = [
        "client",
        "--command",
        program,
        "--requirements",
        revision,
        "-o",
        out_path,
    ];
    let arguments = std::iter::once(suite).chain(arguments);
    let output = node::run(arguments.map(ToOwned::to_owned).collect()).await;
    let mut verdict = Verdict::default();
    let scenarios = required(revision, "client:");
    for scenario in &scenarios {
        if UNCLAIMED.iter().any(|(name, _)| name == scenario) {
            continue;
        }
        let seen = verdict.add(out.path(), scenario);
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(seen > 0, "`{scenario}` was not run: {told}");
    }
    assert!(
        verdict.failed.is_empty(),
        "{revision}: {:#?}",
        verdict.failed
    );
    assert!(scenarios.len() >= 18, "the suite requires less than it did");
}
