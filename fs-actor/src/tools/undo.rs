//! `undo` and `redo`: take back what earlier calls changed, and make it again.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use bailiwick::config::Namespace;
use bailiwick::effect::Op;
use bailiwick::journal::{
    ChangeId, ChangeState, JournalChange, JournalEntry, JournalView, UndoRecord,
};
use bailiwick::scope::Operation;
use bailiwick::tool::{Failure, Interrupt, Prepared, ReadPermit, WritePermit};
use bailiwick::{CallError, Code, Plan, Reply, Scope, ToolSpec, VirtualPath, WriteTool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::progress::{Progress, progress};
use crate::change::sequence::{Sequence, Sequenced, conflict};
use crate::change::{ChangeSet, Step, StepExecutor, stored};

/// Maximum number of changes that one call undoes.
const MAX_CHANGES: usize = 10_000;
/// Maximum size of the old contents that are kept to roll an undo back, if the journal does not keep more of a change.
const MAX_KEPT: u64 = 64 << 20;

/// Undoes changes of this worker and its descendants.
#[derive(Debug)]
pub(crate) struct Undo(pub(super) StepExecutor);

/// Makes undone changes again.
#[derive(Debug)]
pub(crate) struct Redo(pub(super) StepExecutor);

/// Arguments of `undo`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UndoArgs {
    /// How many of the latest calls to undo; 1 by default.
    #[serde(default)]
    pub last: Option<u32>,
    /// Undo these changes instead, by the ids in `undone`.
    #[serde(default)]
    pub changes: Vec<u64>,
    /// Undo everything that this agent, such as `main/tests`, and its sub-agents changed instead.
    #[serde(default, deserialize_with = "super::optional::text")]
    pub agent: Option<String>,
}

/// Arguments of `redo`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedoArgs {
    /// How many of the latest undo calls to revert; 1 by default.
    #[serde(default)]
    pub last: Option<u32>,
}

/// Output of `undo`.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UndoOutput {
    /// The changes that are undone, the latest first.
    pub undone: Vec<u64>,
    /// Number of files and directories that are changed now.
    pub files: usize,
    /// Number of further calls that can be undone.
    pub remaining: usize,
}

/// Output of `redo`.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RedoOutput {
    /// The changes that are made again, the latest first.
    pub redone: Vec<u64>,
    /// Number of files and directories that are changed now.
    pub files: usize,
    /// Number of further undo calls that can be reverted.
    pub remaining: usize,
}

/// Which changes a call undoes.
#[derive(Debug)]
enum Choice {
    Last(usize),
    Changes(Vec<ChangeId>),
    Agent(String),
    LastUndone(usize),
}

/// Parsed arguments.
#[derive(Debug)]
pub(crate) struct Job {
    choice: Choice,
    /// The chosen changes, so that all steps of the call are about the same ones.
    chosen: OnceLock<Vec<ChangeId>>,
}

/// The steps of a plan.
#[derive(Debug)]
pub(crate) struct UndoSteps {
    change_set: ChangeSet,
    rollback: Vec<Vec<Step>>,
    undoes: Vec<ChangeId>,
    /// Paths beside which an interrupted change may have left temporary files.
    sweep: Vec<VirtualPath>,
}

const FAILURES: &[Failure] = &[
    Failure {
        code: Code::NotFound,
        when: "there is no such change, or it is undone already",
        resolution: "Nothing to do",
    },
    Failure {
        code: Code::Conflict,
        when: "a file was changed since, or its old content was not kept",
        resolution: "Undo later changes of the file first, or edit it",
    },
    Failure {
        code: Code::TooLarge,
        when: "the files that the changes wrote are too large together",
        resolution: "Undo fewer changes at once",
    },
];

impl WriteTool for Undo {
    type Args = UndoArgs;
    type Output = UndoOutput;
    type Job = Job;
    type Steps = UndoSteps;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "undo",
            "Undo changes",
            "Undoes file changes of this agent and its sub-agents.",
        )
        .intent("Undo changes [(last: {last})] [(changes: {changes})] [of {agent}]")
        .scopes(&["write:file"])
        .destructive()
        .group("history", 0.5)
        .side_effects(&["restores the files that the calls changed"])
        .failures(FAILURES)
    }

    fn prepare(&self, args: UndoArgs, _: &Namespace) -> Result<Prepared<Job>, CallError> {
        let given = [
            args.last.is_some(),
            !args.changes.is_empty(),
            args.agent.is_some(),
        ];
        if given.into_iter().filter(|given| *given).count() > 1 {
            let reason = "expected one of `last`, `changes` and `agent`";
            return Err(CallError::invalid_argument("/last", reason));
        }
        if args.changes.len() > MAX_CHANGES {
            let reason = format!("expected at most {MAX_CHANGES} changes");
            return Err(CallError::invalid_argument("/changes", reason));
        }
        let choice = match (args.agent, args.last) {
            (Some(agent), _) => Choice::Agent(agent),
            (None, last) if args.changes.is_empty() => Choice::Last(count(last)?),
            (None, _) => {
                let mut changes: Vec<_> = args.changes.into_iter().map(ChangeId).collect();
                changes.sort_unstable();
                changes.dedup();
                Choice::Changes(changes)
            }
        };
        Ok(prepared(choice))
    }

    fn also_needs(&self, job: &Job, permit: &ReadPermit) -> Vec<Scope> {
        needs(job, permit)
    }

    fn plan(&self, job: &Job, permit: &ReadPermit) -> Result<Plan<UndoSteps>, Interrupt> {
        plan(&self.0, job, permit)
    }

    fn undo_record(&self, steps: &UndoSteps, inverse: Option<&UndoSteps>) -> UndoRecord {
        record(steps, inverse)
    }

    fn apply(&self, steps: UndoSteps, permit: WritePermit) -> Result<(), CallError> {
        apply(&self.0, &steps, &permit)
    }
}

impl WriteTool for Redo {
    type Args = RedoArgs;
    type Output = RedoOutput;
    type Job = Job;
    type Steps = UndoSteps;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("redo", "Redo changes", "Reverts `undo`.")
            .intent("Make undone changes again [(last: {last})]")
            .scopes(&["write:file"])
            .destructive()
            .group("history", 0.4)
            .side_effects(&["makes the undone changes again"])
            .failures(FAILURES)
    }

    fn prepare(&self, args: RedoArgs, _: &Namespace) -> Result<Prepared<Job>, CallError> {
        Ok(prepared(Choice::LastUndone(count(args.last)?)))
    }

    fn also_needs(&self, job: &Job, permit: &ReadPermit) -> Vec<Scope> {
        needs(job, permit)
    }

    fn plan(&self, job: &Job, permit: &ReadPermit) -> Result<Plan<UndoSteps>, Interrupt> {
        plan(&self.0, job, permit)
    }

    fn undo_record(&self, steps: &UndoSteps, inverse: Option<&UndoSteps>) -> UndoRecord {
        record(steps, inverse)
    }

    fn apply(&self, steps: UndoSteps, permit: WritePermit) -> Result<(), CallError> {
        apply(&self.0, &steps, &permit)
    }
}

fn prepared(choice: Choice) -> Prepared<Job> {
    Prepared {
        needs: Vec::new(),
        job: Job {
            choice,
            chosen: OnceLock::new(),
        },
    }
}

fn count(last: Option<u32>) -> Result<usize, CallError> {
    match usize::try_from(last.unwrap_or(1)) {
        Ok(count @ 1..=MAX_CHANGES) => Ok(count),
        _ => {
            let reason = format!("expected a number from 1 to {MAX_CHANGES}");
            Err(CallError::invalid_argument("/last", reason))
        }
    }
}

/// Whether a change, or a part of it, may be in effect. Of an interrupted one, this is not known before it is planned.
fn may_be_in_effect(entry: &JournalEntry) -> bool {
    entry.state.is_in_effect() || entry.state == ChangeState::Interrupted
}

/// Whether only a part of a change may be in effect.
fn is_partial(entry: &JournalEntry) -> bool {
    may_be_in_effect(entry) && entry.state != ChangeState::Applied
}

impl Choice {
    /// The chosen ones of `entries`, which are the newest first, in the same order.
    fn select(&self, entries: &[JournalEntry]) -> Vec<ChangeId> {
        let made = |entry: &&JournalEntry| may_be_in_effect(entry) && entry.undoes.is_empty();
        let ids = |entry: &JournalEntry| entry.id;
        match self {
            Self::Last(count) => entries.iter().filter(made).take(*count).map(ids).collect(),
            Self::LastUndone(count) => {
                let calls = Calls::of(entries.iter());
                let undo = |entry: &&JournalEntry| calls.are_undone_by(entry);
                entries.iter().filter(undo).take(*count).map(ids).collect()
            }
            Self::Agent(agent) => {
                let of_agent =
                    |entry: &&JournalEntry| made(entry) && entry.is_made_at_or_beneath(agent);
                entries.iter().filter(of_agent).map(ids).collect()
            }
            Self::Changes(changes) => {
                // They are sorted.
                let named = |entry: &&JournalEntry| {
                    may_be_in_effect(entry) && changes.binary_search(&entry.id).is_ok()
                };
                entries.iter().filter(named).map(ids).collect()
            }
        }
    }
}

/// The changes that undo no others.
struct Calls(BTreeSet<ChangeId>);

impl Calls {
    fn of<'e>(entries: impl Iterator<Item = &'e JournalEntry>) -> Self {
        let calls = entries.filter(|entry| entry.undoes.is_empty());
        Self(calls.map(|entry| entry.id).collect())
    }

    /// Whether this is an undo of calls that may be in effect. What undoes an undo is a redo.
    fn are_undone_by(&self, entry: &JournalEntry) -> bool {
        may_be_in_effect(entry) && entry.undoes.iter().any(|id| self.0.contains(id))
    }
}

/// Divides the entries into those of these changes and all others.
fn divide<'e>(
    entries: &'e [JournalEntry],
    changes: &[ChangeId],
) -> (Vec<&'e JournalEntry>, Vec<&'e JournalEntry>) {
    let changes: BTreeSet<ChangeId> = changes.iter().copied().collect();
    let entries = entries.iter();
    entries.partition(|entry| changes.contains(&entry.id))
}

fn view(permit: &ReadPermit) -> Result<&JournalView, CallError> {
    permit.journal().ok_or_else(|| {
        let message = "this runtime keeps no journal of changes, so nothing can be undone";
        CallError::new(Code::NotFound, message)
    })
}

/// What undoing the chosen changes needs, as far as their records tell.
fn needs(job: &Job, permit: &ReadPermit) -> Vec<Scope> {
    let Ok(view) = view(permit) else {
        return Vec::new();
    };
    let entries = view.entries();
    let chosen = job.chosen.get_or_init(|| job.choice.select(&entries));
    let (chosen, _) = divide(&entries, chosen);
    let needs = chosen
        .into_iter()
        .flat_map(|entry| &*entry.changes)
        .flat_map(reverse_needs);
    let mut needs: Vec<Scope> = needs.collect();
    needs.sort();
    needs.dedup();
    needs
}

fn reverse_needs(change: &JournalChange) -> Vec<Scope> {
    let doing = |operation, path: &VirtualPath| Scope::doing(operation, path.clone());
    let is_directory = |entry: &bailiwick::effect::Entry| {
        matches!(entry, bailiwick::effect::Entry::Directory { .. })
    };
    let whole = |need: Scope, directory: bool| if directory { need.beneath() } else { need };
    match (change.op, &change.to) {
        (Op::Create | Op::MakeDirectory, _) => vec![doing(Operation::Delete, &change.path)],
        (Op::Modify, _) => vec![doing(Operation::Change, &change.path)],
        (Op::Delete, _) => {
            let directory = is_directory(&change.before);
            vec![whole(doing(Operation::Create, &change.path), directory)]
        }
        (Op::Move, Some(to)) => {
            let directory = is_directory(&change.after);
            vec![
                whole(doing(Operation::Move, to), directory),
                whole(doing(Operation::Create, &change.path), directory),
            ]
        }
        (Op::Copy, Some(to)) => {
            let directory = is_directory(&change.after);
            vec![whole(doing(Operation::Delete, to), directory)]
        }
        (Op::Move | Op::Copy, None) => Vec::new(),
    }
}

fn plan(
    executor: &StepExecutor,
    job: &Job,
    permit: &ReadPermit,
) -> Result<Plan<UndoSteps>, Interrupt> {
    let view = view(permit)?;
    let entries = view.entries();
    let chosen = job.chosen.get_or_init(|| job.choice.select(&entries));
    let (own, others) = divide(&entries, chosen);
    let current = own.iter().filter(|entry| may_be_in_effect(entry)).count();
    let expected = match &job.choice {
        Choice::Changes(changes) => changes.len(),
        Choice::Last(_) | Choice::Agent(_) | Choice::LastUndone(_) => 1,
    };
    if current < chosen.len() {
        let message = "another call undid some of these changes meanwhile; try again";
        let error = CallError::new(Code::Busy, message);
        return Err(error.with("retry_after_ms", 50).into());
    }
    if current < expected {
        return Err(nothing(job, view).into());
    }
    let later = view.changed_since(chosen);
    if !later.is_empty() {
        return Err(conflict(permit, &later).into());
    }
    let Chosen {
        sequence,
        undoes,
        sweep,
    } = Chosen::of(executor, permit, &entries, chosen)?;
    let sequenced = sequence.finish()?;
    let cost = sequenced.cost();
    let Sequenced {
        steps,
        rollback,
        inverse,
        changes,
        resources,
        ..
    } = sequenced;
    let reply = reply(&job.choice, &undoes, (&own, &others), changes.len());
    let steps = UndoSteps {
        change_set: executor.change_set(steps, executor.reached()),
        rollback,
        undoes,
        sweep,
    };
    Ok(Plan {
        changes,
        resources,
        reply,
        cost,
        steps,
        inverse: inverse.map(|steps| UndoSteps {
            change_set: steps.into(),
            rollback: Vec::new(),
            undoes: Vec::new(),
            sweep: Vec::new(),
        }),
    })
}

/// The reply of a call that undoes the changes `own`; `others` are all others.
fn reply(
    choice: &Choice,
    undoes: &[ChangeId],
    (own, others): (&[&JournalEntry], &[&JournalEntry]),
    files: usize,
) -> Reply {
    let kept = others.iter().filter(|entry| entry.can_be_undone);
    match choice {
        Choice::LastUndone(_) => {
            let undone = own.iter().filter(|_| !undoes.is_empty());
            let redone: BTreeSet<ChangeId> = undone.flat_map(|undo| undo.undoes.clone()).collect();
            let calls = Calls::of(others.iter().copied());
            let output = RedoOutput {
                redone: redone.iter().rev().map(|change| change.0).collect(),
                files,
                remaining: kept.filter(|entry| calls.are_undone_by(entry)).count(),
            };
            let text = format!(
                "{} made again (change {}), {files} files changed; undo calls that can still be reverted: {}",
                output.redone.len(),
                joined(&output.redone),
                output.remaining
            );
            Reply::text(text, output)
        }
        Choice::Last(_) | Choice::Agent(_) | Choice::Changes(_) => {
            let calls = kept.filter(|entry| may_be_in_effect(entry) && entry.undoes.is_empty());
            let output = UndoOutput {
                undone: undoes.iter().map(|change| change.0).collect(),
                files,
                remaining: calls.count(),
            };
            let text = format!(
                "{} undone (change {}), {files} files changed; {} more can be undone",
                output.undone.len(),
                joined(&output.undone),
                output.remaining
            );
            Reply::text(text, output)
        }
    }
}

fn joined(ids: &[u64]) -> String {
    let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
    ids.join(", ")
}

/// The steps that undo the chosen changes.
struct Chosen<'s> {
    sequence: Sequence<'s>,
    undoes: Vec<ChangeId>,
    sweep: Vec<VirtualPath>,
}

impl<'s> Chosen<'s> {
    fn of(
        executor: &'s StepExecutor,
        permit: &'s ReadPermit,
        entries: &[JournalEntry],
        chosen: &[ChangeId],
    ) -> Result<Self, Interrupt> {
        let view = view(permit)?;
        let mut partial = entries.iter();
        let partial = partial.find(|entry| chosen == [entry.id] && is_partial(entry));
        let mut undoes = chosen.to_vec();
        let mut sequence = match partial {
            Some(_) => Sequence::after_crash(executor, permit),
            None => Sequence::new(executor, permit),
        };
        // A single change cannot be divided: a part of what it wrote cannot be written again.
        let most_kept = view.change_bytes().max(MAX_KEPT);
        if chosen.len() == 1 {
            sequence.keep_at_most(most_kept);
        }
        for change in chosen {
            let mut steps = stored::decode(view.inverse(*change)?)?;
            if let Some(entry) = partial {
                match progress(executor, permit, &steps)? {
                    // Nothing is to be undone.
                    Progress::Complete if entry.state == ChangeState::Interrupted => {
                        undoes.clear();
                        steps.clear();
                    }
                    Progress::Complete => {}
                    Progress::NotMade => steps.clear(),
                    Progress::Partial(first) => drop(steps.drain(..first)),
                }
            }
            for step in steps {
                // Earlier steps may have restored a part of a repository.
                sequence.require_protected(&step)?;
                sequence.push(step)?;
                if sequence.kept() > most_kept {
                    return Err(too_large(most_kept).into());
                }
            }
        }
        let touched = partial.iter().flat_map(|entry| &*entry.changes);
        let sweep = touched.map(|change| change.to.as_ref().unwrap_or(&change.path).clone());
        Ok(Self {
            sequence,
            undoes,
            sweep: sweep.collect(),
        })
    }
}

fn apply(
    executor: &StepExecutor,
    steps: &UndoSteps,
    permit: &WritePermit,
) -> Result<(), CallError> {
    for path in &steps.sweep {
        executor.sweep_beside(path, permit.reading());
    }
    executor.apply_all(&steps.change_set, &steps.rollback, permit)
}

fn too_large(most_kept: u64) -> CallError {
    let message = format!(
        "the changes wrote more than the {most_kept} bytes that can be kept while they are undone; undo fewer changes at once"
    );
    CallError::new(Code::TooLarge, message)
}

fn nothing(job: &Job, view: &JournalView) -> CallError {
    let mut message = match &job.choice {
        Choice::Changes(_) => "some of these changes are unknown, or undone already".to_owned(),
        Choice::Agent(_) => "this agent has no changes that can be undone".to_owned(),
        Choice::Last(_) => "there is nothing to undo".to_owned(),
        Choice::LastUndone(_) => "there is nothing to redo".to_owned(),
    };
    if view.has_dropped() {
        message.push_str("; the oldest changes are no longer kept");
    }
    CallError::new(Code::NotFound, message)
}

fn record(steps: &UndoSteps, inverse: Option<&UndoSteps>) -> UndoRecord {
    UndoRecord {
        undoes: steps.undoes.clone(),
        ..stored::undo_record(inverse.map(|inverse| &*inverse.change_set.steps))
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "the test makes the root of its runtime"
)]
mod tests {
    use bailiwick::journal::Journal;
    use bailiwick::{Policy, Runtime, WorkerSpec};
    use serde_json::json;

    use super::*;

    /// The entry of a change in effect.
    async fn entry() -> JournalEntry {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("r")).unwrap();
        let journal = Journal::open(temp.path().join("journal")).unwrap();
        let builder = Runtime::builder().root("r", temp.path().join("r"));
        let builder = builder.tools(crate::tools()).journal(journal.clone());
        let (runtime, _grants) = builder.build().await.unwrap();
        let spec = WorkerSpec::new("main").policy(Policy::new());
        let worker = runtime.spawn(spec).await.unwrap();
        let write = json!({"path": "/r/a", "content": ""});
        worker.call("write_file", write).await.unwrap();
        journal.entries().remove(0)
    }

    #[tokio::test]
    async fn changes_are_chosen_in_one_pass() {
        const CALLS: u64 = 200_000;
        let entry = entry().await;
        let numbered = |id, undoes: &[ChangeId]| {
            let mut entry = entry.clone();
            (entry.id, entry.undoes) = (ChangeId(id), undoes.to_vec());
            entry
        };
        // Comparing each of these with each other one would take minutes.
        let dropped: Vec<ChangeId> = (1..=10_000).map(|id| ChangeId(2 * CALLS + id)).collect();
        let redone = (1..=100).map(|id| numbered(CALLS + id, &dropped));
        let undone = numbered(CALLS, &[ChangeId(1)]);
        let calls = (1..CALLS).map(|id| numbered(id, &[]));
        let entries: Vec<JournalEntry> = calls.chain([undone]).chain(redone).rev().collect();

        let undo = Choice::LastUndone(2).select(&entries);
        assert_eq!(undo, [ChangeId(CALLS)]);
        let calls: Vec<ChangeId> = (1..CALLS).map(ChangeId).collect();
        let chosen = Choice::Changes(calls.clone()).select(&entries);
        assert!(chosen.iter().rev().eq(&calls));
        let (own, others) = divide(&entries, &chosen);
        assert_eq!((own.len(), others.len()), (calls.len(), 101));
    }
}
