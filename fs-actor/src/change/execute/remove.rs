//! Deletes files and directories in the planned state.

use bailiwick::CallError;

use super::DirEntryRef;
use crate::change::stale;
use crate::change::state::{State, inspect_in};
use crate::change::tree::{self, Checkpoint, Item, TemporaryFiles};
use crate::sys::{self, AtFlags};

pub(super) fn remove_file<P>(
    entry: &DirEntryRef<'_>,
    state: &State,
    checkpoint: Checkpoint<'_>,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<(), CallError> {
    let _lock = entry.lock()?;
    entry.expect(state, checkpoint)?;
    let _commit = begin()?;
    sys::unlinkat(entry.dir.as_fd(), entry.name.as_str(), AtFlags::empty())
        .map_err(|errno| entry.to_call_error(errno))
}

/// Deletes the planned contents one by one. A crash leaves the rest in place, and entries that were added since the
/// plan remain, with their directories.
pub(super) fn remove_directory<P>(
    entry: &DirEntryRef<'_>,
    state: &State,
    checkpoint: Checkpoint<'_>,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<(), CallError> {
    let all = TemporaryFiles::Included;
    let inspected = inspect_in(&entry.dir, &entry.name, entry.path, all, checkpoint)?;
    let Some(meta) = inspected.meta.filter(|_| inspected.state == *state) else {
        return Err(stale(entry.path));
    };
    let inner = entry
        .dir
        .enter(&entry.name)
        .map_err(|errno| entry.to_call_error(errno))?;
    let _commit = begin()?;
    // After the start the deletion is not interrupted.
    let (removed_count, removed) = tree::remove(inner, &inspected.items);
    let reported = |error: CallError| {
        if removed_count == 0 {
            error
        } else {
            error.with("removed", removed_count)
        }
    };
    removed.map_err(reported)?;
    let item = Item {
        path: entry.path.clone(),
        meta,
    };
    tree::unlink(&entry.dir, &item, AtFlags::REMOVEDIR).map_err(reported)
}
