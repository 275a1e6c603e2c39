//! Tests of the limit on the concurrent calls of one tool.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bailiwick::config::Namespace;
use bailiwick::effect::Cost;
use bailiwick::tool::{
    ActPermit, ActProgress, Foreseen, Interrupt, Prepared, ReadPermit, Rights, WritePermit,
};
use bailiwick::worker::{Admission, CallProgress, CallState};
use bailiwick::{
    ActTool, Answer, Call, CallError, CallMeta, Code, Deferred, Outcome, Plan, Policy, ReadTool,
    Reply, RuntimeBuilder, Scope, ToolSet, ToolSpec, Verb, VirtualPath, Worker, WriteTool,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Stage, at, stage};
use bailiwick_test_support::tools::{Said, Target, said};

/// The calls that are inside a tool now, the most that were, and the paths of all in order.
#[derive(Clone, Debug, Default)]
struct Inside {
    now: usize,
    most: usize,
    paths: Vec<String>,
}

/// A room that calls of limited tools enter, and leave once it is open.
#[derive(Clone)]
struct Room {
    inside: Arc<watch::Sender<Inside>>,
    open: Arc<watch::Sender<bool>>,
    executor: Handle,
}

struct Visit<'r>(&'r Room);

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.inside.send_modify(|inside| inside.now -= 1);
    }
}

impl Room {
    fn new() -> Self {
        Self {
            inside: Arc::default(),
            open: Arc::default(),
            executor: Handle::current(),
        }
    }

    async fn visit(&self, path: &VirtualPath) {
        self.inside.send_modify(|inside| {
            inside.now += 1;
            inside.most = inside.most.max(inside.now);
            inside.paths.push(path.to_string());
        });
        let _visit = Visit(self);
        assert!(!path.as_str().ends_with("panics"), "as a broken tool would");
        self.open.subscribe().wait_for(|open| *open).await.unwrap();
    }

    fn visit_blocking(&self, path: &VirtualPath) {
        self.executor.block_on(self.visit(path));
    }

    /// Waits until `count` calls are inside.
    async fn wait_for(&self, count: usize) {
        let mut inside = self.inside.subscribe();
        inside.wait_for(|inside| inside.now == count).await.unwrap();
    }

    fn open(&self) {
        self.open.send_replace(true);
    }

    fn seen(&self) -> Inside {
        self.inside.borrow().clone()
    }
}

fn prepared(
    args: &Target,
    names: &Namespace,
    verb: Verb,
) -> Result<Prepared<VirtualPath>, CallError> {
    let path = names.path(&args.path)?;
    let needs = vec![Scope::file(verb, path.clone())];
    Ok(Prepared { needs, job: path })
}

struct Reads(Room, u32);

impl ReadTool for Reads {
    type Args = Target;
    type Output = Said;
    type Job = VirtualPath;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("reads", "Read", "Reads.").max_concurrent_calls(self.1)
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
        prepared(&args, names, Verb::Read)
    }

    fn read_now(&self, path: &VirtualPath, _: &ReadPermit) -> Option<Result<Reply, Interrupt>> {
        Some(Ok(said(path)))
    }

    fn read(&self, path: &VirtualPath, _: &ReadPermit) -> Result<Reply, Interrupt> {
        self.0.visit_blocking(path);
        Ok(said(path))
    }
}

/// Enters the room once when it is planned, and once when it is applied. With a limit of 0, its calls are not limited.
struct Writes(Room, u32);

impl WriteTool for Writes {
    type Args = Target;
    type Output = Said;
    type Job = VirtualPath;
    type Steps = VirtualPath;

    fn spec(&self) -> ToolSpec {
        let spec = ToolSpec::new("writes", "Write", "Writes.");
        match self.1 {
            0 => spec,
            most => spec.max_concurrent_calls(most),
        }
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
        prepared(&args, names, Verb::Write)
    }

    fn plan(&self, path: &VirtualPath, _: &ReadPermit) -> Result<Plan<VirtualPath>, Interrupt> {
        self.0.visit_blocking(path);
        Ok(Plan {
            changes: Vec::new(),
            resources: Vec::new(),
            reply: said(path),
            cost: Cost::default(),
            steps: path.clone(),
            inverse: None,
        })
    }

    fn apply(&self, path: VirtualPath, permit: WritePermit) -> Result<(), CallError> {
        let _commit = permit.begin()?;
        self.0.visit_blocking(&path);
        Ok(())
    }
}

struct Acts(Room, u32);

impl ActTool for Acts {
    type Args = Target;
    type Output = Said;
    type Job = VirtualPath;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("acts", "Act", "Acts.").max_concurrent_calls(self.1)
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
        prepared(&args, names, Verb::Write)
    }

    fn foresee(&self, _: &VirtualPath, _: &Rights<'_>) -> Foreseen {
        Foreseen::Unknown
    }

    async fn act(
        &self,
        path: &VirtualPath,
        _: ActPermit,
        _: ActProgress,
    ) -> Result<Reply, CallError> {
        self.0.visit(path).await;
        Ok(said(path))
    }
}

/// The names of the limited tools, one of each kind.
const KINDS: [&str; 3] = ["reads", "writes", "acts"];

/// A stage whose limited tools run `most` calls at once, in one room.
async fn limited(
    most: u32,
    configure: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
) -> (Stage, Room) {
    let room = Room::new();
    let tools = ToolSet::new()
        .reader(Reads(room.clone(), most))
        .writer(Writes(room.clone(), most))
        .actor(Acts(room.clone(), most));
    let stage = stage(|builder| configure(builder.tools(tools).tool_threads(32))).await;
    (stage, room)
}

/// A stage whose tool `writes` runs `most` calls at once, and each worker `jobs` jobs.
async fn writing(most: u32, jobs: u32, for_files: bool) -> (Stage, Room) {
    let room = Room::new();
    let tools = ToolSet::new().writer(Writes(room.clone(), most));
    let tools = if for_files { tools.for_files() } else { tools };
    let limits = Admission {
        jobs,
        ..Admission::default()
    };
    let stage = stage(|builder| builder.tools(tools).admission(limits)).await;
    (stage, room)
}

fn begin(
    worker: &Worker,
    tool: &'static str,
    path: &str,
) -> JoinHandle<Result<Outcome, CallError>> {
    begin_within(worker, tool, path, Duration::from_secs(30))
}

fn begin_within(
    worker: &Worker,
    tool: &'static str,
    path: &str,
    deadline: Duration,
) -> JoinHandle<Result<Outcome, CallError>> {
    let meta = CallMeta {
        deadline: Some(deadline),
        ..CallMeta::default()
    };
    let (worker, call) = (worker.clone(), Call::new(tool, at(path)).meta(meta));
    tokio::spawn(async move { worker.submit(call).await })
}

/// Waits until `worker` has `count` calls and has handled the messages of all of them.
async fn received(worker: &Worker, count: u32) {
    while worker.status().in_flight < count {
        tokio::task::yield_now().await;
    }
    worker.call("echo", at("a")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_calls_of_a_tool_never_exceed_its_limit() {
    for tool in KINDS {
        let (stage, room) = limited(3, |builder| builder).await;
        let mut workers = Vec::new();
        for _ in 0..8 {
            workers.push(stage.open().await);
        }
        let call = |n: usize| begin(&workers[n % 8], tool, &format!("f{n}"));
        // Of different workers, since such writes of one worker never run at once.
        let mut calls: Vec<_> = (0..3).map(call).collect();
        room.wait_for(3).await;
        calls.extend((3..64).map(call));
        for worker in &workers {
            received(worker, 8).await;
        }
        assert_eq!(room.seen().paths.len(), 3, "{tool}");
        room.open();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        let seen = room.seen();
        assert_eq!((seen.now, seen.most), (0, 3), "{tool}");
    }
}

#[tokio::test]
async fn calls_of_other_tools_go_on_while_calls_wait_for_a_slot() {
    for tool in KINDS {
        let (stage, room) = limited(1, |builder| builder).await;
        let (first, second) = (stage.open().await, stage.open().await);
        let mut calls = vec![begin(&first, tool, "held")];
        room.wait_for(1).await;
        // More than a worker may run at once.
        calls.extend((0..8).map(|n| begin(&second, tool, &format!("f{n}"))));
        received(&second, 8).await;
        for (worker, other) in [(&second, "a"), (&stage.open().await, "b")] {
            let paths = serde_json::json!({ "paths": [other] });
            worker.call("gather", paths).await.unwrap();
            worker.call("post", at(other)).await.unwrap();
            // The same path as that of a call that waits.
            worker.call("post", at("f3")).await.unwrap();
        }
        assert_eq!(room.seen().paths, ["/r/held"], "{tool}");
        room.open();
        for call in calls {
            call.await.unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn queued_writes_of_a_worker_leave_slots_to_other_workers() {
    for for_files in [false, true] {
        let (stage, room) = writing(2, 1, for_files).await;
        let (first, second) = (stage.open().await, stage.open().await);
        let mut calls: Vec<_> = (0..4)
            .map(|n| begin(&first, "writes", &format!("f{n}")))
            .collect();
        received(&first, 4).await;
        calls.push(begin(&second, "writes", "other"));
        let both = tokio::time::timeout(Duration::from_secs(10), room.wait_for(2));
        both.await.expect("the other worker has no slot");
        room.open();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(room.seen().most, 2);
    }
}

#[tokio::test]
async fn worker_with_a_hanging_thread_locks_no_path_of_a_queued_write() {
    let (stage, room) = writing(0, 1, true).await;
    let (worker, other) = (stage.open().await, stage.open().await);
    let hanging = begin(&worker, "writes", "hanging");
    room.wait_for(1).await;
    hanging.abort();
    while worker.status().lost_threads == 0 {
        tokio::task::yield_now().await;
    }
    let queued = begin(&worker, "writes", "same");
    received(&worker, 1).await;
    let passing = begin(&other, "writes", "same");
    let both = tokio::time::timeout(Duration::from_secs(10), room.wait_for(2));
    both.await.expect("the other worker waits for the path");
    room.open();
    for call in [queued, passing] {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn writes_of_a_worker_to_different_files_run_at_once() {
    for (for_files, most) in [(true, 2), (false, 1)] {
        let (stage, room) = writing(8, 4, for_files).await;
        let worker = stage.open().await;
        // Writes of the same file run one at a time.
        let calls = ["a", "b", "a"].map(|path| begin(&worker, "writes", path));
        room.wait_for(most).await;
        received(&worker, 3).await;
        room.open();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(room.seen().most, most);
    }
}

#[tokio::test]
async fn writes_that_wait_in_the_pool_exceed_no_limit_of_their_worker() {
    let (stage, room) = writing(0, 2, true).await;
    let (worker, other) = (stage.open().await, stage.open().await);
    let mut calls: Vec<_> = (0..8)
        .map(|n| begin(&worker, "writes", &format!("f{n}")))
        .collect();
    room.wait_for(2).await;
    received(&worker, 8).await;
    calls.push(begin(&other, "writes", "other"));
    let both = tokio::time::timeout(Duration::from_secs(10), room.wait_for(3));
    both.await.expect("the other worker has no thread");
    let waiting = begin_within(&worker, "writes", "late", Duration::from_millis(1));
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.code(), Code::Deadline);
    assert_eq!(room.seen().paths.len(), 3);
    calls.remove(3).abort();
    room.open();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(room.seen().most, 3);
}

#[tokio::test]
async fn calls_take_slots_in_the_order_in_which_they_came() {
    let (stage, room) = limited(1, |builder| builder).await;
    let workers = [stage.open().await, stage.open().await];
    let mut calls = Vec::new();
    for n in 0..10_u32 {
        let worker = &workers[n as usize % 2];
        calls.push(begin(worker, "acts", &format!("f{n}")));
        received(worker, n / 2 + 1).await;
    }
    let state = |worker: &Worker| worker.activity()[1].state;
    assert_eq!(state(&workers[0]), CallState::Queued);
    room.open();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let expected: Vec<String> = (0..10).map(|n| format!("/r/f{n}")).collect();
    assert_eq!(room.seen().paths, expected);
}

#[tokio::test]
async fn cancelled_or_revoked_call_no_longer_waits_for_a_slot() {
    for tool in KINDS {
        let (stage, room) = limited(1, |builder| builder).await;
        let (worker, revoked) = (stage.open().await, stage.open().await);
        let held = begin(&worker, tool, "held");
        room.wait_for(1).await;
        let dropped = begin(&worker, tool, "dropped");
        received(&worker, 2).await;
        let ended = begin(&revoked, tool, "ended");
        received(&revoked, 1).await;
        let last = begin(&worker, tool, "last");
        received(&worker, 3).await;
        dropped.abort();
        assert!(dropped.await.unwrap_err().is_cancelled());
        revoked.revoke().await;
        let error = ended.await.unwrap().unwrap_err();
        assert_eq!(error.code(), Code::Cancelled);
        room.open();
        held.await.unwrap().unwrap();
        last.await.unwrap().unwrap();
        let mut paths = room.seen().paths;
        paths.dedup();
        assert_eq!(paths, ["/r/held", "/r/last"], "{tool}");
    }
}

#[tokio::test]
async fn slot_of_a_call_that_is_stopped_or_panics_becomes_free() {
    for tool in KINDS {
        let (stage, room) = limited(1, |builder| builder).await;
        let worker = stage.open().await;
        let error = worker.call(tool, at("panics")).await.unwrap_err();
        assert_eq!(error.code(), Code::Internal);
        let dropped = begin(&worker, tool, "dropped");
        room.wait_for(1).await;
        dropped.abort();
        let revoked = stage.open().await;
        let ended = begin(&revoked, tool, "ended");
        received(&revoked, 1).await;
        if tool == "acts" {
            // The future of the first call was dropped; that of the second is dropped by the revocation.
            room.wait_for(1).await;
            revoked.revoke().await;
        } else {
            // The threads still run these calls.
            room.open();
        }
        let _ = ended.await.unwrap();
        room.open();
        worker.call(tool, at("last")).await.unwrap();
        assert_eq!(room.seen().most, 1, "{tool}");
    }
}

#[tokio::test]
async fn call_on_a_hung_thread_keeps_its_slot() {
    let (stage, room) = limited(1, |builder| builder).await;
    let worker = stage.open().await;
    let hung = begin(&worker, "reads", "hung");
    room.wait_for(1).await;
    hung.abort();
    assert!(hung.await.unwrap_err().is_cancelled());
    received(&worker, 0).await;
    let error = begin_within(&worker, "reads", "b", Duration::from_millis(20)).await;
    let error = error.unwrap().unwrap_err();
    assert_eq!(error.code(), Code::Busy);
    let message = "`reads` runs at most 1 calls at once, and none of them ended in time \
                   (`ToolSpec::max_concurrent_calls`); try again later";
    assert_eq!(error.message(), message);
    assert!(error.details().contains_key("retry_after_ms"));
    room.open();
    worker.call("reads", at("c")).await.unwrap();
    assert_eq!(room.seen().paths, ["/r/hung", "/r/c"]);
}

#[tokio::test]
async fn time_that_a_call_waits_for_a_slot_is_not_time_of_its_tool() {
    let (stage, _room) = limited(1, |builder| builder).await;
    let worker = stage.open().await;
    let (shorter, longer) = (Duration::from_millis(100), Duration::from_secs(1));
    let begun = Instant::now();
    let held = begin_within(&worker, "acts", "held", shorter);
    let waited = begin_within(&worker, "acts", "waited", longer);
    for call in [held, waited] {
        let error = call.await.unwrap().unwrap_err();
        assert_eq!(error.code(), Code::Deadline);
    }
    assert!(begun.elapsed() >= shorter + longer, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn call_is_rejected_if_too_many_wait_for_a_slot() {
    let bounds = Admission {
        calls: 2000,
        ..Admission::default()
    };
    let (stage, room) = limited(1, |builder| builder.admission(bounds)).await;
    let worker = stage.open().await;
    let calls: Vec<_> = (0..=1024).map(|_| begin(&worker, "acts", "a")).collect();
    received(&worker, 1025).await;
    let error = worker.call("acts", at("b")).await.unwrap_err();
    assert_eq!(error.code(), Code::Busy);
    let message = "`acts` runs at most 1 calls at once, and 1024 calls are already waiting \
                   (`ToolSpec::max_concurrent_calls`); try again later";
    assert_eq!(error.message(), message);
    room.open();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    worker.call("acts", at("b")).await.unwrap();
}

#[tokio::test]
async fn call_that_waits_for_a_person_has_no_slot() {
    let (stage, room) = limited(1, |builder| builder.approver(Deferred)).await;
    room.open();
    let asking = Policy::new().allow("read:file").ask("write:file");
    let worker = stage.worker(asking).await;
    for tool in ["writes", "acts"] {
        let asked = worker.begin(Call::new(tool, at("a"))).await.unwrap();
        let CallProgress::Pending(pending) = asked else {
            panic!("nobody is asked");
        };
        stage.open().await.call(tool, at("b")).await.unwrap();
        stage.answer(&pending, Answer::ONCE).await;
        let ended = pending.resume().await.unwrap();
        assert!(matches!(ended, CallProgress::Ended(_)));
    }
}
