//! How far a change got that a crash interrupted.

use std::collections::BTreeMap;

use bailiwick::tool::{Interrupt, ReadPermit};
use bailiwick::{CallError, VirtualPath};

use crate::change::sequence::Sequence;
use crate::change::{State, Step, StepExecutor, target};

/// The first of the steps of its inverse that are needed to undo what was made: 0 if the change is complete, and the
/// number of steps if nothing was made. `None` if the files are in no state between two steps.
pub(super) fn undone_from(
    executor: &StepExecutor,
    permit: &ReadPermit,
    inverse: &[Step],
) -> Result<Option<usize>, Interrupt> {
    for first in 0..inverse.len() {
        let steps = inverse.get(first..).unwrap_or_default();
        if Sequence::new(executor, permit).fits(steps)? {
            return Ok(Some(first));
        }
    }
    let nothing_made = is_as_before(&Sequence::new(executor, permit), inverse)?;
    Ok(nothing_made.then_some(inverse.len()))
}

/// Whether all paths are as they were before the change.
fn is_as_before(sequence: &Sequence<'_>, inverse: &[Step]) -> Result<bool, Interrupt> {
    for (path, before) in before(inverse)? {
        let current = sequence.current(&path)?;
        let same = match before {
            Before::Directory => current.is_directory(),
            Before::Other(state) => current.state == state,
            Before::Mode(state, mode) => {
                current.state == state && current.file_mode() == Some(mode)
            }
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What was at a path before a change.
enum Before {
    /// What was in it has paths of its own, as far as the change is about that.
    Directory,
    Other(State),
    /// A file with permission bits.
    Mode(State, u32),
}

/// What the inverse of a change leaves at each path.
fn before(inverse: &[Step]) -> Result<BTreeMap<VirtualPath, Before>, CallError> {
    let mut left = BTreeMap::new();
    for step in inverse {
        match step {
            Step::Write { path, content, .. } => {
                left.insert(path.clone(), Before::Other(State::of_file(content)));
            }
            Step::SetMode {
                path, state, to, ..
            } => {
                left.insert(path.clone(), Before::Mode(state.clone(), *to));
            }
            Step::MakeDirectory { path, .. } => {
                left.insert(path.clone(), Before::Directory);
            }
            Step::MakeLink { path, target } => {
                left.insert(path.clone(), Before::Other(State::of_link(target)));
            }
            Step::Remove { path, .. } => {
                left.retain(|other, _| !other.starts_with(path));
                left.insert(path.clone(), Before::Other(State::Absent));
            }
            Step::Transfer {
                from, to, state, ..
            } => {
                for (path, before) in std::mem::take(&mut left) {
                    let moved = path != *from && path.starts_with(from);
                    let path = if moved {
                        target::relocated(&path, from, to)?
                    } else {
                        path
                    };
                    left.insert(path, before);
                }
                let moved = match state {
                    State::Directory { .. } => Before::Directory,
                    other => Before::Other(other.clone()),
                };
                left.insert(to.clone(), moved);
                left.insert(from.clone(), Before::Other(State::Absent));
            }
        }
    }
    Ok(left)
}
