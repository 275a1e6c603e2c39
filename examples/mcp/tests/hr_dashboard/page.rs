//! Tests of the dashboard in the test host.

use std::path::Path;
use std::time::Duration;

use bailiwick_cli::check::{self, Connection, Outcome, Target};
use bailiwick_mcp::gateway::{Http, Token};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::server;

/// Serves the dashboard over HTTP on loopback. Returns how to reach it.
async fn serve_dashboard(folder: &Path, stop: CancellationToken) -> Target {
    server::seed(folder).unwrap();
    let gateway = server::gateway(folder.to_owned()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let token = Token::random().unwrap();
    let http = Http::new(token.clone());
    let stop = stop.cancelled_owned();
    tokio::spawn(async move { gateway.serve_http(listener, http, stop).await.unwrap() });
    Target::url(&url, Some(token.reveal().to_owned())).unwrap()
}

#[tokio::test]
async fn dashboard_passes_all_checks() {
    let stop = CancellationToken::new();
    let folder = tempfile::tempdir().unwrap();
    let server = serve_dashboard(folder.path(), stop.clone()).await;
    let within = Duration::from_secs(120);
    let report = check::run(
        server,
        Connection::default(),
        within,
        std::future::pending(),
    )
    .await;
    stop.cancel();
    let report = report.unwrap();
    assert_eq!(report.count(Outcome::Fail), 0, "{report}");
    let apps = report.to_string();
    assert!(apps.contains("none connects to other machines"), "{apps}");
    let file = std::fs::read_to_string(folder.path().join("employees.json")).unwrap();
    assert_eq!(file, server::SEED);
}

/// The page in Chromium.
#[cfg(feature = "interop")]
mod browser {
    use std::path::Path;

    use bailiwick_cli::check::Connection;
    use bailiwick_cli::test_host::TestHost;
    use bailiwick_test_support::playwright;
    use serde_json::json;
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;

    use super::serve_dashboard;

    async fn host(folder: &Path, stop: CancellationToken) -> TestHost {
        let server = serve_dashboard(folder, stop).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = TestHost::serve(listener, server).unwrap();
        host.connect(Connection::default()).await;
        host
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn dashboard_page_works_in_a_browser() {
        let stop = CancellationToken::new();
        let mut hosts = Vec::new();
        let mut urls = serde_json::Map::new();
        for name in ["raise", "refuse", "update", "stale", "look", "narrow"] {
            let folder = tempfile::tempdir().unwrap();
            let serving = host(folder.path(), stop.clone()).await;
            let file = folder.path().join("employees.json");
            urls.insert(name.to_owned(), json!({"url": serving.url(), "file": file}));
            hosts.push((serving, folder));
        }
        let urls = json!(urls).to_string();
        let done = tokio::task::spawn_blocking(move || {
            let script = [
                "--config",
                "playwright.live.config.ts",
                "live/hr-dashboard.ts",
            ];
            playwright::run(&script, &[("BAILIWICK_DASHBOARDS", urls.as_ref())]);
        });
        let done = done.await;
        for (serving, _folder) in hosts {
            serving.shutdown().await;
        }
        stop.cancel();
        done.unwrap();
    }
}
