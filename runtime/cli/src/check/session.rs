//! The one connection to a server that is checked, and its state.

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

/// How long a response may take, but for the first: a program may be slow to start.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// When everything must be done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    pub(super) fn after(within: Duration) -> Self {
        let now = Instant::now();
        // A deadline that the clock cannot represent is a day from now.
        let end = now.checked_add(within);
        Self(end.unwrap_or_else(|| now + Duration::from_secs(86_400)))
    }

    /// What `response` comes to, if it comes in time.
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

/// A server that answered the greeting.
pub struct Connected {
    pub(super) client: Client,
    pub(super) info: ServerInfo,
    pub(super) connection: Connection,
}

impl Connected {
    /// What the server says of itself.
    #[must_use]
    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// Sends a request and waits for the response, an error too, for as long as that takes.
    ///
    /// # Errors
    /// [`ServerError`] if the connection ends before there is a response.
    pub async fn request(
        &self,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<Value, ServerError> {
        self.client.request(method, params).await
    }

    /// Answers a request of the server.
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
    /// It is being made.
    Connecting,
    /// The server answers.
    Ready(Arc<Connected>),
    /// It has ended, for this reason.
    Ended(Arc<Connected>, ServerError),
    /// It could not be made.
    Failed(ServerError),
}

struct Current {
    connection: Connection,
    state: State,
}

/// A server with at most one connection to it, and the log of what goes over it.
pub struct Session {
    target: Target,
    interactive: bool,
    log: Arc<MessageLog>,
    current: Mutex<Current>,
    /// Held while one connection replaces another.
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
    /// A session without a connection. What the server asks people is cancelled.
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

    /// Leaves the requests of the server unanswered until [`Connected::reply`] is called.
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

    /// Ends the connection, if there is one, and connects anew; greeting and lists are read `within` that time.
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

    /// How the connection is.
    pub async fn state(&self) -> State {
        match &self.current.lock().await.state {
            State::Ready(connected) => match connected.client.ended() {
                Some(reason) => State::Ended(Arc::clone(connected), ServerError::Ended(reason)),
                None => State::Ready(Arc::clone(connected)),
            },
            other => other.clone(),
        }
    }

    /// How the connection was made, or is being made.
    pub async fn connection(&self) -> Connection {
        self.current.lock().await.connection.clone()
    }

    /// The server, if it is connected.
    ///
    /// # Errors
    /// [`ServerError`], the reason why it is not.
    pub async fn connected(&self) -> Result<Arc<Connected>, ServerError> {
        match self.state().await {
            State::Connecting => Err(ServerError::NotConnected),
            State::Ready(connected) => Ok(connected),
            State::Ended(_, error) | State::Failed(error) => Err(error),
        }
    }

    /// Makes every check of the server that is connected, `within` that time.
    pub async fn checks(&self, within: Duration) -> Vec<Check> {
        match self.connected().await {
            Ok(connected) => checks::all(&connected, &self.log, Deadline::after(within)).await,
            Err(error) => vec![Check::unreachable(&error)],
        }
    }

    /// The messages after the one of that number, as soon as there are any; the oldest of many are left out.
    pub async fn messages_after(&self, seq: u64) -> Vec<Entry> {
        self.log.after(seq).await
    }

    /// The last line of the server's standard error, if it is a process that wrote any.
    #[must_use]
    pub fn last_stderr(&self) -> Option<String> {
        self.log.last_stderr()
    }

    /// Ends the connection, and the server if it was started for it.
    pub async fn close(&self) {
        let _replacing = self.replacing.lock().await;
        let closed = State::Failed(ServerError::NotConnected);
        let state = std::mem::replace(&mut self.current.lock().await.state, closed);
        if let State::Ready(connected) | State::Ended(connected, _) = state {
            connected.client.close().await;
        }
    }
}
