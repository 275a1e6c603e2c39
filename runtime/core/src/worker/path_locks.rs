//! Locks on the paths that calls change, and on those that running commands must not change or see. All workers of a runtime
//! use them.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::Shared;
use super::actor::WorkerMsg;
use super::admission::busy;
use super::lock_queue::{Kind, LockQueue, Turn};
use crate::error::CallError;
use crate::id::CallId;
use crate::path::VirtualPath;

enum LockWaiter {
    Call(Arc<Shared>, CallId),
    Command(oneshot::Sender<()>),
}

impl LockWaiter {
    fn notify(self) {
        match self {
            Self::Call(worker, call) => {
                worker.post(WorkerMsg::PathsLocked(call));
            }
            // The command may have been cancelled.
            Self::Command(held_tx) => drop(held_tx.send(())),
        }
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
    ///
    /// # Errors
    /// `BUSY` if a command that runs must not see or change an entry that the call may replace.
    pub(super) fn request(
        &self,
        call: CallId,
        paths: Vec<VirtualPath>,
        worker: &Arc<Shared>,
    ) -> Result<PathLockGuard, CallError> {
        let waiter = LockWaiter::Call(Arc::clone(worker), call);
        let mut queue = self.queue.lock();
        if let Some(path) = queue.kept_entry(&paths) {
            let reason = format!("a command that runs must not see or change `{path}`");
            return Err(busy(worker, &reason));
        }
        let (turn, holder) = queue.request(paths, Kind::Change, waiter);
        drop(queue);
        Ok(self.guard(turn, holder))
    }

    /// Waits until no call replaces the entries at `paths`. As long as the lock is held, none does; other commands may hold one,
    /// too. Also returns whether it had to wait.
    pub(crate) async fn entries(&self, paths: Vec<VirtualPath>) -> (PathLockGuard, bool) {
        let (held_tx, mut held) = oneshot::channel();
        let waiter = LockWaiter::Command(held_tx);
        let (turn, holder) = self.queue.lock().request(paths, Kind::Entry, waiter);
        let lock = self.guard(turn, holder);
        let waits = held.try_recv().is_err();
        if waits {
            // The sender is in the queue as long as the lock is requested.
            let _ = held.await;
        }
        (lock, waits)
    }

    /// The guard of a request. Notifies its waiter if it holds the lock.
    fn guard(&self, turn: Turn, holder: Option<LockWaiter>) -> PathLockGuard {
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
