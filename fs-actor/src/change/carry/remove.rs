//! A name and what the plan saw at it in, that removed and nothing else out.

use bailiwick::CallError;

use super::Spot;
use crate::change::stale;
use crate::change::state::{State, see_in};
use crate::change::tree::{self, Item, Pause, Temporaries};
use crate::sys::{self, AtFlags};

pub(super) fn remove_file<P>(
    spot: &Spot<'_>,
    what: &State,
    pause: Pause<'_>,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<(), CallError> {
    let _lock = spot.lock()?;
    spot.expect(what, pause)?;
    let _commit = begin()?;
    sys::unlinkat(spot.dir.as_fd(), spot.name.as_str(), AtFlags::empty())
        .map_err(|errno| spot.say(errno))
}

/// Removes what the plan saw, piece by piece and where it stands: a crash half way leaves the rest in its place, in
/// sight, and what came meanwhile stays, with the directories it is in.
pub(super) fn remove_directory<P>(
    spot: &Spot<'_>,
    what: &State,
    pause: Pause<'_>,
    begin: &impl Fn() -> Result<P, CallError>,
) -> Result<(), CallError> {
    let all = Temporaries::Counted;
    let seen = see_in(&spot.dir, &spot.name, spot.path, all, pause)?;
    let Some(meta) = seen.meta.filter(|_| seen.state == *what) else {
        return Err(stale(spot.path));
    };
    let inner = spot
        .dir
        .enter(&spot.name)
        .map_err(|errno| spot.say(errno))?;
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
        path: spot.path.clone(),
        meta,
    };
    tree::unlink(&spot.dir, &item, AtFlags::REMOVEDIR).map_err(told)
}
