//! Changes in, a diff for a terminal out.

use std::io::IsTerminal as _;

use bailiwick::{Change, escape, escape_lines};

/// Whether standard output is a terminal that may be coloured (<https://no-color.org>).
#[must_use]
pub fn coloured() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal() && !unwanted
}

/// Returns the lines of a diff of `changes`. Text of files is escaped: it may hold what a terminal would obey.
#[must_use]
pub fn diff(changes: &[Change], coloured: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for change in changes {
        let name = escape(change.path.as_str());
        lines.push(format!(
            "{:?} {name} (+{} -{})",
            change.op, change.diff.added, change.diff.removed
        ));
        for hunk in &change.diff.hunks {
            let old = format!("-{},{}", hunk.old_start, hunk.old_lines);
            let new = format!("+{},{}", hunk.new_start, hunk.new_lines);
            lines.push(paint(&format!("@@ {old} {new} @@"), "36", coloured));
            for line in &hunk.lines {
                let text = line.text.trim_end_matches(['\r', '\n']);
                let text = format!("{}{}", line.op, escape_lines(text));
                lines.push(match line.op {
                    '+' => paint(&text, "32", coloured),
                    '-' => paint(&text, "31", coloured),
                    _ => text,
                });
            }
        }
    }
    lines
}

fn paint(text: &str, colour: &str, coloured: bool) -> String {
    if coloured {
        format!("\u{1b}[{colour}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bailiwick::{Entry, FileDiff, Hunk, HunkLine, Op, VirtualPath};

    fn change() -> Change {
        let line = |op, text: &str| HunkLine {
            op,
            text: text.to_owned(),
        };
        let hunk = Hunk {
            old_start: 1,
            old_lines: 1,
            new_start: 1,
            new_lines: 1,
            lines: vec![line('-', "old\n"), line('+', "new\u{1b}[2J\n")],
        };
        Change {
            path: VirtualPath::parse("/repo/x", None).unwrap(),
            op: Op::Modify,
            to: None,
            before: Entry::Absent,
            after: Entry::Absent,
            diff: FileDiff {
                hunks: vec![hunk],
                added: 1,
                removed: 1,
                ..FileDiff::default()
            },
        }
    }

    #[test]
    fn a_diff_shows_what_a_file_says_and_lets_it_steer_nothing() {
        let expected = [
            "Modify /repo/x (+1 -1)",
            "@@ -1,1 +1,1 @@",
            "-old",
            "+new\\u{1b}[2J",
        ];
        assert_eq!(diff(&[change()], false), expected);
    }

    #[test]
    fn colours_stand_around_whole_lines() {
        let lines = diff(&[change()], true);
        assert_eq!(lines[2], "\u{1b}[31m-old\u{1b}[0m");
        assert_eq!(lines[3], "\u{1b}[32m+new\\u{1b}[2J\u{1b}[0m");
    }
}
