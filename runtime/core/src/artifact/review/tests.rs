//! Tests of review pages.

use proptest::prelude::*;
use serde_json::{Value, json};
use similar::{Algorithm, capture_diff_slices, group_diff_ops};

use super::*;
use crate::cases::cases;
use crate::effect::{ContentHash, FileDiff, HunkLine};

const URI: &str = "ui://edit_file/00000000000000000000000000000000";

/// The hunks of a diff with `context` lines around each change.
fn diff(old: &str, new: &str, context: usize) -> FileDiff {
    let (before, after): (Vec<_>, Vec<_>) = (
        old.split_inclusive('\n').collect(),
        new.split_inclusive('\n').collect(),
    );
    let ops = capture_diff_slices(Algorithm::Myers, &before, &after);
    let mut made = FileDiff {
        old: Some(Bytes::copy_from_slice(old.as_bytes())),
        ..FileDiff::default()
    };
    let mut hunks = Vec::new();
    for group in group_diff_ops(ops, context) {
        let (mut lines, mut olds, mut news) = (Vec::new(), 0, 0);
        for op in &group {
            let (tag, removed, added) = op.as_tag_tuple();
            let mut push = |op, side: &[&str]| {
                lines.extend(side.iter().map(|text| HunkLine {
                    op,
                    text: (*text).to_owned(),
                }));
            };
            (olds, news) = (olds + removed.len(), news + added.len());
            if tag == similar::DiffTag::Equal {
                push(' ', &before[removed]);
            } else {
                push('-', &before[removed]);
                push('+', &after[added]);
            }
        }
        made.added += lines.iter().filter(|line| line.op == '+').count();
        made.removed += lines.iter().filter(|line| line.op == '-').count();
        hunks.push(Hunk {
            old_start: group[0].old_range().start + usize::from(olds > 0),
            old_lines: olds,
            new_start: group[0].new_range().start + usize::from(news > 0),
            new_lines: news,
            lines,
        });
    }
    made.hunks = hunks.into();
    made
}

fn change(path: &str, diff: FileDiff) -> Change {
    let entry = |text: &str| Entry::File {
        hash: ContentHash::of(text.as_bytes()),
        bytes: 1,
    };
    Change {
        path: VirtualPath::parse(path, None).unwrap(),
        op: Op::Modify,
        to: None,
        before: entry("before"),
        after: entry("after"),
        diff,
    }
}

fn review(changes: Vec<Change>) -> (Review, OldTexts) {
    let about = About {
        tool: ToolName::new("edit_file"),
        agent: "main".into(),
        intent: "Edit </script><script>alert(1)</script><!-- it".into(),
        preview: true,
    };
    Review::new(about, VirtualPath::top(), changes, Vec::new())
}

fn edited(old: &str, new: &str) -> (Review, OldTexts) {
    review(vec![change("/r/a", diff(old, new, 3))])
}

fn data((review, around): &(Review, OldTexts)) -> Value {
    serde_json::from_str(&review.data(URI, around).unwrap()).unwrap()
}

fn rows((review, around): &(Review, OldTexts), query: &str) -> Option<Value> {
    let wanted = RowRange::parse(query)?;
    let rows = review.rows(wanted, around)?;
    Some(serde_json::from_str(&rows.unwrap()).unwrap())
}

/// `count` lines, and the same with every `step`th changed.
fn texts(count: usize, step: usize) -> (String, String) {
    let line = |n: usize, word: &str| format!("line {n} has a {word} in it\n");
    let old = (1..=count).map(|n| line(n, "word")).collect();
    let new = (1..=count).map(|n| line(n, if n % step == 0 { "change" } else { "word" }));
    (old, new.collect())
}

#[test]
fn rows_have_numbers_text_and_the_words_that_changed() {
    let made = edited("1\n2\nlet a = 1;\n4\n", "1\n2\nlet b = 1;\n4\n");
    let data = data(&made);
    assert_eq!(
        data["changes"][0]["rows"],
        json!([
            [" ", 1, 1, "1"],
            [" ", 2, 2, "2"],
            ["-", 3, 0, "let a = 1;", [[4, 1]]],
            ["+", 0, 3, "let b = 1;", [[4, 1]]],
            [" ", 4, 4, "4"],
        ])
    );
    assert_eq!(
        data["changes"][0]["hunks"],
        json!([[1, 4, 1, 4, 2, 1, 1, 1, 0, 0]])
    );
    assert_eq!(
        (&data["added"], &data["preview"]),
        (&json!(1), &json!(true))
    );
}

#[test]
fn small_file_is_complete_in_the_page_and_a_large_one_is_paged() {
    let (old, new) = texts(200, 100);
    let small = edited(&old, &new);
    let shown = data(&small);
    assert_eq!(shown["changes"][0]["old_lines"], 200);
    assert_eq!(shown["changes"][0]["around"].as_array().unwrap().len(), 200);
    let (old, new) = texts(20_000, 5_000);
    let old = format!("before it all\n{old}");
    let large = edited(&old, &new);
    assert_eq!(data(&large)["changes"][0].get("around"), None);
    let page = rows(&large, "change=0&old=10100&count=20").unwrap();
    assert_eq!(
        page["rows"][0],
        json!([" ", 10_100, 10_099, "line 10099 has a word in it"])
    );
    assert_eq!(
        (&page["rows"].as_array().unwrap().len(), &page["next"]),
        (&20, &json!(10_120))
    );
    assert_eq!(rows(&large, "change=0&old=20002"), None);
    let (review, _) = large;
    let gone = (review, OldTexts::default());
    assert_eq!(rows(&gone, "change=0&old=10100"), None);
    assert_eq!(data(&gone)["changes"][0]["old_lines"], 0);
}

#[test]
fn long_line_is_cut_and_returned_whole_on_request() {
    let long = "🦀".repeat(MAX_UNITS_OF_TESTS);
    let made = edited("x\n", &format!("{long}\n"));
    let row = &data(&made)["changes"][0]["rows"][1];
    assert_eq!(row[3].as_str().unwrap().encode_utf16().count(), 2_000);
    assert_eq!(row[5], 2 * MAX_UNITS_OF_TESTS);
    let whole = rows(&made, "change=0&from=1&whole=1").unwrap();
    assert_eq!(whole["rows"], json!([["+", 0, 1, long]]));
}
const MAX_UNITS_OF_TESTS: usize = 1_001;

#[test]
fn line_ends_are_kept() {
    let kept = edited("a\r\nb\r\n", "a\r\nc\r\n");
    let rows = &data(&kept)["changes"][0]["rows"];
    assert_eq!((&rows[0][3], &rows[1][3]), (&json!("a\r"), &json!("b\r")));
    let changed = edited("a\r\n", "a\n");
    let shown = &data(&changed)["changes"][0]["rows"];
    assert_eq!((&shown[0][3], &shown[1][3]), (&json!("a\r"), &json!("a")));
    assert_eq!((&shown[0][4], &shown[1][4]), (&Value::Null, &Value::Null));
    let open = edited("a\nb\n", "a\nb");
    assert_eq!(
        data(&open)["changes"][0]["rows"][2],
        json!(["+", 0, 2, "b", [], 0, 1])
    );
}

#[test]
fn hidden_content_is_not_in_the_review() {
    let hidden = FileDiff {
        hidden: true,
        ..FileDiff::default()
    };
    let made = review(vec![change("/r/secret", hidden)]);
    let item = data(&made)["changes"][0].clone();
    assert_eq!(
        (&item["hidden"], &item["rows"], &item["hunks"]),
        (&json!(true), &json!([]), &json!([]))
    );
    assert_eq!(
        (
            rows(&made, "change=0&from=0"),
            rows(&made, "change=0&old=1")
        ),
        (None, None)
    );
}

#[test]
fn binary_and_too_large_files_are_distinguished() {
    let kind = |large: bool| FileDiff {
        binary: !large,
        large,
        ..FileDiff::default()
    };
    let made = review(vec![
        change("/r/a", kind(false)),
        change("/r/b", kind(true)),
    ]);
    let items = &data(&made)["changes"];
    assert_eq!(
        (&items[0]["binary"], &items[0]["large"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(
        (&items[1]["binary"], &items[1]["large"]),
        (&json!(false), &json!(true))
    );
}

#[test]
fn many_files_share_the_first_rows() {
    let (old, new) = texts(300, 2);
    let changes = (0..4).map(|n| change(&format!("/r/{n}"), diff(&old, &new, 3)));
    let made = review(changes.collect());
    let items = data(&made)["changes"].clone();
    let shown = |n: usize| items[n]["rows"].as_array().unwrap().len();
    assert_eq!((shown(0), shown(1), shown(2)), (400, 0, 0));
    assert!(rows(&made, "change=2&from=0").is_some());
    assert_eq!(rows(&made, "change=4&from=0"), None);
}

#[test]
fn unknown_queries_are_rejected() {
    for good in [
        "change=0&from=0",
        "from=2&change=0&count=9",
        "change=0&old=1&whole=1",
    ] {
        assert!(RowRange::parse(good).is_some(), "{good}");
    }
    for bad in [
        "",
        "change=0",
        "from=0",
        "change=0&from=0&old=1",
        "change=0&old=0",
        "change=0&from=-1",
        "change=0&from=+1",
        "change=0&from=0&from=1",
        "change=0&from=99999999999",
        "change=0&from=0&x=1",
        "change=0&from",
    ] {
        assert_eq!(RowRange::parse(bad), None, "{bad}");
    }
}

#[test]
fn data_of_ten_thousand_changed_lines_is_small() {
    let (old, new) = texts(10_000, 1);
    let made = edited(&old, &new);
    let data = made.0.data(URI, &made.1).unwrap();
    assert!(data.len() < 140_000, "{}", data.len());
}

/// Reviews of every kind, on which the page itself is tried in a browser.
#[expect(clippy::too_many_lines, reason = "a table, one row a kind of change")]
fn samples() -> Value {
    let (old, new) = texts(300, 70);
    let new = new.replace(
        "line 141 has",
        "line 141 had\nand one more line that never was there before has",
    );
    let edit = review(vec![change("/repo/src/parser.rs", diff(&old, &new, 3))]);
    let of = |op, path: &str, old: &str, new: &str| {
        let hash = |text: &str| match text {
            "" => Entry::Absent,
            text => Entry::File {
                hash: ContentHash::of(text.as_bytes()),
                bytes: text.len() as u64,
            },
        };
        Change {
            op,
            before: hash(old),
            after: hash(new),
            ..change(path, diff(old, new, 3))
        }
    };
    let bare = |op, path: &str, diff: FileDiff| Change {
        op,
        ..change(path, diff)
    };
    let to = |path: &str| Some(VirtualPath::parse(path, None).unwrap());
    let long = format!("const DATA = \"{}\";\n", "0123456789".repeat(300));
    let batch = vec![
        of(
            Op::Create,
            "/repo/docs/new.md",
            "",
            "# New\n\nSome text\u{202e}txt.exe.\n",
        ),
        of(Op::Delete, "/repo/old.txt", "going\ngone", ""),
        of(Op::Modify, "/repo/data.js", "const DATA = \"\";\n", &long),
        of(
            Op::Modify,
            "/repo/crlf.bat",
            "echo a\r\necho b\r\n",
            "echo a\r\necho b\n",
        ),
        Change {
            to: to("/repo/sub/renamed.txt"),
            after: change("/x", FileDiff::default()).before,
            ..bare(Op::Move, "/repo/name.txt", FileDiff::default())
        },
        Change {
            to: to("/repo/copied.txt"),
            ..bare(Op::Copy, "/repo/from.txt", FileDiff::default())
        },
        Change {
            before: Entry::Absent,
            after: Entry::Directory { entries: 0 },
            ..bare(Op::MakeDirectory, "/repo/sub", FileDiff::default())
        },
        Change {
            before: Entry::Directory { entries: 12 },
            after: Entry::Absent,
            ..bare(Op::Delete, "/repo/build", FileDiff::default())
        },
        bare(
            Op::Modify,
            "/repo/logo.png",
            FileDiff {
                binary: true,
                ..FileDiff::default()
            },
        ),
        bare(
            Op::Modify,
            "/repo/large.csv",
            FileDiff {
                large: true,
                added: 40_000,
                removed: 2,
                ..FileDiff::default()
            },
        ),
        bare(
            Op::Modify,
            "/repo/secret",
            FileDiff {
                hidden: true,
                ..FileDiff::default()
            },
        ),
    ];
    let hostile = "<img src=x onerror=alert(1)> </script><script>alert(2)</script>";
    let hostile = vec![of(
        Op::Modify,
        &format!("/r/{hostile}\u{202e}"),
        "a\n",
        &format!("{hostile}\n"),
    )];
    let (old, new) = texts(8_000, 90);
    let paged = review(vec![change("/repo/long.txt", diff(&old, &new, 3))]);
    let page = |query| rows(&paged, query).unwrap();
    json!({
        "edit": data(&edit),
        "batch": data(&review(batch)),
        "hostile": data(&review(hostile)),
        "paged": data(&paged),
        "pages": {
            "from=400&count=500": page("change=0&from=400&count=500"),
            "old=94&count=500": page("change=0&old=94&count=500"),
        },
    })
}

/// `BAILIWICK_BLESS=1` writes the file anew.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the file is beside the page's own tests"
)]
fn the_page_is_tried_with_what_reviews_say() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = file.join("../../ui-assets/web/tests/reviews.json");
    let said = format!("{}\n", samples());
    if std::env::var_os("BAILIWICK_BLESS").is_some() {
        std::fs::write(&file, &said).unwrap();
    }
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(known == said, "{} is not what reviews say", file.display());
}

proptest! {
    #![proptest_config(cases(64))]
    #[test]
    fn pages_concatenate_to_all_rows(
        old in "([ab]\n){0,60}[ab]?",
        new in "([abc]\n){0,60}[ab]?",
        size in 1_usize..40,
    ) {
        let made = edited(&old, &new);
        let total = count(&made.0.changes[0].diff.hunks);
        let whole: Vec<Row> = made.0.changes[0].diff.hunks.iter()
            .flat_map(|hunk| of_hunk(hunk, 0, hunk.lines.len(), LineStyle::of(false)))
            .collect();
        let whole = serde_json::to_value(&whole).unwrap();
        let (mut seen, mut from) = (Vec::new(), Some(0));
        while let Some(at) = from.filter(|_| total > 0) {
            let page = rows(&made, &format!("change=0&from={at}&count={size}")).unwrap();
            seen.extend(page["rows"].as_array().unwrap().clone());
            from = page["next"].as_u64();
        }
        prop_assert_eq!(Value::Array(seen), whole);
    }

    #[test]
    fn rows_and_the_lines_between_them_are_the_new_file(
        old in "([ab]\n){0,40}",
        new in "([ab]\n){0,40}",
    ) {
        let made = edited(&old, &new);
        let item = data(&made)["changes"][0].clone();
        // Every old line that no hunk holds is at the place in the new file that it is said to be at.
        let lines: Vec<&str> = new.lines().collect();
        let hunks = item["hunks"].as_array().unwrap();
        for row in item["around"].as_array().into_iter().flatten() {
            let number = row[1].as_u64().unwrap();
            let held = hunks.iter().any(|hunk| {
                let (start, length) = (hunk[0].as_u64().unwrap(), hunk[1].as_u64().unwrap());
                number >= start && number < start + length
            });
            if !held {
                let at = usize::try_from(row[2].as_u64().unwrap()).unwrap();
                prop_assert_eq!(Some(row[3].as_str().unwrap()), lines.get(at - 1).copied());
            }
        }
        for row in item["rows"].as_array().unwrap() {
            if row[2] != 0 {
                let at = usize::try_from(row[2].as_u64().unwrap()).unwrap();
                prop_assert_eq!(Some(row[3].as_str().unwrap()), lines.get(at - 1).copied());
            }
        }
    }

    #[test]
    fn marks_are_ranges_of_lines_without_their_ends(
        old in "[ab _é🦀\u{202e}\u{200b}\u{0}-\u{1f}\n]{0,40}",
        new in "[ab _é🦀\u{202e}\u{200b}\u{0}-\u{1f}\n]{0,40}",
    ) {
        let made = edited(&old, &new);
        for row in data(&made)["changes"][0]["rows"].as_array().unwrap() {
            let text = row[3].as_str().unwrap();
            let line = text.strip_suffix('\r').unwrap_or(text);
            let units: Vec<u16> = line.encode_utf16().collect();
            for mark in row[4].as_array().into_iter().flatten() {
                let start = usize::try_from(mark[0].as_u64().unwrap()).unwrap();
                let end = start + usize::try_from(mark[1].as_u64().unwrap()).unwrap();
                prop_assert!(start < end && String::from_utf16(&units[start..end]).is_ok());
            }
        }
    }
}
