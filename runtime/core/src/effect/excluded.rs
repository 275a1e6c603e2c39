//! Parts of a change that a person excludes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Change, Op};
use crate::path::VirtualPath;

/// All changes of one path, or hunks of one changed file, that a person excludes.
///
/// ```
/// use bailiwick::effect::ExcludedChange;
/// let whole: ExcludedChange = serde_json::from_str(r#"{"path": "/r/new.txt"}"#)?;
/// assert_eq!(whole.hunks, None);
/// let second: ExcludedChange = serde_json::from_str(r#"{"path": "/r/f", "hunks": [1]}"#)?;
/// assert_eq!(second.hunks, Some(vec![1]));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExcludedChange {
    /// The path, as the preview names it; the old path of a move or copy.
    pub path: VirtualPath,
    /// The excluded hunks, by their index in [`FileDiff::hunks`](super::FileDiff::hunks); `None` for all changes of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hunks: Option<Vec<usize>>,
}

/// Why parts of a change cannot be excluded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExclusionError {
    /// The tool cannot divide its changes, or the change was not shown.
    #[error("this call can only be allowed or denied as a whole")]
    Indivisible,
    /// The preview has no such change, or no such hunk in it that could be excluded.
    #[error("`{}` has no such change or hunk that can be excluded", crate::text::escape(.0.as_str()))]
    NotFound(VirtualPath),
    /// A later change depends on an excluded one.
    #[error(
        "the change of `{}` depends on that of `{}`; exclude both or neither",
        crate::text::escape(.dependent.as_str()),
        crate::text::escape(.excluded.as_str())
    )]
    Needed {
        /// The path of the excluded change.
        excluded: VirtualPath,
        /// The path of the change that depends on it.
        dependent: VirtualPath,
    },
    /// Nothing would be changed.
    #[error("no change remains; deny the call instead")]
    NothingRemains,
}

impl ExcludedChange {
    /// Excludes all changes of a path.
    #[must_use]
    pub fn whole(path: VirtualPath) -> Self {
        Self { path, hunks: None }
    }

    /// Returns whether it excludes this hunk of its file.
    #[must_use]
    pub fn includes(&self, hunk: usize) -> bool {
        let hunks = self.hunks.as_ref();
        hunks.is_none_or(|hunks| hunks.contains(&hunk))
    }

    /// Whether it excludes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.hunks.as_ref().is_some_and(Vec::is_empty)
    }

    /// Everything that `parts` and `others` exclude, each once.
    pub(crate) fn joined(parts: &[Self], others: &[Self]) -> Vec<Self> {
        let mut joined: BTreeMap<&VirtualPath, Option<BTreeSet<usize>>> = BTreeMap::new();
        for part in parts.iter().chain(others).filter(|part| !part.is_empty()) {
            let hunks = joined
                .entry(&part.path)
                .or_insert_with(|| Some(BTreeSet::new()));
            match (hunks.as_mut(), &part.hunks) {
                (Some(hunks), Some(more)) => hunks.extend(more),
                (None, _) | (_, None) => *hunks = None,
            }
        }
        let joined = joined.into_iter().map(|(path, hunks)| Self {
            path: path.clone(),
            hunks: hunks.map(|hunks| hunks.into_iter().collect()),
        });
        joined.collect()
    }

    /// Checks that `parts` can be excluded from `changes`: each names an existing change, or hunks of one once, no
    /// remaining change depends on an excluded one, and some change remains.
    pub(crate) fn check(parts: &[Self], changes: &[Change]) -> Result<(), ExclusionError> {
        if parts.iter().all(Self::is_empty) {
            return Ok(());
        }
        let whole = parts.iter().filter(|part| part.hunks.is_none());
        let whole: BTreeSet<&VirtualPath> = whole.map(|part| &part.path).collect();
        check_whole(&whole, changes)?;
        let mut hunks: BTreeSet<(&VirtualPath, usize)> = BTreeSet::new();
        for part in parts {
            let there = hunks_of(&part.path, changes);
            let mut excluded = part.hunks.iter().flatten();
            if !excluded.all(|hunk| *hunk < there && hunks.insert((&part.path, *hunk))) {
                return Err(ExclusionError::NotFound(part.path.clone()));
            }
        }
        if changes
            .iter()
            .any(|change| remaining(parts, change).is_some())
        {
            Ok(())
        } else {
            Err(ExclusionError::NothingRemains)
        }
    }
}

/// What remains of a change; its states are still those of the whole change.
pub(crate) fn remaining<'c>(
    parts: &[ExcludedChange],
    change: &'c Change,
) -> Option<Cow<'c, Change>> {
    let own = || parts.iter().filter(|part| part.path == change.path);
    if own().any(|part| part.hunks.is_none()) {
        return None;
    }
    let (excluded, kept): (Vec<_>, Vec<_>) = (change.diff.hunks.iter().enumerate())
        .partition(|(index, _)| own().any(|part| part.includes(*index)));
    if excluded.is_empty() {
        return Some(Cow::Borrowed(change));
    }
    if kept.is_empty() {
        return None;
    }
    let mut rest = change.clone();
    let lines = |op| {
        let lines = excluded.iter().flat_map(|(_, hunk)| &hunk.lines);
        lines.filter(|line| line.op == op).count()
    };
    rest.diff.added = rest.diff.added.saturating_sub(lines('+'));
    rest.diff.removed = rest.diff.removed.saturating_sub(lines('-'));
    rest.diff.hunks = kept.into_iter().map(|(_, hunk)| hunk.clone()).collect();
    Some(Cow::Owned(rest))
}

/// Checks that no remaining change depends on one of the excluded paths.
fn check_whole(
    excluded: &BTreeSet<&VirtualPath>,
    changes: &[Change],
) -> Result<(), ExclusionError> {
    if let Some(path) = excluded.iter().find(|path| {
        let mut changes = changes.iter();
        !changes.any(|change| change.path == ***path)
    }) {
        return Err(ExclusionError::NotFound((*path).clone()));
    }
    let remains = |change: &&Change| !excluded.contains(&change.path);
    for (index, change) in changes.iter().enumerate() {
        if remains(&change) {
            continue;
        }
        // What replaces a file is shown as a change of the file followed by a move or copy, which are one step.
        let before = index.checked_sub(1).and_then(|before| changes.get(before));
        let replaced = before.filter(|before| before.is_replaced_by(change));
        // Later changes were planned on the result of this one.
        let later = changes.iter().skip(index + 1);
        let later = later.filter(|later| changed_by(change).any(|path| concerns(later, path)));
        if let Some(dependent) = replaced.into_iter().chain(later).find(remains) {
            return Err(ExclusionError::Needed {
                excluded: change.path.clone(),
                dependent: dependent.path.clone(),
            });
        }
    }
    Ok(())
}

/// The paths at which the change leaves another state.
fn changed_by(change: &Change) -> impl Iterator<Item = &VirtualPath> {
    let path = (change.op != Op::Copy).then_some(&change.path);
    path.into_iter().chain(&change.to)
}

/// Whether a path of the change is at, above or beneath `path`.
pub(crate) fn concerns(change: &Change, path: &VirtualPath) -> bool {
    let mut paths = std::iter::once(&change.path).chain(&change.to);
    paths.any(|other| other.starts_with(path) || path.starts_with(other))
}

/// The number of hunks that can be excluded from the changes of a path: those of a changed file if no other change, which
/// may depend on its content, is at, above or beneath it.
fn hunks_of(path: &VirtualPath, changes: &[Change]) -> usize {
    let mut concerned = changes.iter().filter(|change| concerns(change, path));
    match (concerned.next(), concerned.next()) {
        (Some(change), None) if change.op == Op::Modify && change.path == *path => {
            change.diff.hunks.len()
        }
        _ => 0,
    }
}
