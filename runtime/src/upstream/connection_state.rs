//! The state of one connection: what is open on it, and why it ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dashmap::DashMap;
use rmcp::model::{ProgressToken, RequestId};
use tokio::sync::{Semaphore, watch};

use super::active_calls::ActiveCalls;
use super::failure::ServerFailure;
use crate::call::Progress;

/// The most messages that wait to be written at one time.
const MAX_QUEUED_WRITES: usize = 256;

/// One connection, as all that use it know it.
#[derive(Debug)]
pub(super) struct ConnectionState {
    /// Requests of the server that are not answered: what they are called here, and what the server calls them.
    pending_requests: Mutex<HashMap<RequestId, RequestId>>,
    /// The calls that requests of the server may be about.
    pub(super) active_calls: ActiveCalls,
    /// Who hears of progress. Tokens are those of one connection; the next one has the same.
    pub(super) progress: DashMap<ProgressToken, Progress>,
    /// Places of messages that wait to be written.
    pub(super) write_slots: Arc<Semaphore>,
    ended: watch::Sender<Option<ServerFailure>>,
    /// Why a request by HTTP failed last. The client beneath reports such a failure without its cause.
    last_request_failure: Mutex<Option<ServerFailure>>,
}

impl Default for ConnectionState {
    fn default() -> Self {
        Self {
            pending_requests: Mutex::default(),
            active_calls: ActiveCalls::default(),
            progress: DashMap::new(),
            write_slots: Arc::new(Semaphore::new(MAX_QUEUED_WRITES)),
            ended: watch::Sender::new(None),
            last_request_failure: Mutex::default(),
        }
    }
}

impl ConnectionState {
    /// Ends the connection. The first reason counts.
    pub(super) fn end(&self, cause: ServerFailure) {
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            ended.get_or_insert(cause);
            first
        });
    }

    /// Returns once the connection is of no use any more, and says why.
    pub(super) async fn ended(&self) -> ServerFailure {
        let mut ended = self.ended.subscribe();
        let cause = ended.wait_for(Option::is_some).await;
        // Whoever waits holds the sender, so it is always said.
        cause
            .ok()
            .and_then(|cause| cause.clone())
            .unwrap_or(ServerFailure::Closed)
    }

    /// Why it ended, if it did.
    pub(super) fn end_cause(&self) -> Option<ServerFailure> {
        self.ended.borrow().clone()
    }

    fn failure(&self) -> MutexGuard<'_, Option<ServerFailure>> {
        self.last_request_failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A request by HTTP failed, or none did.
    pub(super) fn set_request_failure(&self, failure: Option<ServerFailure>) {
        *self.failure() = failure;
    }

    /// Why the last request by HTTP failed, if it did.
    pub(super) fn request_failure(&self) -> Option<ServerFailure> {
        self.failure().clone()
    }

    pub(super) fn pending_requests(&self) -> MutexGuard<'_, HashMap<RequestId, RequestId>> {
        self.pending_requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
