//! The example with the file browser in, a page that an agent used, and a door that only that page goes through, out.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

#[path = "app_tools/door.rs"]
mod door;
#[path = "../../ui-assets/tests/support/person.rs"]
mod person;
#[path = "../examples/app_tools/story.rs"]
mod story;

use std::path::Path;
use std::time::Duration;

use bailiwick::{
    Config, DenyView, MemoryAudit, Policy, Runtime, ServerSpec, ServerText, Upstreams, Verb,
    ViewSpec, ViewState, WorkerSpec,
};
use serde_json::{Map, Value};

use person::chromium;
use story::chromium::Chromium;

/// How long a browser may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// A page of others, by the official `App`, and a finger on its button.
const PAGE: &str = "ui://get-time/mcp-app.html";
const FINGER: &str =
    r#"<script>setInterval(() => document.getElementById("get-time-btn").click(), 200)</script>"#;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_uses_a_page_in_a_browser() {
    story::run(&chromium::place()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_browser_it_says_what_is_missing() {
    let failed = story::run(Path::new("/nowhere/chromium")).await;
    let said = failed.unwrap_err().to_string();
    assert!(
        said.starts_with("this needs Chromium at /nowhere/chromium"),
        "{said}"
    );
}

/// The server of that page.
async fn clock() -> Upstreams {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node");
    person::node::install(&folder);
    let program = folder.join("node_modules/.bin/mcp-server-basic-vanillajs");
    // Its tool says nothing of itself; a person knows that it only tells the time.
    let spec = ServerSpec::stdio("clock", program.to_str().unwrap())
        .args(["--stdio"])
        .tool("get-time", Verb::Read);
    Upstreams::builder().server(spec).start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_others_calls_the_tool_of_its_server() {
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
    let (view, link) = worker.open_view(spec, DenyView).await.unwrap();
    let door = story::door::open(link, format!("{html}{FINGER}"))
        .await
        .unwrap();
    let browser = Chromium::open(&chromium::place(), &door.url).unwrap();
    view.tool_input(Map::new());
    assert!(view.reached(ViewState::Mounted).await);
    assert_eq!(view.app(), Some(("Get Time App", "1.0.0")));
    let told = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let event = &line["event"];
        event["step"] == "finished"
            && event["origin"] == "view"
            && event["tool"] == "clock__get-time"
    };
    let told = async {
        while !audit.records().iter().any(|record| told(record.line())) {
            tokio::task::yield_now().await;
            runtime.flush_audit().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, told).await.unwrap();
    browser.close().await.unwrap();
    // The view ends with the page, and its socket.
    assert!(view.reached(ViewState::Closed).await);
    upstreams.shutdown().await;
}
