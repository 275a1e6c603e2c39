//! The message log, with faults of messages.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::Value;

use super::message::Validator;
use super::report::shortened;

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
    /// The source.
    pub side: Side,
    /// The message; a string if it is text.
    pub message: Value,
    /// How it violates MCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
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
    last: u64,
    validator: Validator,
    faults: Faults,
    last_stderr: Option<String>,
}

type Observer = Box<dyn Fn(Entry) + Send + Sync>;

/// The log of all messages of one or more connections. It keeps no messages, but passes them on.
#[derive(Default)]
pub struct MessageLog {
    state: Mutex<State>,
    observer: Option<Observer>,
}

impl fmt::Debug for MessageLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageLog").finish_non_exhaustive()
    }
}

impl MessageLog {
    /// Creates a log that calls `observer` with each entry, in order.
    pub fn observed(observer: impl Fn(Entry) + Send + Sync + 'static) -> Self {
        Self {
            observer: Some(Box::new(observer)),
            ..Self::default()
        }
    }

    /// Starts the log of another connection.
    pub(super) fn start_connection(&self) {
        {
            let mut state = self.state();
            *state = State {
                last: state.last,
                ..State::default()
            };
        }
        self.status("connecting");
    }

    pub(super) fn message(&self, side: Side, message: &Value) {
        let mut state = self.state();
        let fault = state.validator.fault(side == Side::Sent, message);
        self.add(state, side, message, fault);
    }

    /// Logs received data that is not a message.
    pub(super) fn invalid(&self, text: String, fault: String) {
        self.add(self.state(), Side::Received, &text.into(), Some(fault));
    }

    pub(super) fn stderr(&self, line: String) {
        let mut state = self.state();
        if !line.is_empty() {
            state.last_stderr = Some(line.clone());
        }
        self.add(state, Side::Stderr, &line.into(), None);
    }

    pub(super) fn status(&self, status: &str) {
        self.add(self.state(), Side::State, &status.into(), None);
    }

    fn add(
        &self,
        mut state: MutexGuard<'_, State>,
        side: Side,
        message: &Value,
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
        // The state is still locked, which keeps the order.
        if let Some(observer) = &self.observer {
            observer(Entry {
                seq,
                side,
                message: message.clone(),
                fault,
            });
        }
    }

    /// The faults in the messages from the server of this connection.
    pub(super) fn faults(&self) -> Faults {
        self.state().faults.clone()
    }

    /// The last line that the server of this connection wrote to its standard error, unless it was empty.
    pub(crate) fn last_stderr(&self) -> Option<String> {
        self.state().last_stderr.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
