//! Paths to change in, the message that it is a call's turn out; shared by all workers of a runtime.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Shared;
use super::actor::WorkerMsg;
use super::locks::Locks;
use crate::id::CallId;
use crate::path::VirtualPath;

struct Waiting {
    worker: Arc<Shared>,
    call: CallId,
}

impl Waiting {
    fn tell(self) {
        self.worker.post(WorkerMsg::Turn(self.call));
    }
}

/// Who may change which path now.
#[derive(Clone, Default)]
pub(crate) struct Turns {
    locks: Arc<Mutex<Locks<Waiting>>>,
}

/// A claim on paths, waiting or held; given up when dropped.
pub(crate) struct Claim {
    turns: Turns,
    call: CallId,
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(&self.call).finish()
    }
}

impl Turns {
    /// Claims `paths` for a call; its worker hears when they are its own, which may be at once.
    pub(super) fn claim(
        &self,
        call: CallId,
        paths: Vec<VirtualPath>,
        worker: &Arc<Shared>,
    ) -> Claim {
        let turn = self.lock().claim(
            call,
            paths,
            Waiting {
                worker: Arc::clone(worker),
                call,
            },
        );
        if let Some(turn) = turn {
            turn.tell();
        }
        Claim {
            turns: self.clone(),
            call,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Locks<Waiting>> {
        // Nothing that can panic runs under the lock.
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let turns = self.turns.lock().release(self.call);
        turns.into_iter().for_each(Waiting::tell);
    }
}
