//! Permits: proof that a call was authorised, required for every read and every change.

mod gate;
mod meter;
mod remote;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::call::Progress;
use crate::error::{CallError, Code};
use crate::path::VirtualPath;
use crate::policy::{Authority, Limits, OpenFolder, Verdict, WriteMode};
use crate::root::{Root, RootTable};
use crate::scope::{Coverage, Operation, Scope, Verb};

pub(crate) use gate::{GRACE, Gate, Pass, settled};
pub use meter::BudgetExceeded;
pub(crate) use meter::{Charge, Meter};
pub(crate) use remote::CallPermit;

/// Why a call in flight must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum StopReason {
    /// Nobody waits for the answer any more.
    Cancelled = 1,
    /// Its time is over.
    Expired = 2,
    /// Its worker lost its authority.
    Revoked = 3,
}

/// The effect began before anybody said stop.
const BEGUN: u8 = 4;

/// Tells a call in flight to stop. The first word counts: once its effect began nobody can stop it.
#[derive(Debug, Default)]
pub(crate) struct StopFlag {
    state: AtomicU8,
    /// A server was told to carry the call out.
    sent: AtomicBool,
    progress: Option<Progress>,
}

impl StopFlag {
    /// For a call whose work is counted.
    pub(crate) fn counting(progress: Option<Progress>) -> Self {
        Self {
            progress,
            ..Self::default()
        }
    }

    pub(crate) fn raise(&self, why: StopReason) {
        // A call that was told already keeps its first reason.
        let _ = self.set(why as u8);
    }

    /// Says that the effect begins, unless the call was told to stop before.
    fn begin(&self) -> Result<(), CallError> {
        self.set(BEGUN).map(drop).or_else(|_| self.check())
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.state.load(Ordering::Acquire) == BEGUN
    }

    /// Whether a server was told to carry the call out.
    pub(crate) fn was_sent(&self) -> bool {
        self.sent.load(Ordering::Acquire)
    }

    fn set(&self, state: u8) -> Result<u8, u8> {
        self.state
            .compare_exchange(0, state, Ordering::AcqRel, Ordering::Acquire)
    }

    pub(crate) fn check(&self) -> Result<(), CallError> {
        match self.state.load(Ordering::Acquire) {
            0 | BEGUN => Ok(()),
            expired if expired == StopReason::Expired as u8 => Err(CallError::new(
                Code::Deadline,
                "the call did not end in time; ask for less at once",
            )),
            revoked if revoked == StopReason::Revoked as u8 => Err(self::revoked()),
            _ => Err(CallError::new(Code::Cancelled, "the call was cancelled")),
        }
    }
}

/// What the pipeline found when it judged a call; shared by the permits it mints.
#[derive(Debug)]
pub(crate) struct PermitScope {
    /// Every layer above the call, and its own.
    pub(crate) authority: Authority,
    /// What people granted for this call.
    pub(crate) granted: Vec<Coverage>,
    /// Changes that were judged as those of protected files, though their names are not protected.
    pub(crate) protected: Vec<VirtualPath>,
    /// Links that were followed: the path as asked, the path as judged.
    pub(crate) moved: Vec<(VirtualPath, VirtualPath)>,
    /// The directory handles this worker holds.
    pub(crate) roots: Arc<RootTable>,
    /// Closed when the worker or an ancestor is revoked.
    pub(crate) gate: Arc<Gate>,
    /// Closed when a grant used here is revoked.
    pub(crate) grant_gates: Vec<Arc<Gate>>,
    /// Raised when nobody waits any more, or the time is over.
    pub(crate) stop: Arc<StopFlag>,
}

impl PermitScope {
    fn gates(&self) -> impl Iterator<Item = &Gate> {
        std::iter::once(&*self.gate).chain(self.grant_gates.iter().map(Arc::as_ref))
    }

    fn shared_gates(&self) -> Vec<Arc<Gate>> {
        let own = std::iter::once(&self.gate);
        own.chain(&self.grant_gates).cloned().collect()
    }

    fn checkpoint(&self) -> Result<(), CallError> {
        self.stop.check()?;
        if let Some(progress) = &self.stop.progress {
            progress.step();
        }
        if !self.stop.has_begun() && self.gates().any(Gate::is_closed) {
            Err(revoked())
        } else {
            Ok(())
        }
    }
}

pub(crate) fn revoked() -> CallError {
    CallError::new(
        Code::Cancelled,
        "the authority behind this call was revoked, or its runtime has ended",
    )
}

/// Why a tool stopped before its end.
#[derive(Debug)]
pub enum Interrupt {
    /// It failed, and this is the answer.
    Failed(CallError),
    /// It found that it needs more than was judged; the pipeline judges that too, then begins anew.
    Needs(Vec<Scope>),
    /// It found that these files are protected by what stands around them. To change each takes a grant that names it.
    Protected(Vec<VirtualPath>),
    /// A link stands in the way: what was called `from` really is `to`. The pipeline judges `to`, then begins anew.
    Moved {
        /// The path as it was judged.
        from: VirtualPath,
        /// The path without links.
        to: VirtualPath,
    },
    /// Several of these at once: the pipeline takes up all of them, then begins anew.
    All(Vec<Interrupt>),
}

impl From<CallError> for Interrupt {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

impl From<Interrupt> for CallError {
    /// For places where nothing more can be judged: a tool that asks there is at fault.
    fn from(interrupt: Interrupt) -> Self {
        match interrupt {
            Interrupt::Failed(error) => error,
            Interrupt::Needs(_)
            | Interrupt::Protected(_)
            | Interrupt::Moved { .. }
            | Interrupt::All(_) => Self::new(
                Code::Internal,
                format!("the tool asked too late: {interrupt}"),
            ),
        }
    }
}

impl fmt::Display for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Needs(needs) => write!(f, "needs {needs:?}"),
            Self::Protected(paths) => write!(f, "protected {paths:?}"),
            Self::All(interrupts) => write!(f, "{interrupts:?}"),
            Self::Moved { from, to } => write!(f, "{from} is {to}"),
        }
    }
}

/// Proof that a call was judged and may look; made by the pipeline alone.
///
/// It is also the lens through which a tool sees the worker's authority: an entry of a listing, a link
/// on the way or a file in a subtree is shown or hidden by [`ReadPermit::judge`].
///
/// A permit cannot be made outside the pipeline:
/// ```compile_fail
/// let permit = bailiwick::ReadPermit { scope: todo!() };
/// ```
/// A tool gets one by being called:
/// ```
/// fn size_limit(permit: &bailiwick::ReadPermit) -> u64 {
///     permit.limits().read_max_bytes
/// }
/// ```
#[derive(Debug)]
pub struct ReadPermit {
    scope: Arc<PermitScope>,
}

impl ReadPermit {
    pub(crate) fn mint(scope: Arc<PermitScope>) -> Self {
        Self { scope }
    }

    /// The verdict on doing `verb`, whichever operation of it, to `path`, with all layers and grants of this call.
    #[must_use]
    pub fn judge(&self, verb: Verb, path: &VirtualPath) -> Verdict {
        self.judge_need(&Scope::file(verb, path.clone()))
    }

    /// The verdict on `need`, with all layers and grants of this call.
    #[must_use]
    pub fn judge_need(&self, need: &Scope) -> Verdict {
        self.scope.authority.judge(need, &self.scope.granted)
    }

    /// Whether an entry at `path` may be shown.
    #[must_use]
    pub fn shows(&self, path: &VirtualPath) -> bool {
        self.judge(Verb::Read, path) == Verdict::Allow
    }

    /// Requires that the call may do `verb`, whichever operation of it, to each of `paths`, which it found on its way.
    ///
    /// # Errors
    /// As [`Self::require_needs`].
    pub fn require<'p>(
        &self,
        verb: Verb,
        paths: impl IntoIterator<Item = &'p VirtualPath>,
    ) -> Result<(), Interrupt> {
        let paths = paths.into_iter();
        self.require_needs(paths.map(|path| Scope::file(verb, path.clone())))
    }

    /// Requires that the call may do all of `needs`, which it found on its way.
    ///
    /// # Errors
    /// [`Interrupt::Failed`] with `PERMISSION_DENIED` if one is denied; [`Interrupt::Needs`] with those that a person must allow.
    pub fn require_needs(&self, needs: impl IntoIterator<Item = Scope>) -> Result<(), Interrupt> {
        let mut asks = Vec::new();
        for need in needs {
            match self.judge_need(&need) {
                Verdict::Allow => {}
                Verdict::Ask => asks.push(need),
                Verdict::Deny => return Err(Interrupt::Failed(hidden_in_the_way())),
            }
        }
        if asks.is_empty() {
            Ok(())
        } else {
            Err(Interrupt::Needs(asks))
        }
    }

    /// Whether the call was judged as one that changes a protected file at `path`.
    #[must_use]
    pub fn may_change_protected(&self, path: &VirtualPath) -> bool {
        let need = Scope::file(Verb::Write, path.clone());
        self.scope.protected.contains(path) || self.scope.authority.protects(&need)
    }

    /// Requires a grant that names each of `paths`, which the call found to be protected by what stands around them.
    ///
    /// # Errors
    /// [`Interrupt::Protected`] with those that were not judged so.
    pub fn require_protected(&self, mut paths: Vec<VirtualPath>) -> Result<(), Interrupt> {
        paths.retain(|path| !self.may_change_protected(path));
        if paths.is_empty() {
            Ok(())
        } else {
            Err(Interrupt::Protected(paths))
        }
    }

    /// Requires that the call may make the directories `missing`, all of which lead to `target`. What a host granted by a bare
    /// pattern to change `target` is enough, unless a directory is protected by its own name; what a person allowed at a
    /// prompt names each directory.
    ///
    /// # Errors
    /// As [`ReadPermit::require_needs`].
    pub fn require_parents<'p>(
        &self,
        target: &VirtualPath,
        missing: impl IntoIterator<Item = &'p VirtualPath>,
    ) -> Result<(), Interrupt> {
        let target = Scope::doing(Operation::Create, target.clone());
        let mut grants = self.scope.granted.iter();
        let granted = grants.any(|grant| grant.is_bare() && grant.covers(&target));
        let made = missing.into_iter();
        let needs = made.map(|path| Scope::doing(Operation::Create, path.clone()));
        let rest = needs.filter(|need| {
            let asked = self.judge_need(need) == Verdict::Ask;
            let protected = || {
                need.path()
                    .is_some_and(|path| self.may_change_protected(path))
            };
            !(granted && asked && !protected())
        });
        self.require_needs(rest)
    }

    /// The path that was judged in place of `asked`, if links were followed; else `asked`.
    #[must_use]
    pub fn actual<'p>(&'p self, asked: &'p VirtualPath) -> &'p VirtualPath {
        self.scope
            .moved
            .iter()
            .find(|(from, _)| from == asked)
            .map_or(asked, |(_, to)| to)
    }

    /// The root that holds `path`, and the path beneath it (empty for the root itself).
    ///
    /// # Errors
    /// `NOT_FOUND` if no root of this worker holds it.
    pub fn root_of<'s, 'p>(
        &'s self,
        path: &'p VirtualPath,
    ) -> Result<(&'s Root, &'p str), CallError> {
        self.scope
            .roots
            .find(path)
            .ok_or_else(|| CallError::not_found(path))
    }

    /// Every root that this worker holds, in the order of the configuration.
    pub fn roots(&self) -> impl Iterator<Item = &Root> {
        self.scope.roots.iter()
    }

    /// The folders that the layers of this call leave open, in path order.
    #[must_use]
    pub fn open_folders(&self) -> Vec<OpenFolder> {
        self.scope.authority.open_folders()
    }

    /// The limits of this call, each the tightest of all layers.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        self.scope.authority.limits()
    }

    /// Whether every layer leaves this way of writing.
    #[must_use]
    pub fn allows_write_mode(&self, mode: WriteMode) -> bool {
        self.scope.authority.allows_write_mode(mode)
    }

    /// Whether files with more than one name (hard links) are refused.
    #[must_use]
    pub fn strict_hardlinks(&self) -> bool {
        self.scope.authority.strict_hardlinks()
    }

    /// Returns at once while the call may go on; called between pieces of work.
    ///
    /// # Errors
    /// `CANCELLED` or `DEADLINE`.
    pub fn checkpoint(&self) -> Result<(), CallError> {
        self.scope.checkpoint()
    }
}

/// Proof that a call was judged and may change what its plan says; taken by value, so it serves once.
///
/// ```compile_fail
/// fn twice(permit: bailiwick::WritePermit) {
///     drop(permit);
///     drop(permit); // used twice
/// }
/// ```
/// ```
/// fn once(permit: bailiwick::WritePermit) {
///     drop(permit);
/// }
/// ```
#[derive(Debug)]
pub struct WritePermit {
    read: ReadPermit,
}

impl WritePermit {
    pub(crate) fn mint(scope: Arc<PermitScope>) -> Self {
        Self {
            read: ReadPermit::mint(scope),
        }
    }

    /// What the call may look at.
    #[must_use]
    pub fn reading(&self) -> &ReadPermit {
        &self.read
    }

    /// What is closed when the worker or a grant it uses is revoked.
    pub(crate) fn gates(&self) -> Vec<Arc<Gate>> {
        self.read.scope.shared_gates()
    }

    /// Passes the point of no return: from now on the call is not stopped; after a revocation this fails. A revocation waits
    /// until [`apply`](crate::WriteTool::apply) returns, also if this was not called yet, so call
    /// [`checkpoint`](ReadPermit::checkpoint) between pieces of what is prepared before, such as temporary files.
    ///
    /// # Errors
    /// `CANCELLED` or `DEADLINE` if the call must not begin its effect.
    pub fn begin(&self) -> Result<Commit<'_>, CallError> {
        let passes = self.read.scope.gates().map(Gate::pass);
        let passes = passes.collect::<Option<_>>().ok_or_else(revoked)?;
        self.read.scope.stop.begin()?;
        Ok(Commit { _passes: passes })
    }
}

/// An effect under way; see [`WritePermit::begin`].
#[derive(Debug)]
pub struct Commit<'p> {
    _passes: Vec<Pass<'p>>,
}

/// A denied entry found beneath what was asked for; it is not named, so that nothing is told of it.
fn hidden_in_the_way() -> CallError {
    CallError::new(
        Code::PermissionDenied,
        "something beneath that path is not this worker's; name smaller parts",
    )
}
