//! Admission control: limits the calls of a worker. Mailboxes of ractor are unbounded, so calls are limited before they
//! are posted.

use std::any::Any;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use tokio::sync::oneshot;

use super::Shared;
use super::actor::WorkerMsg;
use super::call_table::OpenCall;
use super::prepare::UnparsedCall;
use super::preview_arguments;
use crate::call::{Call, Mode};
use crate::capability::{CallControl, StopReason};
use crate::effect::{Change, Outcome, Preview};
use crate::error::{CallError, Code};
use crate::id::CallId;
use crate::permission::QuestionSender;
use crate::pipeline::CallInfo;
use crate::scope::ScopePattern;

/// Maximum nesting of arguments, the same as for JSON text, so that recursion over them cannot overflow the stack.
pub(super) const MAX_NESTING: usize = 128;

/// Limits on the calls in flight of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Calls in flight, including those that wait for people.
    pub calls: u32,
    /// Approximate bytes that calls in flight occupy: their arguments, their policies, and the plans of their open questions.
    pub bytes: u64,
    /// Concurrent jobs on pool threads.
    pub jobs: u32,
    /// The `retry_after_ms` of rejected calls.
    pub retry_after_ms: u64,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            calls: 256,
            bytes: 64 << 20,
            jobs: 4,
            retry_after_ms: 50,
        }
    }
}

/// Calls in flight and the bytes that they occupy.
#[derive(Debug, Default)]
pub(super) struct Load {
    calls: AtomicU32,
    bytes: AtomicU64,
}

impl Load {
    pub(super) fn calls(&self) -> u32 {
        self.calls.load(Ordering::Acquire)
    }
}

/// A call's share of the worker's limits; released when dropped.
#[derive(Debug)]
pub(super) struct Admitted {
    shared: Arc<Shared>,
    bytes: u64,
    /// How many of them are those of the plan of its question.
    plan: u64,
}

impl Admitted {
    fn new(shared: &Arc<Shared>, bytes: u64) -> Result<Self, CallError> {
        let bounds = shared.core.admission;
        let calls = shared.load.calls.fetch_add(1, Ordering::AcqRel);
        let queued = shared.load.bytes.fetch_add(bytes, Ordering::AcqRel);
        let admitted = Self {
            shared: Arc::clone(shared),
            bytes,
            plan: 0,
        };
        if calls >= bounds.calls || queued.saturating_add(bytes) > bounds.bytes {
            return Err(over_bounds(shared, bytes));
        }
        Ok(admitted)
    }

    /// Charges the plan of its question, in place of that of its previous question.
    pub(super) fn charge_plan(&mut self, bytes: u64) -> Result<(), CallError> {
        let previous = std::mem::replace(&mut self.plan, bytes);
        self.shared.load.bytes.fetch_sub(previous, Ordering::AcqRel);
        self.bytes -= previous;
        self.charge(bytes)
    }

    /// Charges further bytes that the call occupies until it ends, such as its compiled policy.
    pub(super) fn charge(&mut self, bytes: u64) -> Result<(), CallError> {
        let most = self.shared.core.admission.bytes;
        let before = self.shared.load.bytes.fetch_add(bytes, Ordering::AcqRel);
        self.bytes = self.bytes.saturating_add(bytes);
        if before.saturating_add(bytes) > most {
            return Err(over_bounds(&self.shared, self.bytes));
        }
        Ok(())
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.shared.load.calls.fetch_sub(1, Ordering::AcqRel);
        self.shared
            .load
            .bytes
            .fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Result of a call.
#[derive(Debug)]
#[doc(hidden)]
pub enum Done {
    Outcome(Outcome),
    Preview(Box<Preview>),
}

impl Done {
    /// The changes that were made.
    pub(super) fn changes(&self) -> &[Change] {
        match self {
            Self::Outcome(outcome) => &outcome.changes,
            Self::Preview(_) => &[],
        }
    }

    /// Bytes of content in the result.
    pub(super) fn bytes(&self) -> u64 {
        let reply = match self {
            Self::Outcome(outcome) => &outcome.reply,
            Self::Preview(preview) => &preview.reply,
        };
        reply
            .content
            .iter()
            .map(|content| content.len() as u64)
            .sum()
    }
}

/// Options of a call that its metadata does not have.
#[derive(Debug)]
pub(super) struct CallOptions {
    pub(super) mode: Mode,
    /// Arguments of the tool's own type, instead of JSON.
    pub(super) typed: Option<Box<dyn Any + Send>>,
    /// Grants for this call alone, given before it was made.
    pub(super) sent_grants: Vec<ScopePattern>,
    /// Receives each question that the call waits for.
    pub(super) question_tx: Option<QuestionSender>,
    /// Held by a caller that passes the result on.
    pub(super) hold: Option<Arc<ResultHold>>,
}

impl CallOptions {
    pub(super) fn new(mode: Mode) -> Self {
        Self {
            mode,
            typed: None,
            sent_grants: Vec::new(),
            question_tx: None,
            hold: None,
        }
    }
}

/// Lets a large result count as a job of its worker until its caller has passed it on, so that a worker does not read
/// more than its caller can pass on.
#[derive(Debug)]
#[doc(hidden)]
pub struct ResultHold {
    shared: Arc<Shared>,
    /// The call, once it has a large result.
    call: OnceLock<CallId>,
}

impl ResultHold {
    pub(super) fn new(shared: &Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            call: OnceLock::new(),
        })
    }

    /// Begins to count the result of a call.
    pub(super) fn count(&self, call: CallId) {
        // A call ends once, so none is set yet.
        let _ = self.call.set(call);
    }
}

impl Drop for ResultHold {
    fn drop(&mut self) {
        if let Some(call) = self.call.get() {
            self.shared.post(WorkerMsg::PassedOn(*call));
        }
    }
}

pub(super) type ReplySender = oneshot::Sender<Result<Done, CallError>>;

/// Cancels the call when dropped before the answer.
struct Waiter {
    shared: Arc<Shared>,
    call: CallId,
    stop: Arc<CallControl>,
    answered: bool,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if !self.answered {
            self.stop.raise(StopReason::Cancelled);
            self.shared.post(WorkerMsg::Cancel(self.call));
        }
    }
}

/// Admits a call, posts it and waits for its result. Calls that do not reach the call table are audited here.
///
/// The call is admitted before the future is polled, so that the future does not contain its arguments.
pub(super) fn submit(
    shared: &Arc<Shared>,
    mut call: Call,
    mut options: CallOptions,
) -> impl Future<Output = Result<Done, CallError>> + Send {
    if let Some(resolved) = shared.resolve_call(&call) {
        (call.tool, call.arguments) = resolved;
    }
    let previewed = preview_arguments::take(shared, &mut call);
    let shows = matches!(previewed, Ok(true));
    if shows {
        options.mode = Mode::Preview;
    }
    let admitted = admit(shared, call, options, previewed.map(drop));
    async move {
        let done = post(shared, admitted?).await;
        if shows {
            return done.map(preview_arguments::for_model);
        }
        done
    }
}

pub(super) type ReplyReceiver = oneshot::Receiver<Result<Done, CallError>>;

/// Admits a call, unless its preview arguments were invalid; audits its rejection.
pub(super) fn admit(
    shared: &Arc<Shared>,
    call: Call,
    options: CallOptions,
    understood: Result<(), CallError>,
) -> Result<(UnparsedCall, Box<OpenCall>, ReplyReceiver), CallError> {
    let admitted = if shared.gate().is_closed() {
        Err(shared.gate().error())
    } else {
        let measured = understood.and_then(|()| call_size(&call));
        measured.and_then(|bytes| Admitted::new(shared, bytes))
    };
    let Call {
        tool,
        arguments,
        meta,
    } = call;
    let info = Arc::new(CallInfo {
        id: shared.core.next_call(),
        worker: shared.id,
        tool,
        origin: meta.origin,
        mode: options.mode,
        preview_token: meta.preview_token,
        excluded: meta.excluded,
        preview_key: shared.core.preview_key,
        confirm: meta.confirm,
        arguments,
        stop: Arc::new(CallControl::with_progress(meta.progress)),
        requests: meta.requests,
    });
    let admitted = admitted.inspect_err(|error| shared.reject(&info, error))?;
    let (reply_tx, answer) = oneshot::channel();
    let mut call = Box::new(OpenCall::new(
        shared,
        &info,
        meta.deadline,
        admitted,
        reply_tx,
    ));
    call.asks = meta.asks;
    call.question_tx = options.question_tx;
    call.hold = options.hold;
    let request = UnparsedCall {
        info,
        typed: options.typed,
        policy: meta.policy,
        sent_grants: options.sent_grants,
    };
    Ok((request, call, answer))
}

/// Posts an admitted call and waits for its result.
async fn post(
    shared: &Arc<Shared>,
    (request, call, answer): (UnparsedCall, Box<OpenCall>, ReplyReceiver),
) -> Result<Done, CallError> {
    let info = Arc::clone(&request.info);
    let mut waiter = Waiter {
        shared: Arc::clone(shared),
        call: info.id,
        stop: Arc::clone(&info.stop),
        answered: false,
    };
    let posted = shared.post_call(WorkerMsg::Call(request, call));
    let answer = if posted { answer.await.ok() } else { None };
    waiter.answered = true;
    answer.unwrap_or_else(|| {
        let error = unanswered(shared);
        shared.reject(&info, &error);
        Err(error)
    })
}

/// The error for a call that its worker did not answer.
pub(super) fn unanswered(shared: &Shared) -> CallError {
    if shared.gate().is_closed() {
        return shared.gate().error();
    }
    let message = "the worker was restarted while the call was in flight; check the current state before you try again";
    CallError::new(Code::WorkerRestarted, message)
}

/// The error for a call of `worker` that finds a bound reached.
pub(super) fn busy(worker: &Shared, reason: &str) -> CallError {
    let error = CallError::new(Code::Busy, format!("{reason}; try again later"));
    error.with("retry_after_ms", worker.core.admission.retry_after_ms)
}

/// The error for a call that occupies `size` bytes and exceeds the limits of its worker.
fn over_bounds(worker: &Shared, size: u64) -> CallError {
    let Admission { calls, bytes, .. } = worker.core.admission;
    if size > bytes {
        let message = format!(
            "the call occupies {size} bytes; all calls of a worker together may occupy {bytes} (`RuntimeBuilder::admission`)"
        );
        return CallError::new(Code::TooLarge, message);
    }
    let reason = format!(
        "the calls of this worker in flight are too many or too large: at most {calls} calls that occupy {bytes} bytes \
         (`RuntimeBuilder::admission`)"
    );
    busy(worker, &reason)
}

/// The error if too many policies wait to be compiled.
pub(super) fn policies_busy(worker: &Shared) -> CallError {
    let reason = "all threads that compile policies are busy and too many policies wait";
    busy(worker, reason)
}

/// The error if no thread is available for work on files.
pub(super) fn threads_busy(worker: &Shared) -> CallError {
    let reason =
        "all threads of the runtime are busy and too many jobs wait (`RuntimeBuilder::io_threads`)";
    busy(worker, reason)
}

/// The error if no thread is available for a tool: the queue is full, or the call waited too long in it.
pub(super) fn tools_busy(worker: &Shared, waited: bool) -> CallError {
    let (threads, queue) = worker.core.tool_pool.bounds();
    let state = if waited {
        "and none became free in time".to_owned()
    } else {
        format!("and {queue} calls wait for one")
    };
    let reason = format!(
        "all {threads} threads for tools are busy {state} (`RuntimeBuilder::tool_threads`)"
    );
    busy(worker, &reason)
}

/// Approximate size of a call in bytes.
fn call_size(call: &Call) -> Result<u64, CallError> {
    let policy = call.meta.policy.as_ref().unwrap_or(&Value::Null);
    let arguments = json_size(&call.arguments, MAX_NESTING);
    let both = arguments.zip(json_size(policy, MAX_NESTING));
    let nested = || {
        let message = format!("the call nests deeper than {MAX_NESTING} levels");
        CallError::new(Code::InvalidArguments, message)
    };
    both.map(|(arguments, policy)| arguments + policy)
        .ok_or_else(nested)
}

/// Approximate size of a value in bytes; `None` if it nests deeper than `levels`.
pub(super) fn json_size(value: &Value, levels: usize) -> Option<u64> {
    let within = levels.checked_sub(1)?;
    let held = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items
            .iter()
            .map(|item| json_size(item, within))
            .sum::<Option<u64>>()?,
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| Some(key.len() as u64 + json_size(value, within)?))
            .sum::<Option<u64>>()?,
    };
    Some(held + 8)
}
