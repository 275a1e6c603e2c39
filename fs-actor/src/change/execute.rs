//! Executes one step: the change is made completely or not at all.

mod remove;

use bailiwick::tool::Interrupt;
use bailiwick::{CallError, Code, VirtualPath};

use super::state::{State, inspect_in};
use super::tree::{self, Checkpoint, CopyError, TemporaryFiles};
use super::{Step, StepExecutor, repository, stale};
use crate::read_view::ReadView;
use crate::replace::{
    DirLock, Durability, ReplaceError, StagedFile, check_unchanged, discard, hold_live_lock,
    sync_dir, temporary_name,
};
use crate::resolve::{self, OpenDir, OpenFile};
use crate::sys::{self, Errno, Mode, RenameFlags};
use remove::{remove_directory, remove_file};

impl StepExecutor {
    pub(super) fn execute_step<P>(
        &self,
        step: &Step,
        durability: Durability,
        view: &dyn ReadView,
        begin: &impl Fn() -> Result<P, CallError>,
    ) -> Result<Durability, CallError> {
        let checkpoint: Checkpoint<'_> = &|| view.checkpoint();
        match step {
            Step::Write {
                path,
                content,
                existing,
                mode,
            } => {
                let entry = self.entry_ref(view, path)?;
                if *existing != State::Absent {
                    return rewrite(&entry, content, existing, durability, view, begin);
                }
                let staged = StagedFile::new_file(entry.dir.as_fd(), content, *mode);
                let staged = staged.map_err(|error| error.to_call_error(path))?;
                let _lock = entry.lock_repository(view)?;
                let _commit = begin()?;
                entry.create(staged, durability)
            }
            Step::MakeDirectory { path, mode } => {
                let entry = self.entry_ref(view, path)?;
                let _lock = entry.lock_repository(view)?;
                let _commit = begin()?;
                entry.make_directory(*mode)?;
                Ok(sync_dir(entry.dir.as_fd(), durability))
            }
            Step::Move {
                from,
                to,
                state,
                existing,
            } => {
                let (from, to) = (self.entry_ref(view, from)?, self.entry_ref(view, to)?);
                // The new name must not reach the disk before the content.
                from.flush_first(durability)?;
                rename(&from, &to, (state, existing), view, begin)?;
                Ok(
                    sync_dir(from.dir.as_fd(), durability)
                        .min(sync_dir(to.dir.as_fd(), durability)),
                )
            }
            Step::Copy {
                from,
                to,
                state,
                existing,
            } => {
                let (from, to) = (self.entry_ref(view, from)?, self.entry_ref(view, to)?);
                if let State::Directory { .. } = state {
                    copy_directory(&from, &to, state, durability, view, begin)
                } else {
                    copy_file(&from, &to, (state, existing), durability, view, begin)
                }
            }
            Step::Remove { path, state } => {
                let entry = self.entry_ref(view, path)?;
                if let State::Directory { .. } = state {
                    remove_directory(&entry, state, checkpoint, begin)?;
                } else {
                    remove_file(&entry, state, checkpoint, begin)?;
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
            Err(
                Interrupt::Failed(_)
                | Interrupt::Moved { .. }
                | Interrupt::Needs(_)
                | Interrupt::Protected(_)
                | Interrupt::All(_),
            ) => {
                return Err(stale(path));
            }
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
        DirLock::acquire(self.dir.as_fd()).map_err(|errno| self.to_call_error(errno))
    }

    fn to_call_error(&self, errno: Errno) -> CallError {
        resolve::to_call_error(errno, self.path)
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
            && repository::is_protected(&self.dir, &self.name)
                .map_err(|errno| self.to_call_error(errno))?;
        if protected && !view.may_change_protected(self.path) {
            return Err(stale(self.path));
        }
        Ok(())
    }

    /// Syncs the file system before a durable change; one sync is faster than one per file and directory of a tree.
    fn flush_first(&self, durability: Durability) -> Result<(), CallError> {
        match durability {
            Durability::Durable => {
                sys::syncfs(self.dir.as_fd()).map_err(|errno| self.to_call_error(errno))
            }
            Durability::Visible | Durability::Ordered => Ok(()),
        }
    }

    /// Checks that the entry is in the planned state.
    fn expect(&self, state: &State, checkpoint: Checkpoint<'_>) -> Result<(), CallError> {
        let all = TemporaryFiles::Included;
        if inspect_in(&self.dir, &self.name, self.path, all, checkpoint)?.state == *state {
            Ok(())
        } else {
            Err(stale(self.path))
        }
    }

    /// Opens the file if it is in the planned state.
    fn file(&self, state: &State, checkpoint: Checkpoint<'_>) -> Result<OpenFile, CallError> {
        let file = match self.dir.read(&self.name) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NXIO) => {
                return Err(stale(self.path));
            }
            Err(errno) => return Err(self.to_call_error(errno)),
        };
        let bytes = file.meta.len;
        let found = match state {
            State::Object { .. } => State::Object {
                stamp: tree::stamp(&file.meta),
                bytes,
            },
            State::Absent | State::File { .. } | State::Directory { .. } => {
                let (hash, bytes) = tree::hash_file(&file.file, bytes, self.path, checkpoint)
                    .map_err(|error| changed_if_too_large(error, self.path))?;
                State::File { hash, bytes }
            }
        };
        if found == *state {
            Ok(file)
        } else {
            Err(stale(self.path))
        }
    }

    fn make_directory(&self, mode: Option<u32>) -> Result<(), CallError> {
        let mode = Mode::from_raw_mode(mode.unwrap_or(0o777) & 0o777);
        match sys::mkdirat(self.dir.as_fd(), self.name.as_str(), mode) {
            Err(Errno::EXIST) => Err(stale(self.path)),
            done => done.map_err(|errno| self.to_call_error(errno)),
        }
    }

    fn create(
        &self,
        staged: StagedFile<'_>,
        durability: Durability,
    ) -> Result<Durability, CallError> {
        let done = staged.create(&self.name, durability);
        done.map_err(|error| match error {
            ReplaceError::Exists => stale(self.path),
            error => error.to_call_error(self.path),
        })
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

fn rewrite<P>(
    entry: &DirEntryRef<'_>,
    content: &[u8],
    existing: &State,
    durability: Durability,
    view: &dyn ReadView,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<Durability, CallError> {
    let old = entry.file(existing, &|| view.checkpoint())?;
    let staged = StagedFile::in_place_of(entry.dir.as_fd(), content, &old.file);
    let staged = staged.map_err(|error| error.to_call_error(entry.path))?;
    let _lock = entry.lock()?;
    entry.check_repository(view)?;
    let _commit = begin()?;
    let done = staged.replace(&entry.name, &old.file, &old.meta, durability);
    done.map_err(|error| error.to_call_error(entry.path))
}

fn rename<P>(
    from: &DirEntryRef<'_>,
    to: &DirEntryRef<'_>,
    (state, existing): (&State, &State),
    view: &dyn ReadView,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<(), CallError> {
    let checkpoint: Checkpoint<'_> = &|| view.checkpoint();
    let old = match existing {
        State::Absent => None,
        State::File { .. } | State::Object { .. } | State::Directory { .. } => {
            Some(to.file(existing, checkpoint)?)
        }
    };
    let _locks = lock_both(from, to)?;
    // All writers of this crate take the lock, so the source that is compared is the one that is moved.
    from.expect(state, checkpoint)?;
    to.check_repository(view)?;
    let _commit = begin()?;
    let done = match &old {
        None => sys::renameat_with(
            from.dir.as_fd(),
            from.name.as_str(),
            to.dir.as_fd(),
            to.name.as_str(),
            RenameFlags::NOREPLACE,
        ),
        Some(old) => {
            check_unchanged(to.dir.as_fd(), &to.name, &old.file, &old.meta)
                .map_err(|error| error.to_call_error(to.path))?;
            sys::renameat(
                from.dir.as_fd(),
                from.name.as_str(),
                to.dir.as_fd(),
                to.name.as_str(),
            )
        }
    };
    match done {
        Err(Errno::EXIST | Errno::NOTEMPTY) => Err(stale(to.path)),
        Err(Errno::NOENT) => Err(stale(from.path)),
        Err(Errno::XDEV) => Err(other_device(to.path)),
        done => done.map_err(|errno| to.to_call_error(errno)),
    }
}

/// The error for a move between file systems, which would be a copy and a deletion.
pub(crate) fn other_device(to: &VirtualPath) -> CallError {
    CallError::new(
        Code::InvalidArguments,
        format!(
            "`{to}` is on another file system, where nothing can be moved to in one step; copy it, then delete the original"
        ),
    )
}

/// Locks two directories in a fixed order; takes one lock if they are the same.
fn lock_both<'s>(
    a: &'s DirEntryRef<'_>,
    b: &'s DirEntryRef<'_>,
) -> Result<Vec<DirLock<'s>>, CallError> {
    let number = |entry: &DirEntryRef<'_>| {
        let stat = sys::fstat(entry.dir.as_fd()).map_err(|errno| entry.to_call_error(errno))?;
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
    durability: Durability,
    view: &dyn ReadView,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<Durability, CallError> {
    let checkpoint: Checkpoint<'_> = &|| view.checkpoint();
    let source = from.file(state, checkpoint)?;
    let old = match existing {
        State::Absent => None,
        State::File { .. } | State::Object { .. } | State::Directory { .. } => {
            Some(to.file(existing, checkpoint)?)
        }
    };
    let paused = || checkpoint().map_err(CopyError::Stopped);
    let (mode, limit) = (source.meta.mode, source.meta.len);
    let copied = StagedFile::copy_of(to.dir.as_fd(), &source.file, mode, limit, paused);
    let (staged, _) = copied.map_err(|stopped| stopped.into_call_error(to.path))?;
    if check_unchanged(from.dir.as_fd(), &from.name, &source.file, &source.meta).is_err() {
        return Err(stale(from.path));
    }
    let Some(old) = old else {
        let _lock = to.lock_repository(view)?;
        let _commit = begin()?;
        return to.create(staged, durability);
    };
    let _lock = to.lock()?;
    to.check_repository(view)?;
    let _commit = begin()?;
    let done = staged.replace(&to.name, &old.file, &old.meta, durability);
    done.map_err(|error| error.to_call_error(to.path))
}

/// Copies to a temporary name, compares, then renames, so that the copy appears completely or not at all.
fn copy_directory<P>(
    from: &DirEntryRef<'_>,
    to: &DirEntryRef<'_>,
    state: &State,
    durability: Durability,
    view: &dyn ReadView,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<Durability, CallError> {
    let checkpoint: Checkpoint<'_> = &|| view.checkpoint();
    let inspect = |dir: &OpenDir, name: &str| {
        inspect_in(dir, name, from.path, TemporaryFiles::Excluded, checkpoint)
    };
    let inspected = inspect(&from.dir, &from.name)?;
    if inspected.state != *state {
        return Err(stale(from.path));
    }
    let source = from
        .dir
        .enter(&from.name)
        .map_err(|errno| from.to_call_error(errno))?;
    let mode = inspected
        .meta
        .map_or(0o700, |meta| meta.mode & 0o777 | 0o700);
    let name = temporary_name().map_err(|errno| to.to_call_error(errno))?;
    sys::mkdirat(to.dir.as_fd(), name.as_str(), Mode::from_raw_mode(mode))
        .map_err(|errno| to.to_call_error(errno))?;
    let fill = || {
        let open = || to.dir.enter(&name).map_err(|errno| to.to_call_error(errno));
        let (copy, live) = (open()?, open()?);
        hold_live_lock(live.as_fd());
        tree::copy(source, copy, from.path, &inspected.items, checkpoint)?;
        let content_only = matches!(
            state,
            State::Directory {
                content_only: true,
                ..
            }
        );
        if content_only && inspect(&to.dir, &name)?.state != *state {
            return Err(stale(from.path));
        }
        to.flush_first(durability)?;
        let _lock = to.lock_repository(view)?;
        let _commit = begin()?;
        let done = sys::renameat_with(
            to.dir.as_fd(),
            name.as_str(),
            to.dir.as_fd(),
            to.name.as_str(),
            RenameFlags::NOREPLACE,
        );
        match done {
            Err(Errno::EXIST | Errno::NOTEMPTY) => Err(stale(to.path)),
            done => done.map_err(|errno| to.to_call_error(errno)),
        }?;
        Ok(sync_dir(to.dir.as_fd(), durability))
    };
    fill().inspect_err(|_| {
        // The sweeper removes what remains.
        let _ = discard(&to.dir, &name);
    })
}
