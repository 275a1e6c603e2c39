//! Opens names beneath a directory handle without following links.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::{
    AtFlags, CWD, Errno, FileType, Mode, OFlags, ResolveFlags, Stat, StatxFlags, fstat, makedev,
    openat, openat2, statx,
};

/// Maximum attempts of an open that fails because of a concurrent rename.
const TRIES: usize = 64;

/// Opens `names`, separated by `/`, beneath `base` (`base` itself if empty).
///
/// `ELOOP` means that one of the names is a link, `EXDEV` that it is a mount point. Only for `O_PATH` handles and
/// directories, since opening them has no side effect.
pub(crate) fn open(
    base: BorrowedFd<'_>,
    names: &str,
    flags: OFlags,
    crosses_mounts: bool,
) -> Result<OwnedFd, Errno> {
    for _ in 0..TRIES {
        match open_by_kernel(base, names, flags, crosses_mounts, ResolveFlags::empty()) {
            Err(Errno::AGAIN) => {}
            // `openat2` is missing or forbidden: apply the same rules name by name.
            Err(Errno::NOSYS | Errno::PERM) => {
                return open_by_name(base, names, flags, crosses_mounts);
            }
            done => return done,
        }
    }
    open_by_name(base, names, flags, crosses_mounts)
}

/// Like [`open`], but fails with `EAGAIN` if it would have to read from a disk.
pub(crate) fn open_nowait(
    base: BorrowedFd<'_>,
    names: &str,
    flags: OFlags,
    crosses_mounts: bool,
) -> Result<OwnedFd, Errno> {
    open_by_kernel(base, names, flags, crosses_mounts, ResolveFlags::CACHED)
}

/// Opens the file `name` for reading, by name and without checking it first.
///
/// # Errors
/// `ENOSYS` or `EPERM` without `openat2`, `EAGAIN` during a rename, and as [`open`].
pub(crate) fn open_listed(
    base: BorrowedFd<'_>,
    name: &str,
    crosses_mounts: bool,
) -> Result<OwnedFd, Errno> {
    open_by_kernel(base, name, READING, crosses_mounts, ResolveFlags::empty())
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

/// Like [`open`] without `openat2`: opens each name without following it, then checks it.
fn open_by_name(
    base: BorrowedFd<'_>,
    names: &str,
    flags: OFlags,
    crosses_mounts: bool,
) -> Result<OwnedFd, Errno> {
    let root_mount = (!crosses_mounts).then(|| Mount::of(base)).transpose()?;
    let mut current: Option<OwnedFd> = None;
    let mut names = names.split('/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = names.next() {
        if matches!(name, "." | "..") {
            return Err(Errno::INVAL);
        }
        let above = current.as_ref().map_or(base, AsFd::as_fd);
        let next = handle(above, name)?;
        match file_type(&next)? {
            FileType::Symlink => return Err(Errno::LOOP),
            FileType::Directory => {}
            _ if names.peek().is_some() => return Err(Errno::NOTDIR),
            _ => {}
        }
        if let Some(root_mount) = &root_mount {
            root_mount.require_same(next.as_fd())?;
        }
        current = Some(next);
    }
    match current {
        Some(current) if !flags.contains(OFlags::DIRECTORY) => Ok(current),
        current => {
            let dir = current.as_ref().map_or(base, AsFd::as_fd);
            openat(dir, ".", flags | OFlags::CLOEXEC, Mode::empty())
        }
    }
}

/// An `O_PATH` handle for `name` in `dir`, which may be a link.
pub(crate) fn handle(dir: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::empty())
}

/// The file type of `fd`.
pub(crate) fn file_type(fd: impl AsFd) -> Result<FileType, Errno> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode))
}

/// Opens the regular file of `handle`, which is in the state `seen`, for reading, and returns its state; `names` is its
/// path from `base`.
///
/// The handle was checked and is what is opened, so devices, FIFOs and leases are not touched. Without procfs the name
/// is opened again and must be the same object.
pub(crate) fn open_for_reading(
    base: BorrowedFd<'_>,
    names: &str,
    (handle, seen): (&OwnedFd, &Stat),
    crosses_mounts: bool,
) -> Result<(OwnedFd, Stat), Errno> {
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
        Ok((opened, got))
    } else {
        Err(Errno::STALE)
    }
}

/// Flags for regular files: never block, never become the controlling terminal.
pub(crate) const READING: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Reopens `handle` for reading, via procfs.
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

/// The mount of an object; its device if the kernel does not report mount ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    id: Option<u64>,
    device: u64,
}

impl Mount {
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
        let Ok(found) = statx(fd, "", flags, StatxFlags::MNT_ID) else {
            let device = fstat(fd)?.st_dev;
            return Ok(Self { id: None, device });
        };
        let has_id = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        Ok(Self {
            id: has_id.then_some(found.stx_mnt_id),
            device: makedev(found.stx_dev_major, found.stx_dev_minor),
        })
    }

    /// Fails with `EXDEV` if `fd` is on another mount.
    pub(crate) fn require_same(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let other = Self::of(fd)?;
        let same = match (self.id, other.id) {
            (Some(one), Some(other)) => one == other,
            _ => self.device == other.device,
        };
        if same { Ok(()) } else { Err(Errno::XDEV) }
    }
}

#[cfg(test)]
mod tests {
    use bailiwick_test_support::forbidden_calls::forbid;

    use super::*;

    /// System call number of `statx`.
    const STATX: i64 = if cfg!(target_arch = "x86_64") {
        332
    } else {
        291
    };

    #[test]
    fn mount_has_the_same_device_without_statx() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::File::open(temp.path()).unwrap();
        let known = Mount::of(dir.as_fd()).unwrap();
        assert_eq!(known.device, fstat(&dir).unwrap().st_dev);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                forbid(&[STATX], Errno::NOSYS);
                let without = Mount::of(dir.as_fd()).unwrap();
                assert_eq!(without, Mount { id: None, ..known });
                known.require_same(dir.as_fd()).unwrap();
            });
        });
    }
}
