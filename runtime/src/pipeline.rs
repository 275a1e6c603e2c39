//! Typestate of a call: parsed, authorised, planned, permitted.
//!
//! The order is in the types: only [`Step<Parsed>::judge`] yields a [`Step<Cleared>`], only a cleared step
//! mints permits, and only a planned one mints the permit to write. Nothing here looks at a clock or a file.

mod context;
mod token;
mod waiting;

use std::sync::Arc;

use serde_json::Value;

use crate::call::Origin;
use crate::capability::{
    CallPermit, Gate, Interrupt, PermitScope, ReadPermit, StopFlag, WritePermit,
};
use crate::effect::{ExcludedHunks, PreviewToken};
use crate::error::{CallError, Code};
use crate::id::{CallId, ToolName, WorkerId};
use crate::path::VirtualPath;
use crate::permission::UsedGrants;
use crate::policy::{Authority, Explanation, Limits, Verdict};
use crate::root::{Root, RootTable};
use crate::scope::{Coverage, Scope, ScopePattern, Verb};
use crate::tool::{AnyPlan, Job, ReadJob, RemoteJob, WriteJob};

use context::CallContext;
use token::of_one_call;
pub(crate) use token::{PreviewKey, arguments_hash, canonical, remote_token, token_of};

/// How often a call may find that it needs something else before it is refused.
const MAX_ROUNDS: u8 = 16;

/// Whether a mutating call shows what it would do, or does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Preview,
    Apply,
}

/// What never changes about a call while it is under context.
#[derive(Debug)]
pub(crate) struct CallInfo {
    pub(crate) id: CallId,
    pub(crate) worker: WorkerId,
    pub(crate) tool: ToolName,
    pub(crate) origin: Origin,
    pub(crate) mode: Mode,
    pub(crate) token: Option<PreviewToken>,
    /// What preview tokens are made with.
    pub(crate) key: PreviewKey,
    /// A person must allow this very call.
    pub(crate) confirm: bool,
    /// As JSON; `Null` for arguments of the tool's own type.
    pub(crate) arguments: Value,
    pub(crate) stop: Arc<StopFlag>,
    /// Who answers what a server asks within the call.
    #[cfg(feature = "mcp")]
    pub(crate) requests: Option<crate::CallRequests>,
}

/// The part of a worker that permits are made of.
#[derive(Debug)]
pub(crate) struct WorkerHandles {
    pub(crate) roots: Arc<RootTable>,
    pub(crate) gate: Arc<Gate>,
}

/// What people granted to a call.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) used: UsedGrants,
    /// Handles on what was granted beyond the worker's roots.
    pub(crate) outside: Vec<Arc<Root>>,
}

/// A call at one point of its context.
#[derive(Debug)]
pub(crate) struct Step<S> {
    info: Arc<CallInfo>,
    context: Box<CallContext>,
    state: S,
}

/// The arguments were understood.
#[derive(Debug)]
pub(crate) struct Parsed;

/// A person must allow some needs.
#[derive(Debug)]
pub(crate) struct Waiting {
    asks: Vec<Scope>,
}

/// Every need is allowed.
#[derive(Debug)]
pub(crate) struct Cleared {
    permit_scope: Arc<PermitScope>,
}

/// What it would do is known.
#[derive(Debug)]
pub(crate) struct Planned {
    job: Arc<dyn WriteJob>,
    permit_scope: Arc<PermitScope>,
    plan: AnyPlan,
    token: PreviewToken,
}

/// What judging a call came to.
#[derive(Debug)]
pub(crate) enum Judged {
    Run(Step<Cleared>),
    Ask(Step<Waiting>),
    Refused(CallError),
}

impl Judged {
    /// The verdict on all needs together.
    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Self::Run(_) => Verdict::Allow,
            Self::Ask(_) => Verdict::Ask,
            Self::Refused(_) => Verdict::Deny,
        }
    }
}

/// What is left to do for a cleared call.
#[derive(Debug)]
pub(crate) enum Work {
    Read(Arc<dyn ReadJob>, ReadPermit),
    Write(Arc<dyn WriteJob>, ReadPermit),
    Remote(Arc<dyn RemoteJob>, CallPermit),
}

impl<S> Step<S> {
    pub(crate) fn info(&self) -> &Arc<CallInfo> {
        &self.info
    }

    pub(crate) fn needs(&self) -> &[Scope] {
        &self.context.needs
    }

    /// The paths a mutating call may change.
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

    /// Whether the call came with a policy of its own.
    pub(crate) fn has_own_policy(&self) -> bool {
        self.context.authority.has_call_policy()
    }

    /// About how many bytes the policy of the call itself holds.
    pub(crate) fn policy_size(&self) -> usize {
        self.context.authority.call_size()
    }

    pub(crate) fn mutates(&self) -> bool {
        match &self.context.job {
            Job::Read(_) => false,
            Job::Write(_) => true,
            Job::Remote(job) => job.mutates(),
        }
    }

    /// What the call may do.
    #[cfg(feature = "mcp")]
    pub(crate) fn authority(&self) -> &Authority {
        &self.context.authority
    }

    /// Whether another server carries it out.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.context.job, Job::Remote(_))
    }

    /// Takes up what a tool found on its context; the call is judged anew.
    pub(crate) fn interrupted(mut self, interrupt: Interrupt) -> Result<Step<Parsed>, CallError> {
        self.context.rounds += 1;
        if self.context.rounds > MAX_ROUNDS {
            return Err(CallError::new(
                Code::Conflict,
                "the paths of this call keep changing; try again",
            ));
        }
        self.context.take_up(interrupt)?;
        Ok(Step {
            info: self.info,
            context: self.context,
            state: Parsed,
        })
    }

    fn permit_scope(&self, granted: Vec<Coverage>) -> Arc<PermitScope> {
        Arc::new(PermitScope {
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
        })
    }
}

impl Step<Parsed> {
    pub(crate) fn new(
        info: Arc<CallInfo>,
        job: Job,
        needs: Vec<Scope>,
        authority: Authority,
        handles: Arc<WorkerHandles>,
        offered: Vec<ScopePattern>,
    ) -> Self {
        let (granted, grant_gates, moved) = (Vec::new(), Vec::new(), Vec::new());
        let context = CallContext {
            job,
            needs,
            authority,
            handles,
            granted,
            protected: Vec::new(),
            grant_gates,
            moved,
            outside: Vec::new(),
            offered,
            replayed: Vec::new(),
            tried: Vec::new(),
            rounds: 0,
        };
        let mut step = Self {
            info,
            context: Box::new(context),
            state: Parsed,
        };
        let also = also_needs(&step.context.job, || step.permit_scope(Vec::new()));
        step.context.needs.extend(also);
        step
    }

    /// Judges every need: the most closed verdict counts. Says what decided, unless nothing but the layers allows it:
    /// then no single rule did.
    pub(crate) fn judge(self) -> (Judged, Option<Explanation>) {
        let CallContext {
            needs,
            authority,
            granted,
            ..
        } = &*self.context;
        let mut asks = Vec::new();
        for need in needs {
            match self.context.judge(need) {
                Verdict::Allow => {}
                Verdict::Ask => asks.push(need.clone()),
                Verdict::Deny => {
                    let why = authority.explain(need, granted);
                    return (Judged::Refused(self.context.refusal(need)), Some(why));
                }
            }
        }
        if !asks.is_empty() {
            asks.sort();
            asks.dedup();
            let why = asks.first().map(|need| self.context.explain_ask(need));
            let waiting = Step {
                info: self.info,
                context: self.context,
                state: Waiting { asks },
            };
            return (Judged::Ask(waiting), why);
        }
        let why = || needs.iter().map(|need| authority.explain(need, granted));
        let why = (!granted.is_empty())
            .then(|| why().find(|why| why.granted_by.is_some()))
            .flatten();
        let permit_scope = self.permit_scope(self.context.granted.clone());
        let cleared = Step {
            info: self.info,
            context: self.context,
            state: Cleared { permit_scope },
        };
        (Judged::Run(cleared), why)
    }
}

impl Step<Waiting> {
    /// Whether hunks can be left out of what the call would change.
    pub(crate) fn divisible(&self) -> bool {
        matches!(&self.context.job, Job::Write(job) if job.divisible())
    }
}

impl Step<Cleared> {
    /// What is to be run, with the permit to look.
    pub(crate) fn work(&self) -> Work {
        let permit = ReadPermit::mint(Arc::clone(&self.state.permit_scope));
        match &self.context.job {
            Job::Read(job) => Work::Read(Arc::clone(job), permit),
            Job::Write(job) => Work::Write(Arc::clone(job), permit),
            Job::Remote(job) => {
                let permit_scope = Arc::clone(&self.state.permit_scope);
                let preview = self.info.mode == Mode::Preview;
                let permit = CallPermit::mint(permit_scope, preview);
                Work::Remote(Arc::clone(job), permit)
            }
        }
    }

    /// Refuses a change that must be previewed first and was not.
    pub(crate) fn previewed(&self) -> Result<(), CallError> {
        let blind = self.info.mode == Mode::Apply && self.info.token.is_none();
        if blind && self.mutates() && self.context.authority.requires_preview() {
            return Err(preview_required());
        }
        Ok(())
    }

    /// Ties the call to its plan; refused if it was approved by a preview of something else.
    pub(crate) fn planned(self, plan: AnyPlan) -> Result<Step<Planned>, CallError> {
        let Job::Write(job) = &self.context.job else {
            return Err(CallError::new(Code::Internal, "a reading tool has no plan"));
        };
        let token = token_of(&self.info, &plan)?;
        match (self.info.mode, self.info.token) {
            (Mode::Apply, Some(approved)) if !of_one_call(approved, token) => Err(foreign_token()),
            (Mode::Apply, Some(approved)) if approved != token => Err(stale_preview()),
            (Mode::Apply, None) if self.context.authority.requires_preview() => {
                Err(preview_required())
            }
            _ => {
                let state = Planned {
                    job: Arc::clone(job),
                    permit_scope: Arc::clone(&self.state.permit_scope),
                    plan,
                    token,
                };
                Ok(Step {
                    info: self.info,
                    context: self.context,
                    state,
                })
            }
        }
    }
}

impl Step<Planned> {
    /// The same call without the parts that a person left out; the plan that they saw was checked whole.
    pub(crate) fn without(mut self, left_out: &[ExcludedHunks]) -> Result<Self, CallError> {
        if !left_out.is_empty() {
            let Planned { job, plan, .. } = self.state;
            let plan = job.divide(plan, left_out)?;
            if plan.cost.bytes > self.context.authority.limits().write_max_bytes {
                let message = "what is left of the change is larger than may be written";
                return Err(CallError::new(Code::TooLarge, message));
            }
            self.state = Planned {
                token: token_of(&self.info, &plan)?,
                plan,
                job,
                permit_scope: self.state.permit_scope,
            };
        }
        Ok(self)
    }

    pub(crate) fn plan(&self) -> &AnyPlan {
        &self.state.plan
    }

    pub(crate) fn token(&self) -> PreviewToken {
        self.state.token
    }

    /// The plan and the one permit that carries it out.
    pub(crate) fn permit(self) -> (Arc<dyn WriteJob>, AnyPlan, WritePermit) {
        let Planned {
            job,
            permit_scope,
            plan,
            ..
        } = self.state;
        (job, plan, WritePermit::mint(permit_scope))
    }
}

/// What a call needs because of what its worker may do, without grants.
fn also_needs(job: &Job, permit_scope: impl FnOnce() -> Arc<PermitScope>) -> Vec<Scope> {
    match job {
        Job::Write(job) => job.also_needs(&ReadPermit::mint(permit_scope())),
        Job::Read(_) | Job::Remote(_) => Vec::new(),
    }
}

/// What decides on each need of a call that is not made.
pub(crate) fn explain_needs(
    job: &Job,
    mut needs: Vec<Scope>,
    authority: &Authority,
    handles: &WorkerHandles,
) -> Vec<Explanation> {
    let permit_scope = || {
        Arc::new(PermitScope {
            authority: authority.clone(),
            granted: Vec::new(),
            protected: Vec::new(),
            moved: Vec::new(),
            roots: Arc::clone(&handles.roots),
            gate: Arc::clone(&handles.gate),
            grant_gates: Vec::new(),
            stop: Arc::default(),
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
         `preview_token` that it answers",
    )
}

fn foreign_token() -> CallError {
    CallError::new(
        Code::InvalidArguments,
        "the preview token is not one of this call: its tool or arguments differ from the preview's, or it was not made \
         here; preview this call",
    )
    .with("field", "/_meta/preview_token")
}

fn stale_preview() -> CallError {
    CallError::new(
        Code::StalePreview,
        "the files changed since the preview; preview the call again",
    )
}
