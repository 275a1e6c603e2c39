//! What a worker may see of the journal, and what people see about files.

use std::collections::BTreeMap;

use super::format::Begin;
use super::{ChangeId, Journal, JournalEntry, order};
use crate::effect::{Entry, Op};
use crate::error::{CallError, Code};
use crate::id::WorkerId;
use crate::path::VirtualPath;

/// What the journal keeps to undo a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UndoRecord {
    /// Bytes that a tool can read to undo the change; `None` if it cannot be undone.
    pub inverse: Option<Vec<u8>>,
    /// The changes that this one undoes.
    pub undoes: Vec<ChangeId>,
}

/// The part of a journal that a worker may undo: its own changes and those of its descendants, in this runtime.
#[derive(Clone, Debug)]
pub struct JournalView {
    journal: Journal,
    /// `None` for people, who may undo all changes.
    worker: Option<WorkerId>,
}

impl JournalView {
    pub(crate) fn new(journal: Journal, worker: Option<WorkerId>) -> Self {
        Self { journal, worker }
    }

    fn includes(&self, begin: &Begin) -> bool {
        self.worker.is_none_or(|worker| {
            begin.run == self.journal.run()
                && (begin.worker == worker || begin.lineage.contains(&worker))
        })
    }

    /// Returns the worker; `None` for people.
    #[must_use]
    pub fn worker(&self) -> Option<WorkerId> {
        self.worker
    }

    /// Returns the changes, those first that took effect last.
    #[must_use]
    pub fn entries(&self) -> Vec<JournalEntry> {
        self.journal.select(|_, begin| self.includes(begin))
    }

    /// Returns the paths of these changes that other changes, of any worker, changed or restored after them. Undo those first.
    #[must_use]
    pub fn changed_since(&self, changes: &[ChangeId]) -> Vec<VirtualPath> {
        order::changed_since(&self.journal.entries(), changes)
    }

    /// Returns whether older changes were dropped since the journal was opened.
    #[must_use]
    pub fn has_dropped(&self) -> bool {
        self.journal.dropped() > 0
    }

    /// Returns the maximum size in bytes of what the journal keeps to undo one change
    /// ([`JournalLimits::change_bytes`](super::JournalLimits::change_bytes)).
    #[must_use]
    pub fn change_bytes(&self) -> u64 {
        self.journal.change_bytes()
    }

    /// Returns the bytes that undo a change.
    ///
    /// # Errors
    /// `NOT_FOUND` if it is not in this view, or was dropped; `CONFLICT` if it cannot be undone; `IO` if the journal cannot
    /// be read.
    pub fn inverse(&self, change: ChangeId) -> Result<Vec<u8>, CallError> {
        let unknown = || CallError::new(Code::NotFound, format!("unknown change {change}"));
        let begin = self.journal.inner.store.lock().index.begin(change);
        let begin = begin.filter(|begin| self.includes(begin));
        if !begin.ok_or_else(unknown)?.can_be_undone {
            let message =
                format!("change {change} cannot be undone: what it replaced was not kept");
            return Err(CallError::new(Code::Conflict, message));
        }
        let inverse = self.journal.inverse(change).map_err(CallError::from)?;
        inverse.ok_or_else(unknown)
    }
}

impl From<super::JournalError> for CallError {
    fn from(error: super::JournalError) -> Self {
        let cause = std::error::Error::source(&error).map(|source| format!(": {source}"));
        let message = match &error {
            // Messages for models contain no host path.
            super::JournalError::Open { .. } => "the change journal cannot be read".to_owned(),
            error => error.to_string(),
        };
        Self::new(Code::Io, message + &cause.unwrap_or_default())
    }
}

/// A file or directory that calls changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangedFile {
    /// Its path.
    pub path: VirtualPath,
    /// Its state before the first of the changes.
    pub before: Entry,
    /// Its state after the last of them.
    pub after: Entry,
    /// When the first of the changes began, in milliseconds since 1970.
    pub since_ms: u64,
    /// The changes, the oldest first.
    pub changes: Vec<ChangeId>,
}

/// The files that `entries`, the newest first, changed, in path order. Changes that were undone are left out.
pub(crate) fn changed_files(entries: &[JournalEntry]) -> Vec<ChangedFile> {
    let mut files: BTreeMap<VirtualPath, ChangedFile> = BTreeMap::new();
    for entry in entries.iter().rev() {
        if !entry.state.is_in_effect() || !entry.undoes.is_empty() {
            continue;
        }
        for change in &*entry.changes {
            let mut note = |path: &VirtualPath, before, after| {
                let file = files.entry(path.clone()).or_insert_with(|| ChangedFile {
                    path: path.clone(),
                    before,
                    after,
                    since_ms: entry.at_ms,
                    changes: Vec::new(),
                });
                file.after = after;
                // A move that replaces a file has two changes of its path.
                if file.changes.last() != Some(&entry.id) {
                    file.changes.push(entry.id);
                }
            };
            match (&change.to, change.op) {
                (Some(to), Op::Move) => {
                    note(&change.path, change.before, Entry::Absent);
                    note(to, Entry::Absent, change.after);
                }
                (Some(to), _) => note(to, Entry::Absent, change.after),
                (None, _) => note(&change.path, change.before, change.after),
            }
        }
    }
    let files = files.into_values();
    files.filter(|file| file.before != file.after).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::CallId;
    use crate::journal::{JournalChange, NewChange};

    /// A worker changes files; returns the change.
    fn change(journal: &Journal, worker: u64, paths: &[&str]) -> ChangeId {
        record(journal, worker, paths, Vec::new())
    }

    /// A worker undoes changes; returns the change that undoes them.
    fn undo(journal: &Journal, undoes: impl Iterator<Item = ChangeId>) -> ChangeId {
        record(journal, 1, &[], undoes.collect())
    }

    fn record(journal: &Journal, worker: u64, paths: &[&str], undoes: Vec<ChangeId>) -> ChangeId {
        let modify = |path: &&str| JournalChange {
            path: VirtualPath::parse(path, None).unwrap(),
            op: Op::Modify,
            to: None,
            before: Entry::Absent,
            after: Entry::Absent,
        };
        let undo = UndoRecord {
            inverse: Some(b"inverse".to_vec()),
            undoes,
        };
        let begun = journal.begin(NewChange {
            call: CallId(1),
            worker: WorkerId(worker),
            lineage: [].into(),
            agent: "main".into(),
            tool: "edit_file",
            intent: "",
            changes: paths.iter().map(modify).collect(),
            undo,
        });
        let begun = begun.unwrap();
        let id = begun.change;
        begun.applied();
        id
    }

    fn journal() -> (tempfile::TempDir, Journal) {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path().join("journal")).unwrap();
        (dir, journal)
    }

    #[test]
    fn inverse_of_a_change_outside_the_view_is_unknown() {
        let (_dir, journal) = journal();
        let theirs = change(&journal, 2, &["/r/a"]);
        let view = |worker| JournalView::new(journal.clone(), worker);
        let refused = view(Some(WorkerId(1))).inverse(theirs).unwrap_err();
        assert_eq!(refused.code(), Code::NotFound);
        for allowed in [Some(WorkerId(2)), None] {
            assert_eq!(view(allowed).inverse(theirs).unwrap(), b"inverse");
        }
    }

    #[test]
    fn inverse_of_one_change_is_found_without_the_others() {
        let (_dir, journal) = journal();
        let own = change(&journal, 1, &["/r/a"]);
        // Listing these takes a part of a second, and doing so for each inverse would take an hour.
        for _ in 0..100 {
            undo(&journal, (1_000..11_000).map(ChangeId));
        }
        let view = JournalView::new(journal, Some(WorkerId(1)));
        for _ in 0..10_000 {
            assert_eq!(view.inverse(own).unwrap(), b"inverse");
        }
    }

    #[test]
    fn later_changes_of_each_of_several_changes_are_found() {
        let (_dir, journal) = journal();
        let paths = ["/r/a", "/r/b", "/r/c"];
        let own = paths.map(|path| change(&journal, 1, &[path]));
        let view = JournalView::new(journal.clone(), Some(WorkerId(1)));
        assert_eq!(view.changed_since(&own), []);
        for (n, path) in paths.iter().enumerate() {
            change(&journal, 2, &[path]);
            let later: Vec<String> = view
                .changed_since(&own)
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(later, paths[..=n]);
        }
        let [_, ref rest @ ..] = own;
        assert_eq!(view.changed_since(rest).len(), 2);
    }
}
