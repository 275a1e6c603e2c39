//! What a command may touch of the roots of a worker, as mounts.
//!
//! Every entry of the roots is judged by the policy of the call. An entry gets a mount of its own if its rights differ
//! from those of the directory that contains it. Names that are created while the command runs get the rights of their
//! directory.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use bailiwick::path::VirtualPath;
use bailiwick::policy::{Verdict, WriteMode};
use bailiwick::root::Root;
use bailiwick::scope::Verb;
use bailiwick::text::escape;
use bailiwick::tool::ReadPermit;
use bailiwick::{CallError, Code};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};

use crate::overlay::Seen;
use crate::spec::Mount;

/// Maximum number of mounts. The kernel allows 100,000 in all.
const MAX_MOUNTS: usize = 4096;
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

/// What a command may do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rights {
    None,
    Read,
    Write,
}

/// What a command sees of the roots.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) mounts: Vec<Mount>,
    /// The entries, if changes are kept apart.
    pub(crate) seen: Seen,
}

/// Returns the mounts of everything that the call may read without a further question. Directories and files are writable
/// if the call may also change them in every way, or, if changes are kept apart, unless every change is denied. Blocks.
///
/// # Errors
/// `TOO_LARGE` if the rights differ at too many places; `INTERNAL` if a root cannot be read.
pub(crate) fn files(permit: &ReadPermit, changes: Changes) -> Result<Files, CallError> {
    let mut modes = WriteMode::ALL.into_iter();
    let allows = |mode| permit.allows_write_mode(mode);
    let mut view = View {
        permit,
        changes,
        may_write: match changes {
            Changes::Live => modes.all(allows),
            Changes::Apart => modes.any(allows),
        },
        open: permit
            .open_folders()
            .into_iter()
            .map(|folder| folder.path)
            .collect(),
        mounts: Vec::new(),
        seen: Seen::default(),
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
    Ok(Files {
        mounts: view.mounts,
        seen: view.seen,
    })
}

struct View<'p> {
    permit: &'p ReadPermit,
    changes: Changes,
    /// Whether the policy allows every way of writing, which a sandbox cannot tell apart; if changes are kept apart,
    /// whether it allows one.
    may_write: bool,
    open: Vec<VirtualPath>,
    mounts: Vec<Mount>,
    seen: Seen,
}

/// The root that is being read.
struct Place<'r> {
    root: &'r Root,
    /// Mount points of the other roots, which have entries of their own.
    others: &'r [&'r VirtualPath],
    device: u64,
}

impl View<'_> {
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
        let place = Place {
            root,
            others,
            device: root.identity().0,
        };
        // The handle of a root may not be readable itself.
        let directory = openat(root.dir(), ".", DIRECTORY, Mode::empty())
            .map_err(|error| unreadable(path, error))?;
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
        let entries = Dir::read_from(directory).map_err(|error| unreadable(path, error))?;
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
            let Ok(inner) = path.join(text) else {
                return Err(too_large("a path is too long"));
            };
            self.add_entry(place, directory, &inner, text, rights, depth)?;
        }
        Ok(())
    }

    fn add_entry(
        &mut self,
        place: &Place<'_>,
        directory: BorrowedFd<'_>,
        path: &VirtualPath,
        name: &str,
        outer: Rights,
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
        if self.changes == Changes::Apart {
            if kind.is_dir() {
                let identity = (stat.st_dev, stat.st_ino);
                self.seen.add_directory(path.clone(), identity);
            } else {
                self.seen.add_other(path);
            }
        }
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
            self.rights(path)
        };
        let at = || PathBuf::from(path.as_str());
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

fn too_large(message: &str) -> CallError {
    CallError::new(Code::TooLarge, message)
}

fn unreadable(path: &VirtualPath, error: rustix::io::Errno) -> CallError {
    let message = format!("`{}` cannot be read: {error}", escape(path.as_str()));
    CallError::new(Code::Io, message)
}
