//! The gateway with the suite's fixtures beside it in, the verdict of the official conformance suite out.

mod dressed;
mod fixtures;
mod questions;

use std::collections::BTreeMap;
use std::path::Path;

use bailiwick::{Http, Trust};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::node;
use crate::support::World;
use dressed::Dressed;

/// How many checks of a run ended how: `SUCCESS`, `FAILURE`, `WARNING`, `SKIPPED`, `INFO`.
type Tally = BTreeMap<String, usize>;

/// Runs what `revision` requires of servers against a gateway on a free port.
async fn run(revision: &str) -> (Tally, Vec<String>) {
    let world = World::new();
    let gateway = world.gateway(Trust::Agent).build();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let serving = tokio::spawn({
        let stop = stop.clone();
        async move {
            let dressing = Dressed::dressing();
            gateway
                .serve_http_dressed(listener, Http::new(), stop, dressing)
                .await
        }
    });
    let out = tempfile::tempdir().unwrap();
    let suite = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
    let arguments = [suite, "server", "--url", &url, "--requirements", revision];
    let mut arguments: Vec<_> = arguments.map(ToOwned::to_owned).into();
    arguments.extend(["-o".to_owned(), out.path().display().to_string()]);
    let output = node::run(arguments).await;
    stop.cancel();
    serving.await.unwrap().unwrap();
    let (tally, failures) = verdict(out.path());
    assert!(
        !tally.is_empty(),
        "the suite wrote nothing: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    (tally, failures)
}

/// Counts the checks in every `checks.json` below `out`, and says what failed.
fn verdict(out: &Path) -> (Tally, Vec<String>) {
    let (mut tally, mut failures) = (Tally::new(), Vec::new());
    for scenario in std::fs::read_dir(out).unwrap() {
        let scenario = scenario.unwrap();
        let checks = std::fs::read(scenario.path().join("checks.json")).unwrap();
        let checks: Vec<Value> = serde_json::from_slice(&checks).unwrap();
        for check in checks {
            let status = check["status"].as_str().unwrap();
            *tally.entry(status.to_owned()).or_default() += 1;
            if status == "FAILURE" || status == "WARNING" {
                let name = scenario.file_name();
                let (id, message) = (&check["id"], &check["errorMessage"]);
                failures.push(format!("{status} {}: {id}: {message}", name.display()));
            }
        }
    }
    (tally, failures)
}

#[tokio::test]
async fn every_scenario_that_2025_11_25_requires_of_servers_passes() {
    let (tally, failures) = run("2025-11-25").await;
    println!("{tally:?}");
    assert_eq!(failures, Vec::<String>::new(), "{tally:?}");
}

#[tokio::test]
async fn every_scenario_that_2026_07_28_requires_of_servers_passes() {
    let (tally, failures) = run("2026-07-28").await;
    println!("{tally:?}");
    assert_eq!(failures, Vec::<String>::new(), "{tally:?}");
}
