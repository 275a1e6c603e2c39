//! Parses unified patches and locates their hunks.

use super::locate::{self, SearchText, TextMatch};
use super::nearest::{self, Nearest};
use super::{Edit, EditError, Occurrences, SHOWN, listed};

/// Why a patch was not applied. Hunks and lines of the patch are numbered from 1.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum PatchError {
    /// The patch has no hunks.
    #[error("the patch has no hunk; a hunk begins with `@@ -<line>,<count> +<line>,<count> @@`")]
    Empty,
    /// A line is invalid in a unified patch.
    #[error("line {line} of the patch is invalid: {reason}")]
    Syntax { line: usize, reason: &'static str },
    /// The line counts in a hunk's header are wrong.
    #[error(
        "hunk {hunk} states {stated_old} old and {stated_new} new lines but has {old} and {new}"
    )]
    Counts {
        hunk: usize,
        stated_old: usize,
        stated_new: usize,
        old: usize,
        new: usize,
    },
    /// The hunk only adds lines, and the file is not empty.
    #[error("hunk {0} has no context; add the lines around the change")]
    NoContext(usize),
    /// Context and removed lines do not occur.
    #[error("the old lines of hunk {hunk} are not in the file{}", nearest::sentence(.nearest.as_ref()))]
    NoMatch {
        hunk: usize,
        nearest: Option<Nearest>,
    },
    /// Context and removed lines are not at the stated line, and occur more than once.
    #[error("the old lines of hunk {hunk} are not at line {stated} and occur {total} times, at lines {}; add context", listed(.lines, *.total))]
    Ambiguous {
        hunk: usize,
        stated: usize,
        lines: Vec<usize>,
        total: usize,
    },
    /// Context and removed lines occur too often.
    #[error("the old lines of hunk {0} occur too often; add context")]
    TooMany(usize),
    /// The hunks cannot be applied together.
    #[error(transparent)]
    Edit(#[from] EditError),
}

/// One hunk with its old and new lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PatchHunk {
    pub(super) edit: Edit,
    old_start: usize,
}

/// Parses the hunks. File names are ignored, since the call names the file.
pub(super) fn parse(patch: &str) -> Result<Vec<PatchHunk>, PatchError> {
    let syntax = |line: usize, reason| PatchError::Syntax {
        line: line + 1,
        reason,
    };
    let lines: Vec<&str> = patch.split_inclusive('\n').collect();
    let mut hunks: Vec<PatchHunk> = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        if line.starts_with("@@") {
            let header = Header::read(line).ok_or_else(|| {
                syntax(
                    at,
                    "a hunk begins with `@@ -<line>,<count> +<line>,<count> @@`",
                )
            })?;
            let (hunk, next) = body(&lines, at + 1, header, hunks.len() + 1)?;
            hunks.push(hunk);
            at = next;
        } else if line.trim().is_empty() || (hunks.is_empty() && is_preamble(line)) {
            at += 1;
        } else if hunks.is_empty() {
            return Err(syntax(at, "expected a file name or a hunk"));
        } else {
            return Err(syntax(
                at,
                "expected one file, and no more lines than the hunk states",
            ));
        }
    }
    if hunks.is_empty() {
        return Err(PatchError::Empty);
    }
    Ok(hunks)
}

/// Locates the old lines of `hunk`: at the stated line, else at the only occurrence.
pub(super) fn locate_edit(
    source: &SearchText<'_>,
    hunk: &PatchHunk,
    number: usize,
) -> Result<TextMatch, PatchError> {
    let Edit { old, .. } = &hunk.edit;
    if old.is_empty() {
        let empty = source.text.lines().is_empty();
        let found = empty.then(|| TextMatch::end_of_text(source.text));
        return found.ok_or(PatchError::NoContext(number));
    }
    // Looked at first, since a search finds no occurrences that overlap others, such as those of empty lines.
    let stated = hunk.old_start.checked_sub(1);
    if let Some(found) = stated.and_then(|first| source.lines_at(old, first)) {
        return Ok(found);
    }
    let mut found = source
        .locate_lines(old)
        .map_err(|locate::TooManyMatches| PatchError::TooMany(number))?;
    let number_of = |found: &TextMatch| source.text.number_of(found.start);
    if found.len() > 1 {
        return Err(PatchError::Ambiguous {
            hunk: number,
            stated: hunk.old_start,
            lines: found.iter().map(number_of).take(SHOWN).collect(),
            total: found.len(),
        });
    }
    found.pop().ok_or_else(|| PatchError::NoMatch {
        hunk: number,
        nearest: nearest::find(source.text, old),
    })
}

fn is_preamble(line: &str) -> bool {
    let starts = [
        "--- ",
        "+++ ",
        "diff ",
        "index ",
        "new file mode ",
        "old mode ",
        "new mode ",
        "Index: ",
        "====",
    ];
    starts.iter().any(|start| line.starts_with(start))
}

/// The header of a hunk.
#[derive(Clone, Copy)]
struct Header {
    old_start: usize,
    old_lines: usize,
    new_lines: usize,
}

impl Header {
    fn read(line: &str) -> Option<Self> {
        let ranges = line.strip_prefix("@@ -")?;
        let (ranges, _) = ranges.split_once(" @@")?;
        let (old, new) = ranges.split_once(" +")?;
        let (old_start, old_lines) = range(old)?;
        let (_, new_lines) = range(new)?;
        Some(Self {
            old_start,
            old_lines,
            new_lines,
        })
    }
}

fn range(text: &str) -> Option<(usize, usize)> {
    let (start, count) = text.split_once(',').unwrap_or((text, "1"));
    let number = |digits: &str| {
        let plain = digits.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| digits.parse().ok()).flatten()
    };
    Some((number(start)?, number(count)?))
}

/// Parses the lines of a hunk; returns the index of the next hunk.
fn body(
    lines: &[&str],
    mut at: usize,
    header: Header,
    hunk: usize,
) -> Result<(PatchHunk, usize), PatchError> {
    let (mut old, mut new) = (Side::default(), Side::default());
    while let Some(line) = lines.get(at) {
        let full = old.lines >= header.old_lines && new.lines >= header.new_lines;
        let rest = line.get(1..).unwrap_or_default();
        match line.as_bytes().first() {
            Some(b'\\') => {
                let previous = lines.get(at - 1).and_then(|line| line.as_bytes().first());
                old.remove_line_end(matches!(previous, Some(b' ' | b'-')));
                new.remove_line_end(matches!(previous, Some(b' ' | b'+')));
            }
            _ if full => break,
            Some(b' ') => {
                old.push(rest);
                new.push(rest);
            }
            Some(b'-') => old.push(rest),
            Some(b'+') => new.push(rest),
            // An empty context line without its leading blank.
            Some(b'\n' | b'\r') => {
                old.push(line);
                new.push(line);
            }
            _ => break,
        }
        at += 1;
    }
    if (old.lines, new.lines) != (header.old_lines, header.new_lines) {
        return Err(PatchError::Counts {
            hunk,
            stated_old: header.old_lines,
            stated_new: header.new_lines,
            old: old.lines,
            new: new.lines,
        });
    }
    let edit = Edit {
        old: old.text,
        new: new.text,
        occurrences: Occurrences::Only,
    };
    let old_start = header.old_start;
    Ok((PatchHunk { edit, old_start }, at))
}

/// The old or new lines of a hunk.
#[derive(Default)]
struct Side {
    text: String,
    lines: usize,
}

impl Side {
    /// The last line of a patch may lack its line end; only `\ No newline at end of file` means that the file does.
    fn push(&mut self, line: &str) {
        self.text.push_str(line);
        if !line.ends_with('\n') {
            self.text.push('\n');
        }
        self.lines += 1;
    }

    fn remove_line_end(&mut self, applies: bool) {
        if applies && self.text.ends_with('\n') {
            self.text.pop();
        }
    }
}
