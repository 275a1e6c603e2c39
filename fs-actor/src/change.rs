//! Executes planned changes of files, only if the files are still in the planned state.

mod contents;
mod execute;
mod known_contents;
pub(crate) mod permissions;
pub(crate) mod progress;
pub(crate) mod put;
pub(crate) mod repository;
pub(crate) mod sequence;
pub(crate) mod state;
pub(crate) mod stored;
pub(crate) mod target;
#[cfg(test)]
mod tests;
pub(crate) mod tree;

use std::sync::{Arc, OnceLock};

use bailiwick::effect::{ContentHash, Entry, Op};
use bailiwick::text::escape;
use bailiwick::tool::WritePermit;
use bailiwick::{CallError, Code, VirtualPath};
use bytes::Bytes;
use serde_json::json;

use crate::read_view::ReadView;
use crate::replace::{Durability, ReachedDurability, Sweeper};
use crate::resolve::{self, Meta};
use crate::sys::{AtFlags, unlinkat};

pub(crate) use execute::other_device;
use known_contents::KnownContents;
pub(crate) use state::{State, inspect};
pub(crate) use tree::TemporaryFiles;

/// One change, as data that can be stored, shown and undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Writes a file.
    Write {
        path: VirtualPath,
        content: Bytes,
        /// The state that it replaces; [`State::Absent`] for a new file.
        existing: State,
        /// The permission bits that the file gets; without them, those of the file that it replaces, or the default.
        mode: Option<u32>,
    },
    /// Changes the permission bits of a file.
    SetMode {
        path: VirtualPath,
        state: State,
        from: u32,
        to: u32,
    },
    /// Creates a directory.
    MakeDirectory {
        path: VirtualPath,
        mode: Option<u32>,
    },
    /// Creates a symbolic link.
    MakeLink { path: VirtualPath, target: Bytes },
    /// Copies or moves a file or directory.
    Transfer {
        mode: TransferMode,
        from: VirtualPath,
        to: VirtualPath,
        state: State,
        /// The file that it replaces, or [`State::Absent`].
        existing: State,
    },
    /// Deletes a file, or a directory with its contents.
    Remove { path: VirtualPath, state: State },
}

/// What happens to the source of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferMode {
    Copy,
    Move,
}

impl TransferMode {
    /// The operation of the change that people see.
    pub(crate) fn op(self) -> Op {
        match self {
            Self::Copy => Op::Copy,
            Self::Move => Op::Move,
        }
    }
}

impl Step {
    /// The directory that it creates.
    pub(crate) fn created_directory(&self) -> Option<&VirtualPath> {
        match self {
            Self::MakeDirectory { path, .. } => Some(path),
            Self::Write { .. }
            | Self::SetMode { .. }
            | Self::MakeLink { .. }
            | Self::Transfer { .. }
            | Self::Remove { .. } => None,
        }
    }

    /// The content that it writes, or the target of the link that it creates.
    pub(crate) fn content(&self) -> Option<&Bytes> {
        match self {
            Self::Write { content, .. } => Some(content),
            Self::MakeLink { target, .. } => Some(target),
            Self::SetMode { .. }
            | Self::MakeDirectory { .. }
            | Self::Transfer { .. }
            | Self::Remove { .. } => None,
        }
    }

    /// The path that it changes; for a transfer, the new path.
    pub(crate) fn path(&self) -> &VirtualPath {
        match self {
            Self::Write { path, .. }
            | Self::SetMode { path, .. }
            | Self::MakeDirectory { path, .. }
            | Self::MakeLink { path, .. }
            | Self::Remove { path, .. } => path,
            Self::Transfer { to, .. } => to,
        }
    }

    /// The paths that it changes.
    pub(crate) fn touched(&self) -> impl Iterator<Item = &VirtualPath> {
        let from = match self {
            Self::Transfer { from, .. } => Some(from),
            Self::Write { .. }
            | Self::SetMode { .. }
            | Self::MakeDirectory { .. }
            | Self::MakeLink { .. }
            | Self::Remove { .. } => None,
        };
        std::iter::once(self.path()).chain(from)
    }

    /// The states that it expects.
    fn expected(&self) -> Vec<(&VirtualPath, &State)> {
        match self {
            Self::Write { path, existing, .. } => vec![(path, existing)],
            Self::MakeDirectory { path, .. } | Self::MakeLink { path, .. } => {
                vec![(path, &State::Absent)]
            }
            Self::Transfer {
                from,
                to,
                state,
                existing,
                ..
            } => vec![(from, state), (to, existing)],
            Self::Remove { path, state } | Self::SetMode { path, state, .. } => vec![(path, state)],
        }
    }

    /// The states that it leaves.
    fn results(&self) -> Vec<(&VirtualPath, State)> {
        match self {
            Self::Write { path, content, .. } => vec![(path, State::of_file(content))],
            Self::SetMode { path, state, .. } => vec![(path, state.clone())],
            Self::MakeDirectory { path, .. } => vec![(path, State::empty_directory())],
            Self::MakeLink { path, target } => vec![(path, State::of_link(target))],
            Self::Remove { path, .. } => vec![(path, State::Absent)],
            Self::Transfer {
                mode,
                from,
                to,
                state,
                ..
            } => {
                let moved = (*mode == TransferMode::Move).then_some((from, State::Absent));
                moved.into_iter().chain([(to, state.clone())]).collect()
            }
        }
    }

    /// Whether it creates what was deleted before.
    fn restores(&self) -> bool {
        match self {
            Self::Write { existing, .. } => *existing == State::Absent,
            Self::MakeDirectory { .. } | Self::MakeLink { .. } => true,
            Self::SetMode { .. } | Self::Transfer { .. } | Self::Remove { .. } => false,
        }
    }

    /// Whether its path already is what it would make of it.
    fn is_done(&self, view: &dyn ReadView) -> bool {
        let state = |path| {
            let inspected = inspect(view, path, TemporaryFiles::Included);
            inspected.map(|inspected| inspected.state)
        };
        match self {
            Self::Write { path, content, .. } => {
                state(path).is_ok_and(|state| state == State::of_file(content))
            }
            Self::SetMode { path, to, .. } => {
                let inspected = inspect(view, path, TemporaryFiles::Included);
                let meta = inspected.ok().and_then(|inspected| inspected.meta);
                meta.is_some_and(|meta| meta.mode == *to)
            }
            Self::MakeDirectory { path, .. } => {
                state(path).is_ok_and(|state| matches!(state, State::Directory { .. }))
            }
            Self::MakeLink { path, target } => {
                state(path).is_ok_and(|state| state == State::of_link(target))
            }
            Self::Remove { path, .. } => state(path).is_ok_and(|state| state == State::Absent),
            Self::Transfer { from, to, .. } => {
                let there = state(to).is_ok_and(|state| state != State::Absent);
                there && state(from).is_ok_and(|state| state == State::Absent)
            }
        }
    }
}

/// The changes of one call.
#[derive(Clone, Debug)]
pub(crate) struct ChangeSet {
    pub(crate) steps: Vec<Step>,
    /// The requested durability.
    pub(crate) durability: Durability,
    /// The durability that was reached.
    pub(crate) reached: ReachedDurability,
    /// The content that the steps replace, if they write one file and it is in memory. Comparing takes less time than
    /// hashing.
    pub(crate) replaced: Option<Bytes>,
}

impl From<Vec<Step>> for ChangeSet {
    fn from(steps: Vec<Step>) -> Self {
        Self {
            steps,
            durability: Durability::default(),
            reached: ReachedDurability::default(),
            replaced: None,
        }
    }
}

/// Executes steps; each tool has its own. Clones share the sweeper and the known contents.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepExecutor {
    durability: Durability,
    sweeper: Arc<Sweeper>,
    known_contents: Arc<KnownContents>,
    mask_key: OnceLock<[u8; 32]>,
}

impl StepExecutor {
    /// An executor with this durability.
    pub(crate) fn new(durability: Durability) -> Self {
        Self {
            durability,
            ..Self::default()
        }
    }

    /// The requested durability.
    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    /// The durability of a call that changes something.
    pub(crate) fn reached(&self) -> ReachedDurability {
        ReachedDurability::requested(Some(self.durability))
    }

    /// The changes of one call.
    pub(crate) fn change_set(&self, steps: Vec<Step>, reached: ReachedDurability) -> ChangeSet {
        ChangeSet {
            steps,
            durability: self.durability,
            reached,
            replaced: None,
        }
    }

    /// Executes all steps as in [`StepExecutor::execute`].
    ///
    /// # Errors
    /// As [`StepExecutor::execute`].
    pub(crate) fn apply(
        &self,
        change_set: &ChangeSet,
        permit: &WritePermit,
    ) -> Result<(), CallError> {
        self.execute(change_set, permit.reading(), || permit.begin())
    }

    /// Executes all steps, or none: if one fails, those before it are undone by the steps in `rollback`, one list for each
    /// step. A path that others changed in the meantime is left as it is and named in the error.
    ///
    /// # Errors
    /// As [`StepExecutor::execute`]. `details.rolled_back` is the number of steps that were undone, and
    /// `details.not_rolled_back` has the paths that could not be. `details.removed` is 0 if what a step had removed was restored.
    pub(crate) fn apply_all(
        &self,
        change_set: &ChangeSet,
        rollback: &[Vec<Step>],
        permit: &WritePermit,
    ) -> Result<(), CallError> {
        let view = permit.reading();
        let executed = self.execute_steps(change_set, view, || permit.begin());
        executed.map_err(|(done, error)| {
            // A directory may have been deleted in part.
            let partly = error.details().contains_key("removed");
            let made = rollback.get(..done + usize::from(partly));
            self.roll_back(error, made.unwrap_or_default(), view)
        })
    }

    /// Executes all steps or none as [`StepExecutor::apply_all`], if all paths that they change are still in the planned
    /// state.
    ///
    /// # Errors
    /// As [`StepExecutor::apply_all`]. `details.conflicts` has all paths that others have changed.
    pub(crate) fn apply_unchanged(
        &self,
        change_set: &ChangeSet,
        rollback: &[Vec<Step>],
        permit: &WritePermit,
    ) -> Result<(), CallError> {
        let changed = changed_paths(&change_set.steps, permit.reading())?;
        if let [first, others @ ..] = changed.as_slice() {
            let error = stale(first);
            let named_paths = changed.iter().filter(|path| permit.reading().shows(path));
            let named_paths: Vec<&str> = named_paths
                .take(MAX_NAMED)
                .map(|path| path.as_str())
                .collect();
            let message = match others.len() {
                0 => error.message().to_owned(),
                _ => format!(
                    "{} have changed since the preview; preview the call again",
                    named(&named_paths, changed.len())
                ),
            };
            return Err(CallError::new(error.code(), message).with("conflicts", json!(named_paths)));
        }
        self.apply_all(change_set, rollback, permit)
    }

    /// Removes temporary files that a crash left beside `path`.
    pub(crate) fn sweep_beside(&self, path: &VirtualPath, view: &dyn ReadView) {
        // If the directory cannot be opened, nothing can be removed.
        if let Ok((dir, _)) = resolve::parent(view, path) {
            self.sweeper.sweep_once(dir.as_fd());
        }
    }

    /// Undoes executed steps, the last one first, and adds the result to `error`. `made` has a list of steps that undo each of
    /// them; a step with an empty list cannot be undone. If `error` counts removed entries, they are those of the last step.
    fn roll_back(
        &self,
        mut error: CallError,
        made: &[Vec<Step>],
        view: &dyn ReadView,
    ) -> CallError {
        if made.is_empty() {
            return error;
        }
        // The rollback belongs to an effect that has already begun, so it does not call `begin`.
        let context = execute::StepContext {
            durability: self.durability,
            replaced: None,
            view,
            begin: &|| Ok(()),
        };
        let (mut undone, mut left) = (0, Vec::new());
        for (index, undo) in made.iter().enumerate().rev() {
            let mut is_undone = !undo.is_empty();
            for step in undo {
                if self.execute_step(step, &context).is_ok() || step.is_done(view) {
                    continue;
                }
                is_undone = false;
                if !left.contains(&step.path().as_str()) {
                    left.push(step.path().as_str());
                }
            }
            undone += usize::from(is_undone);
            if is_undone && index + 1 == made.len() && error.details().contains_key("removed") {
                error = error.with("removed", 0);
            }
        }
        let error = error.with("rolled_back", undone);
        match made.len() - undone {
            0 => error,
            count => error
                .with("done", count)
                .with("not_rolled_back", json!(left)),
        }
    }

    /// Executes all steps. `begin` is called before each step, and its result is held during the step.
    ///
    /// # Errors
    /// `STALE_PREVIEW` if the files are not in the planned state, `CONFLICT` if another writer interfered, and codes
    /// such as `IO` for system errors. `details.done` is the number of steps that remain in effect.
    pub(crate) fn execute<P>(
        &self,
        change_set: &ChangeSet,
        view: &dyn ReadView,
        begin: impl Fn() -> Result<P, CallError>,
    ) -> Result<(), CallError> {
        let executed = self.execute_steps(change_set, view, begin);
        executed.map_err(|(done, error)| {
            let made = change_set.steps.get(..done).unwrap_or_default();
            match remove_created_directories(made, view) {
                0 => error,
                left => error.with("done", left),
            }
        })
    }

    /// Executes steps up to the first that fails; the error has the number of those before it.
    fn execute_steps<P>(
        &self,
        change_set: &ChangeSet,
        view: &dyn ReadView,
        begin: impl Fn() -> Result<P, CallError>,
    ) -> Result<(), (usize, CallError)> {
        let context = execute::StepContext {
            durability: change_set.durability,
            replaced: change_set.replaced.as_deref(),
            view,
            begin: &begin,
        };
        let mut reached: Option<Durability> = None;
        for (done, step) in change_set.steps.iter().enumerate() {
            let level = self.execute_step(step, &context);
            let level = level.map_err(|error| (done, error))?;
            reached = Some(reached.map_or(level, |least| least.min(level)));
        }
        if let Some(reached) = reached {
            change_set.reached.set(reached);
        }
        Ok(())
    }

    /// The entry to report for `state`. If the worker may not read it, the hash is masked: it changes with the content, but
    /// cannot be guessed, and differs from that of any other file with the same content.
    pub(crate) fn entry(
        &self,
        state: &State,
        meta: Option<&Meta>,
        is_readable: bool,
    ) -> Result<Entry, CallError> {
        match (state.entry(), meta) {
            (Entry::File { hash, .. }, Some(meta)) if !is_readable => Ok(Entry::File {
                hash: self.masked(hash, tree::stamp(meta))?,
                bytes: 0,
            }),
            (Entry::File { .. }, None) if !is_readable => Ok(Entry::Absent),
            (entry, _) => Ok(entry),
        }
    }

    fn masked(&self, hash: ContentHash, stamp: ContentHash) -> Result<ContentHash, CallError> {
        let key = match self.mask_key.get() {
            Some(key) => key,
            None => {
                let mut key = [0; 32];
                getrandom::fill(&mut key).map_err(|_| {
                    CallError::new(
                        Code::Io,
                        "cannot get random numbers from the operating system",
                    )
                })?;
                self.mask_key.get_or_init(|| key)
            }
        };
        let mut keyed = key.to_vec();
        keyed.extend_from_slice(hash.as_bytes());
        keyed.extend_from_slice(stamp.as_bytes());
        Ok(ContentHash::of(&keyed))
    }
}

/// Maximum number of paths that an error names.
const MAX_NAMED: usize = 20;

/// Names `named_paths`, and says how many more of `count` paths there are, for a message.
fn named(named_paths: &[&str], count: usize) -> String {
    let names: Vec<String> = named_paths
        .iter()
        .map(|path| format!("`{}`", escape(path)))
        .collect();
    match names.as_slice() {
        [] => format!("{count} paths"),
        names if names.len() < count => {
            format!("{} and {} more", names.join(", "), count - names.len())
        }
        names => names.join(", "),
    }
}

/// The error for a plan whose files have changed.
pub(crate) fn stale(path: &VirtualPath) -> CallError {
    CallError::new(
        Code::StalePreview,
        format!("`{path}` has changed since the preview; preview the call again"),
    )
}

/// The paths whose state is not what the first of `steps` that is about them expects.
fn changed_paths<'s>(
    steps: &'s [Step],
    view: &dyn ReadView,
) -> Result<Vec<&'s VirtualPath>, CallError> {
    let mut changed = Vec::new();
    let mut touched: Vec<&VirtualPath> = Vec::new();
    for step in steps {
        for (path, expected) in step.expected() {
            view.checkpoint()?;
            let mut others = touched.iter();
            if others.any(|other| path.starts_with(other) || other.starts_with(path)) {
                continue;
            }
            let temporaries = match step {
                Step::Transfer {
                    mode: TransferMode::Copy,
                    ..
                } => TemporaryFiles::Excluded,
                _ => TemporaryFiles::Included,
            };
            let found = inspect(view, path, temporaries);
            if !found.is_ok_and(|found| found.state == *expected) {
                changed.push(path);
            }
        }
        touched.extend(step.touched());
    }
    Ok(changed)
}

/// Removes directories that `steps` created, if they are still empty. Returns the number of steps that remain in
/// effect.
fn remove_created_directories(steps: &[Step], view: &dyn ReadView) -> usize {
    let mut left = steps.len();
    for step in steps.iter().rev() {
        let Some(path) = step.created_directory() else {
            break;
        };
        let Ok((dir, name)) = resolve::parent(view, path) else {
            break;
        };
        if unlinkat(dir.as_fd(), name.as_str(), AtFlags::REMOVEDIR).is_err() {
            break;
        }
        left -= 1;
    }
    left
}
