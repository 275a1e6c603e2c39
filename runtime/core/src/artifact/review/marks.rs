//! Word-level differences between removed and added lines; the work is bounded by counts, never by a clock.

use std::collections::HashMap;

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Start and length in a line, in UTF-16 units.
pub(super) type Mark = (usize, usize);
/// The marks of the removed lines, and those of the added ones.
pub(crate) type Marks = (Vec<Vec<Mark>>, Vec<Vec<Mark>>);

/// Maximum number of words of a pair of lines, and of a block, to compare; the work is quadratic in the worst case, and a
/// page has hundreds of pairs.
pub(super) const MAX_PAIR: usize = 400;
pub(super) const MAX_BLOCK: usize = 1_000;
/// Lines that have less than this fraction of their text in common are not compared by word.
const LEAST_SHARED: f64 = 0.35;

struct Word<'t> {
    text: &'t str,
    line: usize,
    start: usize,
    units: usize,
}

/// The words in which `added` differs from `removed`; empty if nearly all differ or there are more than `most`.
pub(super) fn marks(removed: &[&str], added: &[&str], most: usize) -> Marks {
    let none = || {
        (
            vec![Vec::new(); removed.len()],
            vec![Vec::new(); added.len()],
        )
    };
    let (Some(old), Some(new)) = (words(removed, most), words(added, most)) else {
        return none();
    };
    if old.len() + new.len() > most {
        return none();
    }
    let mut known = HashMap::new();
    let mut number = |words: &[Word<'_>]| -> Vec<usize> {
        let numbers = words.iter().map(|word| {
            let next = known.len();
            *known.entry(word.text.to_owned()).or_insert(next)
        });
        numbers.collect()
    };
    let (numbers, others) = (number(&old), number(&new));
    let ops = capture_diff_slices(Algorithm::Myers, &numbers, &others);
    if shared(&ops, &old, &new) < LEAST_SHARED {
        return none();
    }
    let mut made = none();
    for op in ops {
        if !matches!(op, DiffOp::Equal { .. }) {
            put(&mut made.0, old.get(op.old_range()).unwrap_or_default());
            put(&mut made.1, new.get(op.new_range()).unwrap_or_default());
        }
    }
    made
}

/// The fraction of the visible text that is in both, from 0 to 1.
fn shared(ops: &[DiffOp], old: &[Word<'_>], new: &[Word<'_>]) -> f64 {
    let visible = |words: &[Word<'_>]| -> u32 {
        let seen = words.iter().filter(|word| !word.text.trim().is_empty());
        seen.map(|word| u32::try_from(word.units).unwrap_or(u32::MAX))
            .fold(0, u32::saturating_add)
    };
    let kept = ops.iter().filter_map(|op| match op {
        DiffOp::Equal { .. } => old.get(op.old_range()),
        DiffOp::Delete { .. } | DiffOp::Insert { .. } | DiffOp::Replace { .. } => None,
    });
    let kept = kept.map(visible).fold(0, u32::saturating_add);
    2.0 * f64::from(kept) / f64::from(visible(old).saturating_add(visible(new)).max(1))
}

fn put(marks: &mut [Vec<Mark>], words: &[Word<'_>]) {
    for word in words {
        let Some(marks) = marks.get_mut(word.line) else {
            continue;
        };
        match marks.last_mut() {
            Some((start, units)) if *start + *units == word.start => *units += word.units,
            _ => marks.push((word.start, word.units)),
        }
    }
}

/// Runs of letters and digits, runs of blanks, and single other characters; `None` if there are more than `most`.
fn words<'t>(lines: &[&'t str], most: usize) -> Option<Vec<Word<'t>>> {
    let mut words = Vec::new();
    for (line, whole) in lines.iter().enumerate() {
        let (mut rest, mut start) = (*whole, 0);
        while let Some(first) = rest.chars().next() {
            if words.len() == most {
                return None;
            }
            let kind = Kind::of(first);
            let end = rest
                .char_indices()
                .find(|(at, c)| *at > 0 && (kind == Kind::Other || Kind::of(*c) != kind))
                .map_or(rest.len(), |(at, _)| at);
            let (text, after) = rest.split_at_checked(end)?;
            let units = text.encode_utf16().count();
            words.push(Word {
                text,
                line,
                start,
                units,
            });
            rest = after;
            start += units;
        }
    }
    Some(words)
}

#[derive(PartialEq)]
enum Kind {
    Letters,
    Blank,
    Other,
}

impl Kind {
    fn of(c: char) -> Self {
        match c {
            _ if c.is_alphanumeric() || c == '_' => Self::Letters,
            _ if c.is_whitespace() => Self::Blank,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cases::cases;

    /// The marked text of the one line on each side.
    fn marked<'t>(old: &'t str, new: &'t str) -> (Vec<&'t str>, Vec<&'t str>) {
        fn cut<'t>(line: &'t str, marks: &[Mark]) -> Vec<&'t str> {
            let units = |at: usize| {
                let mut seen = 0;
                let mut chars = line.char_indices();
                chars
                    .find(|(_, c)| {
                        let here = seen == at;
                        seen += c.len_utf16();
                        here
                    })
                    .map_or(line.len(), |(byte, _)| byte)
            };
            let mut out = Vec::new();
            for (start, length) in marks {
                out.push(line.get(units(*start)..units(start + length)).unwrap());
            }
            out
        }
        let (removed, added) = marks(&[old], &[new], MAX_PAIR);
        (cut(old, &removed[0]), cut(new, &added[0]))
    }

    #[test]
    fn differing_words_are_marked() {
        assert_eq!(
            marked("let mut total = 0;", "let mut sum = 0;"),
            (vec!["total"], vec!["sum"])
        );
        assert_eq!(marked("🦀 a b", "🦀 a c"), (vec!["b"], vec!["c"]));
        assert_eq!(marked("a b", "a b c"), (vec![], vec![" c"]));
        assert_eq!(marked("same", "same"), (vec![], vec![]));
    }

    #[test]
    fn lines_with_little_in_common_have_no_marks() {
        let (removed, added) = marks(
            &["return self.inner;"],
            &["// nothing like it at all"],
            MAX_PAIR,
        );
        assert_eq!((removed, added), (vec![vec![]], vec![vec![]]));
    }

    #[test]
    fn uneven_blocks_are_compared_as_a_whole() {
        let (removed, added) = marks(
            &["call(alpha, beta);"],
            &["call(", "alpha, gamma);"],
            MAX_BLOCK,
        );
        assert_eq!(removed, [vec![(12, 4)]]);
        assert_eq!(added, [vec![], vec![(7, 5)]]);
    }

    #[test]
    fn lines_beyond_the_bound_are_not_compared() {
        let long = "a ".repeat(MAX_PAIR / 4);
        let other = format!("{long}b");
        let (removed, added) = marks(&[&long], &[&other], MAX_PAIR);
        assert_eq!((removed, added), (vec![vec![]], vec![vec![]]));
        let (_, added) = marks(&[&long], &[&other], MAX_PAIR + 1);
        assert_eq!(added, [vec![(long.len(), 1)]]);
    }

    proptest! {
        #![proptest_config(cases(512))]
        #[test]
        fn marks_are_ranges_of_their_line_in_order(
            old in proptest::collection::vec("[ab _.é日🦀\\PC]{0,12}", 0..4),
            new in proptest::collection::vec("[ab _.é日🦀\\PC]{0,12}", 0..4),
        ) {
            let lines = |side: &[String]| side.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
            let texts = (lines(&old), lines(&new));
            let (old, new): (Vec<&str>, Vec<&str>) = (texts.0.split('\n').collect(), texts.1.split('\n').collect());
            let (removed, added) = marks(&old, &new, MAX_BLOCK);
            prop_assert_eq!((removed.len(), added.len()), (old.len(), new.len()));
            for (line, marks) in old.iter().zip(&removed).chain(new.iter().zip(&added)) {
                let units: Vec<u16> = line.encode_utf16().collect();
                let mut end = 0;
                for (start, length) in marks {
                    prop_assert!(*length > 0 && *start >= end && start + length <= units.len());
                    // Marks never split surrogate pairs.
                    prop_assert!(String::from_utf16(&units[*start..start + length]).is_ok());
                    end = start + length;
                }
            }
        }
    }
}
