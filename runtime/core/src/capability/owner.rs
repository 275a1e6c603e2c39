//! The owner of what a tool keeps between calls.

use std::sync::Arc;

use super::Gate;
use crate::id::WorkerId;

/// The worker that owns what a tool keeps between calls, for example a result that a later call uses.
///
/// A tool keeps it ([`ReadPermit::owner`](super::ReadPermit::owner)) and compares it with the worker of the later call
/// ([`Namespace::worker`](crate::config::Namespace::worker)).
#[derive(Clone, Debug)]
pub struct Owner {
    pub(super) worker: WorkerId,
    pub(super) ancestors: Arc<[WorkerId]>,
    pub(super) gate: Arc<Gate>,
}

impl Owner {
    /// Returns the worker.
    #[must_use]
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// Returns whether `worker` is the owner or one of its ancestors.
    #[must_use]
    pub fn is_or_is_beneath(&self, worker: WorkerId) -> bool {
        self.worker == worker || self.ancestors.contains(&worker)
    }

    /// Returns whether the worker has ended, so that what it owns can be dropped.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.gate.is_closed()
    }
}
