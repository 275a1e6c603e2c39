//! The bytes of a text and a range of lines in, those lines and the totals out.

use std::io::Write as _;

use bailiwick::{CallError, Code, ContentHash};
use bytes::Bytes;
use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::tools::hash::HashPrefix;

/// How many lines of a file are returned unless others are asked for.
const DEFAULT_LINES: u64 = 2_000;
/// How many bytes of text are returned unless others are asked for.
const DEFAULT_BYTES: u64 = 100_000;

/// Which lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineSelection {
    /// The first line, from 1; negative from the end.
    pub(super) offset: i64,
    pub(super) limit: u64,
    pub(super) max_bytes: u64,
    pub(super) line_numbers: bool,
}

impl LineSelection {
    /// What was asked for, or what a model can take.
    pub(super) fn of(
        offset: Option<i64>,
        limit: Option<u64>,
        max_bytes: Option<u64>,
        line_numbers: bool,
    ) -> Self {
        Self {
            offset: offset.unwrap_or(1),
            limit: limit.unwrap_or(DEFAULT_LINES),
            max_bytes: max_bytes.unwrap_or(DEFAULT_BYTES),
            line_numbers,
        }
    }

    /// Whether it is everything, of so many bytes and lines, as it stands.
    pub(super) fn is_whole(&self, length: usize, lines: u64) -> bool {
        let fits = u64::try_from(length).is_ok_and(|length| length <= self.max_bytes);
        fits && self.offset == 1 && lines <= self.limit && !self.line_numbers
    }

    /// The first line wanted of so many, and the first one no longer wanted.
    pub(super) fn range(&self, lines: u64) -> Result<(u64, u64), CallError> {
        let first = match u64::try_from(self.offset) {
            Ok(first) => first,
            Err(_) => (lines + 1)
                .saturating_sub(self.offset.unsigned_abs())
                .max(1),
        };
        if first > lines.max(1) {
            let message = format!("there is no line {first}: the file has {lines} lines");
            return Err(CallError::new(Code::InvalidArguments, message).with("lines", lines));
        }
        Ok((first, first.saturating_add(self.limit)))
    }
}

/// The hash of a file, computed where it is asked for: a caller in this process that does not look pays nothing. JSON has
/// the first 12 digits.
#[derive(Clone)]
pub enum LazyHash {
    /// Of these bytes.
    Of(Bytes),
    /// This.
    Known(ContentHash),
}

impl LazyHash {
    /// The hash.
    #[must_use]
    pub fn get(&self) -> ContentHash {
        match self {
            Self::Of(bytes) => ContentHash::of(bytes),
            Self::Known(hash) => *hash,
        }
    }
}

impl std::fmt::Debug for LazyHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hash(..)")
    }
}

impl Serialize for LazyHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        HashPrefix::from(self.get()).serialize(serializer)
    }
}

/// How many lines a text has.
pub(super) fn count_lines(text: &[u8]) -> u64 {
    let ends = memchr::memchr_iter(b'\n', text).count();
    let open = text.last().is_some_and(|last| *last != b'\n');
    u64::try_from(ends).unwrap_or(u64::MAX) + u64::from(open)
}

/// Lines being gathered from chunks of a text.
pub(super) struct LineCollector {
    first: u64,
    end: u64,
    selection: LineSelection,
    /// The line that the next byte belongs to.
    line: u64,
    /// Whether that line has any byte yet.
    begun: bool,
    /// Where in `kept` that line begins.
    line_start: usize,
    kept: Vec<u8>,
    full: bool,
    line_cut: bool,
    last: u64,
    hasher: Sha256,
}

/// The lines, and what is left.
pub(super) struct CollectedLines {
    pub(super) text: Vec<u8>,
    pub(super) last: u64,
    pub(super) line_cut: bool,
    /// Lines seen in all.
    pub(super) lines: u64,
    pub(super) hash: ContentHash,
}

impl LineCollector {
    pub(super) fn new(selection: LineSelection, (first, end): (u64, u64)) -> Self {
        Self {
            first,
            end,
            selection,
            line: 1,
            begun: false,
            line_start: 0,
            kept: Vec::new(),
            full: false,
            line_cut: false,
            last: first.saturating_sub(1),
            hasher: Sha256::new(),
        }
    }

    pub(super) fn hash(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    pub(super) fn feed(&mut self, chunk: &[u8]) {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            if self.line >= self.first && self.line < self.end && !self.full {
                self.keep(part);
            }
            self.begun = !part.ends_with(b"\n");
            self.line += u64::from(!self.begun);
        }
    }

    /// Whether what follows can only be counted.
    pub(super) fn is_done(&self) -> bool {
        self.full || self.line >= self.end
    }

    fn keep(&mut self, part: &[u8]) {
        if !self.begun {
            self.line_start = self.kept.len();
            if self.selection.line_numbers {
                // Writing to a Vec does not fail.
                let _ = write!(self.kept, "{}\t", self.line);
            }
        }
        let max = usize::try_from(self.selection.max_bytes).unwrap_or(usize::MAX);
        let budget = max.saturating_sub(self.kept.len());
        if part.len() <= budget {
            self.kept.extend_from_slice(part);
            self.last = self.line;
            return;
        }
        self.full = true;
        if self.line > self.first {
            // A line is given whole or not at all,
            self.kept.truncate(self.line_start);
            self.last = self.line - 1;
        } else {
            // unless it is the only one.
            self.kept
                .extend_from_slice(part.get(..budget).unwrap_or(part));
            self.line_cut = true;
            self.last = self.line;
        }
    }

    pub(super) fn finish(mut self) -> CollectedLines {
        if self.line_cut {
            let whole = match std::str::from_utf8(&self.kept) {
                Err(error) if error.error_len().is_none() => error.valid_up_to(),
                _ => self.kept.len(),
            };
            self.kept.truncate(whole);
        }
        CollectedLines {
            text: self.kept,
            last: self.last,
            line_cut: self.line_cut,
            lines: self.line - u64::from(!self.begun),
            hash: ContentHash::from_bytes(self.hasher.finalize().into()),
        }
    }
}

/// A read that failed half-way.
pub(super) fn failed(error: &std::io::Error) -> CallError {
    CallError::new(Code::Io, format!("reading failed: {}", error.kind()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn selection(offset: i64, limit: Option<u64>, max_bytes: u64) -> LineSelection {
        LineSelection {
            offset,
            limit: limit.unwrap_or(u64::MAX),
            max_bytes,
            line_numbers: false,
        }
    }

    proptest! {
        #![proptest_config(crate::testing::property_config())]

        #[test]
        fn any_range_in_any_chunks_is_those_lines(
            text in "[ab\n]{0,40}", offset in -5_i64..8, limit in prop::option::of(1_u64..5), chunk in 1_usize..9,
        ) {
            let selection = selection(offset, limit, 1000);
            let lines = count_lines(text.as_bytes());
            prop_assert_eq!(lines, text.lines().count() as u64);
            prop_assume!(offset != 0);
            let Ok(range) = selection.range(lines) else {
                prop_assert!(offset as u64 > lines.max(1));
                return Ok(());
            };
            let mut gather = LineCollector::new(selection, range);
            text.as_bytes().chunks(chunk).for_each(|chunk| gather.feed(chunk));
            let collected = gather.finish();
            let expected: String = text.split_inclusive('\n')
                .zip(1..).filter(|(_, n)| (range.0..range.1).contains(n)).map(|(line, _)| line).collect();
            prop_assert_eq!(String::from_utf8(collected.text).unwrap(), expected);
            prop_assert_eq!(collected.lines, lines);
        }

        #[test]
        fn a_limit_of_bytes_gives_whole_lines_or_a_cut_first_one(text in "[aé\n]{1,40}", max in 1_u64..30, chunk in 1_usize..9) {
            let mut gather = LineCollector::new(selection(1, None, max), (1, u64::MAX));
            text.as_bytes().chunks(chunk).for_each(|chunk| gather.feed(chunk));
            let collected = gather.finish();
            let got = String::from_utf8(collected.text).unwrap();
            prop_assert!(got.len() as u64 <= max);
            prop_assert!(text.starts_with(&got));
            prop_assert!(collected.line_cut || got.is_empty() || got == text || got.ends_with('\n'));
            prop_assert!(!collected.line_cut || collected.last == 1);
        }
    }
}
