//! What a person allows over a worker's life in, the bounds that a meter charges against out.

use serde::{Deserialize, Serialize};

/// How much a worker and everything beneath it may do, over its life; `None` is without limit.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// Tool calls.
    pub calls: Option<u64>,
    /// Bytes written.
    pub bytes_written: Option<u64>,
    /// Files and directories created, changed, moved or removed.
    pub files_touched: Option<u64>,
    /// Child workers, at any depth.
    pub children: Option<u64>,
}
