//! One step in, that change made or nothing changed out.

use bailiwick::{CallError, Code, Halt, VirtualPath};
use rustix::fs::{self as sys, AtFlags, Mode, RenameFlags};
use rustix::io::Errno;

use super::state::{State, see_in};
use super::tree::{self, Pause, Stopped};
use super::{Changer, Step, stale};
use crate::lens::Lens;
use crate::replace::{Durability, Lock, ReplaceError, Staged, still_there, temporary_name};
use crate::resolve::{self, OpenDir, OpenFile};

impl Changer {
    pub(super) fn carry<P>(
        &self,
        step: &Step,
        lens: &dyn Lens,
        begin: &impl Fn() -> Result<P, CallError>,
    ) -> Result<(), CallError> {
        let pause: Pause<'_> = &|| lens.checkpoint();
        match step {
            Step::Write {
                path,
                content,
                over,
                mode,
                durability,
            } => {
                let spot = self.spot(lens, path)?;
                match over {
                    State::Absent => {
                        let staged = Staged::new_file(spot.dir.as_fd(), content, *mode);
                        let staged = staged.map_err(|error| error.say(path))?;
                        let _commit = begin()?;
                        spot.create(staged, *durability)
                    }
                    State::File { .. } | State::Object { .. } | State::Directory { .. } => {
                        rewrite(&spot, content, over, *durability, pause, begin)
                    }
                }
            }
            Step::MakeDirectory { path, mode } => {
                let spot = self.spot(lens, path)?;
                let mode = Mode::from_raw_mode(mode.unwrap_or(0o777) & 0o777);
                let _commit = begin()?;
                match sys::mkdirat(spot.dir.as_fd(), spot.name.as_str(), mode) {
                    Err(Errno::EXIST) => Err(stale(path)),
                    done => done.map_err(|errno| resolve::say(errno, path)),
                }
            }
            Step::Move {
                from,
                to,
                what,
                over,
            } => {
                let (from, to) = (self.spot(lens, from)?, self.spot(lens, to)?);
                rename(&from, &to, what, over, pause, begin)
            }
            Step::Copy {
                from,
                to,
                what,
                over,
            } => {
                let (from, to) = (self.spot(lens, from)?, self.spot(lens, to)?);
                match what {
                    State::Directory { .. } => copy_directory(&from, &to, what, pause, begin),
                    State::Absent | State::File { .. } | State::Object { .. } => {
                        copy_file(&from, &to, what, over, pause, begin)
                    }
                }
            }
            Step::Remove { path, what } => {
                let spot = self.spot(lens, path)?;
                match what {
                    State::Directory { .. } => remove_directory(&spot, what, pause, begin),
                    State::Absent | State::File { .. } | State::Object { .. } => {
                        remove_file(&spot, what, pause, begin)
                    }
                }
            }
        }
    }

    /// Opens the directory that holds `path`.
    fn spot<'p>(&self, lens: &dyn Lens, path: &'p VirtualPath) -> Result<Spot<'p>, CallError> {
        let (dir, name) = match resolve::parent(lens, path) {
            Ok(found) => found,
            Err(Halt::Failed(error)) if error.code() != Code::NotFound => return Err(error),
            // A link, or nothing, stands where the plan found a directory.
            Err(Halt::Failed(_) | Halt::Moved { .. } | Halt::Needs(_)) => return Err(stale(path)),
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

    /// Checks that the plan's state is the present one.
    fn expect(&self, state: &State, pause: Pause<'_>) -> Result<(), CallError> {
        if see_in(&self.dir, &self.name, self.path, pause)?.state == *state {
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

    fn create(&self, staged: Staged<'_>, durability: Durability) -> Result<(), CallError> {
        match staged.create(&self.name, durability) {
            Ok(_) => Ok(()),
            Err(ReplaceError::Exists) => Err(stale(self.path)),
            Err(error) => Err(error.say(self.path)),
        }
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
    durability: Durability,
    pause: Pause<'_>,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<(), CallError> {
    let old = spot.file(over, pause)?;
    let staged = Staged::in_place_of(spot.dir.as_fd(), content, &old.file);
    let staged = staged.map_err(|error| error.say(spot.path))?;
    let _lock = spot.lock()?;
    let _commit = begin()?;
    let done = staged.replace(&spot.name, &old.file, &old.meta, durability);
    done.map(drop).map_err(|error| error.say(spot.path))
}

fn rename<P>(
    from: &Spot<'_>,
    to: &Spot<'_>,
    what: &State,
    over: &State,
    pause: Pause<'_>,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<(), CallError> {
    from.expect(what, pause)?;
    let old = match over {
        State::Absent => None,
        State::File { .. } | State::Object { .. } | State::Directory { .. } => {
            Some(to.file(over, pause)?)
        }
    };
    let _locks = lock_both(from, to)?;
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
fn other_device(to: &VirtualPath) -> CallError {
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
    what: &State,
    over: &State,
    pause: Pause<'_>,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<(), CallError> {
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
        let _commit = begin()?;
        return to.create(staged, Durability::default());
    };
    let _lock = to.lock()?;
    let _commit = begin()?;
    let done = staged.replace(&to.name, &old.file, &old.meta, Durability::default());
    done.map(drop).map_err(|error| error.say(to.path))
}

/// Copies beside the destination, compares, then gives the copy its name: it appears whole or not at all.
fn copy_directory<P>(
    from: &Spot<'_>,
    to: &Spot<'_>,
    what: &State,
    pause: Pause<'_>,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<(), CallError> {
    let seen = see_in(&from.dir, &from.name, from.path, pause)?;
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
        let copy = to.dir.enter(&name).map_err(|errno| to.say(errno))?;
        tree::copy(&source, &copy, from.path, &seen.items, pause)?;
        let exact = matches!(what, State::Directory { exact: true, .. });
        if exact && see_in(&to.dir, &name, from.path, pause)?.state != *what {
            return Err(stale(from.path));
        }
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
        }
    };
    fill().inspect_err(|_| discard(to, &name))
}

/// Removes a directory of our own making; what cannot be removed stays under a name that says whose it is.
fn discard(spot: &Spot<'_>, name: &str) {
    if let Ok(dir) = spot.dir.enter(name) {
        let (_, cleared) = tree::clear(dir, spot.path, &|| Ok(()));
        if cleared.is_ok() {
            let _ = sys::unlinkat(spot.dir.as_fd(), name, AtFlags::REMOVEDIR);
        }
    }
}

fn remove_file<P>(
    spot: &Spot<'_>,
    what: &State,
    pause: Pause<'_>,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<(), CallError> {
    let _lock = spot.lock()?;
    spot.expect(what, pause)?;
    let _commit = begin()?;
    sys::unlinkat(spot.dir.as_fd(), spot.name.as_str(), AtFlags::empty())
        .map_err(|errno| spot.say(errno))
}

/// Takes the directory out of everybody's way, looks once more whether it is the one of the plan, then removes it.
fn remove_directory<P>(
    spot: &Spot<'_>,
    what: &State,
    pause: Pause<'_>,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<(), CallError> {
    spot.expect(what, pause)?;
    let dir = spot.dir.as_fd();
    let aside = temporary_name().map_err(|errno| spot.say(errno))?;
    let rename =
        |from: &str, to: &str| sys::renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE);
    let _commit = begin()?;
    rename(&spot.name, &aside).map_err(|errno| spot.say(errno))?;
    let put_back = |error: CallError| match rename(&aside, &spot.name) {
        Ok(()) => error,
        Err(_) => error.with("left_at", aside.as_str()),
    };
    let same = see_in(&spot.dir, &aside, spot.path, pause).map(|seen| seen.state == *what);
    match same {
        Ok(true) => {}
        Ok(false) => return Err(put_back(stale(spot.path))),
        Err(error) => return Err(put_back(error)),
    }
    let inner = spot
        .dir
        .enter(&aside)
        .map_err(|errno| put_back(spot.say(errno)))?;
    // It has begun, so it goes on: a removal that stops half way helps nobody.
    let (gone, cleared) = tree::clear(inner, spot.path, &|| Ok(()));
    cleared.map_err(|error| put_back(error.with("removed", gone)))?;
    sys::unlinkat(dir, aside.as_str(), AtFlags::REMOVEDIR)
        .map_err(|errno| put_back(spot.say(errno)))
}

/// Removes the directories that `steps` made, as far as they are still empty. Returns how many steps are left made.
pub(super) fn take_directories_back(steps: &[Step], lens: &dyn Lens) -> usize {
    let mut left = steps.len();
    for step in steps.iter().rev() {
        let Step::MakeDirectory { path, .. } = step else {
            break;
        };
        let Ok((dir, name)) = resolve::parent(lens, path) else {
            break;
        };
        if sys::unlinkat(dir.as_fd(), name.as_str(), AtFlags::REMOVEDIR).is_err() {
            break;
        }
        left -= 1;
    }
    left
}
