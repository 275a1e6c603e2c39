//! Review of a call: its changes with the first rows, and further rows on demand, as data for a page.

mod marks;
mod rows;

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use self::rows::{LineStyle, Row, of_hunk};
use super::render;
use super::store::Kind;
use crate::effect::{Change, DirectoryContents, Entry, Hunk, Op, ResourceChange};
use crate::id::ToolName;
use crate::path::VirtualPath;

/// Maximum number of rows of one response.
const PAGE_ROWS: usize = 500;
/// Maximum bytes of text of one response, which has at least one row.
const PAGE_BYTES: usize = 256 << 10;
/// Number of rows in the page itself.
const FIRST_ROWS: usize = 400;
const FIRST_BYTES: usize = 128 << 10;
/// Maximum total length of the lines of files that are included in the page completely.
const WHOLE_BYTES: usize = 64 << 10;

/// Information about the call.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct About {
    pub(crate) tool: ToolName,
    /// The names from the outermost worker down.
    pub(crate) agent: Arc<str>,
    pub(crate) intent: String,
    /// Whether it is a preview.
    pub(crate) preview: bool,
}

/// Review of one call.
#[derive(Debug)]
#[doc(hidden)]
pub struct Review {
    about: About,
    /// The directory that paths in the diff are relative to.
    base: VirtualPath,
    /// Without their old texts, which are stored separately so that they can be dropped first.
    changes: Vec<Change>,
    resources: Vec<ResourceChange>,
}

/// The old texts of the changes, in their order.
pub(crate) type OldTexts = Arc<[Option<Bytes>]>;

/// A requested range of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowRange {
    /// Index of the change.
    change: usize,
    first: First,
    count: usize,
    /// Whether to return one row with its whole line.
    whole: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// A row, counted from 0 over all hunks of the change.
    Row(usize),
    /// A line of the old file, counted from 1, between the hunks.
    Old(usize),
}

impl RowRange {
    /// Parses `change=0&from=120` or `change=0&old=57`, with `count` or `whole=1`, in any order.
    pub(crate) fn parse(query: &str) -> Option<Self> {
        let (mut change, mut from, mut old, mut count, mut whole) = (None, None, None, None, None);
        for pair in query.split('&') {
            let (key, value) = pair.split_once('=')?;
            let slot = match key {
                "change" => &mut change,
                "from" => &mut from,
                "old" => &mut old,
                "count" => &mut count,
                "whole" => &mut whole,
                _ => return None,
            };
            let plain = value.len() <= 9 && value.bytes().all(|digit| digit.is_ascii_digit());
            let number = value.parse().ok().filter(|_| plain && slot.is_none())?;
            *slot = Some(number);
        }
        let first = match (from, old) {
            (Some(from), None) => First::Row(from),
            (None, Some(old)) if old > 0 => First::Old(old),
            _ => return None,
        };
        let whole = whole == Some(1);
        let count = if whole { 1 } else { count.unwrap_or(PAGE_ROWS) };
        Some(Self {
            change: change?,
            first,
            count: count.clamp(1, PAGE_ROWS),
            whole,
        })
    }
}

#[derive(Serialize)]
struct Data<'r> {
    version: u8,
    /// URI of the call's artifacts; with `.rows` it returns further rows.
    uri: &'r str,
    #[serde(flatten)]
    about: &'r About,
    added: usize,
    removed: usize,
    changes: Vec<Item<'r>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    resources: &'r [ResourceChange],
}

#[derive(Serialize)]
struct Item<'r> {
    path: &'r VirtualPath,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'r VirtualPath>,
    op: Op,
    before: Entry,
    after: Entry,
    added: usize,
    removed: usize,
    binary: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    binary_type: Option<&'static str>,
    /// Contents of a directory that is deleted, moved or copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    contents: Option<&'r DirectoryContents>,
    /// Whether it is too large to compare.
    large: bool,
    hidden: bool,
    /// Each hunk is `[old_start, old_lines, new_start, new_lines]`, followed by the numbers of kept, removed and added
    /// lines, which repeat until the end of the hunk.
    hunks: Vec<Vec<usize>>,
    /// Number of lines of the old file, if those between the hunks are available; otherwise 0.
    old_lines: usize,
    /// The first rows.
    rows: Vec<Row>,
    /// All lines of the old file, if there are few.
    #[serde(skip_serializing_if = "Option::is_none")]
    around: Option<Vec<Row>>,
}

#[derive(Serialize)]
struct Page {
    change: usize,
    rows: Vec<Row>,
    /// Where to continue, if there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<usize>,
}

impl Review {
    /// The review of a call, and the old texts of its changes.
    pub(crate) fn new(
        about: About,
        base: VirtualPath,
        mut changes: Vec<Change>,
        resources: Vec<ResourceChange>,
    ) -> (Self, OldTexts) {
        let around = changes.iter_mut().map(|change| change.diff.old.take());
        let around = around.collect();
        let review = Self {
            about,
            base,
            changes,
            resources,
        };
        (review, around)
    }

    /// The kinds of artifacts that are rendered from it. The page shows files only.
    pub(super) fn kinds(&self) -> &'static [Kind] {
        if self.changes.is_empty() {
            &[Kind::Diff, Kind::Json]
        } else {
            &[Kind::Review, Kind::Diff, Kind::Json]
        }
    }

    /// The changes as a unified diff.
    pub(super) fn diff(&self) -> String {
        render::diff(&self.changes, &self.resources, &self.base)
    }

    /// The changes for programs.
    pub(super) fn json(&self) -> Result<String, serde_json::Error> {
        render::json(&self.changes, &self.resources)
    }

    /// Approximate size in bytes, without the old texts.
    pub(crate) fn size(&self) -> usize {
        let hunks = self
            .changes
            .iter()
            .flat_map(|change| change.diff.hunks.iter());
        let lines = hunks.flat_map(|hunk| &hunk.lines);
        let lines: usize = lines.map(|line| line.text.len() + size_of_val(line)).sum();
        let listed = self.changes.iter().filter_map(|change| {
            let first = &change.diff.contents.as_ref()?.first;
            Some(
                first
                    .iter()
                    .map(|entry| entry.path.len() + size_of_val(entry)),
            )
        });
        let listed: usize = listed.flatten().sum();
        let resources: usize = self.resources.iter().map(ResourceChange::size).sum();
        lines
            + listed
            + resources
            + self.changes.len() * size_of::<Change>()
            + self.about.intent.len()
    }

    /// The data of the page, as JSON.
    pub(crate) fn data(&self, uri: &str, around: &OldTexts) -> Result<String, serde_json::Error> {
        let (mut rows, mut bytes) = (FIRST_ROWS, FIRST_BYTES);
        let held = around.iter().flatten().map(Bytes::len).sum::<usize>() <= WHOLE_BYTES;
        let texts = around.iter().map(Some).chain(std::iter::repeat(None));
        let items = self.changes.iter().zip(texts).map(|(change, old)| {
            let first = self.rows_from(change, 0, rows, bytes, false);
            rows -= first.len();
            let shown: usize = first.iter().map(|row| row.text.len()).sum();
            bytes = bytes.saturating_sub(shown);
            item(change, first, old.and_then(Option::as_ref), held)
        });
        let changes: Vec<Item<'_>> = items.collect();
        serde_json::to_string(&Data {
            version: 1,
            uri,
            about: &self.about,
            added: changes.iter().map(|item| item.added).sum(),
            removed: changes.iter().map(|item| item.removed).sum(),
            changes,
            resources: &self.resources,
        })
    }

    /// The requested rows as JSON; `None` if the change or row does not exist, or its old text was dropped.
    pub(crate) fn rows(
        &self,
        wanted: RowRange,
        around: &OldTexts,
    ) -> Option<Result<String, serde_json::Error>> {
        let change = self.changes.get(wanted.change)?;
        let (rows, next) = match wanted.first {
            First::Row(from) => {
                let rows = self.rows_from(change, from, wanted.count, PAGE_BYTES, wanted.whole);
                let next = from + rows.len();
                (rows, (next < count(&change.diff.hunks)).then_some(next))
            }
            First::Old(from) => {
                let old = around.get(wanted.change)?.as_ref()?;
                let rows = between(change, old, from, wanted.count, wanted.whole)?;
                let next = from + rows.len();
                (rows, (next <= line_count(old)).then_some(next))
            }
        };
        if rows.is_empty() {
            return None;
        }
        let page = Page {
            change: wanted.change,
            rows,
            next,
        };
        Some(serde_json::to_string(&page))
    }

    /// At most `count` rows and about `bytes` of text, from the row `from`.
    fn rows_from(
        &self,
        change: &Change,
        from: usize,
        count: usize,
        bytes: usize,
        whole: bool,
    ) -> Vec<Row> {
        let style = LineStyle::of(whole);
        let end = from.saturating_add(if bytes == 0 { 0 } else { count });
        let (mut rows, mut start) = (Vec::new(), 0);
        for hunk in change.diff.hunks.iter() {
            let length = hunk.lines.len();
            if start + length > from && start < end {
                let (first, last) = (from.saturating_sub(start), (end - start).min(length));
                rows.extend(of_hunk(hunk, first, last, style));
            }
            start += length;
        }
        truncate_rows(rows, bytes)
    }

    /// Returns whether it is a preview.
    #[doc(hidden)]
    pub fn is_preview(&self) -> bool {
        self.about.preview
    }

    #[doc(hidden)]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }
}

fn item<'r>(change: &'r Change, rows: Vec<Row>, old: Option<&Bytes>, held: bool) -> Item<'r> {
    let diff = &change.diff;
    let old_lines = old.map_or(0, |old| line_count(old));
    let around = old.filter(|_| held);
    Item {
        path: &change.path,
        to: change.to.as_ref(),
        op: change.op,
        before: change.before,
        after: change.after,
        added: diff.added,
        removed: diff.removed,
        binary: diff.binary,
        binary_type: diff.binary_type,
        contents: diff.contents.as_ref(),
        large: diff.large,
        hidden: diff.hidden,
        hunks: diff.hunks.iter().map(shape).collect(),
        old_lines,
        rows,
        around: around.and_then(|old| between(change, old, 1, old_lines, false)),
    }
}

/// Position of a hunk, and its runs of kept, removed and added lines.
fn shape(hunk: &Hunk) -> Vec<usize> {
    let mut shape = vec![
        hunk.old_start,
        hunk.old_lines,
        hunk.new_start,
        hunk.new_lines,
    ];
    let mut lines = hunk.lines.iter().map(|line| line.op).peekable();
    while lines.peek().is_some() {
        shape
            .extend([' ', '-', '+'].map(|op| std::iter::from_fn(|| lines.next_if_eq(&op)).count()));
    }
    shape
}

fn count(hunks: &[Hunk]) -> usize {
    hunks.iter().map(|hunk| hunk.lines.len()).sum()
}

fn line_count(text: &[u8]) -> usize {
    let ends = text.iter().filter(|byte| **byte == b'\n').count();
    ends + usize::from(text.last().is_some_and(|byte| *byte != b'\n'))
}

/// The rows up to `bytes` of text, at least one.
fn truncate_rows(mut rows: Vec<Row>, bytes: usize) -> Vec<Row> {
    let mut held = 0;
    let over = rows.iter().position(|row| {
        held += row.text.len();
        held > bytes
    });
    if let Some(over) = over {
        rows.truncate(over.max(1));
    }
    rows
}

/// Lines of the old file from `from` on, with their numbers in both files; those in hunks are numbered as if kept.
fn between(
    change: &Change,
    old: &Bytes,
    from: usize,
    count: usize,
    whole: bool,
) -> Option<Vec<Row>> {
    let text = std::str::from_utf8(old).ok()?;
    let style = LineStyle::of(whole);
    let mut hunks = change.diff.hunks.iter().peekable();
    let (mut passed, mut made) = (0, 0);
    let lines = text.split_inclusive('\n').zip(1..);
    let lines = lines.skip(from.saturating_sub(1)).take(count);
    let rows = lines.map(|(line, number)| {
        let ends =
            |hunk: &&Hunk| hunk.old_start + usize::from(hunk.old_lines == 0) + hunk.old_lines;
        while let Some(hunk) = hunks.next_if(|hunk| ends(hunk) <= number) {
            passed += hunk.old_lines;
            made += hunk.new_lines;
        }
        style.row(' ', (number, (number + made).saturating_sub(passed)), line)
    });
    Some(truncate_rows(rows.collect(), PAGE_BYTES))
}

#[cfg(test)]
mod tests;
