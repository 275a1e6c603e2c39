//! Real servers behind real hosts in, what a person does with them in a browser out.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::{chromium, node, program, serving, wrong};

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
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ui-assets/web");
    let run = tokio::task::spawn_blocking(move || {
        node::install(&web);
        Command::new("npx")
            .args([
                "playwright",
                "test",
                "--config",
                "playwright.live.config.ts",
                "live/test-host.ts",
            ])
            .env("BAILIWICK_TEST_HOSTS", json!(urls).to_string())
            .env("BAILIWICK_CHROMIUM", chromium::place())
            .current_dir(web)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    });
    let output = run.await.unwrap();
    for host in hosts {
        host.shutdown().await;
    }
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
