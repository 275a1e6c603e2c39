//! Browser tests of the file browser page and a third-party page.

use crate::TIMEOUT;
use crate::page_server::opened;
use crate::scenario;
use crate::scenario::chromium::Chromium;
use bailiwick::Config;
use bailiwick::MemoryAudit;
use bailiwick::Policy;
use bailiwick::Runtime;
use bailiwick::Verb;
use bailiwick::WorkerSpec;
use bailiwick_mcp::upstream::ServerSpec;
use bailiwick_mcp::upstream::ServerText;
use bailiwick_mcp::upstream::Upstreams;
use bailiwick_mcp::view::DenyView;
use bailiwick_mcp::view::View;
use bailiwick_mcp::view::ViewEvent;
use bailiwick_mcp::view::ViewHost;
use bailiwick_mcp::view::ViewSpec;
use bailiwick_mcp::view::ViewState;
use bailiwick_test_support::chromium;
use bailiwick_test_support::npm;
use bailiwick_test_support::playwright;
use serde_json::Map;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::Notify;

/// A page of others, by the official `App`, and a finger on its button.
const PAGE: &str = "ui://get-time/mcp-app.html";
const FINGER: &str =
    r#"<script>setInterval(() => document.getElementById("get-time-btn").click(), 200)</script>"#;

#[tokio::test(flavor = "multi_thread")]
async fn agent_uses_the_file_browser_page() {
    scenario::run(&chromium::find()).await.unwrap();
}

/// The server of that page.
async fn clock() -> Upstreams {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node");
    npm::install(&folder, "sample-servers").unwrap();
    let program = folder.join("node_modules/.bin/mcp-server-basic-vanillajs");
    // Its tool has no annotations, so the host declares that it only reads.
    let spec = ServerSpec::stdio("clock", program.to_str().unwrap())
        .args(["--stdio"])
        .tool("get-time", Verb::Read);
    Upstreams::builder().server(spec).start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn third_party_page_calls_a_tool_of_its_server() {
    let upstreams = clock().await;
    let read = upstreams.read_resource("clock", PAGE).await.unwrap();
    let [ServerText::Text(html)] = read.as_slice() else {
        panic!("the page is text: {read:?}")
    };
    let audit = MemoryAudit::new(4096);
    let config = Config {
        allow: vec!["read:mcp:clock".parse().unwrap()],
        ..Config::new()
    };
    let builder = Runtime::builder().servers(&upstreams).config(config);
    let (runtime, _people) = builder.audit(audit.clone()).build().await.unwrap();
    let spec = WorkerSpec::new("guide").policy(Policy::new());
    let worker = runtime.spawn(spec).await.unwrap();
    let spec = ViewSpec::new("clock").of_server(&upstreams, "clock");
    let (view, link) = View::open(&worker, spec, DenyView).await.unwrap();
    let server = scenario::page_server::serve(link, format!("{html}{FINGER}"))
        .await
        .unwrap();
    let browser = Chromium::open(&chromium::find(), &server.url).unwrap();
    view.tool_input(Map::new());
    assert!(view.reached(ViewState::Mounted).await);
    assert_eq!(view.app(), Some(("Get Time App", "1.0.0")));
    let is_finished = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let event = &line["event"];
        event["step"] == "finished"
            && event["origin"] == "view"
            && event["tool"] == "clock__get-time"
    };
    let finished = async {
        while !audit
            .records()
            .iter()
            .any(|record| is_finished(record.line()))
        {
            tokio::task::yield_now().await;
            runtime.flush_audit().await.unwrap();
        }
    };
    tokio::time::timeout(TIMEOUT, finished).await.unwrap();
    browser.close().await.unwrap();
    // The view ends with the page, and its socket.
    assert!(view.reached(ViewState::Closed).await);
    upstreams.shutdown().await;
}

/// Tells when its page wants to be closed.
struct Wanted(Arc<Notify>);

impl ViewHost for Wanted {
    fn on_event(&self, event: ViewEvent) {
        if event == ViewEvent::CloseRequested {
            self.0.notify_one();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_messages_are_ordered_and_closing_the_view_closes_it() {
    let over = Arc::new(Notify::new());
    let html = include_str!("messages.html");
    let (_runtime, view, server) = opened(Wanted(Arc::clone(&over)), html).await;
    let url = server.url.clone();
    let mut done = tokio::task::spawn_blocking(move || {
        let script = ["--config", "playwright.live.config.ts", "live/app-tools.ts"];
        playwright::run(&script, &[("BAILIWICK_APP", url.as_ref())]);
    });
    let closing = async {
        over.notified().await;
        view.close().await;
    };
    tokio::select! {
        ended = &mut done => panic!("it was over before the page wanted so: {ended:?}"),
        () = closing => done.await.unwrap(),
    }
}
