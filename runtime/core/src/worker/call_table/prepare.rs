//! Calls with a policy of their own: compiled and judged on the CPU pool, one per worker at a time.

use std::sync::Arc;
use std::time::Duration;

use super::{CallTable, JudgeCause, OpenCall, PoolKind, Stage};
use crate::error::CallError;
use crate::id::CallId;
use crate::pipeline::{Judged, Parsed, Step};
use crate::policy::Limits;
use crate::worker::Shared;
use crate::worker::actor::WorkerMsg;
use crate::worker::jobs;
use crate::worker::prepare::UnparsedCall;

/// A call whose own policy was compiled.
#[derive(Debug)]
pub(crate) struct CompiledCall {
    judged: Judged,
    limits: Limits,
    /// Approximate size of its policy in bytes.
    size: u64,
}

impl CompiledCall {
    /// Compiles the policy of a call and judges it; only on pool threads. `since_previous` is the time since the previous call.
    fn of(
        request: UnparsedCall,
        shared: &Shared,
        since_previous: Option<Duration>,
    ) -> Result<Self, CallError> {
        let stop = Arc::clone(&request.info.stop);
        stop.check()?;
        let step = request.prepare(shared, since_previous)?;
        stop.check()?;
        Ok(Self {
            limits: *step.limits(),
            size: step.policy_size() as u64,
            judged: shared.judge(step),
        })
    }
}

impl CallTable {
    pub(in crate::worker) fn prepared(
        &mut self,
        id: CallId,
        prepared: Result<CompiledCall, CallError>,
    ) {
        self.compiling.take_if(|compiling| *compiling == id);
        match (self.take_finished(id), prepared) {
            (Some((Stage::Preparing(None), mut call)), Ok(prepared)) => {
                call.limit_to(&prepared.limits);
                match call.admitted.charge(prepared.size) {
                    Ok(()) => self.judged(id, prepared.judged, JudgeCause::Changed, call),
                    Err(error) => self.answer(id, call, Err(error)),
                }
            }
            (Some((Stage::Preparing(None), call)), Err(error)) => {
                self.answer(id, call, Err(error));
            }
            (other, _) => self.reinsert(id, other),
        }
        self.compile_next();
        self.start_runnable();
    }

    /// A call was judged again under its own policy.
    pub(in crate::worker) fn judged_again(&mut self, id: CallId, judged: Judged) {
        self.compiling.take_if(|compiling| *compiling == id);
        match self.take_finished(id) {
            Some((Stage::Judging(None, cause), call)) => self.judged(id, judged, cause, call),
            other => self.reinsert(id, other),
        }
        self.compile_next();
        self.start_runnable();
    }

    /// Submits the next policy to the pool, unless one of this worker is being compiled.
    pub(super) fn compile_next(&mut self) {
        while self.compiling.is_none()
            && let Some(id) = self.policies.pop_front()
        {
            match self.calls.remove(&id) {
                Some((Stage::Preparing(Some(request)), call)) => {
                    self.start_preparing(id, request, call);
                }
                Some((Stage::Judging(Some(step), cause), call)) => {
                    self.start_judging(id, step, cause, call);
                }
                other => self.reinsert(id, other),
            }
        }
    }

    fn start_preparing(&mut self, id: CallId, request: UnparsedCall, call: Box<OpenCall>) {
        let (shared, since_previous) = (Arc::clone(&self.shared), call.since_previous);
        let work = move || {
            let prepared =
                jobs::catch_panic(|| CompiledCall::of(request, &shared, since_previous), Err);
            shared.post(WorkerMsg::Prepared(id, Box::new(prepared)));
        };
        self.submit_policy(id, Stage::Preparing(None), call, work);
    }

    fn start_judging(
        &mut self,
        id: CallId,
        step: Step<Parsed>,
        cause: JudgeCause,
        call: Box<OpenCall>,
    ) {
        let shared = Arc::clone(&self.shared);
        let work = move || {
            let judged = jobs::catch_panic(|| shared.judge(step), Judged::Rejected);
            shared.post(WorkerMsg::Judged(id, Box::new(judged)));
        };
        self.submit_policy(id, Stage::Judging(None, cause), call, work);
    }

    fn submit_policy(
        &mut self,
        id: CallId,
        stage: Stage,
        call: Box<OpenCall>,
        work: impl FnOnce() + Send + 'static,
    ) {
        let handed = self.shared.core.cpu.submit(None, &self.shared.lost, work);
        self.compiling = handed.is_ok().then_some(id);
        self.submitted(id, stage, call, PoolKind::Cpu, handed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use crate::budget::Budget;
    use crate::call::{Call, CallMeta};
    use crate::error::{CallError, Code};
    use crate::host::Runtime;
    use crate::monitor::{EventKind, Events};
    use crate::permission::{Answer, Deferred, Question};
    use crate::policy::Policy;
    use crate::worker::call_table::tests::{needs_read, occupied};
    use crate::worker::{Worker, WorkerSpec};

    async fn runtime() -> Runtime {
        Runtime::builder().build().await.unwrap().0
    }

    async fn worker(runtime: &Runtime, name: &str) -> Worker {
        let spec = WorkerSpec::new(name).policy(Policy::new());
        runtime.spawn(spec).await.unwrap()
    }

    /// Calls a tool that does not exist, which is found out after the policy is compiled.
    async fn call(worker: &Worker, meta: CallMeta) -> CallError {
        let call = Call::new("absent", json!({})).meta(meta);
        worker.submit(call).await.unwrap_err()
    }

    fn with_policy(deadline: Option<Duration>) -> CallMeta {
        CallMeta {
            policy: Some(json!({ "deny": ["*.key"] })),
            deadline,
            ..CallMeta::default()
        }
    }

    #[tokio::test]
    async fn deadline_applies_while_a_policy_waits_for_compilation() {
        let runtime = runtime().await;
        let worker = worker(&runtime, "one").await;
        let threads = occupied(&worker.shared.core.cpu);
        let soon = Duration::from_millis(20);
        let refused = call(&worker, with_policy(Some(soon))).await;
        assert_eq!(refused.code(), Code::Deadline);
        drop(threads);
        let found_out = call(&worker, with_policy(None)).await;
        assert_eq!(found_out.code(), Code::UnknownTool, "{found_out}");
    }

    #[tokio::test]
    async fn call_with_policy_is_judged_on_the_pool_after_approval() {
        let root = tempfile::tempdir().unwrap();
        let builder = needs_read(&root).approver(Deferred);
        let (runtime, grants) = builder.build().await.unwrap();
        let worker = runtime.spawn(WorkerSpec::new("one")).await.unwrap();
        let asking = |meta: CallMeta| {
            let (worker, call) = (worker.clone(), Call::new("look", json!({ "path": "a" })));
            let submitted = async move { worker.submit(call.meta(meta)).await };
            tokio::spawn(submitted)
        };
        let open = async || {
            let only = |open: &[Question]| match open {
                [question] => Some(question.id),
                _ => None,
            };
            grants.broker().wait_for_questions(only).await
        };
        let call_of_policy = asking(with_policy(None));
        let question = open().await;
        let threads = occupied(&worker.shared.core.cpu);
        grants.answer(question, Answer::ONCE).await.unwrap();
        // A call without a policy is judged by the actor, after the answer that came before it.
        let other = asking(CallMeta::default());
        let question = open().await;
        assert_eq!(worker.shared.core.cpu.queued(), 1);
        grants.answer(question, Answer::ONCE).await.unwrap();
        assert_eq!(other.await.unwrap().unwrap().text(), "planned");
        assert!(!call_of_policy.is_finished());
        drop(threads);
        assert_eq!(call_of_policy.await.unwrap().unwrap().text(), "planned");
    }

    #[tokio::test]
    async fn call_with_confirm_and_no_policy_is_judged_without_the_cpu_pool() {
        let root = tempfile::tempdir().unwrap();
        let (runtime, _) = needs_read(&root).build().await.unwrap();
        let spec = WorkerSpec::new("one").policy(Policy::inherit());
        let worker = runtime.spawn(spec).await.unwrap();
        let threads = occupied(&worker.shared.core.cpu);
        let meta = CallMeta {
            confirm: true,
            ..CallMeta::default()
        };
        let call = Call::new("look", json!({ "path": "a" })).meta(meta);
        assert_eq!(worker.submit(call).await.unwrap().text(), "planned");
        drop(threads);
    }

    #[tokio::test]
    async fn rate_limited_call_with_policy_is_not_charged() {
        let root = tempfile::tempdir().unwrap();
        let (runtime, _) = needs_read(&root).build().await.unwrap();
        let budget = Budget {
            calls: Some(2),
            ..Budget::default()
        };
        let spec = WorkerSpec::new("one").policy(Policy::inherit());
        let worker = runtime.spawn(spec.budget(budget)).await.unwrap();
        let look = async |interval: u64| {
            let meta = CallMeta {
                policy: Some(json!({ "min_interval_ms": interval })),
                ..CallMeta::default()
            };
            let call = Call::new("look", json!({ "path": "a" })).meta(meta);
            worker.submit(call).await.map_err(|error| error.code())
        };
        let hour = 3_600_000;
        for (interval, code) in [
            (0, None),
            (hour, Some(Code::RateLimited)),
            (hour, Some(Code::RateLimited)),
            (0, None),
            (0, Some(Code::Budget)),
        ] {
            assert_eq!(look(interval).await.err(), code);
        }
    }

    #[tokio::test]
    async fn policies_of_one_worker_do_not_delay_other_workers() {
        let runtime = runtime().await;
        let flooding = worker(&runtime, "flooding").await;
        let other = worker(&runtime, "other").await;
        let threads = occupied(&other.shared.core.cpu);
        let flood = |worker: &Worker, calls: u32| -> Vec<_> {
            let spawn = |_| {
                let worker = worker.clone();
                tokio::spawn(async move { call(&worker, with_policy(None)).await })
            };
            (0..calls).map(spawn).collect()
        };
        let started = async |mut events: Events, calls: usize| {
            for _ in 0..calls {
                let event = events.recv().await.unwrap();
                assert!(matches!(event.kind, EventKind::CallStarted { .. }));
            }
        };
        let events = runtime.events();
        let mut calls = flood(&flooding, 50);
        started(events, 50).await;
        // Messages are read in order, so all of the others were read before this one is answered.
        call(&flooding, CallMeta::default()).await;
        assert_eq!(other.shared.core.cpu.queued(), 1);
        let events = runtime.events();
        calls.extend(flood(&other, 1));
        started(events, 1).await;
        call(&other, CallMeta::default()).await;
        assert_eq!(other.shared.core.cpu.queued(), 2);
        drop(threads);
        for call in calls {
            assert_eq!(call.await.unwrap().code(), Code::UnknownTool);
        }
    }
}
