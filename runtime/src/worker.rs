//! Workers: each serves one sub-agent task under an authority that can only shrink.

mod actor;
mod admission;
mod approval;
#[cfg(feature = "mcp")]
mod apps;
mod blocking;
mod call_table;
#[cfg(feature = "mcp")]
mod compile;
mod deadline;
mod delegation;
mod granted_call;
mod jobs;
mod lock_queue;
mod offered;
mod path_locks;
mod pending;
mod prepare;
mod preview_arguments;
mod remote;
mod shared;
#[cfg(feature = "mcp")]
mod views;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;

use crate::artifact::{Artifact, Reader};
use crate::budget::Budget;
use crate::call::{Call, CallMeta, Origin};
use crate::effect::{ArtifactRef, Outcome, Preview};
use crate::error::{CallError, Code};
use crate::id::{ToolName, WorkerId};
use crate::path::VirtualPath;
use crate::pipeline::Mode;
use crate::policy::{Access, Explanation, OpenFolder, Policy};
#[cfg(feature = "mcp")]
use crate::root::Root;
use crate::supervisor::{Revoked, SpawnError};

pub(crate) use actor::WorkerActor;
pub use admission::Admission;
use admission::CallOptions;
#[cfg(feature = "mcp")]
pub(crate) use admission::Done;
#[cfg(not(feature = "mcp"))]
use admission::Done;
pub(crate) use blocking::{Pool, PoolSize};
pub(crate) use deadline::Deadlines;
#[cfg(feature = "mcp")]
pub(crate) use offered::ToolsChanges;
pub(crate) use path_locks::PathLocks;
#[cfg(feature = "mcp")]
pub(crate) use pending::{CallEvent, RunningCall};
pub use pending::{CallProgress, PendingCall};
pub(crate) use shared::Shared;

/// What a worker is started with.
///
/// Without a policy it must ask for everything it does.
#[derive(Clone, Debug)]
pub struct WorkerSpec {
    pub(crate) name: String,
    pub(crate) session: Option<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) policy: Option<Policy>,
    pub(crate) budget: Budget,
    pub(crate) origin: Origin,
    /// The name is what a client calls itself.
    pub(crate) of_client: bool,
}

/// What the names of workers begin with that clients named.
pub(crate) const OF_CLIENTS: char = '~';

impl WorkerSpec {
    /// A worker called `name` (1 to 64 visible characters without `/`, the first no `~`), which people see in questions
    /// and in the audit. Names that begin with `~` are those that MCP clients give themselves.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            session: None,
            cwd: None,
            policy: None,
            budget: Budget::default(),
            origin: Origin::Human,
            of_client: false,
        }
    }

    /// A worker that a client named.
    #[cfg(feature = "mcp")]
    pub(crate) fn of_client(name: String) -> Self {
        Self {
            of_client: true,
            ..Self::new(name)
        }
    }

    /// Sets what it may do; it is refused if that is more than its parent holds.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Sets where relative paths begin, and what tools such as `find` look through if no path is given. Without it that
    /// is the folder of its parent if it may read that, else the one folder that is open to it, else none.
    ///
    /// ```
    /// # async fn example(runtime: bailiwick::Runtime) -> Result<(), Box<dyn std::error::Error>> {
    /// use bailiwick::{Policy, WorkerSpec};
    /// let policy = Policy::inherit().root("/repo/src").root("/repo/docs");
    /// let worker = runtime.spawn(WorkerSpec::new("fixer").policy(policy).cwd("/repo/src")).await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn cwd(mut self, path: impl Into<String>) -> Self {
        self.cwd = Some(path.into());
        self
    }

    /// Says who wrote the policy; a person, if this is not called. What is reserved to people is refused from a model.
    #[must_use]
    pub fn written_by(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// Sets how much it and everything beneath it may do.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Names the session that grants of that lifetime belong to; else a top worker begins one, and a child is in its parent's.
    #[must_use]
    pub fn session(mut self, session: impl Into<String>) -> Self {
        self.session = Some(session.into());
        self
    }
}

/// How a worker fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Calls in flight, those that wait for a person included.
    pub in_flight: u32,
    /// Jobs that nobody waits for any more and that still hold a thread; above zero the worker is degraded.
    pub lost_threads: u32,
    /// It was revoked or stopped.
    pub revoked: bool,
}

/// A handle on a worker; cloning it is cheap, and dropping it does not end the worker.
///
/// A worker lives until it, an ancestor or the runtime is revoked or stopped.
#[derive(Clone, Debug)]
pub struct Worker {
    shared: Arc<Shared>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Names the worker in the audit.
    #[must_use]
    pub fn id(&self) -> WorkerId {
        self.shared.id
    }

    /// The names from the outermost worker down, such as `main/tests`.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.shared.agent
    }

    /// Calls a tool as a model does, and waits for the answer; asks people if it must.
    ///
    /// Dropping the future cancels the call: an effect that had begun is completed, nothing else is.
    ///
    /// # Errors
    /// [`CallError`] with the stable code of the refusal or failure.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<Outcome, CallError> {
        self.submit(Call::new(tool, arguments)).await
    }

    /// Like [`Worker::call`], with what the host adds.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn submit(&self, call: Call) -> Result<Outcome, CallError> {
        outcome(admission::submit(&self.shared, call, CallOptions::new(Mode::Apply)).await?)
    }

    /// Like [`Worker::call`], with arguments of the tool's own type: nothing is turned into JSON and back.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn call_typed(
        &self,
        tool: &ToolName,
        arguments: impl Any + Send,
    ) -> Result<Outcome, CallError> {
        let call = Call {
            tool: tool.clone(),
            arguments: Value::Null,
            meta: CallMeta::default(),
        };
        let options = CallOptions {
            typed: Some(Box::new(arguments)),
            ..CallOptions::new(Mode::Apply)
        };
        outcome(admission::submit(&self.shared, call, options).await?)
    }

    /// Shows what a mutating call would do. Nothing changes, and nobody is asked if the worker may read the targets.
    ///
    /// # Errors
    /// [`CallError`], the same as the call itself would give; `INVALID_ARGUMENTS` for a tool that only reads.
    pub async fn preview(&self, tool: &str, arguments: Value) -> Result<Preview, CallError> {
        self.submit_preview(Call::new(tool, arguments)).await
    }

    /// Like [`Worker::preview`], with what the host adds.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn submit_preview(&self, call: Call) -> Result<Preview, CallError> {
        preview(admission::submit(&self.shared, call, CallOptions::new(Mode::Preview)).await?)
    }

    /// Starts a worker beneath this one.
    ///
    /// # Errors
    /// [`SpawnError::Policy`] if it asks for more than this worker holds, and the other reasons of [`SpawnError`].
    pub async fn spawn(&self, spec: WorkerSpec) -> Result<Self, SpawnError> {
        self.shared
            .core
            .spawn(Some(&self.shared), spec)
            .await
            .map(Self::new)
    }

    /// Takes all authority from this worker and everything beneath it. When it returns, nothing new begins, and effects that
    /// had begun or were being prepared have ended, but for [`Revoked::unfinished`]. That also holds for a second caller at the
    /// same time.
    pub async fn revoke(&self) -> Revoked {
        self.shared.core.revoke(self.shared.id).await
    }

    /// Returns once this worker has lost its authority.
    pub async fn revoked(&self) {
        self.shared.gate().closed().await;
    }

    /// How far its authority goes, in one word for descriptions: `read` if nothing can be changed, `full` if people may
    /// grant what lies outside every root, else `interact`. It decides nothing.
    #[must_use]
    pub fn access(&self) -> Access {
        self.shared.authority.level()
    }

    /// The folders that its policy leaves it, in path order, and what it may do there.
    #[must_use]
    pub fn open_folders(&self) -> &[OpenFolder] {
        self.shared.names.open_folders()
    }

    /// Where relative paths begin; none if there is no one such folder.
    #[must_use]
    pub fn cwd(&self) -> Option<&VirtualPath> {
        self.shared.names.default_root()
    }

    /// Says which layer and rule decides on each need of a call, and the smallest grant that would allow it. These are all
    /// needs that the call begins with. Nothing is planned at, so links are not followed, and what a directory holds is not
    /// known. A policy of the call is compiled here, which takes a while if it is large.
    ///
    /// # Errors
    /// [`CallError`] if the call cannot be understood.
    pub fn explain(&self, call: &Call) -> Result<Vec<Explanation>, CallError> {
        prepare::explain(&self.shared, call)
    }

    /// How the worker fares.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            in_flight: self.shared.load.calls(),
            lost_threads: self.shared.lost.load(Ordering::Acquire),
            revoked: self.shared.gate().is_closed(),
        }
    }

    /// The artifacts that this worker and those beneath it made and that are still kept, the newest first.
    #[must_use]
    pub fn artifacts(&self) -> Vec<ArtifactRef> {
        self.shared
            .core
            .artifacts
            .list(Reader::Worker(self.shared.id))
    }

    /// Reads an artifact that this worker or one beneath it made.
    ///
    /// # Errors
    /// `NOT_FOUND`, the same for what does not exist and what is another's.
    pub fn artifact(&self, uri: &str) -> Result<Artifact, CallError> {
        self.shared
            .core
            .artifacts
            .get(uri, Reader::Worker(self.shared.id))
    }
}

#[cfg(feature = "mcp")]
impl Worker {
    /// The root that holds `path`, and the path beneath it.
    pub(crate) fn root_of<'p>(&self, path: &'p VirtualPath) -> Option<(&Root, &'p str)> {
        self.shared.handles.roots.find(path)
    }

    /// One or two sentences for a model on where it may work.
    pub(crate) fn orientation(&self) -> String {
        self.shared.names.orientation()
    }

    /// Whether no path can be used at all.
    pub(crate) fn has_no_root(&self) -> bool {
        self.shared.names.is_empty()
    }

    /// A name that no worker of another runtime in this process has; ids count from the start in each.
    pub(crate) fn name_in_process(&self) -> String {
        format!("{}/{}", self.shared.core.broker.name(), self.shared.id)
    }

    /// The review that stands at `uri`, or beside it, if this worker may read it.
    #[cfg(feature = "ui")]
    pub(crate) fn review(&self, uri: &str) -> Option<Arc<crate::artifact::Review>> {
        let reader = Reader::Worker(self.shared.id);
        self.shared.core.artifacts.review(uri, reader)
    }

    /// Audits that a call came with grants that count for nothing.
    pub(crate) fn note_ignored_grants(&self, call: &Call, brought: &[crate::scope::ScopePattern]) {
        self.shared.ignored_grants(call, brought);
    }
}

#[cfg(test)]
impl Worker {
    /// Kills the actor, as a fault in it would.
    pub(crate) fn kill_actor(&self) {
        self.shared.kill();
    }
}

fn preview(done: Done) -> Result<Preview, CallError> {
    match done {
        Done::Preview(preview) => Ok(preview),
        Done::Outcome(_) => Err(CallError::new(
            Code::InvalidArguments,
            "this tool only reads; call it",
        )),
    }
}

fn outcome(done: Done) -> Result<Outcome, CallError> {
    match done {
        Done::Outcome(outcome) => Ok(outcome),
        // The call's arguments asked for it.
        Done::Preview(preview) => Ok(Outcome {
            reply: preview.reply,
            changes: Vec::new(),
            artifacts: preview.artifacts,
            recorded: true,
        }),
    }
}
