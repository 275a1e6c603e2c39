//! A call that is not answered yet, and the resources that it holds.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::Span;

use super::Submitted;
use crate::call::Asks;
use crate::capability::StopReason;
use crate::error::CallError;
use crate::id::CallId;
use crate::permission::QuestionSender;
use crate::pipeline::CallInfo;
use crate::policy::Limits;
use crate::scope::Scope;
use crate::worker::Shared;
use crate::worker::actor::WorkerMsg;
use crate::worker::admission::{Admitted, Done, ReplySender, ResultHold};
use crate::worker::deadline::DeadlineGuard;
use crate::worker::future::TaskGuard;
use crate::worker::path_locks::PathLockGuard;
use crate::worker::tool_slots::ToolSlot;

/// A call that is not answered yet, and the resources that it holds.
pub(crate) struct OpenCall {
    pub(in crate::worker) info: Arc<CallInfo>,
    /// Tracing span of the call; disabled without a subscriber, and until the worker takes the call from its mailbox.
    pub(super) span: Span,
    reply_tx: ReplySender,
    /// Time since the previous call.
    pub(super) since_previous: Option<Duration>,
    /// When the call was admitted.
    pub(super) admitted_at: Instant,
    /// Time limit of its work; waiting for people does not count.
    pub(super) limit: Duration,
    pub(super) deadline_guard: Option<DeadlineGuard>,
    /// Its job, once it was submitted to a pool.
    pub(super) job: Option<Submitted>,
    /// Whether a thread for tools has run one of its jobs.
    pub(super) started: bool,
    /// Its slot of its tool, if the tool limits its concurrent calls, until its job takes it.
    pub(super) slot: Option<ToolSlot>,
    /// Its path locks, from its turn among the writes until its job takes them.
    pub(super) path_lock: Option<PathLockGuard>,
    /// Its lookup of grants or its open question.
    pub(super) asking: Option<TaskGuard>,
    pub(in crate::worker) asks: Asks,
    /// Receives each question that the call waits for.
    pub(in crate::worker) question_tx: Option<QuestionSender>,
    /// Held until the caller has passed the result on.
    pub(in crate::worker) hold: Option<Arc<ResultHold>>,
    pub(super) admitted: Admitted,
}

impl fmt::Debug for OpenCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenCall")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

impl OpenCall {
    /// A call that was admitted now. `deadline` is its own time limit.
    pub(in crate::worker) fn new(
        shared: &Shared,
        info: &Arc<CallInfo>,
        deadline: Option<Duration>,
        admitted: Admitted,
        reply_tx: ReplySender,
    ) -> Self {
        Self {
            info: Arc::clone(info),
            span: Span::none(),
            reply_tx,
            since_previous: None,
            admitted_at: Instant::now(),
            limit: shared.core.limit(deadline),
            deadline_guard: None,
            job: None,
            started: false,
            slot: None,
            path_lock: None,
            asking: None,
            asks: Asks::default(),
            question_tx: None,
            hold: None,
            admitted,
        }
    }

    /// Limits the call to the lifetime in its own policy.
    pub(super) fn limit_to(&mut self, limits: &Limits) {
        let life = Duration::from_millis(limits.ttl_ms);
        if life < self.limit {
            self.limit = life.saturating_sub(self.admitted_at.elapsed());
            self.deadline_guard = None;
        }
    }

    /// Answers the call.
    pub(super) fn finish(self, shared: &Shared, result: Result<Done, CallError>) {
        self.finish_with(shared, result, None);
    }

    /// Answers the call; `allowed` are its needs if its verdict is not recorded yet. Its share of the limits is released first,
    /// so that the caller can make the next call at once.
    pub(super) fn finish_with(
        self,
        shared: &Shared,
        result: Result<Done, CallError>,
        allowed: Option<Arc<[Scope]>>,
    ) {
        drop((self.admitted, self.slot));
        shared.answer(&self.info, self.reply_tx, self.admitted_at, result, allowed);
    }

    /// Stops the deadline. The time that is left is the limit of the further work.
    pub(super) fn suspend_deadline(&mut self) {
        if let Some(deadline) = self.deadline_guard.take() {
            self.limit = deadline.left();
        }
    }

    /// Starts the deadline of the call, unless it runs already.
    pub(super) fn start_deadline(&mut self, id: CallId, shared: &Arc<Shared>) {
        if self.deadline_guard.is_none() {
            // The time of a file tool begins with the call; that of another tool when a thread or task runs it.
            if let Some(entry) = shared.tool(self.info.tool.as_str())
                && entry.spec.for_files
                && let Some(timeout) = entry.spec.timeout
            {
                self.limit = self.limit.min(timeout);
            }
            let (worker, stop) = (Arc::clone(shared), Arc::clone(&self.info.stop));
            stop.set_deadline_in(self.limit);
            self.deadline_guard = Some(shared.core.deadlines.arm(self.limit, move || {
                // The job sees that it is stopped at its next checkpoint, even while the mailbox is busy.
                stop.raise(StopReason::Expired);
                worker.post(WorkerMsg::Expired(id));
            }));
        }
    }
}
