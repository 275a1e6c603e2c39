//! Active calls on one connection, to which requests of the server are assigned.
//!
//! In protocol versions with a handshake, a server does not say which call its request belongs to. The request is
//! assigned to the latest call if all active calls are from one client, and to none otherwise. An abandoned call counts
//! for a while, because the server may not know about it yet.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rmcp::model::ErrorData;
use tokio::time::Instant;

use bailiwick::VirtualPath;
use bailiwick::audit::{RequestOutcome, Step};
use bailiwick::requests::CallRequests;
use bailiwick::tool::RemoteContext;

/// The largest number of requests of a server per call.
const MAX_REQUESTS: usize = 20;
/// How long an abandoned call counts.
const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// One call to a server.
#[derive(Debug)]
pub(super) struct ActiveCall {
    context: Arc<dyn RemoteContext>,
    requests: Mutex<RequestCounts>,
}

#[derive(Debug, Default)]
struct RequestCounts {
    /// The number of requests from the server.
    total: usize,
    /// The number of requests that wait for a person.
    open: usize,
}

impl ActiveCall {
    pub(super) fn new(context: Arc<dyn RemoteContext>) -> Arc<Self> {
        Arc::new(Self {
            context,
            requests: Mutex::default(),
        })
    }

    /// The handler of the client that made the call, if there is one.
    pub(super) fn requests(&self) -> Option<&CallRequests> {
        self.context.requests()
    }

    /// The folders that the call may read.
    pub(super) fn folders(&self) -> Vec<VirtualPath> {
        self.context.folders()
    }

    /// Counts a request; fails beyond the limit.
    pub(super) fn count_request(&self) -> Result<(), ErrorData> {
        let mut requests = self.requests.lock();
        if requests.total >= MAX_REQUESTS {
            let reason = format!("a call may have at most {MAX_REQUESTS} requests of its server");
            return Err(ErrorData::invalid_request(reason, None));
        }
        requests.total += 1;
        Ok(())
    }

    /// Suspends the deadline of the call until the returned guard is dropped.
    pub(super) fn suspend_deadline(&self) -> DeadlineSuspension<'_> {
        let mut requests = self.requests.lock();
        requests.open += 1;
        if requests.open == 1 {
            self.context.suspend(true);
        }
        drop(requests);
        DeadlineSuspension(self)
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

/// Guard of [`ActiveCall::suspend_deadline`].
pub(super) struct DeadlineSuspension<'c>(&'c ActiveCall);

impl Drop for DeadlineSuspension<'_> {
    fn drop(&mut self) {
        let mut requests = self.0.requests.lock();
        requests.open = requests.open.saturating_sub(1);
        if requests.open == 0 {
            self.0.context.suspend(false);
        }
    }
}

/// The active calls of one connection.
#[derive(Debug, Default)]
pub(super) struct ActiveCalls(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    call: Arc<ActiveCall>,
    /// When an abandoned call stops counting.
    expires_at: Option<Instant>,
}

impl ActiveCalls {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        let mut entries = self.0.lock();
        let now = Instant::now();
        entries.retain(|entry| entry.expires_at.is_none_or(|expires_at| now < expires_at));
        entries
    }

    /// Adds `call` until the returned guard is dropped.
    pub(super) fn begin(&self, call: Arc<ActiveCall>) -> ActiveCallGuard<'_> {
        self.entries().push(Entry {
            call: Arc::clone(&call),
            expires_at: None,
        });
        ActiveCallGuard {
            calls: self,
            call,
            answered: false,
        }
    }

    /// All calls that requests may belong to.
    pub(super) fn all(&self) -> Vec<Arc<ActiveCall>> {
        let entries = self.entries();
        entries
            .iter()
            .map(|entry| Arc::clone(&entry.call))
            .collect()
    }

    /// The active call, if there is exactly one.
    pub(super) fn single(&self) -> Option<Arc<ActiveCall>> {
        match self.entries().as_slice() {
            [entry] if entry.expires_at.is_none() => Some(Arc::clone(&entry.call)),
            _ => None,
        }
    }

    /// The latest active call; an error if the active calls are from several clients.
    pub(super) fn latest_of_one_client(&self) -> Result<Option<Arc<ActiveCall>>, ErrorData> {
        let entries = self.entries();
        let client = |entry: &Entry| entry.call.requests().map(CallRequests::client);
        let first = entries.first().and_then(client);
        if entries.iter().any(|entry| client(entry) != first) {
            let reason =
                "calls of several clients are under way, so it is unknown whose request this is";
            return Err(ErrorData::invalid_request(reason, None));
        }
        let mut underway = entries.iter().filter(|entry| entry.expires_at.is_none());
        Ok(underway.next_back().map(|entry| Arc::clone(&entry.call)))
    }
}

/// Guard of an active call.
pub(super) struct ActiveCallGuard<'c> {
    calls: &'c ActiveCalls,
    call: Arc<ActiveCall>,
    answered: bool,
}

impl ActiveCallGuard<'_> {
    /// Removes the call at once, because the server answered it.
    pub(super) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for ActiveCallGuard<'_> {
    fn drop(&mut self) {
        let mut entries = self.calls.entries();
        let is_own = |entry: &Entry| Arc::ptr_eq(&entry.call, &self.call);
        if self.answered {
            entries.retain(|entry| !is_own(entry));
        } else if let Some(entry) = entries.iter_mut().find(|entry| is_own(entry)) {
            entry.expires_at = Instant::now().checked_add(GRACE_PERIOD);
        }
    }
}
