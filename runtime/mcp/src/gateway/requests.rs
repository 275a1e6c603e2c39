//! Open requests of a connection.
//!
//! rmcp identifies requests by id: a second request with an open id would get the answer of the first, and the answer
//! to a cancelled request would go to the next one with its id. So an id stays in use until the handler has answered,
//! also if the client cancelled the request and the answer is dropped.

use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Weak;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use rmcp::RoleServer;
use rmcp::model::{
    ClientNotification, ClientRequest, ErrorData, GetExtensions, JsonRpcMessage, JsonRpcRequest,
    NumberOrString, ProtocolVersion, ServerConfig, ServerResult,
};
use rmcp::service::{
    NotificationContext, RequestContext, RxJsonRpcMessage, Service, TxJsonRpcMessage,
};
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Maximum number of open requests per client.
pub(super) const MAX_OPEN: usize = 256;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestRefusal {
    /// Its id belongs to an open request.
    InUse,
    /// There are too many open requests.
    TooMany,
}

impl RequestRefusal {
    /// The error for the client. An error about an id in use must not have that id, since it would be taken for the
    /// answer to the request that has it.
    pub(super) fn error(self) -> ErrorData {
        match self {
            Self::InUse => ErrorData::invalid_request("this request id is still in use", None),
            Self::TooMany => {
                let reason = format!("at most {MAX_OPEN} requests may wait for their answers");
                let data = json!({"code": "BUSY", "retry_after_ms": 100});
                ErrorData::invalid_request(reason, Some(data))
            }
        }
    }
}

/// State of a request that its handler can see, in the request's extensions.
#[derive(Clone, Debug)]
struct RequestHandle {
    /// Cancelled when the answer is no longer needed.
    stop: CancellationToken,
    /// The client was initialized before it sent the request.
    initialized: bool,
}

#[derive(Debug)]
struct OpenRequest {
    stop: CancellationToken,
    /// The client cancelled it, so it gets no answer.
    cancelled: bool,
    /// It stays open until it is cancelled.
    is_subscription: bool,
    /// Its answer is being passed to the transport.
    is_answering: bool,
    /// The batch that it belongs to.
    batch: Option<Batch>,
}

/// The answers to a batch. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch(Arc<Mutex<BatchAnswers>>);

#[derive(Debug, Default)]
struct BatchAnswers {
    messages: Vec<Vec<u8>>,
    /// Number of pending answers.
    waiting: usize,
}

impl Batch {
    fn answers(&self) -> MutexGuard<'_, BatchAnswers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an answer that belongs to no request.
    pub(super) fn add(&self, text: Vec<u8>) {
        self.answers().messages.push(text);
    }

    /// Adds the answer to a request, unless the request gets no answer. Returns the array of answers if none
    /// is pending; `None` if it is empty.
    pub(super) fn end(&self, text: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let mut answers = self.answers();
        answers.messages.extend(text);
        answers.waiting = answers.waiting.saturating_sub(1);
        drop(answers);
        self.whole()
    }

    /// The array of answers if none is pending; `None` if it is empty.
    pub(super) fn whole(&self) -> Option<Vec<u8>> {
        let mut answers = self.answers();
        if answers.waiting > 0 || answers.messages.is_empty() {
            return None;
        }
        Some(array(&std::mem::take(&mut answers.messages)))
    }
}

/// A JSON array of these texts.
pub(super) fn array(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut array = vec![b'['];
    array.extend_from_slice(&messages.join(&b','));
    array.push(b']');
    array
}

/// An answered request.
#[derive(Debug)]
pub(super) struct EndedRequest {
    /// The client expects the answer.
    pub(super) is_expected: bool,
    pub(super) batch: Option<Batch>,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<NumberOrString, OpenRequest>,
    initialized: bool,
    /// The negotiated revision has batches.
    batches: bool,
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a request unless its id is in use or too many are open. The returned token is cancelled when the
    /// answer is no longer needed.
    pub(super) fn begin(
        &self,
        request: &mut JsonRpcRequest<ClientRequest>,
        batch: Option<&Batch>,
    ) -> Result<CancellationToken, RequestRefusal> {
        let mut state = self.state();
        if state.open.contains_key(&request.id) {
            return Err(RequestRefusal::InUse);
        }
        if state.open.len() >= MAX_OPEN {
            return Err(RequestRefusal::TooMany);
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
        if let Some(batch) = batch {
            batch.answers().waiting += 1;
        }
        Ok(stop)
    }

    /// Registers a request like [`OpenRequests::begin`], after waiting for an answer with its id that is being sent.
    /// The client may have read that answer before the transport returns.
    pub(super) async fn begin_after_answer(
        &self,
        request: &mut JsonRpcRequest<ClientRequest>,
    ) -> Result<CancellationToken, RequestRefusal> {
        loop {
            let answered = self.0.answered.notified();
            let is_answering = |open: &OpenRequest| open.is_answering;
            if !self.state().open.get(&request.id).is_some_and(is_answering) {
                return self.begin(request, None);
            }
            answered.await;
        }
    }

    /// Keeps the id of an answer in use until the guard is dropped.
    pub(super) fn answer(&self, message: &TxJsonRpcMessage<RoleServer>) -> Option<AnswerGuard> {
        self.record_revision(message);
        let id = answered_id(message)?.clone();
        self.state().open.get_mut(&id)?.is_answering = true;
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
                    && let Some(open) = self.state().open.get_mut(id)
                {
                    open.cancelled = true;
                    open.stop.cancel();
                }
                false
            }
            ClientNotification::InitializedNotification(_) => {
                self.state().initialized = true;
                true
            }
            _ => true,
        }
    }

    /// Whether a request with this id is open.
    pub(super) fn is_open(&self, id: &NumberOrString) -> bool {
        self.state().open.contains_key(id)
    }

    /// Whether the client may send batches.
    pub(super) fn batches(&self) -> bool {
        self.state().batches
    }

    /// Records the revision that a handshake negotiated.
    fn record_revision(&self, message: &TxJsonRpcMessage<RoleServer>) {
        if let JsonRpcMessage::Response(response) = message
            && let ServerResult::InitializeResult(result) = &response.result
        {
            self.state().batches = result.protocol_version == ProtocolVersion::V_2025_03_26;
        }
    }

    /// Releases the id of an answer; `None` if it answers no open request.
    pub(super) fn end(&self, message: &TxJsonRpcMessage<RoleServer>) -> Option<EndedRequest> {
        self.record_revision(message);
        self.end_id(answered_id(message)?)
    }

    /// Releases an id; `None` if it was not in use.
    pub(super) fn end_id(&self, id: &NumberOrString) -> Option<EndedRequest> {
        let ended = self.state().open.remove(id);
        self.0.answered.notify_waiters();
        ended.map(|open| EndedRequest {
            is_expected: !open.cancelled,
            batch: open.batch,
        })
    }

    /// Whether an answer is collected for a batch.
    pub(super) fn is_batched(&self, message: &TxJsonRpcMessage<RoleServer>) -> bool {
        let id = answered_id(message);
        id.is_some_and(|id| {
            let state = self.state();
            state.open.get(id).is_some_and(|open| open.batch.is_some())
        })
    }

    /// Cancels subscriptions, which are then answered.
    pub(super) fn stop_listening(&self) {
        for open in self
            .state()
            .open
            .values()
            .filter(|open| open.is_subscription)
        {
            open.stop.cancel();
        }
    }

    /// Cancels all requests, which are then answered.
    pub(super) fn stop_all(&self) {
        for open in self.state().open.values() {
            open.stop.cancel();
        }
    }

    /// Completes when no request is open.
    pub(super) async fn all_answered(&self) {
        loop {
            let answered = self.0.answered.notified();
            if self.state().open.is_empty() {
                return;
            }
            answered.await;
        }
    }

    /// Releases all ids.
    pub(super) fn take_all(&self) -> Vec<(NumberOrString, EndedRequest)> {
        let open = std::mem::take(&mut self.state().open);
        let ended = open.into_iter().map(|(id, open)| {
            let ended = EndedRequest {
                is_expected: !open.cancelled,
                batch: open.batch,
            };
            (id, ended)
        });
        ended.collect()
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

/// Completes when the client cancels the request or the connection ends.
pub(super) async fn request_cancelled(context: &RequestContext<RoleServer>) {
    match context.extensions.get::<RequestHandle>() {
        Some(handle) => tokio::select! {
            () = handle.stop.cancelled() => {}
            () = context.ct.cancelled() => {}
        },
        None => context.ct.cancelled().await,
    }
}

/// A service that answers requests whose handlers panic.
#[derive(Clone, Debug)]
pub(super) struct CatchPanic<S>(pub(super) S);

impl<S: Service<RoleServer>> Service<RoleServer> for CatchPanic<S> {
    async fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        let mut future = pin!(self.0.handle_request(request, context));
        poll_fn(|cx| {
            // The future is not polled again after a panic.
            let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
            polled.unwrap_or_else(|_| {
                let reason = "the request failed by a fault of the server";
                Poll::Ready(Err(ErrorData::internal_error(reason, None)))
            })
        })
        .await
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.0.handle_notification(notification, context).await
    }

    fn get_info(&self) -> ServerConfig {
        self.0.get_info()
    }

    fn supported_protocol_versions(&self) -> std::borrow::Cow<'static, [ProtocolVersion]> {
        self.0.supported_protocol_versions()
    }
}
