//! Permit of calls whose outcome is known only afterwards.

use std::sync::Arc;

use super::{Gate, Pass, PermitScope, ReadPermit, revoked};
use crate::error::CallError;

/// Proof that a call was authorised and may act; only the pipeline creates it, and it is used once.
///
/// ```compile_fail
/// fn twice(permit: bailiwick::tool::ActPermit) {
///     let _ = (permit.begin(), permit.begin()); // used twice
/// }
/// ```
/// ```
/// # use bailiwick::CallError;
/// fn once(permit: bailiwick::tool::ActPermit) -> Result<(), CallError> {
///     let act = permit.begin()?;
///     act.checkpoint()
/// }
/// ```
#[derive(Debug)]
pub struct ActPermit {
    read: ReadPermit,
}

impl ActPermit {
    pub(crate) fn mint(scope: Arc<PermitScope>) -> Self {
        Self {
            read: ReadPermit::mint(scope),
        }
    }

    /// Returns the read permit of the call.
    #[must_use]
    pub fn reading(&self) -> &ReadPermit {
        &self.read
    }

    /// Returns the counter of completed steps.
    pub(crate) fn progress(&self) -> ActProgress {
        ActProgress(Arc::clone(&self.read.scope))
    }

    /// The gates that are closed when the worker or a grant that the call uses is revoked.
    pub(crate) fn gates(&self) -> Vec<Arc<Gate>> {
        self.read.scope.shared_gates()
    }

    /// Marks the effect as begun; call it immediately before the effect. If the call ends without a result after this,
    /// it is reported and audited as a call that may have had an effect.
    ///
    /// # Errors
    /// `CANCELLED` or `DEADLINE` if the effect must not begin.
    pub fn begin(self) -> Result<Act, CallError> {
        let Self { read } = self;
        read.scope.stop.send()?;
        let Some(passes) = read.scope.passes() else {
            read.scope.stop.unsend();
            return Err(revoked());
        };
        Ok(Act {
            read,
            _passes: passes,
        })
    }
}

/// An effect in progress; see [`ActPermit::begin`]. A revocation waits until it is dropped.
#[derive(Debug)]
pub struct Act {
    read: ReadPermit,
    _passes: Vec<Pass>,
}

impl Act {
    /// Returns the read permit of the call.
    #[must_use]
    pub fn reading(&self) -> &ReadPermit {
        &self.read
    }

    /// Checks that the call may continue. Tools call it immediately before each further effect.
    ///
    /// # Errors
    /// `CANCELLED` or `DEADLINE`.
    pub fn checkpoint(&self) -> Result<(), CallError> {
        self.read.scope.stop.check()?;
        if self.read.scope.gates().any(|gate| gate.is_closed()) {
            return Err(revoked());
        }
        Ok(())
    }
}

/// Reports the progress of an [`ActTool`](crate::ActTool) to the host, and in the error of a call that ends without a
/// result.
#[derive(Clone, Debug)]
pub struct ActProgress(Arc<PermitScope>);

impl ActProgress {
    /// Counts one more step as completed.
    pub fn step(&self) {
        self.0.stop.step();
    }
}
