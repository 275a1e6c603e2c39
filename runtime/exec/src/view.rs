//! What a command may touch of the roots of a worker, as mounts.
//!
//! An entry of the roots gets a mount of its own if its rights differ from those of the directory that contains it. The
//! entries of a directory are read only if a rule of the policy may match something beneath it, since no mount hides names
//! that are not known. If changes are kept apart, files whose names no rule is about are not looked at. Names that are created
//! while the command runs get the rights of their directory. A directory that contains an entry with other rights gets a mount,
//! too: nobody can rename it then.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bailiwick::path::VirtualPath;
use bailiwick::policy::{Verdict, WriteMode};
use bailiwick::root::Root;
use bailiwick::scope::Verb;
use bailiwick::text::escape;
use bailiwick::tool::ReadPermit;
use bailiwick::{CallError, Code};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};

use crate::clock;
use crate::mount_table::mounts_beneath;
use crate::spec::Mount;

/// Maximum number of mounts. The kernel allows 100,000 in all.
const MAX_MOUNTS: usize = 4096;
/// Maximum number of paths in [`ChangedFiles`].
const MAX_CHANGED: usize = 100;
/// Maximum depth of directories.
const MAX_DEPTH: usize = 256;

const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// What happens to the changes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changes {
    /// It changes the roots.
    Live,
    /// Its changes are kept apart, and judged afterwards.
    Apart,
}

/// The files that a command may have changed.
#[derive(Debug, Default)]
pub(crate) struct ChangedFiles {
    /// The first ones.
    pub(crate) first: Vec<VirtualPath>,
    /// Their number.
    pub(crate) total: u64,
}

impl ChangedFiles {
    fn add(&mut self, path: &VirtualPath) {
        if self.first.len() < MAX_CHANGED {
            self.first.push(path.clone());
        }
        self.total += 1;
    }
}

/// What a command may do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rights {
    None,
    Read,
    Write,
}

/// Returns the mounts of everything that the call may read without a further question. Directories and files are writable
/// if the call may also change them in every way, or, if changes are kept apart, unless every change is denied. Blocks.
///
/// # Errors
/// `TOO_LARGE` if the rights differ at too many places; `INTERNAL` if a root cannot be read.
pub(crate) fn files(permit: &ReadPermit, changes: Changes) -> Result<Vec<Mount>, CallError> {
    let view = View::of(permit, changes, None)?;
    Ok(view.mounts)
}

/// Returns these mounts after a command that changed the roots, and the files that were changed since a time. Blocks.
///
/// # Errors
/// Those of [`files`].
pub(crate) fn files_and_changes(
    permit: &ReadPermit,
    since: Duration,
) -> Result<(Vec<Mount>, ChangedFiles), CallError> {
    let view = View::of(permit, Changes::Live, Some(since))?;
    Ok((view.mounts, view.changed))
}

struct View<'p> {
    permit: &'p ReadPermit,
    changes: Changes,
    /// Whether the policy allows every way of writing, which a sandbox cannot tell apart; if changes are kept apart,
    /// whether it allows one.
    may_write: bool,
    open: Vec<VirtualPath>,
    mounts: Vec<Mount>,
    /// The time since which changed files are noted, if they are.
    since: Option<Duration>,
    changed: ChangedFiles,
}

/// The root that is being read.
struct Place<'r> {
    root: &'r Root,
    /// Mount points of the other roots, which have entries of their own.
    others: &'r [&'r VirtualPath],
    device: u64,
    /// What is mounted beneath it on the host.
    mounted: Vec<PathBuf>,
}

impl<'p> View<'p> {
    /// Judges all entries of the roots.
    fn of(
        permit: &'p ReadPermit,
        changes: Changes,
        since: Option<Duration>,
    ) -> Result<Self, CallError> {
        let mut modes = WriteMode::ALL.into_iter();
        let allows = |mode| permit.allows_write_mode(mode);
        let mut view = Self {
            permit,
            changes,
            may_write: match changes {
                Changes::Live => modes.all(allows),
                Changes::Apart => modes.any(allows),
            },
            open: permit
                .open_folders()
                .iter()
                .map(|folder| folder.path.clone())
                .collect(),
            mounts: Vec::new(),
            since,
            changed: ChangedFiles::default(),
        };
        let mut roots: Vec<&Root> = permit.roots().collect();
        roots.sort_by_key(|root| root.mount().depth());
        for root in &roots {
            let inner: Vec<&VirtualPath> = roots
                .iter()
                .map(|inner| inner.mount())
                .filter(|inner| *inner != root.mount())
                .collect();
            view.add_root(root, &inner)?;
        }
        Ok(view)
    }

    fn rights(&self, path: &VirtualPath) -> Rights {
        let verdict = |verb| self.permit.judge(verb, path);
        let may_read = verdict(Verb::Read) == Verdict::Allow;
        let may_write = self.may_write
            && match self.changes {
                Changes::Live => verdict(Verb::Write) == Verdict::Allow,
                Changes::Apart => verdict(Verb::Write) != Verdict::Deny,
            };
        match (may_read, may_write) {
            (false, _) => Rights::None,
            (true, false) => Rights::Read,
            (true, true) => Rights::Write,
        }
    }

    fn add_root(&mut self, root: &Root, others: &[&VirtualPath]) -> Result<(), CallError> {
        let path = root.mount();
        let rights = self.rights(path);
        // An outer root may show the same directory with other rights.
        if others.iter().any(|outer| path.starts_with(outer)) {
            let at = PathBuf::from(path.as_str());
            self.push(Mount::Hidden { at })?;
        }
        if rights != Rights::None {
            let source = root.host_path().to_owned();
            self.push(self.mount(source, path, rights, root.identity(), true))?;
        }
        let table = mount_table().map_err(|error| unreadable(path, error))?;
        let place = Place {
            root,
            others,
            device: root.identity().0,
            mounted: mounts_beneath(&table, root.host_path()),
        };
        // The handle of a root may not be readable itself.
        let directory = openat(root.dir(), ".", DIRECTORY, Mode::empty())
            .map_err(|error| unreadable(path, error))?;
        if self.changes == Changes::Apart && is_remote(directory.as_fd()) {
            let message = format!(
                "changes in `{}` cannot be kept apart, since it is on a network file system, whose times come from another \
                 clock; use the mode `live`",
                escape(path.as_str())
            );
            return Err(CallError::new(Code::Io, message));
        }
        self.add_entries(&place, directory.as_fd(), path, rights, 0)
    }

    /// Adds mounts for the entries of a directory that has `rights`.
    fn add_entries(
        &mut self,
        place: &Place<'_>,
        directory: BorrowedFd<'_>,
        path: &VirtualPath,
        rights: Rights,
        depth: usize,
    ) -> Result<(), CallError> {
        if depth > MAX_DEPTH {
            return Err(too_large("directories are nested too deeply"));
        }
        if rights == Rights::None && !self.open.iter().any(|open| open.starts_with(path)) {
            return Ok(());
        }
        self.permit.checkpoint()?;
        if self.is_uniform(path) {
            return self.hide_mounts(place, path, rights);
        }
        let entries = Dir::read_from(directory).map_err(|error| unreadable(path, error))?;
        let named = self.permit.entries(path);
        let (by_name, mut ordinary) = (self.judges_by_name(place, path), None);
        for entry in entries {
            let entry = entry.map_err(|error| unreadable(path, error))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(text) = name.to_str() else {
                let message = format!(
                    "`{}` contains a name that is not UTF-8, which no rule can judge",
                    escape(path.as_str())
                );
                return Err(CallError::new(Code::NotText, message));
            };
            let is_ordinary = by_name && named.is_ordinary(text);
            let may_be_directory =
                matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            if is_ordinary && !may_be_directory && ordinary == Some(rights) {
                continue;
            }
            let Ok(inner) = path.join(text) else {
                return Err(too_large("a path is too long"));
            };
            let judged = match ordinary {
                Some(judged) if is_ordinary => judged,
                _ => self.rights(&inner),
            };
            if is_ordinary {
                ordinary = Some(judged);
            }
            self.add_entry(place, directory, &inner, text, (rights, judged), depth)?;
        }
        Ok(())
    }

    /// Whether the names of the entries of a directory that no rule is about are enough to judge them.
    fn judges_by_name(&self, place: &Place<'_>, path: &VirtualPath) -> bool {
        // The rights to change the roots also depend on protected names.
        let is_written = self.changes == Changes::Live && self.may_write;
        let host = host_path(place.root, path);
        let mut mounted = place.mounted.iter();
        !is_written
            && self.since.is_none()
            && !self.permit.strict_hardlinks()
            && !mounted.any(|mounted| mounted.parent() == Some(&host))
    }

    /// Adds mounts for an entry of a directory. `rights` are those of the directory, and those that the policy gives it.
    fn add_entry(
        &mut self,
        place: &Place<'_>,
        directory: BorrowedFd<'_>,
        path: &VirtualPath,
        name: &str,
        (outer, judged): (Rights, Rights),
        depth: usize,
    ) -> Result<(), CallError> {
        if place.others.contains(&path) {
            return Ok(());
        }
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // It was removed meanwhile.
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            Err(error) => return Err(unreadable(path, error)),
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        // What a link leads to is judged where it is.
        if kind.is_symlink() {
            return Ok(());
        }
        // An overlay does not contain other file systems.
        let crosses = place.root.crosses_mounts() && self.changes == Changes::Live;
        let foreign = stat.st_dev != place.device && !crosses;
        let linked = kind.is_file() && stat.st_nlink > 1 && self.permit.strict_hardlinks();
        let rights = if foreign || linked {
            Rights::None
        } else {
            judged
        };
        let may_be_changed =
            rights == Rights::Write || outer == Rights::Write && rights == Rights::Read;
        if kind.is_file()
            && may_be_changed
            && self
                .since
                .is_some_and(|since| clock::changed_at(&stat) >= since)
        {
            self.changed.add(path);
        }
        let at = || PathBuf::from(path.as_str());
        let first = self.mounts.len();
        if rights != outer {
            self.push(match (outer, rights) {
                (_, Rights::None) => Mount::Hidden { at: at() },
                (Rights::None, _) => {
                    let source = host_path(place.root, path);
                    let identity = (stat.st_dev, stat.st_ino);
                    self.mount(source, path, rights, identity, kind.is_dir())
                }
                _ => Mount::Within {
                    at: at(),
                    writable: rights == Rights::Write,
                },
            })?;
        }
        if kind.is_dir() && !foreign {
            let inner: OwnedFd = match openat(directory, name, DIRECTORY, Mode::empty()) {
                Ok(inner) => inner,
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(()),
                // The command cannot read it either.
                Err(rustix::io::Errno::ACCESS) => return Ok(()),
                Err(error) => return Err(unreadable(path, error)),
            };
            self.add_entries(place, inner.as_fd(), path, rights, depth + 1)?;
            let could_be_renamed = outer == Rights::Write && rights == Rights::Write;
            let is_above_root = || place.others.iter().any(|other| other.starts_with(path));
            let holds_others = self.mounts.len() > first || is_above_root();
            if could_be_renamed && self.changes == Changes::Live && holds_others {
                self.pin(first, at())?;
            }
        }
        Ok(())
    }

    /// Gives a directory that contains the mounts from `first` on a mount of its own. Otherwise a command could rename it, and
    /// what it contains would get other rights by its new path.
    fn pin(&mut self, first: usize, at: PathBuf) -> Result<(), CallError> {
        let writable = true;
        self.push(Mount::Within { at, writable })?;
        if let Some(mounts) = self.mounts.get_mut(first..) {
            mounts.rotate_right(1);
        }
        Ok(())
    }

    /// Whether everything in a directory certainly has its rights, too.
    fn is_uniform(&self, path: &VirtualPath) -> bool {
        // If the command changes the roots, protected names beneath a directory have other rights than the directory, and
        // entries beneath a protected name such as `.git` may have more.
        let is_written = self.changes == Changes::Live
            && self.may_write
            && self.permit.judge(Verb::Write, path) != Verdict::Deny;
        !is_written && !self.permit.strict_hardlinks() && self.permit.is_uniform(path)
    }

    /// Hides what is mounted in a directory whose entries are not judged one by one.
    fn hide_mounts(
        &mut self,
        place: &Place<'_>,
        path: &VirtualPath,
        rights: Rights,
    ) -> Result<(), CallError> {
        // An overlay does not contain other file systems, but what they cover.
        let crosses = place.root.crosses_mounts() && self.changes == Changes::Live;
        if crosses || rights == Rights::None {
            return Ok(());
        }
        let host = place.root.host_path();
        let top = host_path(place.root, path);
        let beneath = |mounted: &&PathBuf| mounted.starts_with(&top) && **mounted != top;
        for mounted in place.mounted.iter().filter(beneath) {
            let inner = mounted.strip_prefix(host).ok().and_then(Path::to_str);
            let inner =
                inner.and_then(|inner| VirtualPath::parse(inner, Some(place.root.mount())).ok());
            let inner = inner.ok_or_else(|| {
                CallError::new(
                    Code::NotText,
                    "something is mounted at a path that no rule can judge",
                )
            })?;
            if !place.others.contains(&&inner) {
                let at = PathBuf::from(inner.as_str());
                self.push(Mount::Hidden { at })?;
            }
        }
        Ok(())
    }

    /// A mount of an entry. A file in a directory that the call may not read is never writable if changes are kept apart.
    fn mount(
        &self,
        source: PathBuf,
        path: &VirtualPath,
        rights: Rights,
        identity: (u64, u64),
        is_directory: bool,
    ) -> Mount {
        let at = PathBuf::from(path.as_str());
        let writable = rights == Rights::Write;
        let identity = Some(identity);
        match self.changes {
            Changes::Apart if is_directory => Mount::Overlay {
                source,
                at,
                writable,
                identity,
            },
            Changes::Live | Changes::Apart => Mount::Host {
                source,
                at,
                writable: writable && self.changes == Changes::Live,
                identity,
            },
        }
    }

    fn push(&mut self, mount: Mount) -> Result<(), CallError> {
        if self.mounts.len() >= MAX_MOUNTS {
            return Err(too_large(
                "the rights differ at too many places for a sandbox",
            ));
        }
        self.mounts.push(mount);
        Ok(())
    }
}

/// The path of an entry of a root on the host.
fn host_path(root: &Root, path: &VirtualPath) -> PathBuf {
    let inner = Path::new(path.as_str()).strip_prefix(root.mount().as_str());
    root.host_path().join(inner.unwrap_or(Path::new("")))
}

/// Whether a directory is on a file system whose times come from the clock of a server: NFS, SMB, CIFS, Ceph or AFS.
fn is_remote(directory: BorrowedFd<'_>) -> bool {
    const KINDS: [u32; 6] = [
        0x6969,
        0x517b,
        0xfe53_4d42,
        0xff53_4d42,
        0x00c3_6400,
        0x5346_414f,
    ];
    let kind = rustix::fs::fstatfs(directory).map(|found| found.f_type);
    kind.is_ok_and(|kind| u32::try_from(kind & 0xffff_ffff).is_ok_and(|kind| KINDS.contains(&kind)))
}

/// The mounts of this process.
fn mount_table() -> Result<String, rustix::io::Errno> {
    use std::io::Read as _;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let table = rustix::fs::open("/proc/self/mountinfo", flags, Mode::empty())?;
    let mut text = String::new();
    let read = std::fs::File::from(table).read_to_string(&mut text);
    read.map_err(|error| {
        rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO)
    })?;
    Ok(text)
}

fn too_large(message: &str) -> CallError {
    CallError::new(Code::TooLarge, message)
}

fn unreadable(path: &VirtualPath, error: rustix::io::Errno) -> CallError {
    let message = format!("`{}` cannot be read: {error}", escape(path.as_str()));
    CallError::new(Code::Io, message)
}
