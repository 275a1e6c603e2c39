//! Which new names of files belong to which deleted names, so that both or neither are applied.
//!
//! A file that is moved in an overlay is a deletion and a copy of the file with its length and its time of modification. If
//! the command has also changed the file, its old name is not known; if such a file is dropped, no deletion is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use bailiwick::{CallError, Code, VirtualPath};
use rustix::fs::{AtFlags, Dir, FileType, Mode, Stat, openat, statat};
use rustix::io::Errno;

use super::copies::Origins;
use super::{DIRECTORY, FILE, MAX_DEPTH};

/// Maximum number of entries that are read to find moved files, in all.
const MAX_ENTRIES: usize = 100_000;

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

/// A removed path with the keys of what was there; `None` if any file may have been in it.
type Pair<'m> = (&'m VirtualPath, Option<BTreeSet<Key>>);

/// What can be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Node<'m> {
    Path(&'m VirtualPath),
    /// All names of the files with this key.
    Key(Key),
    /// All directories with too many files to read, and so all names of files that may have been in them.
    Unread,
    /// All new names of files whose old name is not known.
    New,
    /// All removed names.
    Removed,
}

/// What is dropped because of what.
#[derive(Debug, Default)]
struct Effects<'m>(BTreeMap<Node<'m>, Vec<Node<'m>>>);

impl<'m> Effects<'m> {
    fn add(&mut self, cause: Node<'m>, effect: Node<'m>) {
        self.0.entry(cause).or_default().push(effect);
    }

    fn tie(&mut self, one: Node<'m>, other: Node<'m>) {
        self.add(one, other);
        self.add(other, one);
    }

    /// `causes` and all that is dropped because of them.
    fn of(&self, mut causes: Vec<Node<'m>>) -> BTreeSet<Node<'m>> {
        let mut dropped = BTreeSet::new();
        while let Some(node) = causes.pop() {
            if dropped.insert(node) {
                causes.extend(self.0.get(&node).into_iter().flatten());
            }
        }
        dropped
    }
}

/// The files that a command moved, and those that it removed.
#[derive(Debug)]
pub(super) struct Moves {
    /// When the command started, since 1970.
    began: Duration,
    pub(super) origins: Origins,
    moved: Vec<Moved>,
    removed: Vec<Removed>,
}

impl Moves {
    pub(super) fn new(began: Duration, origins: Origins) -> Self {
        Self {
            began,
            origins,
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
        let is_copy = self.origins.is_copy(file);
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
            if self.origins.is_copy(&file) {
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
        if self.moved.is_empty() {
            return Ok(BTreeSet::new());
        }
        let pairs = self.pairs(open)?;
        let (effects, mut dropped) = self.effects(&pairs);
        let missing = |node: &Node<'_>| matches!(node, Node::Path(path) if !kept.contains(*path));
        dropped.extend(effects.0.keys().copied().filter(missing));
        let all = effects.of(dropped).into_iter();
        let paths = all.filter_map(|node| match node {
            Node::Path(path) if kept.contains(path) => Some(path.clone()),
            Node::Path(_) | Node::Key(_) | Node::Unread | Node::New | Node::Removed => None,
        });
        Ok(paths.collect())
    }

    /// What is dropped because of what, and what is dropped in any case.
    fn effects<'m>(&'m self, pairs: &[Pair<'m>]) -> (Effects<'m>, Vec<Node<'m>>) {
        let new_keys: BTreeSet<Key> = self.moved.iter().filter_map(|moved| moved.key).collect();
        let is_read = pairs.iter().all(|(_, keys)| keys.is_some());
        let old_keys = pairs.iter().filter_map(|(_, keys)| keys.as_ref()).flatten();
        let old_keys: BTreeSet<Key> = old_keys.copied().collect();
        let mut effects = Effects::default();
        let mut dropped = Vec::new();
        for key in new_keys.iter().filter(|_| !is_read) {
            effects.tie(Node::Key(*key), Node::Unread);
        }
        for moved in &self.moved {
            let key = moved.key.filter(|key| !is_read || old_keys.contains(key));
            let Some(path) = moved.path.as_ref().map(Node::Path) else {
                dropped.push(key.map_or(Node::Removed, Node::Key));
                continue;
            };
            match key.map(Node::Key) {
                Some(key) => effects.tie(path, key),
                None => {
                    effects.add(path, Node::Removed);
                    if moved.is_new {
                        effects.add(Node::New, path);
                    }
                }
            }
        }
        for (removed, keys) in pairs {
            let path = Node::Path(removed);
            effects.add(Node::Removed, path);
            let Some(keys) = keys else {
                effects.tie(path, Node::Unread);
                effects.add(Node::Unread, Node::New);
                continue;
            };
            if keys.is_disjoint(&new_keys) {
                // It may be the old name of a file that others changed meanwhile.
                effects.add(path, Node::New);
            }
            for key in keys.intersection(&new_keys).copied() {
                effects.tie(path, Node::Key(key));
            }
        }
        (effects, dropped)
    }

    /// All removed paths.
    fn pairs(
        &self,
        open: impl Fn(&VirtualPath) -> Result<Option<OwnedFd>, CallError>,
    ) -> Result<Vec<Pair<'_>>, CallError> {
        let mut budget = MAX_ENTRIES;
        let mut pairs = Vec::new();
        for removed in &self.removed {
            let mut keys = BTreeSet::new();
            let mut note = |_: BorrowedFd<'_>, _: &[u8], stat: &Stat| {
                keys.insert(Key::of(stat));
                Ok(())
            };
            let opened = removed.is_directory.then(|| open(&removed.path));
            let is_read = match opened {
                None => {
                    keys.insert(removed.key);
                    true
                }
                Some(Ok(None)) => true,
                Some(Ok(Some(directory))) => {
                    visit(directory.as_fd(), b".", (&mut budget, 0), &mut note).is_ok()
                }
                Some(Err(error)) if error.code() == Code::Io => false,
                Some(Err(error)) => return Err(error),
            };
            pairs.push((&removed.path, is_read.then_some(keys)));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Files that were moved one place further, such as from `/r/0` to `/r/1`.
    fn shifted(count: i64) -> (Moves, Vec<VirtualPath>) {
        let path = |at: i64| VirtualPath::parse(&format!("/r/{at}"), None).unwrap();
        let began = Duration::from_secs(9);
        let key = |at: i64| Key(began, at);
        let mut moves = Moves::new(began, Origins::default());
        for at in 0..count {
            moves.removed.push(Removed {
                path: path(at),
                key: key(at),
                is_directory: false,
            });
            moves.moved.push(Moved {
                path: Some(path(at + 1)),
                key: Some(key(at)),
                is_new: at + 1 == count,
            });
        }
        (moves, (0..=count).map(path).collect())
    }

    #[test]
    fn files_that_took_the_places_of_each_other_are_dropped_together() {
        let (moves, paths) = shifted(2_000);
        let halves = |kept: &BTreeSet<VirtualPath>| moves.halves(kept, |_| Ok(None)).unwrap();
        let all: BTreeSet<VirtualPath> = paths.iter().cloned().collect();
        assert_eq!(halves(&all), BTreeSet::new());
        for missing in [0, 1_000, 2_000] {
            let mut kept = all.clone();
            kept.remove(&paths[missing]);
            assert_eq!(halves(&kept), kept);
        }
    }
}
