//! Budgets of a worker and its descendants.

use serde::{Deserialize, Serialize};

/// Limits on what a worker and its descendants may do in total; `None` is unlimited.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// Tool calls. A preview counts as a call, and so does the call that applies it.
    pub calls: Option<u64>,
    /// Bytes written.
    pub bytes_written: Option<u64>,
    /// Files and directories created, changed, moved or removed.
    pub files_touched: Option<u64>,
    /// Child workers, at any depth.
    pub children: Option<u64>,
    /// CPU time of commands, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Time for which commands run, in milliseconds. The times of commands that run at the same time are added.
    pub wall_ms: Option<u64>,
    /// Bytes that commands print.
    pub output_bytes: Option<u64>,
    /// Processes and threads of commands at the same time.
    pub processes: Option<u64>,
    /// Memory of commands at the same time, in bytes. What processes share counts for each of them, and files in memory do
    /// not count.
    pub memory_bytes: Option<u64>,
}

/// What a command took; see [`Act::charge`](crate::tool::Act::charge).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "tools build it")]
pub struct Usage {
    /// CPU time, in milliseconds.
    pub cpu_ms: u64,
    /// Time for which it ran, in milliseconds.
    pub wall_ms: u64,
    /// Bytes that it printed.
    pub output_bytes: u64,
}

impl Usage {
    /// The sum of both.
    pub(crate) fn plus(self, more: Self) -> Self {
        Self {
            cpu_ms: self.cpu_ms.saturating_add(more.cpu_ms),
            wall_ms: self.wall_ms.saturating_add(more.wall_ms),
            output_bytes: self.output_bytes.saturating_add(more.output_bytes),
        }
    }
}

impl Budget {
    /// The stricter limit of both, field by field.
    #[must_use]
    pub(crate) fn tighter(self, other: Self) -> Self {
        let Self {
            calls,
            bytes_written,
            files_touched,
            children,
            cpu_ms,
            wall_ms,
            output_bytes,
            processes,
            memory_bytes,
        } = other;
        Self {
            calls: least(self.calls, calls),
            bytes_written: least(self.bytes_written, bytes_written),
            files_touched: least(self.files_touched, files_touched),
            children: least(self.children, children),
            cpu_ms: least(self.cpu_ms, cpu_ms),
            wall_ms: least(self.wall_ms, wall_ms),
            output_bytes: least(self.output_bytes, output_bytes),
            processes: least(self.processes, processes),
            memory_bytes: least(self.memory_bytes, memory_bytes),
        }
    }
}

fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}
