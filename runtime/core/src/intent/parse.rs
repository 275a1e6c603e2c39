//! Parses intent templates.

use std::iter::Peekable;
use std::mem;
use std::str::CharIndices;

use unicode_normalization::char::is_combining_mark;

use super::{Key, Segment};

/// Maximum length of a template in bytes.
pub(super) const MAX_BYTES: usize = 4096;
/// Maximum nesting of groups, which bounds recursion over segments.
pub(super) const MAX_DEPTH: usize = 32;

/// Why a text is not a valid template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: {fault}")]
pub struct IntentError {
    /// The position in bytes.
    pub at: usize,
    /// The kind of error.
    pub fault: IntentFault,
}

/// Kind of error of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IntentFault {
    /// It has more than 4096 bytes.
    #[error("the template is longer than {MAX_BYTES} bytes")]
    TooLong,
    /// Groups are nested more than 32 deep.
    #[error("groups are nested more than {MAX_DEPTH} deep")]
    TooDeep,
    /// `{` without `}`.
    #[error("this `{{` is never closed")]
    UnclosedPlaceholder,
    /// `}` without `{`.
    #[error("this `}}` closes nothing; write `\\}}` for the character")]
    StrayBrace,
    /// `[` without `]`.
    #[error("this `[` is never closed")]
    UnclosedGroup,
    /// `]` without `[`.
    #[error("this `]` closes nothing; write `\\]` for the character")]
    StrayBracket,
    /// A key, or a part of it between dots, is empty.
    #[error("the name of an argument or field is missing here")]
    EmptyName,
    /// A character that is invalid in a key at this position.
    #[error("this character cannot stand here in the name of an argument or field")]
    BadName,
}

fn fault<T>(at: usize, fault: IntentFault) -> Result<T, IntentError> {
    Err(IntentError { at, fault })
}

/// The segments of the innermost group so far.
#[derive(Default)]
struct Level {
    segments: Vec<Segment>,
    text: String,
}

impl Level {
    fn push(&mut self, segment: Segment) {
        self.end_text();
        self.segments.push(segment);
    }

    fn end_text(&mut self) {
        if !self.text.is_empty() {
            self.segments.push(Segment::Text(mem::take(&mut self.text)));
        }
    }

    fn finish(mut self) -> Vec<Segment> {
        self.end_text();
        self.segments
    }
}

pub(super) fn segments(source: &str) -> Result<Vec<Segment>, IntentError> {
    if source.len() > MAX_BYTES {
        return fault(MAX_BYTES, IntentFault::TooLong);
    }
    let mut around: Vec<(usize, Level)> = Vec::new();
    let mut here = Level::default();
    let mut chars = source.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                let escaped = chars.next_if(|(_, c)| matches!(c, '{' | '}' | '[' | ']' | '\\'));
                here.text.push(escaped.map_or(c, |(_, c)| c));
            }
            '{' => here.push(Segment::Placeholder(placeholder(&mut chars, at)?)),
            '}' => return fault(at, IntentFault::StrayBrace),
            '[' if around.len() == MAX_DEPTH => return fault(at, IntentFault::TooDeep),
            '[' => around.push((at, mem::take(&mut here))),
            ']' => {
                let Some((_, outer)) = around.pop() else {
                    return fault(at, IntentFault::StrayBracket);
                };
                let group = mem::replace(&mut here, outer).finish();
                here.push(Segment::Group(group));
            }
            _ => here.text.push(c),
        }
    }
    match around.last() {
        Some((at, _)) => fault(*at, IntentFault::UnclosedGroup),
        None => Ok(here.finish()),
    }
}

/// Parses a placeholder after the `{` at `open`, including its `}`.
fn placeholder(chars: &mut Peekable<CharIndices<'_>>, open: usize) -> Result<Key, IntentError> {
    let mut inside = String::new();
    loop {
        match chars.next() {
            Some((_, '}')) => break,
            Some((_, c)) => inside.push(c),
            None => return fault(open, IntentFault::UnclosedPlaceholder),
        }
    }
    let blanks = inside.len() - inside.trim_start().len();
    let mut at = open + 1 + blanks;
    let mut names = Vec::new();
    for name in inside.trim().split('.') {
        check(name, names.is_empty(), at)?;
        at += name.len() + 1;
        names.push(name.to_owned());
    }
    let fields = names.split_off(1);
    Ok(Key {
        name: names.concat(),
        fields,
    })
}

fn check(name: &str, argument: bool, at: usize) -> Result<(), IntentError> {
    if name.is_empty() {
        return fault(at, IntentFault::EmptyName);
    }
    let fits = |index: usize, c: char| {
        let inner = index > 0 || !argument;
        is_letter(c) || matches!(c, '_' | '$') || inner && (c.is_numeric() || c == '-')
    };
    match name.char_indices().find(|&(index, c)| !fits(index, c)) {
        Some((index, _)) => fault(at + index, IntentFault::BadName),
        None => Ok(()),
    }
}

/// Whether `c` is in Unicode's category Letter: alphabetic, except letter-like numbers, marks, and letters in a circle or
/// square.
fn is_letter(c: char) -> bool {
    let symbol = matches!(c, '\u{24b6}'..='\u{24e9}' | '\u{1f130}'..='\u{1f149}' | '\u{1f150}'..='\u{1f169}' | '\u{1f170}'..='\u{1f189}');
    c.is_alphabetic() && !c.is_numeric() && !is_combining_mark(c) && !symbol
}
