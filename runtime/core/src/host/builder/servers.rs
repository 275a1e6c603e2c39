//! Connects the third-party MCP servers of a runtime.

use std::sync::Arc;

use super::RuntimeBuilder;
use crate::tool::RemoteServers;

impl RuntimeBuilder {
    /// Offers the tools of third-party servers to workers, subject to their policies: `servers` is an `Upstreams` of the crate
    /// `bailiwick-mcp`. What is allowed or grantable is configured as for any resource, for example by
    /// `grantable("write:mcp:SERVER")`.
    #[must_use]
    pub fn servers(mut self, servers: &(impl RemoteServers + Clone + 'static)) -> Self {
        self.remote = Arc::clone(servers.table());
        self.changes = Some(servers.changes());
        self.servers = Some(Arc::new(servers.clone()));
        self
    }
}
