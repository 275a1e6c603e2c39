//! Formats changes as a diff for a terminal.

use std::io::IsTerminal as _;

use bailiwick::Change;
use bailiwick::text::{escape, escape_lines};

/// Whether to print colors: standard output is a terminal and `NO_COLOR` is not set (<https://no-color.org>).
#[must_use]
pub fn use_color() -> bool {
    let disabled = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal() && !disabled
}

/// Returns the lines of a diff of `changes`. File content is escaped, since it may contain terminal control sequences.
#[must_use]
pub fn format_diff(changes: &[Change], color: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for change in changes {
        let name = escape(change.path.as_str());
        lines.push(format!(
            "{:?} {name} (+{} -{})",
            change.op, change.diff.added, change.diff.removed
        ));
        for hunk in change.diff.hunks.iter() {
            let old = format!("-{},{}", hunk.old_start, hunk.old_lines);
            let new = format!("+{},{}", hunk.new_start, hunk.new_lines);
            lines.push(paint(&format!("@@ {old} {new} @@"), "36", color));
            for line in &hunk.lines {
                let text = line.text.trim_end_matches(['\r', '\n']);
                let text = format!("{}{}", line.op, escape_lines(text));
                lines.push(match line.op {
                    '+' => paint(&text, "32", color),
                    '-' => paint(&text, "31", color),
                    _ => text,
                });
            }
        }
    }
    lines
}

fn paint(text: &str, code: &str, color: bool) -> String {
    if color {
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bailiwick::VirtualPath;
    use bailiwick::effect::{Entry, FileDiff, Hunk, HunkLine, Op};

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
                hunks: [hunk].into(),
                added: 1,
                removed: 1,
                ..FileDiff::default()
            },
        }
    }

    #[test]
    fn diff_escapes_control_characters() {
        let expected = [
            "Modify /repo/x (+1 -1)",
            "@@ -1,1 +1,1 @@",
            "-old",
            "+new\\u{1b}[2J",
        ];
        assert_eq!(format_diff(&[change()], false), expected);
    }

    #[test]
    fn colors_enclose_whole_lines() {
        let lines = format_diff(&[change()], true);
        assert_eq!(lines[2], "\u{1b}[31m-old\u{1b}[0m");
        assert_eq!(lines[3], "\u{1b}[32m+new\\u{1b}[2J\u{1b}[0m");
    }
}
