//! Real servers behind real hosts in, what a person does with them in a browser out.

use serde_json::json;

use crate::{person, program, serving, wrong};

#[tokio::test(flavor = "multi_thread")]
async fn people_try_real_servers_in_a_browser() {
    let vanilla = program("mcp-server-basic-vanillajs");
    let everything = program("mcp-server-everything");
    let [budget, cohorts, customers, system] = [
        "mcp-budget-allocator-server",
        "mcp-cohort-heatmap-server",
        "mcp-customer-segmentation-server",
        "mcp-system-monitor-server",
    ]
    .map(program);
    let wrong = wrong();
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
        ("wrong", &["node", &wrong]),
    ] {
        let host = serving(server).await;
        urls.insert(name.to_owned(), json!(host.url()));
        hosts.push(host);
    }
    let urls = json!(urls).to_string();
    let done = tokio::task::spawn_blocking(move || {
        let script = ["--config", "playwright.live.config.ts", "live/test-host.ts"];
        person::does(&script, &[("BAILIWICK_TEST_HOSTS", urls.as_ref())]);
    });
    let done = done.await;
    for host in hosts {
        host.shutdown().await;
    }
    done.unwrap();
}
