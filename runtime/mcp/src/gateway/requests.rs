//! Open requests of a connection.
//!
//! rmcp identifies requests by id: a second request with an open id would get the answer of the first, and the answer
//! to a cancelled request would go to the next one with its id. So an id stays in use until the handler has answered,
//! also if the client cancelled the request and the answer is dropped.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::model::{
    ClientNotification, ClientRequest, ErrorData, GetExtensions, JsonRpcMessage, JsonRpcRequest,
    NumberOrString, ProtocolVersion, ServerResult,
};
use rmcp::service::{RequestContext, RxJsonRpcMessage, TxJsonRpcMessage};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::message::RejectedMessage;

/// Maximum number of open requests per client.
pub(super) const MAX_OPEN: usize = 256;

/// Maximum bytes of the answers of a client's batches that are kept until their batch is sent.
pub(super) const MAX_COLLECTED_BYTES: usize = 16 << 20;

/// State of a request that its handler can see, in the request's extensions.
#[derive(Clone, Debug)]
struct RequestHandle {
    /// Cancelled when the answer is no longer needed.
    stop: CancellationToken,
    /// The client was initialized before it sent the request.
    initialized: bool,
}

/// A request that is not answered yet.
#[derive(Debug)]
pub(super) struct OpenRequest {
    stop: CancellationToken,
    /// The client cancelled it, so it gets no answer.
    pub(super) cancelled: bool,
    /// It stays open until it is cancelled.
    is_subscription: bool,
    /// Its answer is being passed to the transport.
    is_answering: bool,
    /// The batch that it belongs to.
    batch: Option<Batch>,
}

impl OpenRequest {
    /// The answers to send when the connection ends before the request; none if other requests of its batch are open.
    pub(super) fn fail(self, id: NumberOrString, error: Vec<u8>) -> Option<Vec<u8>> {
        let error = (!self.cancelled).then_some(error);
        match self.batch {
            Some(batch) => batch.end(Some(id), error)?.take_array(),
            None => error,
        }
    }
}

/// The answers to a batch. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Batch(Arc<Mutex<BatchAnswers>>);

#[derive(Debug)]
struct BatchAnswers {
    collected: CollectedAnswers,
    /// Number of pending answers.
    waiting: usize,
}

impl Batch {
    pub(super) fn new(open: &OpenRequests) -> Self {
        let collected = open.collect();
        Self(Arc::new(Mutex::new(BatchAnswers {
            collected,
            waiting: 0,
        })))
    }

    /// Adds an answer that belongs to no open request; `id` is that of its message.
    pub(super) fn add(&self, id: Option<NumberOrString>, text: Vec<u8>) {
        self.0.lock().collected.add(id, text);
    }

    /// Adds the answer to a request, unless the request gets no answer. Returns the answers if none is pending.
    fn end(&self, id: Option<NumberOrString>, text: Option<Vec<u8>>) -> Option<CollectedAnswers> {
        let mut answers = self.0.lock();
        if let Some(text) = text {
            answers.collected.add(id, text);
        }
        answers.waiting = answers.waiting.saturating_sub(1);
        drop(answers);
        self.whole()
    }

    /// The answers if none is pending.
    pub(super) fn whole(&self) -> Option<CollectedAnswers> {
        let mut answers = self.0.lock();
        let is_whole = answers.waiting == 0;
        is_whole.then(|| answers.collected.take())
    }
}

/// Answers of a batch. They count as open requests, and their bytes toward a limit, until this is dropped.
#[derive(Debug)]
pub(super) struct CollectedAnswers {
    connection: Weak<RequestsInner>,
    messages: Vec<Vec<u8>>,
    requests: usize,
    bytes: usize,
}

impl CollectedAnswers {
    /// Adds the answer to the message `id`, or an error if the answers of the client's batches have too many bytes.
    pub(super) fn add(&mut self, id: Option<NumberOrString>, mut text: Vec<u8>) {
        if let Some(open) = OpenRequests::of(&self.connection) {
            let mut state = open.0.state.lock();
            if state.unsent_bytes.saturating_add(text.len()) > MAX_COLLECTED_BYTES {
                text = too_many_bytes(id).encode();
            }
            state.unsent += 1;
            state.unsent_bytes += text.len();
            self.requests += 1;
            self.bytes += text.len();
        }
        self.messages.push(text);
    }

    /// Takes the answers, and leaves none.
    fn take(&mut self) -> Self {
        let connection = Weak::clone(&self.connection);
        std::mem::replace(self, Self::empty(connection))
    }

    fn empty(connection: Weak<RequestsInner>) -> Self {
        Self {
            connection,
            messages: Vec::new(),
            requests: 0,
            bytes: 0,
        }
    }

    /// The array of the answers, which still count; `None` if there are none.
    pub(super) fn take_array(&mut self) -> Option<Vec<u8>> {
        let messages = std::mem::take(&mut self.messages);
        (!messages.is_empty()).then(|| array(&messages))
    }
}

impl Drop for CollectedAnswers {
    fn drop(&mut self) {
        if let Some(open) = OpenRequests::of(&self.connection) {
            let mut state = open.0.state.lock();
            state.unsent -= self.requests;
            state.unsent_bytes -= self.bytes;
            drop(state);
            open.0.answered.notify_waiters();
        }
    }
}

/// The error in place of an answer that exceeds [`MAX_COLLECTED_BYTES`].
pub(super) fn too_many_bytes(id: Option<NumberOrString>) -> RejectedMessage {
    let reason = format!(
        "the answer is omitted: the answers to batches have at most {MAX_COLLECTED_BYTES} bytes until they are sent; a \
         call may have been made"
    );
    let error = ErrorData::internal_error(reason, Some(json!({"code": "TOO_LARGE"})));
    RejectedMessage::new(id, error)
}

/// A JSON array of these texts.
fn array(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut array = vec![b'['];
    array.extend_from_slice(&messages.join(&b','));
    array.push(b']');
    array
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<NumberOrString, OpenRequest>,
    /// When the last id was released, or the wait for the last answers began. It is `None` before that.
    last_release: Option<Instant>,
    /// When the client last sent something, or got an answer. It is `None` before that.
    last_used: Option<Instant>,
    /// Number of answers of batches that are being collected, or wait for queue space with their batch.
    unsent: usize,
    /// Bytes of these answers.
    unsent_bytes: usize,
    initialized: bool,
    /// The negotiated revision has batches.
    batches: bool,
}

impl State {
    fn note_release(&mut self) {
        self.last_used = Some(Instant::now());
        if let Some(last) = &mut self.last_release {
            *last = Instant::now();
        }
    }
}

/// The open requests of a connection. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenRequests(Arc<RequestsInner>);

#[derive(Debug, Default)]
pub(super) struct RequestsInner {
    state: Mutex<State>,
    /// Notified when a request was answered.
    answered: Notify,
}

impl OpenRequests {
    /// The open requests of a connection, if it still exists.
    pub(super) fn of(shared: &Weak<RequestsInner>) -> Option<Self> {
        shared.upgrade().map(Self)
    }

    pub(super) fn downgrade(&self) -> Weak<RequestsInner> {
        Arc::downgrade(&self.0)
    }

    /// Registers a request unless its id is in use or too many are open. The returned token is cancelled when the
    /// answer is no longer needed.
    ///
    /// An error about an id in use does not have that id, since it would be taken for the answer to the request that
    /// has it.
    pub(super) fn begin(
        &self,
        request: &mut JsonRpcRequest<ClientRequest>,
        batch: Option<&Batch>,
    ) -> Result<CancellationToken, RejectedMessage> {
        let mut state = self.0.state.lock();
        if state.open.contains_key(&request.id) {
            let error = ErrorData::invalid_request("this request id is still in use", None);
            return Err(RejectedMessage::new(None, error));
        }
        if state.open.len() + state.unsent >= MAX_OPEN {
            let reason = format!("at most {MAX_OPEN} requests may wait for their answers");
            let data = json!({"code": "BUSY", "retry_after_ms": 100});
            let error = ErrorData::invalid_request(reason, Some(data));
            return Err(RejectedMessage::new(Some(request.id.clone()), error));
        }
        if matches!(request.request, ClientRequest::InitializeRequest(_)) {
            // A notification before the handshake does not end it.
            state.initialized = false;
        }
        let stop = CancellationToken::new();
        request.request.extensions_mut().insert(RequestHandle {
            stop: stop.clone(),
            initialized: state.initialized,
        });
        let open = OpenRequest {
            stop: stop.clone(),
            cancelled: false,
            is_answering: false,
            batch: batch.cloned(),
            is_subscription: matches!(
                request.request,
                ClientRequest::SubscriptionsListenRequest(_)
            ),
        };
        state.open.insert(request.id.clone(), open);
        drop(state);
        if let Some(batch) = batch {
            batch.0.lock().waiting += 1;
        }
        Ok(stop)
    }

    /// Registers a request like [`OpenRequests::begin`], after waiting for an answer with its id that is being sent.
    /// The client may have read that answer before the transport returns.
    pub(super) async fn begin_after_answer(
        &self,
        request: &mut JsonRpcRequest<ClientRequest>,
    ) -> Result<CancellationToken, RejectedMessage> {
        loop {
            let answered = self.0.answered.notified();
            let is_answering = |open: &OpenRequest| open.is_answering;
            if !self
                .0
                .state
                .lock()
                .open
                .get(&request.id)
                .is_some_and(is_answering)
            {
                return self.begin(request, None);
            }
            answered.await;
        }
    }

    /// Keeps the id of an answer in use until the guard is dropped.
    pub(super) fn answer(&self, message: &TxJsonRpcMessage<RoleServer>) -> Option<AnswerGuard> {
        self.record_revision(message);
        let id = answered_id(message)?.clone();
        self.0.state.lock().open.get_mut(&id)?.is_answering = true;
        let open = self.clone();
        Some(AnswerGuard { open, id })
    }

    /// Handles cancellations and `initialized`; returns whether the service should see the message.
    ///
    /// Cancellations are not passed on: rmcp would drop the request and its answer, and it would be unknown when the id
    /// is free.
    pub(super) fn on_message(&self, message: &RxJsonRpcMessage<RoleServer>) -> bool {
        let JsonRpcMessage::Notification(notification) = message else {
            return true;
        };
        match &notification.notification {
            ClientNotification::CancelledNotification(cancelled) => {
                if let Some(id) = &cancelled.params.request_id
                    && let Some(open) = self.0.state.lock().open.get_mut(id)
                {
                    open.cancelled = true;
                    open.stop.cancel();
                }
                false
            }
            ClientNotification::InitializedNotification(_) => {
                self.0.state.lock().initialized = true;
                true
            }
            _ => true,
        }
    }

    /// Records that the client uses the connection.
    pub(super) fn note_use(&self) {
        self.0.state.lock().last_used = Some(Instant::now());
    }

    /// How long to wait until the connection can have been idle for the time `idle`; zero if it has been. It is not idle
    /// while requests are open.
    pub(super) fn until_idle(&self, idle: Duration) -> Duration {
        let mut state = self.0.state.lock();
        if !state.open.is_empty() {
            return idle;
        }
        let last_used = *state.last_used.get_or_insert_with(Instant::now);
        idle.saturating_sub(last_used.elapsed())
    }

    /// Whether a request with this id is open.
    pub(super) fn is_open(&self, id: &NumberOrString) -> bool {
        self.0.state.lock().open.contains_key(id)
    }

    /// Whether the client may send batches.
    pub(super) fn batches(&self) -> bool {
        self.0.state.lock().batches
    }

    /// Records the revision that a handshake negotiated.
    fn record_revision(&self, message: &TxJsonRpcMessage<RoleServer>) {
        if let JsonRpcMessage::Response(response) = message
            && let ServerResult::InitializeResult(result) = &response.result
        {
            self.0.state.lock().batches = result.protocol_version == ProtocolVersion::V_2025_03_26;
        }
    }

    /// The id of the request that a message answers; also records the revision that a handshake negotiated.
    pub(super) fn answered(
        &self,
        message: &TxJsonRpcMessage<RoleServer>,
    ) -> Option<NumberOrString> {
        self.record_revision(message);
        answered_id(message).cloned()
    }

    /// Releases an id; `None` if it was not in use.
    pub(super) fn end_id(&self, id: &NumberOrString) -> Option<OpenRequest> {
        let mut state = self.0.state.lock();
        let ended = state.open.remove(id);
        state.note_release();
        drop(state);
        self.0.answered.notify_waiters();
        ended
    }

    /// When the last id was released, but not before the first call, with which the wait for the last answers begins.
    pub(super) fn last_release(&self) -> Instant {
        let mut state = self.0.state.lock();
        *state.last_release.get_or_insert_with(Instant::now)
    }

    /// Adds the answer to a request of a batch, and releases its id. Returns the answers of the batch if none is pending.
    pub(super) fn end_batched(
        &self,
        id: &NumberOrString,
        answer: Option<Vec<u8>>,
    ) -> Option<CollectedAnswers> {
        let mut state = self.0.state.lock();
        let OpenRequest {
            batch, cancelled, ..
        } = state.open.remove(id)?;
        state.note_release();
        // It counts until the answer does, so that the connection does not end in between.
        state.unsent += 1;
        drop(state);
        let answer = answer.filter(|_| !cancelled);
        let whole = batch.and_then(|batch| batch.end(Some(id.clone()), answer));
        self.0.state.lock().unsent -= 1;
        self.0.answered.notify_waiters();
        whole
    }

    /// The answers to a batch, of which there are none yet.
    pub(super) fn collect(&self) -> CollectedAnswers {
        CollectedAnswers::empty(self.downgrade())
    }

    /// Whether the answer to a request is collected for a batch.
    pub(super) fn is_batched(&self, id: &NumberOrString) -> bool {
        let state = self.0.state.lock();
        state.open.get(id).is_some_and(|open| open.batch.is_some())
    }

    /// Cancels subscriptions, which are then answered.
    pub(super) fn stop_listening(&self) {
        let state = self.0.state.lock();
        let subscriptions = state.open.values().filter(|open| open.is_subscription);
        subscriptions.for_each(|open| open.stop.cancel());
    }

    /// Cancels all requests, which are then answered.
    pub(super) fn stop_all(&self) {
        let state = self.0.state.lock();
        state.open.values().for_each(|open| open.stop.cancel());
    }

    /// Waits until a request is answered; `false` if none is open and all answers are in the queue.
    pub(super) async fn next_answered(&self) -> bool {
        let answered = self.0.answered.notified();
        let is_done = {
            let state = self.0.state.lock();
            state.open.is_empty() && state.unsent == 0
        };
        if !is_done {
            answered.await;
        }
        !is_done
    }

    /// Completes when no request is open and all answers are in the queue.
    pub(super) async fn all_answered(&self) {
        while self.next_answered().await {}
    }

    /// Releases all ids.
    pub(super) fn take_all(&self) -> HashMap<NumberOrString, OpenRequest> {
        std::mem::take(&mut self.0.state.lock().open)
    }
}

/// The id of the request that a message answers.
fn answered_id(message: &TxJsonRpcMessage<RoleServer>) -> Option<&NumberOrString> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
    }
}

/// An answer that is being sent; releases its id on drop.
pub(super) struct AnswerGuard {
    open: OpenRequests,
    id: NumberOrString,
}

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        self.open.end_id(&self.id);
    }
}

/// Whether the client was initialized before it sent the request; only then may it be sent requests.
pub(super) fn is_initialized(context: &RequestContext<RoleServer>) -> bool {
    let handle = context.extensions.get::<RequestHandle>();
    handle.is_some_and(|handle| handle.initialized)
}

/// Completes when the client cancels the request, or the connection ends and rmcp handles the request. Other requests are
/// aborted then.
pub(super) async fn request_cancelled(context: &RequestContext<RoleServer>) {
    match context.extensions.get::<RequestHandle>() {
        Some(handle) => tokio::select! {
            () = handle.stop.cancelled() => {}
            () = context.ct.cancelled() => {}
        },
        None => context.ct.cancelled().await,
    }
}
