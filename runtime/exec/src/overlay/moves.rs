//! Which new names of files belong to which deleted names, so that both or neither are applied.
//!
//! A file that is moved in an overlay is a deletion and a copy of the file with its length and its time of modification. If
//! the command has also changed the file, its old name is not known; if such a file is dropped, no deletion is applied.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use bailiwick::{CallError, VirtualPath};
use rustix::fs::{AtFlags, Dir, FileType, Mode, Stat, openat, statat};
use rustix::io::Errno;

use super::{DIRECTORY, FILE, MAX_DEPTH};

/// Attribute of an entry that was copied from the root before it was changed.
const ORIGIN: &str = "user.overlay.origin";
/// Maximum number of entries that are read to find moved files, in all.
const MAX_ENTRIES: usize = 100_000;

/// Whether a file or directory was copied from the root, and not created by the command. A copied file may have been moved
/// or linked since.
pub(super) fn is_copy(file: &OwnedFd) -> bool {
    let mut none: [u8; 0] = [];
    rustix::fs::fgetxattr(file, ORIGIN, &mut none).is_ok()
}

/// What identifies a file that was not changed: when it was modified, since 1970, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key(Duration, i64);

impl Key {
    fn of(stat: &Stat) -> Self {
        let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
        let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
        Self(Duration::new(seconds, nanos), stat.st_size)
    }
}

/// A file that was, or may have been, moved or linked.
#[derive(Debug)]
struct Moved {
    /// `None` if it is certainly dropped.
    path: Option<VirtualPath>,
    /// `None` if it was changed, too.
    key: Option<Key>,
    /// Whether the root has nothing at `path`.
    is_new: bool,
}

/// A file that the command deleted or replaced, or a directory that it deleted.
#[derive(Debug)]
struct Removed {
    path: VirtualPath,
    key: Key,
    is_directory: bool,
}

/// The files that a command moved, and those that it removed.
#[derive(Debug)]
pub(super) struct Moves {
    /// When the command started, since 1970.
    began: Duration,
    moved: Vec<Moved>,
    removed: Vec<Removed>,
}

impl Moves {
    pub(super) fn new(began: Duration) -> Self {
        Self {
            began,
            moved: Vec::new(),
            removed: Vec::new(),
        }
    }

    /// Adds `file`, with `stat`, at `path`, where the root has the file `before`.
    pub(super) fn note_file(
        &mut self,
        path: &VirtualPath,
        (file, stat): (&OwnedFd, &Stat),
        before: Option<&Stat>,
    ) {
        let key = Key::of(stat);
        let is_copy = is_copy(file);
        if let Some(before) = before {
            if is_copy && Key::of(before) == key {
                return;
            }
            self.note_removed(path, before);
        }
        if is_copy {
            let path = Some(path.clone());
            self.note_moved(path, key, before.is_none());
        }
    }

    fn note_moved(&mut self, path: Option<VirtualPath>, key: Key, is_new: bool) {
        let key = (key.0 <= self.began).then_some(key);
        self.moved.push(Moved { path, key, is_new });
    }

    /// Adds what the root has at `path`, which the command deleted or replaced.
    pub(super) fn note_removed(&mut self, path: &VirtualPath, before: &Stat) {
        self.removed.push(Removed {
            path: path.clone(),
            key: Key::of(before),
            is_directory: FileType::from_raw_mode(before.st_mode).is_dir(),
        });
    }

    /// Adds all files at and in the entry `name`, which is dropped.
    pub(super) fn note_dropped(&mut self, upper: BorrowedFd<'_>, name: &[u8]) {
        let mut budget = MAX_ENTRIES;
        let mut note = |directory: BorrowedFd<'_>, name: &[u8], stat: &Stat| {
            let file = openat(directory, name, FILE, Mode::empty())?;
            if is_copy(&file) {
                self.note_moved(None, Key::of(stat), true);
            }
            Ok(())
        };
        if visit(upper, name, (&mut budget, 0), &mut note).is_err() {
            self.moved.push(Moved {
                path: None,
                key: None,
                is_new: true,
            });
        }
    }

    /// Of the paths `kept`, those that must be dropped: new names of files whose removal is dropped, and removals of files of
    /// which a new name is dropped. `open` opens a directory of a root.
    ///
    /// # Errors
    /// Those of `open`.
    pub(super) fn halves(
        &self,
        kept: &BTreeSet<VirtualPath>,
        open: impl Fn(&VirtualPath) -> Result<Option<OwnedFd>, CallError>,
    ) -> Result<BTreeSet<VirtualPath>, CallError> {
        let mut halves = BTreeSet::new();
        if self.moved.is_empty() {
            return Ok(halves);
        }
        let pairs = self.pairs(open)?;
        let is_paired = |moved: &Moved| {
            let key = moved.key.as_ref();
            key.is_some_and(|key| pairs.iter().any(|(_, keys)| keys.contains(key)))
        };
        let (paired, unpaired): (Vec<&Moved>, Vec<&Moved>) =
            self.moved.iter().partition(|moved| is_paired(moved));
        loop {
            let before = halves.len();
            let is_kept = |path: &VirtualPath| kept.contains(path) && !halves.contains(path);
            let is_applied = |moved: &&Moved| moved.path.as_ref().is_some_and(is_kept);
            let mut dropped: Vec<&VirtualPath> = Vec::new();
            for (removed, keys) in &pairs {
                let moved = paired.iter().copied();
                let moved = moved.filter(|moved| moved.key.is_some_and(|key| keys.contains(&key)));
                let moved: Vec<&Moved> = moved.collect();
                if moved.is_empty() {
                    // It may be the old name of a file that others changed meanwhile.
                    if !is_kept(removed) {
                        let new = unpaired.iter().filter(|moved| moved.is_new);
                        dropped.extend(new.filter_map(|moved| moved.path.as_ref()));
                    }
                    continue;
                }
                if is_kept(removed) && moved.iter().all(is_applied) {
                    continue;
                }
                dropped.push(removed);
                dropped.extend(moved.iter().filter_map(|moved| moved.path.as_ref()));
            }
            if !unpaired.iter().all(is_applied) {
                dropped.extend(self.removed.iter().map(|removed| &removed.path));
            }
            dropped.retain(|path| is_kept(path));
            halves.extend(dropped.into_iter().cloned());
            if halves.len() == before {
                return Ok(halves);
            }
        }
    }

    /// Each removed path with the keys of what was there.
    fn pairs(
        &self,
        open: impl Fn(&VirtualPath) -> Result<Option<OwnedFd>, CallError>,
    ) -> Result<Vec<(&VirtualPath, BTreeSet<Key>)>, CallError> {
        let mut budget = MAX_ENTRIES;
        let mut pairs = Vec::new();
        for removed in &self.removed {
            let mut keys = BTreeSet::new();
            if !removed.is_directory {
                keys.insert(removed.key);
            } else if let Some(directory) = open(&removed.path)? {
                let mut note = |_: BorrowedFd<'_>, _: &[u8], stat: &Stat| {
                    keys.insert(Key::of(stat));
                    Ok(())
                };
                let listed = visit(directory.as_fd(), b".", (&mut budget, 0), &mut note);
                if listed.is_err() {
                    // Any file may have been in it.
                    keys = self.moved.iter().filter_map(|moved| moved.key).collect();
                }
            }
            pairs.push((&removed.path, keys));
        }
        Ok(pairs)
    }
}

/// Takes a regular file: its directory, name and metadata.
type Found<'f> = dyn FnMut(BorrowedFd<'_>, &[u8], &Stat) -> Result<(), Errno> + 'f;

/// Calls `found` for every regular file at and beneath `name`.
///
/// # Errors
/// If an entry cannot be read, or there are too many.
fn visit(
    directory: BorrowedFd<'_>,
    name: &[u8],
    (budget, depth): (&mut usize, usize),
    found: &mut Found<'_>,
) -> Result<(), Errno> {
    *budget = budget.checked_sub(1).ok_or(Errno::TOOBIG)?;
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind.is_file() {
        return found(directory, name, &stat);
    }
    if !kind.is_dir() {
        return Ok(());
    }
    if depth >= MAX_DEPTH {
        return Err(Errno::TOOBIG);
    }
    let inner = openat(directory, name, DIRECTORY, Mode::empty())?;
    for entry in Dir::read_from(&inner)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            visit(inner.as_fd(), name, (&mut *budget, depth + 1), found)?;
        }
    }
    Ok(())
}
