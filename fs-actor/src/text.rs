//! UTF-8 text with its lines and line endings.

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
    lines: Vec<Line>,
}

impl<'t> Text<'t> {
    /// Parses `bytes` as text.
    ///
    /// # Errors
    /// [`NotText`] for NUL bytes and invalid UTF-8, which are never replaced.
    pub(crate) fn read(bytes: &'t [u8]) -> Result<Self, NotText> {
        if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
            return Err(NotText::Nul(at));
        }
        std::str::from_utf8(bytes)
            .map(Self::of)
            .map_err(|error| NotText::Encoding(error.valid_up_to()))
    }

    /// Splits `source` into lines.
    pub(crate) fn of(source: &'t str) -> Self {
        let classic = !source.contains('\n');
        let start = if source.starts_with(BOM) {
            BOM.len_utf8()
        } else {
            0
        };
        let mut lines = Vec::new();
        let mut at = start;
        for (found, mark) in source.match_indices(if classic { '\r' } else { '\n' }) {
            let content = source.get(at..found).unwrap_or_default();
            let (end, ending) = match (mark, content.ends_with('\r')) {
                ("\r", _) => (found, Ending::Cr),
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
        Self { source, lines }
    }

    /// The whole text, with its byte order mark.
    pub(crate) fn as_str(&self) -> &'t str {
        self.source
    }

    /// The lines. A last line without a line end counts; there is no empty line after the last line end.
    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The content of `line`, without its ending.
    pub(crate) fn content(&self, line: Line) -> &'t str {
        self.source.get(line.start..line.end).unwrap_or_default()
    }

    /// The number, from 1, of the line that contains `offset`.
    pub(crate) fn number_of(&self, offset: usize) -> usize {
        self.lines
            .partition_point(|line| line.start <= offset)
            .max(1)
    }

    /// The ending for a line inserted at `offset`: that of the line there, else of the previous line, else `\n`.
    pub(crate) fn ending_at(&self, offset: usize) -> Ending {
        let index = self.number_of(offset) - 1;
        let preceding = self.lines.iter().take(index + 1).rev();
        preceding
            .map(|line| line.ending)
            .find(|ending| *ending != Ending::None)
            .unwrap_or(Ending::Lf)
    }
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
}
