//! Permit to send a call to another server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Gate, PermitScope};
use crate::call::Progress;
use crate::error::CallError;

/// Proof that a call was authorised and may be sent to its server; only the pipeline creates it.
#[derive(Debug)]
#[doc(hidden)]
pub struct CallPermit {
    scope: Arc<PermitScope>,
    /// The call is a preview.
    preview: bool,
}

impl CallPermit {
    pub(crate) fn mint(scope: Arc<PermitScope>, preview: bool) -> Self {
        Self { scope, preview }
    }

    #[doc(hidden)]
    #[must_use]
    pub fn is_preview(&self) -> bool {
        self.preview
    }

    #[doc(hidden)]
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        self.scope.stop.progress.clone()
    }

    pub(crate) fn checkpoint(&self) -> Result<(), CallError> {
        self.scope.checkpoint()
    }

    /// Marks the call as sent: from now on the server may carry it out.
    pub(crate) fn mark_sent(&self) {
        self.scope
            .stop
            .begun_elsewhere
            .store(true, Ordering::SeqCst);
    }

    /// The gates that are closed when the worker or a grant that the call uses is revoked.
    pub(crate) fn gates(&self) -> Vec<Arc<Gate>> {
        self.scope.shared_gates()
    }
}
