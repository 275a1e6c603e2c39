//! One step in, that change made or nothing changed out.

mod remove;

use bailiwick::{CallError, Code, Interrupt, VirtualPath};

use super::state::{State, see_in};
use super::tree::{self, Pause, Stopped, Temporaries};
use super::{Changer, Step, repository, stale};
use crate::lens::Lens;
use crate::replace::{
    Durability, Lock, ReplaceError, Staged, discard, mark_as_live, settle, still_there,
    temporary_name,
};
use crate::resolve::{self, OpenDir, OpenFile};
use crate::sys::{self, Errno, Mode, RenameFlags};
use remove::{remove_directory, remove_file};

impl Changer {
    pub(super) fn carry<P>(
        &self,
        step: &Step,
        wanted: Durability,
        lens: &dyn Lens,
        begin: &impl Fn() -> Result<P, CallError>,
    ) -> Result<Durability, CallError> {
        let pause: Pause<'_> = &|| lens.checkpoint();
        match step {
            Step::Write {
                path,
                content,
                over,
                mode,
            } => {
                let spot = self.spot(lens, path)?;
                if *over != State::Absent {
                    return rewrite(&spot, content, over, wanted, lens, begin);
                }
                let staged = Staged::new_file(spot.dir.as_fd(), content, *mode);
                let staged = staged.map_err(|error| error.say(path))?;
                let _lock = spot.lock_repository(lens)?;
                let _commit = begin()?;
                spot.create(staged, wanted)
            }
            Step::MakeDirectory { path, mode } => {
                let spot = self.spot(lens, path)?;
                let _lock = spot.lock_repository(lens)?;
                let _commit = begin()?;
                spot.make_directory(*mode)?;
                Ok(settle(spot.dir.as_fd(), wanted))
            }
            Step::Move {
                from,
                to,
                what,
                over,
            } => {
                let (from, to) = (self.spot(lens, from)?, self.spot(lens, to)?);
                // The new name must not be on the disk before what it names.
                from.flush_first(wanted)?;
                rename(&from, &to, (what, over), lens, begin)?;
                Ok(settle(from.dir.as_fd(), wanted).min(settle(to.dir.as_fd(), wanted)))
            }
            Step::Copy {
                from,
                to,
                what,
                over,
            } => {
                let (from, to) = (self.spot(lens, from)?, self.spot(lens, to)?);
                if let State::Directory { .. } = what {
                    copy_directory(&from, &to, what, wanted, lens, begin)
                } else {
                    copy_file(&from, &to, (what, over), wanted, lens, begin)
                }
            }
            Step::Remove { path, what } => {
                let spot = self.spot(lens, path)?;
                if let State::Directory { .. } = what {
                    remove_directory(&spot, what, pause, begin)?;
                } else {
                    remove_file(&spot, what, pause, begin)?;
                }
                Ok(settle(spot.dir.as_fd(), wanted))
            }
        }
    }

    /// Opens the directory that holds `path`.
    fn spot<'p>(&self, lens: &dyn Lens, path: &'p VirtualPath) -> Result<Spot<'p>, CallError> {
        let (dir, name) = match resolve::parent(lens, path) {
            Ok(found) => found,
            Err(Interrupt::Failed(error)) if error.code() != Code::NotFound => return Err(error),
            // A link, or nothing, stands where the plan found a directory.
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
        self.sweeper.first_use(dir.as_fd());
        Ok(Spot { path, dir, name })
    }
}

/// A name in an open directory.
struct Spot<'p> {
    path: &'p VirtualPath,
    dir: OpenDir,
    name: String,
}

impl Spot<'_> {
    fn lock(&self) -> Result<Lock<'_>, CallError> {
        Lock::take(self.dir.as_fd()).map_err(|errno| self.say(errno))
    }

    fn say(&self, errno: Errno) -> CallError {
        resolve::say(errno, self.path)
    }

    /// Locks the directory if what is put there may make it a repository or change what Git runs in one, and checks
    /// that the plan was judged so. Other names need no lock to be created.
    fn lock_repository(&self, lens: &dyn Lens) -> Result<Option<Lock<'_>>, CallError> {
        if !repository::matters(&self.name) {
            return Ok(None);
        }
        let lock = self.lock()?;
        self.check_repository(lens)?;
        Ok(Some(lock))
    }

    /// Checks, while the directory is locked, that a protected file is changed only if the plan was judged so.
    fn check_repository(&self, lens: &dyn Lens) -> Result<(), CallError> {
        let protected = repository::matters(&self.name)
            && repository::is_protected(&self.dir, &self.name).map_err(|errno| self.say(errno))?;
        if protected && !lens.may_change_protected(self.path) {
            return Err(stale(self.path));
        }
        Ok(())
    }

    /// Brings what was written to its file system to the disk, if the change is to be there itself: a flush for each
    /// file and directory of a tree would wait for the disk as often.
    fn flush_first(&self, wanted: Durability) -> Result<(), CallError> {
        match wanted {
            Durability::Durable => sys::syncfs(self.dir.as_fd()).map_err(|errno| self.say(errno)),
            Durability::Visible | Durability::Ordered => Ok(()),
        }
    }

    /// Checks that the plan's state is the present one.
    fn expect(&self, state: &State, pause: Pause<'_>) -> Result<(), CallError> {
        let all = Temporaries::Counted;
        if see_in(&self.dir, &self.name, self.path, all, pause)?.state == *state {
            Ok(())
        } else {
            Err(stale(self.path))
        }
    }

    /// Opens the file, if it is the one of the plan.
    fn file(&self, state: &State, pause: Pause<'_>) -> Result<OpenFile, CallError> {
        let file = match self.dir.read(&self.name) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NXIO) => {
                return Err(stale(self.path));
            }
            Err(errno) => return Err(self.say(errno)),
        };
        let bytes = file.meta.len;
        let found = match state {
            State::Object { .. } => State::Object {
                stamp: tree::stamp(&file.meta),
                bytes,
            },
            State::Absent | State::File { .. } | State::Directory { .. } => {
                let (hash, bytes) = tree::hash_of(&file.file, bytes, self.path, pause)
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
            done => done.map_err(|errno| self.say(errno)),
        }
    }

    fn create(&self, staged: Staged<'_>, wanted: Durability) -> Result<Durability, CallError> {
        let done = staged.create(&self.name, wanted);
        done.map_err(|error| match error {
            ReplaceError::Exists => stale(self.path),
            error => error.say(self.path),
        })
    }
}

/// A file that outgrew its own length while it was read has changed.
fn changed_if_too_large(error: CallError, path: &VirtualPath) -> CallError {
    if error.code() == Code::TooLarge {
        stale(path)
    } else {
        error
    }
}

fn rewrite<P>(
    spot: &Spot<'_>,
    content: &[u8],
    over: &State,
    wanted: Durability,
    lens: &dyn Lens,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<Durability, CallError> {
    let old = spot.file(over, &|| lens.checkpoint())?;
    let staged = Staged::in_place_of(spot.dir.as_fd(), content, &old.file);
    let staged = staged.map_err(|error| error.say(spot.path))?;
    let _lock = spot.lock()?;
    spot.check_repository(lens)?;
    let _commit = begin()?;
    let done = staged.replace(&spot.name, &old.file, &old.meta, wanted);
    done.map_err(|error| error.say(spot.path))
}

fn rename<P>(
    from: &Spot<'_>,
    to: &Spot<'_>,
    (what, over): (&State, &State),
    lens: &dyn Lens,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<(), CallError> {
    let pause: Pause<'_> = &|| lens.checkpoint();
    let old = match over {
        State::Absent => None,
        State::File { .. } | State::Object { .. } | State::Directory { .. } => {
            Some(to.file(over, pause)?)
        }
    };
    let _locks = lock_both(from, to)?;
    // Every writer in this crate waits for the lock, so the source compared here is the source that is moved.
    from.expect(what, pause)?;
    to.check_repository(lens)?;
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
            still_there(to.dir.as_fd(), &to.name, &old.file, &old.meta)
                .map_err(|error| error.say(to.path))?;
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
        done => done.map_err(|errno| to.say(errno)),
    }
}

/// A move between file systems would be a copy and a removal, which is not one step; whoever wants it asks for both.
pub(crate) fn other_device(to: &VirtualPath) -> CallError {
    CallError::new(
        Code::InvalidArguments,
        format!(
            "`{to}` is on another file system, where nothing can be moved to in one step; copy it, then delete the original"
        ),
    )
}

/// Locks two directories in an order that all callers share; one lock if they are the same.
fn lock_both<'s>(a: &'s Spot<'_>, b: &'s Spot<'_>) -> Result<Vec<Lock<'s>>, CallError> {
    let number = |spot: &Spot<'_>| {
        let stat = sys::fstat(spot.dir.as_fd()).map_err(|errno| spot.say(errno))?;
        Ok::<_, CallError>((stat.st_dev, stat.st_ino))
    };
    match number(a)?.cmp(&number(b)?) {
        std::cmp::Ordering::Less => Ok(vec![a.lock()?, b.lock()?]),
        std::cmp::Ordering::Equal => Ok(vec![a.lock()?]),
        std::cmp::Ordering::Greater => Ok(vec![b.lock()?, a.lock()?]),
    }
}

fn copy_file<P>(
    from: &Spot<'_>,
    to: &Spot<'_>,
    (what, over): (&State, &State),
    wanted: Durability,
    lens: &dyn Lens,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<Durability, CallError> {
    let pause: Pause<'_> = &|| lens.checkpoint();
    let source = from.file(what, pause)?;
    let old = match over {
        State::Absent => None,
        State::File { .. } | State::Object { .. } | State::Directory { .. } => {
            Some(to.file(over, pause)?)
        }
    };
    let paused = || pause().map_err(Stopped::Paused);
    let (mode, limit) = (source.meta.mode, source.meta.len);
    let copied = Staged::copy_of(to.dir.as_fd(), &source.file, mode, limit, paused);
    let (staged, _) = copied.map_err(|stopped| stopped.say(to.path))?;
    if still_there(from.dir.as_fd(), &from.name, &source.file, &source.meta).is_err() {
        return Err(stale(from.path));
    }
    let Some(old) = old else {
        let _lock = to.lock_repository(lens)?;
        let _commit = begin()?;
        return to.create(staged, wanted);
    };
    let _lock = to.lock()?;
    to.check_repository(lens)?;
    let _commit = begin()?;
    let done = staged.replace(&to.name, &old.file, &old.meta, wanted);
    done.map_err(|error| error.say(to.path))
}

/// Copies beside the destination, compares, then gives the copy its name: it appears whole or not at all.
fn copy_directory<P>(
    from: &Spot<'_>,
    to: &Spot<'_>,
    what: &State,
    wanted: Durability,
    lens: &dyn Lens,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<Durability, CallError> {
    let pause: Pause<'_> = &|| lens.checkpoint();
    let look =
        |dir: &OpenDir, name: &str| see_in(dir, name, from.path, Temporaries::LeftOut, pause);
    let seen = look(&from.dir, &from.name)?;
    if seen.state != *what {
        return Err(stale(from.path));
    }
    let source = from
        .dir
        .enter(&from.name)
        .map_err(|errno| from.say(errno))?;
    let mode = seen.meta.map_or(0o700, |meta| meta.mode & 0o777 | 0o700);
    let name = temporary_name().map_err(|errno| to.say(errno))?;
    sys::mkdirat(to.dir.as_fd(), name.as_str(), Mode::from_raw_mode(mode))
        .map_err(|errno| to.say(errno))?;
    let fill = || {
        let open = || to.dir.enter(&name).map_err(|errno| to.say(errno));
        let (copy, live) = (open()?, open()?);
        mark_as_live(live.as_fd());
        tree::copy(source, copy, from.path, &seen.items, pause)?;
        let exact = matches!(what, State::Directory { exact: true, .. });
        if exact && look(&to.dir, &name)?.state != *what {
            return Err(stale(from.path));
        }
        to.flush_first(wanted)?;
        let _lock = to.lock_repository(lens)?;
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
            done => done.map_err(|errno| to.say(errno)),
        }?;
        Ok(settle(to.dir.as_fd(), wanted))
    };
    fill().inspect_err(|_| {
        // What cannot be removed now is swept later.
        let _ = discard(&to.dir, &name);
    })
}
