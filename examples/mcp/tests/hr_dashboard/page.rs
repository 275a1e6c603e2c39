//! Tests of the dashboard in the test host.

use std::path::Path;

use bailiwick_mcp::gateway::{Http, Token};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{app, server};

/// The dashboard over HTTP on loopback; the arguments with which a test host connects to it.
async fn served(folder: &Path, stop: CancellationToken) -> [String; 4] {
    server::seed(folder).unwrap();
    let gateway = server::gateway(folder.to_owned()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let token = Token::random().unwrap();
    let http = Http::new(token.clone());
    let stop = stop.cancelled_owned();
    tokio::spawn(async move { gateway.serve_http(listener, http, stop).await.unwrap() });
    let bearer = token.reveal().to_owned();
    ["--url".to_owned(), url, "--bearer".to_owned(), bearer]
}

#[tokio::test]
async fn dashboard_passes_all_checks() {
    let stop = CancellationToken::new();
    let folder = tempfile::tempdir().unwrap();
    let server = served(folder.path(), stop.clone()).await;
    let arguments = [&["check".to_owned()][..], &server].concat();
    let mut out = Vec::new();
    let passed = app::run(arguments, false, &mut out).await.unwrap();
    stop.cancel();
    let report = String::from_utf8(out).unwrap();
    assert!(passed, "{report}");
    assert!(
        report.contains("none connects to other machines"),
        "{report}"
    );
    let file = std::fs::read_to_string(folder.path().join("employees.json")).unwrap();
    assert_eq!(file, server::SEED);
}

/// The page in Chromium.
#[cfg(feature = "interop")]
mod browser {
    use std::path::Path;

    use bailiwick_test_support::playwright;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::served;
    use crate::app;

    async fn host(folder: &Path, stop: CancellationToken) -> app::TestHost {
        let server = served(folder, stop).await;
        let arguments = [&["--serve".to_owned()][..], &server].concat();
        app::serve(app::Options::parse(arguments, false).unwrap())
            .await
            .unwrap()
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
