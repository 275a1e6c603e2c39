//! Tools that a worker's policy allows, for its model and for views.

use serde_json::Value;
use tokio::sync::watch;

use super::{Worker, prepare, preview_arguments};
use crate::call::Origin;
use crate::error::CallError;
use crate::policy::{Authority, Flag, Verdict};
use crate::tool::{Catalog, CatalogItem, Entry, ToolInfo};

impl Worker {
    /// Returns the tools that this worker's policy allows, as definitions for a model. A tool is omitted if everything that
    /// its calls could do is denied. If changes must be previewed, mutating tools take the arguments `preview` and
    /// `preview_token`.
    #[must_use]
    pub fn tools(&self) -> Vec<ToolInfo> {
        self.tools_left(&self.shared.authority, false)
    }

    /// Returns the tools for views only ([`ToolSpec::app_only`](crate::ToolSpec::app_only)) that this worker's policy allows.
    /// They accept calls of [`Origin::View`] and [`Origin::Human`]; do not offer them to a model.
    #[must_use]
    pub fn tools_for_views(&self) -> Vec<ToolInfo> {
        self.tools_left(&self.shared.authority, true)
    }

    /// Like [`Worker::tools`], for calls with a policy of their own, which is compiled here.
    ///
    /// # Errors
    /// `POLICY_INVALID` or `POLICY_EXPANSION`, as for such a call.
    pub fn tools_under(&self, policy: &Value, origin: Origin) -> Result<Vec<ToolInfo>, CallError> {
        let authority = prepare::narrowed(&self.shared, policy, origin)?;
        Ok(self.tools_left(&authority, false))
    }

    /// Returns the tools that `authority` allows, for the model or for views only.
    #[doc(hidden)]
    #[must_use]
    pub fn tools_left(&self, authority: &Authority, app_only: bool) -> Vec<ToolInfo> {
        let entries = self.shared.tools();
        let entries = entries.iter();
        let left = entries
            .filter(|entry| entry.spec.app_only == app_only && prepare::is_left(entry, authority));
        left.map(|entry| info(entry, authority)).collect()
    }
}

fn info(entry: &Entry, authority: &Authority) -> ToolInfo {
    let mut info = entry.info();
    if authority.flag(Flag::RequirePreview) {
        preview_arguments::describe(&mut info);
    }
    info
}

/// Notifies of changes of the tools of servers and apps; see [`Worker::tools_changes`].
#[doc(hidden)]
#[derive(Debug)]
pub struct ToolsChanges {
    servers: Option<watch::Receiver<()>>,
    apps: watch::Receiver<()>,
}

impl ToolsChanges {
    /// Waits for the next change; `None` if there will be no more changes. Cancel safe.
    pub async fn next(&mut self) -> Option<()> {
        let Some(servers) = &mut self.servers else {
            return self.apps.changed().await.ok();
        };
        let changed = tokio::select! {
            changed = servers.changed() => changed,
            changed = self.apps.changed() => changed,
        };
        changed.ok()
    }

    /// Marks all changes so far as seen.
    pub fn mark_seen(&mut self) {
        self.apps.mark_unchanged();
        if let Some(servers) = &mut self.servers {
            servers.mark_unchanged();
        }
    }
}

#[doc(hidden)]
impl Worker {
    /// Returns a receiver that is notified of changes of [`Worker::tools`] from now on.
    #[must_use]
    pub fn tools_changes(&self) -> ToolsChanges {
        let mut changes = ToolsChanges {
            servers: self.shared.core.changes.clone(),
            apps: self.shared.apps.changes(),
        };
        changes.mark_seen();
        changes
    }

    /// Returns the resources and prompts of servers that this worker's policy allows.
    #[must_use]
    pub fn own_catalogs(&self) -> Vec<Catalog> {
        self.catalogs(&self.shared.authority)
    }

    /// Returns the resources and prompts of servers that `authority` allows.
    #[must_use]
    pub fn catalogs(&self, authority: &Authority) -> Vec<Catalog> {
        let left = |it: &CatalogItem| authority.judge(&it.need, &[]) != Verdict::Deny;
        let catalogs = self.shared.core.tools.catalogs();
        let narrowed = catalogs.iter().map(|catalog| {
            let mut catalog = Catalog::clone(catalog);
            let resources = authority.allows_tool(&catalog.resource_reader());
            let prompts = authority.allows_tool(&catalog.prompt_reader());
            catalog.resources.retain(|it| resources && left(it));
            catalog.templates.retain(|it| resources && left(it));
            catalog.prompts.retain(|_, (_, it)| prompts && left(it));
            catalog
        });
        narrowed.collect()
    }

    /// Returns the tool of that name in [`Worker::tools`].
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<ToolInfo> {
        let entry = self.shared.tool(name)?;
        let offered = prepare::is_left(&entry, &self.shared.authority) && !entry.spec.app_only;
        offered.then(|| info(&entry, &self.shared.authority))
    }

    /// Returns whether there is a tool of that name, for models or views.
    #[must_use]
    pub fn has_tool(&self, name: &str) -> bool {
        self.shared.tool(name).is_some()
    }

    /// Returns whether a tool of that name is for views only.
    #[must_use]
    pub fn is_app_only(&self, tool: &str) -> bool {
        let entry = self.shared.tool(tool);
        entry.is_some_and(|entry| entry.spec.app_only)
    }

    /// Returns whether a tool of that name changes something.
    #[must_use]
    pub fn mutates(&self, tool: &str) -> bool {
        let entry = self.shared.tool(tool);
        entry.is_some_and(|entry| entry.mutates)
    }

    /// Returns whether it is a tool of a third-party server.
    #[must_use]
    pub fn is_remote(&self, tool: &str) -> bool {
        let entry = self.shared.tool(tool);
        entry.is_some_and(|entry| entry.remote.is_some())
    }
}
