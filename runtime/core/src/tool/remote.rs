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

/// Reply of a server.
#[derive(Debug)]
#[doc(hidden)]
pub struct RemoteReply {
    #[doc(hidden)]
    pub reply: Reply,
    /// The server's preview token, to bind the call to it.
    #[doc(hidden)]
    pub preview: Option<String>,
}

/// A running remote call; dropping it cancels the call.
#[doc(hidden)]
pub type RemoteFuture = Pin<Box<dyn Future<Output = Result<RemoteReply, Interrupt>> + Send>>;

/// Context of a remote call for requests of its server.
#[doc(hidden)]
pub trait RemoteContext: Send + Sync + fmt::Debug {
    /// Answers the requests; `None` if only the host does.
    fn requests(&self) -> Option<&CallRequests>;
    /// The folders that the call may read.
    fn folders(&self) -> Vec<VirtualPath>;
    /// Suspends or restarts the deadline of the call, while a person is asked.
    fn suspend(&self, suspended: bool);
    /// Audits a request and how it ended.
    fn record(&self, step: AuditStep);
}

/// A prepared call of a third-party tool.
#[doc(hidden)]
pub trait RemoteJob: Send + Sync + fmt::Debug {
    /// The server, and the tool's name there.
    fn target(&self) -> (Arc<str>, Arc<str>);
    /// Prepares the call; polling the future sends it. `tied` is the server's preview token to bind it to. Requests of the
    /// server within the call use `context`. Returns [`Interrupt::Needs`] if the server requires more scopes than were
    /// authorised; the job is then sent again.
    ///
    /// # Errors
    /// The error of a call that is not sent.
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
    /// Is notified when the table has changed.
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
    /// The server, as people configured it, or the app.
    #[doc(hidden)]
    pub server: Arc<str>,
    /// Its description for people.
    #[doc(hidden)]
    pub shown: Arc<str>,
    /// The tool, as the server calls it.
    #[doc(hidden)]
    pub tool: Arc<str>,
    /// What every call of it needs.
    #[doc(hidden)]
    pub need: Scope,
    /// Whether the server has previews.
    #[doc(hidden)]
    pub previews: bool,
    /// Whether lists contain it. They omit entries that are not tools and tools of disconnected servers, whose calls return
    /// the reason.
    #[doc(hidden)]
    pub listed: bool,
    /// Whether the server's views may call it.
    #[doc(hidden)]
    pub views: bool,
}

type Entries = BTreeMap<ToolName, Arc<Entry>>;

/// MCP's methods by which resources and prompts are read.
#[doc(hidden)]
pub const READ_RESOURCE: &str = "resources/read";
#[doc(hidden)]
pub const GET_PROMPT: &str = "prompts/get";

/// Resources and prompts of a server, for clients of the gateway.
#[derive(Clone, Debug, Default, PartialEq)]
#[doc(hidden)]
pub struct Catalog {
    /// The server, as people configured it.
    #[doc(hidden)]
    pub server: Arc<str>,
    /// Whether arguments can be completed.
    #[doc(hidden)]
    pub completes: bool,
    #[doc(hidden)]
    pub resources: Vec<CatalogItem>,
    #[doc(hidden)]
    pub templates: Vec<CatalogItem>,
    /// By the name that clients know each by, with the one that the server does.
    #[doc(hidden)]
    pub prompts: BTreeMap<String, (String, CatalogItem)>,
}

impl Catalog {
    /// The entry by which a worker reads the resources of the server; no tool has such a name.
    #[doc(hidden)]
    #[must_use]
    pub fn resource_reader(&self) -> String {
        format!("{}__{READ_RESOURCE}", self.server)
    }

    /// The entry by which a worker reads the prompts of the server; no tool has such a name.
    #[doc(hidden)]
    #[must_use]
    pub fn prompt_reader(&self) -> String {
        format!("{}__{GET_PROMPT}", self.server)
    }
}

/// A resource, template or prompt of a server.
#[derive(Clone, Debug, PartialEq)]
#[doc(hidden)]
pub struct CatalogItem {
    /// What reading it needs.
    #[doc(hidden)]
    pub need: Scope,
    /// As a list shows it.
    #[doc(hidden)]
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
    #[doc(hidden)]
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

    /// Whether that is the table that the tools of other servers are in.
    pub(crate) fn are_of(&self, remote: &Arc<RemoteTools>) -> bool {
        Arc::ptr_eq(&self.remote, remote)
    }

    /// One of the runtime's own.
    pub(crate) fn own(&self, name: &str) -> Option<Arc<Entry>> {
        self.own.get(name).cloned()
    }

    /// The tool that a server calls `tool`.
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

    /// The runtime's own first, each part sorted by name.
    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        let remote = self.remote.entries.load();
        let remote = remote.values();
        let listed = |entry: &Entry| entry.remote.as_ref().is_some_and(|it| it.listed);
        let remote = remote.filter(|it| listed(it) && self.own.get(it.name.as_str()).is_none());
        self.own.entries().chain(remote).cloned().collect()
    }
}
