//! Tests of the page's API.

use bailiwick_cli::test_host::TestHost;
use reqwest::header::{AUTHORIZATION, CONTENT_SECURITY_POLICY, HOST, ORIGIN};
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::{invalid_server, serving};

/// A client of a test host's API.
pub(crate) struct Page {
    client: Client,
    origin: String,
    token: String,
}

impl Page {
    pub(crate) fn of(host: &TestHost) -> Self {
        Self::new(host.url())
    }

    /// A client of the API of the page at this URL.
    pub(crate) fn new(url: &str) -> Self {
        let (origin, token) = url.split_once("/#").unwrap();
        Self {
            client: Client::new(),
            origin: origin.to_owned(),
            token: token.to_owned(),
        }
    }

    fn request(&self, route: &str, body: &Value) -> RequestBuilder {
        let address = format!("{}/api/{route}", self.origin);
        self.client.post(address).body(body.to_string())
    }

    fn with_token(&self, route: &str, body: &Value) -> RequestBuilder {
        self.request(route, body).bearer_auth(&self.token)
    }

    /// Sends a request and returns the body of the response, which may be an error.
    pub(crate) async fn ask(&self, route: &str, body: &Value) -> Value {
        let answer = self.with_token(route, body).send().await.unwrap();
        serde_json::from_str(&answer.text().await.unwrap()).unwrap()
    }

    async fn call(&self, name: &str) -> Value {
        let params = json!({"name": name, "arguments": {}});
        let body = json!({"method": "tools/call", "params": params});
        self.ask("request", &body).await
    }
}

async fn status(request: RequestBuilder) -> StatusCode {
    request.send().await.unwrap().status()
}

#[tokio::test]
async fn api_requires_token_host_and_origin() {
    let host = serving(&invalid_server()).await;
    let page = Page::of(&host);
    let none = json!({});
    let authority = page.origin.trim_start_matches("http://").to_owned();
    let asked = |name, value: &str| page.with_token("state", &none).header(name, value);
    assert_eq!(
        status(page.with_token("state", &none)).await,
        StatusCode::OK
    );
    assert_eq!(status(asked(ORIGIN, &page.origin)).await, StatusCode::OK);
    let local = authority.replace("127.0.0.1", "localhost");
    assert_eq!(status(asked(HOST, &local)).await, StatusCode::OK);

    for origin in [
        "http://evil.example",
        "null",
        "",
        &format!("https://{authority}"),
    ] {
        let refused = status(asked(ORIGIN, origin)).await;
        assert_eq!(refused, StatusCode::FORBIDDEN, "{origin}");
    }
    for name in ["evil.example", "127.0.0.1", "127.0.0.1:1"] {
        assert_eq!(
            status(asked(HOST, name)).await,
            StatusCode::FORBIDDEN,
            "{name}"
        );
    }
    let without_token = page.request("state", &none);
    assert_eq!(status(without_token).await, StatusCode::UNAUTHORIZED);
    let longer = format!("Bearer {}0", page.token);
    for token in ["Bearer", "Bearer x", &page.token, &longer] {
        let request = page.request("state", &none).header(AUTHORIZATION, token);
        assert_eq!(status(request).await, StatusCode::UNAUTHORIZED, "{token}");
    }
    host.shutdown().await;
}

#[tokio::test]
async fn invalid_requests_are_rejected() {
    let host = serving(&invalid_server()).await;
    let page = Page::of(&host);
    for (route, body, expected) in [
        ("state", json!({}), StatusCode::OK),
        ("state", json!({"more": 1}), StatusCode::BAD_REQUEST),
        ("nothing", json!({}), StatusCode::NOT_FOUND),
        (
            "intent",
            json!({"template": "{a}", "arguments": {}}),
            StatusCode::OK,
        ),
        (
            "intent",
            json!({"template": "{a}"}),
            StatusCode::BAD_REQUEST,
        ),
        (
            "request",
            json!({"method": "ping", "params": {}}),
            StatusCode::OK,
        ),
        (
            "request",
            json!({"method": "ping", "params": []}),
            StatusCode::BAD_REQUEST,
        ),
        (
            "connect",
            json!({"revision": "1999-01-01"}),
            StatusCode::BAD_REQUEST,
        ),
        (
            "connect",
            json!({"revision": "2025-11-25", "configuration": 1}),
            StatusCode::BAD_REQUEST,
        ),
    ] {
        let answered = status(page.with_token(route, &body)).await;
        assert_eq!(answered, expected, "{route} {body}");
    }
    host.shutdown().await;
}

#[tokio::test]
async fn pages_have_a_content_security_policy() {
    let host = serving(&invalid_server()).await;
    let page = Page::of(&host);
    for (path, policy) in [
        (
            "/",
            Some("frame-ancestors 'none'; base-uri 'none'; form-action 'none'; object-src 'none'"),
        ),
        ("/sandbox", Some("sandbox allow-scripts allow-forms")),
        ("/mcp-view.js", None),
        ("/permission-prompt.js", None),
    ] {
        let address = format!("{}{path}", page.origin);
        let answer = page.client.get(address).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        let header = answer.headers().get(CONTENT_SECURITY_POLICY);
        assert_eq!(
            header.map(|header| header.to_str().unwrap()),
            policy,
            "{path}"
        );
        assert_eq!(answer.headers()["cache-control"], "no-store", "{path}");
    }
    host.shutdown().await;
}

#[tokio::test]
async fn ended_server_is_reported_and_can_be_restarted() {
    let host = serving(&invalid_server()).await;
    let page = Page::of(&host);
    let called = page.call("twice").await;
    assert_eq!(called["result"]["content"][0]["text"], "done", "{called}");
    let ended = page.call("exit").await;
    let reason = ended["message"].as_str().unwrap();
    assert_eq!(reason, "the server ended (exit status: 3)");
    let state = page.ask("state", &json!({})).await;
    assert_eq!(
        (&state["status"], &state["reason"]),
        (&json!("ended"), &json!(reason))
    );
    let again = page
        .ask("connect", &json!({"revision": "2025-11-25"}))
        .await;
    assert_eq!(again["status"], "ready", "{again}");
    let called = page.call("twice").await;
    assert_eq!(
        called["result"]["structuredContent"]["calls"], 1,
        "{called}"
    );
    host.shutdown().await;
}

#[tokio::test]
async fn start_failure_is_reported_on_the_page() {
    let host = serving(&["/nowhere/server"]).await;
    let state = Page::of(&host).ask("state", &json!({})).await;
    assert_eq!(state["status"], "failed");
    let reason = state["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("cannot start `/nowhere/server`: "),
        "{reason}"
    );
    host.shutdown().await;
}

#[tokio::test]
async fn last_line_of_standard_error_explains_a_failed_connection() {
    let host = serving(&["sh", "-c", "echo no licence >&2; exit 3"]).await;
    let state = Page::of(&host).ask("state", &json!({})).await;
    let reason = "the server ended (exit status: 3); its standard error ends with `no licence`";
    assert_eq!(state["reason"], reason);
    host.shutdown().await;
}

#[tokio::test]
async fn log_has_raw_messages_and_their_faults() {
    let host = serving(&invalid_server()).await;
    let page = Page::of(&host);
    let log = page.ask("events", &json!({"after": 0})).await;
    let log = log.as_array().unwrap();
    let greeting = log
        .iter()
        .find(|entry| entry["message"]["id"] == 1 && entry["side"] == "received");
    // A client with typed messages would drop both members.
    let greeting = &greeting.unwrap()["message"]["result"];
    assert_eq!(greeting["dashdash"]["specVersion"], "0.2.0");
    assert_eq!(greeting["capabilities"]["configSchema"]["type"], "object");
    let faulty: Vec<&Value> = log
        .iter()
        .filter(|entry| !entry["fault"].is_null())
        .collect();
    assert_eq!(faulty.len(), 1, "{faulty:?}");
    assert_eq!(faulty[0]["message"], "this is no JSON");
    let last = log.last().unwrap()["seq"].as_u64().unwrap();
    let after = json!({"after": last});
    let (later, _) = tokio::join!(page.ask("events", &after), page.call("twice"));
    assert_eq!(later[0]["message"]["method"], "tools/call", "{later}");
    host.shutdown().await;
}
