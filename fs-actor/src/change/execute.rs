//! Executes one step: the change is made completely or not at all.

mod remove;

use bailiwick::tool::Interrupt;
use bailiwick::{CallError, Code, VirtualPath};

use super::state::{Inspected, State, inspect_in};
use super::target::relocated;
use super::tree::{self, TemporaryFiles};
use super::{Step, StepExecutor, TransferMode, repository, stale};
use crate::read_view::ReadView;
use crate::replace::{
    DirLock, Durability, ReplaceError, StagedFile, check_unchanged, discard, hold_live_lock,
    sync_dir, temporary_name,
};
use crate::resolve::{self, AtPath as _, Kind, OpenDir, OpenFile};
use crate::sys::{self, Errno, Mode, RenameFlags};
use remove::{remove_directory, remove_file};

/// How the steps of a call are executed.
pub(super) struct StepContext<'c, P> {
    pub(super) durability: Durability,
    /// See [`ChangeSet::replaced`](super::ChangeSet).
    pub(super) replaced: Option<&'c [u8]>,
    pub(super) view: &'c dyn ReadView,
    /// Called right before the effect; its result is held during the effect.
    pub(super) begin: &'c dyn Fn() -> Result<P, CallError>,
}

impl StepExecutor {
    pub(super) fn execute_step<P>(
        &self,
        step: &Step,
        context: &StepContext<'_, P>,
    ) -> Result<Durability, CallError> {
        let StepContext {
            durability,
            replaced,
            view,
            begin,
        } = *context;
        match step {
            Step::Write {
                path,
                content,
                existing,
                mode,
            } => {
                let entry = self.entry_ref(view, path)?;
                let old = entry.existing(existing, replaced, view)?;
                let dir = entry.dir.as_fd();
                let staged = match &old {
                    None => StagedFile::new_file(dir, content, *mode),
                    Some(old) => StagedFile::in_place_of(dir, content, &old.file, *mode),
                };
                entry.put(staged.at(path)?, old.as_ref(), context)
            }
            Step::SetMode {
                path,
                state,
                from,
                to,
            } => {
                let entry = self.entry_ref(view, path)?;
                set_mode(&entry, state, (*from, *to), context)
            }
            Step::MakeDirectory { path, mode } => {
                let entry = self.entry_ref(view, path)?;
                let _lock = entry.lock_repository(view)?;
                let _commit = begin()?;
                entry.make_directory(*mode)?;
                Ok(sync_dir(entry.dir.as_fd(), durability))
            }
            Step::MakeLink { path, target } => {
                make_link(&self.entry_ref(view, path)?, target, context)
            }
            Step::Transfer {
                mode,
                from,
                to,
                state,
                existing,
            } => {
                let (from, to) = (self.entry_ref(view, from)?, self.entry_ref(view, to)?);
                match (mode, state) {
                    (TransferMode::Move, _) => move_entry(&from, &to, (state, existing), context),
                    (TransferMode::Copy, State::Directory { content_only, .. }) => {
                        copy_directory(&from, &to, (state, *content_only), context)
                    }
                    (TransferMode::Copy, _) => copy_file(&from, &to, (state, existing), context),
                }
            }
            Step::Remove { path, state } => {
                let entry = self.entry_ref(view, path)?;
                if let State::Directory { .. } = state {
                    remove_directory(&entry, state, context)?;
                } else {
                    remove_file(&entry, state, context)?;
                }
                Ok(sync_dir(entry.dir.as_fd(), durability))
            }
        }
    }

    /// Opens the directory that contains `path`.
    fn entry_ref<'p>(
        &self,
        view: &dyn ReadView,
        path: &'p VirtualPath,
    ) -> Result<DirEntryRef<'p>, CallError> {
        let (dir, name) = match resolve::parent(view, path) {
            Ok(found) => found,
            Err(Interrupt::Failed(error)) if error.code() != Code::NotFound => return Err(error),
            // The planned directory is gone or has been replaced by a link.
            Err(_) => return Err(stale(path)),
        };
        self.sweeper.sweep_once(dir.as_fd());
        Ok(DirEntryRef { path, dir, name })
    }
}

/// A name in an open directory.
struct DirEntryRef<'p> {
    path: &'p VirtualPath,
    dir: OpenDir,
    name: String,
}

impl DirEntryRef<'_> {
    fn lock(&self) -> Result<DirLock<'_>, CallError> {
        DirLock::acquire(self.dir.as_fd()).at(self.path)
    }

    /// Locks the directory if the name may make it a Git repository or configure one, and checks that the plan covers
    /// that. Other names can be created without a lock.
    fn lock_repository(&self, view: &dyn ReadView) -> Result<Option<DirLock<'_>>, CallError> {
        if !repository::is_relevant(&self.name) {
            return Ok(None);
        }
        let lock = self.lock()?;
        self.check_repository(view)?;
        Ok(Some(lock))
    }

    /// Checks that a protected file is changed only if the plan covers it. The directory must be locked.
    fn check_repository(&self, view: &dyn ReadView) -> Result<(), CallError> {
        let protected = repository::is_relevant(&self.name)
            && repository::is_protected(&self.dir, &self.name).at(self.path)?;
        if protected && !view.may_change_protected(self.path) {
            return Err(stale(self.path));
        }
        Ok(())
    }

    /// Syncs the file system before a durable change; one sync is faster than one per file and directory of a tree.
    fn flush_first(&self, durability: Durability) -> Result<(), CallError> {
        match durability {
            Durability::Durable => sys::syncfs(self.dir.as_fd()).at(self.path),
            Durability::Visible | Durability::Ordered => Ok(()),
        }
    }

    /// Checks that the entry is in the planned state.
    fn expect(
        &self,
        state: &State,
        temporaries: TemporaryFiles,
        view: &dyn ReadView,
    ) -> Result<Inspected, CallError> {
        let inspected = inspect_in(&self.dir, &self.name, self.path, temporaries, view)?;
        if inspected.state == *state {
            Ok(inspected)
        } else {
            Err(stale(self.path))
        }
    }

    /// Opens the directory.
    fn enter(&self) -> Result<OpenDir, CallError> {
        self.dir.enter(&self.name).at(self.path)
    }

    /// Opens the file that is to be replaced, if there is one. `content` is that of the planned state, if known.
    fn existing(
        &self,
        state: &State,
        content: Option<&[u8]>,
        view: &dyn ReadView,
    ) -> Result<Option<OpenFile>, CallError> {
        match state {
            State::Absent => Ok(None),
            State::File { .. }
            | State::Link { .. }
            | State::Object { .. }
            | State::Directory { .. } => self.file(state, content, view).map(Some),
        }
    }

    /// Opens the file if it is in the planned state. `content` is that of the planned state, if known.
    fn file(
        &self,
        state: &State,
        content: Option<&[u8]>,
        view: &dyn ReadView,
    ) -> Result<OpenFile, CallError> {
        let opened = match state {
            // The plan found a regular file.
            State::File { .. } => self.dir.read_listed(&self.name),
            State::Absent | State::Link { .. } | State::Object { .. } | State::Directory { .. } => {
                self.dir.read(&self.name)
            }
        };
        let file = match opened {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NXIO) => {
                return Err(stale(self.path));
            }
            Err(errno) => return Err(resolve::to_call_error(errno, self.path)),
        };
        let is_planned = match (state, content) {
            (State::Object { .. }, _) => Ok(State::of_object(&file.meta) == *state),
            (State::File { .. }, Some(content)) => {
                debug_assert_eq!(State::of_file(content), *state);
                tree::has_content(&file, content, self.path, view)
            }
            (
                State::Absent | State::File { .. } | State::Link { .. } | State::Directory { .. },
                _,
            ) => tree::hash_file(&file, file.meta.len, self.path, view)
                .map(|(hash, bytes)| State::File { hash, bytes } == *state),
        };
        if is_planned.map_err(|error| changed_if_too_large(error, self.path))? {
            Ok(file)
        } else {
            Err(stale(self.path))
        }
    }

    fn make_directory(&self, mode: Option<u32>) -> Result<(), CallError> {
        let raw = Mode::from_raw_mode(mode.unwrap_or(0o777) & 0o777);
        match sys::mkdirat(self.dir.as_fd(), self.name.as_str(), raw) {
            Err(Errno::EXIST) => Err(stale(self.path)),
            done => done.at(self.path),
        }?;
        if mode.is_some() {
            // The system has applied the umask to it.
            let made = self.enter()?;
            sys::fchmod(made.as_fd(), raw).at(self.path)?;
        }
        Ok(())
    }

    /// Gives `staged` the name of the entry, in place of `old`.
    fn put<P>(
        &self,
        staged: StagedFile<'_>,
        old: Option<&OpenFile>,
        context: &StepContext<'_, P>,
    ) -> Result<Durability, CallError> {
        // Flush before the directory is locked and the effect begins: other writers do not wait for the disk, and a revocation
        // during the flush prevents the effect.
        staged.flush(context.durability).at(self.path)?;
        let Some(old) = old else {
            let _lock = self.lock_repository(context.view)?;
            let _commit = (context.begin)()?;
            return match staged.create(&self.name, context.durability) {
                Err(ReplaceError::Exists) => Err(stale(self.path)),
                done => done.at(self.path),
            };
        };
        let _lock = self.lock()?;
        self.check_repository(context.view)?;
        let _commit = (context.begin)()?;
        staged
            .replace(&self.name, &old.file, &old.meta, context.durability)
            .at(self.path)
    }
}

/// A file that grew while it was read has changed.
fn changed_if_too_large(error: CallError, path: &VirtualPath) -> CallError {
    if error.code() == Code::TooLarge {
        stale(path)
    } else {
        error
    }
}

fn make_link<P>(
    entry: &DirEntryRef<'_>,
    target: &[u8],
    context: &StepContext<'_, P>,
) -> Result<Durability, CallError> {
    let _lock = entry.lock_repository(context.view)?;
    let _commit = (context.begin)()?;
    let dir = entry.dir.as_fd();
    match sys::symlinkat(target, dir, entry.name.as_str()) {
        Err(Errno::EXIST) => Err(stale(entry.path)),
        done => done.at(entry.path),
    }?;
    Ok(sync_dir(dir, context.durability))
}

fn set_mode<P>(
    entry: &DirEntryRef<'_>,
    state: &State,
    (from, to): (u32, u32),
    context: &StepContext<'_, P>,
) -> Result<Durability, CallError> {
    let file = entry.file(state, None, context.view)?;
    let _lock = entry.lock()?;
    entry.check_repository(context.view)?;
    let is_planned = file.meta.mode == from && file.meta.links == 1;
    let (dir, name) = (entry.dir.as_fd(), entry.name.as_str());
    if !is_planned || check_unchanged(dir, name, &file.file, &file.meta).is_err() {
        return Err(stale(entry.path));
    }
    let _commit = (context.begin)()?;
    sys::fchmod(&file.file, Mode::from_raw_mode(to & 0o777)).at(entry.path)?;
    match context.durability {
        Durability::Durable if sys::fsync(&file.file).is_err() => Ok(Durability::Ordered),
        reached => Ok(reached),
    }
}

fn move_entry<P>(
    from: &DirEntryRef<'_>,
    to: &DirEntryRef<'_>,
    (state, existing): (&State, &State),
    context: &StepContext<'_, P>,
) -> Result<Durability, CallError> {
    // The new name must not reach the disk before the content.
    from.flush_first(context.durability)?;
    let old = to.existing(existing, None, context.view)?;
    let _locks = lock_both(from, to)?;
    // All writers of this crate take the lock, so the source that is compared is the one that is moved.
    let moved = from.expect(state, TemporaryFiles::Included, context.view)?;
    reject_linked(&moved, (from.path, to.path), context.view)?;
    to.check_repository(context.view)?;
    let _commit = (context.begin)()?;
    let (from_dir, to_dir) = (from.dir.as_fd(), to.dir.as_fd());
    let (own, new) = (from.name.as_str(), to.name.as_str());
    let done = match &old {
        None => sys::renameat_with(from_dir, own, to_dir, new, RenameFlags::NOREPLACE),
        Some(old) => {
            check_unchanged(to_dir, new, &old.file, &old.meta).at(to.path)?;
            sys::renameat(from_dir, own, to_dir, new)
        }
    };
    match done {
        Err(Errno::EXIST | Errno::NOTEMPTY) => Err(stale(to.path)),
        Err(Errno::NOENT) => Err(stale(from.path)),
        Err(Errno::XDEV) => Err(other_device(to.path)),
        done => done.at(to.path),
    }?;
    let sync = |dir| sync_dir(dir, context.durability);
    Ok(sync(from_dir).min(sync(to_dir)))
}

/// Rejects a move that gives the name of a protected file to a file with several hard links: a write to another link would
/// change the protected file.
fn reject_linked(
    moved: &Inspected,
    (from, to): (&VirtualPath, &VirtualPath),
    view: &dyn ReadView,
) -> Result<(), CallError> {
    let entries = moved.items.iter().map(|item| (&item.path, &item.meta));
    for (old, meta) in moved.meta.iter().map(|meta| (from, meta)).chain(entries) {
        let is_linked = meta.kind == Kind::File && meta.links > 1;
        if !is_linked || view.may_change_protected(old) {
            continue;
        }
        let new = relocated(old, from, to)?;
        if view.may_change_protected(&new) {
            let message = format!(
                "`{old}` has several hard links, so `{new}` could be changed by another name; copy it, then delete it"
            );
            return Err(CallError::new(Code::PermissionDenied, message));
        }
    }
    Ok(())
}

/// The error for a move between file systems, which would be a copy and a deletion.
pub(crate) fn other_device(to: &VirtualPath) -> CallError {
    CallError::new(
        Code::InvalidArguments,
        format!("`{to}` is on another file system; copy the source, then delete it"),
    )
}

/// Locks two directories in a fixed order; takes one lock if they are the same.
fn lock_both<'s>(
    a: &'s DirEntryRef<'_>,
    b: &'s DirEntryRef<'_>,
) -> Result<Vec<DirLock<'s>>, CallError> {
    let number = |entry: &DirEntryRef<'_>| {
        let stat = sys::fstat(entry.dir.as_fd()).at(entry.path)?;
        Ok::<_, CallError>((stat.st_dev, stat.st_ino))
    };
    match number(a)?.cmp(&number(b)?) {
        std::cmp::Ordering::Less => Ok(vec![a.lock()?, b.lock()?]),
        std::cmp::Ordering::Equal => Ok(vec![a.lock()?]),
        std::cmp::Ordering::Greater => Ok(vec![b.lock()?, a.lock()?]),
    }
}

fn copy_file<P>(
    from: &DirEntryRef<'_>,
    to: &DirEntryRef<'_>,
    (state, existing): (&State, &State),
    context: &StepContext<'_, P>,
) -> Result<Durability, CallError> {
    let source = from.file(state, None, context.view)?;
    let old = to.existing(existing, None, context.view)?;
    let staged = StagedFile::copy_of(to.dir.as_fd(), &source, context.view).at(to.path)?;
    if check_unchanged(from.dir.as_fd(), &from.name, &source.file, &source.meta).is_err() {
        return Err(stale(from.path));
    }
    to.put(staged, old.as_ref(), context)
}

/// Copies to a temporary name, compares, then renames, so that the copy appears completely or not at all.
fn copy_directory<P>(
    from: &DirEntryRef<'_>,
    to: &DirEntryRef<'_>,
    (state, content_only): (&State, bool),
    context: &StepContext<'_, P>,
) -> Result<Durability, CallError> {
    let (view, to_dir) = (context.view, to.dir.as_fd());
    let inspected = from.expect(state, TemporaryFiles::Excluded, view)?;
    let source = from.enter()?;
    let mode = inspected
        .meta
        .map_or(0o700, |meta| meta.mode & 0o777 | 0o700);
    let name = temporary_name().at(to.path)?;
    sys::mkdirat(to_dir, name.as_str(), Mode::from_raw_mode(mode)).at(to.path)?;
    let fill = || {
        let open = || to.dir.enter(&name).at(to.path);
        let (copy, live) = (open()?, open()?);
        hold_live_lock(live.as_fd());
        tree::copy(source, copy, from.path, &inspected.items, view)?;
        let copied = || inspect_in(&to.dir, &name, from.path, TemporaryFiles::Excluded, view);
        if content_only && copied()?.state != *state {
            return Err(stale(from.path));
        }
        to.flush_first(context.durability)?;
        let _lock = to.lock_repository(view)?;
        let _commit = (context.begin)()?;
        let new = to.name.as_str();
        match sys::renameat_with(to_dir, name.as_str(), to_dir, new, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST | Errno::NOTEMPTY) => Err(stale(to.path)),
            done => done.at(to.path),
        }?;
        Ok(sync_dir(to_dir, context.durability))
    };
    fill().inspect_err(|_| {
        // The sweeper removes what remains.
        let _ = discard(&to.dir, &name);
    })
}
