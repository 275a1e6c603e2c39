//! Escapes text from files, names and models for terminals, logs and dialogs.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

/// Returns whether `c` is invisible or can change how the text around it is displayed: control characters,
/// bidirectional marks, zero-width and other default-ignorable characters, line and paragraph separators.
#[must_use]
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || is_ignorable(c)
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}')
}

/// Whether `c` is a default-ignorable character of Unicode, which is invisible and which file systems may ignore.
pub(crate) fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns `text` on one line, with every deceptive character written as `\u{..}`.
///
/// ```
/// assert_eq!(bailiwick::text::escape("a\u{202e}txt\n"), "a\\u{202e}txt\\u{a}");
/// assert_eq!(bailiwick::text::escape("plain é"), "plain é");
/// ```
#[must_use]
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_but(text, |_| false)
}

/// Like [`escape`], but keeps line breaks and tabs, for text of several lines.
#[must_use]
pub fn escape_lines(text: &str) -> Cow<'_, str> {
    escape_but(text, |c| matches!(c, '\n' | '\t'))
}

fn escape_but(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~');
    if text.bytes().all(is_plain) || !text.chars().any(|c| is_deceptive(c) && !keep(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_deceptive(c) && !keep(c) {
            // Writing to a String does not fail.
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Returns `text`, or its start and end if it has more than `most` characters. The end of a path is its name, so it is
/// kept, and so is that of a command.
#[doc(hidden)]
#[must_use]
pub fn abbreviated(text: &str, most: usize) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= most {
        return Cow::Borrowed(text);
    }
    let head: String = text.chars().take(most / 3).collect();
    let left_out = count - most;
    let tail: String = text.chars().skip(most / 3 + left_out).collect();
    Cow::Owned(format!("{head}[{left_out} characters]{tail}"))
}

/// A number with its noun, such as `1 file` or `2 files`.
pub(crate) fn counted(count: u64, one: &str, several: &str) -> String {
    let noun = if count == 1 { one } else { several };
    format!("{count} {noun}")
}

/// As [`listed`] for the first `most` texts, and how many more there are.
#[must_use]
pub(crate) fn listed_first(
    texts: impl IntoIterator<Item = impl fmt::Display, IntoIter: ExactSizeIterator>,
    between: &str,
    most: usize,
) -> String {
    let texts = texts.into_iter();
    let more = texts.len().saturating_sub(most);
    let first = listed(texts.take(most), between);
    if more == 0 {
        first
    } else {
        format!("{first} and {more} more")
    }
}

/// Returns texts as an escaped list on one line. Each text is quoted if there are several, or if a single text could be
/// mistaken for several.
///
/// ```
/// assert_eq!(bailiwick::text::listed(["/repo/a"], ", "), "/repo/a");
/// assert_eq!(bailiwick::text::listed(["/repo/a, /etc"], ", "), r#""/repo/a, /etc""#);
/// ```
pub fn listed(texts: impl IntoIterator<Item = impl fmt::Display>, between: &str) -> String {
    let mut texts: Vec<String> = texts.into_iter().map(|text| text.to_string()).collect();
    if texts.len() > 1 || texts.iter().any(|text| text.contains([',', '"', ' '])) {
        for text in &mut texts {
            *text = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        }
    }
    escape(&texts.join(between)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::cases;
    use proptest::prelude::*;

    #[test]
    fn list_entries_cannot_be_forged() {
        assert_eq!(listed(["write:file:/r/a"], ", "), "write:file:/r/a");
        assert_eq!(listed(["/r/a", "/r/b"], ", "), r#""/r/a", "/r/b""#);
        assert_eq!(listed(["/r/a, /r/b"], ", "), r#""/r/a, /r/b""#);
        assert_eq!(listed([r#"/r/a", "/r/b"#], ", "), r#""/r/a\", \"/r/b""#);
        assert_eq!(listed(["/r/\\", "x\n"], ", "), r#""/r/\\", "x\u{a}""#);
    }

    #[test]
    fn long_text_keeps_its_start_and_end() {
        assert_eq!(abbreviated("abcdef", 6), "abcdef");
        assert_eq!(abbreviated("abcdefg", 6), "ab[1 characters]defg");
    }

    #[track_caller]
    fn check(text: &str, line: &str, lines: &str) {
        assert_eq!(
            (escape(text).as_ref(), escape_lines(text).as_ref()),
            (line, lines)
        );
    }

    #[test]
    fn control_characters_are_escaped() {
        for code in (0..0x20).chain(0x7f..0xa0) {
            let c = char::from_u32(code).unwrap();
            assert_eq!(escape(&c.to_string()), format!("\\u{{{code:x}}}"));
        }
    }

    #[test]
    fn bidirectional_and_zero_width_characters_are_escaped() {
        for c in "\u{ad}\u{61c}\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2060}\u{2066}\u{2067}\u{2068}\u{2069}\u{feff}\u{fff9}\u{fe0f}\u{e0001}\u{e0041}".chars() {
            assert_eq!(escape(&c.to_string()), format!("\\u{{{:x}}}", u32::from(c)));
        }
    }

    #[test]
    fn pages_use_the_same_deceptive_characters() {
        let ranges = include_str!("../../../ui-assets/web/tests/deceptive.json");
        let ranges: Vec<[String; 2]> = serde_json::from_str(ranges).unwrap();
        let code = |text: &str| u32::from_str_radix(text, 16).unwrap();
        let listed: Vec<_> = ranges
            .iter()
            .map(|[first, last]| code(first)..=code(last))
            .collect();
        for c in '\0'..=char::MAX {
            let expected = listed.iter().any(|range| range.contains(&u32::from(c)));
            assert_eq!(is_deceptive(c), expected, "{:x}", u32::from(c));
        }
    }

    #[test]
    fn ordinary_text_is_unchanged_and_not_copied() {
        for text in ["", "plain", "naïve é", "日本語", "עברית", "🦀", "a\u{a0}b"] {
            assert!(matches!(escape(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn only_multiline_text_keeps_line_breaks_and_tabs() {
        check("a\n\tb", "a\\u{a}\\u{9}b", "a\n\tb");
        check("a\r\nb", "a\\u{d}\\u{a}b", "a\\u{d}\nb");
        check("\u{1b}[2J", "\\u{1b}[2J", "\\u{1b}[2J");
    }

    proptest! {
        #![proptest_config(cases(256))]
        #[test]
        fn escaped_text_has_no_deceptive_characters(text in "\\PC{0,20}[\u{0}-\u{9f}\u{200b}-\u{202e}\u{e0000}-\u{e0080}]{0,20}") {
            prop_assert!(!escape(&text).chars().any(is_deceptive));
            prop_assert!(!escape_lines(&text).chars().any(|c| is_deceptive(c) && c != '\n' && c != '\t'));
        }
    }
}
