//! A prepared call in; judged, asked about, planned and permitted in that order; a permit or a refusal out.
//!
//! The order is in the types: only [`Step<Parsed>::judge`] yields a [`Step<Cleared>`], only a cleared step
//! mints permits, and only a planned one mints the permit to write. Nothing here looks at a clock or a file.

mod token;
mod waiting;
mod way;

use std::sync::Arc;

use serde_json::Value;

use crate::call::Origin;
use crate::capability::{CallPermit, Gate, Interrupt, ReadPermit, StopFlag, Terms, WritePermit};
use crate::effect::{ExcludedHunks, PreviewToken};
use crate::error::{CallError, Code};
use crate::id::{CallId, ToolName, WorkerId};
use crate::path::VirtualPath;
use crate::permission::Redeemed;
use crate::policy::{Authority, Explanation, Limits, Verdict};
use crate::root::{Root, RootTable};
use crate::scope::{Coverage, Scope, ScopePattern, Verb};
use crate::tool::{AnyPlan, Job, ReadJob, RemoteJob, WriteJob};

use token::of_one_call;
pub(crate) use token::{PreviewKey, arguments_hash, canonical, remote_token, token_of};
use way::Way;

/// How often a call may find that it needs something else before it is refused.
const MAX_ROUNDS: u8 = 16;

/// Whether a mutating call shows what it would do, or does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Preview,
    Apply,
}

/// What never changes about a call while it is under way.
#[derive(Debug)]
pub(crate) struct Facts {
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
pub(crate) struct Holder {
    pub(crate) roots: Arc<RootTable>,
    pub(crate) gate: Arc<Gate>,
}

/// What people granted to a call.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) redeemed: Redeemed,
    /// Handles on what was granted beyond the worker's roots.
    pub(crate) outside: Vec<Arc<Root>>,
}

/// A call at one point of its way.
#[derive(Debug)]
pub(crate) struct Step<S> {
    facts: Arc<Facts>,
    way: Box<Way>,
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
    terms: Arc<Terms>,
}

/// What it would do is known.
#[derive(Debug)]
pub(crate) struct Planned {
    job: Arc<dyn WriteJob>,
    terms: Arc<Terms>,
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
    pub(crate) fn facts(&self) -> &Arc<Facts> {
        &self.facts
    }

    pub(crate) fn needs(&self) -> &[Scope] {
        &self.way.needs
    }

    /// The paths a mutating call may change.
    pub(crate) fn written(&self) -> Vec<VirtualPath> {
        let writes = self
            .way
            .needs
            .iter()
            .filter(|need| need.verb() == Verb::Write);
        writes.filter_map(|need| need.path().cloned()).collect()
    }

    /// The limits of the call: its worker's, tightened by its own policy.
    pub(crate) fn limits(&self) -> &Limits {
        self.way.authority.limits()
    }

    /// Whether the call came with a policy of its own.
    pub(crate) fn has_own_policy(&self) -> bool {
        self.way.authority.has_call_policy()
    }

    /// About how many bytes the policy of the call itself holds.
    pub(crate) fn policy_size(&self) -> usize {
        self.way.authority.call_size()
    }

    pub(crate) fn mutates(&self) -> bool {
        match &self.way.job {
            Job::Read(_) => false,
            Job::Write(_) => true,
            Job::Remote(job) => job.mutates(),
        }
    }

    /// What the call may do.
    #[cfg(feature = "mcp")]
    pub(crate) fn authority(&self) -> &Authority {
        &self.way.authority
    }

    /// Whether another server carries it out.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.way.job, Job::Remote(_))
    }

    /// Takes up what a tool found on its way; the call is judged anew.
    pub(crate) fn interrupted(mut self, interrupt: Interrupt) -> Result<Step<Parsed>, CallError> {
        self.way.rounds += 1;
        if self.way.rounds > MAX_ROUNDS {
            return Err(CallError::new(
                Code::Conflict,
                "the paths of this call keep changing; try again",
            ));
        }
        self.way.take_up(interrupt)?;
        Ok(Step {
            facts: self.facts,
            way: self.way,
            state: Parsed,
        })
    }

    fn terms(&self, granted: Vec<Coverage>) -> Arc<Terms> {
        Arc::new(Terms {
            authority: self.way.authority.clone(),
            granted,
            protected: self.way.protected.clone(),
            moved: self.way.moved.clone(),
            roots: if self.way.outside.is_empty() {
                Arc::clone(&self.way.holder.roots)
            } else {
                Arc::new(self.way.holder.roots.with(&self.way.outside))
            },
            gate: Arc::clone(&self.way.holder.gate),
            grant_gates: self.way.grant_gates.clone(),
            stop: Arc::clone(&self.facts.stop),
        })
    }
}

impl Step<Parsed> {
    pub(crate) fn new(
        facts: Arc<Facts>,
        job: Job,
        needs: Vec<Scope>,
        authority: Authority,
        holder: Arc<Holder>,
        offered: Vec<ScopePattern>,
    ) -> Self {
        let (granted, grant_gates, moved) = (Vec::new(), Vec::new(), Vec::new());
        let way = Way {
            job,
            needs,
            authority,
            holder,
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
            facts,
            way: Box::new(way),
            state: Parsed,
        };
        let also = also_needs(&step.way.job, || step.terms(Vec::new()));
        step.way.needs.extend(also);
        step
    }

    /// Judges every need: the most closed verdict counts. Says what decided, unless nothing but the layers allows it:
    /// then no single rule did.
    pub(crate) fn judge(self) -> (Judged, Option<Explanation>) {
        let Way {
            needs,
            authority,
            granted,
            ..
        } = &*self.way;
        let mut asks = Vec::new();
        for need in needs {
            match self.way.judge(need) {
                Verdict::Allow => {}
                Verdict::Ask => asks.push(need.clone()),
                Verdict::Deny => {
                    let why = authority.explain(need, granted);
                    return (Judged::Refused(self.way.refusal(need)), Some(why));
                }
            }
        }
        if !asks.is_empty() {
            asks.sort();
            asks.dedup();
            let why = asks.first().map(|need| self.way.explain_ask(need));
            let waiting = Step {
                facts: self.facts,
                way: self.way,
                state: Waiting { asks },
            };
            return (Judged::Ask(waiting), why);
        }
        let why = || needs.iter().map(|need| authority.explain(need, granted));
        let why = (!granted.is_empty())
            .then(|| why().find(|why| why.granted_by.is_some()))
            .flatten();
        let terms = self.terms(self.way.granted.clone());
        let cleared = Step {
            facts: self.facts,
            way: self.way,
            state: Cleared { terms },
        };
        (Judged::Run(cleared), why)
    }
}

impl Step<Waiting> {
    /// Whether hunks can be left out of what the call would change.
    pub(crate) fn divisible(&self) -> bool {
        matches!(&self.way.job, Job::Write(job) if job.divisible())
    }
}

impl Step<Cleared> {
    /// What is to be run, with the permit to look.
    pub(crate) fn work(&self) -> Work {
        let permit = ReadPermit::mint(Arc::clone(&self.state.terms));
        match &self.way.job {
            Job::Read(job) => Work::Read(Arc::clone(job), permit),
            Job::Write(job) => Work::Write(Arc::clone(job), permit),
            Job::Remote(job) => {
                let terms = Arc::clone(&self.state.terms);
                let preview = self.facts.mode == Mode::Preview;
                let permit = CallPermit::mint(terms, preview);
                Work::Remote(Arc::clone(job), permit)
            }
        }
    }

    /// Refuses a change that must be previewed first and was not.
    pub(crate) fn previewed(&self) -> Result<(), CallError> {
        let blind = self.facts.mode == Mode::Apply && self.facts.token.is_none();
        if blind && self.mutates() && self.way.authority.requires_preview() {
            return Err(unpreviewed());
        }
        Ok(())
    }

    /// Ties the call to its plan; refused if it was approved by a preview of something else.
    pub(crate) fn planned(self, plan: AnyPlan) -> Result<Step<Planned>, CallError> {
        let Job::Write(job) = &self.way.job else {
            return Err(CallError::new(Code::Internal, "a reading tool has no plan"));
        };
        let token = token_of(&self.facts, &plan)?;
        match (self.facts.mode, self.facts.token) {
            (Mode::Apply, Some(approved)) if !of_one_call(approved, token) => Err(foreign()),
            (Mode::Apply, Some(approved)) if approved != token => Err(stale()),
            (Mode::Apply, None) if self.way.authority.requires_preview() => Err(unpreviewed()),
            _ => {
                let state = Planned {
                    job: Arc::clone(job),
                    terms: Arc::clone(&self.state.terms),
                    plan,
                    token,
                };
                Ok(Step {
                    facts: self.facts,
                    way: self.way,
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
            if plan.cost.bytes > self.way.authority.limits().write_max_bytes {
                let message = "what is left of the change is larger than may be written";
                return Err(CallError::new(Code::TooLarge, message));
            }
            self.state = Planned {
                token: token_of(&self.facts, &plan)?,
                plan,
                job,
                terms: self.state.terms,
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
            job, terms, plan, ..
        } = self.state;
        (job, plan, WritePermit::mint(terms))
    }
}

/// What a call needs because of what its worker may do, without grants.
fn also_needs(job: &Job, terms: impl FnOnce() -> Arc<Terms>) -> Vec<Scope> {
    match job {
        Job::Write(job) => job.also_needs(&ReadPermit::mint(terms())),
        Job::Read(_) | Job::Remote(_) => Vec::new(),
    }
}

/// What decides on each need of a call that is not made.
pub(crate) fn explain_needs(
    job: &Job,
    mut needs: Vec<Scope>,
    authority: &Authority,
    holder: &Holder,
) -> Vec<Explanation> {
    let terms = || {
        Arc::new(Terms {
            authority: authority.clone(),
            granted: Vec::new(),
            protected: Vec::new(),
            moved: Vec::new(),
            roots: Arc::clone(&holder.roots),
            gate: Arc::clone(&holder.gate),
            grant_gates: Vec::new(),
            stop: Arc::default(),
        })
    };
    needs.extend(also_needs(job, terms));
    let explained = needs.iter().map(|need| authority.explain(need, &[]));
    explained.collect()
}

fn unpreviewed() -> CallError {
    CallError::new(
        Code::StalePreview,
        "a change must be previewed first: send the call with `preview` set to true, then the same call with the \
         `preview_token` that it answers",
    )
}

fn foreign() -> CallError {
    CallError::new(
        Code::InvalidArguments,
        "the preview token is not one of this call: its tool or arguments differ from the preview's, or it was not made \
         here; preview this call",
    )
    .with("field", "/_meta/preview_token")
}

fn stale() -> CallError {
    CallError::new(
        Code::StalePreview,
        "the files changed since the preview; preview the call again",
    )
}
