//! Finds old text in a file: exactly, ignoring line endings, or ignoring indentation.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};

use memchr::memmem;

use super::indent::{BLANKS, Indent, indent, trimmed};
use super::line_index::LineIndex;
use super::{Edit, MatchStrategy, Replacement};
use crate::text::{Ending, Line, Text, common_ends};

/// Maximum number of lines that all edits of a call compare while ignoring indentation.
const MAX_COMPARED: usize = 4_000_000;
/// Maximum number of occurrences of one text, and of replacements per call.
pub(super) const MAX_MATCHES: usize = 100_000;
/// Maximum bytes that all edits of a call search for old texts.
const MAX_SEARCHED: usize = 1 << 30;
/// Maximum bytes of new text that all edits adapt to other indentation.
const MAX_FITTED: usize = 64 << 20;

/// The old text occurs too often.
#[derive(Debug)]
pub(super) struct TooManyMatches;

/// A text prepared for many searches.
#[derive(Debug)]
pub(super) struct SearchText<'t> {
    pub(super) text: &'t Text<'t>,
    /// The text with `\n` for each line ending.
    plain: Cow<'t, str>,
    /// Offsets in `plain` where a `\r` was removed before the `\n`.
    removed_crs: Vec<usize>,
    /// Index of trimmed lines, built on demand.
    index: OnceCell<LineIndex<'t>>,
    /// What remains of [`MAX_COMPARED`], [`MAX_FITTED`] and [`MAX_SEARCHED`].
    comparisons: Cell<usize>,
    fitting: Cell<usize>,
    searching: Cell<usize>,
}

/// An occurrence of the old text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextMatch {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) strategy: MatchStrategy,
    replacement: ReplacementText,
}

/// How the new text is inserted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReplacementText {
    /// Unchanged: the edit contains carriage returns itself.
    Literal,
    /// With the line endings of the occurrence; `explicit` carriage returns are kept.
    Endings { explicit: bool },
    /// As these lines.
    Lines(Vec<NewLine>),
}

/// A line of the new text, adapted to the file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NewLine {
    /// The line of the file with this index.
    Existing(usize),
    /// New content.
    New(String),
}

impl<'t> SearchText<'t> {
    pub(super) fn of(text: &'t Text<'t>) -> Self {
        let source = text.as_str();
        let classic = text.is_classic();
        let mut removed_crs = Vec::new();
        let plain = if classic {
            Cow::Owned(source.replace('\r', "\n"))
        } else if memchr::memchr(b'\r', source.as_bytes()).is_some() {
            for (index, (at, _)) in source.match_indices("\r\n").enumerate() {
                removed_crs.push(at - index);
            }
            Cow::Owned(source.replace("\r\n", "\n"))
        } else {
            Cow::Borrowed(source)
        };
        Self {
            text,
            plain,
            removed_crs,
            index: OnceCell::new(),
            comparisons: Cell::new(MAX_COMPARED),
            fitting: Cell::new(MAX_FITTED),
            searching: Cell::new(MAX_SEARCHED),
        }
    }

    /// Number of lines compared and adapted so far.
    #[cfg(test)]
    pub(super) fn compared(&self) -> usize {
        MAX_COMPARED - self.comparisons.get()
    }

    /// All occurrences of `old`, in order; they may overlap. Uses the most exact method that finds any.
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

    /// All occurrences of `old` as whole lines, with any line ending.
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

    /// The occurrence of `old` as the whole lines from the one with this index on, with any line ending.
    pub(super) fn lines_at(&self, old: &str, first: usize) -> Option<TextMatch> {
        let plain = old.replace("\r\n", "\n");
        let lines = self.text.lines().get(first..)?;
        let mut end = lines.first()?.start;
        let start = end;
        let mut lines = lines.iter();
        for part in plain.split_inclusive('\n') {
            let line = *lines.next()?;
            let content = part.strip_suffix('\n');
            let same = self.text.content(line) == content.unwrap_or(part);
            if !same || content.is_some() != (line.ending != Ending::None) {
                return None;
            }
            end = line.next();
        }
        let exact = self.text.as_str().get(start..end) == Some(old);
        let explicit = old.contains('\r');
        Some(TextMatch {
            start,
            end,
            strategy: if exact {
                MatchStrategy::Exact
            } else {
                MatchStrategy::LineEndings
            },
            replacement: if exact && explicit {
                ReplacementText::Literal
            } else {
                ReplacementText::Endings {
                    explicit: !explicit,
                }
            },
        })
    }

    fn exact(&self, old: &str) -> Result<Vec<TextMatch>, TooManyMatches> {
        let source = self.text.as_str();
        let bytes = source.as_bytes();
        // Half of a `\r\n` never matches, since the other half would remain.
        let splits = |at: usize| {
            at > 0 && bytes.get(at - 1) == Some(&b'\r') && bytes.get(at) == Some(&b'\n')
        };
        let whole = |found: &TextMatch| !splits(found.start) && !splits(found.end);
        let found = self
            .occurrences(source, old)?
            .into_iter()
            .map(|start| TextMatch {
                start,
                end: start + old.len(),
                strategy: MatchStrategy::Exact,
                replacement: ReplacementText::Literal,
            });
        Ok(found.filter(whole).collect())
    }

    /// Occurrences with any line endings, which a model cannot see.
    fn ignoring_line_endings(
        &self,
        plain: &str,
        old: &str,
        explicit: bool,
    ) -> Result<Vec<TextMatch>, TooManyMatches> {
        let found = self.occurrences(&self.plain, plain)?.into_iter().map(|at| {
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

    /// All occurrences of `needle` in `text`, overlapping ones included.
    fn occurrences(&self, text: &str, needle: &str) -> Result<Vec<usize>, TooManyMatches> {
        spend(&self.searching, text.len())?;
        let finder = memmem::Finder::new(needle);
        let all = finder.find_iter(text.as_bytes());
        let positions: Vec<usize> = all.take(MAX_MATCHES + 1).collect();
        if positions.len() > MAX_MATCHES {
            return Err(TooManyMatches);
        }
        // `aa` occurs twice in `aaa`, so the text is ambiguous.
        let [only] = positions.as_slice() else {
            return Ok(positions);
        };
        let step = needle.chars().next().map_or(1, char::len_utf8);
        // Another occurrence overlaps this one, since there is none after it.
        let end = (only + 2 * needle.len()).min(text.len());
        let overlapping = text.as_bytes().get(only + step..end);
        let second = overlapping.and_then(|rest| finder.find(rest));
        let second = second.map(|at| only + step + at);
        Ok(std::iter::once(*only).chain(second).collect())
    }

    /// Converts an offset in `plain` to one in the text.
    fn original(&self, plain: usize) -> usize {
        plain + self.removed_crs.partition_point(|at| *at < plain)
    }

    /// Occurrences of whole lines that differ only by trailing blanks and one indentation rule.
    fn ignoring_indentation(&self, old: &str, new: &str) -> Result<Vec<TextMatch>, TooManyMatches> {
        let (old_ends, old) = whole_lines(old);
        let size = new.len();
        let (new_ends, new) = whole_lines(new);
        if old.iter().all(|line| trimmed(line).is_empty()) {
            return Ok(Vec::new());
        }
        let content = |line: &Line| self.text.content(*line);
        if self.index.get().is_none() {
            let ends = memchr::memchr2_iter(b'\n', b'\r', self.text.as_str().as_bytes());
            if ends.count() > MAX_COMPARED {
                return Err(TooManyMatches);
            }
        }
        let lines = self.text.lines();
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
            let actual = lines.get(first..first + old.len()).unwrap_or_default();
            let actual: Vec<&str> = actual.iter().map(content).collect();
            let rule = Indent::between(&old, &actual);
            let Some(fitted) = rule.and_then(|rule| fit(&old, &new, first, &rule)) else {
                continue;
            };
            let (Some(begin), Some(last)) = (lines.get(first), lines.get(first + old.len() - 1))
            else {
                continue;
            };
            let mut fitted = fitted;
            // If the file has no final line end, neither has the replacement of its last line.
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
    /// The replacement of this occurrence.
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

    /// An empty occurrence at the end of the text.
    pub(super) fn end_of_text(text: &Text<'_>) -> Self {
        let end = text.as_str().len();
        Self {
            start: end,
            end,
            strategy: MatchStrategy::Exact,
            replacement: ReplacementText::Literal,
        }
    }

    /// Whether it begins and ends at line boundaries.
    fn is_whole_lines(&self, text: &Text<'_>) -> bool {
        let lines = text.lines();
        let begins = |at: usize| lines.binary_search_by_key(&at, |line| line.start).is_ok();
        begins(self.start) && (begins(self.end) || self.end == text.as_str().len())
    }
}

/// Drops occurrences that overlap the previous one.
pub(super) fn without_overlaps(found: Vec<TextMatch>) -> Vec<TextMatch> {
    let mut end = 0;
    let disjoint = found.into_iter().filter(|found| {
        let is_disjoint = found.start >= end;
        end = if is_disjoint { found.end } else { end };
        is_disjoint
    });
    disjoint.collect()
}

/// The least exact strategy among `found`.
pub(super) fn least_exact(found: &[TextMatch]) -> MatchStrategy {
    let strategies = found.iter().map(|found| found.strategy);
    strategies.max().unwrap_or(MatchStrategy::Exact)
}

/// `new` with the line endings of `matched`: common lines of old and new keep theirs, others take that of their
/// neighbour, and `fallback` if there is none.
fn with_endings(new: &str, old: &str, matched: &str, fallback: Ending) -> String {
    if !new.contains('\n') {
        return new.to_owned();
    }
    let matched = Text::of(matched);
    let endings: Vec<Ending> = matched.lines().iter().map(|line| line.ending).collect();
    let endings = endings.strip_suffix(&[Ending::None]).unwrap_or(&endings);
    let old: Vec<&str> = old.split('\n').collect();
    let new: Vec<&str> = new.split('\n').collect();
    let (before, after) = common_ends(&old, &new);
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

/// Whether `text` ends with a line end, and its lines.
fn whole_lines(text: &str) -> (bool, Vec<&str>) {
    let ends = text.ends_with('\n');
    let body = text.strip_suffix('\n').unwrap_or(text);
    if text.is_empty() {
        return (false, Vec::new());
    }
    (ends, body.split('\n').collect())
}

/// The lines of `new`, adapted to the file from line `first` on; `None` if the rule does not fit.
fn fit(old: &[&str], new: &[&str], first: usize, rule: &Indent) -> Option<Vec<NewLine>> {
    let (before, after) = common_ends(old, new);
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

/// The lines with their endings in the file, or `fallback`; the last one without.
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
                let common = text.lines().get(*index).copied();
                out.push_str(common.map_or("", |common| text.content(common)));
                let own = common.map(|common| common.ending);
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
