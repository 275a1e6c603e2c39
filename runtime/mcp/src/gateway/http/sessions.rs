//! Sessions of stateful clients, limited in number, and their open requests.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::session::{
    ServerSseMessage, SessionId, SessionManager,
};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::body::json_error;
use crate::gateway::message::RejectedMessage;
use crate::gateway::requests::{OpenRequests, RequestsInner};

tokio::task_local! {
    /// Response for a rejected request of this task, since rmcp answers all errors of a session manager with 500.
    static REJECTION: RefCell<Option<Response>>;
}

/// `Retry-After` if there are too many sessions, in seconds.
const RETRY_AFTER_SESSIONS: &str = "30";
/// `Retry-After` if there are too many open requests, in seconds.
const RETRY_AFTER_REQUESTS: &str = "1";

/// Error of the session manager.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionsError {
    #[error("a request was rejected")]
    Rejected,
    #[error(transparent)]
    Local(#[from] LocalSessionManagerError),
}

/// Sessions in memory, limited in number and with an idle timeout.
#[derive(Debug)]
pub(super) struct Sessions {
    local: Arc<LocalSessionManager>,
    max_sessions: usize,
    idle: Duration,
    /// Held while a session is created, so that the limit cannot be exceeded.
    creating: Mutex<()>,
    /// Open requests of each live session.
    open: parking_lot::Mutex<HashMap<SessionId, Weak<RequestsInner>>>,
}

impl Sessions {
    pub(super) fn new(max_sessions: usize, idle: Duration) -> Self {
        let mut local = LocalSessionManager::default();
        // rmcp's timeout also ends sessions with open requests.
        local.session_config.keep_alive = None;
        Self {
            local: Arc::new(local),
            max_sessions,
            idle,
            creating: Mutex::default(),
            open: parking_lot::Mutex::default(),
        }
    }

    /// The open requests of a session; `None` if it does not exist.
    pub(super) fn open(&self, id: &SessionId) -> Option<OpenRequests> {
        self.open.lock().get(id).and_then(OpenRequests::of)
    }
}

/// Ends a session once it was idle for the time `idle`.
async fn end_when_idle(
    local: Arc<LocalSessionManager>,
    id: SessionId,
    open: Weak<RequestsInner>,
    idle: Duration,
) {
    while let Some(requests) = OpenRequests::of(&open) {
        let wait = requests.until_idle(idle);
        drop(requests);
        if wait.is_zero() {
            // An error means that it has ended.
            let _ = local.close_session(&id).await;
            return;
        }
        tokio::time::sleep(wait).await;
    }
}

/// The response for a rejected request: without an id, its id is in use; else too many are open.
fn rejection(rejected: RejectedMessage) -> Response {
    if rejected.id.is_none() {
        return json_error(StatusCode::CONFLICT, rejected);
    }
    let mut response = json_error(StatusCode::TOO_MANY_REQUESTS, rejected);
    let after = HeaderValue::from_static(RETRY_AFTER_REQUESTS);
    response.headers_mut().insert(header::RETRY_AFTER, after);
    response
}

fn reject(response: Response) {
    // It fails outside a request.
    let _ = REJECTION.try_with(|refused| refused.replace(Some(response)));
}

/// Transport of a session that tracks open requests.
pub(super) struct TrackedTransport<T> {
    transport: T,
    open: OpenRequests,
    _idle_timeout: AbortOnDropHandle<()>,
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for TrackedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        // The session finds the stream of an answer by its id, so the id stays in use until the answer is sent. The
        // stream of a cancelled request has ended, which drops its answer.
        let answer = self.open.answer(&message);
        let sending = self.transport.send(message);
        async move {
            let sent = sending.await;
            drop(answer);
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.transport.receive().await
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.transport.close().await
    }
}

/// Replaces the response of rejected requests, and of DELETE requests as SDKs expect it.
pub(super) async fn limit_sessions(request: Request, next: Next) -> Response {
    let is_delete = request.method() == Method::DELETE;
    let answering = async {
        let mut response = next.run(request).await;
        if is_delete && response.status() == StatusCode::ACCEPTED {
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        REJECTION.with(RefCell::take).unwrap_or(response)
    };
    REJECTION.scope(RefCell::default(), answering).await
}

impl SessionManager for Sessions {
    type Error = SessionsError;
    type Transport = TrackedTransport<<LocalSessionManager as SessionManager>::Transport>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionsError> {
        let _guard = self.creating.lock().await;
        if self.local.sessions.read().await.len() >= self.max_sessions {
            let reason = "all sessions are taken; end one by DELETE, or wait until one was idle for long enough";
            let headers = [(header::RETRY_AFTER, RETRY_AFTER_SESSIONS)];
            reject((StatusCode::SERVICE_UNAVAILABLE, headers, reason).into_response());
            return Err(SessionsError::Rejected);
        }
        let (id, transport) = self.local.create_session().await?;
        let open = OpenRequests::default();
        let mut all = self.open.lock();
        all.retain(|_, open| open.strong_count() > 0);
        all.insert(id.clone(), open.downgrade());
        let idle = end_when_idle(
            Arc::clone(&self.local),
            id.clone(),
            open.downgrade(),
            self.idle,
        );
        let transport = TrackedTransport {
            transport,
            open,
            _idle_timeout: AbortOnDropHandle::new(tokio::spawn(idle)),
        };
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionsError> {
        Ok(self.local.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionsError> {
        Ok(self.local.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionsError> {
        if !self.local.has_session(id).await? {
            reject((StatusCode::NOT_FOUND, "there is no such session").into_response());
            return Ok(());
        }
        // Otherwise rmcp lets them go on for some seconds, and people could still answer their questions.
        if let Some(open) = self.open(id) {
            open.stop_all();
        }
        Ok(self.local.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        let mut registered = None;
        // Cancelled with the request.
        let mut stop = CancellationToken::new();
        if let (JsonRpcMessage::Request(request), Some(open)) = (&mut message, self.open(id)) {
            stop = open.begin_after_answer(request).await.map_err(|rejected| {
                reject(rejection(rejected));
                SessionsError::Rejected
            })?;
            registered = Some((open, request.id.clone()));
        }
        let stream = self.local.create_stream(id, message).await;
        if let (Err(_), Some((open, request))) = (&stream, registered) {
            open.end_id(&request);
        }
        Ok(stream?.take_until(stop.cancelled_owned()))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionsError> {
        // Messages over other connections may overtake this one. Cancellations are handled here, since the session
        // would end the stream of the next request with that id.
        let open = self.open(id);
        open.iter().for_each(OpenRequests::note_use);
        let passes = open.is_none_or(|open| open.on_message(&message));
        if passes {
            self.local.accept_message(id, message).await?;
        }
        Ok(())
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        self.open(id).iter().for_each(OpenRequests::note_use);
        Ok(self.local.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        self.open(id).iter().for_each(OpenRequests::note_use);
        Ok(self.local.resume(id, last_event_id).await?)
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{JsonRpcRequest, NumberOrString};
    use serde_json::json;

    use super::*;

    /// A session, and the token of its open request 1.
    async fn session(
        sessions: &Sessions,
    ) -> (
        SessionId,
        <Sessions as SessionManager>::Transport,
        CancellationToken,
    ) {
        let (id, transport) = sessions.create_session().await.unwrap();
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        let mut request: JsonRpcRequest<_> = serde_json::from_value(ping).unwrap();
        let open = sessions.open(&id).unwrap();
        let stop = open.begin(&mut request, None).unwrap();
        (id, transport, stop)
    }

    #[tokio::test(start_paused = true)]
    async fn session_with_an_open_request_is_not_idle() {
        let idle = Duration::from_secs(300);
        let sessions = Sessions::new(2, idle);
        let (id, _transport, _stop) = session(&sessions).await;
        let ended = async |sessions: &Sessions| !sessions.has_session(&id).await.unwrap();
        tokio::time::sleep(10 * idle).await;
        assert!(!ended(&sessions).await);

        sessions
            .open(&id)
            .unwrap()
            .end_id(&NumberOrString::Number(1));
        tokio::time::sleep(idle - Duration::from_secs(1)).await;
        assert!(!ended(&sessions).await);
        tokio::time::sleep(idle).await;
        assert!(ended(&sessions).await);
    }

    #[tokio::test]
    async fn deleted_session_cancels_its_open_requests() {
        let sessions = Sessions::new(2, Duration::from_secs(60));
        let (mut stops, mut ids) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let (id, transport, stop) = session(&sessions).await;
            stops.push(stop);
            ids.push((id, transport));
        }
        sessions.close_session(&ids[0].0).await.unwrap();
        let cancelled = stops.iter().map(CancellationToken::is_cancelled);
        assert_eq!(cancelled.collect::<Vec<_>>(), [true, false]);
    }
}
