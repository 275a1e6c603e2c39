//! One sub-agent's task: calls in, answers out, under an authority that can only shrink.

mod actor;
mod asking;
mod blocking;
mod deadline;
mod inbox;
mod intake;
mod jobs;
mod locks;
mod turns;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwapOption;
use ractor::ActorRef;
use serde_json::Value;

use crate::artifact::{Artifact, Reader};
use crate::audit::{AuditError, AuditEvent, Step as AuditStep};
use crate::call::{Call, CallMeta, Origin};
use crate::capability::{Budget, Gate, Meter};
use crate::effect::{Outcome, Preview};
use crate::error::{CallError, Code};
use crate::id::{ToolName, WorkerId};
use crate::path::VirtualPath;
use crate::pipeline::{Facts, Holder, Judged, Mode, Parsed, Step};
use crate::policy::{Authority, Explanation, Policy, Verdict};
use crate::scope::Scope;
use crate::supervisor::{Core, Revoked, SpawnError};
use crate::tool::ToolSpec;

pub(crate) use actor::{WorkerActor, WorkerMsg};
pub(crate) use blocking::{Pool, PoolSize};
pub(crate) use deadline::Deadlines;
pub use inbox::Admission;
use inbox::{Done, Load, Port};
pub(crate) use turns::Turns;

/// What a worker is started with.
///
/// Without a policy it must ask for everything it does.
#[derive(Clone, Debug)]
pub struct WorkerSpec {
    pub(crate) name: String,
    pub(crate) session: Option<String>,
    pub(crate) policy: Option<Policy>,
    pub(crate) budget: Budget,
}

impl WorkerSpec {
    /// A worker called `name` (1 to 64 visible characters without `/`), which people see in questions and in the audit.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            session: None,
            policy: None,
            budget: Budget::default(),
        }
    }

    /// Sets what it may do; it is refused if that is more than its parent holds.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
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

/// One worker as the rest of the runtime sees it; it outlives the actor's deaths.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: WorkerId,
    /// The names from the outermost worker down, such as `main/tests`.
    pub(crate) agent: Arc<str>,
    pub(crate) session: Arc<str>,
    /// Its ancestors, from the nearest to the outermost.
    pub(crate) lineage: Arc<[WorkerId]>,
    pub(crate) authority: Authority,
    pub(crate) meter: Arc<Meter>,
    pub(crate) core: Arc<Core>,
    holder: Arc<Holder>,
    load: Load,
    lost: AtomicU32,
    actor: ArcSwapOption<ActorRef<WorkerMsg>>,
}

impl Shared {
    #[expect(
        clippy::too_many_arguments,
        reason = "the one place where a worker is put together"
    )]
    pub(crate) fn new(
        id: WorkerId,
        name: &str,
        session: Option<String>,
        parent: Option<&Arc<Self>>,
        authority: Authority,
        holder: Holder,
        meter: Meter,
        core: &Arc<Core>,
    ) -> Self {
        let agent = parent.map_or_else(
            || name.into(),
            |parent| format!("{}/{name}", parent.agent).into(),
        );
        let session = match (session, parent) {
            (Some(session), _) => session.into(),
            (None, Some(parent)) => Arc::clone(&parent.session),
            (None, None) => id.to_string().into(),
        };
        let lineage = parent.map_or_else(
            || Arc::from([]),
            |parent| {
                std::iter::once(parent.id)
                    .chain(parent.lineage.iter().copied())
                    .collect()
            },
        );
        Self {
            id,
            agent,
            session,
            lineage,
            authority,
            meter: Arc::new(meter),
            core: Arc::clone(core),
            holder: Arc::new(holder),
            load: Load::default(),
            lost: AtomicU32::new(0),
            actor: ArcSwapOption::empty(),
        }
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.holder.gate
    }

    /// Takes up a new life of the actor.
    fn attach(&self, me: ActorRef<WorkerMsg>) {
        self.core.actors.insert(me.get_id(), self.id);
        self.actor.store(Some(Arc::new(me)));
    }

    /// Posts a message; false if there is nobody to read it.
    fn post(&self, msg: WorkerMsg) -> bool {
        self.actor
            .load()
            .as_ref()
            .is_some_and(|actor| actor.send_message(msg).is_ok())
    }

    /// Ends the actor once everybody is answered; those whose effect has begun hear how it ended.
    pub(crate) fn close(&self) {
        self.post(WorkerMsg::Close);
    }

    /// Judges a call and audits the verdict before anything follows from it.
    fn judge(&self, step: Step<Parsed>) -> Judged {
        let (facts, needs) = (Arc::clone(step.facts()), Arc::from(step.needs()));
        let judged = step.judge();
        let verdict = match &judged {
            Judged::Run(_) => Verdict::Allow,
            Judged::Ask(_) => Verdict::Ask,
            Judged::Refused(_) => Verdict::Deny,
        };
        match self.audit(
            &facts,
            AuditStep::Judged {
                verdict,
                needs,
                rule: None,
            },
        ) {
            Ok(()) => judged,
            Err(error) => Judged::Refused(error),
        }
    }

    /// Audits how a call ended and answers it. A caller that gave up is no error.
    fn finished(&self, facts: &Facts, port: Port, result: Result<Done, CallError>) {
        let step = match &result {
            Ok(done) => AuditStep::Finished {
                code: None,
                bytes: done.bytes(),
            },
            Err(error) => AuditStep::Refused {
                code: error.code(),
                message: error.message().into(),
            },
        };
        // The answer stands whether or not the log has room: its verdict and effect were audited before,
        // and the log counts what it missed.
        let _ = self.audit(facts, step);
        drop(port.send(result));
    }

    fn event(&self, facts: Option<&Facts>, step: AuditStep) -> AuditEvent {
        AuditEvent {
            worker: Some(self.id),
            agent: Arc::clone(&self.agent),
            call: facts.map(|facts| facts.id),
            tool: facts.map(|facts| facts.tool.clone()),
            origin: facts.map_or(Origin::Human, |facts| facts.origin),
            step,
        }
    }

    /// Audits a step of a call, or refuses to go on.
    fn audit(&self, facts: &Facts, step: AuditStep) -> Result<(), CallError> {
        self.core
            .audit
            .record(self.event(Some(facts), step))
            .map_err(CallError::from)
    }

    /// Audits a step of a call and waits until it is written; only on pool threads.
    fn audit_commit(&self, facts: &Facts, step: AuditStep) -> Result<(), CallError> {
        self.core
            .audit
            .commit(self.event(Some(facts), step))
            .map_err(CallError::from)
    }

    /// Audits a step of the worker's life, or refuses to go on.
    pub(crate) fn record(&self, step: AuditStep) -> Result<(), AuditError> {
        self.core.audit.record(self.event(None, step))
    }

    /// Audits a step of the worker's life that happens in any case; the log counts what it missed.
    pub(crate) fn note(&self, step: AuditStep) {
        let _ = self.record(step);
    }

    /// The root that most of a call's work is on.
    fn root_of(&self, needs: &[Scope]) -> Option<VirtualPath> {
        let path = needs.iter().find_map(Scope::path)?;
        self.holder
            .roots
            .find(path)
            .map(|(root, _)| root.mount().clone())
    }

    fn lost_thread(&self) {
        self.lost.fetch_add(1, Ordering::AcqRel);
    }

    fn regained_thread(&self) {
        self.lost.fetch_sub(1, Ordering::AcqRel);
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

/// A tool as it is handed to a model.
#[derive(Clone, Debug)]
pub struct ToolInfo {
    /// What the tool says of itself.
    pub spec: ToolSpec,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// JSON Schema of the structured output.
    pub output_schema: Value,
    /// It changes something, so it can be previewed.
    pub mutates: bool,
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
        outcome(inbox::submit(&self.shared, call, None, Mode::Apply).await?)
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
        outcome(inbox::submit(&self.shared, call, Some(Box::new(arguments)), Mode::Apply).await?)
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
        match inbox::submit(&self.shared, call, None, Mode::Preview).await? {
            Done::Preview(preview) => Ok(preview),
            Done::Outcome(_) => Err(CallError::new(
                Code::InvalidArguments,
                "this tool only reads; call it",
            )),
        }
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

    /// Takes all authority from this worker and everything beneath it. When it returns, nothing new begins, and
    /// effects that had begun have ended, but for [`Revoked::unfinished`].
    pub async fn revoke(&self) -> Revoked {
        self.shared.core.revoke(self.shared.id).await
    }

    /// The tools that this worker's policy leaves, ready to hand to a model.
    #[must_use]
    pub fn tools(&self) -> Vec<ToolInfo> {
        let entries = self.shared.core.tools.entries();
        let allowed =
            entries.filter(|entry| self.shared.authority.allows_tool(entry.name.as_str()));
        let info = |entry: &crate::tool::Entry| ToolInfo {
            spec: entry.spec.clone(),
            input_schema: entry.input_schema.clone(),
            output_schema: entry.output_schema.clone(),
            mutates: entry.mutates,
        };
        allowed.map(info).collect()
    }

    /// Says which layer and rule decides on each need of a call, and the smallest grant that would allow it. Nothing
    /// is looked at, so links are not followed.
    ///
    /// # Errors
    /// [`CallError`] if the call cannot be understood.
    pub fn explain(&self, call: &Call) -> Result<Vec<Explanation>, CallError> {
        intake::explain(&self.shared, call)
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

fn outcome(done: Done) -> Result<Outcome, CallError> {
    match done {
        Done::Outcome(outcome) => Ok(outcome),
        Done::Preview(_) => Err(CallError::new(
            Code::Internal,
            "a call was answered by a preview",
        )),
    }
}
