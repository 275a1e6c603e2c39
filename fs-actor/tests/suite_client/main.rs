//! The official conformance suite's servers in, its verdict on a host that uses them through `Upstreams` out.
//!
//! The suite starts this very program once for each of its scenarios, as the client: `client` is what it does then.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
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

#[tokio::main]
async fn main() {
    if std::env::var_os("MCP_CONFORMANCE_SCENARIO").is_some() {
        let url = std::env::args().next_back().unwrap();
        return client::run(&url).await;
    }
    judged("2025-11-25", 18).await;
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
        let before = succeeded(&verdict);
        verdict.add(out.path(), scenario);
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(
            succeeded(&verdict) > before,
            "`{scenario}` proved nothing: {told}"
        );
    }
    assert!(
        verdict.failed.is_empty(),
        "{revision}: {:#?}",
        verdict.failed
    );
    assert_eq!(scenarios.len(), count, "{revision}");
}
