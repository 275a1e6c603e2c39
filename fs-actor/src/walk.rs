//! Walks a directory tree and visits entries that may be shown.
//!
//! Directories are opened by name in their open parent, without following links or entering mounts. The walk uses a
//! bounded number of descriptors and one buffer of names per level. Temporary files of writers are skipped.

mod gitignore;
#[cfg(test)]
mod tests;
mod unordered;

use std::cell::OnceCell;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

use bailiwick::tool::Interrupt;
use bailiwick::{CallError, VirtualPath};

use crate::read_view::ReadView;
use crate::replace::is_temporary;
use crate::resolve::{self, AtPath as _, DirStack, Kind, Meta, OpenDir, OpenFile};
use crate::sys::{AtFlags, Errno, FileType, RawDir, statat};

pub(crate) use gitignore::IgnoreRules;
pub(crate) use unordered::walk_unordered;

/// Maximum depth.
pub(crate) const MAX_DEPTH: usize = 256;
/// Number of entries between checkpoints.
const CHECKPOINT_INTERVAL: u64 = 256;
/// Size of the directory buffer, for about a thousand names.
const BUFFER_SIZE: usize = 32 * 1024;
/// Bytes of names after which those read so far are visited before more are read.
const MAX_NAMES: usize = 64 * 1024;

/// An entry beneath the directory of a walk, which the worker may read.
#[derive(Debug)]
pub struct WalkEntry<'w> {
    /// Its path, made on demand; if `raw` is set, an approximation that does not open it.
    path: OnceCell<VirtualPath>,
    /// Its name, if it is not a valid path: not UTF-8, or with control characters.
    pub(crate) raw: Option<&'w [u8]>,
    /// Its kind; links are never followed.
    pub(crate) kind: Kind,
    /// 1 for entries of the top directory.
    pub(crate) depth: usize,
    /// The directory that contains it, and the path of that directory.
    pub(crate) holder: &'w Arc<OpenDir>,
    pub(crate) parent: &'w VirtualPath,
    bytes: &'w [u8],
    name: &'w str,
}

impl WalkEntry<'_> {
    /// Returns its virtual path. The path of an entry whose name is not UTF-8 is an approximation.
    #[must_use]
    pub fn path(&self) -> &VirtualPath {
        self.path.get_or_init(|| {
            let path = self.parent.join(self.name);
            // The name was checked when it was found.
            path.unwrap_or_else(|_| self.parent.clone())
        })
    }

    /// Returns its kind. Links are not followed.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns its depth: 1 for the entries of the directory itself.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Its name, unless it is not valid in a path.
    pub(crate) fn name(&self) -> Option<&str> {
        self.raw.is_none().then_some(self.name)
    }

    /// Writes its path beneath `top` to `path`.
    pub(crate) fn beneath<'p>(&self, top: &VirtualPath, path: &'p mut String) -> &'p str {
        path.clear();
        path.push_str(self.parent.beneath(top).unwrap_or_default());
        if !path.is_empty() {
            path.push('/');
        }
        path.push_str(self.name);
        path
    }

    /// Opens the regular file.
    ///
    /// # Errors
    /// `NOT_REGULAR` for another kind, `NOT_FOUND` if it no longer exists or is a link, and as
    /// [`resolve::check_hard_links`].
    pub(crate) fn open(&self, view: &dyn ReadView) -> Result<OpenFile, CallError> {
        let name = self
            .name()
            .ok_or_else(|| CallError::not_found(self.path()))?;
        let opened = match self.kind {
            Kind::File => self.holder.read_listed(name),
            Kind::Directory | Kind::Link | Kind::Special => self.holder.read(name),
        };
        let opened = opened.at(self.path())?;
        resolve::check_hard_links(view, self.path(), &opened.meta)?;
        Ok(opened)
    }

    /// Its metadata, if it still exists.
    pub(crate) fn meta(&self) -> Option<Meta> {
        let stat = statat(self.holder.as_fd(), self.bytes, AtFlags::SYMLINK_NOFOLLOW);
        stat.ok().map(|stat| Meta::from_stat(&stat))
    }
}

/// How to continue a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkControl {
    /// Enter it, if it is a directory.
    Enter,
    /// Do not enter it.
    Skip,
    /// Stop the walk.
    Stop,
}

/// What was skipped; hidden entries are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalkSkipped {
    /// Directories that could not be opened, are on another file system or too deep.
    pub(crate) directories: u64,
}

impl WalkSkipped {
    /// A line about skipped directories, if any.
    pub(crate) fn text(self) -> String {
        match self.directories {
            0 => String::new(),
            1 => "[1 directory could not be entered]\n".to_owned(),
            count => format!("[{count} directories could not be entered]\n"),
        }
    }
}

/// One directory of the walk.
struct Level<'v> {
    path: VirtualPath,
    names: Names,
    /// Whether the whole directory was read.
    read: bool,
    shows: Box<dyn Fn(&str) -> bool + 'v>,
}

impl<'v> Level<'v> {
    fn new(view: &'v dyn ReadView, path: VirtualPath, mut names: Names) -> Self {
        names.clear();
        Self {
            shows: view.entries(&path),
            path,
            names,
            read: false,
        }
    }

    /// Reads the next names.
    fn refill(&mut self, dir: &OpenDir, buffer: &mut [MaybeUninit<u8>]) -> Result<(), Errno> {
        let mut entries = RawDir::new(dir.as_fd(), buffer);
        self.names.clear();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let is_own_temporary =
                name.first() == Some(&b'.') && std::str::from_utf8(name).is_ok_and(is_temporary);
            if !is_own_temporary && !matches!(name, b"." | b"..") {
                self.names.push(name, entry.file_type());
            }
            if entries.is_buffer_empty() && self.names.is_full() {
                return Ok(());
            }
        }
        self.read = true;
        Ok(())
    }

    /// Whether the directory may contain an entry `name`.
    fn may_contain(&self, name: &str) -> bool {
        !self.read || self.names.contains(name.as_bytes())
    }
}

/// Names that were read and not yet visited, in one buffer.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
    /// Where each name is in `bytes`, the next one to visit last, and the kind that the directory states.
    entries: Vec<(Range<usize>, FileType)>,
}

impl Names {
    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    fn push(&mut self, name: &[u8], kind: FileType) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        self.entries.push((start..self.bytes.len(), kind));
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= MAX_NAMES
    }

    fn sort(&mut self) {
        let name = |range: &Range<usize>| self.bytes.get(range.clone());
        self.entries
            .sort_unstable_by(|(one, _), (other, _)| name(other).cmp(&name(one)));
    }

    fn contains(&self, name: &[u8]) -> bool {
        let of = |range: &Range<usize>| self.bytes.get(range.clone());
        self.entries
            .iter()
            .any(|(range, _)| of(range) == Some(name))
    }

    fn pop(&mut self) -> Option<(Range<usize>, FileType)> {
        self.entries.pop()
    }

    fn get(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }
}

fn kind(dir: &OpenDir, name: &[u8], listed: FileType) -> Option<Kind> {
    if listed != FileType::Unknown {
        return Some(listed.into());
    }
    let stat = statat(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode).into())
}

/// Visits everything beneath `top`, whose virtual path is `at`; directories come before their contents, and the names
/// of small directories are in order.
///
/// # Errors
/// Errors of `visit`, `CANCELLED` or `DEADLINE`.
pub(crate) fn walk(
    view: &dyn ReadView,
    top: OpenDir,
    at: &VirtualPath,
    ignore_rules: Option<IgnoreRules>,
    visit: &mut dyn FnMut(&WalkEntry<'_>) -> Result<WalkControl, Interrupt>,
) -> Result<WalkSkipped, Interrupt> {
    let top = Subtree {
        dir: Arc::new(top),
        path: at.clone(),
        depth: 0,
        ignore_rules,
    };
    top.walk(view, None, &mut Buffers::default(), visit)
}

/// A directory whose contents are to be visited.
struct Subtree {
    dir: Arc<OpenDir>,
    path: VirtualPath,
    /// Its depth beneath the top of the walk.
    depth: usize,
    ignore_rules: Option<IgnoreRules>,
}

impl Subtree {
    /// Visits its contents. If there is a queue, some subtrees are left to it, and the order does not matter.
    fn walk(
        self,
        view: &dyn ReadView,
        queue: Option<&dyn SubtreeQueue>,
        buffers: &mut Buffers,
        visit: &mut dyn FnMut(&WalkEntry<'_>) -> Result<WalkControl, Interrupt>,
    ) -> Result<WalkSkipped, Interrupt> {
        let mut walk = Walk {
            view,
            queue,
            stack: DirStack::new(self.dir),
            levels: Vec::new(),
            depth: self.depth,
            ignore_rules: self.ignore_rules,
            buffers,
            path: String::new(),
            skipped: WalkSkipped::default(),
        };
        walk.begin(self.path);
        let mut visited = 0_u64;
        while let Some(level) = walk.levels.last_mut() {
            let Some((name, listed)) = level.names.pop() else {
                if level.read {
                    walk.ascend();
                } else if walk.refill() {
                    view.checkpoint()?;
                }
                continue;
            };
            visited += 1;
            if visited.is_multiple_of(CHECKPOINT_INTERVAL) {
                view.checkpoint()?;
            }
            match walk.visit(name, listed, visit)? {
                Some((WalkControl::Stop, _)) => break,
                Some((WalkControl::Enter, Some(path))) => {
                    walk.descend(path);
                    view.checkpoint()?;
                }
                Some(_) | None => {}
            }
        }
        Ok(walk.skipped)
    }
}

/// Takes subtrees that other threads visit.
trait SubtreeQueue {
    /// Whether the next subtree should be pushed instead of being walked.
    fn has_room(&self) -> bool;
    fn push(&self, subtree: Subtree);
}

/// Buffers of the walks of one thread.
struct Buffers {
    names: Vec<Names>,
    entries: Vec<MaybeUninit<u8>>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            entries: vec![MaybeUninit::uninit(); BUFFER_SIZE],
        }
    }
}

/// A walk in progress.
struct Walk<'w> {
    view: &'w dyn ReadView,
    queue: Option<&'w dyn SubtreeQueue>,
    stack: DirStack,
    levels: Vec<Level<'w>>,
    /// Depth of the first level beneath the top.
    depth: usize,
    ignore_rules: Option<IgnoreRules>,
    buffers: &'w mut Buffers,
    /// Path of the current entry, for ignore rules.
    path: String,
    skipped: WalkSkipped,
}

impl Walk<'_> {
    /// Adds the level of the current directory, whose path is `path`.
    fn begin(&mut self, path: VirtualPath) {
        let names = self.buffers.names.pop().unwrap_or_default();
        self.levels.push(Level::new(self.view, path, names));
        let filled = self.refill();
        if let Some(rules) = &mut self.ignore_rules {
            match (self.levels.last(), self.stack.current()) {
                (Some(level), Ok(dir)) if filled => {
                    rules.enter(self.view, dir, &level.path, |name| level.may_contain(name));
                }
                _ => rules.enter_unknown(),
            }
        }
    }

    /// Reads more names of the current directory. If that is not possible, ends its level, counts it and returns false.
    fn refill(&mut self) -> bool {
        let filled = match (self.levels.last_mut(), self.stack.current()) {
            (Some(level), Ok(dir)) => level.refill(dir, &mut self.buffers.entries).is_ok(),
            // The directory was removed or moved.
            _ => false,
        };
        if !filled && let Some(level) = self.levels.last_mut() {
            self.skipped.directories += 1;
            level.names.clear();
            level.read = true;
        }
        if self.queue.is_none()
            && let Some(level) = self.levels.last_mut()
        {
            level.names.sort();
        }
        filled
    }

    /// Visits one entry, if it may be shown and is not ignored. Returns how to continue, with its path if it is a
    /// directory that can be entered.
    fn visit(
        &mut self,
        name: Range<usize>,
        listed: FileType,
        visit: &mut dyn FnMut(&WalkEntry<'_>) -> Result<WalkControl, Interrupt>,
    ) -> Result<Option<(WalkControl, Option<VirtualPath>)>, Interrupt> {
        let depth = self.depth + self.levels.len();
        let Some(level) = self.levels.last_mut() else {
            return Ok(None);
        };
        let Ok(holder) = self.stack.current() else {
            // The directory was removed or moved.
            self.skipped.directories += 1;
            level.names.clear();
            level.read = true;
            return Ok(None);
        };
        let bytes = level.names.get(name);
        let plain = std::str::from_utf8(bytes)
            .ok()
            .filter(|name| level.path.accepts(name));
        // An invalid name is judged with U+FFFD for invalid characters. It is listed but cannot be opened or entered.
        let lossy;
        let name = match plain {
            Some(name) => name,
            None => {
                lossy = lossy_name(bytes);
                &*lossy
            }
        };
        if !(level.shows)(name) {
            return Ok(None);
        }
        let Some(kind) = kind(holder, bytes, listed) else {
            return Ok(None);
        };
        if let Some(rules) = &self.ignore_rules {
            self.path.clear();
            self.path
                .push_str(level.path.as_str().trim_end_matches('/'));
            self.path.push('/');
            self.path.push_str(name);
            if rules.ignores(name, &self.path, kind == Kind::Directory) {
                return Ok(None);
            }
        }
        let found = WalkEntry {
            path: OnceCell::new(),
            raw: plain.is_none().then_some(bytes),
            kind,
            depth,
            holder,
            parent: &level.path,
            bytes,
            name,
        };
        let control = visit(&found)?;
        let enters =
            control == WalkControl::Enter && kind == Kind::Directory && found.raw.is_none();
        Ok(Some((control, enters.then(|| found.path().clone()))))
    }

    fn descend(&mut self, path: VirtualPath) {
        let name = path.name().unwrap_or_default();
        let entered = if path.depth() >= MAX_DEPTH {
            // Deeper paths would be too long.
            Err(Errno::NAMETOOLONG)
        } else if let Some(queue) = self.queue.filter(|queue| queue.has_room()) {
            let dir = self.stack.current().and_then(|dir| dir.enter(name));
            dir.map(|dir| {
                queue.push(Subtree {
                    dir: Arc::new(dir),
                    path,
                    depth: self.depth + self.levels.len(),
                    ignore_rules: self.ignore_rules.clone(),
                });
            })
        } else {
            self.stack.enter(name).map(|()| self.begin(path))
        };
        match entered {
            Ok(()) => {}
            // The entry was removed or replaced.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(_) => self.skipped.directories += 1,
        }
    }

    fn ascend(&mut self) {
        self.stack.pop();
        if let Some(level) = self.levels.pop() {
            self.buffers.names.push(level.names);
        }
        if let Some(rules) = &mut self.ignore_rules {
            rules.pop();
        }
    }
}

fn lossy_name(name: &[u8]) -> String {
    let is_control = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    String::from_utf8_lossy(name).replace(is_control, "\u{fffd}")
}

/// Opens the directory at `path` for a walk, and returns its path without links.
pub(crate) fn start(
    view: &dyn ReadView,
    path: &VirtualPath,
) -> Result<(OpenDir, VirtualPath), Interrupt> {
    let dir = resolve::directory(view, path)?;
    Ok((dir, view.actual(path).clone()))
}
