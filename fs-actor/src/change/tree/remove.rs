//! Deletes a scanned directory tree.

use bailiwick::{CallError, VirtualPath};

use super::{Item, current_dir, stamp, stat};
use crate::replace::DirLock;
use crate::resolve::{self, DirStack, Kind, OpenDir};
use crate::sys::{self, AtFlags, Errno};

/// Deletes `items`, the result of a scan of `dir`, if each is still the same unchanged object. Returns how many were
/// deleted, and the first error.
pub(crate) fn remove(dir: OpenDir, items: &[Item]) -> (u64, Result<(), CallError>) {
    let mut removed_count = 0;
    let mut stack = DirStack::new(dir);
    // Directories whose contents are being deleted.
    let mut open: Vec<&Item> = Vec::new();
    let mut remove_all = || {
        // At the end, the directories that are still open are deleted.
        for item in items.iter().map(Some).chain([None]) {
            while let Some(last) = open
                .last()
                .filter(|last| item.is_none_or(|item| !item.path.starts_with(&last.path)))
            {
                stack.pop();
                unlink(
                    current_dir(&mut stack, &last.path)?,
                    last,
                    AtFlags::REMOVEDIR,
                )?;
                removed_count += 1;
                open.pop();
            }
            let Some(item) = item else { break };
            if item.meta.kind == Kind::Directory {
                let name = item.path.name().unwrap_or_default();
                let entered = stack.enter(name);
                entered.map_err(|errno| changed(errno, &item.path))?;
                open.push(item);
            } else {
                unlink(current_dir(&mut stack, &item.path)?, item, AtFlags::empty())?;
                removed_count += 1;
            }
        }
        Ok(())
    };
    let done = remove_all();
    (removed_count, done)
}

/// Deletes `item` if it is unchanged. The directory is locked, so no other writer of this crate replaces the item
/// between the check and the deletion.
pub(crate) fn unlink(dir: &OpenDir, item: &Item, how: AtFlags) -> Result<(), CallError> {
    let failed = |errno| changed(errno, &item.path);
    let _lock = DirLock::acquire(dir.as_fd()).map_err(failed)?;
    let name = item.path.name().unwrap_or_default();
    let current = stat(dir.as_fd(), name).map_err(failed)?;
    // A directory changes when its entries are deleted; new entries make its deletion fail.
    let same = (current.dev, current.ino) == (item.meta.dev, item.meta.ino)
        && (current.kind == Kind::Directory || stamp(&current) == stamp(&item.meta));
    if !same {
        return Err(crate::change::stale(&item.path));
    }
    sys::unlinkat(dir.as_fd(), name, how).map_err(failed)
}

/// The error for an entry that has changed since the scan.
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
