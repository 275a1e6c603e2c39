//! Events and counters of a runtime, for hosts that observe it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::activity::{CallLog, KeepCalls};
use crate::error::Code;
use crate::id::{CallId, GrantId, QuestionId, ToolName, WorkerId};
use crate::permission::{DecidedBy, Decision, RevokeCause};

/// Number of events that a slow reader may lag behind before it loses the oldest.
const CAPACITY: usize = 1024;

/// Something that happened in a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The worker; `None` if it concerns no particular worker.
    pub worker: Option<WorkerId>,
    /// The worker's path of names, such as `main/tests`; empty if it is not known.
    pub agent: Arc<str>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// A worker was started.
    WorkerStarted {
        /// Its parent, unless it is a top-level worker.
        parent: Option<WorkerId>,
        /// Its session.
        session: Arc<str>,
    },
    /// A worker died and was restarted; its calls were answered with `WORKER_RESTARTED`.
    WorkerRestarted,
    /// A worker ended; all its calls are answered.
    WorkerEnded,
    /// A worker was paused: new calls of it and its descendants wait.
    WorkerPaused {
        /// Who paused it.
        by: DecidedBy,
    },
    /// A paused worker was resumed.
    WorkerResumed {
        /// Who resumed it.
        by: DecidedBy,
    },
    /// A call was received. A call that is rejected earlier, for example with `BUSY`, sends only
    /// [`EventKind::CallEnded`].
    CallStarted {
        /// The call.
        call: CallId,
        /// The tool.
        tool: ToolName,
        /// Whether the call only previews a change.
        preview: bool,
    },
    /// A call was answered.
    CallEnded {
        /// The call.
        call: CallId,
        /// The tool.
        tool: ToolName,
        /// Whether the call only previews a change.
        preview: bool,
        /// The code if it was denied or failed.
        code: Option<Code>,
        /// Time since it was admitted, including the time spent waiting for people.
        duration: Duration,
    },
    /// A call waits for the answer to a question. Equal calls share a question.
    QuestionAsked {
        /// The question.
        question: QuestionId,
        /// The call.
        call: Option<CallId>,
        /// The tool.
        tool: Option<ToolName>,
    },
    /// A question ended.
    QuestionAnswered {
        /// The question.
        question: QuestionId,
        /// How it ended.
        decision: Decision,
        /// Who ended it.
        by: Option<DecidedBy>,
    },
    /// A grant that outlives one call was given, or restored from the grant store.
    GrantGiven {
        /// The grant.
        grant: GrantId,
    },
    /// A grant was revoked. Grants that are used up or expire send no event.
    GrantRevoked {
        /// The grant.
        grant: GrantId,
        /// The cause.
        cause: Option<RevokeCause>,
    },
}

/// Why [`Events::recv`] returned no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventsError {
    /// The reader was too slow and lost this many events. The next call continues after them.
    #[error("{0} events were lost because they were read too slowly")]
    Lost(u64),
    /// The runtime has ended.
    #[error("the runtime has ended")]
    Closed,
}

/// Receiver of the events of a runtime, from [`Runtime::events`](crate::Runtime::events).
///
/// It keeps the last 1,024 events that were not read; a slow reader never delays the runtime.
#[derive(Debug)]
pub struct Events {
    receiver: broadcast::Receiver<Event>,
    subscribers: Arc<AtomicUsize>,
}

impl Events {
    /// Waits for the next event. Cancel safe.
    ///
    /// # Errors
    /// [`EventsError::Lost`] if events were lost before the next one; [`EventsError::Closed`] if the runtime has ended.
    pub async fn recv(&mut self) -> Result<Event, EventsError> {
        self.receiver.recv().await.map_err(|error| match error {
            broadcast::error::RecvError::Lagged(lost) => EventsError::Lost(lost),
            broadcast::error::RecvError::Closed => EventsError::Closed,
        })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.subscribers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Counters of a runtime at one instant, from [`Runtime::metrics`](crate::Runtime::metrics). The fields from
/// `succeeded` to `changed_files` are totals, which never decrease; the others are current values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Calls that succeeded, including previews.
    pub succeeded: u64,
    /// Calls that only preview a change and succeeded.
    pub previews: u64,
    /// Calls that were denied or failed, by code; [`Metrics::denied`] and [`Metrics::failed`] are their sums.
    pub errors: BTreeMap<Code, u64>,
    /// Number of times that a call waited for the answer to a question.
    pub asked: u64,
    /// Bytes of content in the results of calls.
    pub returned_bytes: u64,
    /// Bytes that effects wrote, as planned, counted when an effect begins.
    pub written_bytes: u64,
    /// Files and directories that effects changed, as planned, counted when an effect begins.
    pub changed_files: u64,

    /// Live workers.
    pub workers: usize,
    /// Calls in flight, including those that wait for people.
    pub running: u64,
    /// Open questions.
    pub open_questions: usize,
    /// Jobs that wait for an I/O thread.
    pub queued_io: usize,
    /// Policies of calls and workers that wait for a CPU thread.
    pub queued_cpu: usize,
}

impl Metrics {
    /// Returns the number of calls that policies or people denied: those with the codes `SCOPE_REQUIRED`,
    /// `PERMISSION_DENIED`, `POLICY_EXPANSION`, `POLICY_INVALID`, `RATE_LIMITED`, `BUDGET` and `UNKNOWN_TOOL`.
    #[must_use]
    pub fn denied(&self) -> u64 {
        let denied = self.errors.iter().filter(|(code, _)| code.is_denial());
        denied.map(|(_, count)| count).sum()
    }

    /// Returns the number of calls that failed otherwise: those with any other code, such as `NOT_FOUND`, `CANCELLED` or
    /// `STALE_PREVIEW`.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.errors.values().sum::<u64>() - self.denied()
    }
}

/// Counts what happens in a runtime and sends events to the subscribers.
#[derive(Debug, Default)]
pub(crate) struct Monitor {
    /// Number of subscribers. Without subscribers, no event is created.
    subscribers: Arc<AtomicUsize>,
    sender: OnceLock<broadcast::Sender<Event>>,
    calls: OnceLock<CallLog>,
    succeeded: AtomicU64,
    previews: AtomicU64,
    errors: Mutex<BTreeMap<Code, u64>>,
    asked: AtomicU64,
    returned_bytes: AtomicU64,
    written_bytes: AtomicU64,
    changed_files: AtomicU64,
    open_questions: AtomicUsize,
}

impl Monitor {
    pub(crate) fn subscribe(&self) -> Events {
        let sender = self.sender.get_or_init(|| broadcast::Sender::new(CAPACITY));
        let receiver = sender.subscribe();
        self.subscribers.fetch_add(1, Ordering::AcqRel);
        Events {
            receiver,
            subscribers: Arc::clone(&self.subscribers),
        }
    }

    /// Whether there is a subscriber. If not, callers need not create events.
    pub(crate) fn is_watched(&self) -> bool {
        self.subscribers.load(Ordering::Acquire) > 0
    }

    /// Sends an event to the subscribers.
    pub(crate) fn send(&self, event: Event) {
        if let Some(sender) = self.sender.get() {
            // Sending fails if the last subscriber was dropped meanwhile.
            let _ = sender.send(event);
        }
    }

    /// Keeps recent calls from now on.
    pub(crate) fn keep_calls(&self, limits: KeepCalls) {
        // A runtime is built once, so none are kept yet.
        let _ = self.calls.set(CallLog::new(limits));
    }

    /// The record of recent calls, if they are kept.
    pub(crate) fn calls(&self) -> Option<&CallLog> {
        self.calls.get()
    }

    /// Counts the end of a call.
    pub(crate) fn count_end(&self, preview: bool, result: Result<u64, Code>) {
        match result {
            Ok(bytes) => {
                if preview {
                    self.previews.fetch_add(1, Ordering::Relaxed);
                }
                self.succeeded.fetch_add(1, Ordering::Relaxed);
                self.returned_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            Err(code) => *self.errors.lock().entry(code).or_default() += 1,
        }
    }

    pub(crate) fn count_asked(&self, calls: u64) {
        self.asked.fetch_add(calls, Ordering::Relaxed);
    }

    /// Counts an effect that begins.
    pub(crate) fn count_effect(&self, bytes: u64, files: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.changed_files.fetch_add(files, Ordering::Relaxed);
    }

    pub(crate) fn set_open_questions(&self, open: usize) {
        self.open_questions.store(open, Ordering::Relaxed);
    }

    /// The counters, without those of workers and queues.
    pub(crate) fn counters(&self) -> Metrics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Metrics {
            succeeded: read(&self.succeeded),
            previews: read(&self.previews),
            errors: self.errors.lock().clone(),
            asked: read(&self.asked),
            returned_bytes: read(&self.returned_bytes),
            written_bytes: read(&self.written_bytes),
            changed_files: read(&self.changed_files),
            open_questions: self.open_questions.load(Ordering::Relaxed),
            ..Metrics::default()
        }
    }
}
