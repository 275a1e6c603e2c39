//! The state of one connection: what is open on it, and why it ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dashmap::DashMap;
use rmcp::model::{ProgressToken, RequestId};
use tokio::sync::{Semaphore, watch};

use super::callers::Callers;
use super::failure::ServerFailure;
use crate::call::Progress;

/// The most messages that wait to be written at one time.
const MOST_WRITES: usize = 256;

/// One connection, as all that use it know it.
#[derive(Debug)]
pub(super) struct Line {
    /// Requests of the server that are not answered: what they are called here, and what the server calls them.
    asked: Mutex<HashMap<RequestId, RequestId>>,
    /// The calls that requests of the server may be about.
    pub(super) callers: Callers,
    /// Who hears of progress. Tokens are those of one connection; the next one has the same.
    pub(super) progress: DashMap<ProgressToken, Progress>,
    /// Places of messages that wait to be written.
    pub(super) writes: Arc<Semaphore>,
    ended: watch::Sender<Option<ServerFailure>>,
    /// Why a request by HTTP failed last. The client beneath reports such a failure without its cause.
    failed: Mutex<Option<ServerFailure>>,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            asked: Mutex::default(),
            callers: Callers::default(),
            progress: DashMap::new(),
            writes: Arc::new(Semaphore::new(MOST_WRITES)),
            ended: watch::Sender::new(None),
            failed: Mutex::default(),
        }
    }
}

impl Line {
    /// Ends the connection. The first reason counts.
    pub(super) fn end(&self, why: ServerFailure) {
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            ended.get_or_insert(why);
            first
        });
    }

    /// Returns once the connection is of no use any more, and says why.
    pub(super) async fn ended(&self) -> ServerFailure {
        let mut ended = self.ended.subscribe();
        let why = ended.wait_for(Option::is_some).await;
        // Whoever waits holds the sender, so it is always said.
        why.ok()
            .and_then(|why| why.clone())
            .unwrap_or(ServerFailure::Closed)
    }

    /// Why it ended, if it did.
    pub(super) fn end_cause(&self) -> Option<ServerFailure> {
        self.ended.borrow().clone()
    }

    fn failure(&self) -> MutexGuard<'_, Option<ServerFailure>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request by HTTP failed, or none did.
    pub(super) fn set_request_failure(&self, failure: Option<ServerFailure>) {
        *self.failure() = failure;
    }

    /// Why the last request by HTTP failed, if it did.
    pub(super) fn request_failure(&self) -> Option<ServerFailure> {
        self.failure().clone()
    }

    pub(super) fn asked(&self) -> MutexGuard<'_, HashMap<RequestId, RequestId>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
