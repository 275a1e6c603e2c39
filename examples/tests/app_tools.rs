//! The example with the file browser in, a page that an agent used, and a door that only that page goes through, out.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

#[path = "../../ui-assets/tests/support/chromium.rs"]
mod chromium;
#[path = "../examples/app_tools/story.rs"]
mod story;

use std::path::Path;

use bailiwick::{DenyView, Policy, Runtime, ViewSpec, WorkerSpec};
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};

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

#[tokio::test]
async fn only_the_page_itself_speaks_for_the_guest() {
    let (runtime, _people) = Runtime::builder().build().await.unwrap();
    let spec = WorkerSpec::new("guide").policy(Policy::new());
    let worker = runtime.spawn(spec).await.unwrap();
    let opened = worker.open_view(ViewSpec::new("files"), DenyView).await;
    let (view, link) = opened.unwrap();
    let door = story::door::open(link, "<p>A page</p>").await.unwrap();
    let (origin, token) = door.url.split_once("/#").unwrap();
    let status = async |request: RequestBuilder| request.send().await.unwrap().status();
    let post = |what: &str| Client::new().post(format!("{origin}/api/{what}"));
    for what in ["page", "said", "heard"] {
        let none = status(post(what).body("{}")).await;
        assert_eq!(none, StatusCode::UNAUTHORIZED, "{what}");
        let wrong = status(post(what).bearer_auth("wrong").body("{}")).await;
        assert_eq!(wrong, StatusCode::UNAUTHORIZED, "{what}");
        let elsewhere = post(what)
            .bearer_auth(token)
            .header("origin", "http://evil.test");
        assert_eq!(status(elsewhere).await, StatusCode::FORBIDDEN, "{what}");
        let rebound = post(what).bearer_auth(token).header("host", "evil.test");
        assert_eq!(status(rebound).await, StatusCode::FORBIDDEN, "{what}");
    }
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let said = post("said")
        .bearer_auth(token)
        .header("origin", origin)
        .body(ping.clone());
    assert_eq!(status(said).await, StatusCode::NO_CONTENT);
    let heard = async || {
        let answer = post("heard").bearer_auth(token).send().await.unwrap();
        serde_json::from_str::<Value>(&answer.text().await.unwrap()).unwrap()
    };
    let first = heard().await;
    assert_eq!(
        first["messages"],
        json!([r#"{"jsonrpc":"2.0","id":1,"result":{}}"#])
    );
    assert_eq!(first["open"], json!(true));
    view.close().await;
    assert_eq!(heard().await, json!({"messages": [], "open": false}));
    let late = status(post("said").bearer_auth(token).body(ping)).await;
    assert_eq!(late, StatusCode::GONE);
}
