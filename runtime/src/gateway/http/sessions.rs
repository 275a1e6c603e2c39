//! A handshake in, a session out where there is room for one.

use std::cell::Cell;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::session::{
    ServerSseMessage, SessionId, SessionManager,
};
use tokio::sync::Mutex;

tokio::task_local! {
    /// Whether the request of this task found no room. rmcp answers whatever a manager says with a plain 500.
    static FULL: Cell<bool>;
}

/// When a client that found no room may try again.
const RETRY_AFTER: &str = "30";

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionsError {
    #[error("all {0} sessions are taken")]
    Full(usize),
    #[error(transparent)]
    Local(#[from] LocalSessionManagerError),
}

/// Sessions in memory, bounded in number and ended when they are idle.
#[derive(Debug)]
pub(super) struct Sessions {
    local: LocalSessionManager,
    most: usize,
    /// Held while room is looked for, so that no two find the last one.
    looking: Mutex<()>,
}

impl Sessions {
    pub(super) fn new(most: usize, idle: Duration) -> Self {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(idle);
        Self {
            local,
            most,
            looking: Mutex::default(),
        }
    }
}

/// Says what is wrong to a client whose handshake found no room.
pub(super) async fn seated(request: Request, next: Next) -> Response {
    let answering = async {
        let response = next.run(request).await;
        if !FULL.with(Cell::get) {
            return response;
        }
        (
            StatusCode::SERVICE_UNAVAILABLE,
            [(header::RETRY_AFTER, RETRY_AFTER)],
            "all sessions are taken; end one by DELETE, or wait until one was idle for long enough",
        )
            .into_response()
    };
    FULL.scope(Cell::new(false), answering).await
}

impl SessionManager for Sessions {
    type Error = SessionsError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionsError> {
        let _looking = self.looking.lock().await;
        if self.local.sessions.read().await.len() >= self.most {
            // Outside a request there is nobody to tell.
            let _ = FULL.try_with(|full| full.set(true));
            return Err(SessionsError::Full(self.most));
        }
        Ok(self.local.create_session().await?)
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
        Ok(self.local.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        Ok(self.local.create_stream(id, message).await?)
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionsError> {
        Ok(self.local.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        Ok(self.local.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        Ok(self.local.resume(id, last_event_id).await?)
    }
}
