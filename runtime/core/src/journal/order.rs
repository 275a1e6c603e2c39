//! Which changes stand in the way of undoing others or of making them again.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{ChangeId, ChangeState, JournalChange, JournalEntry};
use crate::effect::Op;
use crate::path::VirtualPath;

/// The paths of the changes `chosen` that other changes changed or restored after them. An undo can be among `chosen`: to
/// undo it is to redo.
///
/// The changes in effect of one path can be undone from the newest to the oldest only: each expects what the one before it
/// left. A change that is undone or made again out of this order would leave others that nothing can undo.
pub(super) fn changed_since(entries: &[JournalEntry], chosen: &[ChangeId]) -> Vec<VirtualPath> {
    let timeline = Timeline::of(entries);
    // What undoing `chosen` changes itself.
    let chosen: BTreeSet<ChangeId> = chosen.iter().copied().collect();
    let own: BTreeSet<ChangeId> = chosen
        .iter()
        .flat_map(|id| timeline.with_undone(*id))
        .collect();
    // From now back to just after each chosen change.
    let mut differing = Differing::default();
    let mut remaining = chosen.clone();
    let mut found = BTreeSet::new();
    for Toggle { id, on } in timeline.toggles.iter().rev() {
        if remaining.is_empty() {
            break;
        }
        let Some(entry) = timeline.entries.get(id) else {
            continue;
        };
        if chosen.contains(id) {
            if *on && remaining.remove(id) {
                // An undo of several changes of a path may have changed nothing.
                let affected = timeline.with_undone(*id);
                let entries = affected.iter().filter_map(|id| timeline.entries.get(id));
                let paths = entries.flat_map(|entry| places(entry));
                let paths = paths.filter(|place| differing.has(place));
                found.extend(paths.map(|place| place.path.clone()));
            }
        } else if entry.undoes.is_empty() && !own.contains(id) {
            differing.toggle(entry);
        }
    }
    found.into_iter().collect()
}

/// A change that took effect or lost it.
struct Toggle {
    id: ChangeId,
    on: bool,
}

/// All that took effect or lost it, the oldest first.
struct Timeline<'e> {
    entries: BTreeMap<ChangeId, &'e JournalEntry>,
    on: BTreeSet<ChangeId>,
    toggles: Vec<Toggle>,
}

impl<'e> Timeline<'e> {
    fn of(entries: &'e [JournalEntry]) -> Self {
        let entries: BTreeMap<_, _> = entries.iter().map(|entry| (entry.id, entry)).collect();
        let mut timeline = Self {
            entries,
            on: BTreeSet::new(),
            toggles: Vec::new(),
        };
        let made: Vec<ChangeId> = timeline
            .entries
            .values()
            .filter(|entry| {
                !matches!(
                    entry.state,
                    ChangeState::NotApplied | ChangeState::RolledBack
                )
            })
            .map(|entry| entry.id)
            .collect();
        for id in made {
            timeline.set(id, true);
        }
        timeline
    }

    /// The changes that `id` undoes completely.
    fn undone_by(&self, id: ChangeId) -> Vec<ChangeId> {
        let entry = self.entries.get(&id).filter(|entry| {
            matches!(
                entry.state,
                ChangeState::Applied | ChangeState::Undone { .. }
            )
        });
        entry.map(|entry| entry.undoes.clone()).unwrap_or_default()
    }

    /// `id`, the changes that it undoes, what these undo, and so on.
    fn with_undone(&self, id: ChangeId) -> BTreeSet<ChangeId> {
        let (mut open, mut found) = (vec![id], BTreeSet::new());
        while let Some(id) = open.pop() {
            if found.insert(id) {
                open.extend(self.undone_by(id));
            }
        }
        found
    }

    /// Sets whether a change is in effect. What it undoes is not in effect while it is.
    fn set(&mut self, id: ChangeId, on: bool) {
        let mut open = vec![(id, on)];
        while let Some((id, on)) = open.pop() {
            let changed = if on {
                self.on.insert(id)
            } else {
                self.on.remove(&id)
            };
            if changed {
                self.toggles.push(Toggle { id, on });
                open.extend(self.undone_by(id).into_iter().map(|undone| (undone, !on)));
            }
        }
    }
}

/// A path that a change affects.
struct Place<'e> {
    path: &'e VirtualPath,
    /// Whether what is beneath it is affected too.
    whole: bool,
}

fn places(entry: &JournalEntry) -> impl Iterator<Item = Place<'_>> {
    entry.changes.iter().flat_map(|change| {
        let JournalChange { path, to, op, .. } = change;
        let whole = *op != Op::Modify;
        let source = (*op != Op::Copy).then_some(path);
        let paths = source.into_iter().chain(to);
        paths.map(move |path| Place { path, whole })
    })
}

/// The paths of changes that are in effect now and were not at an earlier time, or the reverse.
#[derive(Default)]
struct Differing {
    changes: BTreeSet<ChangeId>,
    counts: HashMap<VirtualPath, Counts>,
}

/// How many changes affect a path.
#[derive(Default)]
struct Counts {
    here: usize,
    /// With what is beneath it.
    whole: usize,
    /// Paths beneath it.
    beneath: usize,
}

impl Differing {
    fn toggle(&mut self, entry: &JournalEntry) {
        let adds = self.changes.insert(entry.id);
        if !adds {
            self.changes.remove(&entry.id);
        }
        let change = |count: &mut usize| {
            *count = if adds {
                *count + 1
            } else {
                count.saturating_sub(1)
            };
        };
        for Place { path, whole } in places(entry) {
            let counts = self.counts.entry(path.clone()).or_default();
            change(&mut counts.here);
            if whole {
                change(&mut counts.whole);
            }
            for above in above(path) {
                change(&mut self.counts.entry(above).or_default().beneath);
            }
        }
    }

    fn has(&self, place: &Place<'_>) -> bool {
        let here = self.counts.get(place.path);
        here.is_some_and(|counts| counts.here > 0 || place.whole && counts.beneath > 0)
            || above(place.path).any(|path| self.counts.get(&path).is_some_and(|it| it.whole > 0))
    }
}

fn above(path: &VirtualPath) -> impl Iterator<Item = VirtualPath> {
    std::iter::successors(path.parent(), VirtualPath::parent)
}
