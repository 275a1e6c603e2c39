//! Removes temporary files that crashed writers left behind.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use super::lock;
use crate::resolve::{DirStack, OpenDir};
use crate::sys::{self, AtFlags, Dir, Errno, FileType, Mode, OFlags};

const PREFIX: &str = ".bailiwick-";
const SUFFIX: &str = ".tmp";
/// Maximum number of names examined per directory, so that the first write in a large one is fast.
const MAX_NAMES: usize = 10_000;
/// Maximum number of directories remembered as swept.
const MAX_SWEPT: usize = 4_096;

/// An unguessable name.
pub(crate) fn temporary_name() -> Result<String, Errno> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|_| Errno::IO)?;
    Ok(format!(
        "{PREFIX}{:032x}{SUFFIX}",
        u128::from_be_bytes(random)
    ))
}

/// Whether [`temporary_name`] makes such names; tools reject them.
pub(crate) fn is_temporary(name: &str) -> bool {
    let random = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_suffix(SUFFIX));
    random.is_some_and(|random| random.len() == 32 && random.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Sweeps each directory before the first write in it.
#[derive(Debug, Default)]
pub(crate) struct Sweeper {
    swept: Mutex<HashSet<(u64, u64)>>,
}

impl Sweeper {
    /// Sweeps `dir` unless it was swept before.
    pub(crate) fn sweep_once(&self, dir: BorrowedFd<'_>) {
        let Ok(stat) = sys::fstat(dir) else { return };
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.len() >= MAX_SWEPT {
            swept.clear();
        }
        let first = swept.insert((stat.st_dev, stat.st_ino));
        drop(swept);
        if first {
            // A failure is harmless and does not stop the write.
            let _ = sweep(dir);
        }
    }
}

/// Removes temporary files and unfinished copies in `dir` whose writers have ended. Returns how many.
///
/// A writer locks its file until it ends, so a file that can be locked is abandoned, whatever its age. Only the name is
/// removed; a file with another hard link keeps its content.
pub(crate) fn sweep(dir: BorrowedFd<'_>) -> Result<usize, Errno> {
    let mut removed = 0;
    for entry in Dir::read_from(dir)?.take(MAX_NAMES) {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if is_temporary(name) && remove_abandoned(dir, name).is_ok() {
            removed += 1;
        }
    }
    Ok(removed)
}

fn remove_abandoned(dir: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let found = sys::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = FileType::from_raw_mode(found.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::Directory) {
        return Err(Errno::INVAL);
    }
    let file = sys::openat(dir, name, flags, Mode::empty())?;
    let opened = sys::fstat(&file)?;
    if (opened.st_dev, opened.st_ino) != (found.st_dev, found.st_ino) {
        return Err(Errno::STALE);
    }
    if !lock::is_abandoned(file.as_fd()) {
        return Err(Errno::BUSY);
    }
    if kind == FileType::RegularFile {
        return sys::unlinkat(dir, name, AtFlags::empty());
    }
    empty(OpenDir::new(file, false), MAX_NAMES)?;
    sys::unlinkat(dir, name, AtFlags::REMOVEDIR)
}

/// Removes an unfinished copy, the directory `name`.
pub(crate) fn discard(dir: &OpenDir, name: &str) -> Result<(), Errno> {
    empty(dir.enter(name)?, usize::MAX)?;
    sys::unlinkat(dir.as_fd(), name, AtFlags::REMOVEDIR)
}

/// Removes up to `max_names` names beneath `top`.
pub(crate) fn empty(top: OpenDir, max_names: usize) -> Result<(), Errno> {
    let mut levels = vec![(String::new(), names(&top)?)];
    let mut stack = DirStack::new(top);
    let mut removed = 0;
    while let Some((_, left)) = levels.last_mut() {
        if removed == max_names {
            return Err(Errno::BUSY);
        }
        let Some(name) = left.pop() else {
            let done = levels.pop();
            stack.pop();
            if let Some((name, _)) = done.filter(|_| !levels.is_empty()) {
                sys::unlinkat(stack.current()?.as_fd(), name, AtFlags::REMOVEDIR)?;
                removed += 1;
            }
            continue;
        };
        match sys::unlinkat(stack.current()?.as_fd(), name.as_str(), AtFlags::empty()) {
            // The error code depends on the system.
            Err(Errno::ISDIR | Errno::PERM) => {
                stack.enter(&name)?;
                let inside = names(stack.current()?)?;
                levels.push((name, inside));
            }
            done => {
                done?;
                removed += 1;
            }
        }
    }
    Ok(())
}

fn names(dir: &OpenDir) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir.as_fd())? {
        let entry = entry?;
        let name = entry.file_name().to_str().map_err(|_| Errno::ILSEQ)?;
        if !matches!(name, "." | "..") {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
