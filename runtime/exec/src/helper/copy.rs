//! Copies a directory into memory where overlayfs is missing.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, Timestamps, XattrFlags, fchmod, fgetxattr,
    flistxattr, fsetxattr, fstat, futimens, mkdirat, openat, readlinkat, statat, symlinkat,
    utimensat,
};
use rustix::io::Errno;

use super::Failed;
use crate::clock;
use crate::copied::{Copied, Entry, Kind, LIST, join};
use crate::error::Stage;
use crate::spec::{CopyLimits, Mount};

/// Maximum depth of directories.
const MAX_DEPTH: usize = 256;
/// Maximum size of an extended attribute and of all their names; that of Linux.
const MAX_ATTRIBUTE_BYTES: usize = 64 << 10;
const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);
const NEW_FILE: OFlags = OFlags::CREATE
    .union(OFlags::EXCL)
    .union(OFlags::WRONLY)
    .union(OFlags::CLOEXEC);
const EMPTY: Mode = Mode::empty();
const PRIVATE: Mode = Mode::RWXU;

/// What all copies of a sandbox may take.
pub(super) struct Budget<'h> {
    limits: CopyLimits,
    entries: u64,
    bytes: u64,
    began: Instant,
    host: &'h UnixStream,
}

impl<'h> Budget<'h> {
    pub(super) fn new(limits: CopyLimits, host: &'h UnixStream) -> Self {
        Self {
            limits,
            entries: 0,
            bytes: 0,
            began: Instant::now(),
            host,
        }
    }

    fn add_entry(&mut self) -> Result<(), Failed> {
        self.entries += 1;
        if self.entries > self.limits.entries {
            let limit = format!("{} files and directories", self.limits.entries);
            return Err(Failed::TooLarge { limit });
        }
        self.check_time()
    }

    fn add_bytes(&mut self, bytes: u64) -> Result<(), Failed> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limits.bytes {
            let limit = format!("{} bytes", self.limits.bytes);
            return Err(Failed::TooLarge { limit });
        }
        Ok(())
    }

    fn check_time(&self) -> Result<(), Failed> {
        if self.began.elapsed() > self.limits.time {
            let limit = format!("{} seconds", self.limits.time.as_secs_f64());
            return Err(Failed::TooLarge { limit });
        }
        // The host sends nothing before the sandbox is built.
        let mut host = [PollFd::new(self.host, PollFlags::IN)];
        match rustix::event::poll(&mut host, Some(&Timespec::default())) {
            Ok(0) | Err(Errno::INTR) => Ok(()),
            Ok(_) => Err(failed(io::ErrorKind::ConnectionAborted.into())),
            Err(error) => Err(failed(error.into())),
        }
    }
}

/// The paths in the directory at `at` that get mounts of their own, or none, by `later` mounts.
pub(super) fn covered(at: &Path, later: &[Mount]) -> BTreeSet<PathBuf> {
    let paths = later.iter().filter_map(|mount| match mount {
        Mount::Within { .. } => None,
        Mount::Host { at, .. }
        | Mount::Overlay { at, .. }
        | Mount::Hidden { at }
        | Mount::Temporary { at, .. }
        | Mount::Link { at, .. } => Some(at),
    });
    let paths = paths.filter_map(|path| path.strip_prefix(at).ok());
    paths.map(Path::to_owned).collect()
}

/// Copies the contents of `from` to `changes/upper`, without the entries that are `covered`, and lists them.
pub(super) fn copy(
    from: &OwnedFd,
    changes: &Path,
    covered: &BTreeSet<PathBuf>,
    budget: &mut Budget<'_>,
) -> Result<(), Failed> {
    let open = || -> io::Result<_> {
        let from = openat(from, ".", DIRECTORY, EMPTY)?;
        let to = rustix::fs::open(changes.join("upper"), DIRECTORY, EMPTY)?;
        let device = fstat(&from)?.st_dev;
        Ok((from, to, device))
    };
    let (from, to, device) = open().map_err(failed)?;
    // The times of files that somebody changes from now on are later than the time at which the host began.
    clock::wait_for_later();
    let mut copier = Copier {
        covered,
        device,
        budget,
        list: Vec::new(),
    };
    copier.copy_entries(&from, &to, b"", 0)?;
    let mut list = copier.list;
    Copied::end(&mut list, clock::wait_for_later());
    std::fs::write(changes.join(LIST), list).map_err(failed)
}

struct Copier<'c, 'h> {
    covered: &'c BTreeSet<PathBuf>,
    /// The file system of the directory.
    device: u64,
    budget: &'c mut Budget<'h>,
    list: Vec<u8>,
}

impl Copier<'_, '_> {
    fn copy_entries(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        path: &[u8],
        depth: usize,
    ) -> Result<(), Failed> {
        if depth > MAX_DEPTH {
            let limit = format!("{MAX_DEPTH} nested directories");
            return Err(Failed::TooLarge { limit });
        }
        let entries = match Dir::read_from(from) {
            // The command cannot read it either.
            Err(Errno::ACCESS) => return Ok(()),
            entries => entries.map_err(|error| failed(error.into()))?,
        };
        for entry in entries {
            let entry = entry.map_err(|error| failed(error.into()))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let path = join(path, name.to_bytes());
            let stat = match statat(from, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // It was removed meanwhile.
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(failed(error.into())),
            };
            let kind = self.copy_entry((from, to), name, &stat, &path, depth)?;
            let Some(kind) = kind else {
                continue;
            };
            let inode = match kind {
                Kind::Special => 0,
                _ => {
                    let copy = statat(to, name, AtFlags::SYMLINK_NOFOLLOW);
                    copy.map_err(|error| failed(error.into()))?.st_ino
                }
            };
            let mode = stat.st_mode & 0o7777;
            let entry = Entry {
                inode,
                kind,
                mode,
                path,
            };
            entry.encode(&mut self.list);
        }
        Ok(())
    }

    /// Copies an entry. Returns its kind, or `None` if it was removed or replaced meanwhile.
    fn copy_entry(
        &mut self,
        (from, to): (&OwnedFd, &OwnedFd),
        name: &CStr,
        stat: &Stat,
        path: &[u8],
        depth: usize,
    ) -> Result<Option<Kind>, Failed> {
        let step = |error: Errno| failed(error.into());
        let kind = FileType::from_raw_mode(stat.st_mode);
        let inner = Path::new(std::ffi::OsStr::from_bytes(path));
        let is_hidden = self.covered.contains(inner) || stat.st_dev != self.device;
        self.budget.add_entry()?;
        Ok(Some(match kind {
            FileType::Symlink => {
                let target = match readlinkat(from, name, Vec::new()) {
                    Err(Errno::NOENT | Errno::INVAL) => return Ok(None),
                    target => target.map_err(step)?,
                };
                symlinkat(target, to, name).map_err(step)?;
                let times = times(stat);
                utimensat(to, name, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(step)?;
                Kind::Link
            }
            FileType::Directory if is_hidden => {
                mkdirat(to, name, PRIVATE).map_err(step)?;
                Kind::Hidden
            }
            _ if is_hidden => {
                openat(to, name, NEW_FILE, EMPTY).map_err(step)?;
                Kind::Hidden
            }
            FileType::Directory => {
                let opened = openat(from, name, DIRECTORY, EMPTY);
                if matches!(opened, Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) {
                    return Ok(None);
                }
                mkdirat(to, name, PRIVATE).map_err(step)?;
                let copy = openat(to, name, DIRECTORY, EMPTY).map_err(step)?;
                match opened {
                    Ok(opened) => {
                        self.copy_entries(&opened, &copy, path, depth + 1)?;
                        copy_attributes(&opened, &copy);
                    }
                    Err(Errno::ACCESS) => {}
                    Err(error) => return Err(step(error)),
                }
                complete(&copy, stat).map_err(step)?;
                Kind::Directory
            }
            FileType::RegularFile => return self.copy_file(from, to, name),
            _ => Kind::Special,
        }))
    }

    fn copy_file(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        name: &CStr,
    ) -> Result<Option<Kind>, Failed> {
        let step = |error: Errno| failed(error.into());
        let opened = match openat(from, name, OFlags::RDONLY | FILE, EMPTY) {
            Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
            Err(Errno::ACCESS | Errno::PERM) => {
                openat(to, name, NEW_FILE, EMPTY).map_err(step)?;
                return Ok(Some(Kind::Unreadable));
            }
            opened => opened.map_err(step)?,
        };
        let stat = fstat(&opened).map_err(step)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Ok(None);
        }
        let length = u64::try_from(stat.st_size).unwrap_or(0);
        self.budget.add_bytes(length)?;
        let copy = openat(to, name, NEW_FILE, PRIVATE).map_err(step)?;
        copy_attributes(&opened, &copy);
        let (opened, mut copy) = (File::from(opened), File::from(copy));
        // A file that grows meanwhile is compared as changed by somebody else.
        io::copy(&mut opened.take(length), &mut copy).map_err(failed)?;
        complete(&copy.into(), &stat).map_err(step)?;
        Ok(Some(Kind::File))
    }
}

fn times(stat: &Stat) -> Timestamps {
    let time = |seconds, nanos| Timespec {
        tv_sec: seconds,
        tv_nsec: nanos,
    };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec.cast_signed()),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec.cast_signed()),
    }
}

/// Gives a copy the permissions and times of its original.
fn complete(copy: &OwnedFd, stat: &Stat) -> Result<(), Errno> {
    fchmod(copy, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    futimens(copy.as_fd(), &times(stat))
}

/// Copies the extended attributes and access lists that programs set, as far as files in memory can have them.
fn copy_attributes(from: &OwnedFd, to: &OwnedFd) {
    let mut none: [u8; 0] = [];
    let mut names = vec![0; flistxattr(from, &mut none).unwrap_or(0)];
    let length = flistxattr(from, &mut names).unwrap_or(0);
    for name in names
        .get(..length)
        .unwrap_or_default()
        .split(|byte| *byte == 0)
    {
        if !name.starts_with(b"user.") && !name.starts_with(b"system.posix_acl_") {
            continue;
        }
        let mut value = vec![0; MAX_ATTRIBUTE_BYTES];
        if let Ok(length) = fgetxattr(from, name, &mut value) {
            let value = value.get(..length).unwrap_or_default();
            let _ = fsetxattr(to, name, value, XattrFlags::empty());
        }
    }
}

fn failed(error: io::Error) -> Failed {
    Failed::at(Stage::Copy)(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies a directory with the files `a` and `d/b`, without those that are covered.
    fn copied(host: &UnixStream, covered: &[&str]) -> (Result<(), Failed>, tempfile::TempDir) {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(from.path().join("d")).unwrap();
        for name in ["a", "d/b"] {
            std::fs::write(from.path().join(name), "text").unwrap();
        }
        std::fs::create_dir(to.path().join("upper")).unwrap();
        let from = File::open(from.path()).unwrap().into();
        let mut budget = Budget::new(CopyLimits::default(), host);
        let covered = covered.iter().map(PathBuf::from).collect();
        let made = copy(&from, to.path(), &covered, &mut budget);
        (made, to)
    }

    #[test]
    fn copying_ends_when_the_host_is_gone() {
        let (host, helper) = UnixStream::pair().unwrap();
        assert!(copied(&helper, &[]).0.is_ok());
        drop(host);
        let (made, to) = copied(&helper, &[]);
        assert!(matches!(
            made,
            Err(Failed::Step {
                stage: Stage::Copy,
                ..
            })
        ));
        assert!(!to.path().join(LIST).exists());
    }

    #[test]
    fn covered_paths_are_empty_in_a_copy() {
        let (_host, helper) = UnixStream::pair().unwrap();
        for (covered, a, b) in [
            (&[] as &[&str], "text", Some("text")),
            (&["a"], "", Some("text")),
            (&["a", "d/b"], "", Some("")),
            (&["d"], "text", None),
        ] {
            let (made, to) = copied(&helper, covered);
            assert!(made.is_ok());
            let upper = to.path().join("upper");
            let read = |name: &str| std::fs::read_to_string(upper.join(name)).ok();
            assert_eq!(read("a").as_deref(), Some(a), "{covered:?}");
            assert_eq!(read("d/b").as_deref(), b, "{covered:?}");
            assert!(upper.join("d").is_dir(), "{covered:?}");
        }
    }
}
