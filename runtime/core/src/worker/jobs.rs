//! Jobs that run on pool threads: plan, preview, apply.

use super::Shared;
use super::admission::Done;
use crate::artifact;
use crate::artifact::{Kind, OldTexts, Parts, Review};
use crate::audit::{ChangeSummary, ResourceSummary, Step as AuditStep};
use crate::budget::Budget;
use crate::call::Mode;
use crate::capability::{BudgetExceeded, Interrupt, OutputStream, ReadPermit, passes};
use crate::effect::{ArtifactRef, Cost, ExcludedChange, Op, Outcome, Preview, PreviewToken, Reply};
use crate::error::{CallError, Code};
use crate::journal::{JournalChange, NewChange, OpenChange};
use crate::pipeline::{CallInfo, Cleared, Planned, Step, Work, token_of, unplannable};
use crate::tool::{ActJob, AnyPlan, WriteJob};
use bytes::Bytes;
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// How a job ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It has a result.
    Done(Result<Done, CallError>),
    /// The tool interrupted it.
    Interrupted(Step<Cleared>, Interrupt),
}

impl Ended {
    /// The end of a call that its tool may have interrupted.
    pub(super) fn of(step: Step<Cleared>, result: Result<Done, Interrupt>) -> Self {
        match result {
            Ok(done) => Self::Done(Ok(done)),
            Err(Interrupt::Failed(error)) => Self::Done(Err(error)),
            Err(interrupt) => Self::Interrupted(step, interrupt),
        }
    }
}

/// Runs code of a tool and turns a panic into an error.
pub(super) fn catch_tool_panic<T>(
    run: impl FnOnce() -> Result<T, Interrupt>,
) -> Result<T, Interrupt> {
    catch_panic(run, |error| Err(Interrupt::Failed(error)))
}

pub(super) fn outcome(reply: Reply) -> Done {
    Done::Outcome(Outcome {
        reply,
        changes: Vec::new(),
        resources: Vec::new(),
        artifacts: Vec::new(),
        recorded: true,
    })
}

/// Reads on the worker's own task, if the tool needs no I/O for it and has no limit on its concurrent calls.
pub(super) fn read_now(shared: &Shared, step: &Step<Cleared>) -> Option<Result<Done, Interrupt>> {
    if shared
        .core
        .tool_slots
        .contains_key(step.info().tool.as_str())
    {
        return None;
    }
    let Work::Read(job, permit) = step.work() else {
        return None;
    };
    if let Err(error) = permit.checkpoint() {
        return Some(Err(Interrupt::Failed(error)));
    }
    let answer = || job.read_now(&permit);
    let answer = catch_panic(answer, |error| Some(Err(Interrupt::Failed(error))))?;
    Some(answer.map(outcome))
}

/// Previews a call of an act tool on the worker's own task.
pub(super) fn preview_act_now(
    shared: &Shared,
    step: &Step<Cleared>,
) -> Option<Result<Done, Interrupt>> {
    if step.info().mode != Mode::Preview {
        return None;
    }
    let preview = preview_act(shared, step, step.act_job()?);
    Some(preview.map(|(_, preview)| Done::Preview(preview.into())))
}

pub(super) fn panicked() -> CallError {
    CallError::new(
        Code::Internal,
        "the code that ran for this call panicked; check the current state before you try again",
    )
}

/// Runs a job and reports a panic as its failure.
pub(super) fn catch_panic<T>(run: impl FnOnce() -> T, failed: impl FnOnce(CallError) -> T) -> T {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| failed(panicked()))
}

/// The plan that a person approved.
#[derive(Debug)]
pub(super) struct Approved {
    pub(super) plan: AnyPlan,
    /// What they excluded.
    pub(super) excluded: Vec<ExcludedChange>,
}

/// Runs a cleared call, by the approved plan if there is one.
pub(super) fn run(shared: &Arc<Shared>, step: Step<Cleared>, approved: Option<Approved>) -> Ended {
    match step.work() {
        Work::Read(job, permit) => {
            let read = || {
                permit.checkpoint()?;
                job.read(&permit)
            };
            Ended::of(step, catch_tool_panic(read).map(outcome))
        }
        // These calls run as futures.
        Work::Act(_) | Work::Remote(..) => Ended::Done(Err(panicked())),
        Work::Write(job, permit) => {
            let info = Arc::clone(step.info());
            let fresh = || {
                permit.checkpoint()?;
                Ok(Approved {
                    plan: planned_by(shared, &info, &*job, &permit)?,
                    excluded: Vec::new(),
                })
            };
            match approved.map_or_else(|| catch_tool_panic(fresh), Ok) {
                Ok(Approved { plan, excluded }) => Ended::Done(
                    step.planned(job, plan)
                        .and_then(|planned| planned.without(&excluded))
                        .and_then(|planned| carry_out(shared, planned)),
                ),
                Err(interrupt) => Ended::of(step, Err(interrupt)),
            }
        }
    }
}

fn carry_out(shared: &Shared, step: Step<Planned<dyn WriteJob>>) -> Result<Done, CallError> {
    let (info, token) = (Arc::clone(step.info()), step.token());
    // It is written before the record that the effect begins, which is waited for.
    shared.audit(&info, planned_step(token, step.plan()))?;
    match info.mode {
        Mode::Preview => {
            affordable(shared, step.limits().budget, step.plan().cost)?;
            shared.audit(&info, AuditStep::Previewed { token })?;
            let undoable = is_undoable(shared, step.job(), step.plan());
            let preview = preview(shared, &info, step.plan(), token, undoable);
            Ok(Done::Preview(preview.into()))
        }
        Mode::Apply => apply(shared, &info, step).map(Done::Outcome),
    }
}

/// Plans a call. If this fails because the files changed since a preview of the same call, the error is `STALE_PREVIEW`.
fn planned_by(
    shared: &Shared,
    info: &CallInfo,
    job: &dyn WriteJob,
    permit: &ReadPermit,
) -> Result<AnyPlan, Interrupt> {
    let mut plan = job.plan(permit).map_err(|interrupt| match interrupt {
        Interrupt::Failed(error) => Interrupt::Failed(unplannable(info, error)),
        interrupt => interrupt,
    })?;
    drop_large_inverse(shared, &mut plan);
    Ok(plan)
}

/// Plans a change for the question about it, which shows the preview.
pub(super) fn plan(
    shared: &Shared,
    info: &CallInfo,
    job: &dyn WriteJob,
    permit: &ReadPermit,
) -> Result<(AnyPlan, Preview), Interrupt> {
    let plan = catch_tool_panic(|| planned_by(shared, info, job, permit))?;
    let token = token_of(info, &plan)?;
    shared.audit(info, planned_step(token, &plan))?;
    // Nobody must be asked about a change that exceeds the budget.
    affordable(shared, permit.limits().budget, plan.cost)?;
    shared.audit(info, AuditStep::Previewed { token })?;
    let undoable = is_undoable(shared, job, &plan);
    let preview = preview(shared, info, &plan, token, undoable);
    Ok((plan, preview))
}

/// Previews what a call of an act tool may change. It waits for nothing, so it may run on the worker's own task.
pub(super) fn preview_act<S>(
    shared: &Shared,
    step: &Step<S>,
    job: &dyn ActJob,
) -> Result<(AnyPlan, Preview), Interrupt> {
    let info = step.info();
    let plan = catch_tool_panic(|| Ok(step.plan_act(job)))?;
    let token = token_of(info, &plan)?;
    shared.audit(info, planned_step(token, &plan))?;
    shared.audit(info, AuditStep::Previewed { token })?;
    let preview = preview(shared, info, &plan, token, false);
    Ok((plan, preview))
}

/// Checks that the budget suffices for a change, without charging it.
fn affordable(shared: &Shared, budget: Budget, cost: Cost) -> Result<(), CallError> {
    BudgetExceeded::check(budget, cost)?;
    Ok(shared.meter.affords(cost)?)
}

pub(super) fn planned_step(token: PreviewToken, plan: &AnyPlan) -> AuditStep {
    AuditStep::Planned {
        token,
        changes: plan.changes.iter().map(ChangeSummary::from).collect(),
        resources: plan.resources.iter().map(ResourceSummary::from).collect(),
    }
}

fn preview(
    shared: &Shared,
    info: &CallInfo,
    plan: &AnyPlan,
    token: PreviewToken,
    undoable: bool,
) -> Preview {
    let intent = shared.intent(info, &[]);
    Preview {
        artifacts: artifacts(
            shared,
            info,
            plan,
            Mode::Preview,
            || intent.clone(),
            Vec::new(),
        ),
        intent,
        base: shared.base(&plan.changes),
        changes: plan.changes.clone(),
        resources: plan.resources.clone(),
        reply: plan.reply.clone(),
        token,
        undoable,
        call: None,
    }
}

fn apply(
    shared: &Shared,
    info: &CallInfo,
    step: Step<Planned<dyn WriteJob>>,
) -> Result<Outcome, CallError> {
    let (token, budget) = (step.token(), step.limits().budget);
    let is_partial = step.is_partial();
    let (job, mut plan, permit) = step.permit();
    let cost = plan.cost;
    BudgetExceeded::check(budget, cost)?;
    let mut charge = shared.meter.charge_effect(cost)?;
    // An effect is audited before it begins.
    shared.audit_commit(
        info,
        AuditStep::Applying {
            token,
            bytes: cost.bytes,
            files: cost.files,
        },
    )?;
    let change = begin_change(shared, info, &*job, &plan, is_partial)?;
    let steps = std::mem::replace(&mut plan.steps, Box::new(()));
    // A revocation waits for the tool, which may write temporary files before its effect begins.
    let applied = passes(&permit.gates())
        .map_err(Interrupt::from)
        .and_then(|_passes| catch_tool_panic(|| Ok(job.apply(steps, permit)?)));
    if let Err(error) = applied {
        let error = CallError::from(error);
        let begun = info.stop.has_begun();
        if begun {
            charge.keep(actual_cost(cost, &error));
        }
        if let Some(change) = change {
            change.failed(&error, begun);
        }
        return Err(error);
    }
    charge.keep(cost);
    if let Some(change) = change {
        change.applied();
    }
    // The effect is complete, so nothing after it may fail the call.
    let recorded = shared.audit_effect(info, AuditStep::Applied { token });
    if let Err(error) = &recorded {
        tracing::error!(%error, call = %info.id, "an effect was made and could not be recorded");
    }
    let intent = || shared.intent(info, &[]);
    let by_products = || artifacts(shared, info, &plan, Mode::Apply, intent, Vec::new());
    let artifacts = catch_unwind(AssertUnwindSafe(by_products)).unwrap_or_default();
    Ok(Outcome {
        reply: plan.reply,
        changes: plan.changes,
        resources: plan.resources,
        artifacts,
        recorded: recorded.is_ok(),
    })
}

/// Records in the journal that a change is about to begin.
fn begin_change(
    shared: &Shared,
    info: &CallInfo,
    job: &dyn WriteJob,
    plan: &AnyPlan,
    is_partial: bool,
) -> Result<Option<OpenChange>, CallError> {
    let Some(journal) = &shared.core.journal else {
        return Ok(None);
    };
    let undo = job.undo_record(plan);
    if plan.changes.is_empty() && undo.undoes.is_empty() {
        return Ok(None);
    }
    let mut intent = shared.intent(info, &[]);
    if is_partial {
        intent.push_str(", without what was left out");
    }
    let new = NewChange {
        call: info.id,
        worker: shared.id,
        lineage: Arc::clone(&shared.lineage),
        agent: Arc::clone(&shared.agent),
        tool: info.tool.as_str(),
        intent: &intent,
        changes: plan.changes.iter().map(JournalChange::from).collect(),
        undo,
    };
    Ok(Some(journal.begin(new)?))
}

/// Removes the inverse of a plan whose old contents are too large for the journal.
fn drop_large_inverse(shared: &Shared, plan: &mut AnyPlan) {
    let Some(journal) = &shared.core.journal else {
        return;
    };
    let kept = plan.changes.iter().map(|change| {
        let inside = change
            .diff
            .contents
            .as_ref()
            .map_or(0, |inside| inside.bytes);
        match change.op {
            Op::Modify | Op::Delete => change.before.bytes().unwrap_or(inside),
            Op::Create | Op::Move | Op::Copy | Op::MakeDirectory => 0,
        }
    });
    if kept.fold(0, u64::saturating_add) > journal.change_bytes() {
        plan.inverse = None;
    }
}

/// Whether the journal will keep what undoes the changes of files, and the runtime has the tool that reads it.
fn is_undoable(shared: &Shared, job: &dyn WriteJob, plan: &AnyPlan) -> bool {
    let Some(journal) = &shared.core.journal else {
        return false;
    };
    if !shared.core.has_undo_tool() || plan.changes.is_empty() || plan.inverse.is_none() {
        return false;
    }
    let kept = job.undo_record(plan).inverse;
    kept.is_some_and(|kept| kept.len() as u64 <= journal.change_bytes())
}

/// The cost of an effect that failed with `error`, as reported by its tool. Without a report the cost is zero, except
/// after a panic of the tool: then the whole cost is assumed.
fn actual_cost(cost: Cost, error: &CallError) -> Cost {
    if error.code() == Code::Internal {
        return cost;
    }
    let count = |key: &str| {
        let count = error.details().get(key).and_then(Value::as_u64);
        count.unwrap_or_default()
    };
    let done = count("done");
    Cost {
        bytes: if done == 0 { 0 } else { cost.bytes },
        files: done.saturating_add(count("removed")).min(cost.files),
    }
}

/// Stores the diff and the output of programs for people; `intent` is called if there is something to store. If it cannot be
/// stored, the reason is audited and the call succeeds without it.
pub(super) fn artifacts(
    shared: &Shared,
    info: &CallInfo,
    plan: &AnyPlan,
    mode: Mode,
    intent: impl FnOnce() -> String,
    output: Vec<(OutputStream, Bytes)>,
) -> Vec<ArtifactRef> {
    if plan.changes.is_empty() && plan.resources.is_empty() {
        return Vec::new();
    }
    let output = output.into_iter().map(|(stream, text)| match stream {
        OutputStream::Stdout => (Kind::Stdout, text),
        OutputStream::Stderr => (Kind::Stderr, text),
    });
    let parts = Parts {
        kept: output.collect(),
        review: Some(review(shared, info, plan, mode, intent())),
    };
    let kept = shared
        .core
        .artifacts
        .put(&info.tool, shared.id, Arc::clone(&shared.lineage), parts);
    // The changes were audited before, so an unrecorded artifact does no harm.
    let note = |step| drop(shared.audit(info, step));
    match kept {
        Ok(refs) => {
            let uris = refs.iter().map(|kept| kept.uri.as_str().into());
            note(AuditStep::Artifacts {
                uris: uris.collect(),
            });
            refs
        }
        Err(error) => {
            note(AuditStep::ArtifactFailed {
                code: error.code(),
                message: error.message().into(),
            });
            Vec::new()
        }
    }
}

/// The review; its page, the diff and the JSON are rendered when they are read.
fn review(
    shared: &Shared,
    info: &CallInfo,
    plan: &AnyPlan,
    mode: Mode,
    intent: String,
) -> (Arc<Review>, OldTexts) {
    let about = artifact::About {
        tool: info.tool.clone(),
        agent: Arc::clone(&shared.agent),
        intent,
        preview: mode == Mode::Preview,
    };
    let base = shared.base(&plan.changes);
    let (review, around) = Review::new(about, base, plan.changes.clone(), plan.resources.clone());
    (Arc::new(review), around)
}
