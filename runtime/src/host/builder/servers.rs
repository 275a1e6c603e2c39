//! Connects the third-party MCP servers of a runtime.

use std::sync::Arc;

use super::RuntimeBuilder;
use crate::upstream::Upstreams;

impl RuntimeBuilder {
    /// Offers the tools of third-party servers to workers, subject to their policies. What is allowed or grantable is
    /// configured as for any resource, for example by `grantable("write:mcp:SERVER")`.
    #[must_use]
    pub fn servers(mut self, upstreams: &Upstreams) -> Self {
        self.remote = Arc::clone(upstreams.table());
        self.changes = Some(upstreams.changes());
        self.upstreams = Some(upstreams.clone());
        self
    }
}
