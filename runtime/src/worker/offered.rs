//! A worker and a policy in, the tools that are left out: for its model, and for the views that people look at.

use serde_json::Value;
#[cfg(feature = "mcp")]
use tokio::sync::watch;

use super::{Worker, intake};
use crate::call::Origin;
use crate::error::CallError;
use crate::policy::Authority;
use crate::tool::ToolInfo;

impl Worker {
    /// The tools that this worker's policy leaves, ready to hand to a model.
    #[must_use]
    pub fn tools(&self) -> Vec<ToolInfo> {
        self.left(&self.shared.authority, false)
    }

    /// The tools that this worker's policy leaves to views alone ([`ToolSpec::app_only`](crate::ToolSpec::app_only)).
    /// They answer calls of [`Origin::View`] and [`Origin::Human`]; hand them to no model.
    #[must_use]
    pub fn tools_for_views(&self) -> Vec<ToolInfo> {
        self.left(&self.shared.authority, true)
    }

    /// Like [`Worker::tools`], for calls that come with a policy of their own, which is compiled here.
    ///
    /// # Errors
    /// `POLICY_INVALID` or `POLICY_EXPANSION`, as for such a call.
    pub fn tools_under(&self, policy: &Value, origin: Origin) -> Result<Vec<ToolInfo>, CallError> {
        let authority = intake::narrowed(&self.shared, policy, origin)?;
        Ok(self.left(&authority, false))
    }

    fn left(&self, authority: &Authority, app_only: bool) -> Vec<ToolInfo> {
        let entries = self.shared.tools();
        let entries = entries.iter();
        let left = entries
            .filter(|entry| entry.spec.app_only == app_only && intake::is_left(entry, authority));
        left.map(|entry| entry.info()).collect()
    }
}

/// Tells that the tools of servers, or of the apps beside a worker, are others.
#[cfg(feature = "mcp")]
pub(crate) struct ToolsChanges {
    servers: Option<watch::Receiver<()>>,
    apps: watch::Receiver<()>,
}

#[cfg(feature = "mcp")]
impl ToolsChanges {
    /// Returns once they are, or none if they will never be again. Whoever stops waiting misses nothing.
    pub(crate) async fn next(&mut self) -> Option<()> {
        let Some(servers) = &mut self.servers else {
            return self.apps.changed().await.ok();
        };
        let changed = tokio::select! {
            changed = servers.changed() => changed,
            changed = self.apps.changed() => changed,
        };
        changed.ok()
    }

    /// Takes what was told so far as known.
    pub(crate) fn mark_seen(&mut self) {
        self.apps.mark_unchanged();
        if let Some(servers) = &mut self.servers {
            servers.mark_unchanged();
        }
    }
}

#[cfg(feature = "mcp")]
impl Worker {
    /// What is told from now on whenever [`Worker::tools`] may be another.
    pub(crate) fn tools_changes(&self) -> ToolsChanges {
        let mut changes = ToolsChanges {
            servers: self.shared.core.changes.clone(),
            apps: self.shared.apps.changes(),
        };
        changes.mark_seen();
        changes
    }

    /// The tools that `authority` leaves for the model, or for views alone.
    pub(crate) fn tools_left(&self, authority: &Authority, app_only: bool) -> Vec<ToolInfo> {
        self.left(authority, app_only)
    }

    /// One of [`Worker::tools`].
    pub(crate) fn tool(&self, name: &str) -> Option<ToolInfo> {
        let entry = self.shared.tool(name)?;
        let offered = intake::is_left(&entry, &self.shared.authority) && !entry.spec.app_only;
        offered.then(|| entry.info())
    }

    /// Whether there is a tool of that name, for whomever.
    #[cfg(feature = "ui")]
    pub(crate) fn has_tool(&self, name: &str) -> bool {
        self.shared.tool(name).is_some()
    }

    /// Whether a tool of that name is for views alone.
    pub(crate) fn is_app_only(&self, tool: &str) -> bool {
        let entry = self.shared.tool(tool);
        entry.is_some_and(|entry| entry.spec.app_only)
    }

    /// Whether a tool of that name changes something.
    pub(crate) fn mutates(&self, tool: &str) -> bool {
        let entry = self.shared.tool(tool);
        entry.is_some_and(|entry| entry.mutates)
    }
}
