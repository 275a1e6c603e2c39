//! Tests of the threads of file tools and of other tools.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bailiwick::config::Namespace;
use bailiwick::tool::{Interrupt, Prepared, ReadPermit};
use bailiwick::{
    Call, CallError, CallMeta, Code, Outcome, Policy, ReadTool, Reply, Runtime, Scope, ToolSet,
    ToolSpec, Verb, VirtualPath, Worker, WorkerSpec,
};
use tokio::task::JoinHandle;

use super::at;
use bailiwick_test_support::tools::{Gather, Hangs, Latch, Said, Target, said};

/// Hangs like [`Hangs`], for at most as long as its timeout.
struct Limited(Latch);

impl ReadTool for Limited {
    type Args = Target;
    type Output = Said;
    type Job = <Hangs as ReadTool>::Job;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("limited", "Hang", "Hangs.").timeout(Duration::from_millis(50))
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<Self::Job>, CallError> {
        Hangs(self.0.clone()).prepare(args, names)
    }

    fn read(&self, job: &Self::Job, _: &ReadPermit) -> Result<Reply, Interrupt> {
        self.0.wait();
        Ok(said(job))
    }
}

/// Works for a fifth of its timeout, then needs another path, in each round.
struct Rounds(AtomicUsize);

impl ReadTool for Rounds {
    type Args = Target;
    type Output = Said;
    type Job = VirtualPath;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("rounds", "Ask", "Asks again and again.").timeout(Duration::from_millis(100))
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
        let (needs, job) = (Vec::new(), names.path(&args.path)?);
        Ok(Prepared { needs, job })
    }

    fn read(&self, path: &VirtualPath, _: &ReadPermit) -> Result<Reply, Interrupt> {
        std::thread::sleep(Duration::from_millis(20));
        let round = self.0.fetch_add(1, Ordering::SeqCst);
        let next = path.join(&round.to_string()).unwrap();
        Err(Interrupt::Needs(vec![Scope::file(Verb::Read, next)]))
    }
}

/// A runtime with one thread for tools and one for files, and a latch at which `hangs` and `limited` wait.
async fn runtime() -> (Runtime, Latch, tempfile::TempDir) {
    let (latch, root) = (Latch::default(), tempfile::tempdir().unwrap());
    let own = ToolSet::new()
        .reader(Hangs(latch.clone()))
        .reader(Limited(latch.clone()))
        .reader(Rounds(AtomicUsize::new(0)));
    let builder = Runtime::builder()
        .root("r", root.path())
        .tools(ToolSet::new().reader(Gather).for_files())
        .tools(own);
    let built = builder.tool_threads(1).io_threads(1).build().await;
    (built.unwrap().0, latch, root)
}

async fn worker(runtime: &Runtime, name: &str) -> Worker {
    let spec = WorkerSpec::new(name).policy(Policy::new());
    runtime.spawn(spec).await.unwrap()
}

fn hang(worker: &Worker, deadline: Duration) -> JoinHandle<Result<Outcome, CallError>> {
    let meta = CallMeta {
        deadline: Some(deadline),
        ..CallMeta::default()
    };
    let (worker, call) = (worker.clone(), Call::new("hangs", at("a")).meta(meta));
    tokio::spawn(async move { worker.submit(call).await })
}

const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn timeout_of_a_file_tool_limits_its_calls() {
    let (latch, root) = (Latch::default(), tempfile::tempdir().unwrap());
    let builder = Runtime::builder()
        .root("r", root.path())
        .tools(ToolSet::new().reader(Limited(latch.clone())).for_files());
    let (runtime, _) = builder.build().await.unwrap();
    let worker = worker(&runtime, "limited").await;
    let call = worker.call("limited", at("a"));
    let ended = tokio::time::timeout(Duration::from_secs(10), call).await;
    latch.open();
    let error = ended.expect("the call has no time limit").unwrap_err();
    assert_eq!(error.code(), Code::Deadline);
}

#[tokio::test]
async fn slow_tools_do_not_delay_file_tools() {
    let (runtime, latch, _root) = runtime().await;
    let slow = worker(&runtime, "slow").await;
    let hung = hang(&slow, LONG);
    latch.wait_for(1).await;
    let queued = hang(&slow, LONG);
    let other = worker(&runtime, "other").await;
    let paths = serde_json::json!({ "paths": ["a"] });
    other.call("gather", paths).await.unwrap();
    assert_eq!(latch.arrived(), 1);
    latch.open();
    hung.await.unwrap().unwrap();
    queued.await.unwrap().unwrap();
    assert_eq!(latch.arrived(), 2);
}

#[tokio::test]
async fn busy_error_names_the_thread_limit_and_its_setting() {
    let (runtime, latch, _root) = runtime().await;
    let slow = worker(&runtime, "slow").await;
    let hung = hang(&slow, LONG);
    latch.wait_for(1).await;
    let queued = hang(&slow, Duration::from_millis(20));
    let error = queued.await.unwrap().unwrap_err();
    assert_eq!(error.code(), Code::Busy);
    let message = "all 1 threads for tools are busy and none became free in time (`RuntimeBuilder::tool_threads`); try \
                   again later";
    assert_eq!(error.message(), message);
    latch.open();
    hung.await.unwrap().unwrap();
    hang(&slow, LONG).await.unwrap().unwrap();
}

#[tokio::test]
async fn call_fails_at_the_timeout_of_its_tool() {
    let (runtime, latch, _root) = runtime().await;
    let worker = worker(&runtime, "one").await;
    let error = worker.call("limited", at("a")).await.unwrap_err();
    assert_eq!(error.code(), Code::Deadline);
    latch.open();
    let outcome = worker.call("limited", at("a")).await.unwrap();
    assert_eq!(outcome.text(), "/r/a");
}

#[tokio::test]
async fn time_of_a_call_does_not_begin_again_with_each_round_of_its_tool() {
    let (runtime, _, _root) = runtime().await;
    let worker = worker(&runtime, "one").await;
    // All rounds together take longer than the timeout, a single round does not.
    let error = worker.call("rounds", at("a")).await.unwrap_err();
    assert_eq!(error.code(), Code::Deadline);
}
