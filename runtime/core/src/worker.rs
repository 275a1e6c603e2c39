//! Workers: each runs the tool calls of one sub-agent task, with an authority that can only be narrowed.

mod act;
mod activity;
mod actor;
mod admission;
mod approval;
mod apps;
mod blocking;
mod call_table;
mod compile;
mod confinement;
mod deadline;
mod delegation;
mod future;
mod granted_call;
mod jobs;
mod lifecycle;
mod lock_queue;
mod offered;
mod path_locks;
mod pause;
mod pending;
mod prepare;
mod preview_arguments;
mod recent;
mod remote;
mod shared;
mod tool_slots;
mod undo;
mod views;

use crate::artifact::{Artifact, Reader};
use crate::call::{Call, CallMeta, Mode, Origin};
use crate::capability::CloseReason;
use crate::effect::{ArtifactRef, ExcludedChange, Outcome, Preview};
use crate::error::{CallError, Code};
use crate::id::ToolName;
use crate::path::VirtualPath;
use crate::permission::DecidedBy;
use crate::policy::{Access, Explanation, OpenFolder, Policy, Statement};
use crate::root::Root;
use crate::scope::ScopePattern;
use admission::CallOptions;
use serde_json::Value;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use crate::budget::{Budget, Usage};
pub use crate::id::WorkerId;
pub use crate::supervisor::{Revoked, SpawnError};
pub use activity::{CallActivity, CallState, ChangedPath, ChangedPaths};
pub use admission::Admission;
#[doc(hidden)]
pub use admission::{Done, ResultHold};
pub(crate) use blocking::{Pool, PoolSize};
pub(crate) use confinement::Confinement;
pub use confinement::{ConfineFiles, LayerState, LayerStatus};
pub(crate) use deadline::Deadlines;
pub(crate) use lifecycle::Actors;
#[doc(hidden)]
pub use offered::ToolsChanges;
pub(crate) use path_locks::{PathLockGuard, PathLocks};
#[doc(hidden)]
pub use pending::{CallEvent, RunningCall};
pub use pending::{CallProgress, PendingCall};
pub(crate) use shared::Shared;
pub(crate) use tool_slots::ToolSlots;
pub(crate) use undo::recover;

/// Specification of a worker to start.
///
/// Every call of a worker without a policy needs approval.
#[derive(Clone, Debug)]
pub struct WorkerSpec {
    pub(crate) name: String,
    pub(crate) session: Option<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) policy: Option<Arc<Policy>>,
    pub(crate) budget: Budget,
    pub(crate) origin: Origin,
    /// Whether the name is that of an MCP client.
    pub(crate) of_client: bool,
    /// Whether it acts for people, who may undo all changes.
    pub(crate) for_people: bool,
}

/// Prefix of the names of workers that serve MCP clients.
#[doc(hidden)]
pub const OF_CLIENTS: char = '~';

impl WorkerSpec {
    /// Creates the specification of a worker called `name`, which people see in questions and in the audit: 1 to 64 visible
    /// characters without `/`. The first must not be `~`, which is the prefix of workers that serve MCP clients.
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
            for_people: false,
        }
    }

    /// Creates the specification of a worker named after an MCP client.
    #[doc(hidden)]
    #[must_use]
    pub fn of_client(name: String) -> Self {
        Self {
            of_client: true,
            ..Self::new(name)
        }
    }

    /// Creates the specification of a worker that undoes changes for people.
    pub(crate) fn for_people(name: String) -> Self {
        Self {
            for_people: true,
            ..Self::of_client(name)
        }
    }

    /// Sets the policy. The worker is not started if it requests more than its parent has.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(Arc::new(policy));
        self
    }

    /// Sets the working directory: relative paths are relative to it, and tools such as `find` search it by default.
    /// By default it is the working directory of the parent, or for a worker without parent the default root
    /// ([`RootConfig::default`](crate::config::RootConfig::default), or the only root), if the worker may read or change
    /// it. Otherwise it is the only outermost folder that the worker may read; for a worker that may read no folder, it is
    /// the only folder that it may change. If there is no such folder, or more than one, the worker has no working
    /// directory.
    ///
    /// The worker is not started if its policy does not let it read the folder. Whether the folder exists is not checked,
    /// since it may be created later.
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

    /// Sets who wrote the policy; the default is a person. A model's policy must not contain keys that are reserved for
    /// people.
    #[must_use]
    pub fn written_by(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// Sets the budget of the worker and its descendants.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Sets the session that session grants belong to. By default a top-level worker has a session of its own, and a child
    /// shares its parent's.
    #[must_use]
    pub fn session(mut self, session: impl Into<String>) -> Self {
        self.session = Some(session.into());
        self
    }
}

/// State of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Calls in flight, including those that wait for approval.
    pub in_flight: u32,
    /// Threads that are still blocked by abandoned jobs; the worker is degraded if there are any.
    pub lost_threads: u32,
    /// Whether the worker was revoked or stopped.
    pub revoked: bool,
    /// What the operating system enforces besides the checks of the runtime. Reads that need no I/O thread, and files
    /// outside the roots that a person granted, are not confined.
    pub layers: Vec<LayerStatus>,
}

/// Handle of a worker. Cloning it is cheap; dropping it does not end the worker.
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

    /// Returns the id of the worker, as in the audit.
    #[must_use]
    pub fn id(&self) -> WorkerId {
        self.shared.id
    }

    /// Returns the path of worker names, such as `main/tests`.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.shared.agent
    }

    /// Returns the worker that started this one, unless it is a top-level worker.
    #[must_use]
    pub fn parent(&self) -> Option<WorkerId> {
        self.shared.lineage.first().copied()
    }

    /// Returns the session that session grants of this worker belong to.
    #[must_use]
    pub fn session(&self) -> &str {
        &self.shared.session
    }

    /// Returns when the worker was started, in milliseconds since 1970.
    #[must_use]
    pub fn started_at(&self) -> u64 {
        self.shared.started_at
    }

    /// Calls a tool as a model does and waits for the result. People are asked if the policy says so.
    ///
    /// Dropping the future cancels the call; only an effect that has already begun is completed.
    ///
    /// # Errors
    /// [`CallError`] if the call is denied or fails.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<Outcome, CallError> {
        self.submit(Call::new(tool, arguments)).await
    }

    /// Like [`Worker::call`], with metadata.
    ///
    /// # Errors
    /// [`CallError`], as from [`Worker::call`].
    pub async fn submit(&self, call: Call) -> Result<Outcome, CallError> {
        outcome(admission::submit(&self.shared, call, CallOptions::new(Mode::Apply)).await?)
    }

    /// Like [`Worker::call`], with arguments of the tool's own type instead of JSON.
    ///
    /// # Errors
    /// [`CallError`], as from [`Worker::call`].
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

    /// Previews a mutating call. Nothing changes, and nobody is asked if the worker may read the targets.
    ///
    /// # Errors
    /// The same [`CallError`] as that of the call; `INVALID_ARGUMENTS` for a tool that only reads.
    pub async fn preview(&self, tool: &str, arguments: Value) -> Result<Preview, CallError> {
        self.submit_preview(Call::new(tool, arguments)).await
    }

    /// Like [`Worker::preview`], with metadata.
    ///
    /// # Errors
    /// [`CallError`], as from [`Worker::preview`].
    pub async fn submit_preview(&self, call: Call) -> Result<Preview, CallError> {
        self.preview_with(call, Vec::new()).await
    }

    /// Previews a call with grants for this preview alone.
    async fn preview_with(
        &self,
        call: Call,
        sent_grants: Vec<ScopePattern>,
    ) -> Result<Preview, CallError> {
        let previewed = Arc::new(call.clone());
        let options = CallOptions {
            sent_grants,
            ..CallOptions::new(Mode::Preview)
        };
        match admission::submit(&self.shared, call, options).await? {
            Done::Preview(preview) => Ok(Preview {
                call: Some(previewed),
                ..*preview
            }),
            Done::Outcome(_) => Err(CallError::new(
                Code::InvalidArguments,
                "this tool changes nothing, so it has no preview; call it without one",
            )),
        }
    }

    /// Carries out exactly what a preview of this worker showed, with the arguments and metadata of the previewed call.
    /// People are asked if the policy says so.
    ///
    /// # Errors
    /// `STALE_PREVIEW` if the files have changed since; `details.cause` has the code and the message if the change can no
    /// longer be planned at all. Otherwise [`CallError`], as from [`Worker::submit`].
    pub async fn apply(&self, preview: &Preview) -> Result<Outcome, CallError> {
        self.apply_without(preview, &[]).await
    }

    /// Like [`Worker::apply`], but excludes some changes, or hunks of changed files. The tool must be able to divide its
    /// changes.
    ///
    /// # Errors
    /// `INVALID_ARGUMENTS` if the preview does not have these changes or hunks, a remaining change depends on an excluded
    /// one, nothing remains, or the tool cannot divide its changes; otherwise as [`Worker::apply`].
    pub async fn apply_without(
        &self,
        preview: &Preview,
        excluded: &[ExcludedChange],
    ) -> Result<Outcome, CallError> {
        let Some(mut call) = preview.call() else {
            let message = "this preview belongs to a question or a connection; apply a preview of `Worker::preview`";
            return Err(CallError::new(Code::InvalidArguments, message));
        };
        call.meta.excluded = excluded.to_vec();
        self.submit(call).await
    }

    /// Starts a child of this worker.
    ///
    /// The policy of the child is compared with this worker's authority key by key:
    /// - each pattern of `allow_scopes`, `ask_scopes` and `delegate_only` with the scope lists and the paths of the roots of
    ///   this worker, its ancestors and the configuration,
    /// - each entry of `roots` with these roots,
    /// - `tools`, `verbs`, `write_modes`, `access`, flags and limits with the same keys.
    ///
    /// Different keys are not compared, and neither is the access of roots. For example, a worker with `read_only` starts a
    /// child that allows `write:file:/repo`. The child gains nothing, since every layer judges every call: its writes are
    /// denied, and it is offered no tool that declares to need them ([`ToolSpec::scopes`](crate::ToolSpec::scopes)).
    /// [`Worker::open_folders`] and [`Worker::tools`] of the child return what it may do.
    ///
    /// # Errors
    /// [`SpawnError::Policy`] if its policy requests more than this worker has; see [`SpawnError`] for the others.
    pub async fn spawn(&self, spec: WorkerSpec) -> Result<Self, SpawnError> {
        self.shared
            .core
            .spawn(Some(&self.shared), spec)
            .await
            .map(Self::new)
    }

    /// Revokes this worker and its descendants. When this returns, no effect can begin any more, and effects that had
    /// begun or were being prepared have ended, except for [`Revoked::unfinished`]. This also holds if several callers
    /// revoke at once.
    pub async fn revoke(&self) -> Revoked {
        self.revoke_by(DecidedBy::Host).await
    }

    /// Like [`Worker::revoke`], and records who decided it.
    pub async fn revoke_by(&self, by: DecidedBy) -> Revoked {
        let (core, why) = (&self.shared.core, CloseReason::WorkerRevoked);
        core.revoke(self.shared.id, why, by).await
    }

    /// Waits until this worker is revoked.
    pub async fn revoked(&self) {
        self.shared.gate().closed().await;
    }

    /// Returns the access level, for descriptions only: `read` if the worker can change nothing, `full` if people may
    /// grant paths outside all roots, otherwise `interact`.
    #[must_use]
    pub fn access(&self) -> Access {
        self.shared.authority.level()
    }

    /// Returns the folders that are open to the worker, in path order, and what it may do there.
    #[must_use]
    pub fn open_folders(&self) -> &[OpenFolder] {
        self.shared.names.open_folders()
    }

    /// Returns what the worker may do, in plain words: statements on its policy and on the live grants that it may use. See
    /// [`Statement`] for which of them holds for a call.
    pub async fn permissions(&self) -> Vec<Statement> {
        let mut statements = self.shared.authority.statements();
        // A closed broker has no grants.
        let grants = self.shared.core.broker.grants().await.unwrap_or_default();
        let requester = self.shared.requester();
        let usable = grants.iter().filter(|grant| grant.is_held_by(&requester));
        statements.extend(usable.map(Statement::of_grant));
        statements
    }

    /// Returns the working directory, if there is one.
    #[must_use]
    pub fn cwd(&self) -> Option<&VirtualPath> {
        self.shared.names.default_root()
    }

    /// Explains which layer and rule decides on each need of a call, and the smallest grant that would allow it. Only
    /// needs that are known from the arguments are explained. The file system is not read: links are not followed, and
    /// the contents of directories are unknown. If the call has a policy, this compiles it, which takes a while if it
    /// is large.
    ///
    /// # Errors
    /// [`CallError`] if the call is invalid.
    pub fn explain(&self, call: &Call) -> Result<Vec<Explanation>, CallError> {
        prepare::explain(&self.shared, call)
    }

    /// Calls in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.shared.load.calls()
    }

    /// Returns the state of the worker.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            in_flight: self.in_flight(),
            lost_threads: self.shared.lost.load(Ordering::Acquire),
            revoked: self.shared.gate().is_closed(),
            layers: self.shared.core.layers(),
        }
    }

    /// Returns the stored artifacts of this worker and its descendants, the newest first.
    #[must_use]
    pub fn artifacts(&self) -> Vec<ArtifactRef> {
        self.shared
            .core
            .artifacts
            .list(Reader::Worker(self.shared.id))
    }

    /// Reads an artifact of this worker or of a descendant.
    ///
    /// # Errors
    /// `NOT_FOUND` if it does not exist or belongs to another worker; the two cases cannot be told apart.
    pub fn artifact(&self, uri: &str) -> Result<Artifact, CallError> {
        self.shared
            .core
            .artifacts
            .get(uri, Reader::Worker(self.shared.id))
    }
}

#[doc(hidden)]
impl Worker {
    /// Returns the root that contains `path`, and the path relative to it.
    #[must_use]
    pub fn root_of<'p>(&self, path: &'p VirtualPath) -> Option<(&Root, &'p str)> {
        self.shared.handles.roots.find(path)
    }

    /// One or two sentences that tell a model which folders it may work in.
    #[must_use]
    pub fn orientation(&self) -> String {
        self.shared.names.orientation()
    }

    /// Returns whether no path can be used.
    #[must_use]
    pub fn has_no_root(&self) -> bool {
        self.shared.names.is_empty()
    }

    /// Returns a name that is unique in this process; ids are unique in a runtime only.
    #[must_use]
    pub fn name_in_process(&self) -> String {
        format!("{}/{}", self.shared.core.broker.name(), self.shared.id)
    }

    /// Returns the review at `uri`, or of the call whose artifact is at `uri`, if this worker may read it.
    #[must_use]
    pub fn review(&self, uri: &str) -> Option<Arc<crate::artifact::Review>> {
        let reader = Reader::Worker(self.shared.id);
        self.shared.core.artifacts.review(uri, reader)
    }

    /// Audits that grants sent with a call were ignored.
    pub fn audit_ignored_grants(&self, call: &Call, brought: &[ScopePattern]) {
        self.shared.ignored_grants(call, brought);
    }
}

#[cfg(any(test, feature = "fixtures"))]
impl Worker {
    /// Kills the actor, as a panic in it would.
    #[doc(hidden)]
    pub fn kill_actor(&self) {
        self.shared.kill();
    }
}

fn outcome(done: Done) -> Result<Outcome, CallError> {
    match done {
        Done::Outcome(outcome) => Ok(outcome),
        // The arguments of the call requested a preview.
        Done::Preview(preview) => Ok(Outcome {
            reply: preview.reply,
            changes: Vec::new(),
            resources: Vec::new(),
            artifacts: preview.artifacts,
            recorded: true,
        }),
    }
}
