//! The state of one connection: pending requests, active calls, and why it ended.

use std::collections::HashMap;
use std::sync::Arc;

use dashmap::DashMap;
use parking_lot::Mutex;
use rmcp::model::{ProgressToken, RequestId};
use tokio::sync::{Semaphore, watch};

use super::active_calls::ActiveCalls;
use super::failure::ServerFailure;
use bailiwick::call::Progress;

/// The largest number of queued outgoing messages.
const MAX_QUEUED_WRITES: usize = 256;

/// The shared state of one connection.
#[derive(Debug)]
pub(super) struct ConnectionState {
    /// Pending requests of the server: the local id and the server's id.
    pub(super) pending_requests: Mutex<HashMap<RequestId, RequestId>>,
    /// The calls that requests of the server may belong to.
    pub(super) active_calls: ActiveCalls,
    /// Progress counters by token. Tokens are unique per connection only.
    pub(super) progress: DashMap<ProgressToken, Progress>,
    /// Slots of the queue of outgoing messages.
    pub(super) write_slots: Arc<Semaphore>,
    ended: watch::Sender<Option<ServerFailure>>,
    /// Why the last HTTP request failed. The MCP client reports such a failure without its cause.
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
    /// Ends the connection. The first cause is kept.
    pub(super) fn end(&self, cause: ServerFailure) {
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            ended.get_or_insert(cause);
            first
        });
    }

    /// Waits until the connection ends, and returns the cause.
    pub(super) async fn ended(&self) -> ServerFailure {
        let mut ended = self.ended.subscribe();
        let cause = ended.wait_for(Option::is_some).await;
        // `self` holds the sender.
        cause
            .ok()
            .and_then(|cause| cause.clone())
            .unwrap_or(ServerFailure::Closed)
    }

    /// Why the connection ended, if it did.
    pub(super) fn end_cause(&self) -> Option<ServerFailure> {
        self.ended.borrow().clone()
    }

    /// Sets or clears the failure of the last HTTP request.
    pub(super) fn set_request_failure(&self, failure: Option<ServerFailure>) {
        *self.last_request_failure.lock() = failure;
    }

    /// Why the last request by HTTP failed, if it did.
    pub(super) fn request_failure(&self) -> Option<ServerFailure> {
        self.last_request_failure.lock().clone()
    }
}
