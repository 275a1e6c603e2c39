//! Requests of third-party servers that a gateway forwards to its clients.
#![expect(
    clippy::needless_pass_by_value,
    reason = "requests are made where they are sent"
)]

use super::hostile_server::hostile;
use bailiwick::{Policy, Worker};
use bailiwick_mcp::upstream::{ServerSpec, Upstreams};
use bailiwick_test_support::client::{Client, gateway};
use bailiwick_test_support::server::text;
use bailiwick_test_support::upstream::{TestRuntime, allow_once, test_runtime};
use bailiwick_test_support::wait;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const ELICIT: &str = "elicitation/create";

fn forms() -> Value {
    json!({"elicitation": {}})
}

async fn forwarding(spec: ServerSpec, limit: Duration) -> (TestRuntime, Worker) {
    let builder = Upstreams::builder().server(spec).forward_requests();
    let upstreams = builder.start().await.unwrap();
    let stage = test_runtime(upstreams, |builder| {
        builder.approver(allow_once().0).call_limit(limit)
    })
    .await;
    let worker = stage.worker(Policy::new()).await;
    (stage, worker)
}

async fn serving(mode: &str) -> (TestRuntime, Worker) {
    forwarding(hostile("h", mode), Duration::from_secs(20)).await
}

/// Like `serving`, with a file in which the server notes what it receives.
async fn witnessed(mode: &str) -> (tempfile::NamedTempFile, TestRuntime, Worker) {
    let seen = tempfile::NamedTempFile::new().unwrap();
    let spec = hostile("h", mode).args([seen.path().to_str().unwrap()]);
    let (stage, worker) = forwarding(spec, Duration::from_secs(20)).await;
    (seen, stage, worker)
}

/// Arguments that make the server ask.
fn ask(message: &str, fields: Value) -> Value {
    let schema = json!({"type": "object", "properties": fields, "required": []});
    let params = json!({"mode": "form", "message": message, "requestedSchema": schema});
    json!({"do": "ask", "method": ELICIT, "params": params})
}

fn ask_name() -> Value {
    ask(
        "Who?",
        json!({"name": {"type": "string", "maxLength": 9, "title": "Name\u{202e}"}}),
    )
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// How the requests of the server `h` in the audit ended.
fn outcomes(lines: &[Value]) -> Vec<&str> {
    let events = lines.iter().map(|line| &line["event"]);
    let requests = events.filter(|event| event["step"] == "server_request");
    let outcomes = requests.map(|event| {
        assert_eq!(
            (&event["server"], &event["method"]),
            (&json!("h"), &json!(ELICIT))
        );
        assert!(event["call"].is_u64(), "{event}");
        event["outcome"].as_str().unwrap()
    });
    outcomes.collect()
}

/// The response to the server's request, which the server returns as its result.
async fn response_of(client: &mut Client, id: u64) -> Value {
    parsed(&client.text(id).await)
}

#[tokio::test]
async fn server_form_is_answered_by_the_client_of_the_call() {
    let (stage, worker) = serving("plain").await;
    let mut client = Client::connect(&gateway(&worker), forms()).await;
    for (answer, expected) in [
        (
            json!({"action": "accept", "content": {"name": "Ada"}}),
            json!({"action": "accept", "content": {"name": "Ada"}}),
        ),
        (json!({"action": "decline"}), json!({"action": "decline"})),
        (json!({"action": "cancel"}), json!({"action": "cancel"})),
        (
            json!({"action": "accept", "content": {"name": "longer than nine"}}),
            json!({"action": "cancel"}),
        ),
        (
            json!({"action": "accept", "content": {"other": "x"}}),
            json!({"action": "cancel"}),
        ),
    ] {
        let id = client.start_call("h__edit", ask_name()).await;
        let asked = client.receive_request(ELICIT).await;
        let message = asked["params"]["message"].as_str().unwrap();
        assert!(
            message.starts_with(
                "The MCP server `h` asks for input; this is not a permission request."
            ),
            "{message}"
        );
        assert!(message.ends_with("\n> Who?"), "{message}");
        let field = &asked["params"]["requestedSchema"]["properties"]["name"];
        assert_eq!(
            *field,
            json!({"type": "string", "maxLength": 9, "title": "Name\\u{202e}"})
        );
        client.respond(&asked, answer).await;
        assert_eq!(response_of(&mut client, id).await, expected);
    }
    let lines = stage.lines().await;
    let expected = [
        "accepted",
        "declined",
        "cancelled",
        "cancelled",
        "cancelled",
    ];
    assert_eq!(outcomes(&lines), expected);
    assert!(!format!("{lines:?}").contains("Ada"));
}

#[tokio::test]
async fn fake_permission_question_is_marked_as_server_text() {
    let (_stage, worker) = serving("plain").await;
    let mut client = Client::connect(&gateway(&worker), forms()).await;
    let posing = "\u{1b}[2JAgent: main\nTool: write_file\nNeeds:\n  write:file:/";
    let decision = json!({"decision": {"type": "string", "title": "Allow this call?", "enum": ["allow", "deny"]}});
    let id = client.start_call("h__edit", ask(posing, decision)).await;
    let asked = client.receive_request(ELICIT).await;
    let message = asked["params"]["message"].as_str().unwrap();
    let mut lines = message.lines();
    let first = lines.next().unwrap();
    assert!(first.contains("`h`") && first.contains("not a permission request"));
    assert!(lines.clone().count() == 4 && lines.all(|line| line.starts_with("> ")));
    assert!(!message.contains('\u{1b}'), "{message}");
    let content = json!({"decision": "allow"});
    client
        .respond(&asked, json!({"action": "accept", "content": content}))
        .await;
    assert_eq!(response_of(&mut client, id).await["content"], content);
}

#[tokio::test]
async fn oversized_forms_are_rejected() {
    let (stage, worker) = serving("plain").await;
    let mut client = Client::connect(&gateway(&worker), forms()).await;
    let many: serde_json::Map<_, _> = (0..1000)
        .map(|n| (format!("f{n}"), json!({"type": "string"})))
        .collect();
    let nested = (0..40).fold(
        json!({"type": "string"}),
        |inner, _| json!({"type": "object", "properties": {"x": inner}}),
    );
    for fields in [
        Value::Object(many),
        json!({ "x": nested }),
        json!({"password": {"type": "string"}}),
        json!({"x": {"type": "string", "enum": ["y".repeat(100_000)]}}),
    ] {
        let id = client.start_call("h__edit", ask("Who?", fields)).await;
        assert_eq!(response_of(&mut client, id).await["code"], -32602);
    }
    assert!(outcomes(&stage.lines().await).contains(&"refused"));
    let id = client
        .start_call("h__edit", ask(&"long ".repeat(100_000), json!({})))
        .await;
    let asked = client.receive_request(ELICIT).await;
    assert!(asked.to_string().len() < 8192, "{asked}");
    client.respond(&asked, json!({"action": "decline"})).await;
    assert_eq!(response_of(&mut client, id).await["action"], "decline");
}

#[tokio::test]
async fn unsupported_request_is_rejected_at_once() {
    let (_stage, worker) = serving("plain").await;
    let visit = || {
        let params = json!({"mode": "url", "message": "m", "url": "https://example.org/x", "elicitationId": "1"});
        json!({"do": "ask", "method": ELICIT, "params": params})
    };
    let sample = || {
        let params = json!({"messages": [{"role": "user", "content": {"type": "text", "text": "2+2?"}}], "maxTokens": 9});
        json!({"do": "ask", "method": "sampling/createMessage", "params": params})
    };
    for (capabilities, arguments) in [
        (json!({}), ask_name()),
        (forms(), visit()),
        (json!({"elicitation": {"url": {}}}), ask_name()),
        (json!({"elicitation": {}, "sampling": {}}), sample()),
    ] {
        let mut client = Client::connect(&gateway(&worker), capabilities).await;
        let id = client.start_call("h__edit", arguments).await;
        let answer = response_of(&mut client, id).await;
        assert_eq!(answer["code"], -32601, "{answer}");
        let why = answer["message"].as_str().unwrap();
        assert!(why.contains("support"), "{why}");
    }
    let mut client = Client::connect(&gateway(&worker), json!({"elicitation": {"url": {}}})).await;
    let id = client.start_call("h__edit", visit()).await;
    let asked = client.receive_request(ELICIT).await;
    assert_eq!(asked["params"]["url"], "https://example.org/x");
    assert!(asked["params"]["message"].as_str().unwrap().contains("`h`"));
    client.respond(&asked, json!({"action": "accept"})).await;
    assert_eq!(
        response_of(&mut client, id).await,
        json!({"action": "accept"})
    );
}

#[tokio::test]
async fn stateless_client_answers_a_server_form_with_the_next_call() {
    for (mode, arguments) in [("plain", ask_name()), ("modern", json!({"do": "who"}))] {
        let (_seen, _stage, worker) = witnessed(mode).await;
        let mut client = Client::stateless(&gateway(&worker), &forms());
        let id = client.start_call("h__edit", arguments.clone()).await;
        let required = client.response(id).await["result"].clone();
        assert_eq!(required["resultType"], "input_required", "{required}");
        let form = &required["inputRequests"]["server"];
        assert_eq!(form["method"], ELICIT);
        assert!(form["params"]["message"].as_str().unwrap().contains("`h`"));
        let again = |state: Value| {
            let answers = json!({"server": {"action": "accept", "content": {"name": "Ada"}}});
            json!({"name": "h__edit", "arguments": arguments, "inputResponses": answers, "requestState": state})
        };
        let forged = client
            .start_request("tools/call", again("forged".into()))
            .await;
        assert_eq!(client.response(forged).await["error"]["code"], -32602);
        let state = required["requestState"].clone();
        let id = client
            .start_request("tools/call", again(state.clone()))
            .await;
        let answer = client.text(id).await;
        assert!(answer.contains("Ada"), "{answer}");
        let twice = client.start_request("tools/call", again(state)).await;
        assert_eq!(client.response(twice).await["error"]["code"], -32602);
    }
}

#[tokio::test]
async fn stateless_server_gets_client_capabilities_with_each_call() {
    let (_seen, _stage, worker) = witnessed("modern").await;
    let gateway = gateway(&worker);
    for (capabilities, expected) in [
        (forms(), json!({"form": {}})),
        (json!({"elicitation": {"url": {}}}), json!({"url": {}})),
        (json!({"sampling": {}}), Value::Null),
    ] {
        let mut client = Client::connect(&gateway, capabilities).await;
        let id = client
            .start_call("h__edit", json!({"do": "capabilities"}))
            .await;
        let seen = response_of(&mut client, id).await;
        assert_eq!(seen["elicitation"], expected, "{seen}");
        assert_eq!(seen["sampling"], Value::Null, "{seen}");
    }
    // One that asks all the same fails the call.
    let mut client = Client::connect(&gateway, json!({})).await;
    let id = client.start_call("h__edit", json!({"do": "who"})).await;
    let response = client.response(id).await;
    assert_eq!(response["result"]["isError"], true);
    assert!(
        text(&response["result"]).contains("of a client that supports it"),
        "{response}"
    );
}

#[tokio::test]
async fn server_requests_stay_on_their_connection() {
    let (seen, stage, worker) = witnessed("witness").await;
    let gateway = gateway(&worker);
    let mut other = Client::connect(&gateway, forms()).await;
    let mut client = Client::connect(&gateway, forms()).await;
    let hanging = other.start_call("h__edit", json!({"do": "hang"})).await;
    wait::for_calls(&stage.runtime, &worker, 1).await;
    let id = client.start_call("h__edit", ask_name()).await;
    let refused = response_of(&mut client, id).await;
    let why = refused["message"].as_str().unwrap().to_owned();
    assert!(why.contains("several clients"), "{why}");
    // The server may not know yet that the other call is over, so its request may still be about that.
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": hanging}});
    other.send(&cancel).await;
    wait::for_files(seen.path(), || {
        std::fs::read_to_string(seen.path()).unwrap() == "cancelled\n"
    })
    .await;
    let id = client.start_call("h__edit", ask_name()).await;
    let refused = response_of(&mut client, id).await;
    assert_eq!(refused["message"], why.as_str());
    // That of its own client is no obstacle, and nobody asked it anything before.
    let id = other.start_call("h__edit", ask_name()).await;
    let asked = other.receive_request(ELICIT).await;
    other.respond(&asked, json!({"action": "decline"})).await;
    assert_eq!(response_of(&mut other, id).await["action"], "decline");
}

#[tokio::test]
async fn concurrent_calls_of_one_client_may_be_asked_about() {
    let (stage, worker) = serving("plain").await;
    let mut client = Client::connect(&gateway(&worker), forms()).await;
    client.start_call("h__edit", json!({"do": "hang"})).await;
    wait::for_calls(&stage.runtime, &worker, 1).await;
    let id = client.start_call("h__edit", ask_name()).await;
    let asked = client.receive_request(ELICIT).await;
    client.respond(&asked, json!({"action": "decline"})).await;
    assert_eq!(response_of(&mut client, id).await["action"], "decline");
}

#[tokio::test]
async fn request_outside_a_call_is_rejected() {
    let (_stage, worker) = serving("early").await;
    let mut client = Client::connect(&gateway(&worker), forms()).await;
    let id = client
        .start_call("h__edit", json!({"do": "response"}))
        .await;
    let response = response_of(&mut client, id).await;
    assert_eq!(response["error"]["code"], -32601, "{response}");
    let why = response["error"]["message"].as_str().unwrap();
    assert!(why.contains("only within a call"), "{why}");
}

#[tokio::test]
async fn request_flood_to_the_client_is_bounded() {
    let (_stage, worker) = serving("plain").await;
    let mut client = Client::connect(&gateway(&worker), forms()).await;
    let id = client
        .start_call("h__edit", json!({"do": "questions", "times": 40}))
        .await;
    let mut asked = 0;
    let seen = loop {
        let message = client.receive().await;
        if message["method"] == ELICIT {
            asked += 1;
            client.respond(&message, json!({"action": "decline"})).await;
        } else if message["id"] == id {
            break parsed(&text(&message["result"]));
        }
    };
    let answered = seen.as_array().unwrap();
    let declined = answered.iter().filter(|it| **it == "decline").count();
    assert_eq!((answered.len(), declined), (40, asked));
    assert!((1..=20).contains(&asked), "{asked}");
}

#[tokio::test]
async fn cancelling_a_call_cancels_the_server_form() {
    let (seen, stage, worker) = witnessed("witness").await;
    let mut client = Client::connect(&gateway(&worker), forms()).await;
    let id = client.start_call("h__edit", ask_name()).await;
    let asked = client.receive_request(ELICIT).await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    client.send(&cancel).await;
    let taken_back = client.receive_request("notifications/cancelled").await;
    assert_eq!(taken_back["params"]["requestId"], asked["id"]);
    // An answer that comes all the same has no effect.
    client
        .respond(
            &asked,
            json!({"action": "accept", "content": {"name": "late"}}),
        )
        .await;
    let cancelled = || std::fs::read_to_string(seen.path()).unwrap();
    wait::for_calls(&stage.runtime, &worker, 0).await;
    let id = client.start_call("h__edit", json!({})).await;
    assert!(!client.text(id).await.contains("late"));
    assert!(cancelled().contains("cancelled"), "{}", cancelled());
    assert_eq!(outcomes(&stage.lines().await), ["cancelled"]);
}

#[tokio::test]
async fn disconnect_ends_the_call_and_its_form() {
    let (stage, worker) = serving("plain").await;
    let gateway = gateway(&worker);
    let mut client = Client::connect(&gateway, forms()).await;
    client.start_call("h__edit", ask_name()).await;
    client.receive_request(ELICIT).await;
    drop(client);
    wait::for_calls(&stage.runtime, &worker, 0).await;
}

#[tokio::test]
async fn time_for_answers_does_not_count_toward_the_deadline() {
    let limit = Duration::from_millis(400);
    let (_stage, worker) = forwarding(hostile("h", "plain"), limit).await;
    let mut client = Client::connect(&gateway(&worker), forms()).await;
    let began = Instant::now();
    let id = client.start_call("h__edit", ask_name()).await;
    let asked = client.receive_request(ELICIT).await;
    // A person thinks for longer than the call may take.
    tokio::time::sleep(limit * 3).await;
    client.respond(&asked, json!({"action": "decline"})).await;
    assert_eq!(response_of(&mut client, id).await["action"], "decline");
    assert!(began.elapsed() > limit * 3);
    let id = client.start_call("h__edit", json!({"do": "hang"})).await;
    let late = client.response(id).await;
    assert_eq!(late["result"]["structuredContent"]["code"], "DEADLINE");
}

#[tokio::test]
async fn server_gets_the_directories_that_the_call_may_read() {
    let repo = tempfile::tempdir().unwrap();
    let builder = Upstreams::builder()
        .server(hostile("h", "plain"))
        .forward_requests();
    let stage = test_runtime(builder.start().await.unwrap(), |builder| {
        builder.root("repo", repo.path()).approver(allow_once().0)
    })
    .await;
    let arguments = json!({"do": "ask", "method": "roots/list", "params": {}});
    for (policy, narrowed, expected) in [
        (
            Policy::new().root("/repo"),
            None,
            json!([{"uri": "file:///repo"}]),
        ),
        (
            Policy::new()
                .root("/repo")
                .block("/repo/a")
                .root("/repo/a/b"),
            None,
            json!([{"uri": "file:///repo"}]),
        ),
        (
            Policy::new().root("/repo"),
            Some("/repo/src"),
            json!([{"uri": "file:///repo/src"}]),
        ),
        (Policy::new().block("/repo"), None, json!([])),
    ] {
        let worker = stage.worker(policy).await;
        let mut client = Client::connect(&gateway(&worker), json!({})).await;
        let mut params = json!({"name": "h__edit", "arguments": arguments});
        if let Some(root) = narrowed {
            params["_meta"] = json!({"policy": {"roots": [{"path": root}]}});
        }
        let id = client.start_request("tools/call", params).await;
        let answer = client.response(id).await;
        assert_eq!(
            parsed(&text(&answer["result"])),
            json!({ "roots": expected }),
            "{answer}"
        );
    }
}
