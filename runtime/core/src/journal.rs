//! Change journal: what the calls of workers changed, and how to undo it.
//!
//! A record is written before a change begins and another one when it has ended, so changes that a crash interrupted are
//! known at the next start. The records are kept in segments in a directory that no root may contain. The journal is
//! bounded in bytes and in age: the oldest changes are dropped first.
//!
//! The journal does not know how to undo a change. Tools provide bytes that one of them can read
//! ([`WriteTool::undo_record`](crate::WriteTool::undo_record)); for files, this is the tool `undo` of `bailiwick-fs`.

mod format;
mod index;
mod order;
mod store;
mod view;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::audit::wall_clock;
use crate::effect::{Change, Entry, Op};
use crate::error::{CallError, Code};
use crate::id::{CallId, WorkerId};
use crate::path::VirtualPath;
use crate::permission::is_at_or_beneath;
use crate::private_file::{Folder, PrivateFileError};
use format::{Begin, Damage, End, Payload, Record};
use store::Store;

pub use crate::id::ChangeId;
pub(crate) use view::changed_files;
pub use view::{ChangedFile, JournalView, UndoRecord};

/// How much a journal keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalLimits {
    /// Maximum size of all records in bytes; 128 MiB by default.
    pub bytes: u64,
    /// Maximum size in bytes of the old contents of one change. A larger change is recorded, but cannot be undone; 16 MiB by
    /// default.
    pub change_bytes: u64,
    /// How long changes are kept; 30 days by default. Older ones are dropped, several at a time, when the journal is opened and
    /// when a change is recorded; with changes now and then, they are kept up to an eighth longer. A change that a crash
    /// interrupted is kept until it is recovered, and so are all later changes, unless `bytes` or the maximum number of
    /// changes (16,000) requires that the oldest ones are dropped.
    pub age: Duration,
    /// Whether each record is synced to the disk before its change begins. Without this, a crash of the machine may lose
    /// the newest records; a crash of the program loses none. Off by default.
    pub durable: bool,
}

impl Default for JournalLimits {
    fn default() -> Self {
        Self {
            bytes: 128 << 20,
            change_bytes: 16 << 20,
            age: Duration::from_secs(30 * 24 * 60 * 60),
            durable: false,
        }
    }
}

/// Why a journal cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The directory or a file in it cannot be opened, created or read.
    #[error("cannot open the journal `{}`", .directory.display())]
    Open {
        /// The directory.
        directory: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another user can write the journal.
    #[error("`{}` cannot be a journal: {reason}", .directory.display())]
    Unsafe {
        /// The directory.
        directory: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Another runtime writes the journal.
    #[error("the journal `{}` is in use by another process: end it, or undo there", .directory.display())]
    InUse {
        /// The directory.
        directory: PathBuf,
    },
    /// Another version of this program wrote the journal; it was not changed.
    #[error("the journal `{}` has format version `{version}`, and this program reads version 1", .directory.display())]
    Version {
        /// The directory.
        directory: PathBuf,
        /// The version.
        version: String,
    },
    /// The journal is damaged and could not be moved aside, or was only read.
    #[error("the journal `{}` is damaged: {damage}", .directory.display())]
    Corrupt {
        /// The directory.
        directory: PathBuf,
        /// The segment, and what is wrong with it.
        damage: String,
    },
    /// A record cannot be written, such as on a full disk.
    #[error("the change journal cannot be written")]
    Write {
        /// The error of the operating system.
        source: io::Error,
    },
    /// An earlier record could not be written, and the file cannot be repaired while it is open.
    #[error("the change journal cannot be written any more; restart the runtime")]
    Broken,
    /// The runtime was dropped.
    #[error("the runtime was dropped")]
    Closed,
    /// The record of a change was damaged after the journal was opened.
    #[error("the record of change {change} is damaged")]
    Damaged {
        /// The change.
        change: ChangeId,
    },
    /// A change is too large to be recorded.
    #[error("the change has too many parts to be recorded in the journal")]
    TooLarge,
}

impl JournalError {
    fn open(folder: &Folder, source: io::Error) -> Self {
        let directory = directory_of(folder);
        Self::Open { directory, source }
    }

    fn of_file(folder: &Folder, error: PrivateFileError) -> Self {
        Self::of(&directory_of(folder), error)
    }

    fn of(directory: &Path, error: PrivateFileError) -> Self {
        let directory = directory.to_path_buf();
        match error {
            PrivateFileError::Open(source) => Self::Open { directory, source },
            PrivateFileError::Unsafe(reason) => Self::Unsafe { directory, reason },
            PrivateFileError::InUse => Self::InUse { directory },
        }
    }
}

fn directory_of(folder: &Folder) -> PathBuf {
    let place = folder.place();
    place.parent().unwrap_or(place).to_path_buf()
}

/// The state of a path that a change affects, before and after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JournalChange {
    /// The path.
    pub path: VirtualPath,
    /// The operation.
    pub op: Op,
    /// The target of a move or copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<VirtualPath>,
    /// The state of `path` before. The hash of a file that the worker may not read is masked.
    pub before: Entry,
    /// The state afterwards (of `to`, for a move or copy).
    pub after: Entry,
}

impl From<&Change> for JournalChange {
    fn from(change: &Change) -> Self {
        Self {
            path: change.path.clone(),
            op: change.op,
            to: change.to.clone(),
            before: change.before,
            after: change.after,
        }
    }
}

/// How far a change has got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
#[non_exhaustive]
pub enum ChangeState {
    /// It is being made.
    Running,
    /// The program ended before the change did.
    Interrupted,
    /// It was made, and is in effect.
    Applied,
    /// It was undone by another change.
    Undone {
        /// The other change.
        by: ChangeId,
    },
    /// Nothing was changed.
    NotApplied,
    /// A part of it was made, and is in effect.
    Failed,
    /// It was taken back, since a part of it could not be made.
    RolledBack,
    /// A part of it is in effect, since others changed these files before it was taken back.
    Conflict {
        /// The files.
        paths: Vec<String>,
    },
}

impl ChangeState {
    /// Returns whether the change, or a part of it, is in effect.
    #[must_use]
    pub fn is_in_effect(&self) -> bool {
        matches!(self, Self::Applied | Self::Failed | Self::Conflict { .. })
    }
}

/// One change: what one call did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JournalEntry {
    /// Its number.
    pub id: ChangeId,
    /// The call.
    pub call: CallId,
    /// The worker. Calls and workers of different runtimes may have equal ids.
    pub worker: WorkerId,
    /// The ancestors of the worker, from the nearest to the outermost.
    pub lineage: Arc<[WorkerId]>,
    /// A number that identifies the runtime.
    pub run: u64,
    /// The path of the worker's name, such as `main/tests`.
    pub agent: Arc<str>,
    /// The tool.
    pub tool: Arc<str>,
    /// One sentence that describes the call to people; it quotes the arguments of the agent.
    pub intent: Arc<str>,
    /// When it began, in milliseconds since 1970.
    pub at_ms: u64,
    /// What it changes.
    pub changes: Arc<[JournalChange]>,
    /// The changes that it undoes.
    pub undoes: Vec<ChangeId>,
    /// Whether the journal has what is needed to undo it.
    pub can_be_undone: bool,
    /// How far it has got.
    #[serde(flatten)]
    pub state: ChangeState,
}

impl JournalEntry {
    fn of(id: ChangeId, begin: &Begin, state: ChangeState) -> Self {
        Self {
            id,
            call: begin.call,
            worker: begin.worker,
            lineage: Arc::clone(&begin.lineage),
            run: begin.run,
            agent: Arc::clone(&begin.agent),
            tool: Arc::clone(&begin.tool),
            intent: Arc::clone(&begin.intent),
            at_ms: begin.at_ms,
            changes: Arc::clone(&begin.changes),
            undoes: begin.undoes.clone(),
            can_be_undone: begin.can_be_undone,
            state,
        }
    }

    /// Returns whether the agent that made it is called `agent`, such as `main/tests`, or is beneath one that is.
    #[must_use]
    pub fn is_made_at_or_beneath(&self, agent: &str) -> bool {
        is_at_or_beneath(&self.agent, agent)
    }
}

/// A change that a crash interrupted, and what became of it at the next start.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recovered {
    /// The change.
    pub change: JournalEntry,
    /// What became of it.
    pub outcome: Recovery,
}

impl fmt::Display for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let JournalEntry {
            id, agent, intent, ..
        } = &self.change;
        write!(f, "change {id} of {agent} was interrupted ({intent}): ")?;
        match &self.outcome {
            Recovery::Completed => f.write_str("it is complete"),
            Recovery::NotApplied => f.write_str("nothing was changed"),
            Recovery::RolledBack { files } => write!(f, "rolled back, {files} files restored"),
            Recovery::Conflict { error, .. } => write!(f, "not rolled back: {}", error.message()),
            Recovery::Failed { error } => write!(f, "not recovered yet: {}", error.message()),
        }
    }
}

/// What became of an interrupted change.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Recovery {
    /// All of it had been made.
    Completed,
    /// Nothing of it had been made.
    NotApplied,
    /// A part of it had been made, and was undone.
    RolledBack {
        /// Number of files and directories that were restored.
        files: usize,
    },
    /// A part of it is in effect: others have changed these files, and nothing was undone.
    Conflict {
        /// The files.
        paths: Vec<String>,
        /// The error.
        error: CallError,
    },
    /// It could not be recovered, such as without the tool `undo`. It is tried again at the next start.
    Failed {
        /// The error.
        error: CallError,
    },
}

fn in_effect(entries: &[JournalEntry]) -> Vec<ChangeId> {
    let entries = entries
        .iter()
        .filter(|entry| entry.undoes.is_empty() && entry.state.is_in_effect());
    entries.map(|entry| entry.id).collect()
}

/// A change that is about to begin.
pub(crate) struct NewChange<'c> {
    pub(crate) call: CallId,
    pub(crate) worker: WorkerId,
    pub(crate) lineage: Arc<[WorkerId]>,
    pub(crate) agent: Arc<str>,
    pub(crate) tool: &'c str,
    pub(crate) intent: &'c str,
    pub(crate) changes: Vec<JournalChange>,
    pub(crate) undo: UndoRecord,
}

/// A change journal in a directory.
///
/// Clones share the journal, so several runtimes of a process can use it. It is locked until the last clone and the runtimes
/// that use it are dropped, and no change is being made any more.
///
/// ```
/// use bailiwick::journal::Journal;
/// let dir = tempfile::tempdir()?;
/// let journal = Journal::open(dir.path().join("journal"))?;
/// assert!(journal.entries().is_empty());
/// assert!(Journal::open(dir.path().join("journal")).is_err(), "it is in use");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Journal {
    inner: Arc<Inner>,
    /// Identifies the runtime that uses it.
    run: u64,
    hold: Hold,
}

/// Whether a handle keeps the journal locked.
#[derive(Clone)]
enum Hold {
    Strong(Arc<Lease>),
    /// For the parts of a runtime, which may live a little longer than the runtime.
    Weak(Weak<Lease>),
}

impl Hold {
    fn lease(&self) -> Option<Arc<Lease>> {
        match self {
            Self::Strong(lease) => Some(Arc::clone(lease)),
            Self::Weak(lease) => lease.upgrade(),
        }
    }
}

/// Keeps the journal locked and open for new records.
struct Lease(Arc<Inner>);

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lease")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.store.lock().close();
    }
}

struct Inner {
    /// Number of the runtimes that have used it.
    runs: AtomicU64,
    limits: JournalLimits,
    directory: PathBuf,
    set_aside: Option<SetAside>,
    store: Mutex<Store>,
    opener: Opener,
}

/// A damaged journal that was moved aside.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetAside {
    /// The files, under their new names.
    pub files: Vec<PathBuf>,
    /// The segment, and what is wrong with it.
    pub damage: String,
}

impl fmt::Display for SetAside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the change journal is damaged ({}) and was kept as {}; earlier changes cannot be undone, and changes that a \
             crash interrupted are not recovered",
            self.damage,
            store::display(&self.files)
        )
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("directory", &self.inner.directory)
            .finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens the journal in `directory`, which is created if it does not exist, with the default limits.
    ///
    /// # Errors
    /// As [`Journal::open_with`].
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, JournalError> {
        Self::open_with(directory, JournalLimits::default())
    }

    /// Opens the journal in `directory`, which is created if it does not exist. A damaged journal is moved aside
    /// ([`Journal::set_aside`]).
    ///
    /// # Errors
    /// [`JournalError::InUse`] if it is open already, [`JournalError::Unsafe`] if another user can write it,
    /// [`JournalError::Version`] if another version of this program wrote it, [`JournalError::Open`] and
    /// [`JournalError::Write`] for errors of the operating system.
    pub fn open_with(
        directory: impl AsRef<Path>,
        limits: JournalLimits,
    ) -> Result<Self, JournalError> {
        let directory = directory.as_ref();
        create_directory(directory).map_err(|source| JournalError::Open {
            directory: directory.to_path_buf(),
            source,
        })?;
        let folder = folder(directory)?;
        let lock = folder
            .locked()
            .map_err(|error| JournalError::of(directory, error))?;
        lock.lock_folder()
            .map_err(|error| JournalError::of(directory, error))?;
        let folder = lock.folder();
        let (found, set_aside) = match store::read(folder)? {
            Ok(found) => (found, None),
            Err((_, Damage::Version(version))) => {
                let directory = directory.to_path_buf();
                return Err(JournalError::Version { directory, version });
            }
            Err((segment, damage)) => {
                let damage = format!("segment {segment}: {damage}");
                let files = store::set_aside(folder).map_err(|error| JournalError::Corrupt {
                    directory: directory.to_path_buf(),
                    damage: format!("{damage}; it cannot be moved aside: {error}"),
                })?;
                let empty = store::read(folder)?.map_err(|_| JournalError::Broken)?;
                (empty, Some(SetAside { files, damage }))
            }
        };
        if let Some(set_aside) = &set_aside {
            tracing::error!("{set_aside}");
        }
        let opener = Opener::start().map_err(|source| JournalError::Open {
            directory: directory.to_path_buf(),
            source,
        })?;
        let mut run = [0; 8];
        getrandom::fill(&mut run).map_err(|error| JournalError::Open {
            directory: directory.to_path_buf(),
            source: io::Error::other(error),
        })?;
        let directory = directory_of(folder);
        let store = Store::new(lock, limits, found, wall_clock())?;
        let inner = Arc::new(Inner {
            runs: AtomicU64::new(0),
            limits,
            directory,
            set_aside,
            store: Mutex::new(store),
            opener,
        });
        let hold = Hold::Strong(Arc::new(Lease(Arc::clone(&inner))));
        Ok(Self {
            inner,
            run: u64::from_le_bytes(run),
            hold,
        })
    }

    /// Reads the changes of the journal in `directory`, those first that took effect last, while another process may write it.
    ///
    /// # Errors
    /// As [`Journal::open_with`]; [`JournalError::Corrupt`] if it is damaged.
    pub fn read(directory: impl AsRef<Path>) -> Result<Vec<JournalEntry>, JournalError> {
        let directory = directory.as_ref();
        let found = store::read(&folder(directory)?)?;
        let found = found.map_err(|(segment, damage)| JournalError::Corrupt {
            directory: directory.to_path_buf(),
            damage: format!("segment {segment}: {damage}"),
        })?;
        Ok(found.index.entries(None, |_, _| true))
    }

    /// Returns its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.inner.directory
    }

    /// The directory, and the files in it.
    pub(crate) fn places(&self) -> [PathBuf; 2] {
        let directory = self.inner.directory.clone();
        let file = directory.join(store::NAME);
        [directory, file]
    }

    /// Returns the damaged journal that was found instead of this one, if there was one.
    #[must_use]
    pub fn set_aside(&self) -> Option<&SetAside> {
        self.inner.set_aside.as_ref()
    }

    /// Returns its changes, those first that took effect last. A change that was undone and made again took effect when it was
    /// made again.
    #[must_use]
    pub fn entries(&self) -> Vec<JournalEntry> {
        self.select(|_, _| true)
    }

    /// Returns how many changes were dropped, as the limits require, since it was opened.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.inner.store.lock().dropped
    }

    fn select(&self, wanted: impl Fn(ChangeId, &Begin) -> bool) -> Vec<JournalEntry> {
        let store = self.inner.store.lock();
        store.index.entries(Some(store.first), wanted)
    }

    /// This journal for a further runtime, whose workers may have the same ids as others.
    pub(crate) fn for_runtime(&self) -> Self {
        let runs = self.inner.runs.fetch_add(1, Ordering::Relaxed);
        Self {
            inner: Arc::clone(&self.inner),
            run: self.run.wrapping_add(runs),
            hold: self.hold.clone(),
        }
    }

    /// A handle that does not keep the journal locked.
    pub(crate) fn downgrade(&self) -> Self {
        let lease = match &self.hold {
            Hold::Strong(lease) => Arc::downgrade(lease),
            Hold::Weak(lease) => Weak::clone(lease),
        };
        Self {
            inner: Arc::clone(&self.inner),
            run: self.run,
            hold: Hold::Weak(lease),
        }
    }

    /// The number that identifies the runtime.
    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    /// Maximum size in bytes of the old contents of one change.
    pub(crate) fn change_bytes(&self) -> u64 {
        self.inner.limits.change_bytes
    }

    /// Records that a change is about to begin.
    pub(crate) fn begin(&self, new: NewChange<'_>) -> Result<OpenChange, JournalError> {
        let lease = self.hold.lease().ok_or(JournalError::Closed)?;
        let inverse = new.undo.inverse;
        let kept = inverse.filter(|bytes| bytes.len() as u64 <= self.inner.limits.change_bytes);
        let at_ms = wall_clock();
        let record = Record::Begin(Begin {
            run: self.run,
            call: new.call,
            worker: new.worker,
            lineage: new.lineage,
            agent: new.agent,
            tool: new.tool.into(),
            intent: new.intent.into(),
            at_ms,
            changes: new.changes.into(),
            undoes: new.undo.undoes,
            can_be_undone: kept.is_some(),
        });
        let payload = Payload::of(&record, kept.as_deref().unwrap_or_default());
        let payload = payload.ok_or(JournalError::TooLarge)?;
        self.make_room(at_ms)?;
        let change = self.inner.store.lock().append(record, &payload)?;
        Ok(OpenChange {
            journal: self.clone(),
            change,
            _lease: lease,
        })
    }

    /// Begins another segment if the newest one is full, and drops the oldest changes as the limits require.
    fn make_room(&self, now_ms: u64) -> Result<(), JournalError> {
        if !self.inner.store.lock().needs_rotation(now_ms) {
            return Ok(());
        }
        let inner = Arc::clone(&self.inner);
        let rotate = move || inner.store.lock().rotate(now_ms);
        self.inner.opener.run(rotate)?
    }

    fn record(&self, record: Record) {
        let payload = Payload::of(&record, &[]);
        if let Err(error) = self.make_room(wall_clock()) {
            tracing::warn!(%error, "cannot begin another segment of the journal, so the newest one grows");
        }
        let mut store = self.inner.store.lock();
        let written = payload
            .ok_or(JournalError::TooLarge)
            .and_then(|payload| store.append(record.clone(), &payload));
        if let Err(error) = written {
            // The change has happened. After a restart its end is determined by the state of the files.
            tracing::error!(%error, "the end of a change could not be recorded");
            store.note(record);
        }
    }

    /// Returns the changes in effect of a worker of this runtime and of its descendants, the newest first, for
    /// [`GrantAuthority::undo`](crate::GrantAuthority::undo).
    #[must_use]
    pub fn changes_of(&self, worker: WorkerId) -> Vec<ChangeId> {
        in_effect(&JournalView::new(self.clone(), Some(worker)).entries())
    }

    /// Returns the changes in effect of all workers that are called `agent`, such as `main/tests`, or are beneath one, in all
    /// runtimes, the newest first.
    #[must_use]
    pub fn changes_of_agent(&self, agent: &str) -> Vec<ChangeId> {
        in_effect(&self.select(|_, begin| is_at_or_beneath(&begin.agent, agent)))
    }

    /// Returns the changes that these calls of this runtime made, the newest first.
    #[must_use]
    pub fn changes_of_calls(&self, calls: &BTreeSet<CallId>) -> Vec<JournalEntry> {
        if calls.is_empty() {
            return Vec::new();
        }
        self.select(|_, begin| begin.run == self.run && calls.contains(&begin.call))
    }

    /// The changes that a crash interrupted, the newest first.
    pub(crate) fn interrupted(&self) -> Vec<JournalEntry> {
        let mut entries = self.entries();
        entries.retain(|entry| entry.state == ChangeState::Interrupted);
        entries
    }

    /// Records what became of a change that a crash interrupted.
    pub(crate) fn recovered(&self, change: ChangeId, outcome: &Recovery) {
        let end = match outcome {
            Recovery::Completed => End::Applied,
            Recovery::NotApplied => End::NotApplied,
            Recovery::RolledBack { .. } => End::RolledBack,
            Recovery::Conflict { paths, .. } => End::Conflict {
                paths: paths.clone(),
            },
            // It is tried again at the next start.
            Recovery::Failed { .. } => return,
        };
        self.record(Record::End { change, end });
    }

    /// The bytes that undo a change; `None` if it was dropped.
    fn inverse(&self, change: ChangeId) -> Result<Option<Vec<u8>>, JournalError> {
        let inner = Arc::clone(&self.inner);
        let read = move || inner.store.lock().opaque(change);
        self.inner.opener.run(read)?
    }
}

/// A thread that opens the files of a journal: the threads of file tools can open nothing outside the roots.
struct Opener(mpsc::Sender<Box<dyn FnOnce() + Send>>);

impl Opener {
    fn start() -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let thread = std::thread::Builder::new().name("bailiwick-journal".to_owned());
        thread.spawn(move || queue.into_iter().for_each(|job| job()))?;
        Ok(Self(jobs))
    }

    /// Runs `work` on the thread and waits for its result.
    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JournalError> {
        let (port, answer) = mpsc::sync_channel(1);
        let job = move || {
            // The receiver waits.
            let _ = port.send(work());
        };
        let sent = self.0.send(Box::new(job));
        sent.map_err(|_| JournalError::Broken)?;
        answer.recv().map_err(|_| JournalError::Broken)
    }
}

/// A change that has begun. If it is dropped without an end, it stays open and is recovered at the next start.
#[derive(Debug)]
pub(crate) struct OpenChange {
    journal: Journal,
    change: ChangeId,
    /// Nobody else may recover the change while it is being made.
    _lease: Arc<Lease>,
}

impl OpenChange {
    /// Records that it was made completely.
    pub(crate) fn applied(self) {
        self.end(End::Applied);
    }

    /// Records that it failed, as its tool reports.
    pub(crate) fn failed(self, error: &CallError, begun: bool) {
        self.end(end_of_failure(error, begun));
    }

    fn end(self, end: End) {
        let change = self.change;
        self.journal.record(Record::End { change, end });
    }
}

/// How a change ended, given the `error` of its tool.
fn end_of_failure(error: &CallError, begun: bool) -> End {
    let count = |key: &str| error.details().get(key).and_then(Value::as_u64);
    let is_rolled_back = begun && error.details().contains_key("rolled_back");
    // What remains after a rollback.
    let remains = |key: &str| count(key).is_some_and(|count| count > 0);
    let part = remains("done") || remains("removed");
    let conflicts = error
        .details()
        .get("not_rolled_back")
        .and_then(Value::as_array);
    let paths = conflicts.into_iter().flatten().filter_map(Value::as_str);
    let paths: Vec<String> = paths.map(str::to_owned).collect();
    if !paths.is_empty() {
        End::Conflict { paths }
    } else if is_rolled_back && !part {
        End::RolledBack
    } else if part || begun && error.code() == Code::Internal {
        End::Failed
    } else {
        End::NotApplied
    }
}

fn folder(directory: &Path) -> Result<Folder, JournalError> {
    Folder::of(&directory.join(store::NAME)).map_err(|error| JournalError::of(directory, error))
}

fn create_directory(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let created = std::fs::DirBuilder::new().mode(0o700).create(directory);
    match created {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created,
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use serde_json::json;

    use super::*;

    const FOLDER: &str = "BAILIWICK_FULL_JOURNAL_IN";

    /// Opens a journal whose segments are full after the beginning of one change.
    fn rotating(directory: &Path) -> Journal {
        let limits = JournalLimits {
            bytes: 1_600,
            durable: true,
            ..JournalLimits::default()
        };
        Journal::open_with(directory.join("journal"), limits).unwrap()
    }

    fn begin(journal: &Journal) -> Result<OpenChange, JournalError> {
        journal.begin(NewChange {
            call: CallId(1),
            worker: WorkerId(1),
            lineage: [].into(),
            agent: "main".into(),
            tool: "write_file",
            intent: "",
            changes: Vec::new(),
            undo: UndoRecord::default(),
        })
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the lock is deleted on purpose")]
    fn journal_without_its_lock_file_is_opened_only_once() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path().join("journal")).unwrap();
        std::fs::remove_file(folder.path().join("journal/changes.lock")).unwrap();
        let second = Journal::open(folder.path().join("journal"));
        assert!(matches!(second, Err(JournalError::InUse { .. })));
        drop(journal);
        Journal::open(folder.path().join("journal")).unwrap();
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a segment is deleted on purpose")]
    fn change_does_not_begin_in_a_deleted_journal() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path().join("journal")).unwrap();
        begin(&journal).unwrap().applied();
        std::fs::remove_file(folder.path().join("journal/changes.00000001")).unwrap();
        let error = begin(&journal).unwrap_err();
        assert!(matches!(error, JournalError::Write { .. }), "{error:?}");
    }

    /// Lets files of this process grow to `most` bytes.
    fn limit_files(most: Option<u64>) {
        let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
        let current = most.or(maximum);
        setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
    }

    #[test]
    #[ignore = "the child of the test below, in which files cannot grow"]
    fn journal_whose_files_cannot_grow() {
        let folder = std::env::var_os(FOLDER).unwrap();
        let journal = rotating(Path::new(&folder));
        let first = begin(&journal).unwrap();
        // A part of the first line of a segment fits.
        limit_files(Some(10));
        for _ in 0..2 {
            let error = begin(&journal).unwrap_err();
            assert!(matches!(error, JournalError::Write { .. }), "{error:?}");
        }
        limit_files(None);
        begin(&journal).unwrap().applied();
        first.applied();
    }

    #[test]
    fn segment_that_did_not_fit_on_the_disk_is_begun_again() {
        let folder = tempfile::tempdir().unwrap();
        // A write beyond the limit is an error where its signal is ignored.
        let mut child = std::process::Command::new("sh");
        let child = child
            .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact"])
            .arg("journal::tests::journal_whose_files_cannot_grow")
            .env(FOLDER, folder.path());
        let child = child.output().unwrap();
        let stdout = String::from_utf8_lossy(&child.stdout).into_owned();
        assert!(child.status.success(), "{stdout}");
        assert!(stdout.contains("1 passed"), "{stdout}");
    }

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "it makes a directory in the way of a segment"
    )]
    fn end_is_recorded_if_no_other_segment_can_be_begun() {
        for blocked in [true, false] {
            let temp = tempfile::tempdir().unwrap();
            let next = temp.path().join("journal/changes.00000002");
            let journal = rotating(temp.path());
            let change = begin(&journal).unwrap();
            if blocked {
                std::fs::create_dir(&next).unwrap();
            }
            change.applied();
            drop(journal);
            assert_eq!(next.is_file(), !blocked);
            if blocked {
                std::fs::remove_dir(&next).unwrap();
            }
            let entries = rotating(temp.path()).entries();
            let states: Vec<_> = entries.iter().map(|entry| &entry.state).collect();
            assert_eq!(states, [&ChangeState::Applied], "{blocked}");
        }
    }

    #[test]
    fn change_is_rolled_back_only_if_no_step_remains() {
        let end = |details: &[(&str, Value)]| {
            let mut error = CallError::new(Code::Io, "failed");
            for (key, value) in details {
                error = error.with(key, value.clone());
            }
            end_of_failure(&error, true)
        };
        let (undone, left) = (("rolled_back", json!(1)), ("done", json!(1)));
        assert_eq!(end(std::slice::from_ref(&undone)), End::RolledBack);
        let removed = |count: u64| ("removed", json!(count));
        assert_eq!(end(&[removed(3)]), End::Failed);
        assert_eq!(end(&[undone.clone(), removed(0)]), End::RolledBack);
        assert_eq!(end(&[undone.clone(), removed(3)]), End::Failed);
        // A step without a recorded undo cannot be rolled back, and no path is reported for it.
        let unnamed = ("not_rolled_back", json!([]));
        assert_eq!(end(&[undone.clone(), left.clone(), unnamed]), End::Failed);
        let named = ("not_rolled_back", json!(["/r/f"]));
        let paths = vec!["/r/f".to_owned()];
        assert_eq!(end(&[undone, left.clone(), named]), End::Conflict { paths });
        assert_eq!(end(&[left]), End::Failed);
        assert_eq!(end(&[]), End::NotApplied);
    }
}
