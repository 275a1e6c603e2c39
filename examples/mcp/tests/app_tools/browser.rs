//! Browser tests of the file browser page and a third-party page.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::Notify;

use crate::page_server::open_page;
use crate::scenario::chromium::Chromium;
use crate::{TIMEOUT, scenario};
use bailiwick::monitor::EventKind;
use bailiwick::{Config, MemoryAudit, Policy, Runtime, Verb, WorkerSpec};
use bailiwick_mcp::upstream::{ServerSpec, ServerText, Upstreams};
use bailiwick_mcp::view::{DenyView, View, ViewEvent, ViewHost, ViewSpec, ViewState};
use bailiwick_test_support::{chromium, npm, playwright};

/// A third-party page that uses the official `App`, and a script that clicks its button.
const PAGE: &str = "ui://get-time/mcp-app.html";
const CLICK: &str =
    r#"<script>setInterval(() => document.getElementById("get-time-btn").click(), 200)</script>"#;

#[tokio::test(flavor = "multi_thread")]
async fn agent_uses_the_file_browser_page() {
    scenario::run(&chromium::find()).await.unwrap();
}

/// Starts the server of the page.
async fn clock() -> Upstreams {
    let program = npm::sample_server("mcp-server-basic-vanillajs").unwrap();
    // The tool does not declare that it only reads.
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
    let server = scenario::page_server::serve(link, format!("{html}{CLICK}"))
        .await
        .unwrap();
    let mut events = runtime.events();
    let browser = Chromium::open(&chromium::find(), &server.url).unwrap();
    view.tool_input(Map::new());
    assert!(view.reached(ViewState::Mounted).await);
    assert_eq!(view.app(), Some(("Get Time App", "1.0.0")));
    let called = async {
        loop {
            let event = events.recv().await.unwrap();
            if matches!(event.kind, EventKind::CallEnded { .. }) {
                break event.kind;
            }
        }
    };
    let called = tokio::time::timeout(TIMEOUT, called).await.unwrap();
    assert!(
        matches!(&called, EventKind::CallEnded { tool, code: None, .. } if tool.as_str() == "clock__get-time"),
        "{called:?}"
    );
    runtime.flush_audit().await.unwrap();
    let finished = audit.records().into_iter().find(|record| {
        let line: Value = serde_json::from_str(record.line()).unwrap();
        line["event"]["step"] == "finished"
    });
    assert!(finished.unwrap().line().contains(r#""origin":"view""#));
    browser.close().await.unwrap();
    // Closing the page closes its socket, which closes the view.
    assert!(view.reached(ViewState::Closed).await);
    upstreams.shutdown().await;
}

/// Notifies when its page requests to be closed.
struct CloseRequests(Arc<Notify>);

impl ViewHost for CloseRequests {
    fn on_event(&self, event: ViewEvent) {
        if event == ViewEvent::CloseRequested {
            self.0.notify_one();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_messages_are_ordered_and_closing_the_view_closes_it() {
    let close_requested = Arc::new(Notify::new());
    let html = include_str!("messages.html");
    let (_runtime, view, server) =
        open_page(CloseRequests(Arc::clone(&close_requested)), html).await;
    let url = server.url.clone();
    let mut done = tokio::task::spawn_blocking(move || {
        let script = ["--config", "playwright.live.config.ts", "live/app-tools.ts"];
        playwright::run(&script, &[("BAILIWICK_APP", url.as_ref())]);
    });
    let closing = async {
        close_requested.notified().await;
        view.close().await;
    };
    tokio::select! {
        ended = &mut done => panic!("the script ended before the page requested to be closed: {ended:?}"),
        () = closing => done.await.unwrap(),
    }
}
