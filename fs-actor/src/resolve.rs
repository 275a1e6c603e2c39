//! Opens files and directories by judged paths.
//!
//! Opening never follows links, enters mounts or walks `..`. If a link is on the path, [`Interrupt::Moved`] has the path
//! without links, which the pipeline judges before the next attempt. That attempt follows no links either, so a change
//! in between is detected.

mod dir_stack;
mod file_cache;
mod follow;
mod meta;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bailiwick::root::Root;
use bailiwick::text::escape;
use bailiwick::tool::Interrupt;
use bailiwick::{CallError, Code, VirtualPath};
use cap_std::fs::Dir;

use crate::read_view::{MountPoint, ReadView};
use crate::replace::is_temporary;
use crate::sys::{Errno, OFlags, Stat, beneath, fstat};

pub(crate) use dir_stack::DirStack;
pub(crate) use file_cache::{CachedFile, FileCache};
pub use meta::Kind;
pub(crate) use meta::Meta;

/// Maximum attempts for a path that keeps changing.
const MAX_ATTEMPTS: usize = 64;

/// A regular file, open for reading.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The open file.
    pub(crate) file: File,
    /// Metadata when it was opened.
    pub(crate) meta: Meta,
}

/// An open directory, for `*at` calls with single names.
#[derive(Debug)]
pub(crate) struct OpenDir {
    dir: Dir,
    crosses_mounts: bool,
}

impl OpenDir {
    /// The handle for system calls. Use it with single names, and never follow links.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Opens the directory `name` in it.
    pub(crate) fn enter(&self, name: &str) -> Result<Self, Errno> {
        self.at(name).directory()
    }

    /// Opens the regular file `name` in it for reading.
    pub(crate) fn read(&self, name: &str) -> Result<OpenFile, Errno> {
        self.at(name).file()
    }

    /// Opens `name` for reading, which was listed as a regular file.
    ///
    /// It is opened by name without being checked first. If it was replaced by a FIFO or a device since it was listed,
    /// that is opened without blocking and closed unread; the process that replaced it could have done that itself.
    pub(crate) fn read_listed(&self, name: &str) -> Result<OpenFile, Errno> {
        match beneath::open_listed(self.as_fd(), name, self.crosses_mounts) {
            Ok(opened) => self.at(name).check_opened(opened),
            // `openat2` is missing, or the name is being exchanged.
            Err(Errno::AGAIN | Errno::NOSYS | Errno::PERM) => self.read(name),
            Err(errno) => Err(errno),
        }
    }

    fn at<'s>(&'s self, names: &'s str) -> UnopenedPath<'s> {
        UnopenedPath {
            base: self.as_fd(),
            names,
            crosses_mounts: self.crosses_mounts,
        }
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
/// [`Interrupt::Moved`] if a link is on the path; otherwise `NOT_FOUND`, `NOT_REGULAR`, `NOT_DIRECTORY`, `PERMISSION_DENIED`
/// by the system and the like.
pub(crate) fn file(view: &dyn ReadView, path: &VirtualPath) -> Result<OpenFile, Interrupt> {
    file_if_exists(view, path)?.ok_or_else(|| CallError::not_found(path).into())
}

/// Like [`file`]; `None` if it does not exist. A path that the worker may not know about is `NOT_FOUND`.
///
/// # Errors
/// As [`file`].
pub(crate) fn file_if_exists(
    view: &dyn ReadView,
    path: &VirtualPath,
) -> Result<Option<OpenFile>, Interrupt> {
    let opened = open_or_follow(
        view,
        path,
        view.actual(path),
        Ok,
        |path_ref| match path_ref.file() {
            Err(Errno::NOENT) => Ok(None),
            opened => opened.map(Some),
        },
    )?;
    if let Some(opened) = &opened {
        check_hard_links(view, path, &opened.meta)?;
    }
    Ok(opened)
}

/// Rejects a regular file with several hard links if the policy says so, since another link may be outside the roots or
/// denied.
///
/// # Errors
/// `PERMISSION_DENIED`
pub(crate) fn check_hard_links(
    view: &dyn ReadView,
    path: &VirtualPath,
    meta: &Meta,
) -> Result<(), CallError> {
    if meta.kind == Kind::File && meta.links > 1 && view.strict_hardlinks() {
        let message = format!(
            "`{}` has several hard links, which `strict_hardlinks` does not allow",
            escape(path.as_str())
        );
        return Err(CallError::new(Code::PermissionDenied, message));
    }
    Ok(())
}

/// Opens the directory at `path`.
///
/// # Errors
/// As [`file`]; `NOT_DIRECTORY` for anything else.
pub(crate) fn directory(view: &dyn ReadView, path: &VirtualPath) -> Result<OpenDir, Interrupt> {
    open_or_follow(view, path, view.actual(path), Ok, |path_ref| {
        path_ref.directory()
    })
}

/// Opens the directory that contains `path`, and returns the last name, which may not exist.
///
/// The last name is not followed if it is a link; call [`entry`] first to follow it.
///
/// # Errors
/// As [`directory`]; `INVALID_ARGUMENTS` for a root.
pub(crate) fn parent(
    view: &dyn ReadView,
    path: &VirtualPath,
) -> Result<(OpenDir, String), Interrupt> {
    let actual = view.actual(path);
    let (_, names) = view
        .mount_point(actual)
        .ok_or_else(|| CallError::not_found(path))?;
    let (Some(above), Some(name), false) = (actual.parent(), actual.name(), names.is_empty())
    else {
        let message = format!("`{}` is a root; name an entry in it", escape(path.as_str()));
        return Err(CallError::new(Code::InvalidArguments, message).into());
    };
    if is_temporary(name) {
        return Err(CallError::not_found(path).into());
    }
    let moved = |to: VirtualPath| to.join(name).map_err(|_| CallError::not_found(path));
    let dir = open_or_follow(view, path, &above, moved, |path_ref| {
        path_ref.open_as_parent()
    })?;
    Ok((dir, name.to_owned()))
}

/// The metadata of `path`, without opening it; `None` if it does not exist.
///
/// # Errors
/// [`Interrupt::Moved`] if a link is on the path or at its end, also a dangling one.
pub(crate) fn entry(view: &dyn ReadView, path: &VirtualPath) -> Result<Option<Meta>, Interrupt> {
    open_or_follow(
        view,
        path,
        view.actual(path),
        Ok,
        |path_ref| match path_ref.handle() {
            Ok(handle) => Ok(Some(Meta::of(handle)?)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        },
    )
}

/// Resolves the links of all `paths` at once, so that their targets are judged together. Other errors are ignored here.
///
/// # Errors
/// [`Interrupt::All`]
pub(crate) fn resolve_links(view: &dyn ReadView, paths: &[VirtualPath]) -> Result<(), Interrupt> {
    let (mut found, mut needs) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    for path in paths.iter().filter(|path| seen.insert(*path)) {
        view.checkpoint()?;
        match entry(view, path) {
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

/// Opens the regular file at `path`, of at most `max_bytes` bytes, without waiting for a disk; `None` if that is not
/// possible.
///
/// All names must be in the kernel's cache. The object is checked before it is opened, as always, but then opened by
/// name, since opening it via procfs takes longer than the whole read; a cached file is not opened at all. Both opens
/// follow no links and must give the same object. If it is replaced by a FIFO in between, the FIFO is opened without
/// blocking and closed unread; the process that replaced the file could have done that itself.
pub(crate) fn try_open_nowait<T: Clone>(
    view: &dyn ReadView,
    path: &VirtualPath,
    max_bytes: u64,
    cache: &FileCache<T>,
) -> Option<Arc<CachedFile<T>>> {
    let actual = view.actual(path);
    let (mount, names) = view.mount_point(actual)?;
    if mount.crosses_mounts || has_temporary_name(names) {
        return None;
    }
    let base = mount.dir.as_fd();
    let handle = beneath::open_nowait(base, names, OFlags::PATH, false).ok()?;
    let seen = Meta::of(&handle)
        .ok()
        .filter(|seen| seen.kind == Kind::File && seen.len <= max_bytes)
        .filter(|seen| check_hard_links(view, path, seen).is_ok())?;
    if let Some(file) = cache.get(actual, &seen) {
        return Some(file);
    }
    let opened = beneath::open_nowait(base, names, beneath::READING, false).ok()?;
    let meta = Meta::of(&opened).ok()?;
    // It may have grown since.
    if (seen.dev, seen.ino) != (meta.dev, meta.ino) || meta.len > max_bytes {
        return None;
    }
    let file = Arc::new(CachedFile::new(OpenFile {
        file: File::from(opened),
        meta,
    }));
    cache.insert(actual, &file);
    Some(file)
}

/// The metadata of `path`, without waiting for a disk; `None` if that is not possible.
pub(crate) fn try_stat_nowait(view: &dyn ReadView, path: &VirtualPath) -> Option<Meta> {
    let (mount, names) = view.mount_point(view.actual(path))?;
    if has_temporary_name(names) {
        return None;
    }
    let crosses = mount.crosses_mounts;
    let handle = beneath::open_nowait(mount.dir.as_fd(), names, OFlags::PATH, crosses).ok()?;
    Meta::of(&handle).ok()
}

/// Whether one of `names` is a temporary name of a writer.
fn has_temporary_name(names: &str) -> bool {
    names.split('/').any(is_temporary)
}

/// Names beneath a handle, not yet opened.
#[derive(Clone, Copy, Debug)]
struct UnopenedPath<'s> {
    base: BorrowedFd<'s>,
    names: &'s str,
    crosses_mounts: bool,
}

impl<'s> UnopenedPath<'s> {
    fn new(mount: MountPoint<'s>, names: &'s str) -> Self {
        Self {
            base: mount.dir.as_fd(),
            names,
            crosses_mounts: mount.crosses_mounts,
        }
    }

    fn handle(&self) -> Result<OwnedFd, Errno> {
        beneath::open(self.base, self.names, OFlags::PATH, self.crosses_mounts)
    }

    fn file(&self) -> Result<OpenFile, Errno> {
        let handle = self.handle()?;
        let seen = fstat(&handle)?;
        require_regular(&seen)?;
        self.refuse_unsafe_file_system(&handle)?;
        let opened = beneath::open_for_reading(
            self.base,
            self.names,
            (&handle, &seen),
            self.crosses_mounts,
        )?;
        Ok(OpenFile {
            file: File::from(opened.0),
            meta: Meta::from_stat(&opened.1),
        })
    }

    /// The file that was opened by its name, if it is one that may be opened.
    fn check_opened(&self, opened: OwnedFd) -> Result<OpenFile, Errno> {
        let seen = fstat(&opened)?;
        require_regular(&seen)?;
        self.refuse_unsafe_file_system(&opened)?;
        Ok(OpenFile {
            file: File::from(opened),
            meta: Meta::from_stat(&seen),
        })
    }

    fn directory(&self) -> Result<OpenDir, Errno> {
        self.open_directory(OFlags::RDONLY)
    }

    /// Opens the directory for `*at` calls, for which search permission is enough.
    fn open_as_parent(&self) -> Result<OpenDir, Errno> {
        match self.open_directory(OFlags::RDONLY) {
            Err(Errno::ACCESS) => self.open_directory(OFlags::PATH),
            done => done,
        }
    }

    fn open_directory(&self, mode: OFlags) -> Result<OpenDir, Errno> {
        let flags = mode | OFlags::DIRECTORY;
        let opened = beneath::open(self.base, self.names, flags, self.crosses_mounts)?;
        self.refuse_unsafe_file_system(&opened)?;
        Ok(OpenDir::new(opened, self.crosses_mounts))
    }

    /// Kernel file systems such as procfs, and FAT, are rejected even if the root crosses mounts.
    fn refuse_unsafe_file_system(&self, fd: &OwnedFd) -> Result<(), Errno> {
        if self.crosses_mounts && Root::is_in_unsafe_file_system(fd.as_fd())? {
            return Err(Errno::XDEV);
        }
        Ok(())
    }
}

fn require_regular(found: &Stat) -> Result<(), Errno> {
    match Meta::from_stat(found).kind {
        Kind::File => Ok(()),
        Kind::Directory => Err(Errno::ISDIR),
        Kind::Link => Err(Errno::LOOP),
        Kind::Special => Err(Errno::NXIO),
    }
}

/// Calls `open` on `actual`. If that finds a link, resolves it; `map_target` converts the result to the path for
/// `requested`.
fn open_or_follow<T>(
    view: &dyn ReadView,
    requested: &VirtualPath,
    actual: &VirtualPath,
    map_target: impl Fn(VirtualPath) -> Result<VirtualPath, CallError>,
    open: impl Fn(&UnopenedPath<'_>) -> Result<T, Errno>,
) -> Result<T, Interrupt> {
    let (mount, names) = view
        .mount_point(actual)
        .ok_or_else(|| CallError::not_found(requested))?;
    if has_temporary_name(names) {
        return Err(CallError::not_found(requested).into());
    }
    let path_ref = UnopenedPath::new(mount, names);
    for _ in 0..MAX_ATTEMPTS {
        match open(&path_ref) {
            Ok(opened) => return Ok(opened),
            Err(Errno::LOOP) => {
                let to = follow::follow(view, actual, requested)?;
                if to != *actual {
                    return Err(Interrupt::Moved {
                        from: requested.clone(),
                        to: map_target(to)?,
                    });
                }
            }
            // The opened object is not the one that was checked.
            Err(Errno::STALE) => {}
            Err(errno) => return Err(to_call_error(errno, requested).into()),
        }
        view.checkpoint()?;
    }
    let message = format!(
        "`{}` keeps changing while it is being opened; try again",
        escape(requested.as_str())
    );
    Err(CallError::new(Code::Conflict, message).into())
}

/// Results of system calls on a path.
pub(crate) trait AtPath<T> {
    /// Converts an error to the call error for `path`, without host paths.
    fn at(self, path: &VirtualPath) -> Result<T, CallError>;
}

impl<T> AtPath<T> for Result<T, Errno> {
    fn at(self, path: &VirtualPath) -> Result<T, CallError> {
        self.map_err(|errno| to_call_error(errno, path))
    }
}

/// The call error for a system error at `path`, without host paths.
pub(crate) fn to_call_error(errno: Errno, path: &VirtualPath) -> CallError {
    let shown = escape(path.as_str());
    let (code, message) = match errno {
        Errno::NOENT | Errno::LOOP => return CallError::not_found(path),
        Errno::NXIO | Errno::NODEV => (
            Code::NotRegular,
            format!("`{shown}` is not a regular file; only regular files can be opened"),
        ),
        Errno::XDEV => (
            Code::NotRegular,
            format!(
                "`{shown}` is on another file system, which is not part of the root or of a kind that is never opened, such as FAT"
            ),
        ),
        Errno::NOTDIR => (
            Code::NotDirectory,
            format!("`{shown}` or one of its parents is not a directory"),
        ),
        Errno::ISDIR => (
            Code::NotRegular,
            format!("`{shown}` is a directory; name a file"),
        ),
        Errno::ACCESS | Errno::PERM | Errno::ROFS => (
            Code::PermissionDenied,
            format!("the operating system denied access to `{shown}`"),
        ),
        Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ => (
            Code::InvalidArguments,
            format!("`{shown}` is not a valid path on this file system"),
        ),
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::BUSY => (
            Code::Busy,
            format!("the system is too busy to open `{shown}`; try again"),
        ),
        errno => (
            Code::Io,
            format!(
                "input or output error at `{shown}`: {}",
                std::io::Error::from(errno)
            ),
        ),
    };
    CallError::new(code, message)
}
