//! Tools of third-party servers; their calls are futures and use no pool thread.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
#[cfg(feature = "mcp")]
use serde_json::Value;

use super::registry::{Entry, ToolSet};
use crate::audit::Step as AuditStep;
use crate::capability::{CallPermit, Interrupt};
use crate::config::unknown_tool;
use crate::effect::Reply;
use crate::error::CallError;
use crate::id::ToolName;
#[cfg(feature = "mcp")]
use crate::path::VirtualPath;
use crate::policy::PolicyError;
use crate::scope::{Marks, Scope};

/// What a server answered.
#[derive(Debug)]
pub(crate) struct RemoteReply {
    pub(crate) reply: Reply,
    /// What stands for a preview, so that the call can be tied to it.
    pub(crate) preview: Option<String>,
}

/// A call under way at a server; dropping it cancels the call there.
pub(crate) type RemoteFuture = Pin<Box<dyn Future<Output = Result<RemoteReply, Interrupt>> + Send>>;

/// A call, as the requests that its server makes within it need to know it.
#[cfg_attr(
    not(feature = "mcp"),
    expect(dead_code, reason = "only MCP servers make requests")
)]
pub(crate) trait RemoteContext: Send + Sync + fmt::Debug {
    /// Who answers them; none if only the host does.
    #[cfg(feature = "mcp")]
    fn requests(&self) -> Option<&crate::CallRequests>;
    /// The folders that the call may read.
    #[cfg(feature = "mcp")]
    fn folders(&self) -> Vec<VirtualPath>;
    /// Suspends the deadline of the call while a person is asked, and sets it anew afterwards.
    fn suspend(&self, suspended: bool);
    /// Records a request and how it ended.
    fn record(&self, step: AuditStep);
}

/// A prepared call of a tool that another server carries out.
pub(crate) trait RemoteJob: Send + Sync + fmt::Debug {
    /// The server that it goes to, and what that calls the tool.
    fn target(&self) -> (Arc<str>, Arc<str>);
    /// Makes everything ready that is on this side, `tied` to what the server calls a preview of it; polled, the rest sends
    /// the call. Requests of the server within the call belong to `context`. [`Interrupt::Needs`] if the server asks for more than
    /// was judged; the job is then carried once more.
    ///
    /// # Errors
    /// The refusal of a call that is not sent.
    fn carry(
        self: Arc<Self>,
        permit: &CallPermit,
        tied: Option<String>,
        context: Arc<dyn RemoteContext>,
    ) -> Result<RemoteFuture, CallError>;
    /// Whether it may change something.
    fn mutates(&self) -> bool;
}

/// What only a tool of another server has.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    /// The server, as people configured it, or the app.
    pub(crate) server: Arc<str>,
    /// What it is, for people.
    pub(crate) shown: Arc<str>,
    /// The tool, as the server calls it.
    pub(crate) tool: Arc<str>,
    /// What every call of it needs.
    pub(crate) need: Scope,
    /// The server can show what a call would do.
    pub(crate) previews: bool,
    /// Lists name it. Those leave out what is not a tool, and tools whose server is not connected: a call hears why.
    pub(crate) listed: bool,
    /// The server lets the views of its pages call it.
    pub(crate) views: bool,
}

type Entries = BTreeMap<ToolName, Arc<Entry>>;

/// MCP's methods by which resources and prompts are read.
#[cfg(feature = "mcp")]
pub(crate) const READ_RESOURCE: &str = "resources/read";
#[cfg(feature = "mcp")]
pub(crate) const GET_PROMPT: &str = "prompts/get";

/// What a server has beside tools, as MCP lists it, for clients of the gateway.
#[cfg(feature = "mcp")]
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Catalog {
    /// The server, as people configured it.
    pub(crate) server: Arc<str>,
    /// Whether arguments can be completed.
    pub(crate) completes: bool,
    pub(crate) resources: Vec<CatalogItem>,
    pub(crate) templates: Vec<CatalogItem>,
    /// By the name that clients know each by, with the one that the server does.
    pub(crate) prompts: BTreeMap<String, (String, CatalogItem)>,
}

#[cfg(feature = "mcp")]
impl Catalog {
    /// The entry by which a worker reads the resources of the server; no tool has such a name.
    pub(crate) fn resource_reader(&self) -> String {
        format!("{}__{READ_RESOURCE}", self.server)
    }

    /// The entry by which a worker reads the prompts of the server; no tool has such a name.
    pub(crate) fn prompt_reader(&self) -> String {
        format!("{}__{GET_PROMPT}", self.server)
    }
}

/// A resource, template or prompt of a server.
#[cfg(feature = "mcp")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CatalogItem {
    /// What reading it needs.
    pub(crate) need: Scope,
    /// As a list shows it.
    pub(crate) shown: Value,
}

/// The tools that other servers offer at this moment, what else they have, and what their names stand for.
#[derive(Debug, Default)]
pub(crate) struct RemoteTools {
    entries: ArcSwap<Entries>,
    #[cfg(feature = "mcp")]
    catalogs: ArcSwap<Vec<Arc<Catalog>>>,
    marks: Arc<ArcSwap<Marks>>,
}

impl RemoteTools {
    #[cfg(feature = "mcp")]
    pub(crate) fn replace(&self, entries: Entries, catalogs: Vec<Arc<Catalog>>, marks: Marks) {
        self.entries.store(Arc::new(entries));
        self.catalogs.store(Arc::new(catalogs));
        self.marks.store(Arc::new(marks));
    }

    pub(crate) fn marks(&self) -> Arc<ArcSwap<Marks>> {
        Arc::clone(&self.marks)
    }
}

/// Every tool that workers may be offered. Where two have one name, the runtime's own counts.
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
    #[cfg(feature = "mcp")]
    pub(crate) fn are_of(&self, remote: &Arc<RemoteTools>) -> bool {
        Arc::ptr_eq(&self.remote, remote)
    }

    /// One of the runtime's own.
    #[cfg(feature = "mcp")]
    pub(crate) fn own(&self, name: &str) -> Option<Arc<Entry>> {
        self.own.get(name).cloned()
    }

    /// The tool that a server calls `tool`.
    #[cfg(feature = "mcp")]
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

    /// Refuses the name of a tool that there is not. Tools of servers and apps, with `__` in their names, may come later.
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

    /// What connected servers have beside tools.
    #[cfg(feature = "mcp")]
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
