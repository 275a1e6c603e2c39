//! Tools of other servers in, one table with the runtime's own out; a call of one is a future, not work for a thread.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::registry::{Entry, ToolSet};
use crate::capability::{CallPermit, Halt};
use crate::effect::Reply;
use crate::error::CallError;
use crate::id::ToolName;
use crate::scope::{Marks, Scope};

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(crate) reply: Reply,
    /// What stands for a preview, so that the call can be tied to it.
    pub(crate) preview: Option<String>,
}

/// A call under way at a server; dropping it cancels the call there.
pub(crate) type Carrying = Pin<Box<dyn Future<Output = Result<Carried, Halt>> + Send>>;

/// A prepared call of a tool that another server carries out.
pub(crate) trait RemoteJob: Send + Sync + fmt::Debug {
    /// The server that it goes to, and what that calls the tool.
    fn target(&self) -> (Arc<str>, Arc<str>);
    /// Makes everything ready that is on this side, `tied` to what the server calls a preview of it; polled, the rest sends
    /// the call. [`Halt::Needs`] if the server asks for more than was judged; the job is then carried once more.
    ///
    /// # Errors
    /// The refusal of a call that is not sent.
    fn carry(
        self: Arc<Self>,
        permit: &CallPermit,
        tied: Option<String>,
    ) -> Result<Carrying, CallError>;
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
    /// Its server is connected. A tool whose server is not is told of in no list, and a call of it hears why.
    pub(crate) there: bool,
    /// The server lets the views of its pages call it.
    pub(crate) views: bool,
}

type Entries = BTreeMap<ToolName, Arc<Entry>>;

/// The tools that other servers offer at this moment, and what their names stand for.
#[derive(Debug, Default)]
pub(crate) struct RemoteTools {
    entries: ArcSwap<Entries>,
    marks: Arc<ArcSwap<Marks>>,
}

impl RemoteTools {
    #[cfg(feature = "mcp")]
    pub(crate) fn replace(&self, entries: Entries, marks: Marks) {
        self.entries.store(Arc::new(entries));
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

    /// The runtime's own first, each part sorted by name.
    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        let remote = self.remote.entries.load();
        let remote = remote.values();
        let there = |entry: &Entry| entry.remote.as_ref().is_some_and(|it| it.there);
        let remote = remote.filter(|it| there(it) && self.own.get(it.name.as_str()).is_none());
        self.own.entries().chain(remote).cloned().collect()
    }
}
