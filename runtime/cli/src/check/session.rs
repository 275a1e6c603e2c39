//! The connection to a checked server.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::checks;
use super::client::{Client, ServerError};
use super::connection::Connection;
use super::log::{Entry, MessageLog};
use super::report::Check;
use super::server::ServerInfo;
use super::target::Target;

/// The timeout for responses, except for the first one, since a program may be slow to start.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The deadline for all requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    pub(super) fn after(within: Duration) -> Self {
        let now = Instant::now();
        // A day, if the clock cannot represent the deadline.
        let end = now.checked_add(within);
        Self(end.unwrap_or_else(|| now + Duration::from_secs(86_400)))
    }

    /// Waits for `response` until the deadline or the response timeout.
    pub(super) async fn bound<T>(
        self,
        method: &str,
        response: impl Future<Output = Result<T, ServerError>>,
    ) -> Result<T, ServerError> {
        self.bound_within(RESPONSE_TIMEOUT, method, response).await
    }

    async fn bound_within<T>(
        self,
        max: Duration,
        method: &str,
        response: impl Future<Output = Result<T, ServerError>>,
    ) -> Result<T, ServerError> {
        let within = self.0.saturating_duration_since(Instant::now()).min(max);
        if within.is_zero() {
            return Err(ServerError::NoTimeLeft);
        }
        match timeout(within, response).await {
            Ok(response) => response,
            Err(_) => Err(ServerError::Timeout {
                method: method.to_owned(),
                within,
            }),
        }
    }
}

/// A connected server.
pub struct Connected {
    pub(super) client: Client,
    pub(super) info: ServerInfo,
    pub(super) connection: Connection,
}

impl Connected {
    /// The server's greeting and lists.
    #[must_use]
    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// Sends a request and waits for the response, which may be an error, without a timeout.
    ///
    /// # Errors
    /// [`ServerError`] if the connection ends before the response.
    pub async fn request(
        &self,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<Value, ServerError> {
        self.client.request(method, params).await
    }

    /// Responds to a request of the server.
    pub fn reply(&self, id: &Value, result: &Value) {
        self.client.reply(id, result);
    }
}

impl std::fmt::Debug for Connected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connected").finish_non_exhaustive()
    }
}

/// The state of a connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum State {
    /// Connecting.
    Connecting,
    /// Connected.
    Ready(Arc<Connected>),
    /// The connection has ended.
    Ended(Arc<Connected>, ServerError),
    /// The connection failed.
    Failed(ServerError),
}

struct Current {
    connection: Connection,
    state: State,
}

/// A server with at most one connection, and a log of its messages.
pub struct Session {
    target: Target,
    interactive: bool,
    log: Arc<MessageLog>,
    current: Mutex<Current>,
    /// Locked while a connection is replaced.
    replacing: Mutex<()>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Creates a session without a connection. Elicitation requests are cancelled.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            target,
            interactive: false,
            log: Arc::new(MessageLog::new()),
            current: Mutex::new(Current {
                connection: Connection::default(),
                state: State::Failed(ServerError::NotConnected),
            }),
            replacing: Mutex::default(),
        }
    }

    /// Leaves elicitation requests to the caller, who responds with [`Connected::reply`].
    #[must_use]
    pub fn interactive(mut self) -> Self {
        self.interactive = true;
        self
    }

    /// The server.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Closes the connection, if any, and connects again. Reads the greeting and lists within the timeout.
    pub async fn connect(&self, connection: Connection, within: Duration) -> State {
        let _replacing = self.replacing.lock().await;
        self.log.start_connection();
        let before = {
            let mut current = self.current.lock().await;
            current.connection = connection.clone();
            std::mem::replace(&mut current.state, State::Connecting)
        };
        if let State::Ready(before) | State::Ended(before, _) = before {
            before.client.close().await;
        }
        let state = match self.open(connection, Deadline::after(within)).await {
            Ok(connected) => State::Ready(Arc::new(connected)),
            Err(error) => State::Failed(error),
        };
        self.current.lock().await.state = state.clone();
        self.log.status("settled");
        state
    }

    async fn open(
        &self,
        connection: Connection,
        deadline: Deadline,
    ) -> Result<Connected, ServerError> {
        let transport = self.target.open()?;
        let meta = connection.request_meta();
        let client = Client::new(transport, &self.log, meta, self.interactive);
        let method = match connection.revision {
            super::Revision::Handshake => "initialize",
            super::Revision::Stateless => "server/discover",
        };
        let greeting = connection.begin(&client);
        match deadline.bound_within(Duration::MAX, method, greeting).await {
            Ok(greeting) => Ok(Connected {
                info: ServerInfo::read(&client, greeting, deadline).await,
                client,
                connection,
            }),
            Err(error) => {
                client.close().await;
                Err(error)
            }
        }
    }

    /// The state of the connection.
    pub async fn state(&self) -> State {
        match &self.current.lock().await.state {
            State::Ready(connected) => match connected.client.ended() {
                Some(reason) => State::Ended(Arc::clone(connected), ServerError::Ended(reason)),
                None => State::Ready(Arc::clone(connected)),
            },
            other => other.clone(),
        }
    }

    /// The options of the connection.
    pub async fn connection(&self) -> Connection {
        self.current.lock().await.connection.clone()
    }

    /// The server, if it is connected.
    ///
    /// # Errors
    /// [`ServerError`] if it is not connected.
    pub async fn connected(&self) -> Result<Arc<Connected>, ServerError> {
        match self.state().await {
            State::Connecting => Err(ServerError::NotConnected),
            State::Ready(connected) => Ok(connected),
            State::Ended(_, error) | State::Failed(error) => Err(error),
        }
    }

    /// Runs all checks within the timeout.
    pub async fn checks(&self, within: Duration) -> Vec<Check> {
        match self.connected().await {
            Ok(connected) => checks::all(&connected, &self.log, Deadline::after(within)).await,
            Err(error) => vec![Check::unreachable(&error)],
        }
    }

    /// Waits for log entries after `seq`. Old entries may have been dropped.
    pub async fn messages_after(&self, seq: u64) -> Vec<Entry> {
        self.log.after(seq).await
    }

    /// The last line of the server's standard error, if any.
    #[must_use]
    pub fn last_stderr(&self) -> Option<String> {
        self.log.last_stderr()
    }

    /// Closes the connection, and ends the server if it was started.
    pub async fn close(&self) {
        let _replacing = self.replacing.lock().await;
        let closed = State::Failed(ServerError::NotConnected);
        let state = std::mem::replace(&mut self.current.lock().await.state, closed);
        if let State::Ready(connected) | State::Ended(connected, _) = state {
            connected.client.close().await;
        }
    }
}
