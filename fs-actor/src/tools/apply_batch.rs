//! `apply_batch`: several changes of files and directories as one transaction.

mod divide;
mod docs;
mod operation;
mod planner;
mod reply;

use std::collections::BTreeSet;

use bailiwick::config::Namespace;
use bailiwick::effect::{Cost, ExcludedChange, Op};
use bailiwick::journal::UndoRecord;
use bailiwick::tool::{Interrupt, Prepared, ReadPermit, WritePermit};
use bailiwick::{CallError, Change, Code, Plan, Scope, ToolSpec, WriteTool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::change::sequence::Sequenced;
use crate::change::stored::{encode, undo_record};
use crate::change::{ChangeSet, Step, StepExecutor};
use crate::replace::ReachedDurability;
use crate::tools::edit_file::ExcludedEdit;
use operation::{Operation, Operations, in_operation};
use planner::{Planned, Planner};

/// Maximum number of operations.
const MAX_OPERATIONS: usize = 500;
/// Maximum size of the new contents, and of the old contents that are kept to roll back.
const MAX_BYTES: u64 = 16 << 20;

/// Changes several files and directories in one call.
#[derive(Debug)]
pub(crate) struct ApplyBatch {
    executor: StepExecutor,
    operations: Operations,
}

impl ApplyBatch {
    pub(super) fn new(executor: StepExecutor) -> Self {
        Self {
            executor,
            operations: Operations::default(),
        }
    }
}

/// The tool that an operation of a batch stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BatchTool {
    /// `write_file`, with [`WriteFileArgs`](super::WriteFileArgs).
    WriteFile,
    /// `edit_file`, with [`EditFileArgs`](super::EditFileArgs).
    EditFile,
    /// `make_directory`, with [`MakeDirectoryArgs`](super::MakeDirectoryArgs).
    MakeDirectory,
    /// `move`, with [`MoveArgs`](super::MoveArgs).
    Move,
    /// `copy`, with [`CopyArgs`](super::CopyArgs).
    Copy,
    /// `delete`, with [`DeleteArgs`](super::DeleteArgs).
    Delete,
}

/// One operation of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BatchOperation {
    /// The tool.
    pub tool: BatchTool,
    /// The arguments of the tool.
    #[serde(flatten)]
    pub arguments: Map<String, Value>,
}

/// Arguments of `apply_batch`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyBatchArgs {
    /// The operations, each on the state that those before it leave.
    pub operations: Vec<BatchOperation>,
}

/// Number of entries that a batch changes in one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BatchCounts {
    /// Files created.
    #[serde(skip_serializing_if = "super::is_zero")]
    pub created: u64,
    /// Files changed.
    #[serde(skip_serializing_if = "super::is_zero")]
    pub changed: u64,
    /// Files and directories moved.
    #[serde(skip_serializing_if = "super::is_zero")]
    pub moved: u64,
    /// Files and directories copied.
    #[serde(skip_serializing_if = "super::is_zero")]
    pub copied: u64,
    /// Files and directories deleted, each directory with its contents counted once.
    #[serde(skip_serializing_if = "super::is_zero")]
    pub deleted: u64,
    /// Directories created.
    #[serde(skip_serializing_if = "super::is_zero")]
    pub made: u64,
}

impl BatchCounts {
    fn of(changes: &[Change]) -> Self {
        let mut counts = Self::default();
        for change in changes {
            let count = match change.op {
                Op::Create => &mut counts.created,
                Op::Modify => &mut counts.changed,
                Op::Move => &mut counts.moved,
                Op::Copy => &mut counts.copied,
                Op::Delete => &mut counts.deleted,
                Op::MakeDirectory => &mut counts.made,
            };
            *count += 1;
        }
        counts
    }
}

/// A likely mistake in one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BatchWarning {
    /// The operation, by its index from 0.
    pub operation: usize,
    /// The mistake.
    pub warning: String,
}

/// A change, or a part of the change of a file, that a person excluded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BatchExcluded {
    /// The path; the old path of a move or copy.
    pub path: String,
    /// The part of the change of a file; `None` for a whole change.
    #[serde(flatten)]
    pub edit: Option<ExcludedEdit>,
}

/// Output of `apply_batch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ApplyBatchOutput {
    /// Number of operations.
    pub operations: usize,
    /// What they change, all of it together.
    #[serde(flatten)]
    pub counts: BatchCounts,
    /// Operations that changed nothing, by their index from 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchanged: Vec<usize>,
    /// Likely mistakes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<BatchWarning>,
    /// Changes that a person excluded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<BatchExcluded>,
    /// The durability of the changes, for the host; not in the JSON.
    #[serde(skip)]
    pub durability: ReachedDurability,
}

/// Parsed operations.
#[derive(Debug)]
pub(crate) struct Job {
    operations: Vec<Operation>,
}

/// The steps of a plan.
#[derive(Debug)]
pub(crate) struct BatchSteps {
    change_set: ChangeSet,
    /// The steps that undo each step.
    rollback: Vec<Vec<Step>>,
    /// The number of changes of each step, and its cost.
    sizes: Vec<(usize, Cost)>,
}

impl From<Vec<Step>> for BatchSteps {
    fn from(steps: Vec<Step>) -> Self {
        Self {
            change_set: steps.into(),
            rollback: Vec::new(),
            sizes: Vec::new(),
        }
    }
}

/// The arguments as models are given them: those of all operations, without the descriptions that their tools have.
fn input_schema() -> Value {
    let description = format!(
        "Calls of these tools in order; at most {MAX_OPERATIONS}, {} MiB.",
        MAX_BYTES >> 20
    );
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "operations": {
                "type": "array",
                "description": description,
                "items": {
                    "type": "object",
                    "properties": {
                        "tool": {
                            "type": "string",
                            "enum": ["write_file", "edit_file", "make_directory", "move", "copy", "delete"],
                        },
                        "path": {"type": "string"},
                        "content": {"type": "string"},
                        "mode": {"type": "string"},
                        "edits": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "properties": {
                                    "old_text": {"type": "string"},
                                    "new_text": {"type": "string"},
                                },
                            },
                        },
                        "from": {"type": "string"},
                        "to": {"type": "string"},
                        "overwrite": {"type": "boolean"},
                        "create_parents": {"type": "boolean"},
                        "recursive": {"type": "boolean"},
                    },
                    "required": ["tool"],
                },
            },
        },
        "required": ["operations"],
    })
}

impl WriteTool for ApplyBatch {
    type Args = ApplyBatchArgs;
    type Output = ApplyBatchOutput;
    type Job = Job;
    type Steps = BatchSteps;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "apply_batch",
            "Apply batch",
            "Makes several changes, all or none.",
        )
        .intent("Make changes together: [{operations.tool}, ]")
        .sentence(reply::sentence)
        .scopes(&["write:file", "read:file"])
        .destructive()
        .group("files", 0.3)
        .side_effects(&["has the effects of all operations, or none if one of them fails"])
        .examples(docs::EXAMPLES)
        .failures(docs::FAILURES)
        .input_schema(input_schema())
    }

    fn prepare(&self, args: ApplyBatchArgs, names: &Namespace) -> Result<Prepared<Job>, CallError> {
        let count = args.operations.len();
        if !(1..=MAX_OPERATIONS).contains(&count) {
            let reason = format!("expected 1 to {MAX_OPERATIONS} operations, got {count}");
            return Err(CallError::invalid_argument("/operations", reason));
        }
        let (mut operations, mut needs) = (Vec::new(), BTreeSet::new());
        for (index, operation) in args.operations.into_iter().enumerate() {
            let (operation, needed) = self
                .operations
                .prepare(&operation, names)
                .map_err(|error| in_operation(index, operation.tool, &error))?;
            operations.push(operation);
            needs.extend(needed);
        }
        Ok(Prepared {
            needs: needs.into_iter().collect(),
            job: Job { operations },
        })
    }

    fn also_needs(&self, job: &Job, permit: &ReadPermit) -> Vec<Scope> {
        let operations = job.operations.iter();
        operations
            .flat_map(|operation| self.operations.also_needs(operation, permit))
            .collect()
    }

    fn plan(&self, job: &Job, permit: &ReadPermit) -> Result<Plan<BatchSteps>, Interrupt> {
        let Planned {
            sequenced,
            unchanged,
            warnings,
        } = Planner::new(&self.executor, permit).plan(&job.operations)?;
        let cost = sequenced.cost();
        let Sequenced {
            steps,
            rollback,
            inverse,
            changes,
            resources,
            sizes,
        } = sequenced;
        check_kept(permit, inverse.as_deref())?;
        let reached =
            ReachedDurability::requested((!steps.is_empty()).then_some(self.executor.durability()));
        let output = ApplyBatchOutput {
            operations: job.operations.len(),
            counts: BatchCounts::of(&changes),
            unchanged,
            warnings,
            left_out: Vec::new(),
            durability: reached.clone(),
        };
        Ok(Plan {
            changes,
            resources,
            reply: reply::reply(output),
            cost,
            steps: BatchSteps {
                change_set: self.executor.change_set(steps, reached),
                rollback,
                sizes,
            },
            inverse: inverse.map(BatchSteps::from),
        })
    }

    const DIVISIBLE: bool = true;

    fn divide(
        &self,
        plan: Plan<BatchSteps>,
        excluded: &[ExcludedChange],
    ) -> Result<Plan<BatchSteps>, CallError> {
        divide::divide(plan, excluded)
    }

    fn undo_record(&self, _: &BatchSteps, inverse: Option<&BatchSteps>) -> UndoRecord {
        undo_record(inverse.map(|inverse| &*inverse.change_set.steps))
    }

    fn apply(&self, steps: BatchSteps, permit: WritePermit) -> Result<(), CallError> {
        self.executor
            .apply_unchanged(&steps.change_set, &steps.rollback, &permit)
    }
}

/// Rejects a batch that writes more than allowed.
fn check_written(written: u64) -> Result<(), CallError> {
    if written > MAX_BYTES {
        let message = format!(
            "the batch writes {written} bytes, more than the {MAX_BYTES} allowed; split it"
        );
        return Err(CallError::new(Code::TooLarge, message));
    }
    Ok(())
}

/// Rejects a batch that is larger than the journal can keep: after a crash it could not be rolled back.
fn check_kept(permit: &ReadPermit, inverse: Option<&[Step]>) -> Result<(), CallError> {
    let kept = inverse.and_then(encode).map(|bytes| bytes.len() as u64);
    let kept = kept.ok_or_else(|| {
        CallError::new(
            Code::Internal,
            "the batch has an operation that cannot be rolled back",
        )
    })?;
    let most_kept = most_kept(permit);
    if kept > most_kept {
        return Err(not_kept(most_kept));
    }
    Ok(())
}

/// The most bytes that can be kept to roll a batch back.
fn most_kept(permit: &ReadPermit) -> u64 {
    let journal = permit.journal().map(|journal| journal.change_bytes());
    journal.unwrap_or(MAX_BYTES).min(MAX_BYTES)
}

/// The error for a batch of whose old contents more than `most` bytes must be kept.
fn not_kept(most: u64) -> CallError {
    let message = format!(
        "the batch replaces or deletes more than the {most} bytes that can be kept to roll it back; split it"
    );
    CallError::new(Code::TooLarge, message)
}
