//! Lists the changes that a command left in its overlays.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use bailiwick::policy::Verdict;
use bailiwick::tool::ReadPermit;
use bailiwick::{CallError, Code, VirtualPath};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::{ChangeKind, DroppedChange, Identity, KeptChange, KeptChanges, Seen};

/// Maximum number of changes of a command.
const MAX_CHANGES: usize = 5_000;
/// Maximum depth of directories.
const MAX_DEPTH: usize = 256;

const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Attribute of a directory that replaces the one of the root.
const OPAQUE: &str = "user.overlay.opaque";

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

/// Lists the changes in `directory`, where overlay N of `overlays` has its changes in `N/upper`. Blocks.
///
/// # Errors
/// `IO` if the changes cannot be read.
pub(crate) fn collect(
    directory: OwnedFd,
    overlays: &[VirtualPath],
    seen: &Seen,
    began: Duration,
    permit: &ReadPermit,
) -> Result<(Option<KeptChanges>, Vec<DroppedChange>), CallError> {
    let mut collector = Collector {
        permit,
        seen,
        began,
        changes: Vec::new(),
        dropped: Vec::new(),
    };
    for (number, path) in overlays.iter().enumerate() {
        let stored = format!("{number}/upper");
        let upper = rustix::fs::openat(&directory, &stored, DIRECTORY, Mode::empty());
        let upper = upper.map_err(|error| unreadable(path, error))?;
        if !collector.add_entries(upper.as_fd(), path, &stored, (0, true))? {
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
        changes,
        began,
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
    seen: &'p Seen,
    began: Duration,
    changes: Vec<KeptChange>,
    dropped: Vec<DroppedChange>,
}

impl Collector<'_> {
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
        let is_same = before.as_ref().map(identity) == self.seen.directory(path);
        let mut add = |kind, is_directory| {
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
                directories: self.seen.directories_above(path),
            };
            self.add(change, before.as_ref());
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
                if old.is_none() {
                    add(ChangeKind::DirectoryCreated, true);
                } else if is_same
                    && is_opaque(inner.as_fd())
                    && !self.add_removed(inner.as_fd(), path)?
                {
                    return Ok(false);
                }
                return self.add_entries(inner.as_fd(), path, stored, (depth + 1, is_same));
            }
            (FileType::RegularFile | FileType::Directory, Some(_)) => self.drop_change(path, KIND),
            _ => self.drop_change(path, SPECIAL),
        }
        Ok(true)
    }

    /// Adds a change, unless it is denied or the path has changed meanwhile.
    fn add(&mut self, change: KeptChange, before: Option<&Stat>) {
        let is_changed = match before {
            Some(stat) => changed_at(stat) > self.began || !self.seen.contains(&change.path),
            None => self.seen.contains(&change.path),
        };
        if is_changed {
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
            let change = KeptChange {
                directories: self.seen.directories_above(&inner),
                path: inner,
                kind: ChangeKind::Deleted,
                is_directory: FileType::from_raw_mode(before.st_mode).is_dir(),
                bytes: 0,
                executable: false,
                stored: String::new(),
            };
            self.add(change, Some(&before));
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

#[expect(
    clippy::useless_conversion,
    reason = "the types differ between architectures"
)]
fn identity(stat: &Stat) -> Identity {
    (u64::from(stat.st_dev), u64::from(stat.st_ino))
}

fn is_opaque(directory: BorrowedFd<'_>) -> bool {
    let mut value = [0; 1];
    rustix::fs::fgetxattr(directory, OPAQUE, &mut value).is_ok_and(|_| value == *b"y")
}

/// When the content or the attributes of an entry changed, since 1970.
#[expect(
    clippy::useless_conversion,
    reason = "the types differ between architectures"
)]
fn changed_at(stat: &Stat) -> Duration {
    let nanos = u32::try_from(u64::from(stat.st_ctime_nsec)).unwrap_or(0);
    u64::try_from(stat.st_ctime).map_or(Duration::ZERO, |seconds| Duration::new(seconds, nanos))
}

fn unreadable(path: &VirtualPath, error: Errno) -> CallError {
    let path = bailiwick::text::escape(path.as_str());
    CallError::new(Code::Io, format!("`{path}` cannot be read: {error}"))
}
