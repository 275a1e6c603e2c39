//! Opens names beneath a directory handle without ever following a link.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::{
    AtFlags, CWD, Errno, FileType, Mode, OFlags, ResolveFlags, StatxFlags, fstat, openat, openat2,
    statx,
};

/// How often an open is tried again that the kernel gave up because of a rename nearby.
const TRIES: usize = 64;

/// Opens `names`, separated by `/`, beneath `base` (`base` itself if empty).
///
/// `ELOOP` says that one of the names is a link, `EXDEV` that a file system is mounted there.
/// Only for `O_PATH` handles and directories: neither has an effect on what is opened.
pub(crate) fn open(
    base: BorrowedFd<'_>,
    names: &str,
    flags: OFlags,
    crosses_mounts: bool,
) -> Result<OwnedFd, Errno> {
    for _ in 0..TRIES {
        match open_by_kernel(base, names, flags, crosses_mounts, ResolveFlags::empty()) {
            Err(Errno::AGAIN) => {}
            // A kernel without `openat2`, or a filter that forbids it: the same rules, name by name.
            Err(Errno::NOSYS | Errno::PERM) => {
                return open_by_name(base, names, flags, crosses_mounts);
            }
            done => return done,
        }
    }
    open_by_name(base, names, flags, crosses_mounts)
}

/// Like [`open`], but gives up with `EAGAIN` where the disk would have to be asked.
pub(crate) fn open_cached(
    base: BorrowedFd<'_>,
    names: &str,
    flags: OFlags,
    crosses_mounts: bool,
) -> Result<OwnedFd, Errno> {
    open_by_kernel(base, names, flags, crosses_mounts, ResolveFlags::CACHED)
}

fn open_by_kernel(
    base: BorrowedFd<'_>,
    names: &str,
    flags: OFlags,
    crosses_mounts: bool,
    more: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let mut how =
        ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS | more;
    if !crosses_mounts {
        how |= ResolveFlags::NO_XDEV;
    }
    let names = if names.is_empty() { "." } else { names };
    openat2(base, names, flags | OFlags::CLOEXEC, Mode::empty(), how)
}

/// The same, for systems that lack `openat2`: each name is opened as a handle that follows nothing, then looked at.
fn open_by_name(
    base: BorrowedFd<'_>,
    names: &str,
    flags: OFlags,
    crosses_mounts: bool,
) -> Result<OwnedFd, Errno> {
    let home = (!crosses_mounts).then(|| Mount::of(base)).transpose()?;
    let mut here: Option<OwnedFd> = None;
    let mut names = names.split('/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = names.next() {
        if matches!(name, "." | "..") {
            return Err(Errno::INVAL);
        }
        let above = here.as_ref().map_or(base, AsFd::as_fd);
        let next = handle(above, name)?;
        match file_type(&next)? {
            FileType::Symlink => return Err(Errno::LOOP),
            FileType::Directory => {}
            _ if names.peek().is_some() => return Err(Errno::NOTDIR),
            _ => {}
        }
        if let Some(home) = &home {
            home.require_same(next.as_fd())?;
        }
        here = Some(next);
    }
    match here {
        Some(here) if !flags.contains(OFlags::DIRECTORY) => Ok(here),
        here => {
            let dir = here.as_ref().map_or(base, AsFd::as_fd);
            openat(dir, ".", flags | OFlags::CLOEXEC, Mode::empty())
        }
    }
}

/// A handle on the object named `name` in `dir`, a link included, that has no effect on it.
pub(crate) fn handle(dir: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::empty())
}

/// What kind of object `fd` stands for.
pub(crate) fn file_type(fd: impl AsFd) -> Result<FileType, Errno> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode))
}

/// Opens for reading the regular file that `handle` stands for; `names` lead to it from `base`.
///
/// The handle was checked, and what is opened is the handle, so no device, FIFO or lease is ever touched.
/// Without procfs the name is opened once more, and what comes must be the object that was checked.
pub(crate) fn open_for_reading(
    base: BorrowedFd<'_>,
    names: &str,
    handle: &OwnedFd,
    crosses_mounts: bool,
) -> Result<OwnedFd, Errno> {
    let seen = fstat(handle)?;
    if FileType::from_raw_mode(seen.st_mode) != FileType::RegularFile {
        return Err(Errno::NXIO);
    }
    let opened = match reopen(handle) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
            reopen_by_name(base, names, crosses_mounts)?
        }
        done => done?,
    };
    let got = fstat(&opened)?;
    if (got.st_dev, got.st_ino) == (seen.st_dev, seen.st_ino) {
        Ok(opened)
    } else {
        Err(Errno::STALE)
    }
}

/// For regular files: never waits for a writer, never becomes a terminal.
pub(crate) const READING: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Opens for reading what `handle` stands for, by way of procfs.
fn reopen(handle: &OwnedFd) -> Result<OwnedFd, Errno> {
    use std::os::fd::AsRawFd as _;
    let name = format!("/proc/self/fd/{}", handle.as_raw_fd());
    openat(CWD, name, READING, Mode::empty())
}

fn reopen_by_name(
    base: BorrowedFd<'_>,
    names: &str,
    crosses_mounts: bool,
) -> Result<OwnedFd, Errno> {
    let (above, name) = names.rsplit_once('/').unwrap_or(("", names));
    let dir = open(
        base,
        above,
        OFlags::PATH | OFlags::DIRECTORY,
        crosses_mounts,
    )?;
    openat(dir, name, READING | OFlags::NOFOLLOW, Mode::empty())
}

/// Which mount an object lies on; by device number where the kernel does not tell the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    id: Option<u64>,
    device: u64,
}

impl Mount {
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
        let id = statx(fd, "", flags, StatxFlags::MNT_ID)
            .ok()
            .filter(|found| found.stx_mask & StatxFlags::MNT_ID.bits() != 0)
            .map(|found| found.stx_mnt_id);
        Ok(Self {
            id,
            device: fstat(fd)?.st_dev,
        })
    }

    /// Refuses with `EXDEV` what does not lie on this mount.
    pub(crate) fn require_same(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let other = Self::of(fd)?;
        let same = match (self.id, other.id) {
            (Some(one), Some(other)) => one == other,
            _ => self.device == other.device,
        };
        if same { Ok(()) } else { Err(Errno::XDEV) }
    }
}
