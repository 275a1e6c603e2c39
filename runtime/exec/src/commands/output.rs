//! The result of a command.

use schemars::JsonSchema;
use serde::Serialize;

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
    /// Hosts and ports to which it could not connect because they are not allowed. At most 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied_hosts: Vec<String>,
    /// Duration in milliseconds.
    pub duration_ms: u64,
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
    if !output.denied_hosts.is_empty() {
        text.push_str("\n\nIt could not connect to hosts that are not allowed: ");
        text.push_str(&output.denied_hosts.join(", "));
    }
    text
}
