//! The connection to a checked server.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::{Instant, timeout};

use super::checks;
use super::client::{Client, ServerError};
use super::connection::{Connection, Revision};
use super::log::MessageLog;
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
    pub(super) log: Arc<MessageLog>,
}

impl Connected {
    /// Connects to the server, which is started if it is a command, and reads its greeting and lists within the timeout.
    ///
    /// Elicitation requests are cancelled, unless the connection is `interactive`: then the caller finds them in the log
    /// and responds with [`Connected::reply`].
    ///
    /// # Errors
    /// [`ServerError`] if the server cannot be reached.
    pub async fn open(
        target: &Target,
        connection: Connection,
        log: &Arc<MessageLog>,
        interactive: bool,
        within: Duration,
    ) -> Result<Self, ServerError> {
        log.start_connection();
        let deadline = Deadline::after(within);
        let opened = async {
            let client = Client::open(target, log, connection.request_meta(), interactive)?;
            let method = match connection.revision {
                Revision::Handshake => "initialize",
                Revision::Stateless => "server/discover",
            };
            let greeting = connection.begin(&client);
            match deadline.bound_within(Duration::MAX, method, greeting).await {
                Ok(greeting) => Ok(Self {
                    info: ServerInfo::read(&client, greeting, deadline).await,
                    client,
                    connection,
                    log: Arc::clone(log),
                }),
                Err(error) => {
                    client.close().await;
                    Err(error)
                }
            }
        };
        let opened = opened.await;
        log.status("settled");
        opened
    }

    /// The server's greeting and lists.
    #[must_use]
    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// Why the connection has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<ServerError> {
        self.client.ended().map(ServerError::Ended)
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

    /// Runs all checks within the timeout.
    pub async fn checks(&self, within: Duration) -> Vec<Check> {
        match self.ended() {
            None => checks::all(self, Deadline::after(within)).await,
            Some(error) => vec![Check::unreachable(&error)],
        }
    }

    /// Closes the connection, and ends the server if it was started.
    pub async fn close(&self) {
        self.client.close().await;
    }
}

impl std::fmt::Debug for Connected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connected").finish_non_exhaustive()
    }
}
