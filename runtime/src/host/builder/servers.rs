//! Connects the third-party MCP servers of a runtime.

use std::sync::Arc;

use super::RuntimeBuilder;
use crate::upstream::Upstreams;

impl RuntimeBuilder {
    /// Offers the tools of other servers to workers, as far as their policies leave them. What people may grant or what
    /// is allowed outright is configured as for any resource: `grantable("write:mcp:SERVER")`, for example.
    #[must_use]
    pub fn servers(mut self, upstreams: &Upstreams) -> Self {
        self.remote = Arc::clone(upstreams.table());
        self.changes = Some(upstreams.changes());
        self.upstreams = Some(upstreams.clone());
        self
    }
}
