//! Tests of actors that die, of working directories, and of spawns that are dropped.
#![expect(clippy::disallowed_methods, reason = "tests create files directly")]

use std::pin::pin;
use std::task::Poll;

use serde_json::{Value, json};

use super::spawn::DIRECTORY_TTL;
use crate::budget::Budget;
use crate::id::CallId;
use crate::monitor::{EventKind, Events};
use crate::permission::{CallOutcome, History, HistoryEvent};
use crate::{Code, MemoryAudit, Policy, Runtime, ToolSet, WorkerSpec};
use hold::Hold;

/// A runtime with the tool `hold`.
pub(crate) async fn runtime(audit: &MemoryAudit) -> (Runtime, Hold, tempfile::TempDir) {
    let root = tempfile::tempdir().unwrap();
    let hold = Hold::default();
    let builder = Runtime::builder()
        .root("r", root.path())
        .tools(ToolSet::new().reader(hold.clone()));
    let (runtime, _) = builder.audit(audit.clone()).build().await.unwrap();
    (runtime, hold, root)
}

/// Waits until a worker is restarted. Until then, calls reach the dead actor.
pub(crate) async fn restarted(events: &mut Events) {
    while events.recv().await.unwrap().kind != EventKind::WorkerRestarted {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_worker_fails_open_calls_and_restarts_with_same_authority() {
    let audit = MemoryAudit::new(1000);
    let (runtime, hold, _root) = runtime(&audit).await;
    let policy = Policy::new().allow("read:file:/r/a");
    let worker = runtime
        .spawn(WorkerSpec::new("main").policy(policy))
        .await
        .unwrap();
    let child = worker
        .spawn(WorkerSpec::new("child").policy(Policy::new()))
        .await
        .unwrap();
    let call = tokio::spawn({
        let worker = worker.clone();
        async move { worker.call("hold", json!({ "path": "/r/a/wait" })).await }
    });
    hold.holds(1).await;
    let mut events = runtime.events();
    worker.kill_actor();
    assert_eq!(
        call.await.unwrap().unwrap_err().code(),
        Code::WorkerRestarted
    );
    hold.release();
    restarted(&mut events).await;
    let answer = worker.call("hold", json!({ "path": "/r/a/x" })).await;
    assert_eq!(answer.unwrap().text(), "/r/a/x");
    let denied = worker
        .call("hold", json!({ "path": "/r/b" }))
        .await
        .unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    assert!(
        child
            .call("hold", json!({ "path": "/r/a/x" }))
            .await
            .is_ok()
    );
    runtime.flush_audit().await.unwrap();
    let restarted = audit
        .records()
        .iter()
        .filter(|record| record.line().contains("\"restarted\""))
        .count();
    assert_eq!(restarted, 1);
}

#[tokio::test(start_paused = true)]
async fn worker_with_a_single_file_starts_in_the_folder_that_contains_it() {
    let (runtime, _, root) = runtime(&MemoryAudit::new(1000)).await;
    let entry = root.path().join("entry");
    let cwd = async || {
        let policy = Policy::new().allow("read:file:/r/entry");
        let spec = WorkerSpec::new("main").policy(policy);
        let worker = runtime.spawn(spec).await.unwrap();
        worker.cwd().unwrap().to_string()
    };
    // The kernel has cached that it is missing when it is looked up again.
    assert_eq!(cwd().await, "/r/entry");
    assert_eq!(cwd().await, "/r/entry");
    std::fs::write(&entry, "").unwrap();
    assert_eq!(cwd().await, "/r");
    std::fs::remove_file(&entry).unwrap();
    std::fs::create_dir(&entry).unwrap();
    assert_eq!(cwd().await, "/r/entry");
    std::fs::remove_dir(&entry).unwrap();
    std::fs::write(&entry, "").unwrap();
    assert_eq!(cwd().await, "/r/entry", "it was a directory before");
    tokio::time::advance(DIRECTORY_TTL).await;
    assert_eq!(cwd().await, "/r");
}

/// The steps that end a call, as `step CODE`.
fn ends(audit: &MemoryAudit, call: u64) -> Vec<String> {
    let lines = audit.records().into_iter();
    let lines = lines.map(|record| serde_json::from_str::<Value>(record.line()).unwrap());
    let events = lines.map(|line| line["event"].clone());
    let ends = events.filter(|event| {
        let step = event["step"].as_str().unwrap();
        event["call"] == call && matches!(step, "denied" | "failed" | "finished")
    });
    let ends = ends.map(|end| {
        let code = end["code"].as_str().unwrap_or("OK");
        format!("{} {code}", end["step"].as_str().unwrap())
    });
    ends.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_worker_has_one_audited_end_per_open_call() {
    let audit = MemoryAudit::new(1000);
    let (runtime, hold, _root) = runtime(&audit).await;
    let worker = runtime
        .spawn(WorkerSpec::new("main").policy(Policy::new()))
        .await
        .unwrap();
    let call = |path: &str| worker.call("hold", json!({ "path": path }));
    call("done").await.unwrap();
    let (mut waits, mut leaves) = (Box::pin(call("a/wait")), Box::pin(call("b/wait")));
    for call in [&mut waits, &mut leaves] {
        assert!(poll_once_without_budget(call.as_mut()).await.is_pending());
    }
    hold.holds(2).await;
    let mut events = runtime.events();
    worker.kill_actor();
    restarted(&mut events).await;
    // One caller drops its call after the worker died, so no caller receives that result.
    drop(leaves);
    let error = waits.await.unwrap_err();
    assert_eq!(error.code(), Code::WorkerRestarted);
    hold.release();
    runtime.shutdown().await;
    assert_eq!(ends(&audit, 0), ["finished OK"]);
    for call in [1, 2] {
        assert_eq!(
            ends(&audit, call),
            ["failed WORKER_RESTARTED", "finished WORKER_RESTARTED"]
        );
    }
    let mut history = History::new();
    for record in audit.records() {
        history.add(&record).unwrap();
    }
    let failed = history.entries().filter(|entry| match &entry.event {
        HistoryEvent::Call(call) => {
            assert_eq!(call.outcome, CallOutcome::Failed, "{entry:?}");
            matches!(call.call, Some(CallId(1 | 2)))
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(failed.count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeatedly_killed_worker_is_revoked() {
    let audit = MemoryAudit::new(1000);
    let (runtime, _, _root) = runtime(&audit).await;
    let worker = runtime
        .spawn(WorkerSpec::new("main").policy(Policy::new()))
        .await
        .unwrap();
    let mut events = runtime.events();
    // A call starts the actor.
    let mut kill = async || {
        let _ = worker.call("hold", json!({ "path": "x" })).await;
        worker.kill_actor();
        restarted(&mut events).await;
    };
    tokio::select! {
        () = worker.revoked() => {}
        () = async { loop { kill().await } } => {}
    }
    let error = worker
        .call("hold", json!({ "path": "x" }))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Cancelled);
}

/// Polls `future` once, after the cooperative budget of the task is spent, so that it waits where it can.
async fn poll_once_without_budget<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    let mut future = Some(future);
    std::future::poll_fn(|context| {
        while pin!(tokio::task::coop::consume_budget())
            .poll(context)
            .is_ready()
        {}
        Poll::Ready(future.take().unwrap().poll(context))
    })
    .await
}

#[tokio::test]
async fn dropped_spawn_leaves_no_worker_and_uses_no_budget() {
    let audit = MemoryAudit::new(1000);
    let (runtime, _, _root) = runtime(&audit).await;
    let parent = WorkerSpec::new("main").budget(Budget {
        children: Some(1),
        ..Budget::default()
    });
    let parent = runtime.spawn(parent).await.unwrap();
    // The links in the subtrees of a policy are resolved on another thread.
    let child = || WorkerSpec::new("child").policy(Policy::new().root("/r"));
    let mut dropped = Box::pin(parent.spawn(child()));
    assert!(
        poll_once_without_budget(dropped.as_mut())
            .await
            .is_pending()
    );
    drop(dropped);
    assert_eq!(parent.beneath().len(), 0);
    let kept = parent.spawn(child()).await.unwrap();
    assert_eq!(parent.beneath().len(), 1);
    assert!(parent.spawn(child()).await.is_err());
    assert_eq!(parent.revoke().await.workers, 2);
    assert!(kept.status().revoked);
}

/// A tool that holds a thread when its path ends with `wait`.
pub(crate) mod hold {
    use std::sync::{Arc, Condvar, Mutex};

    use serde_json::Value;

    use crate::config::Namespace;
    use crate::tool::{Interrupt, Prepared, ReadPermit};
    use crate::{CallError, ReadTool, Reply, Scope, ToolSpec, Verb, VirtualPath};

    /// How many calls came to wait, and whether they may go on.
    #[derive(Clone, Default)]
    pub(crate) struct Hold(Arc<(Mutex<(usize, bool)>, Condvar)>);

    impl Hold {
        /// Returns once it holds that many calls.
        pub(crate) async fn holds(&self, calls: usize) {
            let hold = self.clone();
            let held = move || {
                let (state, changed) = &*hold.0;
                let waiting = |(held, _): &mut (usize, bool)| *held < calls;
                drop(changed.wait_while(state.lock().unwrap(), waiting).unwrap());
            };
            tokio::task::spawn_blocking(held).await.unwrap();
        }

        pub(crate) fn release(&self) {
            self.0.0.lock().unwrap().1 = true;
            self.0.1.notify_all();
        }

        fn wait(&self) {
            let (state, changed) = &*self.0;
            let mut state = state.lock().unwrap();
            state.0 += 1;
            changed.notify_all();
            let held = |(_, released): &mut (usize, bool)| !*released;
            drop(changed.wait_while(state, held).unwrap());
        }
    }

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    pub(crate) struct Args {
        path: String,
    }

    impl ReadTool for Hold {
        type Args = Args;
        type Output = Value;
        type Job = VirtualPath;

        fn spec(&self) -> ToolSpec {
            ToolSpec::new("hold", "Hold", "Says the path, or waits.")
        }

        fn prepare(
            &self,
            args: Args,
            names: &Namespace,
        ) -> Result<Prepared<VirtualPath>, CallError> {
            let path = names.path(&args.path)?;
            Ok(Prepared {
                needs: vec![Scope::file(Verb::Read, path.clone())],
                job: path,
            })
        }

        fn read(&self, job: &VirtualPath, _: &ReadPermit) -> Result<Reply, Interrupt> {
            if job.as_str().ends_with("wait") {
                self.wait();
            }
            Ok(Reply::text(job.as_str(), Value::Null))
        }
    }
}
