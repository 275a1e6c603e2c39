//! A path with links on it in, the path without links out; every link is judged before it is read.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use bailiwick::{CallError, Code, Interrupt, Scope, Verb, Verdict, VirtualPath};

use crate::lens::{Lens, Place};
use crate::sys::beneath::{self, Mount};
use crate::sys::{Errno, FileType, OFlags, readlinkat};

/// The most links on one path, as in the kernel.
const MAX_LINKS: usize = 40;
/// The most names that links may leave to be walked.
const MAX_PENDING: usize = 4096;

/// Returns where `path` really leads; `asked` is the name of it that may stand in a message.
///
/// What cannot be reached is not reported here: the answer is then the path up to there with the rest
/// as it is, so that it is judged first and only then found to be missing. Only a link that may not be
/// read, one that leaves its root by `..` and a loop end the walk, all with the same words.
pub(super) fn follow(
    lens: &dyn Lens,
    path: &VirtualPath,
    asked: &VirtualPath,
) -> Result<VirtualPath, Interrupt> {
    let lost = || Interrupt::Failed(CallError::not_found(asked));
    let (place, rest) = lens.place_of(path).ok_or_else(lost)?;
    let mut walk = Walk::new(place, rest).map_err(|_| lost())?;
    let mut links = 0;
    while let Some(name) = walk.pending.pop() {
        let found = match walk.step(&name) {
            Ok(Step::Walked) => continue,
            Ok(Step::End(real)) => return real.ok_or_else(lost),
            Ok(Step::Link(found)) => found,
            Err(Above) => {
                // A relative target that leads out of the root is read as the absolute one.
                let target = lens.above(walk.place.mount, &walk.take_up());
                let target = target.as_deref().and_then(Path::to_str).ok_or_else(lost)?;
                let to = absolute(lens, target, asked)?;
                match lens.place_of(&to) {
                    Some((place, rest)) => walk.restart(place, rest).map_err(|_| lost())?,
                    None => return Ok(to),
                }
                continue;
            }
        };
        links += 1;
        if links > MAX_LINKS {
            return Err(lost());
        }
        match lens.judge(&found.path) {
            Verdict::Allow => {}
            // Who may read what lies behind a link may learn where the link leads.
            Verdict::Ask if path.starts_with(&found.path) && lens.shows(path) => {}
            Verdict::Ask => {
                return Err(Interrupt::Needs(vec![Scope::file(Verb::Read, found.path)]));
            }
            Verdict::Deny => return Err(lost()),
        }
        lens.checkpoint()?;
        let target = found.target().ok_or_else(lost)?;
        if target.starts_with('/') {
            let to = absolute(lens, &target, asked)?;
            match lens.place_of(&to) {
                Some((place, rest)) => walk.restart(place, rest).map_err(|_| lost())?,
                None => return walk.beyond(to).ok_or_else(lost),
            }
        } else {
            walk.push(&target);
        }
        if walk.pending.len() > MAX_PENDING {
            return Err(lost());
        }
    }
    Ok(walk.at())
}

/// The virtual path of an absolute target: in a root, or in none.
fn absolute(lens: &dyn Lens, target: &str, asked: &VirtualPath) -> Result<VirtualPath, CallError> {
    if target.split('/').any(|name| name == "..") {
        return Err(CallError::not_found(asked));
    }
    if let Some(inside) = lens.of_host(Path::new(target)) {
        return Ok(inside);
    }
    let outside = VirtualPath::parse(target, None).map_err(|_| CallError::not_found(asked))?;
    // A host path that happens to be spelled like a mount is not what is mounted there.
    if lens.place_of(&outside).is_some() {
        return Err(CallError::not_found(asked));
    }
    Ok(outside)
}

/// `..` led above the root.
#[derive(Debug)]
struct Above;

/// A link that was met.
struct Found {
    handle: OwnedFd,
    path: VirtualPath,
}

impl Found {
    fn target(&self) -> Option<String> {
        let target = readlinkat(&self.handle, "", Vec::new()).ok()?;
        target.into_string().ok().filter(|text| !text.is_empty())
    }
}

enum Step {
    /// On to the next name.
    Walked,
    /// No further: the real path, unless it cannot be told.
    End(Option<VirtualPath>),
    /// A link.
    Link(Found),
}

/// Where the walk stands: the directories from the root down, and the names still to go, last first.
/// Only the deepest is open; `..` opens the one above anew, by its name and following nothing.
struct Walk<'r> {
    place: Place<'r>,
    home: Option<Mount>,
    dirs: Vec<VirtualPath>,
    deepest: Option<OwnedFd>,
    end: Option<VirtualPath>,
    pending: Vec<String>,
}

impl<'r> Walk<'r> {
    fn new(place: Place<'r>, rest: &str) -> Result<Self, CallError> {
        let mut walk = Self {
            place,
            home: None,
            dirs: Vec::new(),
            deepest: None,
            end: None,
            pending: Vec::new(),
        };
        walk.restart(place, rest)?;
        Ok(walk)
    }

    /// Goes on from the top of `place`.
    fn restart(&mut self, place: Place<'r>, rest: &str) -> Result<(), CallError> {
        let home = (!place.crosses_mounts).then(|| Mount::of(place.dir.as_fd()));
        self.home = home.transpose().map_err(|errno| {
            CallError::new(Code::Io, format!("cannot look at the root: {errno}"))
        })?;
        self.place = place;
        self.dirs.clear();
        self.deepest = None;
        self.end = None;
        self.push(rest);
        Ok(())
    }

    fn push(&mut self, names: &str) {
        let names = names.rsplit('/').filter(|name| !matches!(*name, "" | "."));
        self.pending.extend(names.map(str::to_owned));
    }

    /// The names still to go, from a `..` at the top of the root on.
    fn take_up(&mut self) -> String {
        let names = std::iter::once("..").chain(self.pending.iter().rev().map(String::as_str));
        let target = names.collect::<Vec<_>>().join("/");
        self.pending.clear();
        target
    }

    fn at(&self) -> VirtualPath {
        self.end
            .as_ref()
            .or(self.dirs.last())
            .unwrap_or(self.place.mount)
            .clone()
    }

    fn dir(&self) -> BorrowedFd<'_> {
        let deepest = self.deepest.as_ref();
        deepest.map_or_else(|| self.place.dir.as_fd(), AsFd::as_fd)
    }

    fn up(&mut self) -> Result<Step, Above> {
        self.dirs.pop().ok_or(Above)?;
        self.deepest = None;
        let Some(above) = self.dirs.last() else {
            return Ok(Step::Walked);
        };
        let names = above.beneath(self.place.mount).unwrap_or_default();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let base = self.place.dir.as_fd();
        match beneath::open(base, names, flags, self.place.crosses_mounts) {
            Ok(dir) => {
                self.deepest = Some(dir);
                Ok(Step::Walked)
            }
            // It went, or became a link, since the walk passed.
            Err(_) => Ok(Step::End(None)),
        }
    }

    fn step(&mut self, name: &str) -> Result<Step, Above> {
        if name == ".." {
            return self.up();
        }
        let Ok(path) = self.at().join(name) else {
            return Ok(Step::End(None));
        };
        let Ok((handle, kind)) = self.look(name) else {
            return Ok(Step::End(self.beyond(path)));
        };
        Ok(match kind {
            FileType::Symlink => Step::Link(Found { handle, path }),
            FileType::Directory => {
                self.dirs.push(path);
                self.deepest = Some(handle);
                Step::Walked
            }
            _ if self.pending.is_empty() => {
                self.end = Some(path);
                Step::Walked
            }
            _ => Step::End(self.beyond(path)),
        })
    }

    fn look(&self, name: &str) -> Result<(OwnedFd, FileType), Errno> {
        let handle = beneath::handle(self.dir(), name)?;
        if let Some(home) = &self.home {
            home.require_same(handle.as_fd())?;
        }
        let kind = beneath::file_type(&handle)?;
        Ok((handle, kind))
    }

    /// `path` with the names that were still to go, unless `..` is among them.
    fn beyond(&self, path: VirtualPath) -> Option<VirtualPath> {
        let mut names = self.pending.iter().rev();
        names.try_fold(path, |path, name| path.join(name).ok())
    }
}
