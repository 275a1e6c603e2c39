//! Calls with grants for that call alone.

use super::admission::{self, CallOptions};
use super::{Worker, outcome};
use crate::call::{Call, Mode};
use crate::effect::{Outcome, Preview};
use crate::error::{CallError, Code};
use crate::permission::GrantAuthority;
use crate::scope::ScopePattern;

impl GrantAuthority {
    /// Makes a call of `worker` with grants that a person gave for it. `granted` applies to this call alone, and nobody
    /// is asked about needs that it covers. It never overrides a deny, a protected name or the worker's own policy.
    ///
    /// # Errors
    /// [`CallError`], as from [`Worker::submit`]; `PERMISSION_DENIED` for a worker of another runtime.
    pub async fn submit(
        &self,
        worker: &Worker,
        call: Call,
        granted: Vec<ScopePattern>,
    ) -> Result<Outcome, CallError> {
        self.speaks_for(worker)?;
        let options = CallOptions {
            sent_grants: granted,
            ..CallOptions::new(Mode::Apply)
        };
        outcome(admission::submit(&worker.shared, call, options).await?)
    }

    /// Previews such a call; `granted` applies to this preview alone.
    ///
    /// # Errors
    /// [`CallError`], as from [`Worker::submit_preview`]; `PERMISSION_DENIED` for a worker of another runtime.
    pub async fn preview(
        &self,
        worker: &Worker,
        call: Call,
        granted: Vec<ScopePattern>,
    ) -> Result<Preview, CallError> {
        self.speaks_for(worker)?;
        worker.preview_with(call, granted).await
    }

    fn speaks_for(&self, worker: &Worker) -> Result<(), CallError> {
        if worker.shared.core.broker.is(self.broker()) {
            return Ok(());
        }
        let message = "this `GrantAuthority` belongs to another runtime";
        Err(CallError::new(Code::PermissionDenied, message))
    }
}
