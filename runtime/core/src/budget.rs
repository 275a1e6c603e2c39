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
        } = other;
        Self {
            calls: least(self.calls, calls),
            bytes_written: least(self.bytes_written, bytes_written),
            files_touched: least(self.files_touched, files_touched),
            children: least(self.children, children),
        }
    }
}

fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}
