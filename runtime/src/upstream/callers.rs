//! The calls under way at one connection, to which requests of its server belong.
//!
//! A server of a revision with a handshake does not say which call its request is about. So a request belongs to the latest
//! call if all calls under way are of one client, and to none otherwise. A call that was given up counts for a while: the
//! server may not know yet.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::ErrorData;
use tokio::time::Instant;

use super::requests::CallRequests;
use crate::audit::{RequestOutcome, Step};
use crate::path::VirtualPath;
use crate::tool::RemoteContext;

/// How many requests of a server one call may have.
const MAX_REQUESTS: usize = 20;
/// How long requests may be about a call that was given up.
const LINGER: Duration = Duration::from_secs(30);

/// One call at a server.
#[derive(Debug)]
pub(super) struct Caller {
    context: Arc<dyn RemoteContext>,
    requests: Mutex<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    /// How many the server made.
    made: usize,
    /// How many of them wait for a person.
    open: usize,
}

impl Caller {
    pub(super) fn new(context: Arc<dyn RemoteContext>) -> Arc<Self> {
        Arc::new(Self {
            context,
            requests: Mutex::default(),
        })
    }

    fn counts(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who answers; none if only the host does.
    pub(super) fn requests(&self) -> Option<&CallRequests> {
        self.context.requests()
    }

    /// The folders that the call may read.
    pub(super) fn folders(&self) -> Vec<VirtualPath> {
        self.context.folders()
    }

    /// Counts a request, or refuses it.
    pub(super) fn count(&self) -> Result<(), ErrorData> {
        let mut requests = self.counts();
        if requests.made >= MAX_REQUESTS {
            let reason = format!("a call may have at most {MAX_REQUESTS} requests of its server");
            return Err(ErrorData::invalid_request(reason, None));
        }
        requests.made += 1;
        Ok(())
    }

    /// Suspends the deadline of the call until what this returns is dropped.
    pub(super) fn wait(&self) -> Waiting<'_> {
        let mut requests = self.counts();
        requests.open += 1;
        if requests.open == 1 {
            self.context.suspend(true);
        }
        drop(requests);
        Waiting(self)
    }

    pub(super) fn record(
        &self,
        server: &str,
        method: &'static str,
        outcome: RequestOutcome,
        reason: Option<&str>,
    ) {
        self.context.record(Step::ServerRequest {
            server: server.into(),
            method,
            outcome,
            reason: reason.map(Into::into),
        });
    }
}

/// A person is asked for a server.
pub(super) struct Waiting<'c>(&'c Caller);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut requests = self.0.counts();
        requests.open = requests.open.saturating_sub(1);
        if requests.open == 0 {
            self.0.context.suspend(false);
        }
    }
}

/// The calls under way at one connection.
#[derive(Default)]
pub(super) struct Callers(Mutex<Vec<Entry>>);

struct Entry {
    caller: Arc<Caller>,
    id: u64,
    /// Until when requests may be about it, once it was given up.
    until: Option<Instant>,
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers").finish_non_exhaustive()
    }
}

impl Callers {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        entries.retain(|entry| entry.until.is_none_or(|until| now < until));
        entries
    }

    /// Requests may be about `caller` until what this returns is dropped.
    pub(super) fn enter(&self, caller: Arc<Caller>) -> Entered<'_> {
        let mut entries = self.entries();
        let id = entries.last().map_or(0, |last| last.id + 1);
        entries.push(Entry {
            caller,
            id,
            until: None,
        });
        Entered {
            callers: self,
            id,
            answered: false,
        }
    }

    /// All calls that a request may be about.
    pub(super) fn all(&self) -> Vec<Arc<Caller>> {
        let entries = self.entries();
        entries
            .iter()
            .map(|entry| Arc::clone(&entry.caller))
            .collect()
    }

    /// The call under way, if there is one alone.
    pub(super) fn only(&self) -> Option<Arc<Caller>> {
        match self.entries().as_slice() {
            [entry] if entry.until.is_none() => Some(Arc::clone(&entry.caller)),
            _ => None,
        }
    }

    /// The latest call under way; refused if calls of several clients are.
    pub(super) fn latest_of_one_client(&self) -> Result<Option<Arc<Caller>>, ErrorData> {
        let entries = self.entries();
        let client = |entry: &Entry| entry.caller.requests().map(CallRequests::client);
        let first = entries.first().and_then(client);
        if entries.iter().any(|entry| client(entry) != first) {
            let reason =
                "calls of several clients are under way, so it is unknown whose request this is";
            return Err(ErrorData::invalid_request(reason, None));
        }
        let mut underway = entries.iter().filter(|entry| entry.until.is_none());
        Ok(underway.next_back().map(|entry| Arc::clone(&entry.caller)))
    }
}

/// A call under way.
pub(super) struct Entered<'c> {
    callers: &'c Callers,
    id: u64,
    answered: bool,
}

impl Entered<'_> {
    /// The server answered, so no request is about it any more.
    pub(super) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut entries = self.callers.entries();
        if self.answered {
            entries.retain(|entry| entry.id != self.id);
        } else if let Some(entry) = entries.iter_mut().find(|entry| entry.id == self.id) {
            entry.until = Instant::now().checked_add(LINGER);
        }
    }
}
