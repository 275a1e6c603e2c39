//! A name and what the plan saw at it in, that removed and nothing else out.

use bailiwick::CallError;

use super::DirEntryRef;
use crate::change::stale;
use crate::change::state::{State, inspect_in};
use crate::change::tree::{self, Checkpoint, Item, TemporaryFiles};
use crate::sys::{self, AtFlags};

pub(super) fn remove_file<P>(
    entry: &DirEntryRef<'_>,
    what: &State,
    checkpoint: Checkpoint<'_>,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<(), CallError> {
    let _lock = entry.lock()?;
    entry.expect(what, checkpoint)?;
    let _commit = begin()?;
    sys::unlinkat(entry.dir.as_fd(), entry.name.as_str(), AtFlags::empty())
        .map_err(|errno| entry.to_call_error(errno))
}

/// Removes what the plan saw, piece by piece and where it stands: a crash half way leaves the rest in its place, in
/// sight, and what came meanwhile stays, with the directories it is in.
pub(super) fn remove_directory<P>(
    entry: &DirEntryRef<'_>,
    what: &State,
    checkpoint: Checkpoint<'_>,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<(), CallError> {
    let all = TemporaryFiles::Included;
    let seen = inspect_in(&entry.dir, &entry.name, entry.path, all, checkpoint)?;
    let Some(meta) = seen.meta.filter(|_| seen.state == *what) else {
        return Err(stale(entry.path));
    };
    let inner = entry
        .dir
        .enter(&entry.name)
        .map_err(|errno| entry.to_call_error(errno))?;
    let _commit = begin()?;
    // It has begun, so it goes on: a removal that stops half way helps nobody.
    let (gone, removed) = tree::remove(inner, &seen.items);
    let told = |error: CallError| {
        if gone == 0 {
            error
        } else {
            error.with("removed", gone)
        }
    };
    removed.map_err(told)?;
    let item = Item {
        path: entry.path.clone(),
        meta,
    };
    tree::unlink(&entry.dir, &item, AtFlags::REMOVEDIR).map_err(told)
}
