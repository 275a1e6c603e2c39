//! An MCP client that logs all messages.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::log::{MessageLog, Side};
use super::message::is_id;
use super::report::shortened;
use super::target::Target;
use super::transport;

/// The maximum number of messages that wait to be sent.
const MAX_OUTGOING: usize = 64;
/// The maximum number of bytes that are kept of an invalid message.
const MAX_INVALID: usize = 4 << 10;

/// Why a request has no result.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The session is not connected yet.
    #[error("the server is not connected")]
    NotConnected,
    /// The program cannot be started.
    #[error("cannot start `{program}`: {cause}")]
    Start {
        /// The program.
        program: String,
        /// Why it cannot be started.
        cause: Arc<io::Error>,
    },
    /// The connection has ended.
    #[error("{0}")]
    Ended(String),
    /// An HTTP request failed, or the answer does not contain the response.
    #[error("{reason}")]
    Http {
        /// The status of the answer, if any.
        status: Option<u16>,
        /// What happened.
        reason: String,
    },
    /// The server does not read its input.
    #[error("the server does not read its input")]
    Congested,
    /// The deadline passed before the response arrived.
    #[error("no response to `{method}` within {:.1} s", .within.as_secs_f32())]
    Timeout {
        /// What was requested.
        method: String,
        /// The timeout.
        within: Duration,
    },
    /// The deadline for all requests has passed.
    #[error("the overall timeout has expired")]
    NoTimeLeft,
    /// The server answered with an error.
    #[error("`{method}` failed with {code}: {message}")]
    Refused {
        /// What was requested.
        method: String,
        /// The code of the error.
        code: i64,
        /// The message of the error.
        message: String,
    },
    /// A response has neither a result nor an error.
    #[error("the response to `{0}` has no result")]
    NoResult(String),
    /// A list exceeds the maximum number of pages or items.
    #[error("`{0}` has too many pages or items")]
    TooLong(String),
}

type PendingRequests = HashMap<i64, oneshot::Sender<Result<Value, ServerError>>>;

/// A client of one server.
pub(super) struct Client {
    inbox: Arc<Inbox>,
    next: AtomicI64,
    /// Added to the `_meta` of each request.
    meta: Map<String, Value>,
    tasks: Mutex<Option<JoinSet<()>>>,
}

/// Handles what the tasks of a connection receive.
pub(super) struct Inbox {
    log: Arc<MessageLog>,
    pending: Mutex<PendingRequests>,
    outgoing: Mutex<Option<mpsc::Sender<Value>>>,
    /// Why the connection has ended.
    ended: Mutex<Option<String>>,
    /// Whether elicitation requests are left for `reply`.
    interactive: bool,
}

impl Client {
    /// Starts the tasks of a connection to `target`.
    pub(super) fn open(
        target: &Target,
        log: &Arc<MessageLog>,
        meta: Map<String, Value>,
        interactive: bool,
    ) -> Result<Self, ServerError> {
        let (outgoing, to_send) = mpsc::channel(MAX_OUTGOING);
        let inbox = Arc::new(Inbox {
            log: Arc::clone(log),
            pending: Mutex::default(),
            outgoing: Mutex::new(Some(outgoing)),
            ended: Mutex::default(),
            interactive,
        });
        let tasks = target.open(to_send, Arc::clone(&inbox))?;
        Ok(Self {
            inbox,
            next: AtomicI64::new(1),
            meta,
            tasks: Mutex::new(Some(tasks)),
        })
    }

    /// Sends a request and waits for its response, which may be an error, without a timeout.
    pub(super) async fn request(
        &self,
        method: &str,
        mut params: Map<String, Value>,
    ) -> Result<Value, ServerError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        if !self.meta.is_empty() {
            let meta = params.entry("_meta").or_insert_with(|| json!({}));
            if let Value::Object(meta) = meta {
                meta.extend(self.meta.clone());
            }
        }
        let (response_tx, response) = oneshot::channel();
        self.inbox.pending().insert(id, response_tx);
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        if let Err(error) = self.inbox.send(message) {
            self.inbox.pending().remove(&id);
            return Err(self.ended().map_or(error, ServerError::Ended));
        }
        match response.await {
            Ok(response) => response,
            Err(_) => Err(self
                .ended()
                .map_or(ServerError::NotConnected, ServerError::Ended)),
        }
    }

    /// Sends a request and waits for its result.
    pub(super) async fn result(
        &self,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<Value, ServerError> {
        let mut response = self.request(method, params).await?;
        if let Some(error) = response.get("error") {
            let message = error.get("message").and_then(Value::as_str);
            return Err(ServerError::Refused {
                method: method.to_owned(),
                code: error
                    .get("code")
                    .and_then(Value::as_i64)
                    .unwrap_or_default(),
                message: shortened(message.unwrap_or_default()),
            });
        }
        let result = response.get_mut("result").map(Value::take);
        result.ok_or_else(|| ServerError::NoResult(method.to_owned()))
    }

    pub(super) fn notify(&self, method: &str) {
        // Requests return the reason if the connection has ended.
        let _ = self.inbox.send(json!({"jsonrpc": "2.0", "method": method}));
    }

    /// Responds to a request of the server.
    pub(super) fn reply(&self, id: &Value, result: &Value) {
        self.inbox.reply(id, "result", result);
    }

    /// The reason why the connection has ended, if it has.
    pub(super) fn ended(&self) -> Option<String> {
        lock(&self.inbox.ended).clone()
    }

    /// Closes the connection, and ends the server if it was started for it.
    pub(super) async fn close(&self) {
        self.inbox.close();
        let tasks = lock(&self.tasks).take();
        if let Some(tasks) = tasks {
            transport::end(tasks).await;
        }
    }
}

impl Inbox {
    pub(super) fn log(&self) -> &MessageLog {
        &self.log
    }

    /// Handles a text that should be a message.
    pub(super) fn on_text(&self, text: &[u8]) {
        match serde_json::from_slice(text) {
            Ok(message) => self.on_message(message),
            Err(error) => self.on_invalid(text, &error),
        }
    }

    /// Logs the beginning of a text that is not JSON.
    pub(super) fn on_invalid(&self, text: &[u8], error: &serde_json::Error) {
        let start = text.get(..MAX_INVALID).unwrap_or(text);
        let start = String::from_utf8_lossy(start).trim_end().to_owned();
        self.log.invalid(start, format!("invalid JSON: {error}"));
    }

    /// Fails a request, perhaps with an HTTP status.
    pub(super) fn on_failure(&self, id: &Value, status: Option<u16>, reason: &str) {
        let reason = shortened(reason);
        let entry = format!("request {id}: {reason}");
        // A response may have arrived before.
        if self.complete(id, Err(ServerError::Http { status, reason })) {
            self.log.status(&entry);
        }
    }

    /// Ends the connection.
    pub(super) fn on_end(&self, reason: &str) {
        let reason = shortened(reason);
        self.log.status(&format!("ended: {reason}"));
        *lock(&self.ended) = Some(reason);
        self.close();
    }

    /// Handles a message.
    pub(super) fn on_message(&self, message: Value) {
        self.log.message(Side::Received, &message);
        let id = message.get("id").cloned().unwrap_or_default();
        match message.get("method").and_then(Value::as_str) {
            None => {
                self.complete(&id, Ok(message));
            }
            // Notifications and requests with an invalid id get no response.
            Some(_) if !is_id(&id) => {}
            Some("ping") => self.reply(&id, "result", &json!({})),
            Some("elicitation/create") if self.interactive => {}
            Some("elicitation/create") => {
                self.reply(&id, "result", &json!({"action": "cancel"}));
            }
            Some(_) => {
                let error = json!({"code": -32601, "message": "the client has no such method"});
                self.reply(&id, "error", &error);
            }
        }
    }

    /// Completes the request with this id; returns `false` if there is none.
    fn complete(&self, id: &Value, response: Result<Value, ServerError>) -> bool {
        let pending = id.as_i64().and_then(|id| self.pending().remove(&id));
        pending.is_some_and(|pending| pending.send(response).is_ok())
    }

    fn reply(&self, id: &Value, key: &str, value: &Value) {
        // The server may have ended or not read its input.
        let _ = self.send(json!({"jsonrpc": "2.0", "id": id, key: value}));
    }

    fn send(&self, message: Value) -> Result<(), ServerError> {
        let outgoing = lock(&self.outgoing);
        let outgoing = outgoing.as_ref().ok_or(ServerError::NotConnected)?;
        let slot = outgoing.try_reserve().map_err(|error| match error {
            mpsc::error::TrySendError::Full(()) => ServerError::Congested,
            mpsc::error::TrySendError::Closed(()) => ServerError::NotConnected,
        })?;
        self.log.message(Side::Sent, &message);
        slot.send(message);
        Ok(())
    }

    fn close(&self) {
        lock(&self.outgoing).take();
        self.pending().clear();
    }

    fn pending(&self) -> MutexGuard<'_, PendingRequests> {
        lock(&self.pending)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
