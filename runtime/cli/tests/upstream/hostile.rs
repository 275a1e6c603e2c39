//! Tests with hostile servers.

use super::hostile_server::{alone, hostile};
use bailiwick::call::Progress;
use bailiwick::permission::{GrantHolder, Lifetime, NewGrant};
use bailiwick::{Call, CallMeta, Code, Policy, Verb, Worker};
use bailiwick_mcp::upstream::{SchemaFault, ServerState, WithheldReason};
use bailiwick_test_support::upstream::{act, allow_once, code, start, test_runtime, text};
use bailiwick_test_support::wait;
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn contradicting_hints_do_not_lower_requirements() {
    let (stage, _) = alone("plain").await;
    let verb = |tool: &str| {
        let tools = stage.upstreams.tools("h");
        let tool = tools.iter().find(|it| it.tool == tool).unwrap();
        tool.offered.clone().unwrap().1
    };
    assert_eq!(verb("note"), Verb::Read);
    assert_eq!(verb("edit"), Verb::Write);
    assert_eq!(verb("lies"), Verb::Write);
}

#[tokio::test]
async fn colliding_and_long_tool_names_are_rejected() {
    let (stage, worker) = alone("doubles").await;
    let tools = stage.upstreams.tools("h");
    let why = |tool: &str| {
        tools
            .iter()
            .find(|it| it.tool == tool)
            .unwrap()
            .offered
            .clone()
    };
    assert_eq!(why("a.b"), Err(WithheldReason::Collision));
    assert_eq!(why("a/b"), Err(WithheldReason::Collision));
    assert_eq!(why(&"x".repeat(70)), Err(WithheldReason::Name));
    assert_eq!(why("odd\\u{202e}"), Err(WithheldReason::Name));
    assert!(why("note").is_ok());
    assert_eq!(
        code(worker.call("h__a_b", json!({})).await),
        Code::UnknownTool
    );
}

#[tokio::test]
async fn result_that_violates_its_schema_is_rejected() {
    let (_stage, worker) = alone("plain").await;
    let good = worker.call("h__counted", json!({"n": 7})).await.unwrap();
    assert_eq!(good.structured().unwrap(), json!({"n": 7}));
    let bad = worker.call("h__counted", json!({"n": "7"})).await;
    assert_eq!(code(bad), Code::ServerFault);
}

#[tokio::test]
async fn oversized_result_is_rejected_and_the_connection_stays_open() {
    let (stage, worker) = alone("plain").await;
    assert_eq!(code(act(&worker, "h__edit", "long").await), Code::TooLarge);
    assert_eq!(stage.upstreams.state("h"), Some(ServerState::Ready));
    assert!(text(act(&worker, "h__edit", "").await).contains("edit"));
}

#[tokio::test]
async fn hundred_megabyte_message_closes_the_connection_and_restarts_the_server() {
    let (stage, worker) = alone("plain").await;
    let answered = act(&worker, "h__edit", "large").await;
    assert_eq!(code(answered), Code::ServerGone);
    assert!(stage.upstreams.reached("h", ServerState::Ready).await);
    assert!(text(act(&worker, "h__edit", "").await).contains("edit"));
}

#[tokio::test]
async fn too_many_json_values_close_the_connection() {
    let (stage, worker) = alone("plain").await;
    let values = |count: usize| worker.call("h__note", json!({"do": "values", "count": count}));
    let fits = values(40_000).await.unwrap().structured().unwrap();
    assert_eq!(fits["values"].as_array().unwrap().len(), 40_000);
    assert_eq!(code(values(60_000).await), Code::ServerGone);
    assert!(stage.upstreams.reached("h", ServerState::Ready).await);
    assert!(values(1).await.is_ok());
}

#[tokio::test]
async fn invalid_messages_are_ignored() {
    let (_stage, worker) = alone("plain").await;
    assert_eq!(
        text(act(&worker, "h__edit", "garbage").await),
        "after garbage"
    );
}

#[tokio::test]
async fn notification_flood_only_delays_the_result() {
    let (stage, worker) = alone("plain").await;
    assert_eq!(
        text(act(&worker, "h__edit", "flood").await),
        "after the flood"
    );
    assert!(text(act(&worker, "h__edit", "").await).contains("edit"));
    assert_eq!(stage.upstreams.state("h"), Some(ServerState::Ready));
}

#[tokio::test]
async fn server_that_floods_requests_is_stopped() {
    let (stage, worker) = alone("plain").await;
    let error = act(&worker, "h__edit", "storm").await.unwrap_err();
    assert_eq!(error.code(), Code::ServerGone);
    let reasons = [
        "the server sent too many requests",
        "the server does not read its input",
    ];
    let message = error.message();
    assert!(reasons.iter().any(|why| message.contains(why)), "{message}");
    assert!(stage.upstreams.reached("h", ServerState::Ready).await);
    assert_eq!(
        text(act(&worker, "h__edit", "polite").await),
        "all answered"
    );
}

#[tokio::test]
async fn tool_count_is_limited_and_endless_lists_are_rejected() {
    let (stage, worker) = alone("many").await;
    let tools = stage.upstreams.tools("h");
    assert_eq!(tools.len(), 206);
    let many =
        |tool: &bailiwick_mcp::upstream::ServerTool| tool.offered == Err(WithheldReason::TooMany);
    assert_eq!(tools.iter().filter(|tool| many(tool)).count(), 206 - 128);
    assert_eq!(worker.tools().len(), 128);
    for mode in ["more", "endless", "large"] {
        let upstreams = start([hostile("h", mode)]).await;
        assert_eq!(upstreams.state("h"), Some(ServerState::Waiting), "{mode}");
    }
}

#[tokio::test]
async fn write_without_a_known_failure_may_have_happened() {
    let (_stage, worker) = alone("plain").await;
    let began = async |tool: &str, arguments: serde_json::Value| {
        let error = worker.call(tool, arguments).await.unwrap_err();
        (error.code(), error.details().get("begun").cloned())
    };
    let yes = Some(json!(true));
    let misfit = began("h__counted", json!({"n": "7"})).await;
    assert_eq!(misfit, (Code::ServerFault, yes.clone()));
    let long = began("h__edit", json!({"do": "long"})).await;
    assert_eq!(long, (Code::TooLarge, yes));
    // A read has no effect, and the last failure is reported by the server itself.
    let read = began("h__note", json!({"do": "long"})).await;
    assert_eq!(read, (Code::TooLarge, None));
    let failed = began("h__edit", json!({"do": "fail"})).await;
    assert_eq!(failed, (Code::ServerFailed, None));
}

#[tokio::test]
async fn hanging_call_times_out_and_is_cancelled() {
    let seen = tempfile::NamedTempFile::new().unwrap();
    let spec = hostile("h", "witness").args([seen.path().to_str().unwrap()]);
    let stage = test_runtime(start([spec]).await, |builder| {
        builder.approver(allow_once().0)
    })
    .await;
    let worker = stage.worker(Policy::new()).await;
    let meta = CallMeta {
        deadline: Some(Duration::from_millis(300)),
        ..CallMeta::default()
    };
    let call = Call::new("h__edit", json!({"do": "hang"})).meta(meta);
    let late = worker.submit(call).await.unwrap_err();
    assert_eq!(late.code(), Code::Deadline);
    assert_eq!(late.details()["begun"], true);
    // An answer from the server means that it read everything before.
    assert!(text(act(&worker, "h__edit", "").await).contains("edit"));
    assert_eq!(std::fs::read_to_string(seen.path()).unwrap(), "cancelled\n");
}

#[tokio::test]
async fn dropping_and_revoking_cancel_a_call() {
    let (stage, worker) = alone("plain").await;
    let (one, two) = (worker.clone(), worker.clone());
    let hanging = tokio::spawn(async move { act(&one, "h__edit", "hang").await });
    wait::for_calls(&stage.runtime, &worker, 1).await;
    hanging.abort();
    assert!(hanging.await.unwrap_err().is_cancelled());
    assert!(text(act(&worker, "h__edit", "").await).contains("edit"));
    let hanging = tokio::spawn(async move { act(&two, "h__edit", "hang").await });
    wait::for_calls(&stage.runtime, &worker, 1).await;
    worker.revoke().await;
    assert_eq!(code(hanging.await.unwrap()), Code::Cancelled);
    assert_eq!(code(act(&worker, "h__edit", "").await), Code::Cancelled);
}

#[tokio::test]
async fn crash_during_a_call_fails_it_and_restarts_the_server() {
    let (stage, worker) = alone("plain").await;
    let error = act(&worker, "h__edit", "die").await.unwrap_err();
    assert_eq!(error.code(), Code::ServerGone);
    assert_eq!(error.details()["begun"], true);
    assert!(stage.upstreams.reached("h", ServerState::Ready).await);
    assert!(text(act(&worker, "h__edit", "").await).contains("edit"));
}

#[tokio::test]
async fn ui_messages_are_rejected_and_result_metadata_is_dropped() {
    let (_stage, worker) = alone("plain").await;
    let outcome = act(&worker, "h__edit", "inject").await.unwrap();
    let seen: serde_json::Value = serde_json::from_str(&outcome.text()).unwrap();
    assert_eq!(seen["error"]["code"], -32601);
    assert_eq!(outcome.structured().unwrap(), serde_json::Value::Null);
    assert_eq!(outcome.artifacts, []);
}

#[tokio::test]
async fn tool_errors_are_returned_as_text() {
    let (_stage, worker) = alone("plain").await;
    let error = act(&worker, "h__edit", "fail").await.unwrap_err();
    assert_eq!(error.code(), Code::ServerFailed);
    assert!(error.message().ends_with("no\\u{1b} such day"));
}

#[tokio::test]
async fn progress_is_forwarded() {
    let (_stage, worker) = alone("plain").await;
    let progress = Progress::default();
    let meta = CallMeta {
        progress: Some(progress.clone()),
        ..CallMeta::default()
    };
    let call = Call::new("h__edit", json!({"do": "progress"})).meta(meta);
    assert_eq!(text(worker.submit(call).await), "done");
    assert!(progress.done() >= 3, "{}", progress.done());
}

#[tokio::test]
async fn server_has_a_clean_environment_and_models_control_only_arguments() {
    let (_stage, worker) = alone("plain").await;
    let sneaky = json!({"x": 1, "_meta": {"granted_scopes": ["write"]}});
    let seen = text(worker.call("h__edit", sneaky.clone()).await);
    let seen: serde_json::Value = serde_json::from_str(&seen).unwrap();
    assert_eq!(
        seen,
        json!({"name": "edit", "arguments": sneaky, "meta": {}})
    );
    let spec = hostile("h", "plain").env("OURS", "1");
    let stage = test_runtime(start([spec]).await, |builder| {
        builder.approver(allow_once().0)
    })
    .await;
    let worker = stage.worker(Policy::new()).await;
    let names = text(act(&worker, "h__edit", "env").await);
    let names: Vec<String> = serde_json::from_str(&names).unwrap();
    assert!(names.contains(&"OURS".to_owned()) && names.contains(&"PATH".to_owned()));
    // What a shell between here and there sets is its own.
    let shell = |name: &str| {
        matches!(name, "PWD" | "OLDPWD" | "SHLVL" | "_" | "LC_CTYPE") || name.contains("PYENV")
    };
    let known =
        |name: &&String| ["HOME", "LANG", "OURS", "PATH"].contains(&name.as_str()) || shell(name);
    assert_eq!(names.iter().find(|name| !known(name)), None);
    assert!(
        std::env::vars().any(|(name, _)| !known(&&name)),
        "there is nothing to leave out"
    );
}

#[tokio::test]
async fn preview_must_be_advertised_and_confirmed() {
    let (stage, worker) = alone("plain").await;
    let refused = worker.preview("h__edit", json!({})).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArguments);
    let refused = worker.preview("h__note", json!({})).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArguments);
    let unsaid = worker.preview("h__pretends", json!({})).await.unwrap_err();
    assert_eq!(
        (unsaid.code(), &unsaid.details()["begun"]),
        (Code::ServerFault, &json!(true))
    );

    let preview = worker.preview("h__shown", json!({})).await.unwrap();
    let apply = |token, arguments| {
        let meta = CallMeta {
            preview_token: Some(token),
            ..CallMeta::default()
        };
        worker.submit(Call::new("h__shown", arguments).meta(meta))
    };
    assert_eq!(
        text(apply(preview.token, json!({})).await),
        "did \"theirs-1\""
    );
    let other = apply(preview.token, json!({"other": 1})).await;
    assert_eq!(code(other), Code::StalePreview);

    let blind = stage.worker(Policy::new().require_preview(true)).await;
    assert_eq!(
        code(blind.call("h__shown", json!({})).await),
        Code::StalePreview
    );
    assert!(blind.call("h__note", json!({})).await.is_ok());
}

#[tokio::test]
async fn tools_without_previews_are_withheld_if_previews_are_required() {
    let (stage, worker) = alone("plain").await;
    let offers =
        |worker: &Worker, name: &str| worker.tools().iter().any(|tool| tool.spec.name == name);
    assert!(offers(&worker, "h__edit"));
    assert!(worker.call("h__edit", json!({})).await.is_ok());
    let blind = stage.worker(Policy::new().require_preview(true)).await;
    assert!(!offers(&blind, "h__edit"));
    assert!(offers(&blind, "h__shown") && offers(&blind, "h__note"));
    for arguments in [json!({}), json!({"preview": true})] {
        let error = blind.call("h__edit", arguments).await.unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied);
        assert!(error.message().contains("has no previews"), "{error}");
    }
    let error = blind.preview("h__edit", json!({})).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
    let shown = blind
        .call("h__shown", json!({"preview": true}))
        .await
        .unwrap();
    assert!(shown.text().contains("preview_token"), "{}", shown.text());
    // A call's own policy may require it, too.
    let own = CallMeta {
        policy: Some(json!({"require_preview": true})),
        ..CallMeta::default()
    };
    let error = worker
        .submit(Call::new("h__edit", json!({})).meta(own))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn changed_tool_is_withheld_until_its_fingerprint_is_approved() {
    let (stage, worker) = alone("changes").await;
    let offered = |name: &str| worker.tools().iter().any(|tool| tool.spec.name == name);
    let form = |stage: &bailiwick_test_support::upstream::TestRuntime| {
        let tools = stage.upstreams.tools("h");
        tools.into_iter().find(|tool| tool.tool == "note").unwrap()
    };
    let first = form(&stage);
    assert!(offered("h__note"));
    assert_eq!(text(act(&worker, "h__edit", "relist").await), "listed anew");
    wait::for_tools(&worker, || form(&stage).fingerprint != first.fingerprint).await;
    let second = form(&stage);
    assert_eq!(second.offered, Err(WithheldReason::Changed));
    assert!(!offered("h__note") && offered("h__edit"));
    assert_eq!(
        code(worker.call("h__note", json!({})).await),
        Code::UnknownTool
    );
    let approve = async |form| stage.upstreams.approve("h", "note", form).await.unwrap();
    assert!(!approve(first.fingerprint).await);
    assert!(!offered("h__note"));
    assert!(approve(second.fingerprint).await);
    assert!(offered("h__note"));
    assert!(worker.call("h__note", json!({})).await.is_ok());
}

#[tokio::test]
async fn ended_call_of_a_withheld_tool_keeps_its_sentence() {
    let (_stage, worker) = alone("changes").await;
    let sentence = || {
        let mut calls = worker.activity().into_iter();
        let call = calls.find(|call| call.tool.as_str() == "h__note");
        call.unwrap().intent
    };
    act(&worker, "h__note", "plain").await.unwrap();
    let before = sentence();
    act(&worker, "h__edit", "relist").await.unwrap();
    let offered = || {
        worker
            .tools()
            .iter()
            .any(|tool| tool.spec.name == "h__note")
    };
    wait::for_tools(&worker, || !offered()).await;
    assert_eq!(sentence(), before);
}

#[tokio::test]
async fn approval_of_an_earlier_run_applies() {
    let print = |upstreams: &bailiwick_mcp::upstream::Upstreams, tool: &str| {
        let tools = upstreams.tools("h");
        tools.into_iter().find(|it| it.tool == tool).unwrap()
    };
    let before = start([hostile("h", "plain")]).await;
    let (note, edit) = (print(&before, "note"), print(&before, "edit"));
    let spec = |form| hostile("h", "plain").approved("note", form);
    let same = start([spec(note.fingerprint)]).await;
    assert!(print(&same, "note").offered.is_ok());
    let changed = start([spec(edit.fingerprint)]).await;
    assert_eq!(
        print(&changed, "note").offered,
        Err(WithheldReason::Changed)
    );
    assert!(print(&changed, "edit").offered.is_ok());
}

#[tokio::test]
async fn tool_with_a_costly_schema_is_withheld() {
    let (stage, worker) = alone("schemas").await;
    let why = |tool: &str| {
        let tools = stage.upstreams.tools("h");
        let tool = tools.into_iter().find(|it| it.tool == tool).unwrap();
        tool.offered.map(|_| ())
    };
    for (tool, fault) in [
        ("pattern", SchemaFault::Pattern),
        ("doubling", SchemaFault::Costly),
        ("endless", SchemaFault::Costly),
        ("remote", SchemaFault::Remote),
    ] {
        assert_eq!(why(tool), Err(WithheldReason::Schema(fault)), "{tool}");
        let name = format!("h__{tool}");
        assert_eq!(code(worker.call(&name, json!({})).await), Code::UnknownTool);
    }
    assert_eq!((why("counted"), why("tree")), (Ok(()), Ok(())));
    let good = worker.call("h__counted", json!({"n": 7})).await.unwrap();
    assert_eq!(good.structured().unwrap(), json!({"n": 7}));
}

#[tokio::test]
async fn result_that_is_costly_to_validate_is_rejected() {
    let (_stage, worker) = alone("schemas").await;
    let tree = async |levels: usize| worker.call("h__tree", json!({ "levels": levels })).await;
    assert!(tree(5).await.is_ok());
    assert_eq!(code(tree(50).await), Code::ServerFault);
}

#[tokio::test]
async fn tool_with_the_name_of_another_is_withheld() {
    let (stage, worker) = alone("renames").await;
    assert!(text(worker.call("h__a_b", json!({})).await).contains("a.b"));
    assert_eq!(text(act(&worker, "h__edit", "relist").await), "listed anew");
    let other = || {
        let tools = stage.upstreams.tools("h");
        tools.into_iter().find(|it| it.tool == "a/b")
    };
    wait::for_tools(&worker, || other().is_some()).await;
    assert_eq!(other().unwrap().offered, Err(WithheldReason::Changed));
    assert_eq!(
        code(worker.call("h__a_b", json!({})).await),
        Code::UnknownTool
    );
}

#[tokio::test]
async fn only_sent_calls_are_audited_as_remote_calls() {
    let (stage, worker) = alone("plain").await;
    let sent = async || {
        let steps = stage.steps().await;
        steps.iter().filter(|step| *step == "remote_call").count()
    };
    // A tool without previews, and one that only reads.
    for tool in ["h__edit", "h__note"] {
        let refused = worker.preview(tool, json!({})).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArguments);
    }
    assert_eq!(sent().await, 0);
    stage.upstreams.shutdown().await;
    assert_eq!(code(act(&worker, "h__edit", "").await), Code::ServerGone);
    assert_eq!(sent().await, 0);
    let (stage, worker) = alone("plain").await;
    assert!(worker.preview("h__shown", json!({})).await.is_ok());
    assert!(stage.steps().await.contains(&"remote_call".to_owned()));
}

#[tokio::test]
async fn preview_without_a_token_is_rejected() {
    let (_stage, worker) = alone("plain").await;
    let preview = async |token: &str| worker.preview("h__shown", json!({ "token": token })).await;
    assert_eq!(preview("").await.unwrap_err().code(), Code::ServerFault);
    let long = "x".repeat(513);
    assert_eq!(preview(&long).await.unwrap_err().code(), Code::ServerFault);
    assert!(preview("a").await.is_ok());
}

#[tokio::test]
async fn previews_of_a_worker_do_not_evict_those_of_another() {
    let (stage, worker) = alone("plain").await;
    let busy = stage.worker(Policy::new()).await;
    let grant = NewGrant {
        pattern: "write:mcp:h".parse().unwrap(),
        holder: GrantHolder::Agent("main".into()),
        lifetime: Lifetime::Agent,
        descendants: false,
    };
    stage.grants.grant(grant).await.unwrap();
    let preview = worker.preview("h__shown", json!({})).await.unwrap();
    for n in 0..100 {
        let token = json!({"token": n.to_string()});
        busy.preview("h__shown", token).await.unwrap();
    }
    let tied = async |worker: &bailiwick::Worker, token| {
        let meta = CallMeta {
            preview_token: Some(token),
            ..CallMeta::default()
        };
        worker
            .submit(Call::new("h__shown", json!({})).meta(meta))
            .await
    };
    assert_eq!(text(tied(&worker, preview.token).await), "did \"theirs-1\"");
    assert_eq!(code(tied(&busy, preview.token).await), Code::StalePreview);
}
