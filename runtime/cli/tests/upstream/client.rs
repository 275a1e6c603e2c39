//! Tests of server requests: elicitation, sampling, roots and tasks.

use super::hostile_server::{alone, hostile};
use bailiwick::requests::{
    BoxFuture, Elicitation, ElicitationKind, ElicitationResponse, MessageRole, Priorities,
    RequestCapabilities, Sampling, SamplingResponse, ServerMessage, ServerRequests,
};
use bailiwick::{Call, CallMeta, Code, Policy, VirtualPath, Worker};
use bailiwick_mcp::upstream::Upstreams;
use bailiwick_test_support::upstream::{TestRuntime, act, allow_once, code, test_runtime, text};
use bailiwick_test_support::wait;
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// A host that returns `response` to each form and records its requests.
#[derive(Clone, Default)]
struct Host {
    asked: Arc<Mutex<Vec<Elicitation>>>,
    sampled: Arc<Mutex<Vec<Sampling>>>,
    response: ElicitationResponse,
}

impl ServerRequests for Host {
    fn capabilities(&self) -> RequestCapabilities {
        RequestCapabilities::ALL
    }

    fn elicit(&self, request: Elicitation) -> BoxFuture<'_, ElicitationResponse> {
        self.asked.lock().unwrap().push(request);
        Box::pin(std::future::ready(self.response.clone()))
    }

    fn sample(&self, request: Sampling) -> BoxFuture<'_, Option<SamplingResponse>> {
        self.sampled.lock().unwrap().push(request);
        let response = SamplingResponse {
            model: "scripted".into(),
            text: "four".into(),
        };
        Box::pin(std::future::ready(Some(response)))
    }

    fn roots(&self, server: &str) -> Vec<VirtualPath> {
        assert_eq!(server, "h");
        vec![VirtualPath::parse("/repo/a b", None).unwrap()]
    }
}

async fn with(host: Host) -> (TestRuntime, Worker) {
    let builder = Upstreams::builder()
        .server(hostile("h", "plain"))
        .requests(host);
    let upstreams = builder.start().await.unwrap();
    let stage = test_runtime(upstreams, |builder| builder.approver(allow_once().0)).await;
    let worker = stage.worker(Policy::new()).await;
    (stage, worker)
}

/// Makes the server send a request, and returns the response to it.
async fn response_to(worker: &Worker, method: &str, params: Value) -> Value {
    let arguments = json!({"do": "ask", "method": method, "params": params});
    serde_json::from_str(&text(worker.call("h__edit", arguments).await)).unwrap()
}

fn form(fields: &Value) -> Value {
    json!({"mode": "form", "message": "Who?\u{202e}", "requestedSchema": {"type": "object", "properties": fields}})
}

#[tokio::test]
async fn server_requests_without_a_handler_are_rejected() {
    let (_stage, worker) = alone("plain").await;
    for (method, params) in [
        (
            "elicitation/create",
            form(&json!({"name": {"type": "string"}})),
        ),
        (
            "elicitation/create",
            json!({"mode": "url", "message": "m", "url": "https://example.org", "elicitationId": "1"}),
        ),
        (
            "sampling/createMessage",
            json!({"messages": [], "maxTokens": 1}),
        ),
        ("roots/list", json!({})),
    ] {
        assert_eq!(
            response_to(&worker, method, params).await["code"],
            -32601,
            "{method}"
        );
    }
}

#[tokio::test]
async fn form_names_its_server_and_has_three_answers() {
    let name = || form(&json!({"name": {"type": "string"}}));
    let yes = Map::from_iter([("name".to_owned(), json!("Ada"))]);
    let host = Host {
        response: ElicitationResponse::Accept(yes.clone()),
        ..Host::default()
    };
    let (_stage, worker) = with(host.clone()).await;
    let answer = response_to(&worker, "elicitation/create", name()).await;
    assert_eq!(
        answer,
        json!({"action": "accept", "content": {"name": "Ada"}})
    );
    let asked = host.asked.lock().unwrap().pop().unwrap();
    assert_eq!(
        (asked.server.as_str(), asked.message.as_str()),
        ("h", "Who?\\u{202e}")
    );
    assert!(matches!(asked.kind, ElicitationKind::Form(_)));

    for (response, expected) in [
        (ElicitationResponse::Decline, "decline"),
        (ElicitationResponse::Cancel, "cancel"),
        (
            ElicitationResponse::Accept(Map::from_iter([("name".to_owned(), json!(7))])),
            "cancel",
        ),
        (
            ElicitationResponse::Accept(Map::from_iter([("other".to_owned(), json!("x"))])),
            "cancel",
        ),
    ] {
        let host = Host {
            response,
            ..Host::default()
        };
        let (_stage, worker) = with(host).await;
        let answer = response_to(&worker, "elicitation/create", name()).await;
        assert_eq!(answer, json!({"action": expected}));
    }
}

#[tokio::test]
async fn nested_forms_secret_forms_and_invalid_urls_are_rejected() {
    let host = Host::default();
    let (_stage, worker) = with(host.clone()).await;
    let visit =
        |url: &str| json!({"mode": "url", "message": "m", "url": url, "elicitationId": "1"});
    for params in [
        form(&json!({"who": {"type": "object", "properties": {}}})),
        form(&json!({"password": {"type": "string"}})),
        form(&json!({"x": {"type": "string", "title": "API key"}})),
        visit("javascript:alert(1)"),
        visit("https://you:me@example.org"),
    ] {
        let answer = response_to(&worker, "elicitation/create", params.clone()).await;
        assert_eq!(answer["code"], -32602, "{params} {answer}");
    }
    assert_eq!(*host.asked.lock().unwrap(), []);
    let answer = response_to(
        &worker,
        "elicitation/create",
        visit("https://example.org/x"),
    )
    .await;
    assert_eq!(answer, json!({"action": "decline"}));
    let asked = host.asked.lock().unwrap().pop().unwrap();
    assert_eq!(
        asked.kind,
        ElicitationKind::Url("https://example.org/x".into())
    );
}

#[tokio::test]
async fn sampling_request_has_preferences_and_no_tools() {
    let host = Host::default();
    let (_stage, worker) = with(host.clone()).await;
    let sampling = json!({
        "messages": [{"role": "user", "content": {"type": "text", "text": "2+2?"}}],
        "modelPreferences": {"hints": [{"name": "small"}], "costPriority": 0.5, "speedPriority": 1.0},
        "systemPrompt": "Be brief.", "maxTokens": 9,
    });
    let answer = response_to(&worker, "sampling/createMessage", sampling.clone()).await;
    assert_eq!(answer["model"], "scripted");
    assert_eq!(answer["content"]["text"], "four");
    let asked = host.sampled.lock().unwrap().pop().unwrap();
    assert_eq!(asked.server, "h");
    let message = ServerMessage {
        role: MessageRole::User,
        text: "2+2?".to_owned(),
    };
    assert_eq!(asked.messages, [message]);
    assert_eq!(asked.system_prompt.as_deref(), Some("Be brief."));
    assert_eq!(
        (asked.models, asked.max_tokens),
        (vec!["small".to_owned()], 9)
    );
    let expected = Priorities {
        cost: Some(0.5),
        speed: Some(1.0),
        intelligence: None,
    };
    assert_eq!(asked.priorities, expected);

    let mut with_tools = sampling.clone();
    with_tools["tools"] = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
    let mut with_image = sampling;
    with_image["messages"][0]["content"] =
        json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
    for refused in [with_tools, with_image] {
        let answer = response_to(&worker, "sampling/createMessage", refused).await;
        assert_eq!(answer["code"], -32602, "{answer}");
    }
    assert_eq!(*host.sampled.lock().unwrap(), []);
}

#[tokio::test]
async fn server_gets_the_roots_that_the_call_may_read() {
    let repo = tempfile::tempdir().unwrap();
    let builder = Upstreams::builder()
        .server(hostile("h", "plain"))
        .requests(Host::default());
    let upstreams = builder.start().await.unwrap();
    let stage = test_runtime(upstreams, |builder| {
        builder.root("repo", repo.path()).approver(allow_once().0)
    })
    .await;
    for (policy, expected) in [
        (Policy::new().root("/repo"), Some("file:///repo/a%20b")),
        (
            Policy::new().root("/repo/a b/c"),
            Some("file:///repo/a%20b/c"),
        ),
        (Policy::new().root("/repo/d"), None),
        (Policy::new(), Some("file:///repo/a%20b")),
        (Policy::new().ask("read:file:/repo").ask("write:mcp"), None),
    ] {
        let worker = stage.worker(policy).await;
        let answer = response_to(&worker, "roots/list", json!({})).await;
        let roots: Vec<_> = expected.iter().map(|uri| json!({ "uri": uri })).collect();
        assert_eq!(answer, json!({ "roots": roots }));
    }
}

async fn modern(host: Host, seen: &std::path::Path) -> (TestRuntime, Worker) {
    let spec = hostile("h", "modern").args([seen.to_str().unwrap()]);
    let upstreams = Upstreams::builder()
        .server(spec)
        .requests(host)
        .start()
        .await
        .unwrap();
    let stage = test_runtime(upstreams, |builder| builder.approver(allow_once().0)).await;
    let worker = stage.worker(Policy::new()).await;
    (stage, worker)
}

#[tokio::test]
async fn request_within_a_call_is_answered_and_the_call_continues() {
    let seen = tempfile::NamedTempFile::new().unwrap();
    let (_stage, worker) = modern(Host::default(), seen.path()).await;
    let answer = text(worker.call("h__edit", json!({"do": "rounds"})).await);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer, json!([{"where": {"roots": []}}, "sealed"]));
    let on_and_on = worker.call("h__edit", json!({"do": "on and on"})).await;
    assert_eq!(code(on_and_on), Code::ServerFault);
}

#[tokio::test]
async fn task_is_polled_to_its_end_and_its_requests_answered() {
    let seen = tempfile::NamedTempFile::new().unwrap();
    let response = ElicitationResponse::Accept(Map::from_iter([("name".to_owned(), json!("Ada"))]));
    let host = Host {
        response,
        ..Host::default()
    };
    let (_stage, worker) = modern(host, seen.path()).await;
    let answer = text(worker.call("h__edit", json!({"do": "task"})).await);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(
        answer,
        json!({"who": {"action": "accept", "content": {"name": "Ada"}}})
    );
    assert_eq!(std::fs::read_to_string(seen.path()).unwrap(), "");
}

#[tokio::test]
async fn abandoned_task_is_cancelled() {
    let seen = tempfile::NamedTempFile::new().unwrap();
    let (_stage, worker) = modern(Host::default(), seen.path()).await;
    let meta = CallMeta {
        deadline: Some(std::time::Duration::from_millis(300)),
        ..CallMeta::default()
    };
    let call = Call::new("h__edit", json!({"do": "endless"})).meta(meta);
    assert_eq!(code(worker.submit(call).await), Code::Deadline);
    wait::for_files(seen.path(), || {
        std::fs::read_to_string(seen.path()).unwrap() == "cancelled\n"
    })
    .await;
}

#[tokio::test]
async fn stateless_subscription_is_renewed() {
    let (stage, worker) = alone("changes-modern").await;
    assert!(!withheld(&stage));
    assert_eq!(text(act(&worker, "h__edit", "change").await), "notified");
    wait::for_tools(&worker, || withheld(&stage)).await;

    let (stage, worker) = alone("changes-modern").await;
    let ended = text(act(&worker, "h__edit", "unlisten").await);
    assert_eq!(ended, "unsubscribed");
    assert_eq!(text(act(&worker, "h__edit", "change").await), "notified");
    wait::for_tools(&worker, || withheld(&stage)).await;
}

fn withheld(stage: &TestRuntime) -> bool {
    let tools = stage.upstreams.tools("h");
    let note = tools.iter().find(|tool| tool.tool == "note").unwrap();
    note.offered == Err(bailiwick_mcp::upstream::WithheldReason::Changed)
}

/// A host whose person thinks about it for ever, and how many questions they were asked and still have.
#[derive(Clone)]
struct Slow {
    asked: std::path::PathBuf,
    open: Arc<watch::Sender<usize>>,
}

/// Counts an open question until it is dropped.
struct OpenQuestion(Arc<watch::Sender<usize>>);

impl OpenQuestion {
    fn new(open: &Arc<watch::Sender<usize>>) -> Self {
        open.send_modify(|open| *open += 1);
        Self(Arc::clone(open))
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

impl ServerRequests for Slow {
    fn capabilities(&self) -> RequestCapabilities {
        RequestCapabilities::ALL
    }

    fn elicit(&self, _: Elicitation) -> BoxFuture<'_, ElicitationResponse> {
        let open = OpenQuestion::new(&self.open);
        let asked = std::fs::OpenOptions::new().append(true).open(&self.asked);
        std::io::Write::write_all(&mut asked.unwrap(), b"?").unwrap();
        Box::pin(async move {
            let _open = open;
            std::future::pending().await
        })
    }
}

#[tokio::test]
async fn cancelled_server_request_is_closed() {
    let asked = tempfile::NamedTempFile::new().unwrap();
    let host = Slow {
        asked: asked.path().to_owned(),
        open: Arc::default(),
    };
    let mut open = host.open.subscribe();
    let spec = hostile("h", "plain").args([asked.path().to_str().unwrap()]);
    let builder = Upstreams::builder().server(spec).requests(host);
    let stage = test_runtime(builder.start().await.unwrap(), |it| {
        it.approver(allow_once().0)
    })
    .await;
    let worker = stage.worker(Policy::new()).await;
    // More than may be open at one time, so they are asked only if those before are not.
    let arguments = json!({"do": "takes back", "times": 12});
    let answered = worker.call("h__edit", arguments).await;
    assert_eq!(text(answered), "all taken back");
    open.wait_for(|open| *open == 0).await.unwrap();
}
