//! What the journal knows about each change, made from its records.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::format::{Begin, End, Record};
use super::{ChangeId, ChangeState, JournalEntry};

/// Where the frame of a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) segment: u32,
    pub(super) at: u64,
    pub(super) length: u64,
}

/// How far a change has got.
#[derive(Clone, Debug)]
enum Progress {
    Begun,
    Ended(End),
}

#[derive(Debug)]
struct Item {
    begin: Arc<Begin>,
    location: Location,
    progress: Progress,
}

/// The changes in a journal.
#[derive(Debug, Default)]
pub(super) struct Index {
    items: BTreeMap<ChangeId, Item>,
}

impl Index {
    /// Adds a record, whose frame has this number and place.
    pub(super) fn add(&mut self, number: u64, location: Location, record: Record) {
        match record {
            Record::Begin(begin) => {
                let item = Item {
                    begin: Arc::new(begin),
                    location,
                    progress: Progress::Begun,
                };
                self.items.insert(ChangeId(number), item);
            }
            // The change may have been dropped with an old segment.
            Record::End { change, end } => {
                if let Some(item) = self.items.get_mut(&change) {
                    item.progress = Progress::Ended(end);
                }
            }
        }
    }

    /// Drops the changes of a segment. Returns how many.
    pub(super) fn drop_segment(&mut self, segment: u32) -> u64 {
        let before = self.items.len();
        self.items
            .retain(|_, item| item.location.segment != segment);
        (before - self.items.len()) as u64
    }

    pub(super) fn begin(&self, change: ChangeId) -> Option<Arc<Begin>> {
        self.items.get(&change).map(|item| Arc::clone(&item.begin))
    }

    pub(super) fn location(&self, change: ChangeId) -> Option<Location> {
        self.items.get(&change).map(|item| item.location)
    }

    /// Whether a change of a segment has not ended.
    pub(super) fn is_open_in(&self, segment: u32) -> bool {
        let mut items = self.items.values();
        items.any(|item| {
            item.location.segment == segment && matches!(item.progress, Progress::Begun)
        })
    }

    /// All changes that `wanted` selects, those first that took effect last. A change that was undone and made again took
    /// effect when it was made again. Open changes from `first` on are being made; those before it were interrupted.
    pub(super) fn entries(
        &self,
        first: Option<u64>,
        wanted: impl Fn(ChangeId, &Begin) -> bool,
    ) -> Vec<JournalEntry> {
        let mut undone: BTreeMap<ChangeId, ChangeId> = BTreeMap::new();
        // The change that made another one again.
        let mut again: BTreeMap<ChangeId, ChangeId> = BTreeMap::new();
        let mut entries = Vec::new();
        for (id, item) in self.items.iter().rev() {
            let by = undone.get(id).copied();
            let state = match &item.progress {
                Progress::Begun if first.is_some_and(|first| id.0 >= first) => ChangeState::Running,
                Progress::Begun => ChangeState::Interrupted,
                Progress::Ended(End::NotApplied) => ChangeState::NotApplied,
                Progress::Ended(End::RolledBack) => ChangeState::RolledBack,
                Progress::Ended(End::Failed) if by.is_none() => ChangeState::Failed,
                Progress::Ended(End::Conflict { paths }) if by.is_none() => ChangeState::Conflict {
                    paths: paths.clone(),
                },
                Progress::Ended(End::Applied | End::Failed | End::Conflict { .. }) => {
                    by.map_or(ChangeState::Applied, |by| ChangeState::Undone { by })
                }
            };
            if state == ChangeState::Applied {
                let since = again.get(id).copied().unwrap_or(*id);
                for target in &item.begin.undoes {
                    // A newer change that is in effect may undo the same one.
                    undone.entry(*target).or_insert(*id);
                    let remade = self.items.get(target).map(|target| &target.begin.undoes);
                    for target in remade.into_iter().flatten() {
                        let latest = again.entry(*target).or_insert(since);
                        *latest = since.max(*latest);
                    }
                }
            }
            if wanted(*id, &item.begin) {
                let since = again.get(id).copied().unwrap_or(*id);
                let entry = JournalEntry::of(*id, &item.begin, state);
                entries.push((since, entry));
            }
        }
        entries.sort_by_key(|(since, entry)| std::cmp::Reverse((*since, entry.id)));
        entries.into_iter().map(|(_, entry)| entry).collect()
    }
}
