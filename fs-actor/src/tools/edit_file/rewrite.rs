//! Plans the replacement of a file's content.

use bailiwick::effect::{ContentHash, Cost, Op};
use bailiwick::{Change, Plan, Reply, VirtualPath, escape};
use bytes::Bytes;

use super::{EditFileOutput, ExcludedEdit};
use crate::change::{ChangeSet, State, Step, target};
use crate::diff;
use crate::edit::{AppliedEdit, MatchStrategy};
use crate::replace::{Durability, ReachedDurability};

/// The replacement of a file's content.
pub(super) struct FileRewrite {
    pub(super) path: VirtualPath,
    pub(super) before: State,
    pub(super) old: Bytes,
    pub(super) content: Bytes,
    pub(super) durability: Durability,
}

impl FileRewrite {
    /// The plan, with the applied and the excluded edits.
    pub(super) fn plan(
        self,
        edits: Vec<AppliedEdit>,
        left_out: Vec<ExcludedEdit>,
    ) -> Plan<ChangeSet> {
        let Self {
            path,
            before,
            old,
            content,
            durability,
        } = self;
        let diff = diff::of_bytes(&old, &content);
        let after = State::of_file(&content);
        let reached = ReachedDurability::at_best((before != after).then_some(durability));
        let reply = reply(EditFileOutput {
            path: path.to_string(),
            bytes: content.len() as u64,
            hash: ContentHash::of(&content),
            added: diff.added,
            removed: diff.removed,
            edits,
            left_out,
            durability: reached.clone(),
        });
        if before == after {
            return target::empty_plan(reply);
        }
        let write = |content: &Bytes, existing: &State| Step::Write {
            path: path.clone(),
            content: content.clone(),
            existing: existing.clone(),
            mode: None,
        };
        let (steps, restore) = (write(&content, &before), write(&old, &after));
        Plan {
            resources: Vec::new(),
            changes: vec![Change {
                path,
                op: Op::Modify,
                to: None,
                before: before.entry(),
                after: after.entry(),
                diff,
            }],
            reply,
            cost: Cost {
                bytes: content.len() as u64,
                files: 1,
            },
            steps: ChangeSet {
                steps: vec![steps],
                durability,
                reached,
            },
            inverse: Some(vec![restore].into()),
        }
    }
}

fn reply(edited: EditFileOutput) -> Reply {
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
