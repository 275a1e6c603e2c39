//! Permits: proof that a call was authorised, required for every read and every change.

mod act;
mod gate;
mod meter;
mod owner;
mod remote;

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::call::Progress;
use crate::error::{CallError, Code};
use crate::id::WorkerId;
use crate::journal::JournalView;
use crate::path::VirtualPath;
use crate::policy::{Authority, EntryRules, Flag, Limits, OpenFolder, Verdict, WriteMode};
use crate::root::{Root, RootTable};
use crate::scope::{Coverage, Operation, Scope, ScopePattern, Verb};

pub(crate) use act::ActRecords;
pub use act::{Act, ActPermit, ActProgress, OutputStream, PathsLocked};
pub(crate) use gate::{CloseReason, GRACE, Gate, Pass, passes, settled};
pub use meter::{BudgetExceeded, MemoryUse, ProcessReservation};
pub(crate) use meter::{Charge, Meter};
pub use owner::Owner;
#[doc(hidden)]
pub use remote::CallPermit;

/// Why a call in flight is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum StopReason {
    /// The caller no longer waits for the result.
    Cancelled = 1,
    /// The deadline has passed.
    Expired = 2,
    /// The worker was revoked, or a grant that the call uses.
    Revoked = 3,
}

/// State of a call whose effect began before it was stopped.
const BEGUN: u8 = 4;

/// Stops a call in flight, and knows its deadline and its progress. The first state that is set is final: a call whose
/// effect has begun cannot be stopped.
#[derive(Debug, Default)]
pub(crate) struct CallControl {
    state: AtomicU8,
    /// Whether the effect began elsewhere: the call was sent to a server, or an act tool began to act.
    begun_elsewhere: AtomicBool,
    /// Number of steps of the effect that the tool reported as completed.
    steps: AtomicU64,
    progress: Option<Progress>,
    /// When the deadline passes.
    deadline: Mutex<Option<Instant>>,
}

impl CallControl {
    /// Creates one that also reports progress.
    pub(crate) fn with_progress(progress: Option<Progress>) -> Self {
        Self {
            progress,
            ..Self::default()
        }
    }

    pub(crate) fn raise(&self, why: StopReason) {
        // If the call was stopped before, the first reason is kept.
        let _ = self.set(why as u8);
    }

    /// Why the call was stopped; `None` if it was not.
    pub(crate) fn reason(&self) -> Option<StopReason> {
        let state = self.state.load(Ordering::SeqCst);
        [
            StopReason::Cancelled,
            StopReason::Expired,
            StopReason::Revoked,
        ]
        .into_iter()
        .find(|reason| *reason as u8 == state)
    }

    /// Marks the effect as begun. Fails if the call was stopped before.
    fn begin(&self) -> Result<(), CallError> {
        self.set(BEGUN).map(drop).or_else(|_| self.check())
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.state.load(Ordering::Acquire) == BEGUN
    }

    /// Marks the effect as begun elsewhere. Fails if the call was stopped before. Code that stops the call afterwards
    /// sees the mark.
    pub(crate) fn begin_elsewhere(&self) -> Result<(), CallError> {
        self.begun_elsewhere.store(true, Ordering::SeqCst);
        self.check().inspect_err(|_| self.undo_begin_elsewhere())
    }

    /// Removes the mark of [`Self::begin_elsewhere`], because the effect did not begin.
    fn undo_begin_elsewhere(&self) {
        self.begun_elsewhere.store(false, Ordering::SeqCst);
    }

    /// Whether the effect began elsewhere.
    pub(crate) fn has_begun_elsewhere(&self) -> bool {
        self.begun_elsewhere.load(Ordering::SeqCst)
    }

    /// Sets how much time the call has from now on.
    pub(crate) fn set_deadline_in(&self, left: Duration) {
        *self.deadline.lock() = Instant::now().checked_add(left);
    }

    fn time_left(&self) -> Option<Duration> {
        let deadline = *self.deadline.lock();
        Some(deadline?.saturating_duration_since(Instant::now()))
    }

    /// Sets the message that describes the progress.
    fn message(&self, text: &str) {
        if let Some(progress) = &self.progress {
            progress.set_message(text);
        }
    }

    /// Counts a completed step of the effect.
    fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        if let Some(progress) = &self.progress {
            progress.step();
        }
    }

    /// Adds to `error` that the effect began elsewhere, and how far it got.
    pub(crate) fn with_effect(&self, error: CallError) -> CallError {
        if !self.has_begun_elsewhere() {
            return error;
        }
        let steps = self.steps.load(Ordering::Relaxed);
        let error = error.with("begun", true);
        if steps == 0 || error.details().contains_key("done") {
            error
        } else {
            error.with("done", steps)
        }
    }

    fn set(&self, state: u8) -> Result<u8, u8> {
        self.state
            .compare_exchange(0, state, Ordering::SeqCst, Ordering::SeqCst)
    }

    pub(crate) fn check(&self) -> Result<(), CallError> {
        match self.state.load(Ordering::SeqCst) {
            0 | BEGUN => Ok(()),
            expired if expired == StopReason::Expired as u8 => Err(self::expired()),
            revoked if revoked == StopReason::Revoked as u8 => Err(CallError::new(
                Code::Cancelled,
                "the worker or a grant of this call was revoked, or the runtime has ended",
            )),
            _ => Err(CallError::new(Code::Cancelled, "the call was cancelled")),
        }
    }
}

/// What an authorised call may do; shared by its permits.
#[derive(Debug)]
pub(crate) struct PermitScope {
    /// The worker whose call it is; `None` if no call is made.
    pub(crate) worker: Option<WorkerId>,
    /// The ancestors of the worker.
    pub(crate) lineage: Arc<[WorkerId]>,
    /// All policy layers, including that of the call.
    pub(crate) authority: Authority,
    /// Grants that this call uses.
    pub(crate) granted: Vec<Coverage>,
    /// Files that are protected because of the files around them, not because of their names, and whose change is
    /// authorised.
    pub(crate) protected: Vec<VirtualPath>,
    /// Links that were followed: the requested path and the resolved path.
    pub(crate) moved: Vec<(VirtualPath, VirtualPath)>,
    /// The worker's directory handles.
    pub(crate) roots: Arc<RootTable>,
    /// Closed when the worker or an ancestor is revoked.
    pub(crate) gate: Arc<Gate>,
    /// Closed when a grant used here is revoked.
    pub(crate) grant_gates: Vec<Arc<Gate>>,
    /// Stops the call when it is cancelled or its deadline passes.
    pub(crate) stop: Arc<CallControl>,
    /// The changes that the worker may undo, if the runtime has a journal.
    pub(crate) journal: Option<JournalView>,
}

impl PermitScope {
    fn gates(&self) -> impl Iterator<Item = &Arc<Gate>> {
        std::iter::once(&self.gate).chain(&self.grant_gates)
    }

    fn shared_gates(&self) -> Vec<Arc<Gate>> {
        self.gates().cloned().collect()
    }

    fn checkpoint(&self) -> Result<(), CallError> {
        self.stop.check()?;
        if let Some(progress) = &self.stop.progress {
            progress.step();
        }
        if self.stop.has_begun() {
            return Ok(());
        }
        self.check_gates()
            .inspect_err(|_| self.stop.raise(StopReason::Revoked))
    }

    /// Fails if a gate is closed.
    fn check_gates(&self) -> Result<(), CallError> {
        let closed = self.gates().find(|gate| gate.is_closed());
        closed.map_or(Ok(()), |gate| Err(gate.error()))
    }
}

pub(crate) fn expired() -> CallError {
    CallError::new(
        Code::Deadline,
        "the call did not end in time; request less in one call",
    )
}

/// Why a tool stopped before it was done.
#[derive(Debug)]
pub enum Interrupt {
    /// The tool failed with this error.
    Failed(CallError),
    /// The tool needs more than was authorised. The pipeline judges these needs as well, then runs the tool again.
    Needs(Vec<Scope>),
    /// These files are protected because of the files around them. Changing one requires a grant that names it.
    Protected(Vec<VirtualPath>),
    /// `from` is a link, or contains a link, and resolves to `to`. The pipeline judges `to`, then runs the tool again.
    Moved {
        /// The path that was judged.
        from: VirtualPath,
        /// The path without links.
        to: VirtualPath,
    },
    /// Several interrupts at once. The pipeline handles all of them, then runs the tool again.
    All(Vec<Interrupt>),
}

impl From<CallError> for Interrupt {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

impl From<Interrupt> for CallError {
    /// Converts an interrupt at a stage where no more needs can be judged. A tool that returns one there has a bug.
    fn from(interrupt: Interrupt) -> Self {
        match interrupt {
            Interrupt::Failed(error) => error,
            Interrupt::Needs(_)
            | Interrupt::Protected(_)
            | Interrupt::Moved { .. }
            | Interrupt::All(_) => Self::new(
                Code::Internal,
                format!("the tool needed more after its plan was made: {interrupt}"),
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

/// Proof that a call was authorised and may read; only the pipeline creates it.
///
/// A tool also uses it to check what it finds while it runs: [`ReadPermit::judge`] decides whether an entry of a
/// listing, a link or a file in a subtree is visible.
///
/// Only the pipeline can create a permit:
/// ```compile_fail
/// let permit = bailiwick::tool::ReadPermit { scope: todo!() };
/// ```
/// A tool receives one as an argument:
/// ```
/// fn size_limit(permit: &bailiwick::tool::ReadPermit) -> u64 {
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

    /// Returns the verdict on any operation of `verb` on `path`, given all layers and grants of this call.
    #[must_use]
    pub fn judge(&self, verb: Verb, path: &VirtualPath) -> Verdict {
        self.judge_need(&Scope::file(verb, path.clone()))
    }

    /// Returns the verdict on `need`, given all layers and grants of this call.
    #[must_use]
    pub fn judge_need(&self, need: &Scope) -> Verdict {
        self.scope.authority.judge(need, &self.scope.granted)
    }

    /// Returns whether there may be a need that `pattern` covers and that is not denied. If this is not certain, it
    /// returns true.
    #[must_use]
    pub fn may_need(&self, pattern: &ScopePattern) -> bool {
        self.scope.authority.may_need(pattern)
    }

    /// Returns whether an entry at `path` is visible.
    #[must_use]
    pub fn shows(&self, path: &VirtualPath) -> bool {
        self.judge(Verb::Read, path) == Verdict::Allow
    }

    /// Returns which entries of the directory `dir` are visible. It gives the same answers as [`Self::shows`], and faster
    /// for many entries of one directory.
    ///
    /// ```
    /// use bailiwick::VirtualPath;
    /// use bailiwick::tool::ReadPermit;
    /// fn count(permit: &ReadPermit, dir: &VirtualPath, names: &[&str]) -> usize {
    ///     let visible = permit.entries(dir);
    ///     names.iter().filter(|name| visible.shows(name)).count()
    /// }
    /// ```
    #[must_use]
    pub fn entries(&self, dir: &VirtualPath) -> VisibleEntries<'_> {
        let PermitScope {
            authority, granted, ..
        } = &*self.scope;
        VisibleEntries {
            permit: self,
            dir: dir.clone(),
            rules: authority.entry_rules(dir, granted),
            ordinary: OnceCell::new(),
        }
    }

    /// Requires that the call may do any operation of `verb` on each of `paths`, which it found while it ran.
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

    /// Requires that the call may do all of `needs`, which it found while it ran.
    ///
    /// # Errors
    /// [`Interrupt::Failed`] with `PERMISSION_DENIED` if one is denied; [`Interrupt::Needs`] with those that need approval.
    pub fn require_needs(&self, needs: impl IntoIterator<Item = Scope>) -> Result<(), Interrupt> {
        let mut asks = Vec::new();
        for need in needs {
            match self.judge_need(&need) {
                Verdict::Allow => {}
                Verdict::Ask => asks.push(need),
                Verdict::Deny => return Err(Interrupt::Failed(hidden_entry())),
            }
        }
        if asks.is_empty() {
            Ok(())
        } else {
            Err(Interrupt::Needs(asks))
        }
    }

    /// Returns whether the call is authorised to change a protected file at `path`.
    #[must_use]
    pub fn may_change_protected(&self, path: &VirtualPath) -> bool {
        let need = Scope::file(Verb::Write, path.clone());
        self.scope.protected.contains(path) || self.scope.authority.protects(&need)
    }

    /// Returns whether a grant of this call names `path` itself and covers all changes of it.
    #[must_use]
    pub fn is_named_by_grant(&self, path: &VirtualPath) -> bool {
        let need = Scope::file(Verb::Write, path.clone());
        let mut granted = self.scope.granted.iter();
        granted.any(|grant| grant.path() == Some(path) && grant.covers(&need))
    }

    /// Requires a grant for each of `paths`, which are protected because of the files around them.
    ///
    /// # Errors
    /// [`Interrupt::Protected`] with the paths that are not authorised yet.
    pub fn require_protected(&self, mut paths: Vec<VirtualPath>) -> Result<(), Interrupt> {
        paths.retain(|path| !self.may_change_protected(path));
        if paths.is_empty() {
            Ok(())
        } else {
            Err(Interrupt::Protected(paths))
        }
    }

    /// Requires that the call may create the directories `missing`, the ancestors of `target`. A host's grant of a bare
    /// pattern that covers `target` is enough, unless the name of a directory is protected. An answer at a prompt names
    /// each directory.
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

    /// Returns the changes that the worker may undo; `None` if the runtime has no journal.
    #[must_use]
    pub fn journal(&self) -> Option<&JournalView> {
        self.scope.journal.as_ref()
    }

    /// Returns the path that `asked` resolved to if links were followed, otherwise `asked`.
    #[must_use]
    pub fn actual<'p>(&'p self, asked: &'p VirtualPath) -> &'p VirtualPath {
        self.scope
            .moved
            .iter()
            .find(|(from, _)| from == asked)
            .map_or(asked, |(_, to)| to)
    }

    /// Returns the root that contains `path`, and the path relative to it (empty for the root itself).
    ///
    /// # Errors
    /// `NOT_FOUND` if no root of this worker contains it.
    pub fn root_of<'s, 'p>(
        &'s self,
        path: &'p VirtualPath,
    ) -> Result<(&'s Root, &'p str), CallError> {
        self.scope
            .roots
            .find(path)
            .ok_or_else(|| CallError::not_found(path))
    }

    /// Returns the worker whose call it is.
    #[must_use]
    pub fn worker(&self) -> Option<WorkerId> {
        self.scope.worker
    }

    /// Returns the worker as the owner of what the call keeps.
    #[must_use]
    pub fn owner(&self) -> Option<Owner> {
        Some(Owner {
            worker: self.scope.worker?,
            ancestors: Arc::clone(&self.scope.lineage),
            gate: Arc::clone(&self.scope.gate),
        })
    }

    /// Returns the worker's roots in the order of the configuration.
    pub fn roots(&self) -> impl Iterator<Item = &Root> {
        self.scope.roots.iter()
    }

    /// Returns the configured roots in which the worker may do nothing, for sandboxes that must not show them.
    pub fn closed_roots(&self) -> impl Iterator<Item = &Root> {
        self.scope.roots.closed()
    }

    /// Returns the folders that are open to this call, in path order.
    #[must_use]
    pub fn open_folders(&self) -> &[OpenFolder] {
        self.scope.authority.open_folders()
    }

    /// Returns whether the verdict on reading, and whether changes are denied, is the same for `path` and everything
    /// beneath it; see [`Authority::is_uniform`](crate::policy::Authority::is_uniform).
    #[must_use]
    pub fn is_uniform(&self, path: &VirtualPath) -> bool {
        self.scope.authority.is_uniform(path, &self.scope.granted)
    }

    /// Returns whether globs decide about files; see
    /// [`Authority::has_name_rules`](crate::policy::Authority::has_name_rules).
    #[must_use]
    pub fn has_name_rules(&self) -> bool {
        self.scope.authority.has_name_rules()
    }

    /// Returns the limits of this call, each the strictest of all layers.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        self.scope.authority.limits()
    }

    /// Returns whether all layers allow this write mode.
    #[must_use]
    pub fn allows_write_mode(&self, mode: WriteMode) -> bool {
        self.scope.authority.allows_write_mode(mode)
    }

    /// Returns whether files with several hard links are rejected.
    #[must_use]
    pub fn strict_hardlinks(&self) -> bool {
        self.scope.authority.flag(Flag::StrictHardlinks)
    }

    /// Checks that the call may continue. Tools call it between units of work.
    ///
    /// # Errors
    /// `CANCELLED` or `DEADLINE`.
    pub fn checkpoint(&self) -> Result<(), CallError> {
        self.scope.checkpoint()
    }
}

/// Which entries of one directory are visible; see [`ReadPermit::entries`].
#[derive(Debug)]
pub struct VisibleEntries<'p> {
    permit: &'p ReadPermit,
    dir: VirtualPath,
    rules: Option<EntryRules<'p>>,
    /// Whether entries are visible that no rule treats differently from others.
    ordinary: OnceCell<bool>,
}

impl VisibleEntries<'_> {
    /// Returns whether no rule is about `name`, neither about reading it nor one that denies changes of it. All such entries
    /// have the same verdict on reading them, and changes of all or of none are denied.
    #[must_use]
    pub fn is_ordinary(&self, name: &str) -> bool {
        let rules = self.rules.as_ref();
        rules.is_some_and(|rules| rules.is_ordinary(name)) && self.dir.accepts(name)
    }

    /// Returns whether the entry `name` is visible. A name that is not valid in a path is not.
    #[must_use]
    pub fn shows(&self, name: &str) -> bool {
        let judge = || {
            let path = self.dir.join(name);
            path.is_ok_and(|path| self.permit.shows(&path))
        };
        match &self.rules {
            Some(rules) if rules.is_ordinary(name) => match self.ordinary.get() {
                _ if !self.dir.accepts(name) => false,
                Some(shown) => *shown,
                None => *self.ordinary.get_or_init(judge),
            },
            Some(_) | None => judge(),
        }
    }
}

/// Proof that a call was authorised and may carry out its plan. It is passed by value, so it is used once.
///
/// ```compile_fail
/// fn twice(permit: bailiwick::tool::WritePermit) {
///     drop(permit);
///     drop(permit); // used twice
/// }
/// ```
/// ```
/// fn once(permit: bailiwick::tool::WritePermit) {
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

    /// Returns the read permit of the call.
    #[must_use]
    pub fn reading(&self) -> &ReadPermit {
        &self.read
    }

    /// The gates that are closed when the worker or a grant that the call uses is revoked.
    pub(crate) fn gates(&self) -> Vec<Arc<Gate>> {
        self.read.scope.shared_gates()
    }

    /// Marks the effect as begun: from now on the call cannot be stopped. Fails after a revocation. A revocation waits
    /// until [`apply`](crate::WriteTool::apply) returns even if this was not called yet, so call
    /// [`checkpoint`](ReadPermit::checkpoint) between preparatory steps, such as writing temporary files.
    ///
    /// # Errors
    /// `CANCELLED` or `DEADLINE` if the effect must not begin.
    pub fn begin(&self) -> Result<Commit, CallError> {
        let passes = passes(self.read.scope.gates())?;
        self.read.scope.stop.begin()?;
        Ok(Commit { _passes: passes })
    }
}

/// An effect in progress; see [`WritePermit::begin`].
#[derive(Debug)]
pub struct Commit {
    _passes: Vec<Pass>,
}

/// The error for a denied entry beneath a requested path. It does not name the entry, which is hidden from the caller.
fn hidden_entry() -> CallError {
    CallError::new(
        Code::PermissionDenied,
        "permission denied for an entry below this path: narrow the path",
    )
}
