//! Tests with third-party servers and Chromium.

use std::path::Path;

use bailiwick_test_support::checks::{expected, outcomes};
use bailiwick_test_support::{invalid_server, npm, playwright};
use serde_json::json;

use crate::{checked, serving};

/// Installs the npm packages and returns the path of a program.
fn program(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node");
    npm::install(&folder, "sample-servers").unwrap();
    let file = folder.join("node_modules/.bin").join(name);
    file.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn npm_file_server_passes() {
    let dir = tempfile::tempdir().unwrap();
    let server = program("mcp-server-filesystem");
    let (passed, checks) = checked(&["--", &server, dir.path().to_str().unwrap()]).await;
    assert!(passed, "{checks:?}");
    let differing = [
        ("apps", "skip"),
        ("configuration.schema", "skip"),
        ("dashdash", "skip"),
        ("policy.expansion", "skip"),
        ("preview", "skip"),
        ("tools.intents", "skip"),
        ("tools.unknown", "warn"),
    ];
    assert_eq!(outcomes(&checks), expected("pass", &differing));
}

#[tokio::test]
async fn view_of_the_official_sample_server_is_read() {
    let server = program("mcp-server-basic-vanillajs");
    let (passed, checks) = checked(&[&server, "--stdio"]).await;
    assert!(passed, "{checks:?}");
    let apps = (
        "pass".to_owned(),
        "1 view, none connects to other machines".to_owned(),
    );
    assert_eq!(checks["apps"], apps);
}

#[tokio::test(flavor = "multi_thread")]
async fn page_works_with_real_servers_in_a_browser() {
    let vanilla = program("mcp-server-basic-vanillajs");
    let everything = program("mcp-server-everything");
    let [budget, cohorts, customers, system] = [
        "mcp-budget-allocator-server",
        "mcp-cohort-heatmap-server",
        "mcp-customer-segmentation-server",
        "mcp-system-monitor-server",
    ]
    .map(program);
    let invalid = invalid_server::command("invalid_server_process");
    let mut hosts = Vec::new();
    let mut urls = serde_json::Map::new();
    for (name, server) in [
        ("edit", &[][..]),
        ("scopes", &[]),
        ("configuration", &[]),
        ("policy", &[]),
        ("checks", &[]),
        ("elicit", &["--elicit"]),
        ("stateless", &["--elicit", "--revision", "2026-07-28"]),
        ("view", &[&vanilla, "--stdio"]),
        ("budget", &[&budget, "--stdio"]),
        ("cohorts", &[&cohorts, "--stdio"]),
        ("customers", &[&customers, "--stdio"]),
        ("system", &[&system, "--stdio"]),
        ("everything", &[&everything]),
        ("wrong", &invalid),
    ] {
        let host = serving(server).await;
        urls.insert(name.to_owned(), json!(host.url()));
        hosts.push(host);
    }
    let urls = json!(urls).to_string();
    let done = tokio::task::spawn_blocking(move || {
        let script = ["--config", "playwright.live.config.ts", "live/test-host.ts"];
        playwright::run(&script, &[("BAILIWICK_TEST_HOSTS", urls.as_ref())]);
    });
    let done = done.await;
    for host in hosts {
        host.shutdown().await;
    }
    done.unwrap();
}
