//! Lists the changes that a command left in its overlays.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use bailiwick::policy::Verdict;
use bailiwick::tool::ReadPermit;
use bailiwick::{CallError, Code, VirtualPath};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::copies::Origins;
use super::directories::identity;
use super::moves::Moves;
use super::{
    ChangeKind, DIRECTORY, Directories, DroppedChange, FILE, Identity, KeptChange, KeptChanges,
    MAX_DEPTH, bytes_of,
};
use crate::clock::changed_at;

/// Maximum number of changes of a command.
const MAX_CHANGES: usize = 5_000;

/// Maximum size of the names of extended attributes of a file, and of a value; that of Linux.
const MAX_ATTRIBUTE_BYTES: usize = 64 << 10;
/// The bits of a mode that are applied.
const PERMISSIONS_APPLIED: u32 = 0o777;
/// The sticky bit, which a command can set, too.
const STICKY: u32 = 0o1000;
/// How much of a file is compared at a time.
const CHUNK: usize = 64 << 10;
/// Attribute of a directory that replaces the one of the root.
const OPAQUE: &str = "user.overlay.opaque";

/// Why changes are dropped.
const DENIED: &str = "you may not change it";
const MEANWHILE: &str = "it was changed by somebody else while the command ran";
const KIND: &str = "it replaces an entry of another kind";
const MOVED: &str = "it was moved or linked while somebody else changed its directory";
const HALF: &str = "it was moved, or may have been, and its other name cannot be applied";
const PERMISSIONS: &str = "changed permissions of a directory, and special bits, are not applied";
const LINKED: &str =
    "its permissions are not applied, since it has other hard links, which would change, too";
const ATTRIBUTES: &str = "changed extended attributes and access lists are not applied";
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
        moves: Moves::new(directories.began(), Origins::default()),
    };
    collector.reduce_copies(&directory, overlays)?;
    for (number, (path, shown)) in overlays.iter().enumerate() {
        let stored = format!("{number}/upper");
        let is_same = collector.enter(path, *shown)?;
        let upper = match open_directory(directory.as_fd(), &stored) {
            Err(Errno::ACCESS) => {
                collector.drop_unreadable(directory.as_fd(), &stored, path);
                continue;
            }
            opened => opened.map_err(|error| unreadable(path, error))?,
        };
        collector.drop_mode_of_top(path, &upper, is_same)?;
        if !collector.add_entries(upper.as_fd(), path, &stored, (0, is_same))? {
            let dropped = DroppedChange {
                path: path.to_string(),
                reason: TOO_MANY,
            };
            return Ok((None, vec![dropped]));
        }
    }
    collector.drop_halves_of_moves()?;
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
        owner: permit.owner(),
        since: Instant::now(),
        changes,
        began: directories.began(),
        bytes: bytes_of(&directory),
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

/// An entry in the upper directory of an overlay.
struct Entry<'e> {
    path: &'e VirtualPath,
    /// Its path in the directory of all changes.
    stored: &'e str,
    stat: Stat,
    /// The entry of the root at the same path.
    before: Option<Stat>,
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
    moves: Moves,
}

impl Collector<'_> {
    /// Reduces the overlays that are copies to what the command changed.
    fn reduce_copies(
        &mut self,
        directory: &OwnedFd,
        overlays: &[(VirtualPath, Identity)],
    ) -> Result<(), CallError> {
        let mut origins = Origins::default();
        for (number, (path, _)) in overlays.iter().enumerate() {
            let changes =
                rustix::fs::openat(directory, number.to_string(), DIRECTORY, Mode::empty())
                    .map_err(|error| unreadable(path, error))?;
            let origin = self.open(path, DIRECTORY)?;
            let during = (self.began, self.permit);
            origins.reduce(path, &changes, origin.as_ref(), during)?;
        }
        self.moves.origins = origins;
        Ok(())
    }

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

    /// Drops a change of the permissions of the directory that an overlay shows.
    fn drop_mode_of_top(
        &mut self,
        path: &VirtualPath,
        upper: &OwnedFd,
        is_same: bool,
    ) -> Result<(), CallError> {
        let stat = rustix::fs::fstat(upper).map_err(|error| unreadable(path, error))?;
        let above = self.above.last().filter(|_| is_same);
        if above.is_some_and(|(_, before)| (stat.st_mode ^ before.st_mode) & 0o777 != 0) {
            self.drop_change(path, PERMISSIONS);
        }
        Ok(())
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
                self.moves.note_dropped(upper, name.to_bytes());
                self.drop_change(path, NOT_TEXT);
                continue;
            };
            let stored = format!("{stored}/{name}");
            if !is_same {
                self.moves.note_dropped(upper, entry.file_name().to_bytes());
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
        let before = match self.before(path) {
            // The command could change the permissions of the directory.
            Err(error) if error.code() == Code::Io => {
                self.drop_unreadable(upper, name, path);
                return Ok(true);
            }
            before => before?,
        };
        let entry = Entry {
            path,
            stored,
            stat,
            before,
        };
        match (kind(&stat), entry.before.as_ref().map(kind)) {
            (FileType::RegularFile, _) if stat.st_mode & 0o400 == 0 => {
                self.drop_unreadable(upper, name, path);
            }
            (FileType::RegularFile, None | Some(FileType::RegularFile)) => {
                self.add_file(upper, name, &entry)?;
            }
            (FileType::Directory, None | Some(FileType::Directory)) => {
                return self.add_directory(upper, name, &entry, depth);
            }
            (FileType::CharacterDevice, old) if stat.st_rdev == 0 => {
                if let Some(old) = old {
                    let change = self.change(&entry, ChangeKind::Deleted, old.is_dir());
                    self.add_deletion(change, entry.before.as_ref());
                }
            }
            (FileType::Symlink, Some(FileType::Symlink)) => {
                if !self.is_same_link(upper, name, path)? {
                    self.drop_change(path, SPECIAL);
                }
            }
            (FileType::RegularFile | FileType::Directory, Some(_)) => {
                self.moves.note_dropped(upper, name.as_bytes());
                self.drop_change(path, KIND);
            }
            _ => self.drop_change(path, SPECIAL),
        }
        Ok(true)
    }

    /// Adds a file that the command created, or what it changed of one.
    fn add_file(
        &mut self,
        upper: BorrowedFd<'_>,
        name: &str,
        entry: &Entry<'_>,
    ) -> Result<(), CallError> {
        let path = entry.path;
        let file = match rustix::fs::openat(upper, name, FILE, Mode::empty()) {
            Err(Errno::ACCESS) => {
                self.drop_unreadable(upper, name, path);
                return Ok(());
            }
            opened => opened.map_err(|error| unreadable(path, error))?,
        };
        self.moves
            .note_file(path, (&file, &entry.stat), entry.before.as_ref());
        let Some(before) = &entry.before else {
            if self.moves.origins.is_copy(&file) && self.is_directory_changed(path) {
                self.drop_change(path, MOVED);
            } else if self.add(self.change(entry, ChangeKind::Created, false), None) {
                self.drop_created_metadata(entry, &file, 0);
            }
            return Ok(());
        };
        if changed_at(before) > self.began {
            self.drop_change(path, MEANWHILE);
            return Ok(());
        }
        // A file that the command could not read either counts as changed.
        let old = self.open(path, FILE).ok().flatten();
        let is_same = match &old {
            Some(old) if before.st_size == entry.stat.st_size => {
                is_equal(self.permit, path, old, &file)?
            }
            _ => false,
        };
        let changed = entry.stat.st_mode ^ before.st_mode;
        let is_mode_changed = changed & PERMISSIONS_APPLIED != 0;
        let is_added = if !is_same {
            let mut change = self.change(entry, ChangeKind::Changed, false);
            change.mode = change.mode.filter(|_| is_mode_changed);
            self.add(change, Some(before))
        } else if is_mode_changed && before.st_nlink > 1 {
            self.drop_change(path, LINKED);
            true
        } else if is_mode_changed && before.st_mode & !PERMISSIONS_APPLIED & 0o7777 != 0 {
            self.drop_change(path, PERMISSIONS);
            true
        } else if is_mode_changed {
            let change = self.change(entry, ChangeKind::Permissions, false);
            self.add(change, Some(before))
        } else {
            true
        };
        if is_added {
            self.drop_metadata(entry, changed & STICKY, old.as_ref(), &file);
        }
        Ok(())
    }

    fn add_directory(
        &mut self,
        upper: BorrowedFd<'_>,
        name: &str,
        entry: &Entry<'_>,
        depth: usize,
    ) -> Result<bool, CallError> {
        let Entry { path, stored, .. } = *entry;
        let inner = match open_directory(upper, name) {
            Err(Errno::ACCESS) => {
                self.drop_unreadable(upper, name, path);
                return Ok(true);
            }
            opened => opened.map_err(|error| unreadable(path, error))?,
        };
        let Some(now) = entry.before else {
            let was_deleted = self.moves.origins.is_copy_of(&inner, path);
            if was_deleted {
                self.drop_change(path, MEANWHILE);
            } else {
                let change = self.change(entry, ChangeKind::DirectoryCreated, true);
                if self.add(change, None) {
                    self.drop_created_metadata(entry, &inner, 0o700);
                }
            }
            return self.add_entries(inner.as_fd(), path, stored, (depth + 1, !was_deleted));
        };
        let is_same = self.is_same(path, &now);
        if is_same {
            let old = self.open(path, DIRECTORY).ok().flatten();
            let changed = (entry.stat.st_mode ^ now.st_mode) & (PERMISSIONS_APPLIED | STICKY);
            self.drop_metadata(entry, changed, old.as_ref(), &inner);
        }
        self.above.push((path.clone(), now));
        let listed =
            (!is_same || !is_opaque(inner.as_fd()) || self.add_removed(inner.as_fd(), path)?)
                && self.add_entries(inner.as_fd(), path, stored, (depth + 1, is_same))?;
        self.above.pop();
        Ok(listed)
    }

    /// Drops the special bits and attributes of a new entry, and permissions that lack one of the bits `least`.
    fn drop_created_metadata(&mut self, entry: &Entry<'_>, new: &OwnedFd, least: u32) {
        let mode = entry.stat.st_mode & 0o7777;
        if mode & !PERMISSIONS_APPLIED != 0 || mode & least != least {
            self.drop_change(entry.path, PERMISSIONS);
        }
        if !attributes(new).is_empty() {
            self.drop_change(entry.path, ATTRIBUTES);
        }
    }

    /// Drops the `changed` bits of the mode that are not applied, and changed attributes.
    fn drop_metadata(
        &mut self,
        entry: &Entry<'_>,
        changed: u32,
        old: Option<&OwnedFd>,
        new: &OwnedFd,
    ) {
        if changed != 0 {
            self.drop_change(entry.path, PERMISSIONS);
        }
        if old.is_some_and(|old| attributes(old) != attributes(new)) {
            self.drop_change(entry.path, ATTRIBUTES);
        }
    }

    /// Whether others changed the directory of `path`, which the command saw, while the command ran.
    fn is_directory_changed(&self, path: &VirtualPath) -> bool {
        let above = self.above.last();
        above.is_some_and(|(above, stat)| {
            path.parent().as_ref() == Some(above) && changed_at(stat) > self.began
        })
    }

    /// Whether a symbolic link leads where that of the root leads.
    fn is_same_link(
        &self,
        upper: BorrowedFd<'_>,
        name: &str,
        path: &VirtualPath,
    ) -> Result<bool, CallError> {
        let read = |error| unreadable(path, error);
        let new = rustix::fs::readlinkat(upper, name, Vec::new()).map_err(read)?;
        let old = self.open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
        Ok(old.is_some_and(|old| {
            rustix::fs::readlinkat(&old, "", Vec::new()).is_ok_and(|old| old == new)
        }))
    }

    fn change(&self, entry: &Entry<'_>, kind: ChangeKind, is_directory: bool) -> KeptChange {
        let mut directories = self.directories_above();
        // A deleted directory must still be that one, too.
        directories.extend(
            entry
                .before
                .as_ref()
                .filter(|_| is_directory)
                .map(|stat| (entry.path.clone(), identity(stat))),
        );
        let has_content = matches!(kind, ChangeKind::Created | ChangeKind::Changed);
        KeptChange {
            path: entry.path.clone(),
            kind,
            is_directory,
            bytes: if has_content {
                u64::try_from(entry.stat.st_size).unwrap_or(0)
            } else {
                0
            },
            mode: (kind != ChangeKind::Deleted).then_some(entry.stat.st_mode & PERMISSIONS_APPLIED),
            stored: entry.stored.to_owned(),
            directories,
        }
    }

    /// Adds a change, unless it is denied or the path has changed meanwhile. Returns whether it was added.
    fn add(&mut self, change: KeptChange, before: Option<&Stat>) -> bool {
        if before.is_some_and(|stat| changed_at(stat) > self.began) {
            self.drop_change(&change.path, MEANWHILE);
        } else if self.permit.judge_need(&change.need()) == Verdict::Deny {
            self.drop_change(&change.path, DENIED);
        } else {
            self.changes.push(change);
            return true;
        }
        false
    }

    /// Adds a deletion as [`Collector::add`].
    fn add_deletion(&mut self, change: KeptChange, before: Option<&Stat>) {
        if let Some(before) = before {
            self.moves.note_removed(&change.path, before);
        }
        self.add(change, before);
    }

    /// Drops deletions of files whose new names were dropped, and new names of files whose deletions were dropped.
    fn drop_halves_of_moves(&mut self) -> Result<(), CallError> {
        let kept: BTreeSet<VirtualPath> = self
            .changes
            .iter()
            .map(|change| change.path.clone())
            .collect();
        let halves = self
            .moves
            .halves(&kept, |path| self.open(path, DIRECTORY))?;
        self.changes.retain(|change| !halves.contains(&change.path));
        for path in &halves {
            self.drop_change(path, HALF);
        }
        Ok(())
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
        let lower = match self.open(path, DIRECTORY) {
            Ok(None) => return Ok(true),
            Ok(Some(lower)) => names(lower.as_fd()),
            Err(error) => Err(error),
        };
        let lower = match lower {
            Err(error) if error.code() == Code::Io => {
                self.drop_change(path, UNREADABLE);
                return Ok(true);
            }
            lower => lower?,
        };
        let kept = names(upper)?;
        for name in lower {
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
                mode: None,
                stored: String::new(),
            };
            self.add_deletion(change, Some(&before));
        }
        Ok(true)
    }

    /// Drops the entry `name` of a directory of the overlay, with all that it contains.
    fn drop_unreadable(&mut self, upper: BorrowedFd<'_>, name: &str, path: &VirtualPath) {
        self.moves.note_dropped(upper, name.as_bytes());
        self.drop_change(path, UNREADABLE);
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

/// Opens a directory whose entries this process can use.
fn open_directory(at: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let directory = rustix::fs::openat(at, name, DIRECTORY, Mode::empty())?;
    // This needs the search permission, too.
    Dir::read_from(&directory)?;
    Ok(directory)
}

/// Whether two files of the same length have the same content.
pub(super) fn is_equal(
    permit: &ReadPermit,
    path: &VirtualPath,
    old: &OwnedFd,
    new: &OwnedFd,
) -> Result<bool, CallError> {
    let read = |error| unreadable(path, error);
    let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut at = 0;
    loop {
        permit.checkpoint()?;
        let length = pread_full(new, &mut right, at).map_err(read)?;
        if pread_full(old, &mut left, at).map_err(read)? != length
            || left.get(..length) != right.get(..length)
        {
            return Ok(false);
        }
        if length < CHUNK {
            return Ok(true);
        }
        at += length as u64;
    }
}

/// The extended attributes and access lists that programs set.
pub(super) fn attributes(file: &OwnedFd) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; MAX_ATTRIBUTE_BYTES];
    let length = rustix::fs::flistxattr(file, &mut names).unwrap_or(0);
    let names = names
        .get(..length)
        .unwrap_or_default()
        .split(|byte| *byte == 0);
    let is_set = |name: &&[u8]| {
        name.starts_with(b"system.posix_acl_")
            || name.starts_with(b"user.") && !name.starts_with(b"user.overlay.")
    };
    let value = |name: &[u8]| {
        let mut value = vec![0; MAX_ATTRIBUTE_BYTES];
        let length = rustix::fs::fgetxattr(file, name, &mut value).unwrap_or(0);
        value.truncate(length);
        (name.to_vec(), value)
    };
    names.filter(is_set).map(value).collect()
}

/// Reads until the buffer is full or the file ends. Returns the number of bytes.
fn pread_full(file: &OwnedFd, buffer: &mut [u8], at: u64) -> rustix::io::Result<usize> {
    let mut length = 0;
    while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(file, rest, at + length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn is_opaque(directory: BorrowedFd<'_>) -> bool {
    let mut value = [0; 1];
    rustix::fs::fgetxattr(directory, OPAQUE, &mut value).is_ok_and(|_| value == *b"y")
}

pub(super) fn unreadable(path: &VirtualPath, error: Errno) -> CallError {
    let path = bailiwick::text::escape(path.as_str());
    CallError::new(Code::Io, format!("`{path}` cannot be read: {error}"))
}
