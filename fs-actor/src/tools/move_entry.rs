//! `move`: moves and renames files and directories.

use bailiwick::config::Namespace;
use bailiwick::effect::FileDiff;
use bailiwick::journal::UndoRecord;
use bailiwick::text::escape;
use bailiwick::tool::{Example, Failure, Interrupt, Prepared, ReadPermit, Reverse, WritePermit};
use bailiwick::{CallError, Code, Plan, Reply, Scope, ToolSpec, Verb, WriteTool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::transfer::{self, Job, Transfer};
use crate::change::stored::undo_record;
use crate::change::{ChangeSet, State, Step, StepExecutor, TransferMode, other_device, target};
use crate::replace::ReachedDurability;
use crate::resolve;

/// Moves and renames files and directories.
#[derive(Debug)]
pub(crate) struct Move(pub(super) StepExecutor);

/// Arguments of `move`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveArgs {
    /// Existing path.
    #[serde(alias = "source")]
    pub from: String,
    /// New path, including the name.
    #[serde(alias = "destination")]
    pub to: String,
    /// Replace an existing file.
    #[serde(default)]
    pub overwrite: bool,
    /// Create missing parents.
    #[serde(default)]
    pub create_parents: bool,
}

/// Output of `move`.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MoveOutput {
    /// The old path.
    pub from: String,
    /// The new path.
    pub to: String,
    /// Number of files and directories moved, itself included; absent if some of them may not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// The durability of the change, for the host; not in the JSON.
    #[serde(skip)]
    pub durability: ReachedDurability,
}

const EXAMPLES: &[Example] = &[Example {
    description: "Rename a file",
    input: r#"{"from": "notes.txt", "to": "todo.txt"}"#,
    output: r#"{"entries": 1}"#,
}];
const FAILURES: &[Failure] = &[
    Failure {
        code: Code::NotFound,
        when: "the source or the parent of the new path does not exist",
        resolution: "Correct `from`, or set `create_parents`",
    },
    Failure {
        code: Code::AlreadyExists,
        when: "the new path exists",
        resolution: "Choose another path, or set `overwrite` to replace a file",
    },
    Failure {
        code: Code::InvalidArguments,
        when: "the new path is inside the old one",
        resolution: "Choose another path",
    },
];

impl WriteTool for Move {
    type Args = MoveArgs;
    type Output = MoveOutput;
    type Job = Job;
    type Steps = ChangeSet;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("move", "Move file", "Moves or renames a file or directory.")
            .intent("Move {from} to {to} [(overwrite: {overwrite})]")
            .scopes(&["write:file"])
            .destructive()
            .group("files", 0.6)
            .side_effects(&[
                "moves the entry",
                "replaces a file if `overwrite` is set",
                "creates missing directories if `create_parents` is set",
            ])
            .reverse(Reverse {
                tool: "move",
                how: "swap `from` and `to`",
                unless: "`overwrite` replaced a file, or parent directories were created",
            })
            .command_line("mv -nT -- {from} {to}")
            .examples(EXAMPLES)
            .failures(FAILURES)
    }

    fn prepare(&self, args: MoveArgs, names: &Namespace) -> Result<Prepared<Job>, CallError> {
        transfer::prepare(
            names,
            TransferMode::Move,
            (&args.from, &args.to),
            args.overwrite,
            args.create_parents,
        )
    }

    /// If the destination may be read, the source must be readable, too.
    fn also_needs(&self, job: &Job, permit: &ReadPermit) -> Vec<Scope> {
        if permit.shows(&job.to) && !permit.shows(&job.from) {
            vec![Scope::file(Verb::Read, job.from.clone())]
        } else {
            Vec::new()
        }
    }

    fn plan(&self, job: &Job, permit: &ReadPermit) -> Result<Plan<ChangeSet>, Interrupt> {
        let moved = Transfer::resolve(TransferMode::Move, job, permit)?;
        same_device(permit, &moved)?;
        moved.require(permit, || check_visibility(permit, &moved))?;
        let undo = Step::Transfer {
            mode: TransferMode::Move,
            from: moved.to.clone(),
            to: moved.from.clone(),
            state: moved.inspected.state.clone(),
            existing: State::Absent,
        };
        moved.plan(&self.0, permit, Some(undo), reply)
    }

    fn undo_record(&self, _: &ChangeSet, inverse: Option<&ChangeSet>) -> UndoRecord {
        undo_record(inverse.map(|inverse| &*inverse.steps))
    }

    fn apply(&self, change_set: ChangeSet, permit: WritePermit) -> Result<(), CallError> {
        self.0.apply(&change_set, &permit)
    }
}

/// Rejects a move to another file system before anyone is asked.
fn same_device(permit: &ReadPermit, moved: &Transfer) -> Result<(), Interrupt> {
    let made = moved.steps.first().and_then(Step::created_directory);
    let first = made.unwrap_or(&moved.to);
    let Some(parent) = first.parent() else {
        return Ok(());
    };
    match (&moved.inspected.meta, resolve::entry(permit, &parent)?) {
        (Some(source), Some(parent)) if source.dev != parent.dev => {
            Err(other_device(&moved.to).into())
        }
        _ => Ok(()),
    }
}

/// Rejects a move that would make hidden files readable.
fn check_visibility(permit: &ReadPermit, moved: &Transfer) -> Result<(), Interrupt> {
    let Transfer {
        from,
        to,
        inspected,
        ..
    } = moved;
    if permit.shows(to) {
        permit.require(Verb::Read, [from])?;
    }
    for item in &inspected.items {
        if permit.shows(&target::relocated(&item.path, from, to)?) && !permit.shows(&item.path) {
            let message = format!(
                "permission denied: the move would make entries of `{from}` readable at `{to}`; narrow the path"
            );
            return Err(CallError::new(Code::PermissionDenied, message).into());
        }
    }
    Ok(())
}

fn reply(moved: &Transfer, diff: &FileDiff, durability: ReachedDurability) -> Reply {
    let entries = moved.inspected.items.len() as u64 + 1;
    let moved = MoveOutput {
        from: moved.from.to_string(),
        to: moved.to.to_string(),
        entries: (!diff.hidden).then_some(entries),
        durability,
    };
    let (from, to) = (escape(&moved.from), escape(&moved.to));
    let text = match moved.entries {
        Some(entries) => format!("{from}: moved to {to}, {entries} entries"),
        None => format!("{from}: moved to {to} with everything in it"),
    };
    Reply::text(text, moved)
}
