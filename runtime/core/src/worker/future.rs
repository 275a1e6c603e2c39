//! Calls that run as futures: act tools and calls of third-party servers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::task::AbortHandle;

use super::Shared;
use super::actor::WorkerMsg;
use super::jobs::{Ended, panicked};
use super::tool_slots::ToolSlot;
use crate::capability::{CallControl, Gate};
use crate::error::CallError;
use crate::id::CallId;
use crate::pipeline::{Cleared, Step, Work};

/// Task that a call waits for; dropping it aborts the task.
#[derive(Debug)]
pub(super) struct TaskGuard(AbortHandle);

impl TaskGuard {
    pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task).abort_handle())
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reports the end of the task to the worker when dropped.
struct Report {
    shared: Arc<Shared>,
    call: CallId,
    ended: Option<Ended>,
}

impl Report {
    fn end(mut self, ended: Ended) {
        self.ended = Some(ended);
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let ended = self.ended.take();
        let ended = ended.unwrap_or_else(|| Ended::Done(Err(panicked())));
        let ended = WorkerMsg::FutureEnded(self.call, Box::new(ended));
        // A worker that has ended has answered the call.
        self.shared.post(ended);
    }
}

/// Polls `call` while all of `gates` are open, then drops it. The caller holds their passes, so a revocation waits until
/// it is dropped.
pub(super) async fn while_open<T, E: From<CallError>>(
    gates: &[Arc<Gate>],
    stop: &CallControl,
    mut call: Pin<Box<dyn Future<Output = Result<T, E>> + Send>>,
) -> Result<T, E> {
    let closed = gates.iter().map(|gate| Box::pin(gate.closed()));
    let mut closed: Vec<_> = closed.collect();
    std::future::poll_fn(|context| {
        for (gate, closed) in gates.iter().zip(&mut closed) {
            if closed.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(stop.with_effect(gate.error()).into()));
            }
        }
        let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(context)));
        polled.unwrap_or_else(|_| Poll::Ready(Err(stop.with_effect(panicked()).into())))
    })
    .await
}

impl Shared {
    /// Starts a call that runs as a future.
    pub(super) fn start(
        self: &Arc<Self>,
        call: CallId,
        step: Step<Cleared>,
        slot: Option<ToolSlot>,
    ) -> TaskGuard {
        let report = Report {
            shared: Arc::clone(self),
            call,
            ended: None,
        };
        TaskGuard::spawn(async move {
            // A local variable is dropped after the future of the tool, also if the task is aborted.
            let slot = slot;
            let ended = report.shared.run_future(step).await;
            drop(slot);
            report.end(ended);
        })
    }

    async fn run_future(self: &Arc<Self>, step: Step<Cleared>) -> Ended {
        match step.work() {
            Work::Act(job) => Ended::Done(self.act(step, job).await),
            Work::Remote(job, permit) => {
                let carried = self.carry(&step, job, permit).await;
                Ended::of(step, carried)
            }
            // These calls run on pool threads.
            Work::Read(..) | Work::Write(..) => Ended::Done(Err(panicked())),
        }
    }

    /// Runs `work`, which waits for the audit, on a blocking thread.
    pub(super) async fn waiting_for_audit(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<(), CallError> + Send + 'static,
    ) -> Result<(), CallError> {
        let shared = Arc::clone(self);
        let written = tokio::task::spawn_blocking(move || work(&shared));
        written.await.unwrap_or_else(|_| Err(panicked()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::{CloseReason, passes};
    use crate::error::Code;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Waker};

    #[test]
    fn future_is_not_polled_after_its_gate_is_closed() {
        let gates = [Arc::<Gate>::default(), Arc::default()];
        let steps = Arc::new(AtomicUsize::new(0));
        let context = &mut Context::from_waker(Waker::noop());
        let call = {
            let (gates, steps) = (gates.clone(), Arc::clone(&steps));
            Box::pin(std::future::poll_fn(
                move |_| -> Poll<Result<(), CallError>> {
                    steps.fetch_add(1, Ordering::SeqCst);
                    // A concurrent revocation would wait.
                    for gate in &gates {
                        let idle = std::pin::pin!(gate.idle());
                        let context = &mut Context::from_waker(Waker::noop());
                        assert!(idle.poll(context).is_pending());
                    }
                    Poll::Pending
                },
            ))
        };
        let stop = CallControl::default();
        let mut call = Box::pin(async {
            let _passes = passes(&gates)?;
            while_open(&gates, &stop, call).await
        });
        assert!(call.as_mut().poll(context).is_pending());
        assert!(call.as_mut().poll(context).is_pending());
        gates[1].close(CloseReason::GrantRevoked);
        let Poll::Ready(Err(error)) = call.as_mut().poll(context) else {
            panic!("the call goes on");
        };
        assert_eq!(error.code(), Code::Cancelled);
        assert_eq!(error.details()["cause"], "grant_revoked");
        assert_eq!(steps.load(Ordering::SeqCst), 2);
        assert!(std::pin::pin!(gates[1].idle()).poll(context).is_ready());
    }
}
