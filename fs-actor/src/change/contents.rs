//! Describes the contents of a directory that is deleted, moved or copied.

use bailiwick::effect::{
    ContainedEntry, ContentHash, DirectoryContents, Entry, EntryKind, FileDiff,
};
use bailiwick::{CallError, VirtualPath};

use super::state::{Inspected, State};
use super::{StepExecutor, tree};
use crate::diff;
use crate::read_view::ReadView;
use crate::resolve::{Kind, Meta};

/// Maximum number of listed entries, and total bytes of their paths.
const MAX_FIRST: usize = 50;
const MAX_FIRST_BYTES: usize = 8 << 10;

impl StepExecutor {
    /// Describes the object at `path` and everything beneath it, as far as the worker may know: the entry, and a diff
    /// without content.
    pub(crate) fn describe(
        &self,
        view: &dyn ReadView,
        path: &VirtualPath,
        inspected: &Inspected,
    ) -> Result<(Entry, FileDiff), CallError> {
        let shown = view.shows(path);
        let State::Directory { digest, .. } = inspected.state else {
            let diff = if shown {
                FileDiff::default()
            } else {
                diff::hidden()
            };
            let entry = self.entry(&inspected.state, inspected.meta.as_ref(), shown)?;
            return Ok((entry, diff));
        };
        let visible: Vec<(&str, &Meta)> = inspected
            .items
            .iter()
            .filter(|item| shown && view.shows(&item.path))
            .filter_map(|item| Some((item.path.beneath(path)?, &item.meta)))
            .collect();
        let hidden = !shown || visible.len() < inspected.items.len();
        let hash = match &inspected.meta {
            Some(meta) if hidden => self.masked(digest, tree::stamp(meta))?,
            _ => digest,
        };
        let contents = contents(visible, hash);
        let entry = Entry::Directory {
            entries: contents.entries(),
        };
        let diff = FileDiff {
            hidden,
            contents: Some(contents),
            ..FileDiff::default()
        };
        Ok((entry, diff))
    }
}

fn contents(visible: Vec<(&str, &Meta)>, hash: ContentHash) -> DirectoryContents {
    let count = |kinds: &[Kind]| {
        let matching = visible
            .iter()
            .filter(|(_, meta)| kinds.contains(&meta.kind));
        matching.count() as u64
    };
    let files = visible.iter().filter(|(_, meta)| meta.kind == Kind::File);
    DirectoryContents {
        files: count(&[Kind::File]),
        directories: count(&[Kind::Directory]),
        others: count(&[Kind::Link, Kind::Special]),
        bytes: files.fold(0, |sum, (_, meta)| sum.saturating_add(meta.len)),
        hash,
        first: first(visible),
    }
}

fn first(visible: Vec<(&str, &Meta)>) -> Vec<ContainedEntry> {
    let depth = |path: &str| path.bytes().filter(|byte| *byte == b'/').count();
    let mut sorted: Vec<(usize, &str, &Meta)> = visible
        .into_iter()
        .map(|(path, meta)| (depth(path), path, meta))
        .collect();
    sorted.sort_unstable_by_key(|(depth, path, _)| (*depth, *path));
    let mut remaining = MAX_FIRST_BYTES;
    let fits = |(_, path, _): &(usize, &str, &Meta)| {
        remaining
            .checked_sub(path.len())
            .map(|left| remaining = left)
            .is_some()
    };
    let listed = sorted.into_iter().take(MAX_FIRST).take_while(fits);
    listed
        .map(|(_, path, meta)| ContainedEntry {
            path: path.to_owned(),
            kind: match meta.kind {
                Kind::File => EntryKind::File,
                Kind::Directory => EntryKind::Directory,
                Kind::Link => EntryKind::Link,
                Kind::Special => EntryKind::Special,
            },
            bytes: if meta.kind == Kind::File { meta.len } else { 0 },
        })
        .collect()
}
