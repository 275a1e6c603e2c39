//! An open directory in, everything beneath it that may be shown out, one entry at a time.
//!
//! It goes by handles: a child is opened by its name in its open parent, following no link and entering no
//! mount. It holds a few descriptors however deep it goes, and at most one buffer of names a level however large
//! the directories are. Files under construction are nobody's yet, so it passes over them.

mod ignored;
#[cfg(test)]
mod tests;

use std::mem::MaybeUninit;

use bailiwick::{Interrupt, VirtualPath};

use crate::lens::Lens;
use crate::replace::is_temporary;
use crate::resolve::{Descent, Kind, Meta, OpenDir};
use crate::sys::{AtFlags, Errno, FileType, RawDir, statat};

pub(crate) use ignored::Ignoring;

/// The deepest level that is entered.
pub(crate) const MAX_DEPTH: usize = 256;
/// How many entries pass between two looks at whether the call must stop.
const STRIDE: u64 = 256;
/// Room for about a thousand names.
const BUFFER: usize = 32 * 1024;

/// What the walk comes upon.
#[derive(Debug)]
pub(crate) struct Found<'w> {
    /// Its path; if `raw`, the one it was judged by, which does not open it.
    pub(crate) path: VirtualPath,
    /// Its name as it is, if no path can hold it: not UTF-8, or with control characters.
    pub(crate) raw: Option<&'w [u8]>,
    /// What it is; a link is never followed.
    pub(crate) kind: Kind,
    /// 1 for what lies directly in the directory that the walk began with.
    pub(crate) depth: usize,
    /// The open directory it lies in.
    pub(crate) holder: &'w OpenDir,
    name: &'w [u8],
}

impl Found<'_> {
    /// The facts about it, if it is still there.
    pub(crate) fn meta(&self) -> Option<Meta> {
        let stat = statat(self.holder.as_fd(), self.name, AtFlags::SYMLINK_NOFOLLOW);
        stat.ok().map(|stat| Meta::from_stat(&stat))
    }
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Onward {
    /// Into it, if it is a directory.
    Enter,
    /// Past it.
    Pass,
    /// No further.
    Stop,
}

/// What was left out, apart from what may not be shown, which is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// Directories that could not be opened, lie on another file system or too deep.
    pub(crate) directories: u64,
}

impl LeftOut {
    /// A line that says so, if something was left out.
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
    /// Names that were read and not yet visited, last first.
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

    /// Reads the next buffer of names; they are sorted, so that a directory that fits one comes in order.
    fn refill(&mut self, dir: &OpenDir, buffer: &mut [MaybeUninit<u8>]) -> Result<(), Errno> {
        let mut entries = RawDir::new(dir.as_fd(), buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let ours = std::str::from_utf8(name).is_ok_and(is_temporary);
            if !ours && !matches!(name, b"." | b"..") {
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

/// Visits what lies beneath `top`, which stands at `at`, directories before what they hold.
///
/// # Errors
/// What `visit` returns, `CANCELLED` or `DEADLINE`, and the system's error on `top` itself.
pub(crate) fn walk(
    lens: &dyn Lens,
    top: OpenDir,
    at: &VirtualPath,
    mut ignoring: Option<Ignoring>,
    visit: &mut dyn FnMut(&Found<'_>) -> Result<Onward, Interrupt>,
) -> Result<LeftOut, Interrupt> {
    let mut left_out = LeftOut::default();
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
    let mut seen = 0_u64;
    if let Some(ignoring) = &mut ignoring {
        ignoring.enter(lens, &top, at);
    }
    let mut way = Descent::new(top);
    let mut levels = vec![Level::new(at.clone())];
    while let Some(level) = levels.last_mut() {
        let Ok(here) = way.here() else {
            // It went, or was moved, while the walk was beneath it.
            left_out.directories += 1;
            ascend(&mut way, &mut levels, &mut ignoring);
            continue;
        };
        let Some((name, listed)) = level.names.pop() else {
            if !level.read && level.refill(here, &mut buffer).is_ok() {
                lens.checkpoint()?;
                continue;
            }
            left_out.directories += u64::from(!level.read);
            ascend(&mut way, &mut levels, &mut ignoring);
            continue;
        };
        seen += 1;
        if seen.is_multiple_of(STRIDE) {
            lens.checkpoint()?;
        }
        let depth = levels.len();
        let Some(level) = levels.last() else { break };
        let Some(found) = look(lens, (here, &level.path), &name, listed, depth) else {
            continue;
        };
        if ignoring
            .as_ref()
            .is_some_and(|ignoring| ignoring.ignores(&found))
        {
            continue;
        }
        match visit(&found)? {
            Onward::Stop => break,
            Onward::Pass => continue,
            Onward::Enter if found.kind != Kind::Directory || found.raw.is_some() => continue,
            Onward::Enter => {}
        }
        let path = found.path;
        match descend(&mut way, &path, depth) {
            Ok(()) => {
                if let (Some(ignoring), Ok(dir)) = (&mut ignoring, way.here()) {
                    ignoring.enter(lens, dir, &path);
                }
                levels.push(Level::new(path));
            }
            // It went, or became something else, between the two looks.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(_) => left_out.directories += 1,
        }
    }
    Ok(left_out)
}

fn descend(way: &mut Descent, path: &VirtualPath, depth: usize) -> Result<(), Errno> {
    // Beneath the deepest path there is nothing that a path could name.
    if depth.max(path.depth()) >= MAX_DEPTH {
        return Err(Errno::NAMETOOLONG);
    }
    way.enter(path.name().unwrap_or_default())
}

fn ascend(way: &mut Descent, levels: &mut Vec<Level>, ignoring: &mut Option<Ignoring>) {
    way.leave();
    levels.pop();
    if let Some(ignoring) = ignoring {
        ignoring.leave();
    }
}

/// What stands under `name`, if it may be shown.
///
/// A name that no path can hold is judged by what it looks like, with U+FFFD for what cannot stand there.
/// It is only ever listed: nothing can open or enter it.
fn look<'w>(
    lens: &dyn Lens,
    (holder, at): (&'w OpenDir, &VirtualPath),
    name: &'w [u8],
    listed: FileType,
    depth: usize,
) -> Option<Found<'w>> {
    let plain = std::str::from_utf8(name)
        .ok()
        .and_then(|name| at.join(name).ok());
    let raw = plain.is_none().then_some(name);
    let path = match plain {
        Some(path) => path,
        None => at.join(&likeness(name)).ok()?,
    };
    if !lens.shows(&path) {
        return None;
    }
    let kind = kind(holder, name, listed)?;
    Some(Found {
        path,
        raw,
        kind,
        depth,
        holder,
        name,
    })
}

fn likeness(name: &[u8]) -> String {
    let odd = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    String::from_utf8_lossy(name).replace(odd, "\u{fffd}")
}

/// Opens the directory at `path` for a walk, with the path it really has.
pub(crate) fn start(
    lens: &dyn Lens,
    path: &VirtualPath,
) -> Result<(OpenDir, VirtualPath), Interrupt> {
    let dir = crate::resolve::directory(lens, path)?;
    Ok((dir, lens.actual(path).clone()))
}
