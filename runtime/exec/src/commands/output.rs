//! The result of a command.

use bailiwick::text::escape;
use schemars::JsonSchema;
use serde::Serialize;

use crate::overlay::{ChangeKind, DroppedChange, KeptChanges};

/// Result of `run_command`.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CommandOutput {
    /// The exit code, unless a signal ended the command.
    pub exit_code: Option<i32>,
    /// The signal that ended the command.
    pub signal: Option<i32>,
    /// Whether the command was ended at its time limit.
    pub timed_out: bool,
    /// The standard output: its beginning and end if it is long.
    pub stdout: String,
    /// The standard error: its beginning and end if it is long.
    pub stderr: String,
    /// Length of the whole standard output, in bytes.
    pub stdout_bytes: u64,
    /// Length of the whole standard error, in bytes.
    pub stderr_bytes: u64,
    /// Files and directories that the command created and that the worker may not change. A sandbox cannot forbid names
    /// that do not exist when the command starts. At most 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub created_protected: Vec<String>,
    /// Why changes may be missing here: the files could not be listed completely after the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
    /// The changes that were kept apart; absent if the command changed the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<CommandChanges>,
    /// Hosts and ports to which it could not connect because they are not allowed. At most 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied_hosts: Vec<String>,
    /// Duration in milliseconds.
    pub duration_ms: u64,
}

/// Maximum number of paths in each list of [`CommandChanges`].
const MAX_LISTED: usize = 100;

/// Changes of a command that were kept apart.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CommandChanges {
    /// The argument of `apply_changes` that applies them; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The changes that can be applied, in the order of their paths. At most 100.
    pub files: Vec<ChangedFile>,
    /// Number of changes that can be applied.
    pub total: usize,
    /// The changes that cannot be applied. At most 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<DroppedChange>,
    /// Number of changes that cannot be applied.
    pub dropped_total: usize,
}

/// A change of a command that was kept apart.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ChangedFile {
    /// Its path.
    pub path: String,
    /// What the command did.
    pub change: ChangeKind,
    /// Its length in bytes; 0 for a deletion, changed permissions or a directory.
    pub bytes: u64,
    /// The new permission bits of an existing file in octal, such as `755`, if they change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

impl CommandChanges {
    pub(super) fn new(kept: Option<&KeptChanges>, mut dropped: Vec<DroppedChange>) -> Self {
        let changes = kept.map(|kept| kept.changes.as_slice()).unwrap_or_default();
        let files = changes.iter().take(MAX_LISTED).map(|change| ChangedFile {
            path: change.path.to_string(),
            change: change.kind,
            bytes: change.bytes,
            mode: change.changed_mode().map(|mode| format!("{mode:o}")),
        });
        let dropped_total = dropped.len();
        dropped.truncate(MAX_LISTED);
        Self {
            id: kept.map(|kept| kept.id.clone()),
            files: files.collect(),
            total: changes.len(),
            dropped,
            dropped_total,
        }
    }

    fn text(&self) -> String {
        let Some(id) = &self.id else {
            return match self.dropped_total {
                0 => "It changed no files.".to_owned(),
                _ => format!("Its changes were dropped:{}", self.dropped()),
            };
        };
        let (changes, them) = match self.total {
            1 => ("1 change is".to_owned(), "it"),
            total => (format!("{total} changes are"), "them"),
        };
        let mut text = format!(
            "Its {changes} kept apart. To apply {them}, call `apply_changes` with the id {id}:"
        );
        for file in &self.files {
            text.push_str(&format!("\n{} {}", file.change, escape(&file.path)));
            if let Some(mode) = &file.mode {
                text.push_str(&format!(" (mode {mode})"));
            }
        }
        if self.total > self.files.len() {
            text.push_str(&format!("\nand {} more", self.total - self.files.len()));
        }
        if self.dropped_total > 0 {
            text.push_str("\n\nThese changes were dropped:");
            text.push_str(&self.dropped());
        }
        text
    }

    fn dropped(&self) -> String {
        let mut text = String::new();
        for dropped in &self.dropped {
            text.push_str(&format!("\n{}: {}", escape(&dropped.path), dropped.reason));
        }
        if self.dropped_total > self.dropped.len() {
            let more = self.dropped_total - self.dropped.len();
            text.push_str(&format!("\nand {more} more"));
        }
        text
    }
}

/// The result as text.
pub(super) fn text(output: &CommandOutput) -> String {
    let end = match (output.timed_out, output.exit_code, output.signal) {
        (true, ..) => "It was ended at its time limit.".to_owned(),
        (false, Some(code), _) => format!("Exit code {code}."),
        (false, None, Some(signal)) => format!("It was ended by signal {signal}."),
        (false, None, None) => "It ended.".to_owned(),
    };
    let mut text = end;
    for (name, stream) in [("Output", &output.stdout), ("Errors", &output.stderr)] {
        if !stream.is_empty() {
            text.push_str("\n\n");
            text.push_str(name);
            text.push_str(":\n");
            text.push_str(stream);
        }
    }
    if !output.created_protected.is_empty() {
        text.push_str("\n\nIt created names that you may not change: ");
        text.push_str(&output.created_protected.join(", "));
    }
    if let Some(why) = &output.incomplete {
        text.push_str("\n\nIts changes are not known completely: ");
        text.push_str(why);
    }
    if let Some(changes) = &output.changes {
        text.push_str("\n\n");
        text.push_str(&changes.text());
    }
    if !output.denied_hosts.is_empty() {
        text.push_str("\n\nIt could not connect to hosts that are not allowed: ");
        text.push_str(&output.denied_hosts.join(", "));
    }
    text
}
