//! Lists the changes that a command left in its overlays.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use bailiwick::policy::Verdict;
use bailiwick::tool::ReadPermit;
use bailiwick::{CallError, Code, VirtualPath};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::directories::{changed_at, identity};
use super::{ChangeKind, Directories, DroppedChange, Identity, KeptChange, KeptChanges};

/// Maximum number of changes of a command.
const MAX_CHANGES: usize = 5_000;
/// Maximum depth of directories.
const MAX_DEPTH: usize = 256;

const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Attribute of a directory that replaces the one of the root.
const OPAQUE: &str = "user.overlay.opaque";

/// Attribute of an entry that was copied from the root before it was changed.
const ORIGIN: &str = "user.overlay.origin";

/// Why changes are dropped.
const DENIED: &str = "you may not change it";
const MEANWHILE: &str = "it was changed by somebody else while the command ran";
const KIND: &str = "a file replaces a directory, or a directory a file";
const SPECIAL: &str = "only files and directories can be applied";
const NOT_TEXT: &str =
    "a name in it is not UTF-8 or has control characters, or its path is too long";
const UNREADABLE: &str = "it cannot be read";
const TOO_MANY: &str = "the command changed more than 5,000 files and directories, so nothing is kept; \
    let it write to /tmp, or use the mode `live`";

/// Lists the changes in `directory`, where overlay N of `overlays` has its changes in `N/upper`; each is a path with the
/// directory that it shows. Blocks.
///
/// # Errors
/// `IO` if the changes cannot be read.
pub(crate) fn collect(
    directory: OwnedFd,
    overlays: &[(VirtualPath, Identity)],
    directories: &Directories,
    permit: &ReadPermit,
) -> Result<(Option<KeptChanges>, Vec<DroppedChange>), CallError> {
    let mut collector = Collector {
        permit,
        directories,
        began: directories.began(),
        above: Vec::new(),
        changes: Vec::new(),
        dropped: Vec::new(),
    };
    for (number, (path, shown)) in overlays.iter().enumerate() {
        let stored = format!("{number}/upper");
        let is_same = collector.enter(path, *shown)?;
        let upper = rustix::fs::openat(&directory, &stored, DIRECTORY, Mode::empty());
        let upper = upper.map_err(|error| unreadable(path, error))?;
        if !collector.add_entries(upper.as_fd(), path, &stored, (0, is_same))? {
            let dropped = DroppedChange {
                path: path.to_string(),
                reason: TOO_MANY,
            };
            return Ok((None, vec![dropped]));
        }
    }
    let Collector {
        mut changes,
        dropped,
        ..
    } = collector;
    if changes.is_empty() {
        return Ok((None, dropped));
    }
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    let kept = KeptChanges {
        id: id()?,
        worker: permit.worker(),
        since: Instant::now(),
        changes,
        began: directories.began(),
        directory,
    };
    Ok((Some(kept), dropped))
}

/// An id of 128 random bits.
fn id() -> Result<String, CallError> {
    let mut bytes = [0; 16];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(16) => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        Ok(_) | Err(_) => Err(CallError::new(Code::Internal, "no random numbers")),
    }
}

struct Collector<'p> {
    permit: &'p ReadPermit,
    directories: &'p Directories,
    /// When the command started, since 1970.
    began: Duration,
    /// The directories at and above the one that is being listed, which are those that the command saw.
    above: Vec<(VirtualPath, Stat)>,
    changes: Vec<KeptChange>,
    dropped: Vec<DroppedChange>,
}

impl Collector<'_> {
    /// Begins an overlay, which showed the directory `shown`. Returns whether that is still at its path.
    fn enter(&mut self, path: &VirtualPath, shown: Identity) -> Result<bool, CallError> {
        self.above.clear();
        let top = self.permit.root_of(path)?.0.mount().clone();
        let mut paths: Vec<VirtualPath> =
            std::iter::successors(Some(path.clone()), VirtualPath::parent)
                .take_while(|path| path.starts_with(&top))
                .collect();
        paths.reverse();
        for path in paths {
            let Some(stat) = self.before(&path)? else {
                return Ok(false);
            };
            self.above.push((path, stat));
        }
        Ok(self
            .above
            .last()
            .is_some_and(|(_, stat)| identity(stat) == shown))
    }

    /// The directories at and above the one that is being listed, without the root.
    fn directories_above(&self) -> Vec<(VirtualPath, Identity)> {
        let inner = self.above.iter().skip(1);
        inner
            .map(|(path, stat)| (path.clone(), identity(stat)))
            .collect()
    }

    /// Whether the command saw this directory at `path`.
    fn is_same(&self, path: &VirtualPath, stat: &Stat) -> bool {
        let above = self.above.last();
        above.is_some_and(|(_, above)| self.directories.is_same(path, stat, above))
    }

    /// Adds the changes in a directory; `false` if there are too many. `is_same` is whether the directories at and above
    /// `path` are those that the command saw.
    fn add_entries(
        &mut self,
        upper: BorrowedFd<'_>,
        path: &VirtualPath,
        stored: &str,
        (depth, is_same): (usize, bool),
    ) -> Result<bool, CallError> {
        self.permit.checkpoint()?;
        let entries = Dir::read_from(upper).map_err(|error| unreadable(path, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| unreadable(path, error))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if self.changes.len() + self.dropped.len() >= MAX_CHANGES {
                return Ok(false);
            }
            let text = name.to_str().ok();
            let inner = text.and_then(|name| Some((name, path.join(name).ok()?)));
            let Some((name, inner)) = inner.filter(|_| depth < MAX_DEPTH) else {
                self.drop_change(path, NOT_TEXT);
                continue;
            };
            let stored = format!("{stored}/{name}");
            if !is_same {
                self.drop_change(&inner, MEANWHILE);
                continue;
            }
            if !self.add_entry(upper, name, &inner, &stored, depth)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn add_entry(
        &mut self,
        upper: BorrowedFd<'_>,
        name: &str,
        path: &VirtualPath,
        stored: &str,
        depth: usize,
    ) -> Result<bool, CallError> {
        let read = |error| unreadable(path, error);
        let stat = rustix::fs::statat(upper, name, AtFlags::SYMLINK_NOFOLLOW).map_err(read)?;
        let before = self.before(path)?;
        let old = before
            .as_ref()
            .map(|stat| FileType::from_raw_mode(stat.st_mode));
        let was_copied = before.is_none() && is_copy(upper, name);
        let mut add = |kind, is_directory| {
            let mut directories = self.directories_above();
            // A deleted directory must still be that one, too.
            directories.extend(
                before
                    .as_ref()
                    .filter(|_| is_directory)
                    .map(|stat| (path.clone(), identity(stat))),
            );
            let change = KeptChange {
                path: path.clone(),
                kind,
                is_directory,
                bytes: if is_directory || kind == ChangeKind::Deleted {
                    0
                } else {
                    u64::try_from(stat.st_size).unwrap_or(0)
                },
                executable: stat.st_mode & 0o111 != 0,
                stored: stored.to_owned(),
                directories,
            };
            self.add(change, before.as_ref(), was_copied);
        };
        match (FileType::from_raw_mode(stat.st_mode), old) {
            (FileType::RegularFile, _) if stat.st_mode & 0o400 == 0 => {
                self.drop_change(path, UNREADABLE);
            }
            (FileType::RegularFile, None) => add(ChangeKind::Created, false),
            (FileType::RegularFile, Some(FileType::RegularFile)) => add(ChangeKind::Changed, false),
            (FileType::CharacterDevice, Some(old)) if stat.st_rdev == 0 => {
                add(ChangeKind::Deleted, old.is_dir());
            }
            (FileType::CharacterDevice, None) if stat.st_rdev == 0 => {}
            (FileType::Directory, None | Some(FileType::Directory)) => {
                let inner = match rustix::fs::openat(upper, name, DIRECTORY, Mode::empty()) {
                    Err(Errno::ACCESS) => {
                        self.drop_change(path, UNREADABLE);
                        return Ok(true);
                    }
                    opened => opened.map_err(read)?,
                };
                let Some(now) = before else {
                    add(ChangeKind::DirectoryCreated, true);
                    return self.add_entries(inner.as_fd(), path, stored, (depth + 1, !was_copied));
                };
                let is_same = self.is_same(path, &now);
                self.above.push((path.clone(), now));
                let listed = (!is_same
                    || !is_opaque(inner.as_fd())
                    || self.add_removed(inner.as_fd(), path)?)
                    && self.add_entries(inner.as_fd(), path, stored, (depth + 1, is_same))?;
                self.above.pop();
                return Ok(listed);
            }
            (FileType::RegularFile | FileType::Directory, Some(_)) => self.drop_change(path, KIND),
            _ => self.drop_change(path, SPECIAL),
        }
        Ok(true)
    }

    /// Adds a change, unless it is denied or the path has changed meanwhile.
    /// `was_copied` is whether the command changed what is not there any more.
    fn add(&mut self, change: KeptChange, before: Option<&Stat>, was_copied: bool) {
        if was_copied || before.is_some_and(|stat| changed_at(stat) > self.began) {
            self.drop_change(&change.path, MEANWHILE);
        } else if self.permit.judge_need(&change.need()) == Verdict::Deny {
            self.drop_change(&change.path, DENIED);
        } else {
            self.changes.push(change);
        }
    }

    /// Adds the deletion of the entries that a new directory at the same path does not have; `false` if there are too many
    /// changes.
    fn add_removed(
        &mut self,
        upper: BorrowedFd<'_>,
        path: &VirtualPath,
    ) -> Result<bool, CallError> {
        let read = |error| unreadable(path, error);
        let names = |directory: BorrowedFd<'_>| -> Result<BTreeSet<String>, CallError> {
            let entries = Dir::read_from(directory).map_err(read)?;
            let names = entries.map(|entry| {
                let name = entry.map_err(read)?;
                Ok(name.file_name().to_string_lossy().into_owned())
            });
            names.collect()
        };
        let Some(lower) = self.open(path, DIRECTORY)? else {
            return Ok(true);
        };
        let kept = names(upper)?;
        for name in names(lower.as_fd())? {
            if self.changes.len() + self.dropped.len() >= MAX_CHANGES {
                return Ok(false);
            }
            if kept.contains(&name) || matches!(name.as_str(), "." | "..") {
                continue;
            }
            let Ok(inner) = path.join(&name) else {
                self.drop_change(path, NOT_TEXT);
                continue;
            };
            let Some(before) = self.before(&inner)? else {
                continue;
            };
            let is_directory = FileType::from_raw_mode(before.st_mode).is_dir();
            let mut directories = self.directories_above();
            directories.extend(is_directory.then(|| (inner.clone(), identity(&before))));
            let change = KeptChange {
                directories,
                path: inner,
                kind: ChangeKind::Deleted,
                is_directory,
                bytes: 0,
                executable: false,
                stored: String::new(),
            };
            self.add(change, Some(&before), false);
        }
        Ok(true)
    }

    fn drop_change(&mut self, path: &VirtualPath, reason: &'static str) {
        self.dropped.push(DroppedChange {
            path: path.to_string(),
            reason,
        });
    }

    /// The entry of the root at a path.
    fn before(&self, path: &VirtualPath) -> Result<Option<Stat>, CallError> {
        let opened = self.open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
        let stat = opened.map(|file| rustix::fs::fstat(&file)).transpose();
        stat.map_err(|error| unreadable(path, error))
    }

    /// Opens a path of a root without following links; `None` if it does not exist.
    fn open(&self, path: &VirtualPath, flags: OFlags) -> Result<Option<OwnedFd>, CallError> {
        let (root, rest) = self.permit.root_of(path)?;
        let rest = if rest.is_empty() { "." } else { rest };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let opened =
            rustix::fs::openat2(root.dir(), Path::new(rest), flags, Mode::empty(), resolve);
        match opened {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(unreadable(path, error)),
        }
    }
}

/// Whether an entry was copied from the root, and not created by the command.
fn is_copy(upper: BorrowedFd<'_>, name: &str) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(upper, name, flags, Mode::empty());
    opened.is_ok_and(|file| {
        let mut none: [u8; 0] = [];
        rustix::fs::fgetxattr(file, ORIGIN, &mut none).is_ok()
    })
}

fn is_opaque(directory: BorrowedFd<'_>) -> bool {
    let mut value = [0; 1];
    rustix::fs::fgetxattr(directory, OPAQUE, &mut value).is_ok_and(|_| value == *b"y")
}

fn unreadable(path: &VirtualPath, error: Errno) -> CallError {
    let path = bailiwick::text::escape(path.as_str());
    CallError::new(Code::Io, format!("`{path}` cannot be read: {error}"))
}
