//! A text and old text in, the places where it stands out: exactly, but for line endings, or but for indentation.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};

use super::indent::{BLANKS, Indent, indent, trimmed};
use super::line_index::LineIndex;
use super::{Edit, MatchStrategy, Replacement};
use crate::text::{Ending, Line, Text};

/// Lines that all edits of a call together may compare and fit in the search for re-indented text, so that no input makes
/// it slow.
const MAX_COMPARED: usize = 4_000_000;
/// Places that one text may stand in, and all edits of a call may change.
pub(super) const MAX_MATCHES: usize = 100_000;
/// Bytes of new text that all edits together may fit to places that differ in indentation.
const MAX_FITTED: usize = 64 << 20;

/// Old text stands in so many places that to hold them would fill the memory.
#[derive(Debug)]
pub(super) struct TooManyMatches;

/// A text prepared for many searches.
#[derive(Debug)]
pub(super) struct SearchText<'t> {
    pub(super) text: &'t Text<'t>,
    /// The text with `\n` for each line ending.
    plain: Cow<'t, str>,
    /// Where, in `plain`, a `\r` was left out before the `\n`.
    left_out: Vec<usize>,
    /// Its lines but for blanks, once an edit is looked for that way.
    index: OnceCell<LineIndex<'t>>,
    /// What is left of [`MAX_COMPARED`] and [`MAX_FITTED`].
    comparisons: Cell<usize>,
    fitting: Cell<usize>,
}

/// A place where old text stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextMatch {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) strategy: MatchStrategy,
    replacement: ReplacementText,
}

/// How the new text is fitted in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReplacementText {
    /// As it is: the edit names carriage returns itself.
    Literal,
    /// With the line endings of the place; `explicit` carriage returns stay.
    Endings { explicit: bool },
    /// As these lines.
    Lines(Vec<NewLine>),
}

/// A line of the new text, fitted to its place.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NewLine {
    /// The line of the file with this index, as it stands there.
    Existing(usize),
    /// This content.
    New(String),
}

impl<'t> SearchText<'t> {
    pub(super) fn of(text: &'t Text<'t>) -> Self {
        let source = text.as_str();
        let classic = text.lines().iter().any(|line| line.ending == Ending::Cr);
        let mut left_out = Vec::new();
        let plain = if classic {
            Cow::Owned(source.replace('\r', "\n"))
        } else if source.contains("\r\n") {
            for (index, (at, _)) in source.match_indices("\r\n").enumerate() {
                left_out.push(at - index);
            }
            Cow::Owned(source.replace("\r\n", "\n"))
        } else {
            Cow::Borrowed(source)
        };
        Self {
            text,
            plain,
            left_out,
            index: OnceCell::new(),
            comparisons: Cell::new(MAX_COMPARED),
            fitting: Cell::new(MAX_FITTED),
        }
    }

    /// How many lines were compared and fitted so far.
    #[cfg(test)]
    pub(super) fn compared(&self) -> usize {
        MAX_COMPARED - self.comparisons.get()
    }

    /// Every place where `old` stands, in order; places may overlap. The first way that finds one counts.
    ///
    /// # Errors
    /// [`TooManyMatches`]
    pub(super) fn locate(&self, old: &str, new: &str) -> Result<Vec<TextMatch>, TooManyMatches> {
        let explicit = old.contains('\r');
        if explicit {
            let found = self.exact(old)?;
            if !found.is_empty() {
                return Ok(found);
            }
        }
        let plain = old.replace("\r\n", "\n");
        let found = self.ignoring_line_endings(&plain, old, !explicit)?;
        if !found.is_empty() {
            return Ok(found);
        }
        self.ignoring_indentation(&plain, &new.replace("\r\n", "\n"))
    }

    /// Every place where the lines of `old` stand as whole lines, whatever ends them.
    ///
    /// # Errors
    /// [`TooManyMatches`]
    pub(super) fn locate_lines(&self, old: &str) -> Result<Vec<TextMatch>, TooManyMatches> {
        let mut found = if old.contains('\r') {
            self.exact(old)?
        } else {
            Vec::new()
        };
        if found.is_empty() {
            let explicit = !old.contains('\r');
            found = self.ignoring_line_endings(&old.replace("\r\n", "\n"), old, explicit)?;
        }
        found.retain(|found| found.is_whole_lines(self.text));
        Ok(found)
    }

    fn exact(&self, old: &str) -> Result<Vec<TextMatch>, TooManyMatches> {
        let source = self.text.as_str();
        let bytes = source.as_bytes();
        // Half of a `\r\n` is never matched: to take it away would leave the other half.
        let splits = |at: usize| {
            at > 0 && bytes.get(at - 1) == Some(&b'\r') && bytes.get(at) == Some(&b'\n')
        };
        let whole = |found: &TextMatch| !splits(found.start) && !splits(found.end);
        let found = occurrences(source, old)?
            .into_iter()
            .map(|start| TextMatch {
                start,
                end: start + old.len(),
                strategy: MatchStrategy::Exact,
                replacement: ReplacementText::Literal,
            });
        Ok(found.filter(whole).collect())
    }

    /// Line endings cannot be seen by who writes the edit, so a place counts whatever they are.
    fn ignoring_line_endings(
        &self,
        plain: &str,
        old: &str,
        explicit: bool,
    ) -> Result<Vec<TextMatch>, TooManyMatches> {
        let found = occurrences(&self.plain, plain)?.into_iter().map(|at| {
            let (start, end) = (self.original(at), self.original(at + plain.len()));
            let exact = self.text.as_str().get(start..end) == Some(old);
            TextMatch {
                start,
                end,
                strategy: if exact {
                    MatchStrategy::Exact
                } else {
                    MatchStrategy::LineEndings
                },
                replacement: ReplacementText::Endings { explicit },
            }
        });
        Ok(found.collect())
    }

    /// The offset in the text of an offset in `plain`.
    fn original(&self, plain: usize) -> usize {
        plain + self.left_out.partition_point(|at| *at < plain)
    }

    /// Whole lines that differ in indentation and trailing blanks alone, all indented by the same rule.
    fn ignoring_indentation(&self, old: &str, new: &str) -> Result<Vec<TextMatch>, TooManyMatches> {
        let (old_ends, old) = whole_lines(old);
        let size = new.len();
        let (new_ends, new) = whole_lines(new);
        if old.iter().all(|line| trimmed(line).is_empty()) {
            return Ok(Vec::new());
        }
        let lines = self.text.lines();
        let content = |line: &Line| self.text.content(*line);
        let index = self
            .index
            .get_or_init(|| LineIndex::of(lines.iter().map(content)));
        let mut found = Vec::new();
        for first in index.positions(&old, |lines| spend(&self.comparisons, lines))? {
            spend(&self.comparisons, old.len() + new.len())?;
            spend(&self.fitting, size)?;
            if found.len() >= MAX_MATCHES {
                return Err(TooManyMatches);
            }
            let here = lines.get(first..first + old.len()).unwrap_or_default();
            let here: Vec<&str> = here.iter().map(content).collect();
            let rule = Indent::between(&old, &here);
            let Some(fitted) = rule.and_then(|rule| fit(&old, &new, first, &rule)) else {
                continue;
            };
            let (Some(begin), Some(last)) = (lines.get(first), lines.get(first + old.len() - 1))
            else {
                continue;
            };
            let mut fitted = fitted;
            // Text without a last line end: what is asked to end a line there ends the file.
            let at_end = last.ending == Ending::None;
            if new_ends && !(old_ends && at_end) {
                fitted.push(NewLine::New(String::new()));
            }
            found.push(TextMatch {
                start: begin.start,
                end: if old_ends { last.next() } else { last.end },
                strategy: MatchStrategy::Whitespace,
                replacement: ReplacementText::Lines(fitted),
            });
        }
        Ok(found)
    }
}

/// Takes `wanted` from a budget.
fn spend(budget: &Cell<usize>, wanted: usize) -> Result<(), TooManyMatches> {
    budget.set(budget.get().checked_sub(wanted).ok_or(TooManyMatches)?);
    Ok(())
}

impl TextMatch {
    /// What stands in this place after `edit`.
    pub(super) fn replacement(&self, edit: &Edit, text: &Text<'_>) -> Replacement {
        let old = text.as_str().get(self.start..self.end).unwrap_or_default();
        let with = match &self.replacement {
            ReplacementText::Literal => edit.new.clone(),
            ReplacementText::Endings { explicit: true } => {
                with_endings(&edit.new, &edit.old, old, text.ending_at(self.start))
            }
            ReplacementText::Endings { explicit: false } => {
                let new = edit.new.replace("\r\n", "\n");
                let plain = edit.old.replace("\r\n", "\n");
                with_endings(&new, &plain, old, text.ending_at(self.start))
            }
            ReplacementText::Lines(lines) => joined(lines, text, text.ending_at(self.start)),
        };
        Replacement {
            start: self.start,
            end: self.end,
            with,
        }
    }

    /// The place after the last byte, for what is added to an empty text.
    pub(super) fn end_of_text(text: &Text<'_>) -> Self {
        let end = text.as_str().len();
        Self {
            start: end,
            end,
            strategy: MatchStrategy::Exact,
            replacement: ReplacementText::Literal,
        }
    }

    /// Whether it begins and ends where lines do.
    fn is_whole_lines(&self, text: &Text<'_>) -> bool {
        let lines = text.lines();
        let begins = |at: usize| lines.binary_search_by_key(&at, |line| line.start).is_ok();
        begins(self.start) && (begins(self.end) || self.end == text.as_str().len())
    }
}

/// Leaves out what overlaps the place before it.
pub(super) fn without_overlaps(found: Vec<TextMatch>) -> Vec<TextMatch> {
    let mut end = 0;
    let apart = found.into_iter().filter(|found| {
        let apart = found.start >= end;
        end = if apart { found.end } else { end };
        apart
    });
    apart.collect()
}

/// The least exact way among `found`.
pub(super) fn least_exact(found: &[TextMatch]) -> MatchStrategy {
    let ways = found.iter().map(|found| found.strategy);
    ways.max().unwrap_or(MatchStrategy::Exact)
}

/// Where `needle` stands in `text`, overlapping places included when they begin in the one before.
fn occurrences(text: &str, needle: &str) -> Result<Vec<usize>, TooManyMatches> {
    let all = text.match_indices(needle).map(|(at, _)| at);
    let apart: Vec<usize> = all.take(MAX_MATCHES + 1).collect();
    if apart.len() > MAX_MATCHES {
        return Err(TooManyMatches);
    }
    // `aa` stands twice in `aaa`: whoever wants the only place must hear of the second.
    let [only] = apart.as_slice() else {
        return Ok(apart);
    };
    let step = needle.chars().next().map_or(1, char::len_utf8);
    let again = text.get(only + step..).and_then(|rest| rest.find(needle));
    let second = again.map(|at| only + step + at);
    Ok(std::iter::once(*only).chain(second).collect())
}

/// `new` with the line endings of `matched`, the place of `old` in the file: lines that old and new
/// share keep theirs, others take that of their neighbour, and `fallback` where the place has none.
fn with_endings(new: &str, old: &str, matched: &str, fallback: Ending) -> String {
    if !new.contains('\n') {
        return new.to_owned();
    }
    let place = Text::of(matched);
    let endings: Vec<Ending> = place.lines().iter().map(|line| line.ending).collect();
    let endings = endings.strip_suffix(&[Ending::None]).unwrap_or(&endings);
    let old: Vec<&str> = old.split('\n').collect();
    let new: Vec<&str> = new.split('\n').collect();
    let (before, after) = shared(&old, &new);
    let last = new.len() - 1;
    let mut out = String::new();
    for (index, line) in new.iter().enumerate() {
        out.push_str(line);
        if index == last {
            break;
        }
        if line.ends_with('\r') {
            out.push('\n');
            continue;
        }
        let from_end = last - index;
        let ending = if index >= before && from_end < after {
            endings
                .len()
                .checked_sub(from_end)
                .and_then(|at| endings.get(at))
        } else {
            endings.get(index.min(endings.len().saturating_sub(1)))
        };
        out.push_str(ending.copied().unwrap_or(fallback).as_str());
    }
    out
}

/// How many lines `old` and `new` share at their beginning and at their end.
fn shared(old: &[&str], new: &[&str]) -> (usize, usize) {
    let same = |(a, b): &(&&str, &&str)| a == b;
    let before = old.iter().zip(new).take_while(same).count();
    let rest = old.len().min(new.len()) - before;
    let backward = old.iter().rev().zip(new.iter().rev());
    (before, backward.take(rest).take_while(same).count())
}

/// Whether `text` ends with a line end, and its lines.
fn whole_lines(text: &str) -> (bool, Vec<&str>) {
    let ends = text.ends_with('\n');
    let body = text.strip_suffix('\n').unwrap_or(text);
    if text.is_empty() {
        return (false, Vec::new());
    }
    (ends, body.split('\n').collect())
}

/// The lines of `new` as they are to stand in the file from line `first` on; none if the rule does not fit one.
fn fit(old: &[&str], new: &[&str], first: usize, rule: &Indent) -> Option<Vec<NewLine>> {
    let (before, after) = shared(old, new);
    let fitted = new.iter().enumerate().map(|(index, line)| {
        let from_end = new.len() - index;
        if index < before {
            return Some(NewLine::Existing(first + index));
        }
        if from_end <= after {
            return Some(NewLine::Existing(first + old.len() - from_end));
        }
        if trimmed(line).is_empty() {
            return Some(NewLine::New(String::new()));
        }
        let indent = rule.apply(indent(line))?;
        Some(NewLine::New(format!(
            "{indent}{}",
            line.trim_start_matches(BLANKS)
        )))
    });
    fitted.collect()
}

/// The lines with the ending each has in the file, or `fallback`; the last one without.
fn joined(lines: &[NewLine], text: &Text<'_>, fallback: Ending) -> String {
    let mut out = String::new();
    let mut ending = None;
    for line in lines {
        if let Some(ending) = ending {
            let ending: Ending = ending;
            out.push_str(ending.as_str());
        }
        match line {
            NewLine::Existing(index) => {
                let kept = text.lines().get(*index).copied();
                out.push_str(kept.map_or("", |kept| text.content(kept)));
                let own = kept.map(|kept| kept.ending);
                ending = own.filter(|own| *own != Ending::None).or(Some(fallback));
            }
            NewLine::New(content) => {
                out.push_str(content);
                ending = Some(fallback);
            }
        }
    }
    out
}
