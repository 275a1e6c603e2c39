//! Table rows of the hunks of a change.

use serde::ser::{Serialize, SerializeSeq, Serializer};

use super::marks::{MAX_BLOCK, MAX_PAIR, Mark, marks};
use crate::effect::{Hunk, HunkLine};

/// Maximum UTF-16 units of a line unless the whole line is requested.
pub(super) const MAX_UNITS: usize = 2_000;
/// Maximum UTF-16 units of a whole line.
const MAX_WHOLE: usize = 1_000_000;
/// Maximum lines of a block with sides of different length to compare by word.
const MAX_LINES: usize = 200;

/// One line without its line feed. A carriage return before it is kept, as are deceptive characters, which pages show
/// escaped.
///
/// As JSON it is `[kind, old, new, text, marks, cut, end]`. Trailing zeros and empty values are omitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// ` ` for kept, `-` for removed, `+` for added.
    pub(super) kind: char,
    /// The number of the line in the old file; 0 if it is not in it.
    pub(super) old: usize,
    /// The number of the line in the new file; 0 if it is not in it.
    pub(super) new: usize,
    pub(super) text: String,
    pub(super) marks: Vec<Mark>,
    /// The length of the whole line in UTF-16 units, if it was cut; otherwise 0.
    pub(super) cut: usize,
    /// Whether the file ends here without a line end.
    pub(super) open: bool,
}

impl Row {
    /// The text without a carriage return at its end.
    fn line(&self) -> &str {
        self.text.strip_suffix('\r').unwrap_or(&self.text)
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        seq.serialize_element(&self.kind)?;
        seq.serialize_element(&self.old)?;
        seq.serialize_element(&self.new)?;
        seq.serialize_element(&self.text)?;
        if !self.marks.is_empty() || self.cut > 0 || self.open {
            seq.serialize_element(&self.marks)?;
        }
        if self.cut > 0 || self.open {
            seq.serialize_element(&self.cut)?;
        }
        if self.open {
            seq.serialize_element(&1)?;
        }
        seq.end()
    }
}

/// How much of a line is displayed.
#[derive(Clone, Copy)]
pub(super) struct LineStyle {
    most: usize,
}

impl LineStyle {
    pub(super) fn of(whole: bool) -> Self {
        Self {
            most: if whole { MAX_WHOLE } else { MAX_UNITS },
        }
    }

    /// The displayed line, and the length of the whole line if it was cut.
    fn text(self, raw: &str) -> (String, usize) {
        let line = raw.strip_suffix('\n').unwrap_or(raw);
        let units = line.encode_utf16().count();
        if units <= self.most {
            return (line.to_owned(), 0);
        }
        let mut left = self.most;
        let kept = line.chars().take_while(|c| {
            let fits = c.len_utf16() <= left;
            left = left.saturating_sub(c.len_utf16());
            fits
        });
        (kept.collect(), units)
    }

    pub(super) fn row(self, kind: char, (old, new): (usize, usize), raw: &str) -> Row {
        let (text, cut) = self.text(raw);
        Row {
            kind,
            old,
            new,
            text,
            marks: Vec::new(),
            cut,
            open: !raw.ends_with('\n'),
        }
    }
}

/// The rows `from..to` of one hunk.
pub(super) fn of_hunk(hunk: &Hunk, from: usize, to: usize, style: LineStyle) -> Vec<Row> {
    // The position of an empty side is the line before it.
    let mut old = hunk.old_start + usize::from(hunk.old_lines == 0);
    let mut new = hunk.new_start + usize::from(hunk.new_lines == 0);
    let mut rows = Vec::new();
    let mut at = 0;
    while let Some(line) = hunk.lines.get(at).filter(|_| at < to) {
        if line.op == ' ' {
            if at >= from {
                rows.push(style.row(' ', (old, new), &line.text));
            }
            (old, new, at) = (old + 1, new + 1, at + 1);
            continue;
        }
        let removed = run(hunk, at, '-');
        let added = run(hunk, at + removed.len(), '+');
        let block = Block {
            removed,
            added,
            old,
            new,
        };
        let end = at + block.len();
        if end > from {
            let skipped = from.saturating_sub(at);
            rows.extend(block.rows(skipped, to.min(end) - at, style));
        }
        (old, new, at) = (old + removed.len(), new + added.len(), end);
    }
    rows
}

/// The lines of `op` from `at` on.
fn run(hunk: &Hunk, at: usize, op: char) -> &[HunkLine] {
    let rest = hunk.lines.get(at..).unwrap_or_default();
    let end = rest.iter().position(|line| line.op != op);
    rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()
}

/// Removed lines and the lines that replace them.
struct Block<'h> {
    removed: &'h [HunkLine],
    added: &'h [HunkLine],
    old: usize,
    new: usize,
}

impl Block<'_> {
    fn len(&self) -> usize {
        self.removed.len() + self.added.len()
    }

    fn row(&self, at: usize, style: LineStyle) -> Option<Row> {
        let is_removed = at < self.removed.len();
        let (kind, line, numbers) = if is_removed {
            ('-', self.removed.get(at)?, (self.old + at, 0))
        } else {
            let at = at - self.removed.len();
            ('+', self.added.get(at)?, (0, self.new + at))
        };
        Some(style.row(kind, numbers, &line.text))
    }

    /// The rows `from..to`, with the words marked in which they differ.
    fn rows(&self, from: usize, to: usize, style: LineStyle) -> Vec<Row> {
        let (removed, added) = (self.removed.len(), self.added.len());
        let mut rows: Vec<Row> = (from..to).filter_map(|at| self.row(at, style)).collect();
        if removed == added {
            for (at, row) in (from..to).zip(&mut rows) {
                let counterpart = if at < removed {
                    at + removed
                } else {
                    at - removed
                };
                let Some(counterpart) = self.row(counterpart, style) else {
                    continue;
                };
                let (old, new) = if at < removed {
                    (row.line(), counterpart.line())
                } else {
                    (counterpart.line(), row.line())
                };
                let (mut old, mut new) = marks(&[old], &[new], MAX_PAIR);
                let side = if at < removed { &mut old } else { &mut new };
                row.marks = side.pop().unwrap_or_default();
            }
        } else if removed > 0 && added > 0 && self.len() <= MAX_LINES {
            let all: Vec<Row> = (0..self.len())
                .filter_map(|at| self.row(at, style))
                .collect();
            let texts: Vec<&str> = all.iter().map(Row::line).collect();
            if let Some((old, new)) = texts.split_at_checked(removed) {
                let (old, new) = marks(old, new, MAX_BLOCK);
                for (row, marks) in rows.iter_mut().zip(old.into_iter().chain(new).skip(from)) {
                    row.marks = marks;
                }
            }
        }
        rows
    }
}
