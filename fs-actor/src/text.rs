//! UTF-8 text with its lines and line endings.

use std::cell::{Cell, OnceCell};

/// Number of line numbers to count before the text is split into lines.
const MAX_COUNTED: u8 = 8;
/// Byte order mark of UTF-8 text.
pub(crate) const BOM: char = '\u{feff}';

/// Why bytes are not text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotText {
    /// A NUL byte.
    #[error("binary data with a NUL at byte {0}")]
    Nul(usize),
    /// Invalid UTF-8.
    #[error("invalid UTF-8 at byte {0}")]
    Encoding(usize),
}

/// A line ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// `\n`
    Lf,
    /// `\r\n`
    CrLf,
    /// `\r` alone, in a file without `\n`.
    Cr,
    /// The end of the text.
    None,
}

impl Ending {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Lf => "\n",
            Self::CrLf => "\r\n",
            Self::Cr => "\r",
            Self::None => "",
        }
    }
}

/// One line: start, end of its content, and line ending. Offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) ending: Ending,
}

impl Line {
    /// Start of the next line.
    pub(crate) fn next(self) -> usize {
        self.end + self.ending.as_str().len()
    }
}

/// UTF-8 text with its lines, without conversion.
///
/// A line ends with `\n` or `\r\n`, as in `read_file`, `grep` and `patch`. A lone `\r` ends a line only in a file
/// without `\n`.
#[derive(Clone, Debug)]
pub(crate) struct Text<'t> {
    source: &'t str,
    /// Made when they are needed, since most edits need few of them.
    lines: OnceCell<Vec<Line>>,
    /// Number of line numbers that were counted without them.
    counted: Cell<u8>,
}

impl<'t> Text<'t> {
    /// Parses `bytes` as text.
    ///
    /// # Errors
    /// [`NotText`] for NUL bytes and invalid UTF-8, which are never replaced.
    pub(crate) fn read(bytes: &'t [u8]) -> Result<Self, NotText> {
        if let Some(at) = memchr::memchr(0, bytes) {
            return Err(NotText::Nul(at));
        }
        std::str::from_utf8(bytes)
            .map(Self::of)
            .map_err(|error| NotText::Encoding(error.valid_up_to()))
    }

    /// The text `source`.
    pub(crate) fn of(source: &'t str) -> Self {
        Self {
            source,
            lines: OnceCell::new(),
            counted: Cell::new(0),
        }
    }

    /// Whether its lines end with `\r` alone.
    pub(crate) fn is_classic(&self) -> bool {
        let has = |end| memchr::memchr(end, self.source.as_bytes()).is_some();
        !has(b'\n') && has(b'\r')
    }

    fn split(source: &str) -> Vec<Line> {
        let classic = !source.contains('\n');
        let start = if source.starts_with(BOM) {
            BOM.len_utf8()
        } else {
            0
        };
        let mut lines = Vec::new();
        let mut at = start;
        for found in memchr::memchr_iter(if classic { b'\r' } else { b'\n' }, source.as_bytes()) {
            let content = source.get(at..found).unwrap_or_default();
            let (end, ending) = match (classic, content.ends_with('\r')) {
                (true, _) => (found, Ending::Cr),
                (_, true) => (found - 1, Ending::CrLf),
                (_, false) => (found, Ending::Lf),
            };
            lines.push(Line {
                start: at,
                end,
                ending,
            });
            at = found + 1;
        }
        if at < source.len() {
            lines.push(Line {
                start: at,
                end: source.len(),
                ending: Ending::None,
            });
        }
        lines
    }

    /// The whole text, with its byte order mark.
    pub(crate) fn as_str(&self) -> &'t str {
        self.source
    }

    /// The lines. A last line without a line end counts; there is no empty line after the last line end.
    pub(crate) fn lines(&self) -> &[Line] {
        self.lines.get_or_init(|| Self::split(self.source))
    }

    /// The content of `line`, without its ending.
    pub(crate) fn content(&self, line: Line) -> &'t str {
        self.source.get(line.start..line.end).unwrap_or_default()
    }

    /// The number, from 1, of the line that contains `offset`.
    pub(crate) fn number_of(&self, offset: usize) -> usize {
        if self.lines.get().is_none() && self.counted.get() < MAX_COUNTED {
            self.counted.set(self.counted.get() + 1);
            return self.count_to(offset);
        }
        self.lines()
            .partition_point(|line| line.start <= offset)
            .max(1)
    }

    /// Like [`Text::number_of`], without the lines.
    fn count_to(&self, offset: usize) -> usize {
        let bytes = self.source.as_bytes();
        // There is no line after the last line end.
        let end = offset.min(bytes.len().saturating_sub(1));
        let before = bytes.get(..end).unwrap_or_default();
        let end = if self.is_classic() { b'\r' } else { b'\n' };
        memchr::memchr_iter(end, before).count() + 1
    }

    /// The ending for a line inserted at `offset`: that of the line there, else of the previous line, else `\n`.
    pub(crate) fn ending_at(&self, offset: usize) -> Ending {
        if self.lines.get().is_none()
            && let Some(ending) = self.next_ending(offset)
        {
            return ending;
        }
        let index = self.number_of(offset) - 1;
        let preceding = self.lines().iter().take(index + 1).rev();
        preceding
            .map(|line| line.ending)
            .find(|ending| *ending != Ending::None)
            .unwrap_or(Ending::Lf)
    }
}

impl Text<'_> {
    /// The ending of the line that contains `offset`, if it has one, without the lines.
    fn next_ending(&self, offset: usize) -> Option<Ending> {
        let bytes = self.source.as_bytes();
        let at = memchr::memchr(b'\n', bytes.get(offset..)?)? + offset;
        Some(match at.checked_sub(1).and_then(|at| bytes.get(at)) {
            Some(b'\r') => Ending::CrLf,
            _ => Ending::Lf,
        })
    }
}

/// The number of equal bytes at the beginning and, of the rest, at the end.
pub(crate) fn common_bytes(old: &[u8], new: &[u8]) -> (usize, usize) {
    let before = common_prefix(old, new);
    let rest = (old.get(before..), new.get(before..));
    let after = match rest {
        (Some(old), Some(new)) => common_suffix(old, new),
        _ => 0,
    };
    (before, after)
}

/// Bytes that are compared at once.
const BLOCK: usize = 512;

/// The number of equal bytes at the beginning.
pub(crate) fn common_prefix(old: &[u8], new: &[u8]) -> usize {
    let blocks = old.chunks_exact(BLOCK).zip(new.chunks_exact(BLOCK));
    let equal = BLOCK * blocks.take_while(|(a, b)| a == b).count();
    let rest = old.iter().skip(equal).zip(new.iter().skip(equal));
    equal + rest.take_while(|(a, b)| a == b).count()
}

fn common_suffix(old: &[u8], new: &[u8]) -> usize {
    let blocks = old.rchunks_exact(BLOCK).zip(new.rchunks_exact(BLOCK));
    let equal = BLOCK * blocks.take_while(|(a, b)| a == b).count();
    // `skip` of reversed pairs would visit each of them.
    let (old, new) = (old.iter().rev(), new.iter().rev());
    let rest = old.skip(equal).zip(new.skip(equal));
    equal + rest.take_while(|(a, b)| a == b).count()
}

/// The number of equal elements at the beginning and, of the rest, at the end.
pub(crate) fn common_ends<T: PartialEq>(old: &[T], new: &[T]) -> (usize, usize) {
    let same = |(a, b): &(&T, &T)| a == b;
    let before = old.iter().zip(new).take_while(same).count();
    let rest = old.len().min(new.len()) - before;
    let backward = old.iter().rev().zip(new.iter().rev());
    (before, backward.take(rest).take_while(same).count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(source: &str, expected: &[(&str, Ending)]) {
        let text = Text::of(source);
        let lines = text.lines().iter();
        let got: Vec<_> = lines
            .map(|line| (text.content(*line), line.ending))
            .collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn each_line_keeps_its_own_ending() {
        use Ending::{Cr, CrLf, Lf, None};
        check("a\nb\r\nc", &[("a", Lf), ("b", CrLf), ("c", None)]);
        check("a\r\n\r\n", &[("a", CrLf), ("", CrLf)]);
        check("a\rb\r", &[("a", Cr), ("b", Cr)]);
        check("", &[]);
        check("\n", &[("", Lf)]);
    }

    #[test]
    fn lone_carriage_return_is_a_character_next_to_line_feeds() {
        check(
            "50%\r100%\ndone",
            &[("50%\r100%", Ending::Lf), ("done", Ending::None)],
        );
    }

    #[test]
    fn byte_order_mark_is_in_no_line() {
        check("\u{feff}a\n", &[("a", Ending::Lf)]);
    }

    #[test]
    fn binary_and_other_encodings_are_refused() {
        assert_eq!(Text::read(b"ab\0c").err(), Some(NotText::Nul(2)));
        assert_eq!(Text::read(b"caf\xe9").err(), Some(NotText::Encoding(3)));
        assert_eq!(Text::read(b"a\xff\xfeb\0").err(), Some(NotText::Nul(4)));
        assert_eq!(Text::read("café".as_bytes()).unwrap().as_str(), "café");
    }

    #[test]
    fn new_line_gets_the_ending_of_its_position() {
        let text = Text::of("a\r\nb\nc");
        assert_eq!(text.ending_at(0), Ending::CrLf);
        assert_eq!(text.ending_at(3), Ending::Lf);
        assert_eq!(text.ending_at(5), Ending::Lf);
        assert_eq!(Text::of("one").ending_at(0), Ending::Lf);
    }

    proptest! {
        #[test]
        fn lines_and_endings_concatenate_to_the_text(source in "\u{feff}?[a\r\n\u{e9}]{0,40}") {
            let text = Text::of(&source);
            let mut again = String::new();
            again.extend(source.chars().next().filter(|first| *first == BOM));
            for line in text.lines() {
                again.push_str(text.content(*line));
                again.push_str(line.ending.as_str());
            }
            prop_assert_eq!(again, source);
        }

        #[test]
        fn offset_has_the_number_of_its_line(source in "[a\r\n]{1,40}", at in 0_usize..40) {
            let text = Text::of(&source);
            let at = at % source.len();
            let line = text.lines()[text.number_of(at) - 1];
            prop_assert!(line.start <= at && at < line.next());
        }
    }

    proptest! {
        #![proptest_config(crate::testing::property_config())]

        #[test]
        fn common_bytes_are_those_of_the_slices(
            before in "[ab]{0,40}",
            after in "[ab]{0,40}",
            old in "[abc]{0,4}",
            new in "[abc]{0,4}",
            // Some are longer than a block.
            times in 0..40_usize,
        ) {
            let (before, after) = (before.repeat(times), after.repeat(times));
            let (old, new) = (format!("{before}{old}{after}"), format!("{before}{new}{after}"));
            let (old, new) = (old.as_bytes(), new.as_bytes());
            prop_assert_eq!(common_bytes(old, new), common_ends(old, new));
        }

        #[test]
        fn numbers_and_endings_need_no_lines(source in "(\u{feff})?[a\r\n]{0,12}", offset in 0_usize..16) {
            let offset = offset.min(source.len());
            let split = Text::of(&source);
            split.lines();
            prop_assert_eq!(Text::of(&source).number_of(offset), split.number_of(offset));
            prop_assert_eq!(Text::of(&source).ending_at(offset), split.ending_at(offset));
        }
    }
}
