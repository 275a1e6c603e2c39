//! The server of the page: at most one connection, and the last messages.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex as SyncMutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::{Mutex, watch};

use crate::check::{Connected, Connection, Entry, MessageLog, ServerError, Target};

/// The maximum number and total size of log entries.
const MAX_ENTRIES: usize = 2_000;
const MAX_BYTES: usize = 32 << 20;

/// The state of a connection.
#[derive(Clone)]
pub(super) enum ConnectionState {
    Connecting,
    Connected(Arc<Connected>),
    Failed(ServerError),
}

struct Current {
    connection: Connection,
    state: ConnectionState,
}

/// A server with at most one connection, and a log of its messages.
pub(super) struct Session {
    target: Target,
    log: Arc<MessageLog>,
    entries: Arc<Entries>,
    current: Mutex<Current>,
    /// Locked while a connection is replaced.
    replacing: Mutex<()>,
}

impl Session {
    /// Creates a session without a connection.
    pub(super) fn new(target: Target) -> Self {
        let entries = Arc::new(Entries::new());
        let added = Arc::clone(&entries);
        Self {
            target,
            log: Arc::new(MessageLog::observed(move |entry| added.add(entry))),
            entries,
            current: Mutex::new(Current {
                connection: Connection::default(),
                state: ConnectionState::Failed(ServerError::NotConnected),
            }),
            replacing: Mutex::default(),
        }
    }

    /// How to reach the server.
    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Closes the connection, if any, and connects again. Reads the greeting and lists within the timeout.
    pub(super) async fn connect(&self, connection: Connection, within: Duration) {
        let _replacing = self.replacing.lock().await;
        self.replace(Some(connection.clone()), ConnectionState::Connecting)
            .await;
        let opened = Connected::open(&self.target, connection, &self.log, true, within);
        let state = match opened.await {
            Ok(connected) => ConnectionState::Connected(Arc::new(connected)),
            Err(error) => ConnectionState::Failed(error),
        };
        self.current.lock().await.state = state;
    }

    /// Sets the state, and closes the connection before.
    async fn replace(&self, connection: Option<Connection>, state: ConnectionState) {
        let before = {
            let mut current = self.current.lock().await;
            current.connection = connection.unwrap_or_else(|| current.connection.clone());
            std::mem::replace(&mut current.state, state)
        };
        if let ConnectionState::Connected(connected) = before {
            connected.close().await;
        }
    }

    /// The last line that the server wrote to its standard error.
    pub(super) fn last_stderr(&self) -> Option<String> {
        self.log.last_stderr()
    }

    /// The options and the state of the connection.
    pub(super) async fn state(&self) -> (Connection, ConnectionState) {
        let current = self.current.lock().await;
        (current.connection.clone(), current.state.clone())
    }

    /// The server, if it is connected.
    pub(super) async fn connected(&self) -> Result<Arc<Connected>, ServerError> {
        match self.state().await.1 {
            ConnectionState::Connecting => Err(ServerError::NotConnected),
            ConnectionState::Failed(error) => Err(error),
            ConnectionState::Connected(connected) => connected.ended().map_or(Ok(connected), Err),
        }
    }

    /// Waits for log entries after `seq`. Old entries may have been dropped.
    pub(super) async fn messages_after(&self, seq: u64) -> Vec<LogEntry> {
        self.entries.after(seq).await
    }

    /// Closes the connection, and ends the server if it was started.
    pub(super) async fn close(&self) {
        let _replacing = self.replacing.lock().await;
        let closed = ConnectionState::Failed(ServerError::NotConnected);
        self.replace(None, closed).await;
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = &self.target;
        f.debug_struct("Session")
            .field("target", target)
            .finish_non_exhaustive()
    }
}

/// A log entry with its time.
#[derive(Clone, Serialize)]
pub(super) struct LogEntry {
    #[serde(flatten)]
    entry: Entry,
    /// When it was made, in milliseconds since the log started.
    at_ms: u64,
    #[serde(skip)]
    bytes: usize,
}

/// The last log entries.
struct Entries {
    kept: SyncMutex<(VecDeque<LogEntry>, usize)>,
    last: watch::Sender<u64>,
    started: Instant,
}

impl Entries {
    fn new() -> Self {
        Self {
            kept: SyncMutex::default(),
            last: watch::Sender::new(0),
            started: Instant::now(),
        }
    }

    fn add(&self, entry: Entry) {
        let seq = entry.seq;
        let bytes = entry.message.to_string().len();
        let at_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut kept = self.kept();
        let (entries, total) = &mut *kept;
        entries.push_back(LogEntry {
            entry,
            at_ms,
            bytes,
        });
        *total += bytes;
        while entries.len() > MAX_ENTRIES || *total > MAX_BYTES {
            let Some(oldest) = entries.pop_front() else {
                break;
            };
            *total -= oldest.bytes;
        }
        drop(kept);
        self.last.send_replace(seq);
    }

    async fn after(&self, seq: u64) -> Vec<LogEntry> {
        let mut last = self.last.subscribe();
        // The sender is a field of this value, so it is not dropped.
        let _ = last.wait_for(|last| *last > seq).await;
        let kept = self.kept();
        let newer = kept.0.iter().filter(|kept| kept.entry.seq > seq);
        newer.cloned().collect()
    }

    fn kept(&self) -> MutexGuard<'_, (VecDeque<LogEntry>, usize)> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
