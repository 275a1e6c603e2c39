//! Tests of the record of recent calls and ended questions.

use std::num::NonZeroU32;
use std::time::Duration;

use bailiwick::activity::{AllowedBy, KeepCalls, RecentCall};
use bailiwick::effect::{Cost, Entry, FileDiff, Hunk, HunkLine, Op};
use bailiwick::monitor::EventKind;
use bailiwick::permission::{AskLimits, DecidedBy, Decision, GrantHolder, Lifetime, NewGrant};
use bailiwick::tool::{Interrupt, Prepared, ReadPermit, WritePermit};
use bailiwick::worker::{CallProgress, CallState};
use bailiwick::{
    Answer, Call, CallError, Change, Code, Deferred, Plan, Policy, Reply, RuntimeBuilder, Scope,
    Scripted, ToolSet, ToolSpec, Verb, VirtualPath, WorkerSpec, WriteTool,
};
use serde_json::json;

use super::{Board, Latch, Stage, at, stage, stage_with};

fn keeping(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.approver(Deferred).keep_calls(KeepCalls::default())
}

fn asking() -> Policy {
    Policy::new().allow("read:file").ask("write:file")
}

/// The newest call.
fn newest(stage: &Stage) -> std::sync::Arc<RecentCall> {
    stage.runtime.recent_calls().swap_remove(0)
}

/// Begins a call of `post` that waits for an answer.
async fn pending(worker: &bailiwick::Worker, path: &str) -> bailiwick::PendingCall {
    match worker.begin(Call::new("post", at(path))).await.unwrap() {
        CallProgress::Pending(pending) => *pending,
        CallProgress::Ended(outcome) => panic!("nobody was asked: {outcome:?}"),
    }
}

#[tokio::test]
async fn nothing_is_kept_by_default() {
    let stage = stage(|builder| builder).await;
    stage.open().await.call("echo", at("a")).await.unwrap();
    assert!(stage.runtime.recent_calls().is_empty());
    assert!(stage.runtime.ended_questions().is_empty());
}

#[tokio::test]
async fn call_has_agent_sentence_needs_arguments_and_output() {
    let stage = stage(keeping).await;
    let spec = WorkerSpec::new("main").policy(asking()).session("nightly");
    let main = stage.runtime.spawn(spec).await.unwrap();
    let tests = WorkerSpec::new("tests").policy(Policy::inherit());
    let child = main.spawn(tests).await.unwrap();
    child.call("echo", at("a")).await.unwrap();
    child.revoke().await;
    let call = newest(&stage);
    assert_eq!((call.worker, &*call.agent), (child.id(), "main/tests"));
    assert_eq!((&*call.session, call.tool.as_str()), ("nightly", "echo"));
    assert_eq!(call.intent, "Echo: /r/a");
    assert_eq!(call.needs, ["read:file:/r/a".parse().unwrap()]);
    assert_eq!(call.state, CallState::Ended(None));
    assert_eq!(call.allowed_by, [AllowedBy::Policy]);
    assert!(!call.mutates && !call.preview && !call.applied);
    assert!(call.ended_at().unwrap() >= call.at);
    let content = call.content.as_deref().unwrap();
    assert_eq!(content.arguments, r#"{"path":"a"}"#);
    assert_eq!(content.output.as_deref(), Some("/r/a"));
    let same = stage.runtime.recent_call(call.call).unwrap();
    assert_eq!(same.call, call.call);
}

#[tokio::test]
async fn changes_of_effects_and_previews_are_kept() {
    let stage = stage(keeping).await;
    let worker = stage.open().await;
    worker.call("post", at("a")).await.unwrap();
    worker.preview("post", at("b")).await.unwrap();
    let calls = stage.runtime.recent_calls();
    let shown: Vec<_> = calls
        .iter()
        .map(|call| {
            let changes = &call.content.as_deref().unwrap().changes;
            (
                call.preview,
                call.applied,
                call.files,
                changes[0].path.as_str(),
            )
        })
        .collect();
    assert_eq!(shown, [(true, false, 1, "/r/b"), (false, true, 1, "/r/a")]);
}

#[tokio::test]
async fn denied_failed_stale_cancelled_and_expired_calls_are_kept() {
    let limits = AskLimits::default();
    let expiring = |builder: RuntimeBuilder| keeping(builder).asks(limits, Duration::ZERO);
    let stage = stage(expiring).await;
    let worker = stage.worker(asking().deny("read:file:/r/secret")).await;
    let _ = worker.call("echo", at("secret")).await;
    let _ = worker.call("absent", json!({})).await;
    let _ = worker.call("post", at("expires")).await;
    let open = stage.open().await;
    let stale = open.preview("post", at("stale")).await.unwrap();
    open.call("post", at("other")).await.unwrap();
    let _ = open.apply(&stale).await;
    let mut events = stage.runtime.events();
    let cancelled = tokio::spawn({
        let open = open.clone();
        async move { open.call("hangs", at("x")).await }
    });
    stage.latch.wait_for(1).await;
    cancelled.abort();
    while !matches!(
        events.recv().await.unwrap().kind,
        EventKind::CallEnded {
            code: Some(Code::Cancelled),
            ..
        }
    ) {}
    stage.latch.open();
    open.revoke().await;
    let _ = open.call("echo", at("x")).await;
    let ended: Vec<_> = stage
        .runtime
        .recent_calls()
        .iter()
        .rev()
        .filter(|call| call.code().is_some())
        .map(|call| (call.tool.to_string(), call.code().unwrap()))
        .collect();
    let expected = [
        ("echo", Code::PermissionDenied),
        ("absent", Code::UnknownTool),
        ("post", Code::PermissionDenied),
        ("post", Code::StalePreview),
        ("hangs", Code::Cancelled),
        ("echo", Code::Cancelled),
    ];
    assert_eq!(ended, expected.map(|(tool, code)| (tool.to_owned(), code)));
    let calls = stage.runtime.recent_calls();
    assert!(calls.iter().all(|call| call.code().is_none()
        || (call.message.is_some() && !call.applied && call.allowed_by.len() <= 1)));
    let expired = stage.runtime.ended_questions();
    assert_eq!(
        (expired[0].decision, expired[0].by),
        (Decision::Expired, DecidedBy::Nobody)
    );
    assert_eq!(expired[0].result, None);
    // A person can still see what the call would have changed.
    let post = calls.iter().find(|call| call.call == expired[0].call);
    let content = post.unwrap().content.clone().unwrap();
    assert_eq!(content.changes[0].path.as_str(), "/r/expires");
}

#[tokio::test]
async fn answered_question_names_who_answered_and_the_result_of_the_call() {
    let stage = stage(keeping).await;
    let worker = stage.worker(asking()).await;
    let first = pending(&worker, "a").await;
    assert_eq!(newest(&stage).state, CallState::Asking);
    assert_eq!(newest(&stage).question, Some(first.question().id));
    assert_eq!(newest(&stage).asked, first.question().request.needs);
    let question = first.question().id;
    stage.answer(&first, Answer::ONCE).await;
    first.resume().await.unwrap();
    let denied = pending(&worker, "b").await;
    stage.answer(&denied, Answer::DENY).await;
    denied.resume().await.unwrap_err();
    let ended = stage.runtime.ended_questions();
    let shown: Vec<_> = ended
        .iter()
        .map(|one| (one.intent.as_str(), one.decision, one.by))
        .collect();
    let person = DecidedBy::Person;
    assert_eq!(
        shown,
        [
            ("Create the folder b/", Decision::Denied, person),
            ("Create the folder a/", Decision::Granted, person)
        ]
    );
    assert_eq!(ended[0].result, None);
    let result = ended[1].result.as_ref().unwrap();
    assert_eq!(
        (result.state, result.files, result.applied),
        (CallState::Ended(None), 1, true)
    );
    let answer = AllowedBy::Answer {
        question,
        by: person,
        lifetime: Lifetime::Once,
    };
    let allowed = stage.runtime.recent_call(ended[1].call).unwrap();
    assert_eq!(allowed.allowed_by, [answer]);
    let refused = stage.runtime.recent_call(ended[0].call).unwrap();
    assert_eq!(refused.allowed_by, []);
}

#[tokio::test]
async fn allowed_call_that_became_stale_says_so_in_its_question() {
    let stage = stage(keeping).await;
    let worker = stage.worker(asking()).await;
    let first = pending(&worker, "a").await;
    let second = pending(&worker, "b").await;
    for waiting in [&first, &second] {
        stage.answer(waiting, Answer::ONCE).await;
    }
    first.resume().await.unwrap();
    second.resume().await.unwrap_err();
    let ended = stage.runtime.ended_questions();
    let result = ended[0].result.as_ref().unwrap();
    assert_eq!(result.state, CallState::Ended(Some(Code::StalePreview)));
    assert!(!result.applied && result.message.is_some());
}

#[tokio::test]
async fn answer_of_the_host_is_not_shown_as_a_persons() {
    let script = Scripted::new().allow("write".parse().unwrap(), Lifetime::Once);
    let stage = stage(|builder| keeping(builder).approver(script)).await;
    let worker = stage.worker(asking()).await;
    worker.call("post", at("a")).await.unwrap();
    let by = |allowed: &AllowedBy| match allowed {
        AllowedBy::Answer { by, .. } => *by,
        other => panic!("{other:?}"),
    };
    assert_eq!(by(&newest(&stage).allowed_by[0]), DecidedBy::Host);
}

#[tokio::test]
async fn grants_are_kept_as_they_were_before_the_use() {
    let stage = stage(keeping).await;
    let worker = stage.worker(asking()).await;
    let grant = NewGrant {
        pattern: "write:file:/r".parse().unwrap(),
        holder: GrantHolder::Worker(worker.id()),
        lifetime: Lifetime::Uses(NonZeroU32::new(2).unwrap()),
        descendants: false,
    };
    let id = stage.grants.grant(grant).await.unwrap();
    for left in [2, 1] {
        worker.call("post", at("a")).await.unwrap();
        let call = newest(&stage);
        let [AllowedBy::Grant(view)] = call.allowed_by.as_slice() else {
            panic!("{call:?}");
        };
        assert_eq!((view.id, view.uses_left), (id, Some(left)));
    }
    // The grant is used up, and the call that it allowed still names it.
    assert_eq!(stage.grants.grants().await.unwrap(), []);
    // Grants that the host sends with a call are not grants of a person.
    let sent = vec!["write:file:/r/b".parse().unwrap()];
    let call = Call::new("post", at("b"));
    let submitted = stage.grants.submit(&worker, call, sent.clone()).await;
    submitted.unwrap();
    assert_eq!(newest(&stage).allowed_by, [AllowedBy::Sent(sent)]);
}

#[tokio::test]
async fn effect_that_ends_after_its_call_was_cancelled_is_shown_as_applied() {
    let within = Latch::default();
    let board = Board {
        within: Some(within.clone()),
        ..Board::default()
    };
    let stage = stage_with(board, keeping).await;
    let worker = stage.open().await;
    let call = tokio::spawn({
        let worker = worker.clone();
        async move { worker.call("post", at("a")).await }
    });
    within.wait_for(1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    within.open();
    // Writes of the same path are ordered, and the worker has handled the end of the first before it starts the second.
    worker.call("post", at("a")).await.unwrap();
    let calls = stage.runtime.recent_calls();
    let first = calls.last().unwrap();
    assert!(first.code().is_some());
    assert!(first.applied && first.files == 1, "{first:?}");
}

#[tokio::test]
async fn only_the_newest_calls_are_kept() {
    let keep = KeepCalls {
        calls: 100,
        bytes: 1 << 20,
    };
    let stage = stage(|builder| keeping(builder).keep_calls(keep)).await;
    let worker = stage.worker(asking()).await;
    let open = pending(&worker, "open").await;
    for n in 0..2000 {
        worker.call("echo", at(&n.to_string())).await.unwrap();
    }
    let calls = stage.runtime.recent_calls();
    assert_eq!(calls.len(), 100);
    let output = |call: &RecentCall| call.content.as_ref()?.output.clone();
    assert_eq!(output(&calls[0]).as_deref(), Some("/r/1999"));
    // A call that has not ended stays.
    assert_eq!(calls[99].state, CallState::Asking);
    drop(open);
}

#[tokio::test]
async fn ended_questions_are_limited() {
    let limits = AskLimits {
        per_minute: 1000,
        ..AskLimits::default()
    };
    let deny = Scripted::new();
    let stage = stage(|builder| {
        let builder = keeping(builder).approver(deny);
        builder.asks(limits, Duration::from_secs(600))
    })
    .await;
    let worker = stage.worker(asking()).await;
    for n in 0..210 {
        let denied = worker.call("post", at(&n.to_string())).await;
        denied.unwrap_err();
    }
    let ended = stage.runtime.ended_questions();
    assert_eq!(ended.len(), 200);
    assert_eq!(ended[0].intent, "Create the folder 209/");
}

/// Writes a text of any length, one line.
struct Large;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Lines {
    path: String,
    bytes: usize,
    #[serde(default)]
    note: String,
}

impl WriteTool for Large {
    type Args = Lines;
    type Output = ();
    type Job = (VirtualPath, usize);
    type Steps = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("large", "Large", "Writes a large file.").intent("Write {note}")
    }

    fn prepare(
        &self,
        args: Lines,
        names: &bailiwick::config::Namespace,
    ) -> Result<Prepared<Self::Job>, CallError> {
        drop(args.note);
        let path = names.path(&args.path)?;
        Ok(Prepared {
            needs: vec![Scope::file(Verb::Write, path.clone())],
            job: (path, args.bytes),
        })
    }

    fn plan(&self, (path, bytes): &Self::Job, _: &ReadPermit) -> Result<Plan<()>, Interrupt> {
        let line = HunkLine {
            op: '+',
            text: "x".repeat(*bytes),
        };
        let hunk = Hunk {
            old_start: 0,
            old_lines: 0,
            new_start: 1,
            new_lines: 1,
            lines: vec![line],
        };
        let change = Change {
            path: path.clone(),
            op: Op::Create,
            to: None,
            before: Entry::Absent,
            after: Entry::Absent,
            diff: FileDiff {
                hunks: [hunk].into(),
                added: 1,
                ..FileDiff::default()
            },
        };
        Ok(Plan {
            changes: vec![change],
            resources: Vec::new(),
            reply: Reply::text("y".repeat(*bytes), ()),
            cost: Cost::default(),
            steps: (),
            inverse: None,
        })
    }

    fn apply(&self, (): (), permit: WritePermit) -> Result<(), CallError> {
        permit.begin().map(drop)
    }
}

#[tokio::test]
async fn contents_are_bounded_and_the_oldest_are_dropped_first() {
    let keep = KeepCalls {
        calls: 1000,
        bytes: 1 << 20,
    };
    let large = ToolSet::new().writer(Large);
    let stage = stage(|builder| keeping(builder).tools(large).keep_calls(keep)).await;
    let worker = stage.open().await;
    let write = async |bytes: usize, note: usize| {
        let arguments = json!({ "path": "a", "bytes": bytes, "note": "é".repeat(note) });
        worker.call("large", arguments).await.unwrap();
    };
    for _ in 0..20 {
        write(100_000, 1).await;
    }
    let calls = stage.runtime.recent_calls();
    let kept: Vec<bool> = calls.iter().map(|call| call.content.is_some()).collect();
    assert_eq!(kept[..9], [true; 9], "the newest keep their diffs");
    assert_eq!(kept[10..], [false; 10], "the oldest lose them");
    assert!(
        calls
            .iter()
            .all(|call| (call.files, call.added) == (1, 1) && call.applied)
    );
    // One call cannot make all others lose their contents.
    write(10 << 20, 1 << 20).await;
    let calls = stage.runtime.recent_calls();
    let content = calls[0].content.as_deref().unwrap();
    assert!(content.changes_left_out && content.changes.is_empty());
    assert_eq!(content.output.as_ref().unwrap().len(), 4 << 10);
    assert!(content.arguments.len() <= 16 << 10);
    assert!(
        calls[0].intent.chars().count() < 1100,
        "{}",
        calls[0].intent.len()
    );
    assert!(calls[1].content.is_some() && calls[8].content.is_some());
}

#[tokio::test]
async fn arguments_that_nest_too_deeply_are_not_rendered() {
    let stage = stage(keeping).await;
    let worker = stage.open().await;
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    for (levels, kept) in [(100, true), (1000, false)] {
        let call = worker.call("absent", nested(levels)).await;
        call.unwrap_err();
        let call = newest(&stage);
        let arguments = &call.content.as_deref().unwrap().arguments;
        assert_eq!(!arguments.is_empty(), kept, "{levels}");
    }
}

#[tokio::test]
async fn long_lists_of_needs_are_cut() {
    let stage = stage(keeping).await;
    let worker = stage.open().await;
    let paths: Vec<String> = (0..500).map(|n| format!("p{n}")).collect();
    let call = worker.call("gather", json!({ "paths": paths })).await;
    call.unwrap();
    let call = newest(&stage);
    assert_eq!((call.needs.len(), call.needs_omitted), (20, 480));
    assert!(call.intent.chars().count() < 1100);
}
