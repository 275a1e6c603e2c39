//! Finds out how far a change got that was interrupted, from the steps that undo it and the files.

use std::collections::{BTreeMap, BTreeSet};

use bailiwick::VirtualPath;
use bailiwick::tool::{Interrupt, ReadPermit};

use super::sequence::{Known, Sequence, conflict};
use super::{State, Step, StepExecutor, target};

/// How far a change got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The files are as before it.
    NotMade,
    /// The files are as after it.
    Complete,
    /// The steps of its inverse from this index undo what was made.
    Partial(usize),
}

/// How far a change with this inverse got.
///
/// # Errors
/// `CONFLICT` if the files are in a state that the change does not pass through, and as [`Sequence::push`].
pub(crate) fn progress(
    executor: &StepExecutor,
    permit: &ReadPermit,
    inverse: &[Step],
) -> Result<Progress, Interrupt> {
    let sequence = || Sequence::after_crash(executor, permit);
    let Unknown { others, moved } = unknown(&sequence(), inverse)?;
    if !others.is_empty() {
        return Err(conflict(permit, &others).into());
    }
    let changed = changed_by_any(&sequence(), inverse)?;
    if changed.is_empty() {
        return Ok(Progress::NotMade);
    }
    if sequence().fits(inverse)? {
        return Ok(Progress::Complete);
    }
    for first in starts(inverse) {
        let steps = inverse.get(first..).unwrap_or_default();
        if sequence().fits_in_part(steps)? {
            return Ok(Progress::Partial(first));
        }
    }
    let named = if moved.is_empty() { changed } else { moved };
    Err(conflict(permit, &named).into())
}

/// The steps that may be the first to undo. Steps that restore what one step deleted follow one another.
fn starts(inverse: &[Step]) -> impl Iterator<Item = usize> {
    let before = std::iter::once(false).chain(inverse.iter().map(Step::restores));
    let steps = inverse.iter().zip(before).enumerate();
    steps.filter_map(|(index, (step, follows))| (!follows || !step.restores()).then_some(index))
}

/// The paths that are in no state between two steps.
#[derive(Default)]
struct Unknown {
    /// Others have changed them.
    others: Vec<VirtualPath>,
    /// They may be part of something else that was moved there.
    moved: Vec<VirtualPath>,
}

fn unknown(disk: &Sequence<'_>, inverse: &[Step]) -> Result<Unknown, Interrupt> {
    let mut states: BTreeMap<&VirtualPath, Vec<State>> = BTreeMap::new();
    let mut moved: BTreeSet<&VirtualPath> = BTreeSet::new();
    for step in inverse {
        if let Step::Transfer { from, to, .. } = step {
            moved.extend([from, to]);
        }
        let expected = step.expected().into_iter();
        let expected = expected.map(|(path, state)| (path, state.clone()));
        for (path, state) in expected.chain(step.results()) {
            states.entry(path).or_default().push(state);
        }
    }
    let mut unknown = Unknown::default();
    for (path, known) in &states {
        let mut above = std::iter::successors(path.parent(), VirtualPath::parent);
        let is_moved = above.clone().any(|dir| moved.contains(&dir));
        let current = disk.current(path)?;
        let is_known = match &current.state {
            State::Absent => above.any(|dir| states.contains_key(&dir)),
            State::Directory { .. } => known
                .iter()
                .any(|state| matches!(state, State::Directory { .. })),
            State::File { .. } | State::Link { .. } | State::Object { .. } => false,
        };
        if is_known || known.contains(&current.state) {
            continue;
        }
        if is_moved {
            unknown.moved.push((*path).clone());
        } else {
            unknown.others.push((*path).clone());
        }
    }
    Ok(unknown)
}

/// What a path was before a change.
struct Before {
    /// `None` for a directory with any contents.
    state: Option<State>,
    mode: Option<u32>,
}

impl Before {
    fn is(&self, current: &Known) -> bool {
        let same = match &self.state {
            Some(state) => current.state == *state,
            None => current.is_directory(),
        };
        same && (self.mode.is_none() || current.file_mode() == self.mode)
    }
}

/// The paths that are not as before the change.
fn changed_by_any(disk: &Sequence<'_>, inverse: &[Step]) -> Result<Vec<VirtualPath>, Interrupt> {
    let mut changed = Vec::new();
    for (path, before) in before(inverse)? {
        if !before.is(&disk.current(&path)?) {
            changed.push(path);
        }
    }
    Ok(changed)
}

/// What the steps leave.
fn before(inverse: &[Step]) -> Result<BTreeMap<VirtualPath, Before>, Interrupt> {
    let mut left: BTreeMap<VirtualPath, Before> = BTreeMap::new();
    for step in inverse {
        let mode = match step {
            Step::SetMode { to, .. } => Some(*to),
            _ => None,
        };
        let mut moved = Vec::new();
        if let Step::Transfer { from, to, .. } = step {
            for (path, before) in std::mem::take(&mut left) {
                if path != *from && path.starts_with(from) {
                    moved.push((target::relocated(&path, from, to)?, before));
                } else {
                    left.insert(path, before);
                }
            }
        }
        for (path, state) in step.results() {
            left.retain(|other, _| other == path || !other.starts_with(path));
            for dir in std::iter::successors(path.parent(), VirtualPath::parent) {
                if let Some(Before { state, .. }) = left.get_mut(&dir)
                    && matches!(state, Some(State::Directory { .. }))
                {
                    *state = None;
                }
            }
            let any_contents = matches!(step, Step::MakeDirectory { .. })
                || matches!(state, State::Directory { .. }) && !moved.is_empty();
            let state = (!any_contents).then_some(state);
            left.insert(path.clone(), Before { state, mode });
        }
        left.extend(moved);
    }
    Ok(left)
}
