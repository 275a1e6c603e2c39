//! Pausing of workers: new calls of a paused worker and its descendants wait until it is resumed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::Worker;
use super::actor::WorkerMsg;
use crate::audit::{AuditError, Step as AuditStep};
use crate::permission::DecidedBy;

/// Whether a worker is paused, and its ancestors.
#[derive(Debug)]
pub(super) struct Pause {
    own: AtomicBool,
    /// Held while `own` changes, so that changes are audited in their order.
    changing: Mutex<()>,
    parent: Option<Arc<Self>>,
}

impl Pause {
    /// The state of a new worker, which is a child of the worker with the state `parent`.
    pub(super) fn beneath(parent: Option<&Arc<Self>>) -> Self {
        Self {
            own: AtomicBool::new(false),
            changing: Mutex::default(),
            parent: parent.cloned(),
        }
    }

    /// Whether the worker or an ancestor is paused.
    pub(super) fn is_paused(&self) -> bool {
        let mut chain = std::iter::successors(Some(self), |one| one.parent.as_deref());
        chain.any(|one| one.own.load(Ordering::SeqCst))
    }
}

impl Worker {
    /// Pauses this worker and its descendants, also those that are started later: new calls wait before they are judged.
    ///
    /// Calls that wait count toward [`Admission`](super::Admission), and fail with `DEADLINE` once their time limit has
    /// passed. Calls that were received before continue, and their questions stay open. Revoking the worker ends the
    /// calls that wait. A worker that is restarted stays paused.
    ///
    /// `by` is recorded in the audit. Pausing a paused worker has no effect.
    pub fn pause(&self, by: DecidedBy) {
        let _changing = self.shared.pause.changing.lock();
        if !self.shared.pause.own.swap(true, Ordering::SeqCst) {
            // Pausing is safe, so it does not wait for the audit.
            let _ = self.record_pause(AuditStep::Paused { by }, by);
        }
    }

    /// Ends a pause of this worker. Calls that waited continue in the order in which they were received, unless an
    /// ancestor of their worker is paused, or their worker was paused itself.
    ///
    /// # Errors
    /// [`AuditError`] if it cannot be recorded; the worker then stays paused.
    pub fn resume(&self, by: DecidedBy) -> Result<(), AuditError> {
        let changing = self.shared.pause.changing.lock();
        if !self.shared.pause.own.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.record_pause(AuditStep::Resumed { by }, by)?;
        self.shared.pause.own.store(false, Ordering::SeqCst);
        drop(changing);
        // A worker that is started after this sees that the pause has ended.
        for shared in self.shared.core.subtree(self.shared.id) {
            shared.post(WorkerMsg::Resumed);
        }
        Ok(())
    }

    /// Returns whether this worker or an ancestor is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.shared.pause.is_paused()
    }

    fn record_pause(&self, step: AuditStep, by: DecidedBy) -> Result<(), AuditError> {
        self.shared.record_by(by.origin(), step)
    }
}
