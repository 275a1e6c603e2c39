//! A judged path in, a handle on exactly that file or directory out; or where the path really leads.
//!
//! Nothing is opened but under the name that was judged: no link is followed, no mount is entered, no `..`
//! is walked. Where a link stands in the way, [`Interrupt::Moved`] names the path without links; the pipeline
//! judges that one and comes back, and the last open follows no link again. So a swap in between is caught.

mod descent;
mod follow;
mod held;
mod meta;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bailiwick::{CallError, Code, Interrupt, Root, VirtualPath, escape};
use cap_std::fs::Dir;

use crate::lens::{Lens, Place};
use crate::replace::is_temporary;
use crate::sys::{Errno, OFlags, beneath};

pub(crate) use descent::Descent;
pub(crate) use held::Held;
pub use meta::Kind;
pub(crate) use meta::Meta;

/// How often a path that changes between two looks is looked at again.
const TRIES: usize = 64;

/// A regular file, open for reading.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The open file.
    pub(crate) file: File,
    /// What was so when it was opened.
    pub(crate) meta: Meta,
}

/// An open directory, for `*at` calls with single names.
#[derive(Debug)]
pub(crate) struct OpenDir {
    dir: Dir,
    crosses_mounts: bool,
}

impl OpenDir {
    /// The handle for system calls. Use it with single names, and never follow a link from it.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Opens the directory `name` in it.
    pub(crate) fn enter(&self, name: &str) -> Result<Self, Errno> {
        let here = Spot {
            base: self.as_fd(),
            names: name,
            crosses_mounts: self.crosses_mounts,
        };
        here.directory()
    }

    /// Opens the regular file `name` in it for reading.
    pub(crate) fn read(&self, name: &str) -> Result<OpenFile, Errno> {
        let here = Spot {
            base: self.as_fd(),
            names: name,
            crosses_mounts: self.crosses_mounts,
        };
        here.file()
    }

    pub(crate) fn new(fd: OwnedFd, crosses_mounts: bool) -> Self {
        Self {
            dir: Dir::from_std_file(File::from(fd)),
            crosses_mounts,
        }
    }
}

/// Opens the regular file at `path` for reading.
///
/// # Errors
/// [`Interrupt::Moved`] if a link stands in the way; `NOT_FOUND`, `NOT_REGULAR`, `NOT_DIRECTORY`,
/// `PERMISSION_DENIED` by the system and the like otherwise.
pub(crate) fn file(lens: &dyn Lens, path: &VirtualPath) -> Result<OpenFile, Interrupt> {
    let opened = reach(lens, path, lens.actual(path), Ok, |spot| spot.file())?;
    one_name(lens, path, &opened.meta)?;
    Ok(opened)
}

/// Refuses a regular file that has another name, if the policy says so: that one may lie outside the roots, or be denied.
///
/// # Errors
/// `PERMISSION_DENIED`
pub(crate) fn one_name(lens: &dyn Lens, path: &VirtualPath, meta: &Meta) -> Result<(), CallError> {
    if meta.kind == Kind::File && meta.links > 1 && lens.strict_hardlinks() {
        let message = format!(
            "`{}` has more than one name (hard links), and `strict_hardlinks` refuses such files",
            escape(path.as_str())
        );
        return Err(CallError::new(Code::PermissionDenied, message));
    }
    Ok(())
}

/// Opens the directory at `path`, for listing and for `*at` calls.
///
/// # Errors
/// As [`file`]; `NOT_DIRECTORY` if it is none.
pub(crate) fn directory(lens: &dyn Lens, path: &VirtualPath) -> Result<OpenDir, Interrupt> {
    reach(lens, path, lens.actual(path), Ok, |spot| spot.directory())
}

/// Opens the directory that holds `path`, and returns the last name of it, which may stand for anything or nothing.
///
/// A link that bears the last name is left alone: ask [`entry`] first where it is to be followed.
///
/// # Errors
/// As [`directory`]; `INVALID_ARGUMENTS` for a root, which nothing holds.
pub(crate) fn parent(lens: &dyn Lens, path: &VirtualPath) -> Result<(OpenDir, String), Interrupt> {
    let actual = lens.actual(path);
    let (_, names) = lens
        .place_of(actual)
        .ok_or_else(|| CallError::not_found(path))?;
    let (Some(above), Some(name), false) = (actual.parent(), actual.name(), names.is_empty())
    else {
        let message = format!(
            "`{}` is a root; name something in it",
            escape(path.as_str())
        );
        return Err(CallError::new(Code::InvalidArguments, message).into());
    };
    if is_temporary(name) {
        return Err(CallError::not_found(path).into());
    }
    let moved = |to: VirtualPath| to.join(name).map_err(|_| CallError::not_found(path));
    let dir = reach(lens, path, &above, moved, |spot| spot.holder())?;
    Ok((dir, name.to_owned()))
}

/// What stands at `path`, without opening it; none if nothing does.
///
/// # Errors
/// [`Interrupt::Moved`] if `path` is or passes a link, also one that leads nowhere yet.
pub(crate) fn entry(lens: &dyn Lens, path: &VirtualPath) -> Result<Option<Meta>, Interrupt> {
    reach(lens, path, lens.actual(path), Ok, |spot| {
        match spot.handle() {
            Ok(handle) => Ok(Some(Meta::of(handle)?)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    })
}

/// Finds out where all of `paths` really lead, so that what links there are is judged at once. What fails otherwise is
/// left to whoever opens the path.
///
/// # Errors
/// [`Interrupt::All`]
pub(crate) fn settle_links(lens: &dyn Lens, paths: &[VirtualPath]) -> Result<(), Interrupt> {
    let (mut found, mut needs) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    for path in paths.iter().filter(|path| seen.insert(*path)) {
        lens.checkpoint()?;
        match entry(lens, path) {
            Err(moved @ Interrupt::Moved { .. }) => found.push(moved),
            Err(Interrupt::Needs(more)) => needs.extend(more),
            Err(_) | Ok(_) => {}
        }
    }
    if !needs.is_empty() {
        found.push(Interrupt::Needs(needs));
    }
    if found.is_empty() {
        Ok(())
    } else {
        Err(Interrupt::All(found))
    }
}

/// Opens the regular file at `path`, of at most `most` bytes, without waiting for a disk; none if that is not certain.
///
/// The names must be in the kernel's cache. The object is looked at before it is opened, as always, but it is
/// opened by its name again rather than by way of procfs, which would cost more than the whole read; if it is
/// held, it is not opened at all. Both opens follow nothing and must give the same object. Who swaps it for a FIFO
/// in between can have that opened, not waited for, and closed unread; they could do as much themselves.
pub(crate) fn file_at_hand(
    lens: &dyn Lens,
    path: &VirtualPath,
    most: u64,
    held: &Held,
) -> Option<Arc<OpenFile>> {
    let actual = lens.actual(path);
    let (place, names) = lens.place_of(actual)?;
    if place.crosses_mounts || is_ours(names) {
        return None;
    }
    let base = place.dir.as_fd();
    let handle = beneath::open_cached(base, names, OFlags::PATH, false).ok()?;
    let seen = Meta::of(&handle)
        .ok()
        .filter(|seen| seen.kind == Kind::File && seen.len <= most)
        .filter(|seen| one_name(lens, path, seen).is_ok())?;
    if let Some(file) = held.get(actual, &seen) {
        return Some(file);
    }
    let opened = beneath::open_cached(base, names, beneath::READING, false).ok()?;
    let meta = Meta::of(&opened).ok()?;
    if (seen.dev, seen.ino) != (meta.dev, meta.ino) {
        return None;
    }
    let file = Arc::new(OpenFile {
        file: File::from(opened),
        meta,
    });
    held.put(actual, &file);
    Some(file)
}

/// What stands at `path`, without waiting for a disk; none if that is not certain.
pub(crate) fn entry_at_hand(lens: &dyn Lens, path: &VirtualPath) -> Option<Meta> {
    let (place, names) = lens.place_of(lens.actual(path))?;
    if is_ours(names) {
        return None;
    }
    let crosses = place.crosses_mounts;
    let handle = beneath::open_cached(place.dir.as_fd(), names, OFlags::PATH, crosses).ok()?;
    Meta::of(&handle).ok()
}

/// Whether one of `names` is that of a file under construction, which is nobody's but its writer's.
fn is_ours(names: &str) -> bool {
    names.split('/').any(is_temporary)
}

/// Names beneath a handle, not yet opened.
#[derive(Clone, Copy, Debug)]
struct Spot<'s> {
    base: BorrowedFd<'s>,
    names: &'s str,
    crosses_mounts: bool,
}

impl<'s> Spot<'s> {
    fn new(place: Place<'s>, names: &'s str) -> Self {
        Self {
            base: place.dir.as_fd(),
            names,
            crosses_mounts: place.crosses_mounts,
        }
    }

    fn handle(&self) -> Result<OwnedFd, Errno> {
        beneath::open(self.base, self.names, OFlags::PATH, self.crosses_mounts)
    }

    fn file(&self) -> Result<OpenFile, Errno> {
        let handle = self.handle()?;
        match Meta::of(&handle)?.kind {
            Kind::File => {}
            Kind::Directory => return Err(Errno::ISDIR),
            Kind::Link => return Err(Errno::LOOP),
            Kind::Special => return Err(Errno::NXIO),
        }
        self.refuse_kernel_files(&handle)?;
        let opened =
            beneath::open_for_reading(self.base, self.names, &handle, self.crosses_mounts)?;
        let meta = Meta::of(&opened)?;
        Ok(OpenFile {
            file: File::from(opened),
            meta,
        })
    }

    fn directory(&self) -> Result<OpenDir, Errno> {
        self.open_directory(OFlags::RDONLY)
    }

    /// The directory for work inside it; one that may be searched but not listed will do.
    fn holder(&self) -> Result<OpenDir, Errno> {
        match self.open_directory(OFlags::RDONLY) {
            Err(Errno::ACCESS) => self.open_directory(OFlags::PATH),
            done => done,
        }
    }

    fn open_directory(&self, mode: OFlags) -> Result<OpenDir, Errno> {
        let flags = mode | OFlags::DIRECTORY;
        let opened = beneath::open(self.base, self.names, flags, self.crosses_mounts)?;
        self.refuse_kernel_files(&opened)?;
        Ok(OpenDir::new(opened, self.crosses_mounts))
    }

    /// A root that crosses mounts still has no business in procfs and its like.
    fn refuse_kernel_files(&self, fd: &OwnedFd) -> Result<(), Errno> {
        if self.crosses_mounts && Root::serves_kernel_files(fd.as_fd())? {
            return Err(Errno::XDEV);
        }
        Ok(())
    }
}

/// Opens `actual` by `open`, or finds where it really leads; `whole` makes of that the path that was `asked` for.
fn reach<T>(
    lens: &dyn Lens,
    asked: &VirtualPath,
    actual: &VirtualPath,
    whole: impl Fn(VirtualPath) -> Result<VirtualPath, CallError>,
    open: impl Fn(&Spot<'_>) -> Result<T, Errno>,
) -> Result<T, Interrupt> {
    let (place, names) = lens
        .place_of(actual)
        .ok_or_else(|| CallError::not_found(asked))?;
    if is_ours(names) {
        return Err(CallError::not_found(asked).into());
    }
    let spot = Spot::new(place, names);
    for _ in 0..TRIES {
        match open(&spot) {
            Ok(opened) => return Ok(opened),
            Err(Errno::LOOP) => {
                let to = follow::follow(lens, actual, asked)?;
                if to != *actual {
                    return Err(Interrupt::Moved {
                        from: asked.clone(),
                        to: whole(to)?,
                    });
                }
            }
            // What was opened is no longer what was looked at.
            Err(Errno::STALE) => {}
            Err(errno) => return Err(say(errno, asked).into()),
        }
        lens.checkpoint()?;
    }
    let message = format!(
        "`{}` keeps changing while it is being opened; try again",
        escape(asked.as_str())
    );
    Err(CallError::new(Code::Conflict, message).into())
}

/// The answer for a system error at `path`, without any host path.
pub(crate) fn say(errno: Errno, path: &VirtualPath) -> CallError {
    let shown = escape(path.as_str());
    let (code, message) = match errno {
        Errno::NOENT | Errno::LOOP => return CallError::not_found(path),
        Errno::NXIO | Errno::NODEV => (
            Code::NotRegular,
            format!("`{shown}` is not a regular file; only regular files can be opened"),
        ),
        Errno::XDEV => (
            Code::NotRegular,
            format!("`{shown}` lies on another file system, which does not belong to the root"),
        ),
        Errno::NOTDIR => (
            Code::NotDirectory,
            format!("`{shown}`, or a name on the way to it, is not a directory"),
        ),
        Errno::ISDIR => (
            Code::NotRegular,
            format!("`{shown}` is a directory; name a file"),
        ),
        Errno::ACCESS | Errno::PERM | Errno::ROFS => (
            Code::PermissionDenied,
            format!("the operating system does not allow this on `{shown}`"),
        ),
        Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ => (
            Code::InvalidArguments,
            format!("`{shown}` is no path that this file system accepts"),
        ),
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::BUSY => (
            Code::Busy,
            format!("the system is too busy to open `{shown}`; try again"),
        ),
        errno => (
            Code::Io,
            format!(
                "the operating system failed on `{shown}`: {}",
                std::io::Error::from(errno)
            ),
        ),
    };
    CallError::new(code, message)
}
