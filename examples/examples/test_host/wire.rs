//! What goes over a wire in; a numbered log of it out, each message with what is wrong with it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

use super::schema::Judge;

/// How many entries are kept, and how many bytes of their text.
const MOST_ENTRIES: usize = 2_000;
const MOST_BYTES: usize = 32 << 20;

/// Where an entry comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    /// The host sent it.
    Sent,
    /// The server sent it.
    Received,
    /// The server wrote it to its standard error.
    Said,
    /// The connection came to this.
    State,
}

/// One entry of the log.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Entry {
    pub(crate) seq: u64,
    /// Since the log began.
    pub(crate) at_ms: u64,
    pub(crate) side: Side,
    /// The message, or text that is none.
    pub(crate) message: Value,
    /// How it differs from what MCP says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault: Option<String>,
    #[serde(skip)]
    bytes: usize,
}

#[derive(Default)]
struct Log {
    entries: VecDeque<Entry>,
    bytes: usize,
    last: u64,
    judge: Judge,
}

/// The log of everything that was sent and received.
pub(crate) struct Wire {
    log: Mutex<Log>,
    last: watch::Sender<u64>,
    began: Instant,
}

impl Wire {
    pub(crate) fn new() -> Self {
        Self {
            log: Mutex::default(),
            last: watch::Sender::new(0),
            began: Instant::now(),
        }
    }

    pub(crate) fn message(&self, side: Side, message: &Value) {
        let mut log = self.log();
        let fault = log.judge.fault(side == Side::Sent, message);
        self.put(log, side, message.clone(), fault);
    }

    pub(crate) fn broken(&self, text: String, fault: String) {
        self.put(self.log(), Side::Received, text.into(), Some(fault));
    }

    pub(crate) fn said(&self, text: String) {
        self.put(self.log(), Side::Said, text.into(), None);
    }

    pub(crate) fn state(&self, state: &str) {
        let mut log = self.log();
        if state == "connecting" {
            log.judge = Judge::default();
        }
        self.put(log, Side::State, state.into(), None);
    }

    fn put(&self, mut log: MutexGuard<'_, Log>, side: Side, message: Value, fault: Option<String>) {
        log.last += 1;
        let bytes = message.to_string().len();
        let entry = Entry {
            seq: log.last,
            at_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            side,
            message,
            fault,
            bytes,
        };
        log.bytes += bytes;
        log.entries.push_back(entry);
        while log.entries.len() > MOST_ENTRIES || log.bytes > MOST_BYTES {
            let Some(oldest) = log.entries.pop_front() else {
                break;
            };
            log.bytes -= oldest.bytes;
        }
        self.last.send_replace(log.last);
    }

    /// The entries after that one, as soon as there is one.
    pub(crate) async fn after(&self, seq: u64) -> Vec<Entry> {
        let mut last = self.last.subscribe();
        // The sender is this wire's own, so it is there as long as anybody waits.
        let _ = last.wait_for(|last| *last > seq).await;
        self.entries(seq)
    }

    pub(crate) fn entries(&self, after: u64) -> Vec<Entry> {
        let log = self.log();
        let newer = log.entries.iter().filter(|entry| entry.seq > after);
        newer.cloned().collect()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
