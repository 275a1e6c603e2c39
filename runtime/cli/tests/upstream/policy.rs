//! Tests that policies, approvals, budgets and audits apply to servers.

use bailiwick::call::Asks;
use bailiwick::permission::{AuthorityError, GrantHolder, Lifetime, NewGrant};
use bailiwick::worker::{Budget, CallProgress};
use bailiwick::{
    Answer, Call, CallMeta, Code, Deferred, Policy, Scripted, Verb, Verdict, WorkerSpec,
};
use bailiwick_test_support::upstream::{act, allow_once, code, start, test_runtime, text};
use bailiwick_test_support::wait;
use serde_json::json;

use super::hostile_server::hostile;

fn names(worker: &bailiwick::Worker) -> Vec<String> {
    worker
        .tools()
        .iter()
        .map(|tool| tool.spec.name.to_string())
        .collect()
}

#[tokio::test]
async fn server_tools_need_configuration() {
    let upstreams = start([hostile("h", "plain")]).await;
    let (runtime, _grants) = bailiwick::Runtime::builder()
        .servers(&upstreams)
        .build()
        .await
        .unwrap();
    let worker = runtime
        .spawn(WorkerSpec::new("w").policy(Policy::new()))
        .await
        .unwrap();
    assert_eq!(names(&worker), Vec::<String>::new());
    assert_eq!(
        code(worker.call("h__note", json!({})).await),
        Code::PermissionDenied
    );
}

#[tokio::test]
async fn child_can_get_a_single_server_tool() {
    let upstreams = start([hostile("a", "plain"), hostile("b", "plain")]).await;
    let stage = test_runtime(upstreams, |builder| builder.approver(allow_once().0)).await;
    let parent = stage.worker(Policy::new()).await;
    assert_eq!(names(&parent).len(), 12);
    let one = Policy::new().allow("write:mcp:a:edit");
    let child = parent
        .spawn(WorkerSpec::new("child").policy(one))
        .await
        .unwrap();
    assert_eq!(names(&child), ["a__edit"]);
    assert!(text(child.call("a__edit", json!({})).await).contains("edit"));
    for tool in ["a__shown", "a__note", "b__edit"] {
        assert_eq!(
            code(child.call(tool, json!({})).await),
            Code::PermissionDenied,
            "{tool}"
        );
    }
    let wider = Policy::new().allow("write:mcp:a");
    assert!(
        child
            .spawn(WorkerSpec::new("grandchild").policy(wider))
            .await
            .is_err()
    );
    let by_name = Policy::new().tools(["b__note"]);
    let other = parent
        .spawn(WorkerSpec::new("other").policy(by_name))
        .await
        .unwrap();
    assert_eq!(names(&other), ["b__note"]);
    assert_eq!(
        code(other.call("a__edit", json!({})).await),
        Code::UnknownTool
    );
}

#[tokio::test]
async fn preview_support_follows_the_server() {
    let (stage, worker) = super::hostile_server::alone("plain").await;
    let previews = |name: &str| {
        worker
            .tools()
            .iter()
            .any(|it| it.spec.name == name && it.previews)
    };
    assert!(previews("h__shown") && !previews("h__edit") && !previews("h__note"));
    drop(stage);
}

#[tokio::test]
async fn read_permission_does_not_allow_writes() {
    let stage = test_runtime(start([hostile("h", "plain")]).await, |builder| {
        builder.approver(allow_once().0)
    })
    .await;
    let reader = stage.worker(Policy::new().read_only(true)).await;
    assert!(reader.call("h__note", json!({})).await.is_ok());
    assert_eq!(
        code(reader.call("h__edit", json!({})).await),
        Code::PermissionDenied
    );
    let reading = stage.worker(Policy::new().allow("read:mcp")).await;
    assert!(reading.call("h__note", json!({})).await.is_ok());
    assert_eq!(
        code(reading.call("h__edit", json!({})).await),
        Code::PermissionDenied
    );
}

#[tokio::test]
async fn questions_name_server_and_tool_and_steps_are_audited_once() {
    let (approver, asked) = allow_once();
    let stage = test_runtime(start([hostile("h", "plain")]).await, |builder| {
        builder.approver(approver)
    })
    .await;
    let worker = stage.worker(Policy::new()).await;
    assert!(worker.call("h__edit", json!({"path": "x"})).await.is_ok());
    let question = asked.lock().unwrap().pop().unwrap();
    assert_eq!(question.request.server.as_deref(), Some("h"));
    assert_eq!(
        question.request.intent,
        "Use edit of h, a program on this computer"
    );
    assert_eq!(question.request.arguments, json!({"path": "x"}));
    let label = stage.upstreams.label("h").unwrap().to_owned();
    let need = question.request.needs[0].to_string();
    assert!(
        need.starts_with(&format!("write:mcp:{label}:edit~")),
        "{need}"
    );
    let steps = stage.steps().await;
    assert_eq!(
        steps,
        [
            "spawned",
            "judged",
            "asked",
            "answered",
            "judged",
            "remote_call",
            "finished"
        ]
    );
    let lines = stage.lines().await;
    let sent = lines
        .iter()
        .find(|line| line.pointer("/event/step") == Some(&json!("remote_call")))
        .unwrap();
    assert_eq!(sent.pointer("/event/server"), Some(&json!("h")));
    assert_eq!(sent.pointer("/event/tool_there"), Some(&json!("edit")));
    assert_eq!(sent.pointer("/event/tool"), Some(&json!("h__edit")));
    assert_eq!(sent.pointer("/event/preview"), Some(&json!(false)));
    let hash = bailiwick::effect::ContentHash::of(br#"{"path":"x"}"#).to_string();
    assert_eq!(sent.pointer("/event/arguments_sha256"), Some(&json!(hash)));
}

#[tokio::test]
async fn denied_call_is_not_sent() {
    let stage = test_runtime(start([hostile("h", "plain")]).await, |builder| builder).await;
    let worker = stage.worker(Policy::new()).await;
    let error = worker.call("h__edit", json!({})).await.unwrap_err();
    assert_eq!(error.code(), Code::ScopeRequired);
    assert_eq!(error.requested_scopes().len(), 1);
    let denied = stage.worker(Policy::new().deny("write:mcp:h:edit")).await;
    assert_eq!(
        code(denied.call("h__edit", json!({})).await),
        Code::PermissionDenied
    );
    assert!(!stage.steps().await.contains(&"remote_call".to_owned()));
}

#[tokio::test]
async fn explain_does_not_send_the_call() {
    let stage = test_runtime(start([hostile("h", "plain")]).await, |builder| builder).await;
    let worker = stage.worker(Policy::new().ask("write:mcp:h")).await;
    let why = worker.explain(&Call::new("h__edit", json!({}))).unwrap();
    assert_eq!(why.len(), 1);
    assert_eq!(why[0].verdict, Verdict::Ask);
    assert!(!stage.steps().await.contains(&"remote_call".to_owned()));
}

#[tokio::test]
async fn pending_server_call_resumes_after_approval() {
    let stage = test_runtime(start([hostile("h", "plain")]).await, |builder| {
        builder.approver(bailiwick::Deferred)
    })
    .await;
    let worker = stage.worker(Policy::new()).await;
    let CallProgress::Pending(pending) =
        worker.begin(Call::new("h__edit", json!({}))).await.unwrap()
    else {
        panic!("it asks")
    };
    let question = pending.question().id;
    stage
        .grants
        .answer(question, bailiwick::Answer::ONCE)
        .await
        .unwrap();
    assert!(matches!(
        pending.resume().await.unwrap(),
        CallProgress::Ended(_)
    ));
}

#[tokio::test]
async fn budgets_and_call_limits_apply() {
    let stage = test_runtime(start([hostile("h", "plain")]).await, |builder| {
        let bounds = bailiwick::worker::Admission {
            calls: 1,
            ..bailiwick::worker::Admission::default()
        };
        builder.approver(allow_once().0).admission(bounds)
    })
    .await;
    let twice = Budget {
        calls: Some(2),
        ..Budget::default()
    };
    let worker = stage.worker(Policy::new().budget(twice)).await;
    let hanging = {
        let worker = worker.clone();
        tokio::spawn(async move { act(&worker, "h__edit", "hang").await })
    };
    wait::for_calls(&stage.runtime, &worker, 1).await;
    assert_eq!(code(act(&worker, "h__edit", "").await), Code::Busy);
    hanging.abort();
    assert!(hanging.await.unwrap_err().is_cancelled());
    assert!(text(act(&worker, "h__edit", "").await).contains("edit"));
    assert_eq!(code(act(&worker, "h__edit", "").await), Code::Budget);
}

fn grant(pattern: &str) -> NewGrant {
    NewGrant {
        pattern: pattern.parse().unwrap(),
        holder: GrantHolder::Agent("main".into()),
        lifetime: Lifetime::Agent,
        descendants: true,
    }
}

#[tokio::test]
async fn grant_does_not_apply_to_another_program_of_its_name() {
    for (same, expected) in [(true, Ok(())), (false, Err(Code::ScopeRequired))] {
        let before = start([hostile("h", "plain")]).await;
        let label = before.label("h").unwrap().to_owned();
        let mode = if same { "plain" } else { "doubles" };
        let stage = test_runtime(start([hostile("h", mode)]).await, |builder| builder).await;
        let worker = stage.worker(Policy::new()).await;
        let pattern = format!("write:mcp:{label}");
        stage.grants.grant(grant(&pattern)).await.unwrap();
        let answered = worker.call("h__edit", json!({})).await;
        assert_eq!(answered.map(drop).map_err(|error| error.code()), expected);
    }
}

#[tokio::test]
async fn grant_by_name_applies_to_the_current_server_only() {
    let upstreams = start([hostile("a", "plain"), hostile("b", "plain")]).await;
    let stage = test_runtime(upstreams, |builder| builder).await;
    let worker = stage.worker(Policy::new()).await;
    let granted = async |tool: &str| worker.call(tool, json!({})).await.is_ok();
    assert!(!granted("a__edit").await);
    stage.grants.grant(grant("write:mcp:a:edit")).await.unwrap();
    let held = stage.grants.grants().await.unwrap().remove(0);
    let label = stage.upstreams.label("a").unwrap();
    let pattern = held.pattern.to_string();
    assert!(
        pattern.starts_with(&format!("write:mcp:{label}:edit~")),
        "{pattern}"
    );
    assert!(granted("a__edit").await);
    assert!(!granted("a__shown").await);
    stage.grants.grant(grant("write:mcp:a")).await.unwrap();
    assert!(granted("a__shown").await);
    assert!(!granted("b__edit").await);
    assert!(!granted("a__note").await);
}

#[tokio::test]
async fn grant_for_an_unknown_name_is_rejected() {
    let stage = test_runtime(start([hostile("h", "schemas")]).await, |builder| builder).await;
    for (pattern, named) in [
        ("write:mcp:g", "g"),
        ("write:mcp:g:edit", "g"),
        ("write:mcp:h:endless", "h:endless"),
    ] {
        let refused = stage.grants.grant(grant(pattern)).await.unwrap_err();
        assert!(
            matches!(&refused, AuthorityError::NotThere(name) if name == named),
            "{refused}"
        );
    }
    assert_eq!(stage.grants.grants().await.unwrap(), []);
    for pattern in ["write:mcp:h:file", "write:mcp"] {
        stage.grants.grant(grant(pattern)).await.unwrap();
    }
}

#[tokio::test]
async fn answer_by_name_applies_to_the_asked_server() {
    let approver = Scripted::new().rule(|_| {
        Some(Answer::Allow {
            patterns: vec!["write:mcp:h".parse().unwrap()],
            lifetime: Lifetime::Session,
            descendants: false,
            left_out: Vec::new(),
        })
    });
    let upstreams = start([hostile("h", "plain")]).await;
    let stage = test_runtime(upstreams, |builder| builder.approver(approver)).await;
    let worker = stage.worker(Policy::new()).await;
    assert!(worker.call("h__edit", json!({})).await.is_ok());
    let held = stage.grants.grants().await.unwrap().remove(0);
    let label = stage.upstreams.label("h").unwrap();
    assert_eq!(held.pattern.to_string(), format!("write:mcp:{label}"));
}

#[tokio::test]
async fn scopes_requested_by_a_server_are_attributed_and_sent_once() {
    let (approver, asked) = allow_once();
    let stage = test_runtime(start([hostile("h", "plain")]).await, |builder| {
        builder.approver(approver)
    })
    .await;
    let worker = stage.worker(Policy::new()).await;
    let wants = json!({"do": "scopes", "scopes": ["write:file:/a/b"]});
    let seen = text(worker.call("h__edit", wants).await);
    assert_eq!(seen, "[\"write:file:/a/b\"]");
    let label = stage.upstreams.label("h").unwrap();
    let needs: Vec<_> = asked
        .lock()
        .unwrap()
        .iter()
        .map(|it| it.request.needs.clone())
        .collect();
    assert_eq!(
        needs[1][0].to_string(),
        format!("write:mcp:{label}:file:a:b")
    );
    assert_eq!(
        stage
            .steps()
            .await
            .iter()
            .filter(|step| *step == "remote_call")
            .count(),
        2
    );

    let again = json!({"do": "scopes", "scopes": ["write:file:/a/b"], "again": true});
    assert_eq!(
        code(worker.call("h__edit", again).await),
        Code::ServerFailed
    );
    let of_a_tool = json!({"do": "scopes", "scopes": ["write:edit:x"]});
    assert_eq!(
        code(worker.call("h__edit", of_a_tool).await),
        Code::ServerFailed
    );
    let denied = stage.worker(Policy::new().deny("write:mcp:h:file")).await;
    let wants = json!({"do": "scopes", "scopes": ["write:file:/a/b"]});
    assert_eq!(
        code(denied.call("h__edit", wants).await),
        Code::PermissionDenied
    );
}

#[tokio::test]
async fn configured_verb_overrides_tool_hints() {
    let spec = hostile("h", "plain").tool("note", Verb::Execute);
    let stage = test_runtime(start([spec]).await, |builder| {
        builder.approver(allow_once().0)
    })
    .await;
    let worker = stage.worker(Policy::new().allow("read:mcp")).await;
    assert_eq!(
        code(worker.call("h__note", json!({})).await),
        Code::PermissionDenied
    );
    let runs = stage
        .worker(Policy::new().allow("execute:mcp:h:note"))
        .await;
    assert!(runs.call("h__note", json!({})).await.is_ok());
}

#[tokio::test]
async fn call_may_be_denied_instead_of_asked() {
    let stage = test_runtime(start([hostile("h", "plain")]).await, |builder| {
        builder.approver(allow_once().0)
    })
    .await;
    let worker = stage.worker(Policy::new()).await;
    let call = |asks| {
        let meta = CallMeta {
            asks,
            ..CallMeta::default()
        };
        worker.submit(Call::new("h__edit", json!({})).meta(meta))
    };
    assert_eq!(code(call(Asks::Refuse).await), Code::ScopeRequired);
    assert!(call(Asks::Wait).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_approval_allows_one_of_64_equal_server_calls() {
    let upstreams = start([hostile("h", "plain")]).await;
    let stage = test_runtime(upstreams, |builder| builder.approver(Deferred)).await;
    let worker = stage.worker(Policy::new()).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let worker = worker.clone();
        calls.spawn(async move { worker.call("h__edit", json!({})).await });
    }
    let asked = |count| {
        wait::for_questions(&stage.grants, move |questions| match questions {
            [question] if question.waiting() == count => Some(question.id),
            _ => None,
        })
    };
    let sent = async || {
        let steps = stage.steps().await;
        steps.iter().filter(|step| *step == "remote_call").count()
    };
    let question = asked(64).await;
    stage.grants.answer(question, Answer::ONCE).await.unwrap();
    assert!(calls.join_next().await.unwrap().unwrap().is_ok());
    let question = asked(63).await;
    assert_eq!(sent().await, 1);
    let two = Answer::allow(Lifetime::Waiting(std::num::NonZeroU32::new(2).unwrap()));
    stage.grants.answer(question, two).await.unwrap();
    for _ in 0..2 {
        assert!(calls.join_next().await.unwrap().unwrap().is_ok());
    }
    asked(61).await;
    assert_eq!(sent().await, 3);
}
