//! Selects lines of a text, within limits, and counts the rest.

use std::io::Write as _;

use bailiwick::{CallError, Code};

use super::ReadFileArgs;

/// Default number of lines.
const DEFAULT_LINES: u64 = 2_000;
/// Default number of bytes.
const DEFAULT_BYTES: u64 = 100_000;

/// Which lines to return.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineSelection {
    /// The first line, from 1; negative counts from the end.
    pub(super) offset: i64,
    pub(super) limit: u64,
    pub(super) max_bytes: u64,
    pub(super) line_numbers: bool,
}

impl LineSelection {
    /// The selection of these arguments, or the defaults.
    pub(super) fn of(args: &ReadFileArgs) -> Self {
        Self {
            offset: args.offset.unwrap_or(1),
            limit: args.limit.unwrap_or(DEFAULT_LINES),
            max_bytes: args.max_bytes.unwrap_or(DEFAULT_BYTES),
            line_numbers: args.line_numbers,
        }
    }

    /// Whether the selection is the whole text, unchanged.
    pub(super) fn is_whole(&self, length: usize, lines: u64) -> bool {
        let fits = u64::try_from(length).is_ok_and(|length| length <= self.max_bytes);
        fits && self.offset == 1 && lines <= self.limit && !self.line_numbers
    }

    /// The first selected line and the line after the last one, in a text with that many lines.
    pub(super) fn range(&self, lines: u64) -> Result<(u64, u64), CallError> {
        let first = match u64::try_from(self.offset) {
            Ok(first) => first,
            Err(_) => (lines + 1)
                .saturating_sub(self.offset.unsigned_abs())
                .max(1),
        };
        if first > lines.max(1) {
            let message = format!("line {first} does not exist: the file has {lines} lines");
            return Err(CallError::new(Code::InvalidArguments, message).with("lines", lines));
        }
        Ok((first, first.saturating_add(self.limit)))
    }
}

/// The number of lines of a text.
pub(super) fn count_lines(text: &[u8]) -> u64 {
    let ends = memchr::memchr_iter(b'\n', text).count();
    let open = text.last().is_some_and(|last| *last != b'\n');
    u64::try_from(ends).unwrap_or(u64::MAX) + u64::from(open)
}

/// Collects lines from chunks of a text.
pub(super) struct LineCollector {
    first: u64,
    end: u64,
    selection: LineSelection,
    /// The current line.
    line: u64,
    /// Whether the current line has any bytes yet.
    begun: bool,
    /// Where the current line begins in `output`.
    line_start: usize,
    output: Vec<u8>,
    full: bool,
    line_cut: bool,
    last: u64,
}

/// The collected lines and totals.
pub(super) struct CollectedLines {
    pub(super) text: Vec<u8>,
    pub(super) last: u64,
    pub(super) line_cut: bool,
    /// Number of lines of the text.
    pub(super) lines: u64,
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
            output: Vec::new(),
            full: false,
            line_cut: false,
            last: first.saturating_sub(1),
        }
    }

    pub(super) fn feed(&mut self, chunk: &[u8]) {
        let mut rest = chunk;
        while !rest.is_empty() {
            if self.is_done() {
                // Further lines are only counted.
                let ends = memchr::memchr_iter(b'\n', rest).count();
                self.line += u64::try_from(ends).unwrap_or(u64::MAX);
                self.begun = rest.last() != Some(&b'\n');
                return;
            }
            let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
            let (part, more) = rest.split_at(end);
            rest = more;
            if self.line >= self.first && self.line < self.end && !self.full {
                self.keep(part);
            }
            self.begun = !part.ends_with(b"\n");
            self.line += u64::from(!self.begun);
        }
    }

    /// Whether further text is only counted.
    pub(super) fn is_done(&self) -> bool {
        self.full || self.line >= self.end
    }

    fn keep(&mut self, part: &[u8]) {
        if !self.begun {
            self.line_start = self.output.len();
            if self.selection.line_numbers {
                let _ = write!(self.output, "{}\t", self.line);
            }
        }
        let max = usize::try_from(self.selection.max_bytes).unwrap_or(usize::MAX);
        let budget = max.saturating_sub(self.output.len());
        if part.len() <= budget {
            self.output.extend_from_slice(part);
            self.last = self.line;
            return;
        }
        self.full = true;
        if self.line > self.first {
            // A line is returned whole or not at all.
            self.output.truncate(self.line_start);
            self.last = self.line - 1;
        } else {
            // The first selected line is cut instead.
            self.output
                .extend_from_slice(part.get(..budget).unwrap_or(part));
            self.line_cut = true;
            self.last = self.line;
        }
    }

    pub(super) fn finish(mut self) -> CollectedLines {
        if self.line_cut {
            let complete = match std::str::from_utf8(&self.output) {
                Err(error) if error.error_len().is_none() => error.valid_up_to(),
                _ => self.output.len(),
            };
            self.output.truncate(complete);
        }
        CollectedLines {
            text: self.output,
            last: self.last,
            line_cut: self.line_cut,
            lines: self.line - u64::from(!self.begun),
        }
    }
}

/// The error for a read that failed.
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
        fn ranges_are_independent_of_chunks(
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
            let mut collector = LineCollector::new(selection, range);
            text.as_bytes().chunks(chunk).for_each(|chunk| collector.feed(chunk));
            let collected = collector.finish();
            let expected: String = text.split_inclusive('\n')
                .zip(1..).filter(|(_, n)| (range.0..range.1).contains(n)).map(|(line, _)| line).collect();
            prop_assert_eq!(String::from_utf8(collected.text).unwrap(), expected);
            prop_assert_eq!(collected.lines, lines);
        }

        #[test]
        fn byte_limit_gives_whole_lines_or_a_cut_first_line(text in "[aé\n]{1,40}", max in 1_u64..30, chunk in 1_usize..9) {
            let mut collector = LineCollector::new(selection(1, None, max), (1, u64::MAX));
            text.as_bytes().chunks(chunk).for_each(|chunk| collector.feed(chunk));
            let collected = collector.finish();
            let got = String::from_utf8(collected.text).unwrap();
            prop_assert!(got.len() as u64 <= max);
            prop_assert!(text.starts_with(&got));
            prop_assert!(collected.line_cut || got.is_empty() || got == text || got.ends_with('\n'));
            prop_assert!(!collected.line_cut || collected.last == 1);
        }
    }
}
