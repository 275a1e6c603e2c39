//! What a look at a directory found in, all of that gone out, and nothing else.

use bailiwick::{CallError, VirtualPath};

use super::{Item, current_dir, stamp, stat};
use crate::replace::DirLock;
use crate::resolve::{self, DirStack, Kind, OpenDir};
use crate::sys::{self, AtFlags, Errno};

/// Removes `items`, all that a look at `dir` found: these very objects, unchanged, and nothing that came since.
/// Returns how many went, and why not all of them if so.
pub(crate) fn remove(dir: OpenDir, items: &[Item]) -> (u64, Result<(), CallError>) {
    let mut gone = 0;
    let mut stack = DirStack::new(dir);
    // The directories whose contents are on their way out.
    let mut open: Vec<&Item> = Vec::new();
    let mut remove_all = || {
        for item in items {
            while let Some(last) = open
                .last()
                .filter(|last| !item.path.starts_with(&last.path))
            {
                stack.pop();
                unlink(
                    current_dir(&mut stack, &last.path)?,
                    last,
                    AtFlags::REMOVEDIR,
                )?;
                gone += 1;
                open.pop();
            }
            if item.meta.kind == Kind::Directory {
                let name = item.path.name().unwrap_or_default();
                let entered = stack.enter(name);
                entered.map_err(|errno| changed(errno, &item.path))?;
                open.push(item);
            } else {
                unlink(current_dir(&mut stack, &item.path)?, item, AtFlags::empty())?;
                gone += 1;
            }
        }
        while let Some(last) = open.pop() {
            stack.pop();
            unlink(
                current_dir(&mut stack, &last.path)?,
                last,
                AtFlags::REMOVEDIR,
            )?;
            gone += 1;
        }
        Ok(())
    };
    let done = remove_all();
    (gone, done)
}

/// Removes `item` from the directory it is in, if it is still the one of the plan. The directory is locked meanwhile, so
/// nobody who writes through this crate replaces the item between the look and the removal.
pub(crate) fn unlink(dir: &OpenDir, item: &Item, how: AtFlags) -> Result<(), CallError> {
    let failed = |errno| changed(errno, &item.path);
    let _lock = DirLock::acquire(dir.as_fd()).map_err(failed)?;
    let name = item.path.name().unwrap_or_default();
    let current = stat(dir.as_fd(), name).map_err(failed)?;
    // A directory changes as its entries go; what it holds now shows when it is removed.
    let same = (current.dev, current.ino) == (item.meta.dev, item.meta.ino)
        && (current.kind == Kind::Directory || stamp(&current) == stamp(&item.meta));
    if !same {
        return Err(crate::change::stale(&item.path));
    }
    sys::unlinkat(dir.as_fd(), name, how).map_err(failed)
}

/// What `errno` means of something that was there a moment ago.
fn changed(errno: Errno, path: &VirtualPath) -> CallError {
    match errno {
        Errno::NOENT
        | Errno::NOTEMPTY
        | Errno::EXIST
        | Errno::LOOP
        | Errno::NOTDIR
        | Errno::STALE => crate::change::stale(path),
        errno => resolve::to_call_error(errno, path),
    }
}
