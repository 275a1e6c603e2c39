//! Permit of calls whose outcome is known only afterwards.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;

use super::{Gate, MemoryUse, Meter, Pass, PermitScope, ProcessReservation, ReadPermit, passes};
use crate::budget::Usage;
use crate::error::{CallError, Code};
use crate::path::VirtualPath;
use crate::worker::{PathLockGuard, PathLocks};

/// Maximum size of the details of one record, as JSON in bytes.
const MAX_DETAILS: usize = 64 << 10;

/// An output stream of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a program has exactly these output streams"
)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Audits details of an effect.
type Recorder = Box<dyn Fn(Value) -> Result<(), CallError> + Send + Sync>;

/// What an effect leaves behind besides its reply: records in the audit, output for artifacts, and what it took of
/// budgets.
pub(crate) struct ActRecords {
    recorder: Recorder,
    kept: Mutex<Vec<(OutputStream, Bytes)>>,
    meter: Arc<Meter>,
    used: Mutex<Usage>,
    path_locks: PathLocks,
}

impl ActRecords {
    pub(crate) fn new(recorder: Recorder, meter: Arc<Meter>, path_locks: PathLocks) -> Self {
        Self {
            recorder,
            kept: Mutex::default(),
            meter,
            used: Mutex::default(),
            path_locks,
        }
    }

    /// Takes the output to store as artifacts.
    pub(crate) fn take_kept(&self) -> Vec<(OutputStream, Bytes)> {
        std::mem::take(&mut *self.kept.lock())
    }
}

impl fmt::Debug for ActRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActRecords").finish_non_exhaustive()
    }
}

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
    records: Option<Arc<ActRecords>>,
}

impl ActPermit {
    pub(crate) fn mint(scope: Arc<PermitScope>) -> Self {
        Self {
            read: ReadPermit::mint(scope),
            records: None,
        }
    }

    /// Sets where the effect is recorded.
    pub(crate) fn recording(self, records: Arc<ActRecords>) -> Self {
        Self {
            records: Some(records),
            ..self
        }
    }

    /// Returns the read permit of the call.
    #[must_use]
    pub fn reading(&self) -> &ReadPermit {
        &self.read
    }

    /// Returns how much time is left until the deadline of the call; `None` if it has none. A tool that ends before the
    /// deadline can reply with what it has.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.read.scope.stop.time_left()
    }

    /// Returns the counter of completed steps.
    pub(crate) fn progress(&self) -> ActProgress {
        ActProgress(Arc::clone(&self.read.scope))
    }

    /// The gates that are closed when the worker or a grant that the call uses is revoked.
    pub(crate) fn gates(&self) -> Vec<Arc<Gate>> {
        self.read.scope.shared_gates()
    }

    /// Waits until no call of the runtime replaces the entries at `paths`, and lets none replace them while the lock is held.
    /// What is beneath a directory can be changed. Several effects may hold a lock on the same paths. Also returns whether it
    /// had to wait.
    #[doc(hidden)]
    pub async fn lock_paths(&self, paths: Vec<VirtualPath>) -> (PathsLocked, bool) {
        let records = self.records.as_ref().filter(|_| !paths.is_empty());
        let Some(records) = records else {
            return (PathsLocked(None), false);
        };
        let (lock, waited) = records.path_locks.entries(paths).await;
        (PathsLocked(Some(lock)), waited)
    }

    /// Marks the effect as begun; call it immediately before the effect. If the call ends without a result after this,
    /// it is reported and audited as a call that may have had an effect.
    ///
    /// # Errors
    /// `CANCELLED` or `DEADLINE` if the effect must not begin.
    pub fn begin(self) -> Result<Act, CallError> {
        let act = self.reserve()?;
        act.begin()?;
        Ok(act)
    }

    /// Returns the effect before it begins, for tools that prepare it, such as a sandbox. They call [`Act::begin`] immediately
    /// before the effect. A revocation waits as for an effect that has begun.
    ///
    /// # Errors
    /// `CANCELLED` or `DEADLINE` if the effect must not begin.
    pub fn reserve(self) -> Result<Act, CallError> {
        let Self { read, records } = self;
        read.scope.stop.check()?;
        let passes = passes(read.scope.gates())?;
        Ok(Act {
            read,
            records,
            _passes: passes,
        })
    }
}

/// An effect in progress; see [`ActPermit::begin`] and [`ActPermit::reserve`]. A revocation waits until it is dropped.
#[derive(Debug)]
pub struct Act {
    read: ReadPermit,
    records: Option<Arc<ActRecords>>,
    _passes: Vec<Pass>,
}

impl Act {
    /// Returns the read permit of the call.
    #[must_use]
    pub fn reading(&self) -> &ReadPermit {
        &self.read
    }

    /// Marks the effect as begun, after [`ActPermit::reserve`]. Call it immediately before the effect.
    ///
    /// # Errors
    /// `CANCELLED` or `DEADLINE` if the effect must not begin.
    pub fn begin(&self) -> Result<(), CallError> {
        self.read.scope.stop.begin_elsewhere()?;
        // A gate that is closed later is closed by code that sees the mark.
        self.checkpoint().inspect_err(|_| self.undo_begin())
    }

    /// Removes the mark that the effect has begun, because it certainly has not. The error of the call then does not say that
    /// it may have had an effect.
    pub fn undo_begin(&self) {
        self.read.scope.stop.undo_begin_elsewhere();
    }

    /// Checks that the call may continue. Tools call it immediately before each further effect.
    ///
    /// # Errors
    /// `CANCELLED` or `DEADLINE`.
    pub fn checkpoint(&self) -> Result<(), CallError> {
        self.read.scope.stop.check()?;
        self.read.scope.check_gates()
    }

    /// Records details of the effect in the audit, as a step [`Recorded`](crate::audit::Step::Recorded) of the call: what
    /// is known only once the effect has begun, such as the exit status of a command. At most 64 KiB as JSON.
    ///
    /// # Errors
    /// `TOO_LARGE`, or `INTERNAL` if the details cannot be written as JSON; the error of the audit if it cannot record
    /// them.
    pub fn record(&self, details: &impl Serialize) -> Result<(), CallError> {
        let internal = |error: serde_json::Error| CallError::new(Code::Internal, error.to_string());
        let details = serde_json::to_value(details).map_err(internal)?;
        if details.to_string().len() > MAX_DETAILS {
            let message = "the details of an effect have at most 64 KiB";
            return Err(CallError::new(Code::TooLarge, message));
        }
        match &self.records {
            Some(records) => (records.recorder)(details),
            None => Ok(()),
        }
    }

    /// Charges what the effect took to the budgets of the worker and its ancestors, and to that of the call. It is charged
    /// even if that exceeds a budget.
    ///
    /// # Errors
    /// `BUDGET` if a budget is exceeded; the tool then ends the effect.
    pub fn charge(&self, usage: Usage) -> Result<(), CallError> {
        let Some(records) = &self.records else {
            return Ok(());
        };
        let call = (self.read.limits().budget, &mut *records.used.lock());
        Ok(records.meter.charge_usage(usage, call)?)
    }

    /// Reserves processes, at most `most` and as many as the budgets leave; `None` if the call has no budgets.
    ///
    /// # Errors
    /// `BUDGET` if none are left.
    pub fn reserve_processes(&self, most: u64) -> Result<Option<ProcessReservation>, CallError> {
        let Some(records) = &self.records else {
            return Ok(None);
        };
        let of_call = self.read.limits().budget.processes.unwrap_or(u64::MAX);
        Ok(Some(records.meter.reserve_processes(most.min(of_call))?))
    }

    /// Counts the memory of the effect toward the budgets, as long as the effect runs; `None` if no budget limits it.
    #[must_use]
    pub fn memory_use(&self) -> Option<MemoryUse> {
        let of_call = self.read.limits().budget.memory_bytes;
        self.records.as_ref()?.meter.memory_use(of_call)
    }

    /// Keeps output of a program as an artifact of the call, which people can read. Output that is kept after the call
    /// has ended is dropped.
    pub fn keep_output(&self, stream: OutputStream, text: impl Into<Bytes>) {
        if let Some(records) = &self.records {
            records.kept.lock().push((stream, text.into()));
        }
    }
}

/// A lock of [`ActPermit::lock_paths`]; released when dropped.
#[doc(hidden)]
pub struct PathsLocked(#[expect(dead_code, reason = "it is held")] Option<PathLockGuard>);

impl fmt::Debug for PathsLocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathsLocked").finish_non_exhaustive()
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

    /// Sets the message that describes the progress, such as the last line of the output of a program. Control characters
    /// are escaped, and a long message is cut.
    pub fn message(&self, text: &str) {
        self.0.stop.message(text);
    }
}
