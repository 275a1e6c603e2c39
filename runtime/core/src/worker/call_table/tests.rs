//! Tests of the order, the time limits and the size of calls, and what tests of the call table share.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{CallTable, OpenCall};
use crate::call::{Call, CallMeta, Mode};
use crate::capability::CloseReason;
use crate::config::Namespace;
use crate::error::{CallError, Code};
use crate::host::{Runtime, RuntimeBuilder};
use crate::permission::{Answer, DecidedBy, Deferred, Question};
use crate::scope::{Scope, Verb};
use crate::tool::{Interrupt, Prepared, ReadPermit};
use crate::worker::admission::{self, Admission, CallOptions, admit};
use crate::worker::blocking::Pool;
use crate::worker::prepare::UnparsedCall;
use crate::worker::{Worker, WorkerSpec};
use crate::{ReadTool, Reply, ToolSet, ToolSpec};

/// A tool that needs to read a path, but does not.
struct NeedsRead;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Target {
    path: String,
}

impl ReadTool for NeedsRead {
    type Args = Target;
    type Output = Value;
    type Job = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("look", "NeedsRead", "Looks.")
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<()>, CallError> {
        let needs = vec![Scope::file(Verb::Read, names.path(&args.path)?)];
        Ok(Prepared { needs, job: () })
    }

    fn read(&self, (): &(), _: &ReadPermit) -> Result<Reply, Interrupt> {
        Ok(Reply::text("planned", Value::Null))
    }
}

/// A runtime with a root and the tool [`NeedsRead`].
pub(super) fn needs_read(root: &TempDir) -> RuntimeBuilder {
    let tools = ToolSet::new().reader(NeedsRead);
    Runtime::builder().root("r", root.path()).tools(tools)
}

fn look(path: &str) -> Call {
    Call::new("look", json!({ "path": path }))
}

/// Occupies every thread of a pool until the result is dropped.
pub(super) fn occupied(pool: &Arc<Pool>) -> Vec<mpsc::Sender<()>> {
    let (threads, _) = pool.bounds();
    let hold = |_| {
        let (held, freed) = mpsc::channel::<()>();
        let (began, has_begun) = mpsc::channel();
        let wait = move || {
            began.send(()).unwrap();
            let _ = freed.recv();
        };
        pool.submit(None, &Arc::default(), wait).unwrap();
        has_begun.recv().unwrap();
        held
    };
    (0..threads).map(hold).collect()
}

/// A call that was admitted, and the receiver of its answer.
pub(super) fn admitted(
    worker: &Worker,
    call: Call,
) -> (UnparsedCall, Box<OpenCall>, admission::ReplyReceiver) {
    let options = CallOptions::new(Mode::Apply);
    admit(&worker.shared, call, options, Ok(())).unwrap()
}

#[tokio::test]
async fn call_that_reaches_a_paused_worker_after_its_revocation_is_cancelled() {
    let root = tempfile::tempdir().unwrap();
    let (runtime, _) = needs_read(&root).build().await.unwrap();
    let worker = runtime.spawn(WorkerSpec::new("main")).await.unwrap();
    let mut calls = CallTable::new(Arc::clone(&worker.shared));
    let (request, call, mut answer) = admitted(&worker, look("a"));
    worker.pause(DecidedBy::Person);
    calls.close();
    calls.receive(request, call);
    let error = answer.try_recv().unwrap().unwrap_err();
    assert_eq!(error.code(), Code::Cancelled);
    assert!(calls.is_done());
}

#[tokio::test]
async fn revoked_worker_asks_no_question() {
    let root = tempfile::tempdir().unwrap();
    let builder = needs_read(&root).approver(Deferred);
    let (runtime, _grants) = builder.build().await.unwrap();
    for revoke in [false, true] {
        let worker = runtime.spawn(WorkerSpec::new("main")).await.unwrap();
        let mut calls = CallTable::new(Arc::clone(&worker.shared));
        let (request, call, mut answer) = admitted(&worker, look("f"));
        let id = request.info.id;
        calls.receive(request, call);
        if revoke {
            // Its table has not received that it was revoked.
            worker.shared.gate().close(CloseReason::WorkerRevoked);
        }
        calls.grants_checked(id, Ok(None));
        let answer = answer.try_recv().ok();
        let code = answer.map(|answer| answer.unwrap_err().code());
        assert_eq!(code, revoke.then_some(Code::Cancelled));
    }
}

#[tokio::test]
async fn later_call_does_not_overtake_paused_calls() {
    let root = tempfile::tempdir().unwrap();
    let (runtime, _) = needs_read(&root).build().await.unwrap();
    let worker = runtime.spawn(WorkerSpec::new("main")).await.unwrap();
    let mut calls = CallTable::new(Arc::clone(&worker.shared));
    let [(first, call, _first), (second, other_call, _second)] =
        ["a", "b"].map(|path| admitted(&worker, look(path)));
    let ids = [first.info.id, second.info.id];
    worker.pause(DecidedBy::Person);
    calls.receive(first, call);
    worker.resume(DecidedBy::Person).unwrap();
    // Its table has not received that the pause has ended.
    calls.receive(second, other_call);
    assert_eq!(calls.paused, ids);
    calls.resumed();
    assert!(calls.paused.is_empty());
}

#[tokio::test]
async fn deadline_runs_while_grants_are_looked_up_and_opened_but_not_while_a_person_is_asked() {
    let root = tempfile::tempdir().unwrap();
    let builder = needs_read(&root).approver(Deferred);
    let (runtime, _grants) = builder.build().await.unwrap();
    let worker = runtime.spawn(WorkerSpec::new("main")).await.unwrap();
    let mut calls = CallTable::new(Arc::clone(&worker.shared));
    let (request, call, _answer) = admitted(&worker, look("f"));
    let (id, whole) = (request.info.id, call.limit);
    let state = |calls: &CallTable| {
        let (_, call) = &calls.calls[&id];
        (call.deadline_guard.is_some(), call.limit)
    };
    calls.receive(request, call);
    assert_eq!(state(&calls), (true, whole));
    calls.grants_checked(id, Ok(None));
    // The time before the question counts.
    let (runs, left) = state(&calls);
    assert!(!runs && left < whole);
    calls.suspend(id, false);
    assert_eq!(
        state(&calls),
        (false, left),
        "only the deadline of a remote call is continued"
    );
    calls.opening_granted(id);
    assert_eq!(state(&calls), (true, left));
}

#[tokio::test]
async fn opening_a_granted_path_counts_toward_the_limit() {
    let [root, outside] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let builder = needs_read(&root)
        .grantable(&format!("read:file:{}", outside.path().display()))
        .approver(Deferred);
    let (runtime, grants) = builder.build().await.unwrap();
    let worker = runtime.spawn(WorkerSpec::new("one")).await.unwrap();
    let meta = CallMeta {
        deadline: Some(Duration::from_secs(2)),
        ..CallMeta::default()
    };
    let call = Call::new("look", json!({ "path": outside.path() })).meta(meta);
    let threads = occupied(&worker.shared.core.io_outside);
    let mut call = {
        let worker = worker.clone();
        tokio::spawn(async move { worker.submit(call).await })
    };
    let only = |open: &[Question]| open.first().map(|question| question.id);
    let question = tokio::select! {
        question = grants.broker().wait_for_questions(only) => question,
        ended = &mut call => panic!("{ended:?}"),
    };
    grants.answer(question, Answer::ONCE).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), call).await;
    let error = ended.unwrap().unwrap().unwrap_err();
    assert_eq!(error.code(), Code::Deadline, "{error}");
    drop(threads);
}

#[tokio::test]
async fn only_the_plan_of_the_last_question_counts() {
    let root = tempfile::tempdir().unwrap();
    let bounds = Admission {
        bytes: 1000,
        ..Admission::default()
    };
    let builder = needs_read(&root).admission(bounds);
    let (runtime, _) = builder.build().await.unwrap();
    let worker = runtime.spawn(WorkerSpec::new("main")).await.unwrap();
    let (_, mut call, _answer) = admitted(&worker, look("a"));
    for plan in [600, 700] {
        call.admitted.charge_plan(plan).unwrap();
    }
    let (_, mut other, _other) = admitted(&worker, look("a"));
    let busy = other.admitted.charge_plan(600).unwrap_err();
    assert_eq!(busy.code(), Code::Busy, "{busy}");
    drop(call);
    other.admitted.charge_plan(600).unwrap();
}
