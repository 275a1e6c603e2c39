//! Text from files, names and models in, text that a terminal, log or dialog shows as it is out.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether `c` can change how the text around it looks, or is looked over: control characters,
/// bidirectional marks, zero-width and other default-ignorable characters, line and paragraph separators.
#[must_use]
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns `text` on one line, with every deceptive character written as `\u{..}`.
///
/// ```
/// assert_eq!(bailiwick::escape("a\u{202e}txt\n"), "a\\u{202e}txt\\u{a}");
/// assert_eq!(bailiwick::escape("plain é"), "plain é");
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
    if !text.chars().any(|c| is_deceptive(c) && !keep(c)) {
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
