//! Workers that are killed in, workers that answer again out.

use std::pin::pin;
use std::task::Poll;

use serde_json::json;

use crate::{Budget, Code, MemoryAudit, Policy, Runtime, ToolSet, WorkerSpec};

/// A runtime whose tool `hold` holds its thread until the root's name is asked for elsewhere.
async fn runtime(audit: &MemoryAudit) -> (Runtime, tempfile::TempDir) {
    let root = tempfile::tempdir().unwrap();
    let builder = Runtime::builder()
        .root("r", root.path())
        .tools(ToolSet::new().reader(hold::Hold));
    let (runtime, _) = builder.audit(audit.clone()).build().await.unwrap();
    (runtime, root)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_worker_answers_what_was_in_flight_and_lives_on_with_the_same_authority() {
    let audit = MemoryAudit::new(1000);
    let (runtime, _root) = runtime(&audit).await;
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
        async move { worker.call("hold", json!({ "path": "a/wait" })).await }
    });
    hold::has_begun().await;
    worker.kill_actor();
    assert_eq!(
        call.await.unwrap().unwrap_err().code(),
        Code::WorkerRestarted
    );
    hold::release();
    // Until the supervisor has heard of the death, calls meet the dead actor.
    let answer = loop {
        match worker.call("hold", json!({ "path": "a/x" })).await {
            Err(error) if error.code() == Code::WorkerRestarted => tokio::task::yield_now().await,
            answer => break answer,
        }
    };
    assert_eq!(answer.unwrap().text(), "/r/a/x");
    let denied = worker
        .call("hold", json!({ "path": "b" }))
        .await
        .unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    // The thread that was let go ends by itself.
    while worker.status().lost_threads > 0 {
        tokio::task::yield_now().await;
    }
    assert!(child.call("hold", json!({ "path": "a/x" })).await.is_ok());
    runtime.flush_audit().await.unwrap();
    let restarted = audit
        .records()
        .iter()
        .filter(|record| record.line().contains("\"restarted\""))
        .count();
    assert_eq!(restarted, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_keeps_dying_loses_its_authority() {
    let audit = MemoryAudit::new(1000);
    let (runtime, _root) = runtime(&audit).await;
    let worker = runtime
        .spawn(WorkerSpec::new("main").policy(Policy::new()))
        .await
        .unwrap();
    while !worker.status().revoked {
        worker.kill_actor();
        tokio::task::yield_now().await;
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
async fn a_spawn_that_is_dropped_leaves_no_worker_and_costs_no_child() {
    let audit = MemoryAudit::new(1000);
    let (runtime, _root) = runtime(&audit).await;
    let parent = WorkerSpec::new("main").budget(Budget {
        children: Some(1),
        ..Budget::default()
    });
    let parent = runtime.spawn(parent).await.unwrap();
    let child = || WorkerSpec::new("child");
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
mod hold {
    use std::sync::{Condvar, Mutex};

    use serde_json::Value;

    use crate::{
        CallError, Halt, Namespace, Prepared, ReadPermit, ReadTool, Reply, Scope, ToolSpec, Verb,
        VirtualPath,
    };

    static STATE: Mutex<(bool, bool)> = Mutex::new((false, false));
    static CHANGED: Condvar = Condvar::new();

    pub(super) async fn has_begun() {
        let begun = || {
            drop(
                CHANGED
                    .wait_while(STATE.lock().unwrap(), |(begun, _)| !*begun)
                    .unwrap(),
            )
        };
        tokio::task::spawn_blocking(begun).await.unwrap();
    }

    pub(super) fn release() {
        STATE.lock().unwrap().1 = true;
        CHANGED.notify_all();
    }

    pub(super) struct Hold;

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    pub(super) struct Args {
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

        fn read(&self, job: &VirtualPath, _: &ReadPermit) -> Result<Reply, Halt> {
            if job.as_str().ends_with("wait") {
                let mut state = STATE.lock().unwrap();
                state.0 = true;
                CHANGED.notify_all();
                drop(
                    CHANGED
                        .wait_while(state, |(_, released)| !*released)
                        .unwrap(),
                );
            }
            Ok(Reply::text(job.as_str(), Value::Null))
        }
    }
}
