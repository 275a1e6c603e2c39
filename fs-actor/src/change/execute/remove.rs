//! Deletes files and directories in the planned state.

use bailiwick::CallError;

use super::{DirEntryRef, StepContext};
use crate::change::stale;
use crate::change::state::State;
use crate::change::tree::{self, Item, TemporaryFiles};
use crate::resolve::AtPath as _;
use crate::sys::{self, AtFlags};

pub(super) fn remove_file<P>(
    entry: &DirEntryRef<'_>,
    state: &State,
    context: &StepContext<'_, P>,
) -> Result<(), CallError> {
    let _lock = entry.lock()?;
    entry.expect(state, TemporaryFiles::Included, context.view)?;
    let _commit = (context.begin)()?;
    sys::unlinkat(entry.dir.as_fd(), entry.name.as_str(), AtFlags::empty()).at(entry.path)
}

/// Deletes the planned contents one by one. A crash leaves the rest in place, and entries that were added since the
/// plan remain, with their directories.
pub(super) fn remove_directory<P>(
    entry: &DirEntryRef<'_>,
    state: &State,
    context: &StepContext<'_, P>,
) -> Result<(), CallError> {
    let inspected = entry.expect(state, TemporaryFiles::Included, context.view)?;
    let meta = inspected.meta.ok_or_else(|| stale(entry.path))?;
    let inner = entry.enter()?;
    let _commit = (context.begin)()?;
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
