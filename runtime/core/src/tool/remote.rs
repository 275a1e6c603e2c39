//! Tools of third-party servers; their calls are futures and use no pool thread.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::Value;
use tokio::sync::watch;

use super::registry::{Entry, ToolSet};
use crate::audit::{Audit, AuditError, Step as AuditStep};
use crate::capability::{CallPermit, Interrupt};
use crate::config::unknown_tool;
use crate::effect::Reply;
use crate::error::CallError;
use crate::id::ToolName;
use crate::path::VirtualPath;
use crate::policy::PolicyError;
use crate::requests::{BoxFuture, CallRequests};
use crate::scope::{Marks, Scope};
use crate::worker::LayerStatus;

/// Reply of a server.
#[derive(Debug)]
#[doc(hidden)]
pub struct RemoteReply {
    pub reply: Reply,
    /// The server's preview token, to bind the call to it.
    pub preview: Option<String>,
}

/// A running remote call; dropping it cancels the call.
#[doc(hidden)]
pub type RemoteFuture = Pin<Box<dyn Future<Output = Result<RemoteReply, Interrupt>> + Send>>;

/// Context of a remote call, for requests that the server sends to its client.
#[doc(hidden)]
pub trait RemoteContext: Send + Sync + fmt::Debug {
    /// The handler of the requests; `None` if only the host answers them.
    fn requests(&self) -> Option<&CallRequests>;
    /// The folders that the call may read.
    fn folders(&self) -> Vec<VirtualPath>;
    /// Suspends or restarts the deadline of the call, while a person is asked.
    fn suspend(&self, suspended: bool);
    /// Audits a request and its outcome.
    fn record(&self, step: AuditStep);
}

/// A prepared call of a third-party tool.
#[doc(hidden)]
pub trait RemoteJob: Send + Sync + fmt::Debug {
    /// The server, and the tool's name there.
    fn target(&self) -> (Arc<str>, Arc<str>);
    /// Prepares the call; polling the future sends it. `tied` is the preview token of the server that the call applies.
    /// Requests that the server sends within the call use `context`. Returns [`Interrupt::Needs`] if the server
    /// requires more OAuth scopes than were authorised; the job is then sent again.
    ///
    /// # Errors
    /// The error of a call that cannot be sent.
    fn carry(
        self: Arc<Self>,
        permit: &CallPermit,
        tied: Option<String>,
        context: Arc<dyn RemoteContext>,
    ) -> Result<RemoteFuture, CallError>;
    /// Whether it may change something.
    fn mutates(&self) -> bool;
}

/// Third-party servers of a runtime, which stay connected while it exists.
pub trait RemoteServers: Send + Sync + fmt::Debug {
    /// The tools, resources and prompts of the servers.
    fn table(&self) -> &Arc<RemoteTools>;
    /// Returns a receiver that is notified when the table changes.
    fn changes(&self) -> watch::Receiver<()>;
    /// Files that workers must not access.
    fn kept_out(&self) -> Vec<PathBuf>;
    /// Records decisions of people about the servers in the audit.
    ///
    /// # Errors
    /// [`AuditError`] if earlier decisions cannot be recorded.
    fn attach<'s>(&'s self, audit: &'s Audit) -> BoxFuture<'s, Result<(), AuditError>>;
}

/// Properties of third-party tools.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Remote {
    /// The name of the server in the configuration, or the app.
    pub server: Arc<str>,
    /// Its description for people.
    pub shown: Arc<str>,
    /// The name of the tool at the server.
    pub tool: Arc<str>,
    /// The scope that every call of it needs.
    pub need: Scope,
    /// Whether the server has previews.
    pub previews: bool,
    /// Whether lists of tools contain it. Lists omit entries that are not tools, and tools of disconnected servers,
    /// whose calls fail with the reason.
    pub listed: bool,
    /// Whether views of the server may call it.
    pub views: bool,
}

type Entries = BTreeMap<ToolName, Arc<Entry>>;

/// MCP methods that read resources and prompts.
#[doc(hidden)]
pub const READ_RESOURCE: &str = "resources/read";
#[doc(hidden)]
pub const GET_PROMPT: &str = "prompts/get";

/// Resources and prompts of a server, for clients of the gateway.
#[derive(Clone, Debug, Default, PartialEq)]
#[doc(hidden)]
pub struct Catalog {
    /// The name of the server in the configuration.
    pub server: Arc<str>,
    /// Whether the server completes arguments.
    pub completes: bool,
    pub resources: Vec<CatalogItem>,
    pub templates: Vec<CatalogItem>,
    /// The prompts by the name that clients use, each with its name at the server.
    pub prompts: BTreeMap<String, (String, CatalogItem)>,
}

impl Catalog {
    /// Returns the name of the entry that reads the resources of the server. No tool has such a name.
    #[must_use]
    pub fn resource_reader(&self) -> String {
        format!("{}__{READ_RESOURCE}", self.server)
    }

    /// Returns the name of the entry that reads the prompts of the server. No tool has such a name.
    #[must_use]
    pub fn prompt_reader(&self) -> String {
        format!("{}__{GET_PROMPT}", self.server)
    }
}

/// A resource, template or prompt of a server.
#[derive(Clone, Debug, PartialEq)]
#[doc(hidden)]
pub struct CatalogItem {
    /// The scope that is needed to read it.
    pub need: Scope,
    /// Its representation in lists.
    pub shown: Value,
}

/// The current tools, resources and prompts of third-party servers, and their marks.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct RemoteTools {
    entries: ArcSwap<Entries>,
    catalogs: ArcSwap<Vec<Arc<Catalog>>>,
    marks: Arc<ArcSwap<Marks>>,
}

impl RemoteTools {
    pub fn replace(&self, entries: Entries, catalogs: Vec<Arc<Catalog>>, marks: Marks) {
        self.entries.store(Arc::new(entries));
        self.catalogs.store(Arc::new(catalogs));
        self.marks.store(Arc::new(marks));
    }

    pub(crate) fn marks(&self) -> Arc<ArcSwap<Marks>> {
        Arc::clone(&self.marks)
    }
}

/// All tools. If two have the same name, the runtime's own is used.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    own: ToolSet,
    remote: Arc<RemoteTools>,
}

impl Tools {
    pub(crate) fn new(own: ToolSet, remote: Arc<RemoteTools>) -> Self {
        Self { own, remote }
    }

    /// What the operating system enforces for the runtime's own tools.
    pub(crate) fn layers(&self) -> &[LayerStatus] {
        self.own.own_layers()
    }

    /// Whether its third-party tools are in the table `remote`.
    pub(crate) fn are_of(&self, remote: &Arc<RemoteTools>) -> bool {
        Arc::ptr_eq(&self.remote, remote)
    }

    /// The tool `name`, if it is one of the runtime's own.
    pub(crate) fn own(&self, name: &str) -> Option<&Arc<Entry>> {
        self.own.get(name)
    }

    /// The tool with the name `tool` at the server.
    pub(crate) fn of_server(&self, server: &str, tool: &str) -> Option<Arc<Entry>> {
        let remote = self.remote.entries.load();
        let is_it = |entry: &&Arc<Entry>| {
            let remote = entry.remote.as_ref();
            remote.is_some_and(|it| &*it.server == server && &*it.tool == tool)
        };
        let found = remote.values().find(is_it)?;
        self.own
            .get(found.name.as_str())
            .is_none()
            .then(|| Arc::clone(found))
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Entry>> {
        let remote = || self.remote.entries.load().get(name).cloned();
        self.own.get(name).cloned().or_else(remote)
    }

    /// Rejects unknown tool names. Tools of servers and apps, with `__` in their names, may be added later.
    pub(crate) fn check_names<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<(), PolicyError> {
        for name in names {
            if !name.contains("__") && self.get(name).is_none() {
                let known: Vec<String> = self.own.names().map(str::to_owned).collect();
                return Err(unknown_tool("/tools", name, &known));
            }
        }
        Ok(())
    }

    /// Resources and prompts of connected servers.
    pub(crate) fn catalogs(&self) -> Arc<Vec<Arc<Catalog>>> {
        self.remote.catalogs.load_full()
    }

    /// All entries: first the runtime's own, then those of servers, each part sorted by name.
    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        let remote = self.remote.entries.load();
        let remote = remote.values();
        let listed = |entry: &Entry| entry.remote.as_ref().is_some_and(|it| it.listed);
        let remote = remote.filter(|it| listed(it) && self.own.get(it.name.as_str()).is_none());
        self.own.entries().chain(remote).cloned().collect()
    }
}
