//! The open requests of one connection, so that each gets one answer and there is a bound on them.
//!
//! rmcp keeps requests by their id: a second request with an id in use takes the answer of the first, and the answer of
//! a cancelled request goes to the next one with its id. So an id stays in use until the handler's answer has come,
//! also when the client cancelled it and the answer is dropped.

use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
#[cfg(feature = "http")]
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

/// How many requests of one client may wait for their answers.
pub(super) const MAX_OPEN: usize = 256;

/// Why a request is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Its id is that of a request that was not answered yet.
    InUse,
    /// Too many requests wait for their answers.
    TooMany,
}

impl Refusal {
    /// The error that the client gets. One about an id in use must not carry that id: it would be taken for the answer
    /// to the request that has it.
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

/// What the transport knows of a request; it travels with the request to its handler.
#[derive(Clone, Debug)]
struct Ticket {
    /// Cancelled once nobody waits for the answer.
    stop: CancellationToken,
    /// The client had ended its handshake before it sent the request.
    initialized: bool,
}

#[derive(Debug)]
struct Open {
    stop: CancellationToken,
    /// The client cancelled it, so it gets no answer.
    cancelled: bool,
    /// It stays open until somebody ends it.
    listens: bool,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<NumberOrString, Open>,
    initialized: bool,
}

/// The open requests of one connection. Cloning it is cheap.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenRequests(Arc<Shared>);

#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Notified when a request was answered.
    answered: Notify,
}

impl OpenRequests {
    /// Those of a connection, if that still lives.
    #[cfg(feature = "http")]
    pub(super) fn of(shared: &Weak<Shared>) -> Option<Self> {
        shared.upgrade().map(Self)
    }

    #[cfg(feature = "http")]
    pub(super) fn downgrade(&self) -> Weak<Shared> {
        Arc::downgrade(&self.0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a request unless its id is in use or too many are open.
    pub(super) fn begin(&self, request: &mut JsonRpcRequest<ClientRequest>) -> Result<(), Refusal> {
        let mut state = self.state();
        if state.open.contains_key(&request.id) {
            return Err(Refusal::InUse);
        }
        if state.open.len() >= MAX_OPEN {
            return Err(Refusal::TooMany);
        }
        let stop = CancellationToken::new();
        request.request.extensions_mut().insert(Ticket {
            stop: stop.clone(),
            initialized: state.initialized,
        });
        let open = Open {
            stop,
            cancelled: false,
            listens: matches!(
                request.request,
                ClientRequest::SubscriptionsListenRequest(_)
            ),
        };
        state.open.insert(request.id.clone(), open);
        Ok(())
    }

    /// Takes note of what a notification says of other requests; whether the service should see it, too.
    ///
    /// A cancellation stops here. rmcp would forget the request and drop its answer, so that nobody knew when its id is
    /// free again.
    pub(super) fn note(&self, message: &RxJsonRpcMessage<RoleServer>) -> bool {
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

    /// Whether a request with this id waits for its answer.
    pub(super) fn is_open(&self, id: &NumberOrString) -> bool {
        self.state().open.contains_key(id)
    }

    /// Frees the id that a message answers, if it is an answer; whether the client gets the message.
    pub(super) fn end(&self, message: &TxJsonRpcMessage<RoleServer>) -> bool {
        let id = match message {
            JsonRpcMessage::Response(response) => &response.id,
            JsonRpcMessage::Error(error) => match &error.id {
                Some(id) => id,
                None => return true,
            },
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => return true,
        };
        self.forget(id)
    }

    /// Frees an id; whether its request may be answered.
    pub(super) fn forget(&self, id: &NumberOrString) -> bool {
        let ended = self.state().open.remove(id);
        self.0.answered.notify_waiters();
        ended.is_none_or(|open| !open.cancelled)
    }

    /// Ends the requests that would otherwise stay open; they are answered.
    pub(super) fn stop_listening(&self) {
        for open in self.state().open.values().filter(|open| open.listens) {
            open.stop.cancel();
        }
    }

    /// Withdraws all requests; they are answered.
    pub(super) fn stop_all(&self) {
        for open in self.state().open.values() {
            open.stop.cancel();
        }
    }

    /// Returns once every request was answered.
    pub(super) async fn all_answered(&self) {
        loop {
            let answered = self.0.answered.notified();
            if self.state().open.is_empty() {
                return;
            }
            answered.await;
        }
    }

    /// Frees all ids; those that were to be answered.
    pub(super) fn take_all(&self) -> Vec<NumberOrString> {
        let open = std::mem::take(&mut self.state().open);
        let waiting = open.into_iter().filter(|(_, open)| !open.cancelled);
        waiting.map(|(id, _)| id).collect()
    }
}

/// Whether the client had ended its handshake before it sent the request; only then may it be asked anything.
pub(super) fn had_handshake(context: &RequestContext<RoleServer>) -> bool {
    let ticket = context.extensions.get::<Ticket>();
    ticket.is_some_and(|ticket| ticket.initialized)
}

/// Returns once nobody waits for the answer of a request: its client cancelled it, or the connection ends.
pub(super) async fn withdrawn(context: &RequestContext<RoleServer>) {
    match context.extensions.get::<Ticket>() {
        Some(ticket) => tokio::select! {
            () = ticket.stop.cancelled() => {}
            () = context.ct.cancelled() => {}
        },
        None => context.ct.cancelled().await,
    }
}

/// A service that also answers the requests whose handlers panic.
#[derive(Clone, Debug)]
pub(super) struct Answering<S>(pub(super) S);

impl<S: Service<RoleServer>> Service<RoleServer> for Answering<S> {
    async fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        let mut handling = pin!(self.0.handle_request(request, context));
        poll_fn(|cx| {
            // Nothing of the future is used after it panicked.
            let polled = catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(cx)));
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
