//! Locks on the paths that calls change, shared by all workers of a runtime.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Shared;
use super::actor::WorkerMsg;
use super::lock_queue::{LockQueue, Turn};
use crate::id::CallId;
use crate::path::VirtualPath;

struct LockWaiter {
    worker: Arc<Shared>,
    call: CallId,
}

impl LockWaiter {
    fn notify(self) {
        self.worker.post(WorkerMsg::PathsLocked(self.call));
    }
}

/// The calls that hold or wait for locks on paths.
#[derive(Clone, Default)]
pub(crate) struct PathLocks {
    queue: Arc<Mutex<LockQueue<LockWaiter>>>,
}

/// A lock on paths, held or requested; released when dropped.
pub(crate) struct PathLockGuard {
    locks: PathLocks,
    turn: Turn,
}

impl PathLocks {
    /// Requests a lock on `paths` for a call. Its worker is notified once the lock is held, which may be at once.
    pub(super) fn request(
        &self,
        call: CallId,
        paths: Vec<VirtualPath>,
        worker: &Arc<Shared>,
    ) -> PathLockGuard {
        let waiter = LockWaiter {
            worker: Arc::clone(worker),
            call,
        };
        let (turn, holder) = self.queue.lock().request(paths, waiter);
        if let Some(holder) = holder {
            holder.notify();
        }
        PathLockGuard {
            locks: self.clone(),
            turn,
        }
    }
}

impl Drop for PathLockGuard {
    fn drop(&mut self) {
        let holders = self.locks.queue.lock().release(self.turn);
        holders.into_iter().for_each(LockWaiter::notify);
    }
}
