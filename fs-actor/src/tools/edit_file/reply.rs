//! Replies of `edit_file`.

use bailiwick::Reply;
use bailiwick::text::escape;

use super::EditFileOutput;
use crate::edit::{AppliedEdit, MatchStrategy};

pub(super) fn reply(edited: EditFileOutput) -> Reply {
    let edits: Vec<String> = edited.edits.iter().map(AppliedEdit::text).collect();
    let mut text = format!(
        "{}: {} edits ({}), +{} -{} lines, {} bytes",
        escape(&edited.path),
        edited.edits.len(),
        edits.join("; "),
        edited.added,
        edited.removed,
        edited.bytes,
    );
    if !edited.left_out.is_empty() {
        let parts: Vec<String> = edited
            .left_out
            .iter()
            .map(|part| format!("line {} (+{} -{})", part.line, part.added, part.removed))
            .collect();
        text.push_str(&format!(
            "; a person excluded the changes at {}, which were not made",
            parts.join(", ")
        ));
    }
    Reply::text(text, edited)
}

impl AppliedEdit {
    /// Such as `lines 4, 9, whitespace`.
    fn text(&self) -> String {
        let lines: Vec<String> = self.lines.iter().map(ToString::to_string).collect();
        let mut text = match (self.count, lines.as_slice()) {
            (1, [line]) => format!("line {line}"),
            (count, lines) if count == lines.len() => format!("lines {}", lines.join(", ")),
            (count, lines) => format!("{count} places, first at lines {}", lines.join(", ")),
        };
        match self.strategy {
            MatchStrategy::Exact => {}
            MatchStrategy::LineEndings => text.push_str(", matched by line_endings"),
            MatchStrategy::Whitespace => text.push_str(", matched by whitespace"),
        }
        text
    }
}
