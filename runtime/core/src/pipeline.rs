//! Typestate of a call: parsed, waiting for approval, cleared, planned.
//!
//! The types enforce the order: only `Step<Parsed>::judge` returns a `Step<Cleared>`, only a cleared step creates
//! permits, and only a planned one creates a write permit. The pipeline uses no clock and no files.

mod context;
mod token;
mod waiting;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::call::{Mode, Origin};
use crate::capability::{
    ActPermit, CallControl, CallPermit, Gate, Interrupt, PermitScope, ReadPermit, WritePermit,
};
use crate::effect::{Change, ExcludedChange, Op, PreviewToken};
use crate::error::{CallError, Code};
use crate::id::{CallId, ToolName, WorkerId};
use crate::journal::JournalView;
use crate::path::VirtualPath;
use crate::permission::UsedGrants;
use crate::policy::{Authority, Explanation, Flag, Limits, Verdict, VerdictCache};
use crate::requests::CallRequests;
use crate::root::{Root, RootTable};
use crate::scope::{Coverage, Scope, ScopePattern, Verb};
use crate::tool::{ActJob, AnyPlan, Job, ReadJob, RemoteJob, Rights, WriteJob};

use context::CallContext;
pub(crate) use token::{PreviewKey, arguments_hash, remote_token, token_of};
use token::{is_of_call, of_one_call};

/// Maximum number of interrupts by its tool before a call is rejected.
const MAX_ROUNDS: u8 = 16;

/// Properties of a call that never change while it runs.
#[derive(Debug)]
#[doc(hidden)]
pub struct CallInfo {
    pub(crate) id: CallId,
    pub(crate) worker: WorkerId,
    pub(crate) tool: ToolName,
    pub(crate) origin: Origin,
    pub(crate) mode: Mode,
    pub(crate) preview_token: Option<PreviewToken>,
    /// What the caller excluded from the change.
    pub(crate) excluded: Vec<ExcludedChange>,
    pub(crate) preview_key: PreviewKey,
    /// Whether a person must approve this call in a separate question.
    pub(crate) confirm: bool,
    /// The arguments as JSON; `Null` for arguments of the tool's own type.
    pub(crate) arguments: Value,
    pub(crate) stop: Arc<CallControl>,
    /// Answers requests that a server makes within the call.
    pub(crate) requests: Option<CallRequests>,
}

/// The worker's directory handles and its gate, which permits are made from.
#[derive(Debug)]
pub(crate) struct WorkerHandles {
    pub(crate) roots: Arc<RootTable>,
    pub(crate) gate: Arc<Gate>,
    /// Its ancestors, from the nearest to the outermost.
    pub(crate) lineage: Arc<[WorkerId]>,
    /// The changes that it may undo, if the runtime has a journal.
    pub(crate) journal: Option<JournalView>,
}

/// What people granted for a call.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) used: UsedGrants,
    /// Directories outside the worker's roots that were granted.
    pub(crate) outside: Vec<Arc<Root>>,
}

/// A call at one stage of the pipeline.
#[derive(Debug)]
pub(crate) struct Step<S> {
    info: Arc<CallInfo>,
    context: Box<CallContext>,
    state: S,
}

/// The arguments are parsed.
#[derive(Debug)]
pub(crate) struct Parsed;

/// Some needs require approval.
#[derive(Debug)]
pub(crate) struct Waiting {
    asks: Vec<Scope>,
}

/// Every need is allowed.
#[derive(Debug)]
pub(crate) struct Cleared {
    permit_scope: Arc<PermitScope>,
}

/// The plan is known.
#[derive(Debug)]
pub(crate) struct Planned<J: ?Sized> {
    job: Arc<J>,
    permit_scope: Arc<PermitScope>,
    plan: AnyPlan,
    token: PreviewToken,
    /// Whether parts of it were excluded.
    is_partial: bool,
}

/// The result of judging a call.
#[derive(Debug)]
pub(crate) enum Judged {
    Allowed(Step<Cleared>),
    Ask(Step<Waiting>),
    Rejected(CallError),
}

impl Judged {
    /// The verdict on all needs together.
    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Self::Allowed(_) => Verdict::Allow,
            Self::Ask(_) => Verdict::Ask,
            Self::Rejected(_) => Verdict::Deny,
        }
    }
}

/// The work of a cleared call.
#[derive(Debug)]
pub(crate) enum Work {
    Read(Arc<dyn ReadJob>, ReadPermit),
    Write(Arc<dyn WriteJob>, ReadPermit),
    Act(Arc<dyn ActJob>),
    Remote(Arc<dyn RemoteJob>, CallPermit),
}

impl<S> Step<S> {
    pub(crate) fn info(&self) -> &Arc<CallInfo> {
        &self.info
    }

    pub(crate) fn needs(&self) -> &[Scope] {
        &self.context.needs
    }

    /// The paths that a mutating call may change.
    pub(crate) fn written(&self) -> Vec<VirtualPath> {
        let writes = self
            .context
            .needs
            .iter()
            .filter(|need| need.verb() == Verb::Write);
        writes.filter_map(|need| need.path().cloned()).collect()
    }

    /// The limits of the call: its worker's, tightened by its own policy.
    pub(crate) fn limits(&self) -> &Limits {
        self.context.authority.limits()
    }

    /// Whether the call has a policy of its own.
    pub(crate) fn has_own_policy(&self) -> bool {
        self.context.has_own_policy
    }

    /// Approximate size of the call's own policy in bytes.
    pub(crate) fn policy_size(&self) -> usize {
        self.context.authority.call_size()
    }

    pub(crate) fn mutates(&self) -> bool {
        match &self.context.job {
            Job::Read(_) => false,
            Job::Write(_) | Job::Act(_) => true,
            Job::Remote(job) => job.mutates(),
        }
    }

    /// Whether the call is judged for the first time: its tool has not interrupted it, and it uses no grant.
    pub(crate) fn is_first_round(&self) -> bool {
        self.context.rounds == 0 && self.context.granted.is_empty()
    }

    /// What the call may do.
    pub(crate) fn authority(&self) -> &Authority {
        &self.context.authority
    }

    /// Whether the call runs as a future, without a pool thread: an act tool or a third-party server carries it out.
    pub(crate) fn is_future(&self) -> bool {
        matches!(self.context.job, Job::Act(_) | Job::Remote(_))
    }

    /// The job of an act tool, if it is a call of one.
    pub(crate) fn act_job(&self) -> Option<&dyn ActJob> {
        match &self.context.job {
            Job::Act(job) => Some(&**job),
            Job::Read(_) | Job::Write(_) | Job::Remote(_) => None,
        }
    }

    /// What a call of an act tool may change. Runs code of the tool.
    pub(crate) fn plan_act(&self, job: &dyn ActJob) -> AnyPlan {
        job.plan(&Rights::new(
            &self.context.authority,
            &self.context.granted_needs(),
        ))
    }

    /// Handles an interrupt of the tool; the call is judged again.
    pub(crate) fn interrupted(mut self, interrupt: Interrupt) -> Result<Step<Parsed>, CallError> {
        self.context.rounds += 1;
        if self.context.rounds > MAX_ROUNDS {
            return Err(CallError::new(
                Code::Conflict,
                "the tool kept finding new needs or symbolic links; try again",
            ));
        }
        self.context.apply_interrupt(interrupt)?;
        Ok(self.at(Parsed))
    }

    /// Whether people granted files outside the worker's roots for this call.
    pub(crate) fn has_files_outside(&self) -> bool {
        !self.context.outside.is_empty()
    }

    /// This call at another stage.
    fn at<T>(self, state: T) -> Step<T> {
        Step {
            info: self.info,
            context: self.context,
            state,
        }
    }

    fn permit_scope(&self, granted: Vec<Coverage>) -> Arc<PermitScope> {
        Arc::new(PermitScope {
            worker: Some(self.info.worker),
            lineage: Arc::clone(&self.context.handles.lineage),
            authority: self.context.authority.clone(),
            granted,
            protected: self.context.protected.clone(),
            moved: self.context.moved.clone(),
            roots: if self.context.outside.is_empty() {
                Arc::clone(&self.context.handles.roots)
            } else {
                Arc::new(self.context.handles.roots.with(&self.context.outside))
            },
            gate: Arc::clone(&self.context.handles.gate),
            grant_gates: self.context.grant_gates.clone(),
            stop: Arc::clone(&self.info.stop),
            journal: self.context.handles.journal.clone(),
        })
    }
}

impl Step<Parsed> {
    pub(crate) fn new(
        info: Arc<CallInfo>,
        job: Job,
        needs: Vec<Scope>,
        authority: Authority,
        has_own_policy: bool,
        handles: Arc<WorkerHandles>,
        sent_grants: Vec<ScopePattern>,
    ) -> Self {
        let context = CallContext {
            job,
            needs,
            authority,
            has_own_policy,
            handles,
            granted: Vec::new(),
            protected: Vec::new(),
            grant_gates: Vec::new(),
            moved: Vec::new(),
            outside: Vec::new(),
            sent_grants,
            needs_of_sent_grants: Vec::new(),
            tried: Vec::new(),
            rounds: 0,
        };
        Self {
            info,
            context: Box::new(context),
            state: Parsed,
        }
    }

    /// Adds the needs that depend on what the worker may do without grants. Runs code of the tool.
    pub(crate) fn with_also_needs(mut self) -> Self {
        let also = also_needs(&self.context.job, || self.permit_scope(Vec::new()));
        self.context.needs.extend(also);
        self
    }

    /// Judges every need; the strictest verdict counts. Also returns the explanation of the deciding rule, unless all layers
    /// allow the call without a grant, since no single rule decides then.
    pub(crate) fn judge(self, verdicts: &mut VerdictCache) -> (Judged, Option<Explanation>) {
        let CallContext {
            needs,
            authority,
            granted,
            ..
        } = &*self.context;
        let mut asks = Vec::new();
        for need in needs {
            let verdict = verdicts.judge(authority, need, granted);
            match self.context.unless_protected(need, verdict) {
                Verdict::Allow => {}
                Verdict::Ask => asks.push(need.clone()),
                Verdict::Deny => {
                    let why = authority.explain(need, granted);
                    return (Judged::Rejected(self.context.refusal(need)), Some(why));
                }
            }
        }
        if !asks.is_empty() {
            asks.sort();
            asks.dedup();
            let why = asks.first().map(|need| self.context.explain_ask(need));
            return (Judged::Ask(self.at(Waiting { asks })), why);
        }
        let why = || needs.iter().map(|need| authority.explain(need, granted));
        let why = (!granted.is_empty())
            .then(|| why().find(|why| why.granted_by.is_some()))
            .flatten();
        let granted = match &self.context.job {
            Job::Act(_) => self.context.granted_needs(),
            Job::Read(_) | Job::Write(_) | Job::Remote(_) => granted.clone(),
        };
        let permit_scope = self.permit_scope(granted);
        (Judged::Allowed(self.at(Cleared { permit_scope })), why)
    }
}

impl Step<Cleared> {
    /// The job to run, with its permit.
    pub(crate) fn work(&self) -> Work {
        let permit = ReadPermit::mint(Arc::clone(&self.state.permit_scope));
        match &self.context.job {
            Job::Read(job) => Work::Read(Arc::clone(job), permit),
            Job::Write(job) => Work::Write(Arc::clone(job), permit),
            Job::Act(job) => Work::Act(Arc::clone(job)),
            Job::Remote(job) => {
                let permit_scope = Arc::clone(&self.state.permit_scope);
                let preview = self.info.mode == Mode::Preview;
                let permit = CallPermit::mint(permit_scope, preview);
                Work::Remote(Arc::clone(job), permit)
            }
        }
    }

    /// Rejects a change that requires a preview and has none.
    pub(crate) fn previewed(&self) -> Result<(), CallError> {
        let blind = self.info.mode == Mode::Apply && self.info.preview_token.is_none();
        if blind && self.mutates() && self.context.authority.flag(Flag::RequirePreview) {
            return Err(preview_required());
        }
        Ok(())
    }

    /// Binds the call to its plan. Fails if its preview token is that of another call or plan.
    pub(crate) fn planned<J: ?Sized>(
        self,
        job: Arc<J>,
        plan: AnyPlan,
    ) -> Result<Step<Planned<J>>, CallError> {
        let token = token_of(&self.info, &plan)?;
        match (self.info.mode, self.info.preview_token) {
            (Mode::Apply, Some(approved)) if !of_one_call(approved, token) => Err(foreign_token()),
            (Mode::Apply, Some(approved)) if approved != token => Err(stale_preview()),
            (Mode::Apply, None) if self.context.authority.flag(Flag::RequirePreview) => {
                Err(preview_required())
            }
            _ => {
                let state = Planned {
                    job,
                    permit_scope: Arc::clone(&self.state.permit_scope),
                    plan,
                    token,
                    is_partial: false,
                };
                Ok(self.at(state))
            }
        }
    }
}

impl Step<Planned<dyn WriteJob>> {
    /// Removes what a person excluded; the plan that they saw was checked as a whole.
    pub(crate) fn without(mut self, excluded: &[ExcludedChange]) -> Result<Self, CallError> {
        let excluded = ExcludedChange::joined(excluded, &self.info.excluded);
        if !excluded.is_empty() {
            let Planned { job, plan, .. } = self.state;
            ExcludedChange::check(&excluded, &plan.changes)
                .map_err(|error| CallError::new(Code::InvalidArguments, error.to_string()))?;
            let plan = job.divide(plan, &excluded)?;
            let written = |change: &Change| match change.op {
                Op::Create | Op::Modify => change.after.bytes().unwrap_or_default(),
                Op::Delete | Op::Move | Op::Copy | Op::MakeDirectory => 0,
            };
            let largest = plan.changes.iter().map(written).max().unwrap_or_default();
            if largest > self.context.authority.limits().write_max_bytes {
                let message = "the remaining change is larger than may be written";
                return Err(CallError::new(Code::TooLarge, message));
            }
            self.state = Planned {
                token: token_of(&self.info, &plan)?,
                plan,
                job,
                permit_scope: self.state.permit_scope,
                is_partial: true,
            };
        }
        Ok(self)
    }

    pub(crate) fn job(&self) -> &dyn WriteJob {
        &*self.state.job
    }

    /// The plan and the permit that carries it out.
    pub(crate) fn permit(self) -> (Arc<dyn WriteJob>, AnyPlan, WritePermit) {
        let Planned { job, plan, .. } = self.state;
        (job, plan, WritePermit::mint(self.state.permit_scope))
    }
}

impl Step<Planned<dyn ActJob>> {
    /// The plan and the permit to act.
    pub(crate) fn permit(self) -> (Arc<dyn ActJob>, AnyPlan, ActPermit) {
        let Planned { job, plan, .. } = self.state;
        (job, plan, ActPermit::mint(self.state.permit_scope))
    }
}

impl<J: ?Sized> Step<Planned<J>> {
    pub(crate) fn plan(&self) -> &AnyPlan {
        &self.state.plan
    }

    pub(crate) fn token(&self) -> PreviewToken {
        self.state.token
    }

    /// Whether parts of the plan were excluded.
    pub(crate) fn is_partial(&self) -> bool {
        self.state.is_partial
    }
}

/// Further needs of a call that depend on what its worker may do without grants.
fn also_needs(job: &Job, permit_scope: impl FnOnce() -> Arc<PermitScope>) -> Vec<Scope> {
    match job {
        Job::Write(job) => job.also_needs(&ReadPermit::mint(permit_scope())),
        Job::Read(_) | Job::Act(_) | Job::Remote(_) => Vec::new(),
    }
}

/// Explains the verdict on each need of a call without making it.
pub(crate) fn explain_needs(
    job: &Job,
    mut needs: Vec<Scope>,
    authority: &Authority,
    handles: &WorkerHandles,
) -> Vec<Explanation> {
    let permit_scope = || {
        Arc::new(PermitScope {
            worker: None,
            lineage: Arc::clone(&handles.lineage),
            authority: authority.clone(),
            granted: Vec::new(),
            protected: Vec::new(),
            moved: Vec::new(),
            roots: Arc::clone(&handles.roots),
            gate: Arc::clone(&handles.gate),
            grant_gates: Vec::new(),
            stop: Arc::default(),
            journal: handles.journal.clone(),
        })
    };
    needs.extend(also_needs(job, permit_scope));
    let explained = needs.iter().map(|need| authority.explain(need, &[]));
    explained.collect()
}

fn preview_required() -> CallError {
    CallError::new(
        Code::StalePreview,
        "a change must be previewed first: send the call with `preview` set to true, then the same call with the \
         `preview_token` that it returns",
    )
}

fn foreign_token() -> CallError {
    CallError::new(
        Code::InvalidArguments,
        "the preview token belongs to another call: its tool or arguments differ from the preview's, or another worker \
         or runtime made the preview; preview this call",
    )
    .with("field", "/_meta/preview_token")
}

fn stale_preview() -> CallError {
    CallError::new(
        Code::StalePreview,
        "the files changed since the preview; preview the call again",
    )
}

/// The error of a call that cannot be planned: `STALE_PREVIEW` if a preview of the same call could be planned earlier,
/// with `error` as `details.cause`. Errors that do not depend on the state of the files are returned unchanged.
pub(crate) fn unplannable(info: &CallInfo, error: CallError) -> CallError {
    let previewed = info.mode == Mode::Apply
        && info
            .preview_token
            .is_some_and(|token| is_of_call(token, info));
    if !previewed || !depends_on_files(error.code()) {
        return error;
    }
    let message = format!(
        "the files changed since the preview; preview the call again. The call now fails: {}",
        error.message()
    );
    let cause = json!({"code": error.code().as_str(), "message": error.message()});
    CallError::new(Code::StalePreview, message).with("cause", cause)
}

/// Whether the plan of a call can fail with this code because the files changed.
fn depends_on_files(code: Code) -> bool {
    matches!(
        code,
        Code::NotFound
            | Code::AlreadyExists
            | Code::NotText
            | Code::NotRegular
            | Code::NotDirectory
            | Code::TooLarge
            | Code::NoMatch
            | Code::AmbiguousMatch
            | Code::Conflict
            | Code::InvalidArguments
    )
}
