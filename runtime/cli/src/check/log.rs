//! The message log, with faults of messages.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

use super::message::Validator;
use super::report::shortened;

/// The maximum number and total size of entries.
const MAX_ENTRIES: usize = 2_000;
const MAX_BYTES: usize = 32 << 20;
/// The maximum number of faults kept as text.
const MAX_FAULTS: usize = 20;

/// The source of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Side {
    /// The client sent it.
    Sent,
    /// The server sent it.
    Received,
    /// The server wrote it to its standard error.
    #[serde(rename = "said")]
    Stderr,
    /// The state of the connection changed.
    State,
}

/// A log entry.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Entry {
    /// Its number, from 1.
    pub seq: u64,
    /// When it was made, in milliseconds since the log started.
    pub at_ms: u64,
    /// The source.
    pub side: Side,
    /// The message; a string if it is text.
    pub message: Value,
    /// How it violates MCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    #[serde(skip)]
    bytes: usize,
}

/// The faults in the messages of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// The first faults, with the numbers of their messages.
    pub(super) first: Vec<String>,
    /// The number of faults, and of messages.
    pub(super) count: usize,
    pub(super) messages: usize,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
    bytes: usize,
    last: u64,
    validator: Validator,
    faults: Faults,
}

/// A log of all messages.
pub(super) struct MessageLog {
    state: Mutex<State>,
    last: watch::Sender<u64>,
    started: Instant,
}

impl MessageLog {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            last: watch::Sender::new(0),
            started: Instant::now(),
        }
    }

    /// Starts the log of another connection.
    pub(super) fn start_connection(&self) {
        {
            let mut state = self.state();
            state.validator = Validator::default();
            state.faults = Faults::default();
        }
        self.status("connecting");
    }

    pub(super) fn message(&self, side: Side, message: &Value) {
        let mut state = self.state();
        let fault = state.validator.fault(side == Side::Sent, message);
        self.add(state, side, message.clone(), fault);
    }

    /// Logs received data that is not a message.
    pub(super) fn invalid(&self, text: String, fault: String) {
        self.add(self.state(), Side::Received, text.into(), Some(fault));
    }

    pub(super) fn stderr(&self, line: String) {
        self.add(self.state(), Side::Stderr, line.into(), None);
    }

    pub(super) fn status(&self, status: &str) {
        self.add(self.state(), Side::State, status.into(), None);
    }

    fn add(
        &self,
        mut state: MutexGuard<'_, State>,
        side: Side,
        message: Value,
        fault: Option<String>,
    ) {
        let fault = fault.map(|fault| shortened(&fault));
        state.last += 1;
        let seq = state.last;
        if matches!(side, Side::Sent | Side::Received) {
            state.faults.messages += 1;
        }
        if let (Side::Received, Some(fault)) = (side, &fault) {
            state.faults.count += 1;
            if state.faults.first.len() < MAX_FAULTS {
                let fault = format!("message {seq}: {fault}");
                state.faults.first.push(fault);
            }
        }
        let bytes = message.to_string().len();
        let entry = Entry {
            seq,
            at_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            side,
            message,
            fault,
            bytes,
        };
        state.bytes += bytes;
        state.entries.push_back(entry);
        while state.entries.len() > MAX_ENTRIES || state.bytes > MAX_BYTES {
            let Some(oldest) = state.entries.pop_front() else {
                break;
            };
            state.bytes -= oldest.bytes;
        }
        self.last.send_replace(seq);
    }

    /// Waits for entries after `seq`.
    pub(super) async fn after(&self, seq: u64) -> Vec<Entry> {
        let mut last = self.last.subscribe();
        // The sender is a field of this log, so it is not dropped.
        let _ = last.wait_for(|last| *last > seq).await;
        let state = self.state();
        let newer = state.entries.iter().filter(|entry| entry.seq > seq);
        newer.cloned().collect()
    }

    /// The faults in the messages from the server of this connection.
    pub(super) fn faults(&self) -> Faults {
        self.state().faults.clone()
    }

    /// The last line that the server wrote to its standard error.
    pub(super) fn last_stderr(&self) -> Option<String> {
        let state = self.state();
        let mut lines = state.entries.iter().rev().take_while(|entry| {
            // Earlier lines are from processes of earlier connections.
            entry.side != Side::State || entry.message != "connecting"
        });
        let line = lines.find(|entry| {
            entry.side == Side::Stderr
                && entry.message.as_str().is_some_and(|line| !line.is_empty())
        });
        line?.message.as_str().map(str::to_owned)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
