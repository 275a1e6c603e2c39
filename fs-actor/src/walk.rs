//! Walks a directory tree and visits entries that may be shown.
//!
//! Directories are opened by name in their open parent, without following links or entering mounts. The walk uses a
//! bounded number of descriptors and one buffer of names per level. Temporary files of writers are skipped.

mod gitignore;
#[cfg(test)]
mod tests;

use std::mem::MaybeUninit;

use bailiwick::tool::Interrupt;
use bailiwick::{CallError, VirtualPath};

use crate::read_view::ReadView;
use crate::replace::is_temporary;
use crate::resolve::{self, AtPath as _, DirStack, Kind, Meta, OpenDir, OpenFile};
use crate::sys::{AtFlags, Errno, FileType, RawDir, statat};

pub(crate) use gitignore::IgnoreRules;

/// Maximum depth.
pub(crate) const MAX_DEPTH: usize = 256;
/// Number of entries between checkpoints.
const CHECKPOINT_INTERVAL: u64 = 256;
/// Size of the directory buffer, for about a thousand names.
const BUFFER_SIZE: usize = 32 * 1024;

/// An entry beneath the directory of a walk, which the worker may read.
#[derive(Debug)]
pub struct WalkEntry<'w> {
    /// Its path; if `raw` is set, an approximation that does not open it.
    pub(crate) path: VirtualPath,
    /// Its name, if it is not a valid path: not UTF-8, or with control characters.
    pub(crate) raw: Option<&'w [u8]>,
    /// Its kind; links are never followed.
    pub(crate) kind: Kind,
    /// 1 for entries of the top directory.
    pub(crate) depth: usize,
    /// The directory that contains it.
    pub(crate) holder: &'w OpenDir,
    name: &'w [u8],
}

impl WalkEntry<'_> {
    /// Returns its virtual path. The path of an entry whose name is not UTF-8 is an approximation.
    #[must_use]
    pub fn path(&self) -> &VirtualPath {
        &self.path
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

    /// Opens the regular file.
    ///
    /// # Errors
    /// `NOT_REGULAR` for another kind, `NOT_FOUND` if it no longer exists or is a link, and as
    /// [`resolve::check_hard_links`].
    pub(crate) fn open(&self, view: &dyn ReadView) -> Result<OpenFile, CallError> {
        let name = self.path.name().filter(|_| self.raw.is_none());
        let name = name.ok_or_else(|| CallError::not_found(&self.path))?;
        let opened = self.holder.read(name).at(&self.path)?;
        resolve::check_hard_links(view, &self.path, &opened.meta)?;
        Ok(opened)
    }

    /// Its metadata, if it still exists.
    pub(crate) fn meta(&self) -> Option<Meta> {
        let stat = statat(self.holder.as_fd(), self.name, AtFlags::SYMLINK_NOFOLLOW);
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

struct Level {
    path: VirtualPath,
    /// Names that were read and not yet visited, in reverse order.
    names: Vec<(Vec<u8>, FileType)>,
    read: bool,
}

impl Level {
    fn new(path: VirtualPath) -> Self {
        Self {
            path,
            names: Vec::new(),
            read: false,
        }
    }

    /// Reads the next buffer of names and sorts it, so that directories of one buffer are in order.
    fn refill(&mut self, dir: &OpenDir, buffer: &mut [MaybeUninit<u8>]) -> Result<(), Errno> {
        let mut entries = RawDir::new(dir.as_fd(), buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let is_own_temporary = std::str::from_utf8(name).is_ok_and(is_temporary);
            if !is_own_temporary && !matches!(name, b"." | b"..") {
                self.names.push((name.to_owned(), entry.file_type()));
            }
            if entries.is_buffer_empty() {
                self.names
                    .sort_unstable_by(|(one, _), (other, _)| other.cmp(one));
                return Ok(());
            }
        }
        self.read = true;
        Ok(())
    }
}

fn kind(dir: &OpenDir, name: &[u8], listed: FileType) -> Option<Kind> {
    if listed != FileType::Unknown {
        return Some(listed.into());
    }
    let stat = statat(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode).into())
}

/// Visits everything beneath `top`, whose virtual path is `at`; directories come before their contents.
///
/// # Errors
/// Errors of `visit`, `CANCELLED` or `DEADLINE`, and system errors at `top`.
pub(crate) fn walk(
    view: &dyn ReadView,
    top: OpenDir,
    at: &VirtualPath,
    mut ignore_rules: Option<IgnoreRules>,
    visit: &mut dyn FnMut(&WalkEntry<'_>) -> Result<WalkControl, Interrupt>,
) -> Result<WalkSkipped, Interrupt> {
    let mut skipped = WalkSkipped::default();
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER_SIZE];
    let mut visited = 0_u64;
    if let Some(ignore_rules) = &mut ignore_rules {
        ignore_rules.enter(view, &top, at);
    }
    let mut stack = DirStack::new(top);
    let mut levels = vec![Level::new(at.clone())];
    while let Some(level) = levels.last_mut() {
        let Ok(dir) = stack.current() else {
            // The directory was removed or moved.
            skipped.directories += 1;
            ascend(&mut stack, &mut levels, &mut ignore_rules);
            continue;
        };
        let Some((name, listed)) = level.names.pop() else {
            if !level.read && level.refill(dir, &mut buffer).is_ok() {
                view.checkpoint()?;
                continue;
            }
            skipped.directories += u64::from(!level.read);
            ascend(&mut stack, &mut levels, &mut ignore_rules);
            continue;
        };
        visited += 1;
        if visited.is_multiple_of(CHECKPOINT_INTERVAL) {
            view.checkpoint()?;
        }
        let depth = levels.len();
        let Some(level) = levels.last() else { break };
        let Some(found) = inspect(view, (dir, &level.path), &name, listed, depth) else {
            continue;
        };
        if ignore_rules
            .as_ref()
            .is_some_and(|ignore_rules| ignore_rules.ignores(&found))
        {
            continue;
        }
        match visit(&found)? {
            WalkControl::Stop => break,
            WalkControl::Skip => continue,
            WalkControl::Enter if found.kind != Kind::Directory || found.raw.is_some() => continue,
            WalkControl::Enter => {}
        }
        let path = found.path;
        match descend(&mut stack, &path, depth) {
            Ok(()) => {
                if let (Some(ignore_rules), Ok(dir)) = (&mut ignore_rules, stack.current()) {
                    ignore_rules.enter(view, dir, &path);
                }
                levels.push(Level::new(path));
            }
            // The entry was removed or replaced.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(_) => skipped.directories += 1,
        }
    }
    Ok(skipped)
}

fn descend(stack: &mut DirStack, path: &VirtualPath, depth: usize) -> Result<(), Errno> {
    // Deeper paths would be too long.
    if depth.max(path.depth()) >= MAX_DEPTH {
        return Err(Errno::NAMETOOLONG);
    }
    stack.enter(path.name().unwrap_or_default())
}

fn ascend(stack: &mut DirStack, levels: &mut Vec<Level>, ignore_rules: &mut Option<IgnoreRules>) {
    stack.pop();
    levels.pop();
    if let Some(ignore_rules) = ignore_rules {
        ignore_rules.pop();
    }
}

/// The entry `name`, if it may be shown.
///
/// An invalid name is judged with U+FFFD for invalid characters. It is listed but cannot be opened or entered.
fn inspect<'w>(
    view: &dyn ReadView,
    (holder, at): (&'w OpenDir, &VirtualPath),
    name: &'w [u8],
    listed: FileType,
    depth: usize,
) -> Option<WalkEntry<'w>> {
    let plain = std::str::from_utf8(name)
        .ok()
        .and_then(|name| at.join(name).ok());
    let raw = plain.is_none().then_some(name);
    let path = match plain {
        Some(path) => path,
        None => at.join(&lossy_name(name)).ok()?,
    };
    if !view.shows(&path) {
        return None;
    }
    let kind = kind(holder, name, listed)?;
    Some(WalkEntry {
        path,
        raw,
        kind,
        depth,
        holder,
        name,
    })
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
