//! Tests of well-behaved apps.

use super::at;
use super::guest::{
    Host, agent, apps, echo, initialized, list_changed, listed, listing, names, offered, offering,
    opened, quick, text_result, tool, worker, yes,
};
use bailiwick::permission::Lifetime;
use bailiwick::{Answer, Code, Origin, Policy, Scripted};
use bailiwick_mcp::view::{DenyView, View, ViewError, ViewEvent, ViewSpec, ViewState};
use bailiwick_test_support::{cases, wait};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

#[tokio::test]
async fn agent_calls_app_tools_like_other_tools() {
    let (approver, asked) = yes();
    let stage = apps(|builder| builder.approver(approver)).await;
    let worker = worker(&stage).await;
    let tools = vec![tool("get-view", true), tool("go_to", false)];
    let (view, _guest) = offered(&worker, "files", offering(tools, echo)).await;
    assert_eq!(view.app(), Some(("board", "2")));
    assert_eq!(names(&worker), ["app_files__get-view", "app_files__go_to"]);
    let listed = worker.tools();
    let get = listed
        .iter()
        .find(|tool| tool.spec.name == "app_files__get-view")
        .unwrap();
    assert!(
        get.spec.description.starts_with(
            "A tool of the app `app_files` (board 2), with an unverified description:"
        )
    );
    assert_eq!(get.input_schema, json!({"type": "object"}));

    let read = worker
        .call("app_files__get-view", json!({"a": 1}))
        .await
        .unwrap();
    assert_eq!(read.text(), r#"{"a":1}"#);
    assert!(
        asked.lock().unwrap().is_empty(),
        "what only reads was asked about"
    );
    let moved = worker.call("app_files__go_to", Value::Null).await.unwrap();
    assert_eq!(moved.text(), "{}");
    let sentence = "Use go_to of the app app_files";
    assert_eq!(*asked.lock().unwrap(), [sentence]);
    let sent = stage.texts("remote_call", "/event/server").await;
    assert_eq!(sent, vec![Some("app_files".to_owned()); 2]);
    let preview = worker.preview("app_files__go_to", json!({})).await;
    assert_eq!(preview.unwrap_err().code(), Code::InvalidArguments);
}

#[tokio::test]
async fn app_writes_need_approval_but_reads_do_not() {
    let (_stage, worker) = agent().await;
    let tools = vec![tool("look", true), tool("push", false)];
    let (_view, _guest) = offered(&worker, "files", offering(tools, echo)).await;
    assert!(worker.call("app_files__look", json!({})).await.is_ok());
    let refused = worker.call("app_files__push", json!({})).await.unwrap_err();
    assert_eq!(refused.code(), Code::ScopeRequired);
    let needs = refused.requested_scopes()[0].to_string();
    assert!(needs.starts_with("write:mcp:app_files~"), "{needs}");
}

#[tokio::test]
async fn policy_selects_apps_by_name() {
    let stage = apps(|builder| builder).await;
    let some = Policy::new()
        .allow("read:mcp:app_files:look")
        .allow("write:mcp:app_files");
    let worker = stage.worker(some).await;
    let tools = || vec![tool("look", true), tool("see", true)];
    let (_one, _guest) = offered(&worker, "files", offering(tools(), echo)).await;
    let (_other, _other_guest) = offered(&worker, "other", offering(tools(), echo)).await;
    assert_eq!(names(&worker), ["app_files__look"]);
    assert!(worker.call("app_files__look", json!({})).await.is_ok());
    let refused = worker.call("app_files__see", json!({})).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let elsewhere = stage.worker(Policy::new()).await;
    assert!(names(&elsewhere).is_empty(), "a view is one worker's");
    let unknown = elsewhere
        .call("app_files__look", json!({}))
        .await
        .unwrap_err();
    assert_eq!(unknown.code(), Code::UnknownTool);
}

#[tokio::test]
async fn two_views_of_one_app_have_separate_tools() {
    let (_stage, worker) = agent().await;
    let whose = |name: &'static str| {
        let tools = vec![tool("who", true)];
        offering(tools, move |_, _| {
            Some(json!({"result": text_result(name)}))
        })
    };
    let (_one, _guest) = offered(&worker, "left", whose("the left")).await;
    let (other, _other_guest) = offered(&worker, "right", whose("the right")).await;
    let text = async |name| worker.call(name, json!({})).await.unwrap().text();
    assert_eq!(text("app_left__who").await, "the left");
    assert_eq!(text("app_right__who").await, "the right");
    let taken = View::open(&worker, ViewSpec::new("left"), DenyView).await;
    assert!(matches!(taken, Err(ViewError::Taken(_))));
    let odd = View::open(&worker, ViewSpec::new("a__b"), DenyView).await;
    assert!(matches!(odd, Err(ViewError::Name(_))));
    other.close().await;
    assert_eq!(names(&worker), ["app_left__who"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_list_is_current_when_a_view_changes_state() {
    let (_stage, worker) = agent().await;
    for _ in 0..cases(50) {
        let host = Host::default();
        let (view, mut guest) = opened(&worker, quick("files"), host.clone()).await;
        let offered = tokio::spawn({
            let (view, worker) = (view.clone(), worker.clone());
            async move {
                listed(&view, &host).await;
                names(&worker)
            }
        });
        guest.initialize(json!({"listChanged": true})).await;
        let _guest = guest.respond_with(offering(vec![tool("look", true)], echo));
        assert_eq!(offered.await.unwrap(), ["app_files__look"]);
        let closed = tokio::spawn({
            let (view, worker) = (view.clone(), worker.clone());
            async move {
                assert!(view.reached(ViewState::Closed).await);
                names(&worker)
            }
        });
        view.close().await;
        assert!(closed.await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn grant_for_a_view_does_not_apply_to_its_successor() {
    let questions = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&questions);
    let approver = Scripted::new().rule(move |_| {
        asked.fetch_add(1, Ordering::SeqCst);
        Some(Answer::Allow {
            patterns: vec!["write:mcp:app_files".parse().unwrap()],
            lifetime: Lifetime::Session,
            descendants: false,
            left_out: Vec::new(),
        })
    });
    let stage = apps(|builder| builder.approver(approver)).await;
    let worker = worker(&stage).await;
    let script = || offering(vec![tool("push", false)], echo);
    let (view, _guest) = offered(&worker, "files", script()).await;
    let label = view.label().to_owned();
    let push = async || worker.call("app_files__push", json!({})).await.unwrap();
    push().await;
    push().await;
    assert_eq!(questions.load(Ordering::SeqCst), 1);
    let granted = stage.grants.grants().await.unwrap();
    let granted = granted.iter().map(|grant| grant.pattern.to_string());
    let granted: Vec<_> = granted.collect();
    assert!(
        !granted.is_empty() && granted.iter().all(|pattern| pattern.contains(&label)),
        "{granted:?}"
    );
    view.close().await;
    let (next, _next_guest) = offered(&worker, "files", script()).await;
    assert_ne!(next.label(), label);
    push().await;
    assert_eq!(questions.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn changed_tool_list_is_fetched_again() {
    let (_stage, worker) = agent().await;
    let host = Host::default();
    let (view, sender) = listing(&worker, &host, |turn| {
        let name = if turn == 1 { "first" } else { "second" };
        json!({"result": {"tools": [tool(name, true)]}})
    })
    .await;
    listed(&view, &host).await;
    assert_eq!(names(&worker), ["app_files__first"]);
    list_changed(&sender).await;
    wait::for_tools(&worker, || names(&worker) == ["app_files__second"]).await;
    let gone = worker
        .call("app_files__first", json!({}))
        .await
        .unwrap_err();
    assert_eq!(gone.code(), Code::UnknownTool);
}

#[tokio::test]
async fn app_without_tools_is_not_asked_for_them() {
    let (_stage, worker) = agent().await;
    let (view, guest) = initialized(&worker, quick("files"), Host::default(), Value::Null).await;
    view.tool_input(serde_json::Map::new());
    assert!(view.reached(ViewState::Mounted).await);
    let seen = guest.respond_with(|_, _| Some(json!({"result": {}})));
    view.close().await;
    let seen = seen.await.unwrap();
    let methods: Vec<_> = seen
        .iter()
        .filter_map(|message| message["method"].as_str())
        .collect();
    assert_eq!(
        methods,
        ["ui/notifications/tool-input", "ui/resource-teardown"]
    );
}

#[tokio::test]
async fn page_gets_tool_updates_after_initialization_in_order() {
    let (_stage, worker) = agent().await;
    let (view, mut guest) = opened(&worker, quick("files"), Host::default()).await;
    let input = json!({"path": "/a"});
    view.tool_result(text_result("done").as_object().cloned().unwrap());
    view.tool_input(input.as_object().cloned().unwrap());
    let dark = json!({"theme": "dark"});
    view.change_context(dark.as_object().cloned().unwrap());
    let initialized = guest.initialize(Value::Null).await;
    let result = &initialized["result"];
    assert_eq!(result["protocolVersion"], "2026-01-26");
    assert_eq!(result["hostContext"]["theme"], "dark");
    assert_eq!(result["hostContext"]["displayMode"], "inline");
    assert_eq!(result["hostCapabilities"]["openLinks"], json!({}));
    let first = guest.next().await.unwrap();
    assert_eq!(first["params"]["arguments"], input);
    assert_eq!(
        guest.next().await.unwrap()["method"],
        "ui/notifications/tool-result"
    );
    view.change_context(json!({"theme": "light"}).as_object().cloned().unwrap());
    let changed = guest.next().await.unwrap();
    assert_eq!(changed["params"], json!({"theme": "light"}));
}

/// A person who allows changes by pages, once, and nothing else.
fn person() -> Scripted {
    let once = Answer::allow(Lifetime::Once);
    Scripted::new().rule(move |question| {
        let shown = question.request.origin == Origin::View && question.request.preview.is_some();
        shown.then(|| once.clone())
    })
}

#[tokio::test]
async fn page_reads_freely_and_writes_with_approval() {
    let stage = apps(|builder| builder).await;
    let alone = worker(&stage).await;
    let (_view, mut guest) = initialized(&alone, quick("files"), Host::yes(), Value::Null).await;
    for name in ["echo", "peek"] {
        let answer = guest.call_tool(name, at("x")).await;
        assert_eq!(
            answer["result"]["structuredContent"],
            json!({"path": "/r/x"})
        );
    }
    let refused = guest.call_tool("post", at("x")).await;
    assert_eq!(
        refused["result"]["structuredContent"]["code"],
        "SCOPE_REQUIRED"
    );
    assert!(stage.board.posted().is_empty());

    let stage = apps(|builder| builder.approver(person())).await;
    let watched = worker(&stage).await;
    let (_view, mut guest) =
        initialized(&watched, quick("files"), Host::default(), Value::Null).await;
    for asked in 1..=2 {
        let done = guest.call_tool("post", at("x")).await;
        assert_eq!(done["result"]["isError"], json!(false));
        assert_eq!(stage.texts("asked", "/call").await.len(), asked);
    }
    assert_eq!(stage.board.posted(), ["/r/x", "/r/x"]);
    let origins = stage.texts("finished", "/event/origin").await;
    assert_eq!(origins, vec![Some("view".to_owned()); 2]);
}

#[tokio::test]
async fn approval_for_a_page_does_not_override_the_policy() {
    let stage = apps(|builder| builder.approver(person())).await;
    let worker = stage.worker(Policy::new().deny("write:file")).await;
    let (_view, mut guest) = initialized(&worker, quick("files"), Host::yes(), Value::Null).await;
    let refused = guest.call_tool("post", at("x")).await;
    assert_eq!(
        refused["result"]["structuredContent"]["code"],
        "PERMISSION_DENIED"
    );
    assert!(stage.board.posted().is_empty());
    assert_eq!(
        guest.call_tool("echo", at("x")).await["result"]["isError"],
        json!(false)
    );
}

#[tokio::test]
async fn page_requests_reach_the_host_or_are_rejected() {
    let (_stage, worker) = agent().await;
    let requests = [
        ("ui/open-link", json!({"url": "https://example.org"})),
        (
            "ui/message",
            json!({"content": [{"type": "text", "text": "hi"}]}),
        ),
        (
            "ui/download-file",
            json!({"contents": [{"type": "resource"}]}),
        ),
        ("dev.bailiwick/request-pin", json!({})),
    ];
    let host = Host::yes();
    let (view, mut guest) = initialized(&worker, quick("yes"), host.clone(), Value::Null).await;
    for (method, params) in &requests {
        let answer = guest.request(method, params.clone()).await;
        assert_eq!(answer["result"].get("isError"), None, "{method}");
    }
    assert_eq!(host.requests.lock().unwrap().len(), requests.len());
    assert!(matches!(view.suspend().await, Err(ViewError::Pinned)));
    let script = guest
        .request("ui/open-link", json!({"url": "javascript:alert(1)"}))
        .await;
    assert_eq!(script["error"]["code"], json!(-32602));

    let (view, mut guest) = initialized(&worker, quick("no"), Host::default(), Value::Null).await;
    for (method, params) in &requests[..3] {
        let answer = guest.request(method, params.clone()).await;
        assert_eq!(answer["result"], json!({"isError": true}), "{method}");
    }
    let pinned = guest.request("dev.bailiwick/request-pin", json!({})).await;
    assert_eq!(pinned["result"], json!({"pinned": false}));
    assert!(view.suspend().await.is_ok());

    let (_view, mut guest) = initialized(&worker, quick("none"), DenyView, Value::Null).await;
    for (method, params) in &requests[..3] {
        let answer = guest.request(method, params.clone()).await;
        assert_eq!(answer["error"]["code"], json!(-32601), "{method}");
    }
}

#[tokio::test]
async fn display_mode_is_chosen_by_the_host() {
    let (_stage, worker) = agent().await;
    let modes = [
        bailiwick_mcp::view::DisplayMode::Inline,
        bailiwick_mcp::view::DisplayMode::Fullscreen,
    ];
    let (_view, mut guest) = initialized(
        &worker,
        quick("files").modes(modes),
        Host::yes(),
        Value::Null,
    )
    .await;
    let mut mode = async |wanted: &str| {
        let answer = guest
            .request("ui/request-display-mode", json!({"mode": wanted}))
            .await;
        answer["result"]["mode"].as_str().unwrap().to_owned()
    };
    assert_eq!(mode("pip").await, "inline");
    assert_eq!(mode("cinema").await, "inline");
    assert_eq!(mode("fullscreen").await, "fullscreen");
    assert_eq!(mode("pip").await, "fullscreen");
}

#[tokio::test]
async fn model_context_update_replaces_the_previous_one() {
    let (_stage, worker) = agent().await;
    let host = Host::default();
    let (view, mut guest) = initialized(&worker, quick("files"), host.clone(), Value::Null).await;
    assert_eq!(view.model_context(), None);
    for text in ["one", "tw\u{202e}o"] {
        let content =
            json!({"content": [{"type": "text", "text": text}], "structuredContent": {"n": 1}});
        let answer = guest.request("ui/update-model-context", content).await;
        assert_eq!(answer["result"], json!({}));
    }
    assert_eq!(view.model_context().unwrap().text(), "tw\\u{202e}o");
    let events = host.events.borrow();
    assert_eq!(
        events
            .iter()
            .filter(|event| **event == ViewEvent::ModelContextChanged)
            .count(),
        2
    );
}

#[tokio::test]
async fn suspended_app_is_not_called_until_resumed() {
    let (_stage, worker) = agent().await;
    let script = offering(vec![tool("look", true)], echo);
    let (view, _guest) = offered(&worker, "files", script).await;
    view.suspend().await.unwrap();
    assert_eq!(view.state(), ViewState::Suspended);
    let refused = worker.call("app_files__look", json!({})).await.unwrap_err();
    assert_eq!(
        (refused.code(), &refused.details()["state"]),
        (Code::ServerGone, &json!("suspended"))
    );
    assert_eq!(names(&worker), ["app_files__look"]);
    view.resume().await;
    assert!(worker.call("app_files__look", json!({})).await.is_ok());
}

#[tokio::test]
async fn closing_a_view_fails_its_calls_and_removes_its_tools() {
    let (_stage, worker) = agent().await;
    let called = Arc::new(Notify::new());
    let reached = Arc::clone(&called);
    let script = offering(vec![tool("look", true)], move |_, _| {
        reached.notify_one();
        None
    });
    let (view, guest) = offered(&worker, "files", script).await;
    let caller = worker.clone();
    let call = tokio::spawn(async move { caller.call("app_files__look", json!({})).await });
    called.notified().await;
    view.close().await;
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(
        (error.code(), &error.details()["state"]),
        (Code::ServerGone, &json!("closed"))
    );
    assert!(names(&worker).is_empty());
    let seen = guest.await.unwrap();
    assert_eq!(seen.last().unwrap()["method"], "ui/resource-teardown");
    let again = worker.call("app_files__look", json!({})).await.unwrap_err();
    assert_eq!(again.code(), Code::UnknownTool);
}

#[tokio::test]
async fn view_ends_with_its_worker_or_page() {
    let (_stage, worker) = agent().await;
    let host = Host::default();
    let (view, guest) = opened(&worker, quick("files"), host.clone()).await;
    drop(guest);
    view.reached(ViewState::Closed).await;
    assert_eq!(*host.events.borrow(), [ViewEvent::Closed]);
    let (view, mut guest) = opened(&worker, quick("files"), host.clone()).await;
    worker.revoke().await;
    view.reached(ViewState::Closed).await;
    assert_eq!(guest.next().await, None);
    let late = View::open(&worker, quick("late"), DenyView).await;
    assert!(matches!(late, Err(ViewError::Ended)));
}

#[tokio::test]
async fn call_by_a_page_outlives_the_page() {
    let (stage, worker) = agent().await;
    let (view, guest) = initialized(&worker, quick("files"), Host::default(), Value::Null).await;
    let hang = json!({"name": "hangs", "arguments": at("x")});
    guest
        .send(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": hang}))
        .await;
    wait::for_calls(&stage.runtime, &worker, 1).await;
    view.close().await;
    assert_eq!(worker.status().in_flight, 1);
    stage.latch.open();
    wait::for_calls(&stage.runtime, &worker, 0).await;
    assert_eq!(
        stage.texts("finished", "/event/tool").await,
        [Some("hangs".to_owned())]
    );
}

#[tokio::test]
async fn page_can_cancel_its_call() {
    let (stage, worker) = agent().await;
    let (_view, mut guest) =
        initialized(&worker, quick("files"), Host::default(), Value::Null).await;
    let hang = json!({"name": "hangs", "arguments": at("x")});
    guest
        .send(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": hang}))
        .await;
    wait::for_calls(&stage.runtime, &worker, 1).await;
    let back =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    guest.send(back).await;
    wait::for_calls(&stage.runtime, &worker, 0).await;
    stage.latch.open();
    assert_eq!(guest.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn app_behind_two_tools_is_listed_called_and_judged() {
    let (stage, worker) = agent().await;
    let spec = quick("files").behind_two_tools();
    let host = Host::default();
    let (view, guest) = initialized(&worker, spec, host.clone(), json!({})).await;
    let tools = vec![tool("look", true), tool("push", false)];
    let _guest = guest.respond_with(offering(tools, echo));
    listed(&view, &host).await;
    assert_eq!(names(&worker), ["list_app_tools", "call_app_tool"]);
    let listed = worker.call("list_app_tools", json!({})).await.unwrap();
    let listed = listed.structured().unwrap();
    assert_eq!(listed["tools"][0]["name"], "app_files__look");
    assert_eq!(listed["tools"][1]["readOnly"], json!(false));
    let call = async |arguments: Value| worker.call("call_app_tool", arguments).await;
    let called = call(json!({"name": "app_files__look", "arguments": {"a": 1}}))
        .await
        .unwrap();
    assert_eq!(called.text(), r#"{"a":1}"#);
    let finished = stage.texts("remote_call", "/event/tool").await;
    assert_eq!(finished, [Some("app_files__look".to_owned())]);
    let push = call(json!({"name": "app_files__push"})).await.unwrap_err();
    assert_eq!(push.code(), Code::ScopeRequired);
    for none in [
        json!({"name": "echo", "arguments": at("x")}),
        json!({}),
        json!({"name": "app_files__look", "meta": 1}),
    ] {
        assert_eq!(call(none).await.unwrap_err().code(), Code::InvalidArguments);
    }
    view.close().await;
    assert!(names(&worker).is_empty());
    let gone = call(json!({"name": "app_files__look"})).await.unwrap_err();
    assert_eq!(gone.code(), Code::UnknownTool);
}

#[tokio::test]
async fn host_can_call_app_tools_through_the_view() {
    let (_stage, worker) = agent().await;
    let script = offering(vec![tool("push", false)], echo);
    let (view, _guest) = offered(&worker, "files", script).await;
    let listed = view.send_list_tools().await.unwrap();
    assert_eq!(listed["tools"][0]["name"], "push");
    let called = view
        .send_call_tool("push", serde_json::Map::new())
        .await
        .unwrap();
    assert_eq!(called["content"][0]["text"], "{}");
}
