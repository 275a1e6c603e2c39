//! Texts of `apply_batch`: the sentence for people and the reply.

use bailiwick::Reply;
use serde_json::Value;

use super::{ApplyBatchOutput, BatchCounts, BatchExcluded};
use crate::tools::counted;

/// What is counted in a sentence about a call: the tool, and one and several of its operations.
const COUNTED: [(&str, &str, &str); 6] = [
    ("write_file", "write", "file"),
    ("edit_file", "edit", "file"),
    ("make_directory", "create", "folder"),
    ("move", "move", "entry"),
    ("copy", "copy", "entry"),
    ("delete", "delete", "entry"),
];

/// One sentence about a call, from its arguments.
pub(super) fn sentence(arguments: &Value) -> Option<String> {
    let operations = arguments.get("operations")?.as_array()?;
    let mut parts = Vec::new();
    for (tool, verb, one) in COUNTED {
        let is_tool =
            |operation: &&Value| operation.get("tool").and_then(Value::as_str) == Some(tool);
        match operations.iter().filter(is_tool).count() {
            0 => {}
            1 => parts.push(format!("{verb} 1 {one}")),
            count if one == "entry" => parts.push(format!("{verb} {count} entries")),
            count => parts.push(format!("{verb} {count} {one}s")),
        }
    }
    Some(format!(
        "Make {} together: {}",
        counted(operations.len() as u64, "change"),
        parts.join(", ")
    ))
}

pub(super) fn reply(output: ApplyBatchOutput) -> Reply {
    let mut text = format!("{} operations: {}", output.operations, output.counts.text());
    if !output.unchanged.is_empty() {
        let indexes: Vec<String> = output.unchanged.iter().map(ToString::to_string).collect();
        text.push_str(&format!("; unchanged: operation {}", indexes.join(", ")));
    }
    for warning in &output.warnings {
        text.push_str(&format!(
            "; warning: operation {}: {}",
            warning.operation, warning.warning
        ));
    }
    if !output.left_out.is_empty() {
        let parts: Vec<String> = output.left_out.iter().map(BatchExcluded::text).collect();
        text.push_str(&format!(
            "; a person excluded the changes at {}, which were not made",
            parts.join(", ")
        ));
    }
    Reply::text(text, output)
}

impl BatchCounts {
    /// Such as `2 created, 1 moved`.
    fn text(&self) -> String {
        let counts = [
            (self.created, "created"),
            (self.changed, "changed"),
            (self.moved, "moved"),
            (self.copied, "copied"),
            (self.deleted, "deleted"),
            (self.made, "directories made"),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if counts.is_empty() {
            "nothing changed".to_owned()
        } else {
            counts.join(", ")
        }
    }
}
