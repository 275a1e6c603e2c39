//! Tests of hostile apps, which must not harm agent, host or runtime.

use std::time::Duration;

use bailiwick::permission::{AuthorityError, GrantHolder, Lifetime, NewGrant};
use bailiwick::{Answer, Call, Code, Deferred};
use bailiwick_mcp::upstream::{Upstreams, WithheldReason};
use bailiwick_mcp::view::{DenyView, View, ViewError, ViewEvent, ViewLimits, ViewSpec, ViewState};
use bailiwick_test_support::wait;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::at;
use super::guest::{
    Host, agent, apps, echo, initialized, list_changed, listed, listing, names, offered, offering,
    opened, quick, text_result, tool, worker,
};

#[tokio::test]
async fn page_requests_are_rejected_before_initialization() {
    let (_stage, worker) = agent().await;
    let (view, mut guest) = opened(&worker, quick("files"), Host::yes()).await;
    let early = async |guest: &mut super::guest::Guest| {
        for (method, params) in [
            ("tools/call", json!({"name": "echo", "arguments": at("x")})),
            ("ui/message", json!({"content": []})),
            ("ui/update-model-context", json!({"content": []})),
        ] {
            let answer = guest.request(method, params).await;
            assert_eq!(answer["error"]["code"], json!(-32000), "{method}");
        }
    };
    early(&mut guest).await;
    assert_eq!(guest.request("ping", json!({})).await["result"], json!({}));
    guest.notify("ui/notifications/initialized").await;
    early(&mut guest).await;
    guest.request("ui/initialize", json!({})).await;
    early(&mut guest).await;
    assert_eq!(view.state(), ViewState::Starting);
    let call = view
        .send_call_tool("t", serde_json::Map::new())
        .await
        .unwrap_err();
    assert_eq!(
        (call.code(), &call.details()["state"]),
        (Code::ServerGone, &json!("starting"))
    );
    guest.notify("ui/notifications/initialized").await;
    let answer = guest.call_tool("echo", at("x")).await;
    assert_eq!(answer["result"]["isError"], json!(false));
    let twice = guest.request("ui/initialize", json!({})).await;
    assert_eq!(twice["error"]["code"], json!(-32600));
    assert_eq!(view.model_context(), None);
}

#[tokio::test]
async fn page_cannot_call_tools_of_other_apps() {
    let (stage, worker) = agent().await;
    let script = offering(vec![tool("look", true)], echo);
    let (_app, _other) = offered(&worker, "other", script).await;
    let (_view, mut guest) = initialized(&worker, quick("files"), Host::yes(), Value::Null).await;
    for name in ["app_other__look", "no_such", "call_app_tool", "", "look"] {
        let answer = guest.call_tool(name, at("x")).await;
        assert_eq!(answer["error"]["code"], json!(-32602), "{name}");
        assert_eq!(answer["error"]["data"]["code"], "UNKNOWN_TOOL", "{name}");
    }
    assert_eq!(
        guest.call_tool("peek", at("x")).await["result"]["isError"],
        json!(false)
    );
    let refused = stage.texts("denied", "/event/origin").await;
    assert_eq!(refused, vec![Some("view".to_owned()); 5]);
    assert!(stage.texts("remote_call", "/event/tool").await.is_empty());
}

#[tokio::test]
async fn unknown_page_methods_are_rejected() {
    let (_stage, worker) = agent().await;
    let (_view, mut guest) = initialized(&worker, quick("files"), Host::yes(), Value::Null).await;
    for method in [
        "sampling/createMessage",
        "tools/list",
        "ui/eval",
        "ui/notifications/tool-input",
        "",
    ] {
        let answer = guest.request(method, json!({})).await;
        assert_eq!(answer["error"]["code"], json!(-32601), "{method}");
    }
}

#[tokio::test]
async fn tools_beyond_fifty_are_withheld() {
    let (_stage, worker) = agent().await;
    let tools = (0..51).map(|n| tool(&format!("t{n:02}"), true)).collect();
    let (view, _guest) = offered(&worker, "files", offering(tools, echo)).await;
    assert_eq!(names(&worker).len(), 50);
    assert!(worker.call("app_files__t49", json!({})).await.is_ok());
    let more = worker.call("app_files__t50", json!({})).await.unwrap_err();
    assert_eq!(more.code(), Code::UnknownTool);
    let seen = view.tools();
    assert_eq!(seen[50].offered, Err(WithheldReason::TooMany));
}

#[tokio::test]
async fn endless_tool_list_is_cut() {
    let (_stage, worker) = agent().await;
    let mut page = 0;
    let script = move |method: &str, _: &Value| {
        page += 1;
        let tools = [tool(&format!("t{page}"), true)];
        (method == "tools/list").then(|| json!({"result": {"tools": tools, "nextCursor": "more"}}))
    };
    let (_view, _guest) = offered(&worker, "files", script).await;
    assert_eq!(names(&worker).len(), 50);
}

#[tokio::test]
async fn deceptive_colliding_and_invalid_tools_are_withheld() {
    let (_stage, worker) = agent().await;
    let long = "x".repeat(80);
    let names_there = ["ok", "a.b", "a/b", "a\u{202e}b", "a b", "", &long];
    let mut tools: Vec<_> = names_there.iter().map(|name| tool(name, true)).collect();
    tools.push(json!({"name": 7}));
    tools.push(json!({"name": "odd", "inputSchema": "none"}));
    tools.push(
        json!({"name": "schema", "inputSchema": {"type": "object"}, "outputSchema": {"type": 7}}),
    );
    let (_view, _guest) = offered(&worker, "files", offering(tools, echo)).await;
    assert_eq!(names(&worker), ["app_files__ok"]);
}

#[tokio::test]
async fn response_is_accepted_once_and_only_for_its_request() {
    let (_stage, worker) = agent().await;
    let host = Host::default();
    let (view, mut guest) = initialized(&worker, quick("files"), host.clone(), json!({})).await;
    let list = guest.next().await.unwrap();
    assert_eq!(list["method"], "tools/list");
    let answer = |id: &Value, name: &str| json!({"jsonrpc": "2.0", "id": id, "result": {"tools": [tool(name, true)]}});
    for id in [json!(999), json!(0), json!(-1), json!("1"), json!(null)] {
        guest.send(answer(&id, "forged")).await;
    }
    guest.send(answer(&list["id"], "first")).await;
    guest.send(answer(&list["id"], "second")).await;
    listed(&view, &host).await;
    assert_eq!(guest.request("ping", json!({})).await["result"], json!({}));
    assert_eq!(names(&worker), ["app_files__first"]);
}

#[tokio::test]
async fn duplicate_request_id_is_rejected_and_the_first_continues() {
    let (stage, worker) = agent().await;
    let (_view, mut guest) =
        initialized(&worker, quick("files"), Host::default(), Value::Null).await;
    let call = |name: &str| {
        let params = json!({"name": name, "arguments": at("x")});
        json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params})
    };
    guest.send(call("hangs")).await;
    guest.send(call("echo")).await;
    assert_eq!(guest.next().await.unwrap()["error"]["code"], json!(-32600));
    stage.latch.open();
    let answer = guest.next().await.unwrap();
    assert_eq!(
        (&answer["id"], &answer["result"]["isError"]),
        (&json!(7), &json!(false))
    );
}

#[tokio::test]
async fn requests_beyond_the_limit_are_rejected() {
    let (stage, worker) = agent().await;
    let (_view, mut guest) =
        initialized(&worker, quick("files"), Host::default(), Value::Null).await;
    let params = json!({"name": "hangs", "arguments": at("x")});
    for id in 0..40 {
        guest
            .send(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
            .await;
    }
    for _ in 32..40 {
        assert_eq!(guest.next().await.unwrap()["error"]["code"], json!(-32000));
    }
    stage.latch.open();
    for _ in 0..32 {
        assert_eq!(
            guest.next().await.unwrap()["result"]["isError"],
            json!(false)
        );
    }
}

#[tokio::test]
async fn page_requests_to_the_host_are_rate_limited() {
    let (_stage, worker) = agent().await;
    let host = Host::default();
    let (_view, mut guest) = initialized(&worker, quick("files"), host.clone(), Value::Null).await;
    let requests = [
        ("ui/open-link", json!({"url": "https://example.org"})),
        ("ui/message", json!({"content": []})),
        ("ui/download-file", json!({"contents": []})),
        ("ui/request-display-mode", json!({"mode": "inline"})),
        ("dev.bailiwick/request-pin", json!({})),
    ];
    let mut refused = Vec::new();
    for (method, params) in requests.iter().cycle().take(1000) {
        let answer = guest.request(method, params.clone()).await;
        refused.extend(answer.get("error").cloned());
    }
    let asked = host.requests.lock().unwrap().len();
    assert!((8..100).contains(&asked), "people were asked {asked} times");
    assert_eq!(refused.len() + asked, 1000);
    for error in &refused {
        let (code, message) = (&error["code"], &error["message"]);
        let expected = (&json!(-32000), &json!("people are asked too often; wait"));
        assert_eq!((code, message), expected);
        let wait = error["data"]["retry_after_ms"].as_u64().unwrap();
        assert!((1..=2000).contains(&wait), "{wait}");
    }
    // Pages without requests are not affected, nor are requests of other pages.
    let called = guest.call_tool("echo", at("x")).await;
    assert_eq!(called["result"]["isError"], json!(false));
    let (_view, mut other) = opened(&worker, quick("other"), host.clone()).await;
    other.initialize(Value::Null).await;
    let (method, params) = &requests[0];
    let answer = other.request(method, params.clone()).await;
    assert_eq!(answer["result"], json!({"isError": true}));
}

#[tokio::test]
async fn list_changes_are_rate_limited() {
    let (_stage, worker) = agent().await;
    let spec = ViewSpec::new("files").limits(ViewLimits {
        pause: Duration::from_secs(3600),
        ..ViewLimits::default()
    });
    let host = Host::default();
    let (view, guest) =
        initialized(&worker, spec, host.clone(), json!({"listChanged": true})).await;
    let sender = guest.sender();
    let seen = guest.respond_with(offering(vec![tool("look", true)], echo));
    for _ in 0..5000 {
        assert!(list_changed(&sender).await);
    }
    listed(&view, &host).await;
    assert!(worker.call("app_files__look", json!({})).await.is_ok());
    view.close().await;
    let seen = seen.await.unwrap();
    let looks = seen
        .iter()
        .filter(|message| message["method"] == "tools/list");
    assert_eq!(looks.count(), 1);
}

#[tokio::test]
async fn undeclared_list_changes_are_ignored() {
    let (_stage, worker) = agent().await;
    let host = Host::default();
    let (view, guest) = initialized(&worker, quick("files"), host.clone(), json!({})).await;
    let sender = guest.sender();
    let seen = guest.respond_with(offering(vec![tool("look", true)], echo));
    listed(&view, &host).await;
    list_changed(&sender).await;
    assert!(worker.call("app_files__look", json!({})).await.is_ok());
    view.close().await;
    let looks = seen.await.unwrap();
    assert_eq!(
        looks
            .iter()
            .filter(|message| message["method"] == "tools/list")
            .count(),
        1
    );
}

#[tokio::test]
async fn notification_flood_is_limited_before_the_host() {
    let (_stage, worker) = agent().await;
    let host = Host::default();
    let (_view, mut guest) = initialized(&worker, quick("files"), host.clone(), Value::Null).await;
    for _ in 0..1000 {
        guest.notify("notifications/message").await;
    }
    assert_eq!(guest.request("ping", json!({})).await["result"], json!({}));
    let received = host.events.borrow().len();
    assert!((1..500).contains(&received), "{received} were received");
}

#[tokio::test]
async fn oversized_results_and_requests_are_rejected() {
    let (_stage, worker) = agent().await;
    let long = "x".repeat(11 << 20);
    let tools = vec![tool("long", true), tool("look", true)];
    let script = offering(tools, move |name, _| {
        let text = if name == "long" { &long } else { "short" };
        Some(json!({"result": text_result(text)}))
    });
    let (_view, _guest) = offered(&worker, "files", script).await;
    let failed = worker.call("app_files__long", json!({})).await.unwrap_err();
    assert_eq!(failed.code(), Code::ServerFailed);
    assert!(worker.call("app_files__look", json!({})).await.is_ok());

    let (_other, mut guest) = initialized(&worker, quick("other"), Host::yes(), Value::Null).await;
    let text = "x".repeat(11 << 20);
    let refused = guest.call_tool("echo", json!({ "path": text })).await;
    assert_eq!(refused["error"]["code"], json!(-32600));
}

#[tokio::test]
async fn hanging_tool_times_out_and_is_cancelled() {
    let (_stage, worker) = agent().await;
    let script = offering(
        vec![tool("hang", true), tool("look", true)],
        |name, arguments| (name == "look").then(|| echo(name, arguments)).flatten(),
    );
    let (view, guest) = offered(&worker, "files", script).await;
    let late = worker.call("app_files__hang", json!({})).await.unwrap_err();
    assert_eq!(late.code(), Code::Deadline);
    assert!(worker.call("app_files__look", json!({})).await.is_ok());
    view.close().await;
    let seen = guest.await.unwrap();
    assert!(
        seen.iter()
            .any(|message| message["method"] == "notifications/cancelled")
    );
}

#[tokio::test]
async fn page_that_does_not_read_is_closed() {
    let (_stage, worker) = agent().await;
    let (view, guest) = initialized(&worker, quick("files"), Host::default(), Value::Null).await;
    let sender = guest.sender();
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let mut sent = 0;
    while sender.send(ping.clone()).await {
        sent += 1;
        assert!(sent < 100_000, "the page is not closed");
    }
    assert_eq!(view.state(), ViewState::Closed);
}

#[tokio::test]
async fn invalid_messages_are_ignored() {
    let (_stage, worker) = agent().await;
    let (_view, mut guest) = opened(&worker, quick("files"), Host::default()).await;
    let deep = "[".repeat(100_000);
    for noise in [
        "",
        "{",
        "null",
        "[]",
        "\u{0}",
        deep.as_str(),
        r#"{"jsonrpc":"2.0"}"#,
    ] {
        assert!(guest.sender().send(noise).await);
    }
    assert_eq!(guest.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn invalid_results_are_rejected_and_text_is_escaped() {
    let (_stage, worker) = agent().await;
    let mut promised = tool("promised", true);
    promised["outputSchema"] =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let tools = ["blocks", "deep", "fails", "fault", "meta"].map(|name| tool(name, true));
    let script = offering(
        [tools.to_vec(), vec![promised]].concat(),
        |name, arguments| {
            let deep = (0..90).fold(json!({}), |inner, _| json!({"a": inner}));
            Some(match name {
                "blocks" => json!({"result": {"content": "x"}}),
                "deep" => json!({"result": {"content": [], "structuredContent": deep}}),
                "fails" => {
                    json!({"result": {"content": [{"type": "text", "text": "no\u{1b}"}], "isError": true}})
                }
                "fault" => json!({"error": {"code": 1, "message": "a\u{202e}b"}}),
                "meta" => {
                    json!({"result": {"content": [{"type": "text", "text": "a\u{202e}b"}], "_meta": {"granted_scopes": ["*"]}}})
                }
                _ => json!({"result": {"content": [], "structuredContent": arguments}}),
            })
        },
    );
    let (_view, _guest) = offered(&worker, "files", script).await;
    let code = async |name: &str, arguments: Value| {
        let called = worker.call(&format!("app_files__{name}"), arguments).await;
        called.err().map(|error| error.code())
    };
    assert_eq!(code("blocks", json!({})).await, Some(Code::ServerFault));
    assert_eq!(code("deep", json!({})).await, Some(Code::ServerFault));
    assert_eq!(code("fails", json!({})).await, Some(Code::ServerFailed));
    assert_eq!(code("fault", json!({})).await, Some(Code::ServerFailed));
    assert_eq!(
        code("promised", json!({"n": "1"})).await,
        Some(Code::ServerFault)
    );
    assert_eq!(code("promised", json!({"n": 1})).await, None);
    let meta = worker.call("app_files__meta", json!({})).await.unwrap();
    assert_eq!(meta.text(), "a\\u{202e}b");
    assert_eq!(meta.structured().unwrap(), Value::Null);
    let fault = worker
        .call("app_files__fault", json!({}))
        .await
        .unwrap_err();
    assert!(fault.message().ends_with("a\\u{202e}b"));
}

#[tokio::test]
async fn app_cannot_replace_another_tool() {
    let (stage, worker) = agent().await;
    let tools = vec![tool("echo", true), tool("post", true)];
    let script = offering(tools, |_, _| {
        Some(json!({"result": text_result("the app")}))
    });
    let (_view, _guest) = offered(&worker, "files", script).await;
    assert_eq!(worker.call("echo", at("x")).await.unwrap().text(), "/r/x");
    assert_eq!(
        worker
            .call("app_files__echo", at("x"))
            .await
            .unwrap()
            .text(),
        "the app"
    );
    wait::for_calls(&stage.runtime, &worker, 0).await;
}

#[tokio::test]
async fn list_change_during_suspension_is_fetched_after_resume() {
    let (_stage, worker) = agent().await;
    let host = Host::default();
    let (view, sender) = listing(&worker, &host, |turn| {
        let name = if turn == 1 { "first" } else { "second" };
        json!({"result": {"tools": [tool(name, true)]}})
    })
    .await;
    listed(&view, &host).await;
    view.suspend().await.unwrap();
    list_changed(&sender).await;
    // The view handles later messages after it.
    view.suspend().await.unwrap();
    assert_eq!(names(&worker), ["app_files__first"]);
    view.resume().await;
    wait::for_tools(&worker, || names(&worker) == ["app_files__second"]).await;
}

#[tokio::test]
async fn failed_list_refresh_keeps_the_tools() {
    let (_stage, worker) = agent().await;
    let host = Host::default();
    let (turns, mut turn_of_page) = watch::channel(0);
    let (view, sender) = listing(&worker, &host, move |turn| {
        turns.send_replace(turn);
        match turn {
            1 => json!({"result": {"tools": [tool("first", true)]}}),
            2 => json!({"error": {"code": 1, "message": "no"}}),
            _ => json!({"result": {"tools": [tool("third", true)]}}),
        }
    })
    .await;
    listed(&view, &host).await;
    list_changed(&sender).await;
    turn_of_page.wait_for(|turn| *turn == 2).await.unwrap();
    worker.call("app_files__first", json!({})).await.unwrap();
    list_changed(&sender).await;
    wait::for_tools(&worker, || names(&worker) == ["app_files__third"]).await;
    view.close().await;
    let events = host.events.borrow();
    let changes = events
        .iter()
        .filter(|event| **event == ViewEvent::ToolsChanged);
    assert_eq!(changes.count(), 2, "the failed refresh changed the tools");
}

#[tokio::test]
async fn oversized_tool_list_is_rejected() {
    let (_stage, worker) = agent().await;
    let many = |count: usize| (0..count).map(|n| tool(&format!("t{n}"), true)).collect();
    let (view, _guest) = offered(&worker, "files", offering(many(200), echo)).await;
    assert_eq!((view.tools().len(), names(&worker).len()), (200, 50));
    view.close().await;
    let host = Host::default();
    let (view, sender) = listing(&worker, &host, move |turn| {
        let tools: Vec<_> = if turn == 1 { many(201) } else { many(1) };
        json!({"result": {"tools": tools}})
    })
    .await;
    assert!(view.reached(ViewState::Mounted).await);
    list_changed(&sender).await;
    listed(&view, &host).await;
    assert_eq!(view.tools().len(), 1);
}

#[tokio::test]
async fn closed_channel_ends_the_view() {
    let (_stage, worker) = agent().await;
    let (view, guest) = initialized(&worker, quick("files"), Host::default(), Value::Null).await;
    assert!(view.reached(ViewState::Mounted).await);
    let sender = guest.sender();
    drop(guest);
    let closed = tokio::time::timeout(Duration::from_secs(20), view.reached(ViewState::Closed));
    assert!(closed.await.unwrap());
    assert!(!sender.send("{}").await);
}

#[tokio::test]
async fn call_waiting_for_approval_ends_with_the_page() {
    let stage = apps(|builder| builder.approver(Deferred)).await;
    let worker = worker(&stage).await;
    let post = json!({"name": "post", "arguments": at("x")});
    let post = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": post});
    for closes in [true, false] {
        let (view, mut guest) =
            initialized(&worker, quick("files"), Host::default(), Value::Null).await;
        guest.send(post.clone()).await;
        let question = stage.question_of(1).await;
        if closes {
            view.close().await;
            // A question ends once its callers are gone.
            wait::for_questions(&stage.grants, |open| open.is_empty().then_some(())).await;
            wait::for_calls(&stage.runtime, &worker, 0).await;
        }
        let answered = stage.grants.answer(question, Answer::ONCE).await;
        assert_eq!(answered.is_err(), closes);
        if !closes {
            let done = guest.next().await.unwrap();
            assert_eq!(done["result"]["isError"], json!(false), "{done}");
        }
        let posted = stage.board.posted();
        assert_eq!(posted.is_empty(), closes, "{posted:?}");
    }
}

#[tokio::test]
async fn grant_for_an_absent_app_is_rejected() {
    let (stage, worker) = agent().await;
    let grant = async |pattern: &str| {
        let grant = NewGrant {
            pattern: pattern.parse().unwrap(),
            holder: GrantHolder::Worker(worker.id()),
            lifetime: Lifetime::Session,
            descendants: false,
        };
        stage.grants.grant(grant).await
    };
    for pattern in ["write:mcp:app_files", "write:mcp:app_files:push"] {
        let refused = grant(pattern).await.unwrap_err();
        assert!(matches!(refused, AuthorityError::NotThere(name) if name == "app_files"));
    }
    assert!(grant("write:file:/r").await.is_ok());
}

#[tokio::test]
async fn view_of_an_unattached_server_is_rejected() {
    let (_stage, worker) = agent().await;
    let others = Upstreams::builder().start().await.unwrap();
    let spec = quick("files").of_server(&others, "disk");
    let refused = View::open(&worker, spec, DenyView).await;
    assert!(matches!(refused, Err(ViewError::Server(name)) if name == "disk"));
    assert!(View::open(&worker, quick("files"), DenyView).await.is_ok());
}

#[tokio::test]
async fn closing_page_stays_suspended() {
    let (_stage, worker) = agent().await;
    let (view, mut guest) =
        initialized(&worker, quick("files"), Host::default(), Value::Null).await;
    assert!(view.reached(ViewState::Mounted).await);
    view.suspend().await.unwrap();
    let closing = view.clone();
    let closing = tokio::spawn(async move { closing.close().await });
    assert_eq!(
        guest.next().await.unwrap()["method"],
        "ui/resource-teardown"
    );
    let answer = guest.call_tool("echo", at("x")).await;
    assert_eq!(answer["error"]["code"], json!(-32000), "{answer}");
    closing.await.unwrap();
}

#[tokio::test]
async fn call_through_two_tools_is_explained_as_the_app_tool() {
    let (_stage, worker) = agent().await;
    let spec = quick("files").behind_two_tools();
    let host = Host::default();
    let (view, guest) = initialized(&worker, spec, host.clone(), json!({})).await;
    let _guest = guest.respond_with(offering(vec![tool("push", false)], echo));
    listed(&view, &host).await;
    let by_two = Call::new("call_app_tool", json!({"name": "app_files__push"}));
    let by_two = worker.explain(&by_two).unwrap();
    let own = Call::new("app_files__push", json!({}));
    let own = worker.explain(&own).unwrap();
    assert_eq!((by_two.len(), &by_two[0].need), (1, &own[0].need));
    let none = worker.explain(&Call::new("call_app_tool", json!({})));
    assert_eq!(none.unwrap_err().code(), Code::InvalidArguments);
}

#[tokio::test]
async fn oversized_message_is_not_sent() {
    let (_stage, worker) = agent().await;
    let spec = ViewSpec::new("files").limits(ViewLimits {
        message: 1024,
        ..ViewLimits::default()
    });
    let (_view, mut guest) = initialized(&worker, spec, Host::default(), Value::Null).await;
    assert!(!guest.sender().send("x".repeat(2049)).await);
    assert!(guest.sender().send("x".repeat(2048)).await);
    assert_eq!(guest.request("ping", json!({})).await["result"], json!({}));
}
