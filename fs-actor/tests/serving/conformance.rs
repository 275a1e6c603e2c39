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

/// How many checks ended how: `SUCCESS`, `FAILURE`, `WARNING`, `SKIPPED`, `INFO`.
type Tally = BTreeMap<String, usize>;

/// Runs what `revision` requires of servers against a gateway on a free port: how many scenarios there were, how their
/// checks ended, and what failed.
async fn run(revision: &str) -> (usize, Tally, Vec<String>) {
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
    let required = required(revision);
    let told = String::from_utf8_lossy(&output.stderr);
    let mut all = (Tally::new(), Vec::new());
    for scenario in &required {
        let seen = verdict(out.path(), scenario, &mut all);
        assert!(seen > 0, "`{scenario}` was not run: {told}");
    }
    (required.len(), all.0, all.1)
}

/// The scenarios that a revision requires of servers, in the suite's own list.
fn required(revision: &str) -> Vec<String> {
    let folder = "@modelcontextprotocol/conformance/requirements";
    let list = node::package(&format!("{folder}/{revision}.yaml"));
    let list = std::fs::read_to_string(list).unwrap();
    let servers = list.lines().skip_while(|line| *line != "server:").skip(1);
    let servers = servers.take_while(|line| line.is_empty() || line.starts_with("  - "));
    let names = servers.filter_map(|line| line.strip_prefix("  - "));
    names.map(ToOwned::to_owned).collect()
}

/// Adds up the checks of one scenario below `out`, and what failed; how many there were.
fn verdict(out: &Path, scenario: &str, all: &mut (Tally, Vec<String>)) -> usize {
    let mut seen = 0;
    for folder in std::fs::read_dir(out).unwrap() {
        let folder = folder.unwrap();
        let name = folder.file_name();
        // What follows the name is the time of the run.
        let time = name.to_str().unwrap().strip_prefix("server-");
        let time = time.and_then(|name| name.strip_prefix(scenario));
        if !time.is_some_and(|time| time.starts_with("-20")) {
            continue;
        }
        let checks = std::fs::read(folder.path().join("checks.json")).unwrap();
        let checks: Vec<Value> = serde_json::from_slice(&checks).unwrap();
        for check in checks {
            seen += 1;
            let status = check["status"].as_str().unwrap();
            *all.0.entry(status.to_owned()).or_default() += 1;
            if status == "FAILURE" || status == "WARNING" {
                let (id, message) = (&check["id"], &check["errorMessage"]);
                all.1.push(format!("{status} {scenario}: {id}: {message}"));
            }
        }
    }
    seen
}

/// All checks succeeded, and none was left out.
fn passed(scenarios: usize, checks: usize) -> (usize, Tally, Vec<String>) {
    let tally = Tally::from([("SUCCESS".to_owned(), checks)]);
    (scenarios, tally, Vec::new())
}

#[tokio::test]
async fn every_scenario_that_2025_11_25_requires_of_servers_passes() {
    assert_eq!(run("2025-11-25").await, passed(30, 70));
}

#[tokio::test]
async fn every_scenario_that_2026_07_28_requires_of_servers_passes() {
    assert_eq!(run("2026-07-28").await, passed(37, 121));
}
