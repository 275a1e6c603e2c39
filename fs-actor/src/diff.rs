//! Deterministic line diffs.

use std::sync::Arc;

use bailiwick::effect::{FileDiff, Hunk, HunkLine};
use bytes::Bytes;
use similar::{Algorithm, DiffOp, TextDiff, group_diff_ops};

use crate::media;
use crate::text::{common_bytes, common_ends};

/// Lines of context around a change.
const CONTEXT: usize = 3;
/// Above this many changed lines the diff is one hunk. A time limit would give other hunks on a busy machine, and thus
/// another preview token.
const MAX_FINE_LINES: usize = 20_000;
/// Above this many bytes or lines a change is only counted.
const MAX_SHOWN_BYTES: usize = 4 << 20;
const MAX_SHOWN_LINES: usize = 100_000;

/// The diff of two contents. Content that is not UTF-8 or too large is only counted. The old text is included for
/// context, without a copy.
pub(crate) fn of_bytes(old: &Bytes, new: &[u8]) -> FileDiff {
    let Some(before) = text_of(old) else {
        return binary(if text_of(new).is_some() { old } else { new });
    };
    let window = Window::around_the_change(before, new);
    // Around the window, both are equal.
    let Some(changed) = text_of(window.new) else {
        return binary(new);
    };
    let mut diff = in_window(&window, changed);
    let shown = diff.hunks.iter().map(|hunk| hunk.old_lines).sum();
    let around = !diff.hunks.is_empty()
        && old.len() <= MAX_SHOWN_BYTES
        && has_more_lines_than(shown, before);
    diff.old = around.then(|| old.clone());
    diff
}

fn binary(content: &[u8]) -> FileDiff {
    FileDiff {
        binary: true,
        binary_type: Some(media::binary_type(content)),
        ..FileDiff::default()
    }
}

fn text_of(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    memchr::memchr(0, bytes).is_none().then_some(text)
}

/// The diff for someone who may not read the old content.
pub(crate) fn hidden() -> FileDiff {
    FileDiff {
        hidden: true,
        ..FileDiff::default()
    }
}

/// The diff of the texts in a window, of which `new` is the new one. Applying the hunks to the old text gives the new one,
/// unless they are omitted as too large.
fn in_window(window: &Window<'_>, new: &str) -> FileDiff {
    if window.old == new {
        return FileDiff::default();
    }
    let shown = window.old.len().max(new.len());
    if shown > MAX_SHOWN_BYTES || line_count(window.old).max(line_count(new)) > MAX_SHOWN_LINES {
        return FileDiff {
            added: line_count(new),
            removed: line_count(window.old),
            large: true,
            ..FileDiff::default()
        };
    }
    let (old, new) = (Lines::of(window.old), Lines::of(new));
    let ops = ops(&old, &new);
    let groups = group_diff_ops(ops, CONTEXT);
    let hunks = groups
        .iter()
        .map(|group| hunk(group, &old, &new, window.lines_before));
    let hunks: Arc<[Hunk]> = hunks.collect();
    let count = |op| {
        let lines = hunks.iter().flat_map(|hunk| &hunk.lines);
        lines.filter(|line| line.op == op).count()
    };
    FileDiff {
        added: count('+'),
        removed: count('-'),
        hunks,
        ..FileDiff::default()
    }
}

/// Applies some hunks to `old`; `None` if they are out of order or do not match.
pub(crate) fn with_hunks<'h>(
    old: &str,
    hunks: impl IntoIterator<Item = &'h Hunk>,
) -> Option<String> {
    let old = Lines::of(old);
    let (mut at, mut new) = (0, String::new());
    for hunk in hunks {
        let start = hunk.old_start - usize::from(hunk.old_lines > 0);
        let end = start + hunk.old_lines;
        new.extend(old.0.get(at..start)?.iter().copied());
        let unchanged = hunk.lines.iter().filter(|line| line.op != '+');
        let there = old.0.get(start..end)?;
        if !unchanged
            .map(|line| line.text.as_str())
            .eq(there.iter().copied())
        {
            return None;
        }
        let made = hunk.lines.iter().filter(|line| line.op != '-');
        new.extend(made.map(|line| line.text.as_str()));
        at = end;
    }
    new.extend(old.0.get(at..)?.iter().copied());
    Some(new)
}

/// Both texts without their common beginning and end, except for the context.
struct Window<'t> {
    old: &'t str,
    new: &'t [u8],
    lines_before: usize,
}

impl<'t> Window<'t> {
    fn around_the_change(old: &'t str, new: &'t [u8]) -> Self {
        let (before, after) = common_bytes(old.as_bytes(), new);
        let begin = lines_back(old, before, CONTEXT + 1);
        // The cut must be at the same offset in both texts.
        let end = old.len() - lines_on(old, old.len() - after, CONTEXT + 1);
        Self {
            old: old.get(begin..old.len() - end).unwrap_or_default(),
            new: new.get(begin..new.len() - end).unwrap_or_default(),
            lines_before: old.get(..begin).map_or(0, line_count),
        }
    }
}

/// The start of the line that is `lines` lines before `at`.
fn lines_back(text: &str, at: usize, lines: usize) -> usize {
    let head = text.as_bytes().get(..at).unwrap_or_default();
    let mut ends = memchr::memrchr_iter(b'\n', head);
    ends.nth(lines - 1).map_or(0, |end| end + 1)
}

/// The offset after `lines` line ends from `at`, or the end of the text if there are fewer.
fn lines_on(text: &str, at: usize, lines: usize) -> usize {
    let tail = text.as_bytes().get(at..).unwrap_or_default();
    let mut ends = memchr::memchr_iter(b'\n', tail);
    let last = lines.checked_sub(1).map(|skipped| ends.nth(skipped));
    last.map_or(at, |end| end.map_or(text.len(), |end| at + end + 1))
}

/// Whether `text` has more than `count` lines.
fn has_more_lines_than(count: usize, text: &str) -> bool {
    lines_on(text, 0, count) < text.len()
}

fn line_count(text: &str) -> usize {
    let ends = memchr::memchr_iter(b'\n', text.as_bytes()).count();
    ends + usize::from(!text.is_empty() && !text.ends_with('\n'))
}

struct Lines<'t>(Vec<&'t str>);

impl<'t> Lines<'t> {
    fn of(text: &'t str) -> Self {
        Self(text.split_inclusive('\n').collect())
    }

    fn get(&self, range: std::ops::Range<usize>) -> &[&'t str] {
        self.0.get(range).unwrap_or_default()
    }
}

fn ops(old: &Lines<'_>, new: &Lines<'_>) -> Vec<DiffOp> {
    if old.0.len() + new.0.len() > MAX_FINE_LINES {
        return coarse(old, new);
    }
    let mut config = TextDiff::configure();
    let diff = config
        .algorithm(Algorithm::Myers)
        .diff_slices(&old.0, &new.0);
    diff.ops().to_vec()
}

fn coarse(old: &Lines<'_>, new: &Lines<'_>) -> Vec<DiffOp> {
    let (before, after) = common_ends(&old.0, &new.0);
    vec![
        DiffOp::Equal {
            old_index: 0,
            new_index: 0,
            len: before,
        },
        DiffOp::Replace {
            old_index: before,
            old_len: old.0.len() - before - after,
            new_index: before,
            new_len: new.0.len() - before - after,
        },
        DiffOp::Equal {
            old_index: old.0.len() - after,
            new_index: new.0.len() - after,
            len: after,
        },
    ]
}

fn hunk(group: &[DiffOp], old: &Lines<'_>, new: &Lines<'_>, lines_before: usize) -> Hunk {
    let mut hunk = Hunk {
        old_start: 0,
        old_lines: 0,
        new_start: 0,
        new_lines: 0,
        lines: Vec::new(),
    };
    for op in group {
        let (tag, removed, added) = op.as_tag_tuple();
        let equal = tag == similar::DiffTag::Equal;
        let mut push = |op, lines: &[&str]| {
            hunk.lines.extend(lines.iter().map(|line| HunkLine {
                op,
                text: (*line).to_owned(),
            }));
        };
        hunk.old_lines += removed.len();
        hunk.new_lines += added.len();
        if equal {
            push(' ', old.get(removed));
        } else {
            push('-', old.get(removed));
            push('+', new.get(added));
        }
    }
    if let Some(first) = group.first() {
        hunk.old_start = start(first.old_range().start, hunk.old_lines, lines_before);
        hunk.new_start = start(first.new_range().start, hunk.new_lines, lines_before);
    }
    hunk
}

/// An empty side has the number of the line before it, as `patch` expects.
fn start(index: usize, lines: usize, lines_before: usize) -> usize {
    lines_before + index + usize::from(lines > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(old: &str, new: &str) -> FileDiff {
        of_bytes(&Bytes::copy_from_slice(old.as_bytes()), new.as_bytes())
    }

    /// Applies the hunks, and checks kept and removed lines against the old text.
    fn apply(old: &str, diff: &FileDiff) -> String {
        let (mut added, mut removed) = (0, 0);
        for hunk in diff.hunks.iter() {
            let count = |side| hunk.lines.iter().filter(|line| line.op != side).count();
            assert_eq!((count('+'), count('-')), (hunk.old_lines, hunk.new_lines));
            let old_start = hunk.old_start - usize::from(hunk.old_lines > 0);
            let new_start = hunk.new_start - usize::from(hunk.new_lines > 0);
            assert_eq!(old_start + added, new_start + removed);
            added += hunk.new_lines;
            removed += hunk.old_lines;
        }
        with_hunks(old, diff.hunks.iter()).expect("the hunks lie in the text")
    }

    #[track_caller]
    fn check(old: &str, new: &str, expected: &[(usize, usize, usize, usize, &str)]) {
        let diff = of(old, new);
        assert_eq!(apply(old, &diff), new);
        let shown: Vec<_> = diff
            .hunks
            .iter()
            .map(|hunk| {
                let lines = hunk
                    .lines
                    .iter()
                    .map(|line| format!("{}{}", line.op, line.text));
                (
                    hunk.old_start,
                    hunk.old_lines,
                    hunk.new_start,
                    hunk.new_lines,
                    lines.collect::<String>(),
                )
            })
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(a, b, c, d, e)| (*a, *b, *c, *d, (*e).to_owned()))
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn hunks_have_three_lines_of_context() {
        check(
            "1\n2\n3\n4\n5\n6\n7\n8\n9\n",
            "1\n2\n3\n4\nfive\n6\n7\n8\n9\n",
            &[(2, 7, 2, 7, " 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n")],
        );
    }

    #[test]
    fn empty_side_has_the_number_of_the_line_before() {
        check("", "a\nb\n", &[(0, 0, 1, 2, "+a\n+b\n")]);
        check("a\n", "", &[(1, 1, 0, 0, "-a\n")]);
        check("same\n", "same\n", &[]);
    }

    #[test]
    fn line_end_changes_are_line_changes() {
        check("a\r\nb\n", "a\nb\n", &[(1, 2, 1, 2, "-a\r\n+a\n b\n")]);
        check("a\nb", "a\nb\n", &[(1, 2, 1, 2, " a\n-b+b\n")]);
    }

    #[test]
    fn binary_content_has_no_hunks() {
        let of = |old: &'static [u8], new| of_bytes(&Bytes::from_static(old), new);
        assert!(of(b"a\0", b"b").binary);
        assert!(of(b"\xff", b"b").binary);
        assert!(!of(b"a\0", b"b").large);
        let kind = |old, new| of(old, new).binary_type;
        assert_eq!(kind(b"\x89PNG\r\n\x1a\n", b"text"), Some("image/png"));
        assert_eq!(kind(b"text", b"\x89PNG\r\n\x1a\n"), Some("image/png"));
        assert_eq!(of(b"a", b"b").hunks.len(), 1);
    }

    #[test]
    fn old_text_is_included_for_context() {
        let old: Bytes = "1\n2\n3\n4\n5\n6\n7\n8\n9\n".into();
        let edited = of_bytes(&old, &[b"x\n", old.as_ref()].concat());
        assert_eq!(edited.old, Some(old.clone()));
        assert_eq!(of_bytes(&old, &old).old, None);
        assert_eq!(of_bytes(&old, b"").old, None);
        assert_eq!(of_bytes(&Bytes::new(), &old).old, None);
        assert_eq!(of_bytes(&old, b"\0").old, None);
        let large: Bytes = "line\n".repeat(MAX_SHOWN_BYTES / 5 + 1).into();
        let edited = of_bytes(&large, &[b"x\n", large.as_ref()].concat());
        assert_eq!((edited.hunks.len(), edited.old), (1, None));
    }

    #[test]
    fn large_change_is_one_hunk() {
        let mut seed = 7_u32;
        let mut letters = |count: usize| -> String {
            let mut line = || {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if seed >> 31 == 0 { "a\n" } else { "b\n" }
            };
            (0..count).map(|_| line()).collect()
        };
        for (count, compared) in [(MAX_FINE_LINES / 2, true), (99_999, false)] {
            let (old, new) = (letters(count), letters(count));
            let diff = of(&old, &new);
            assert_eq!(apply(&old, &diff), new);
            // A line diff keeps many lines; the coarse diff keeps only the beginning and end.
            let lines = diff.hunks.iter().flat_map(|hunk| &hunk.lines);
            let unchanged = lines.filter(|line| line.op == ' ').count();
            assert_eq!(unchanged > 2 * CONTEXT, compared, "{count}: {unchanged}");
        }
    }

    #[test]
    fn unrelated_texts_differ_in_every_line() {
        let lines = |tag: &str| -> String {
            (0..MAX_FINE_LINES / 2)
                .map(|n| format!("{tag}{n}\n"))
                .collect()
        };
        let diff = of(&lines("a"), &lines("b"));
        assert_eq!(
            (diff.added, diff.removed),
            (MAX_FINE_LINES / 2, MAX_FINE_LINES / 2)
        );
    }

    #[test]
    fn too_large_change_is_only_counted() {
        let old = "x".repeat(MAX_SHOWN_BYTES + 1);
        let diff = of(&old, "y\nz");
        assert_eq!(
            (diff.large, diff.removed, diff.added, diff.hunks.len()),
            (true, 1, 2, 0)
        );
        assert!(!diff.binary);
    }

    proptest! {
        #![proptest_config(crate::testing::full_property_config())]
        #[test]
        fn applied_hunks_give_the_new_text(old in "([ab]?\r?\n){0,40}[ab]?", new in "([ab]?\r?\n){0,40}[ab]?") {
            prop_assert_eq!(apply(&old, &of(&old, &new)), new);
        }

        #[test]
        fn content_that_is_not_text_is_found_wherever_it_is(
            old in "(\u{e9}{0,3}\n){0,12}",
            other in proptest::collection::vec(prop_oneof![Just(0), Just(b'\n'), Just(0xc3), Just(0xa9)], 0..4),
            from in 0..40_usize,
            replaced in 0..4_usize,
        ) {
            let old = Bytes::from(old);
            let from = from.min(old.len());
            let to = (from + replaced).min(old.len());
            let new = [&old[..from], &other, &old[to..]].concat();
            prop_assert_eq!(of_bytes(&old, &new).binary, text_of(&new).is_none());
        }

        #[test]
        fn change_in_a_long_text_has_its_position(before in 0_usize..30, after in 0_usize..30, old in "[a\u{e9}\u{ea}\n]{0,6}", new in "[a\u{e9}\u{ea}\n]{0,6}") {
            let text = |middle: &str| format!("{}{middle}{}", "p\n".repeat(before), "s\n".repeat(after));
            let (old, new) = (text(&old), text(&new));
            prop_assert_eq!(apply(&old, &of(&old, &new)), new);
        }
    }
}
