//! Text edits and patches.

mod indent;
mod line_index;
mod locate;
mod nearest;
mod patch;

use bailiwick::CallError;

use crate::text::Text;

pub(crate) use nearest::Nearest;
pub(crate) use patch::PatchError;

/// Maximum number of line numbers in a message.
const SHOWN: usize = 20;

/// Text to replace, and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) old: String,
    pub(crate) new: String,
    pub(crate) occurrences: Occurrences,
}

/// Which occurrences of the old text to replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Occurrences {
    /// The only one; more are an error.
    #[default]
    Only,
    /// The nth, counted from 1.
    Nth(usize),
    /// All; there must be this many.
    Exactly(usize),
    /// All.
    All,
}

/// How old text was found.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum MatchStrategy {
    /// Byte for byte.
    Exact,
    /// All but the line endings, which stayed those of the file.
    LineEndings,
    /// Whole lines, all but indentation and trailing blanks; the new lines were indented as the file is.
    Whitespace,
}

/// How one edit was made.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct AppliedEdit {
    /// How the old text was found: `exact`, `line_endings` or `whitespace`.
    pub strategy: MatchStrategy,
    /// Number of replaced occurrences.
    pub count: usize,
    /// Lines of the first occurrences in the old file.
    pub lines: Vec<usize>,
}

/// The edited text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edited {
    pub(crate) text: String,
    /// One per edit, in order.
    pub(crate) applied: Vec<AppliedEdit>,
}

/// Why no edit was applied. Edits are numbered from 1.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum EditError {
    /// The old text is empty.
    #[error(
        "edit {0} has an empty old_text; to append, use `write_file` with mode `append`; to insert, include the adjacent text"
    )]
    Empty(usize),
    /// Old and new text are equal.
    #[error("old_text and new_text of edit {0} are equal")]
    Same(usize),
    /// The old text does not occur.
    #[error("the old_text of edit {edit} does not occur in the file{}", nearest::sentence(.nearest.as_ref()))]
    NoMatch {
        edit: usize,
        nearest: Option<Nearest>,
    },
    /// The old text occurs more than once.
    #[error("the old_text of edit {edit} occurs {total} times, at lines {}; add lines around it, or set `occurrence` or `replace_all`", listed(.lines, *.total))]
    Ambiguous {
        edit: usize,
        lines: Vec<usize>,
        total: usize,
    },
    /// The old text does not occur as often as stated.
    #[error("the old_text of edit {edit} occurs {total} times, at lines {}, expected {wanted}", listed(.lines, *.total))]
    Count {
        edit: usize,
        wanted: usize,
        lines: Vec<usize>,
        total: usize,
    },
    /// The old text occurs too often, or all edits together are too expensive.
    #[error("the old_text of edit {0} occurs too often, or the search takes too long; at most {max} places can be changed at once: make fewer edits, include more of the surrounding text, match the indentation, or rewrite the file", max = locate::MAX_MATCHES)]
    TooMany(usize),
    /// Two edits overlap.
    #[error("edits {first} and {second} overlap at line {line}; make them one edit")]
    Overlap {
        first: usize,
        second: usize,
        line: usize,
    },
    /// The result would exceed the size limit.
    #[error("the file would have {bytes} bytes, more than the {limit} allowed")]
    TooLarge { bytes: usize, limit: usize },
    /// The call must stop.
    #[error(transparent)]
    Stopped(#[from] CallError),
}

/// A range of the text and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Replacement {
    start: usize,
    end: usize,
    with: String,
}

/// Applies all `edits` or none. Each is matched against the original text, so their order does not matter.
///
/// `checkpoint` is called between edits and may stop the operation.
pub(crate) fn apply(
    text: &Text<'_>,
    edits: &[Edit],
    limit: usize,
    mut checkpoint: impl FnMut() -> Result<(), CallError>,
) -> Result<Edited, EditError> {
    let source = locate::SearchText::of(text);
    let mut replacements = Vec::new();
    let mut applied = Vec::with_capacity(edits.len());
    let mut size = text.as_str().len();
    for (index, edit) in edits.iter().enumerate() {
        checkpoint()?;
        let (done, found) = locate_edit(&source, index + 1, edit)?;
        if replacements.len() + found.len() > locate::MAX_MATCHES {
            return Err(EditError::TooMany(index + 1));
        }
        let removed_bytes: usize = found.iter().map(|found| found.end - found.start).sum();
        // Checked before the text is built, to bound the memory.
        let inserted_bytes = found.len().saturating_mul(edit.new.len());
        size = size
            .saturating_add(inserted_bytes)
            .saturating_sub(removed_bytes);
        within(size, limit)?;
        let built = found.iter().map(|found| found.replacement(edit, text));
        replacements.extend(built.map(|replacement| (index + 1, replacement)));
        applied.push(done);
    }
    let text = splice(text, replacements)?;
    within(text.len(), limit)?;
    Ok(Edited { text, applied })
}

/// Applies a unified patch completely or not at all.
///
/// `checkpoint` is called between hunks and may stop the operation.
pub(crate) fn apply_patch(
    text: &Text<'_>,
    patch: &str,
    limit: usize,
    mut checkpoint: impl FnMut() -> Result<(), CallError>,
) -> Result<Edited, PatchError> {
    let source = locate::SearchText::of(text);
    let mut replacements = Vec::new();
    let mut applied = Vec::new();
    for (index, hunk) in patch::parse(patch)?.iter().enumerate() {
        checkpoint().map_err(EditError::from)?;
        let found = patch::locate_edit(&source, hunk, index + 1)?;
        applied.push(AppliedEdit {
            strategy: found.strategy,
            count: 1,
            lines: vec![text.number_of(found.start)],
        });
        let replacement = found.replacement(&hunk.edit, text);
        replacements.push((index + 1, replacement));
    }
    let text = splice(text, replacements)?;
    within(text.len(), limit)?;
    Ok(Edited { text, applied })
}

fn within(bytes: usize, limit: usize) -> Result<(), EditError> {
    if bytes > limit {
        return Err(EditError::TooLarge { bytes, limit });
    }
    Ok(())
}

/// Finds the occurrences that `edit` selects.
fn locate_edit(
    source: &locate::SearchText<'_>,
    number: usize,
    edit: &Edit,
) -> Result<(AppliedEdit, Vec<locate::TextMatch>), EditError> {
    if edit.old.is_empty() {
        return Err(EditError::Empty(number));
    }
    if edit.old == edit.new {
        return Err(EditError::Same(number));
    }
    let found = source
        .locate(&edit.old, &edit.new)
        .map_err(|locate::TooManyMatches| EditError::TooMany(number))?;
    let total = found.len();
    let first_lines = || -> Vec<usize> {
        let starts = found.iter().map(|found| found.start);
        starts
            .map(|at| source.text.number_of(at))
            .take(SHOWN)
            .collect()
    };
    let count_is = |wanted| EditError::Count {
        edit: number,
        wanted,
        lines: first_lines(),
        total,
    };
    match edit.occurrences {
        _ if total == 0 => {
            return Err(EditError::NoMatch {
                edit: number,
                nearest: nearest::find(source.text, &edit.old),
            });
        }
        Occurrences::Only if total > 1 => {
            return Err(EditError::Ambiguous {
                edit: number,
                lines: first_lines(),
                total,
            });
        }
        Occurrences::Nth(nth) if nth == 0 || nth > total => return Err(count_is(nth)),
        Occurrences::Exactly(wanted) if wanted != total => return Err(count_is(wanted)),
        Occurrences::Only | Occurrences::Nth(_) | Occurrences::Exactly(_) | Occurrences::All => {}
    }
    let chosen: Vec<_> = match edit.occurrences {
        Occurrences::Nth(nth) => found.into_iter().skip(nth - 1).take(1).collect(),
        Occurrences::Only | Occurrences::Exactly(_) | Occurrences::All => {
            locate::without_overlaps(found)
        }
    };
    let lines = chosen
        .iter()
        .map(|found| source.text.number_of(found.start));
    let applied = AppliedEdit {
        strategy: locate::least_exact(&chosen),
        count: chosen.len(),
        lines: lines.take(SHOWN).collect(),
    };
    Ok((applied, chosen))
}

/// Applies replacements, each with the number of its edit; overlaps are an error.
fn splice(
    text: &Text<'_>,
    mut replacements: Vec<(usize, Replacement)>,
) -> Result<String, EditError> {
    replacements.sort_by_key(|(edit, replacement)| (replacement.start, replacement.end, *edit));
    let source = text.as_str();
    let edits = replacements.iter().map(|(_, replacement)| replacement);
    let size = edits.fold(source.len(), |size, edit| {
        (size + edit.with.len()).saturating_sub(edit.end - edit.start)
    });
    let mut out = String::with_capacity(size);
    let (mut at, mut last) = (0, None);
    for (edit, replacement) in &replacements {
        if let Some(last) = last.filter(|_| replacement.start < at) {
            return Err(EditError::Overlap {
                first: (*edit).min(last),
                second: (*edit).max(last),
                line: text.number_of(replacement.start),
            });
        }
        out.push_str(source.get(at..replacement.start).unwrap_or_default());
        out.push_str(&replacement.with);
        (at, last) = (replacement.end, Some(*edit));
    }
    out.push_str(source.get(at..).unwrap_or_default());
    Ok(out)
}

fn listed(lines: &[usize], total: usize) -> String {
    let shown: Vec<_> = lines.iter().map(usize::to_string).collect();
    let more = if total > lines.len() { ", ..." } else { "" };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{MatchStrategy, *};
    use proptest::prelude::*;

    fn edit(old: &str, new: &str) -> Edit {
        Edit {
            old: old.into(),
            new: new.into(),
            occurrences: Occurrences::Only,
        }
    }

    fn made(text: &str, edits: &[Edit]) -> Result<Edited, EditError> {
        apply(&Text::of(text), edits, 1 << 20, || Ok(()))
    }

    #[track_caller]
    fn check(text: &str, old: &str, new: &str, expected: &str, strategy: MatchStrategy) {
        let edited = made(text, &[edit(old, new)]).unwrap();
        assert_eq!(edited.text, expected);
        assert_eq!(edited.applied[0].strategy, strategy);
    }

    #[track_caller]
    fn check_refused(text: &str, edits: &[Edit], expected: &EditError) {
        assert_eq!(made(text, edits).as_ref(), Err(expected));
    }

    #[test]
    fn edits_share_one_comparison_budget() {
        let lines = 100_000;
        let text: String = (0..lines).map(|line| format!("  l{line}\n")).collect();
        let text = Text::of(&text);
        let source = locate::SearchText::of(&text);
        for line in 0..600 {
            let old = format!("l{line}\nl{}\n", line + 1);
            assert_eq!(source.locate(&old, "x\n").unwrap().len(), 1);
            assert_eq!(source.locate("l0\nno such line\n", "x\n").unwrap(), []);
        }
        assert!(source.compared() < 20_000, "{}", source.compared());

        let text = Text::of("  a\n").as_str().repeat(lines);
        let text = Text::of(&text);
        let source = locate::SearchText::of(&text);
        let old = "a\n".repeat(1_000) + "b\n";
        assert_eq!(source.locate(&old, "x\n").unwrap(), []);
        let old = "a\n".repeat(1_000);
        assert!(source.locate(&old, "x\n").is_err());
        assert!(source.locate("\ta\n", "x\n").is_err());
    }

    #[test]
    fn edits_share_one_search_budget() {
        let text = format!("{}{}", "aaab\n".repeat(400_000), "end\n");
        let edits: Vec<Edit> = (0..1_000).map(|n| edit("end", &format!("{n}"))).collect();
        let made = |edits: &[Edit]| apply(&Text::of(&text), edits, text.len(), || Ok(()));
        let refused = made(&edits).unwrap_err();
        assert!(matches!(refused, EditError::TooMany(_)), "{refused}");
        let edited = made(&edits[..1]).unwrap();
        assert_eq!(edited.applied[0].lines, [400_001]);
    }

    #[test]
    fn text_of_too_many_lines_is_not_indexed() {
        let text = "\n".repeat(5_000_000);
        check_refused(&text, &[edit(" x\n", "y\n")], &EditError::TooMany(1));
    }

    #[test]
    fn text_with_too_many_occurrences_is_refused() {
        let max_places = locate::MAX_MATCHES;
        let all = |old: &str, new: &str| Edit {
            occurrences: Occurrences::All,
            ..edit(old, new)
        };
        let full = "a".repeat(max_places);
        assert_eq!(
            made(&full, &[all("a", "b")]).unwrap().applied[0].count,
            max_places
        );
        check_refused(&full.repeat(2), &[edit("a", "b")], &EditError::TooMany(1));
        let half = "ab".repeat(max_places / 2);
        let edits = [all("a", "x"), all("b", "y")];
        assert_eq!(made(&half, &edits).unwrap().applied.len(), 2);
        let more = [all("a", "x"), all("b", "y"), all("ab", "z")];
        check_refused(&half, &more, &EditError::TooMany(3));
    }

    #[test]
    fn large_result_is_refused_before_it_is_built() {
        let many = " a\n".repeat(50_000);
        let long = format!("  a\n{}", "  b\n".repeat(100_000));
        check_refused(&many, &[edit("  a\n", &long)], &EditError::TooMany(1));
        let few = " a\n".repeat(10);
        let found = made(&few, &[edit("  a\n", &long)]).unwrap_err();
        assert!(matches!(found, EditError::Ambiguous { total: 10, .. }));
    }

    #[test]
    fn fragment_of_a_line_matches() {
        check(
            "let a = 1;\n",
            "= 1",
            "= 2",
            "let a = 2;\n",
            MatchStrategy::Exact,
        );
        check(
            "a b\nc d\n",
            "b\nc",
            "x\ny",
            "a x\ny d\n",
            MatchStrategy::Exact,
        );
    }

    #[test]
    fn line_feeds_match_crlf_which_new_lines_get() {
        let text = "a\r\nb\r\nc\r\n";
        check(
            text,
            "a\nb\n",
            "a\nx\ny\n",
            "a\r\nx\r\ny\r\nc\r\n",
            MatchStrategy::LineEndings,
        );
        check(
            text,
            "b",
            "b\nb2",
            "a\r\nb\r\nb2\r\nc\r\n",
            MatchStrategy::Exact,
        );
        check(text, "\nb", "", "a\r\nc\r\n", MatchStrategy::LineEndings);
        check(text, "b\n", "", "a\r\nc\r\n", MatchStrategy::LineEndings);
    }

    #[test]
    fn mixed_line_endings_are_kept() {
        check(
            "a\r\nb\nc\r\nd",
            "a\nb\nc\n",
            "a\nB\nc\n",
            "a\r\nB\nc\r\nd",
            MatchStrategy::LineEndings,
        );
        check(
            "a\nb\r\n",
            "a\nb\n",
            "a\nx\nb\n",
            "a\nx\r\nb\r\n",
            MatchStrategy::LineEndings,
        );
    }

    #[test]
    fn explicit_line_endings_are_kept() {
        check("a\nb\n", "a\n", "a\r\n", "a\r\nb\n", MatchStrategy::Exact);
        check(
            "a\r\nb\r\n",
            "a\r\n",
            "a\n",
            "a\nb\r\n",
            MatchStrategy::Exact,
        );
        check(
            "a\nb\n",
            "a\r\nb\r\n",
            "x\r\n",
            "x\n",
            MatchStrategy::LineEndings,
        );
    }

    #[test]
    fn half_of_a_crlf_never_matches() {
        let error = made("a\r\nb\r\n", &[edit("a\r", "x")]).unwrap_err();
        assert!(matches!(error, EditError::NoMatch { .. }));
        check("50%\r100%\n", "50%\r", "", "100%\n", MatchStrategy::Exact);
    }

    #[test]
    fn carriage_return_line_endings_match_and_are_kept() {
        check(
            "a\rb\rc\r",
            "a\nb\n",
            "a\nx\n",
            "a\rx\rc\r",
            MatchStrategy::LineEndings,
        );
    }

    #[test]
    fn byte_order_mark_is_kept() {
        check(
            "\u{feff}a\nb\n",
            "a\n",
            "x\n",
            "\u{feff}x\nb\n",
            MatchStrategy::Exact,
        );
        check(
            "\u{feff}  a\nb\n",
            "a\nb",
            "x\nb",
            "\u{feff}  x\nb\n",
            MatchStrategy::Exact,
        );
    }

    #[test]
    fn new_lines_get_the_indentation_of_the_file() {
        check(
            "fn f() {\n        if a {\n            b();\n        }\n}\n",
            "if a {\n    b();\n}\n",
            "if a {\n    b();\n    c();\n}\n",
            "fn f() {\n        if a {\n            b();\n            c();\n        }\n}\n",
            MatchStrategy::Whitespace,
        );
        check(
            "\tif a {\n\t\tb();\n\t}\n",
            "    if a {\n        b();\n    }",
            "    if a {\n        b();\n            c();\n    }",
            "\tif a {\n\t\tb();\n\t\t\tc();\n\t}\n",
            MatchStrategy::Whitespace,
        );
    }

    #[test]
    fn unchanged_lines_keep_trailing_blanks() {
        check(
            "a  \nb\t\nc\n",
            "a\nb\nc\n",
            "a\nB\nc\n",
            "a  \nB\nc\n",
            MatchStrategy::Whitespace,
        );
    }

    #[test]
    fn missing_final_line_end_stays_missing() {
        check("a\nb", "b\n", "c\n", "a\nc", MatchStrategy::Whitespace);
        check("a\nb", "b", "c", "a\nc", MatchStrategy::Exact);
        check("a\nb", "a\n", "", "b", MatchStrategy::Exact);
    }

    #[test]
    fn inconsistent_indentation_does_not_match() {
        let error = made("  a\n      b\n", &[edit("a\nb\n", "a\nc\n")]).unwrap_err();
        assert!(matches!(error, EditError::NoMatch { edit: 1, .. }));
        check(
            "  a\n  b\n",
            "a\nb\n",
            "a\nc\n",
            "  a\n  c\n",
            MatchStrategy::Whitespace,
        );
    }

    #[test]
    fn similar_text_is_suggested_and_never_edited() {
        let text = "fn one() {}\nfn compute_total(items: &[Item]) -> u64 {\n    0\n}\n";
        let error = made(
            text,
            &[edit("fn compute_totl(items: &[Item]) -> u64 {", "x")],
        )
        .unwrap_err();
        let EditError::NoMatch {
            nearest: Some(nearest),
            ..
        } = &error
        else {
            panic!("{error:?}");
        };
        assert_eq!((nearest.first_line, nearest.last_line), (2, 2));
        assert!(nearest.similarity > 90);
        assert!(error.to_string().contains("+fn compute_total(items"));
        assert_eq!(
            made(text, &[edit("@@@@", "x")]),
            Err(EditError::NoMatch {
                edit: 1,
                nearest: None
            })
        );
    }

    #[test]
    fn ambiguous_match_names_every_line() {
        let text = "a\nx\nb\nx\nx\n";
        check_refused(
            text,
            &[edit("x", "y")],
            &EditError::Ambiguous {
                edit: 1,
                lines: vec![2, 4, 5],
                total: 3,
            },
        );
        let many = "x\n".repeat(100);
        let error = made(&many, &[edit("x\n", "y\n")]).unwrap_err();
        assert_eq!(
            error,
            EditError::Ambiguous {
                edit: 1,
                lines: (1..=20).collect(),
                total: 100
            }
        );
        assert!(error.to_string().contains("20, ...;"));
        check_refused(
            "aaa",
            &[edit("aa", "b")],
            &EditError::Ambiguous {
                edit: 1,
                lines: vec![1, 1],
                total: 2,
            },
        );
    }

    #[test]
    fn invisible_differences_are_ambiguous() {
        let text = "a\nb\n--\na\r\nb\r\n";
        check_refused(
            text,
            &[edit("a\nb", "c")],
            &EditError::Ambiguous {
                edit: 1,
                lines: vec![1, 4],
                total: 2,
            },
        );
    }

    #[test]
    fn occurrences_can_be_selected() {
        let with = |occurrences| {
            made(
                "x\nx\r\nx",
                &[Edit {
                    occurrences,
                    ..edit("x", "y\nz")
                }],
            )
        };
        assert_eq!(
            with(Occurrences::All).unwrap().text,
            "y\nz\ny\r\nz\r\ny\r\nz"
        );
        assert_eq!(with(Occurrences::Exactly(3)).unwrap().applied[0].count, 3);
        assert_eq!(with(Occurrences::Nth(1)).unwrap().text, "y\nz\nx\r\nx");
        let lines = vec![1, 2, 3];
        let count = |wanted| EditError::Count {
            edit: 1,
            wanted,
            lines: lines.clone(),
            total: 3,
        };
        assert_eq!(with(Occurrences::Exactly(2)), Err(count(2)));
        assert_eq!(with(Occurrences::Nth(4)), Err(count(4)));
        assert_eq!(with(Occurrences::Nth(0)), Err(count(0)));
    }

    #[test]
    fn edits_without_effect_are_refused() {
        check_refused("a", &[edit("", "b")], &EditError::Empty(1));
        check_refused(
            "a b",
            &[edit("a", "x"), edit("b", "b")],
            &EditError::Same(2),
        );
        let edited = made("  a\n", &[edit("a\n", "a \n")]).unwrap();
        assert_eq!(edited.text, "  a \n");
    }

    #[test]
    fn overlapping_edits_are_refused() {
        let overlap = EditError::Overlap {
            first: 1,
            second: 2,
            line: 1,
        };
        check_refused("abc\n", &[edit("ab", "x"), edit("bc", "y")], &overlap);
        check_refused("abc\n", &[edit("bc", "y"), edit("abc\n", "x")], &overlap);
        assert_eq!(
            made("abc", &[edit("bc", "y"), edit("a", "x")])
                .unwrap()
                .text,
            "xy"
        );
    }

    #[test]
    fn result_size_is_checked_before_it_is_built() {
        let all = Edit {
            occurrences: Occurrences::All,
            ..edit("x", &"y".repeat(1 << 10))
        };
        let error = made(&"x".repeat(1 << 12), &[all]).unwrap_err();
        assert_eq!(
            error,
            EditError::TooLarge {
                bytes: 1 << 22,
                limit: 1 << 20
            }
        );
    }

    #[test]
    fn comparisons_in_hostile_texts_are_bounded() {
        let text = "a\n".repeat(200_000);
        let old = format!("{}b\n", " a\n".repeat(50_000));
        assert!(matches!(
            made(&text, &[edit(&old, "c")]),
            Err(EditError::NoMatch { .. })
        ));
        let old = "a \n".repeat(50_000);
        assert!(matches!(
            made(&text, &[edit(&old, "c")]),
            Err(EditError::TooMany(1))
        ));
        let wide = "ab".repeat(1 << 20);
        assert!(matches!(
            made(&wide, &[edit(&format!("{}c", "ab".repeat(1 << 18)), "d")]),
            Err(EditError::NoMatch { .. })
        ));
    }

    fn patched(text: &str, patch: &str) -> Result<Edited, PatchError> {
        apply_patch(&Text::of(text), patch, 1 << 20, || Ok(()))
    }

    #[test]
    fn patch_stops_between_hunks() {
        let stopped = CallError::new(bailiwick::Code::Cancelled, "stopped");
        let mut left = 1;
        let checkpoint = || {
            left -= 1;
            if left < 0 {
                Err(stopped.clone())
            } else {
                Ok(())
            }
        };
        let two = "@@ -1 +1 @@\n-a\n+x\n@@ -2 +2 @@\n-b\n+y\n";
        let ended = apply_patch(&Text::of("a\nb\n"), two, 1 << 20, checkpoint);
        assert_eq!(ended, Err(EditError::Stopped(stopped).into()));
        assert_eq!(patched("a\nb\n", two).unwrap().text, "x\ny\n");
    }

    #[track_caller]
    fn check_patch(text: &str, patch: &str, expected: Result<&str, &PatchError>) {
        let edited = patched(text, patch);
        assert_eq!(edited.as_ref().map(|edited| edited.text.as_str()), expected);
    }

    const PATCH: &str = "--- a/f\n+++ b/f\n@@ -2,3 +2,3 @@ fn f\n b\n-c\n+C\n d\n";

    #[test]
    fn patch_applies_at_its_line_or_the_only_match() {
        check_patch("a\nb\nc\nd\n", PATCH, Ok("a\nb\nC\nd\n"));
        check_patch("a\na\na\nb\nc\nd\n", PATCH, Ok("a\na\na\nb\nC\nd\n"));
        check_patch("a\nb\nc\nd\nb\nc\nd\n", PATCH, Ok("a\nb\nC\nd\nb\nc\nd\n"));
        check_patch("a\r\nb\r\nc\r\nd\r\n", PATCH, Ok("a\r\nb\r\nC\r\nd\r\n"));
        let twice = PatchError::Ambiguous {
            hunk: 1,
            stated: 2,
            lines: vec![1, 4],
            total: 2,
        };
        check_patch("b\nc\nd\nb\nc\nd\n", PATCH, Err(&twice));
    }

    #[test]
    fn hunk_at_its_line_applies_where_its_lines_overlap_their_repetition() {
        // An occurrence from line 1 on hides the one from line 3 on.
        for (line_end, count) in [("\n", 5), ("\r\n", 5), ("\n", 6)] {
            let text = line_end.repeat(count);
            let lines = [" ", " ", "+x", " "].map(|line| format!("{line}{line_end}"));
            let patch = format!("@@ -3,3 +3,4 @@\n{}", lines.concat());
            let expected = line_end.repeat(4) + "x" + line_end + &line_end.repeat(count - 4);
            let edited = patched(&text, &patch).map(|edited| edited.text);
            assert_eq!(edited.as_ref(), Ok(&expected), "{text:?}");
        }
    }

    #[test]
    fn patch_matches_whole_lines() {
        let error = patched("a\nxb\nc\nd\n", PATCH).unwrap_err();
        assert!(matches!(error, PatchError::NoMatch { hunk: 1, .. }));
    }

    #[test]
    fn patch_with_one_bad_hunk_changes_nothing() {
        let two = format!("{PATCH}@@ -9 +9 @@\n-zz\n+yy\n");
        let error = patched("a\nb\nc\nd\n", &two).unwrap_err();
        assert!(matches!(error, PatchError::NoMatch { hunk: 2, .. }));
    }

    #[test]
    fn patch_may_change_the_last_line_end() {
        let take = "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n";
        check_patch("a\n", take, Ok("a"));
        let give = "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n";
        check_patch("a", give, Ok("a\n"));
        check_patch("", "@@ -0,0 +1,2 @@\n+a\n+b\n", Ok("a\nb\n"));
        check_patch("x\n", "@@ -1,0 +2 @@\n+a\n", Err(&PatchError::NoContext(1)));
    }

    #[test]
    fn patch_is_parsed_strictly() {
        check_patch("a\n", "", Err(&PatchError::Empty));
        let counts = PatchError::Counts {
            hunk: 1,
            stated_old: 2,
            stated_new: 1,
            old: 1,
            new: 1,
        };
        check_patch("a\n", "@@ -1,2 +1 @@\n-a\n+b\n", Err(&counts));
        let at = |line, reason| PatchError::Syntax { line, reason };
        check_patch(
            "a\n",
            "please apply\n",
            Err(&at(1, "expected a file name or a hunk")),
        );
        let reason = "expected one file, and no more lines than the hunk states";
        check_patch("a\n", "@@ -1 +1 @@\n-a\n+b\n+c\n", Err(&at(4, reason)));
        check_patch("a\n", "@@ -1 +1 @@\n-a\n+b\n--- a/g\n", Err(&at(4, reason)));
    }

    proptest! {
        #![proptest_config(crate::testing::full_property_config())]
        #[test]
        fn bytes_outside_an_edit_are_unchanged(
            head in "\u{feff}?([ab ]{0,3}(\r|\n|\r\n)){0,8}", middle in "[xy]{1,3}((\r\n|\n)[xy]{1,3}){0,2}",
            tail in "((\r|\n|\r\n)[ab ]{0,3}){0,8}", new in "[xyz]{0,3}(\r?\n[z]{0,2}){0,2}",
        ) {
            let text = format!("{head}{middle}{tail}");
            let old = middle.replace("\r\n", "\n");
            prop_assume!(old != new);
            let edited = made(&text, &[edit(&old, &new)]).unwrap();
            prop_assert!(edited.text.starts_with(&head), "{:?}", edited.text);
            let rest = edited.text.strip_prefix(&head).unwrap();
            prop_assert!(rest.ends_with(&tail), "{:?}", edited.text);
            let put = rest.strip_suffix(&tail).unwrap();
            prop_assert_eq!(put.replace(['\r', '\n'], ""), new.replace(['\r', '\n'], ""));
        }

        #[test]
        fn diff_applied_as_a_patch_gives_the_new_text(old in "([ab]{0,2}\r?\n){0,12}[ab]?", new in "([ab]{0,2}\r?\n){0,12}[ab]?") {
            prop_assume!(old != new);
            let mut patch = String::new();
            for hunk in crate::diff::of_bytes(&old.clone().into(), new.as_bytes()).hunks.iter() {
                patch += &format!("@@ -{},{} +{},{} @@\n", hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines);
                for line in &hunk.lines {
                    patch += &format!("{}{}", line.op, line.text);
                    if !line.text.ends_with('\n') {
                        patch += "\n\\ No newline at end of file\n";
                    }
                }
            }
            let edited = patched(&old, &patch).unwrap();
            prop_assert_eq!(edited.text, new);
        }

        #[test]
        fn no_edit_of_any_text_panics(text in "[ab \t\r\n\u{e9}\u{feff}]{0,30}", old in "[ab \t\r\n\u{e9}]{0,8}", new in "[ab \t\r\n]{0,8}", nth in 0_usize..3) {
            for occurrences in [Occurrences::Only, Occurrences::All, Occurrences::Nth(nth), Occurrences::Exactly(nth)] {
                let made = made(&text, &[Edit { old: old.clone(), new: new.clone(), occurrences }]);
                prop_assert!(made.is_ok() || !made.unwrap_err().to_string().is_empty());
            }
        }
    }
}
