//! Tests of audit records of failed effects, and of effects that cannot be recorded at once.
#![expect(
    clippy::disallowed_methods,
    reason = "the audit file is read here, and no root holds it"
)]

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bailiwick::audit::{AuditSink, Head, Record, Verified, verify_file};
use bailiwick::config::Namespace;
use bailiwick::effect::{Cost, Entry, FileDiff, Op};
use bailiwick::monitor::EventKind;
use bailiwick::tool::{Interrupt, Prepared, ReadPermit, WritePermit};
use bailiwick::worker::Budget;
use bailiwick::{
    Call, CallError, Change, Code, JsonLines, MemoryAudit, Outcome, Plan, Policy, ReadTool, Reply,
    Scope, ToolSet, ToolSpec, Verb, VirtualPath, Worker, WorkerSpec, WriteTool,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{Board, Latch, Stage, at, stage, stage_with};
use bailiwick_test_support::tools::{Echo, Said, Target, said};

/// Stores records in memory, or fails on request.
struct Failing {
    memory: MemoryAudit,
    fails: Arc<AtomicBool>,
}

impl AuditSink for Failing {
    fn head(&self) -> Head {
        self.memory.head()
    }

    fn keep(&mut self, records: &[Record]) -> io::Result<()> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.memory.keep(records)
    }
}

/// A stage whose tool waits before and within its effect, and whose audit fails on request.
async fn failing() -> (Stage, Arc<AtomicBool>, Latch, Latch) {
    let (before, within) = (Latch::default(), Latch::default());
    let board = Board {
        before: Some(before.clone()),
        within: Some(within.clone()),
        ..Board::default()
    };
    let fails = Arc::new(AtomicBool::new(false));
    let memory = MemoryAudit::new(1000);
    let sink = Failing {
        memory: memory.clone(),
        fails: Arc::clone(&fails),
    };
    let mut stage = stage_with(board, |builder| builder.audit(sink)).await;
    stage.audit = memory;
    (stage, fails, before, within)
}

/// A worker of `stage`, and a call of it whose effect has begun and waits for `within`.
async fn begun(stage: &Stage, within: &Latch) -> (Worker, JoinHandle<Result<Outcome, CallError>>) {
    let worker = stage.open().await;
    let call = tokio::spawn({
        let worker = worker.clone();
        async move { worker.call("post", at("x")).await }
    });
    within.wait_for(1).await;
    (worker, call)
}

async fn events(stage: &Stage) -> Vec<Value> {
    stage.runtime.flush_audit().await.unwrap();
    let lines = stage.audit.records().into_iter();
    let lines = lines.map(|record| serde_json::from_str::<Value>(record.line()).unwrap());
    lines
        .map(|line| line.get("event").unwrap().clone())
        .collect()
}

fn of<'e>(events: &'e [Value], step: &str) -> Vec<&'e Value> {
    events
        .iter()
        .filter(|event| event["step"] == step)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effect_with_failing_log_is_applied_and_reported_as_unrecorded() {
    let (stage, fails, before, within) = failing().await;
    before.open();
    let (worker, call) = begun(&stage, &within).await;
    fails.store(true, Ordering::SeqCst);
    within.open();
    let outcome = call.await.unwrap().unwrap();
    assert!(!outcome.recorded);
    assert_eq!(stage.board.posted(), ["/r/x"]);
    for tool in ["post", "echo"] {
        let refused = worker.call(tool, at("y")).await.unwrap_err();
        assert_eq!(refused.code(), Code::Io, "{tool}");
    }
    assert_eq!(stage.board.posted(), ["/r/x"]);
    fails.store(false, Ordering::SeqCst);
    let events = events(&stage).await;
    let first = &of(&events, "applying")[0]["call"];
    let steps = events.iter().filter(|event| event["call"] == *first);
    let steps: Vec<&str> = steps.map(|event| event["step"].as_str().unwrap()).collect();
    assert_eq!(steps, ["judged", "planned", "applying", "applied"]);
    let outcome = worker.call("post", at("z")).await.unwrap();
    assert!(outcome.recorded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effect_that_fails_with_failing_log_is_recorded_as_failed() {
    let (stage, fails, before, within) = failing().await;
    before.open();
    let (worker, call) = begun(&stage, &within).await;
    fails.store(true, Ordering::SeqCst);
    // The board differs from the plan, so the effect fails after it began.
    stage.board.posted.lock().unwrap().push("other".to_owned());
    // The writer of the audit notices that it cannot write.
    worker.call("echo", at("y")).await.unwrap();
    assert!(stage.runtime.flush_audit().await.is_err());
    within.open();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.code(), Code::StalePreview);
    fails.store(false, Ordering::SeqCst);
    let events = events(&stage).await;
    assert!(of(&events, "denied").is_empty() && of(&events, "applied").is_empty());
    let failed = of(&events, "failed")[0];
    assert_eq!(
        (&failed["code"], &failed["begun"]),
        (&json!("STALE_PREVIEW"), &json!(true))
    );
    let finished = of(&events, "finished").into_iter();
    let mut of_call = finished.filter(|event| event["call"] == failed["call"]);
    assert_eq!(of_call.next().unwrap()["code"], "STALE_PREVIEW");
}

/// Needs another path in its first round, and is answered at once in the next.
#[derive(Default)]
struct Continues(AtomicBool);

impl ReadTool for Continues {
    type Args = Target;
    type Output = Said;
    type Job = VirtualPath;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("continues", "Continue", "Reads two paths.")
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
        Echo.prepare(args, names)
    }

    fn read_now(&self, path: &VirtualPath, _: &ReadPermit) -> Option<Result<Reply, Interrupt>> {
        if self.0.swap(true, Ordering::SeqCst) {
            return Some(Ok(said(path)));
        }
        let next = path.join("next").unwrap();
        Some(Err(Interrupt::Needs(vec![Scope::file(Verb::Read, next)])))
    }

    fn read(&self, path: &VirtualPath, _: &ReadPermit) -> Result<Reply, Interrupt> {
        Ok(said(path))
    }
}

#[tokio::test]
async fn allowed_read_that_is_answered_at_once_has_one_record() {
    let stage = stage(|builder| builder.tools(ToolSet::new().reader(Continues::default()))).await;
    let ask = Policy::new().allow("read:file:/r/y").ask("read:file:/r/x");
    let worker = stage.worker(ask).await;
    worker.call("echo", at("/r/y")).await.unwrap();
    let reads = events(&stage).await;
    let [_, read] = reads.as_slice() else {
        panic!("{reads:#?}");
    };
    let expected = json!({
        "worker": 0, "agent": "main", "call": 0, "tool": "echo", "origin": "model", "step": "finished",
        "bytes": 4, "allowed": ["read:file:/r/y"],
    });
    assert_eq!(*read, expected);

    // Others have a record of each verdict: those that run on a thread, fail, use a grant, or are judged again.
    let paths = json!({ "paths": ["/r/y"] });
    worker.call("gather", paths).await.unwrap();
    worker.call("panics", at("/r/y/inline")).await.unwrap_err();
    let brought = vec!["read:file:/r/x".parse().unwrap()];
    let granted = Call::new("echo", at("/r/x"));
    stage
        .grants
        .submit(&worker, granted, brought)
        .await
        .unwrap();
    worker.call("continues", at("/r/y")).await.unwrap();
    let steps = stage.steps().await;
    let expected = [
        "judged",
        "finished",
        "judged",
        "failed INTERNAL",
        "finished INTERNAL",
        "judged",
        "grant_used",
        "judged",
        "finished",
        "judged",
        "judged",
        "finished",
    ];
    assert_eq!(steps[2..], expected);
    let events = events(&stage).await;
    let allowed = of(&events, "finished").into_iter();
    let allowed = allowed.filter(|event| event.get("allowed").is_some());
    assert_eq!(allowed.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_that_cannot_be_recorded_is_rejected_and_counted() {
    let (stage, fails, ..) = failing().await;
    let worker = stage.open().await;
    stage.runtime.flush_audit().await.unwrap();
    fails.store(true, Ordering::SeqCst);
    // The writer of the audit notices that it cannot write.
    worker.call("echo", at("x")).await.unwrap();
    assert!(stage.runtime.flush_audit().await.is_err());
    let mut watched = stage.runtime.events();
    let refused = worker.call("echo", at("y")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Io, "{refused}");
    let code = loop {
        if let EventKind::CallEnded { code, .. } = watched.recv().await.unwrap().kind {
            break code;
        }
    };
    assert_eq!(code, Some(Code::Io));
    fails.store(false, Ordering::SeqCst);
    stage.runtime.flush_audit().await.unwrap();
    worker.call("echo", at("z")).await.unwrap();
    stage.runtime.flush_audit().await.unwrap();
    let missed = stage
        .audit
        .records()
        .iter()
        .map(Record::missed)
        .sum::<u64>();
    let allowed = stage.texts("finished", "/event/allowed/0").await;
    let read = |path: &str| Some(format!("read:file:/r/{path}"));
    // The record of the rejected read, and those of its rejection and its end.
    assert_eq!((missed, allowed), (3, vec![read("x"), read("z")]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_cannot_be_recorded_has_no_effect() {
    let (stage, fails, before, within) = failing().await;
    let worker = stage.open().await;
    fails.store(true, Ordering::SeqCst);
    before.open();
    within.open();
    let refused = worker.call("post", at("x")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Io);
    assert!(stage.board.posted().is_empty());
    fails.store(false, Ordering::SeqCst);
    stage.runtime.flush_audit().await.unwrap();
    worker.call("post", at("x")).await.unwrap();
    assert_eq!(stage.board.posted(), ["/r/x"]);
}

/// Removes some of its targets, and fails.
struct Tears;

impl WriteTool for Tears {
    type Args = Target;
    type Output = Said;
    type Job = VirtualPath;
    type Steps = ();

    fn spec(&self) -> bailiwick::ToolSpec {
        bailiwick::ToolSpec::new("tears", "Tear", "Removes a part.")
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
        let path = names.path(&args.path)?;
        Ok(Prepared {
            needs: vec![Scope::file(Verb::Write, path.clone())],
            job: path,
        })
    }

    fn plan(&self, job: &VirtualPath, _: &ReadPermit) -> Result<Plan<()>, Interrupt> {
        let change = Change {
            path: job.clone(),
            op: Op::Delete,
            to: None,
            before: Entry::Directory { entries: 99 },
            after: Entry::Absent,
            diff: FileDiff::default(),
        };
        Ok(Plan {
            changes: vec![change],
            resources: Vec::new(),
            reply: said(job),
            cost: Cost {
                bytes: 0,
                files: 100,
            },
            steps: (),
            inverse: None,
        })
    }

    fn apply(&self, (): (), permit: WritePermit) -> Result<(), CallError> {
        let _commit = permit.begin()?;
        Err(CallError::new(Code::PermissionDenied, "the system refuses").with("removed", 37))
    }
}

/// Fails before its effect, or panics after it began.
struct Breaks;

impl WriteTool for Breaks {
    type Args = Target;
    type Output = Said;
    type Job = VirtualPath;
    type Steps = bool;

    fn spec(&self) -> bailiwick::ToolSpec {
        bailiwick::ToolSpec::new("breaks", "Break", "Breaks.")
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
        Tears.prepare(args, names)
    }

    fn plan(&self, job: &VirtualPath, permit: &ReadPermit) -> Result<Plan<bool>, Interrupt> {
        let Plan {
            changes,
            reply,
            cost,
            inverse: _,
            resources: _,
            steps: (),
        } = Tears.plan(job, permit)?;
        Ok(Plan {
            changes,
            resources: Vec::new(),
            reply,
            cost,
            steps: job.as_str().ends_with("panic"),
            inverse: None,
        })
    }

    fn apply(&self, panics: bool, permit: WritePermit) -> Result<(), CallError> {
        if !panics {
            return Err(CallError::new(Code::Conflict, "another was quicker"));
        }
        let _commit = permit.begin()?;
        panic!("as a broken tool would")
    }
}

async fn budgeted(stage: &Stage, files: u64) -> Worker {
    let budget = Budget {
        files_touched: Some(files),
        ..Budget::default()
    };
    let spec = WorkerSpec::new("main").policy(Policy::new());
    stage.runtime.spawn(spec.budget(budget)).await.unwrap()
}

#[tokio::test]
async fn partial_effect_is_recorded_and_charged_in_part() {
    let tools = ToolSet::new().writer(Tears).writer(Breaks);
    let stage = stage(|builder| builder.tools(tools)).await;
    let worker = budgeted(&stage, 137).await;
    let error = worker.call("tears", at("x")).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
    let events_so_far = events(&stage).await;
    assert!(of(&events_so_far, "denied").is_empty());
    let failed = of(&events_so_far, "failed")[0];
    assert_eq!(failed["removed"], 37);
    assert_eq!(failed["begun"], true);
    // Only what happened is charged: 100 of 137 are left, then 63.
    worker.call("tears", at("x")).await.unwrap_err();
    let spent = worker.call("tears", at("x")).await.unwrap_err();
    assert_eq!(spent.code(), Code::Budget);
    let denied = events(&stage).await;
    let denied = of(&denied, "denied");
    assert_eq!(
        (&denied[0]["code"], &denied[0]["by"]),
        (&json!("BUDGET"), &json!("rule"))
    );
}

#[tokio::test]
async fn failed_call_is_charged_only_if_its_effect_began() {
    let stage = stage(|builder| builder.tools(ToolSet::new().writer(Breaks))).await;
    let worker = budgeted(&stage, 100).await;
    for _ in 0..3 {
        let error = worker.call("breaks", at("x")).await.unwrap_err();
        assert_eq!(error.code(), Code::Conflict);
    }
    let error = worker.call("breaks", at("panic")).await.unwrap_err();
    assert_eq!(error.code(), Code::Internal);
    let error = worker.call("breaks", at("x")).await.unwrap_err();
    assert_eq!(error.code(), Code::Budget);
    let events = events(&stage).await;
    let begun: Vec<&Value> = of(&events, "failed")
        .iter()
        .map(|event| &event["begun"])
        .collect();
    assert_eq!(
        begun,
        [&Value::Null, &Value::Null, &Value::Null, &json!(true)]
    );
}

#[tokio::test]
async fn preview_of_a_read_tool_is_rejected_before_it_reads() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    let refused = worker.preview("hangs", at("x")).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArguments);
    assert_eq!(stage.latch.arrived(), 0);
    let refused = worker.preview("echo", at("x")).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArguments);
    let events = events(&stage).await;
    assert!(of(&events, "judged").is_empty());
    worker.preview("post", at("x")).await.unwrap();
}

#[tokio::test]
async fn artifact_without_space_does_not_fail_the_call() {
    let stage = stage(|builder| builder.artifacts(10, 1)).await;
    let worker = stage.open().await;
    let outcome = worker.call("post", at("x")).await.unwrap();
    assert!(outcome.artifacts.is_empty());
    let events = events(&stage).await;
    assert_eq!(of(&events, "artifact_failed").len(), 1);
    assert!(of(&events, "denied").is_empty() && of(&events, "failed").is_empty());
    assert_eq!(of(&events, "finished")[0].get("code"), None);
}

/// Lets files of this process grow to `most` bytes.
fn limit_files(most: Option<u64>) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
    let limit = Rlimit {
        current: most.or(maximum),
        maximum,
    };
    setrlimit(Resource::Fsize, limit).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the child of the test below, in which files cannot grow"]
async fn runtime_whose_log_cannot_grow() {
    let folder = std::env::var_os("BAILIWICK_FULL_LOG_IN").unwrap();
    let log = Path::new(&folder).join("audit.jsonl");
    let within = Latch::default();
    let board = Board {
        within: Some(within.clone()),
        ..Board::default()
    };
    let rotates = std::env::var_os("BAILIWICK_FULL_LOG_ROTATES").is_some();
    let segment = if rotates { 1 } else { JsonLines::SEGMENT_BYTES };
    let sink = JsonLines::create(&log).unwrap().segment_bytes(segment);
    let stage = stage_with(board, |builder| builder.audit(sink)).await;
    let (worker, call) = begun(&stage, &within).await;
    // A part of the next record fits: in this file, or in the next if each has one batch of records.
    let length = std::fs::metadata(&log).unwrap().len();
    limit_files(Some(if rotates { 20 } else { length + 20 }));
    within.open();
    let outcome = call.await.unwrap().unwrap();
    assert!(!outcome.recorded);
    assert_eq!(stage.board.posted(), ["/r/x"]);
    let refused = worker.call("post", at("y")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Io);
    assert_eq!(stage.board.posted(), ["/r/x"]);
    limit_files(None);
    stage.runtime.flush_audit().await.unwrap();
    assert!(worker.call("post", at("y")).await.unwrap().recorded);
    stage.runtime.shutdown().await;
}

/// The records of the runtime above.
fn recorded_with_full_disk(rotates: bool) -> (String, Verified) {
    let folder = tempfile::tempdir().unwrap();
    // A write beyond the limit is an error where its signal is ignored.
    let mut child = Command::new("sh");
    child
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "records::runtime_whose_log_cannot_grow",
        ])
        .env("BAILIWICK_FULL_LOG_IN", folder.path());
    if rotates {
        child.env("BAILIWICK_FULL_LOG_ROTATES", "1");
    }
    let child = child.output().unwrap();
    let stdout = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{stdout}");
    assert!(stdout.contains("1 passed"), "{stdout}");
    let audit = folder.path().join("audit.jsonl");
    let verified = verify_file(Head::default(), &audit, |_| ()).unwrap();
    let segments = (1..verified.files).map(|number| format!("audit.jsonl.{number:08}"));
    let files = segments.chain(["audit.jsonl".to_owned()]);
    let texts = files.map(|name| std::fs::read_to_string(folder.path().join(name)).unwrap());
    (texts.collect(), verified)
}

#[test]
fn effect_with_full_disk_is_applied_and_recorded_later() {
    for rotates in [false, true] {
        let (log, verified) = recorded_with_full_disk(rotates);
        assert_eq!(verified.files > 1, rotates);
        assert_eq!(log.lines().count() as u64, verified.records);
        assert_eq!(log.matches(r#""step":"applied""#).count(), 2, "{log}");
        assert!(!log.contains(r#""step":"denied""#), "{log}");
    }
}
