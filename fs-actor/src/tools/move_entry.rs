//! `move`: moves and renames files and directories.

use bailiwick::config::Namespace;
use bailiwick::effect::{Cost, Entry, Op};
use bailiwick::scope::Operation;
use bailiwick::tool::{Example, Failure, Interrupt, Prepared, ReadPermit, Reverse, WritePermit};
use bailiwick::{
    CallError, Change, Code, Plan, Reply, Scope, ToolSpec, Verb, VirtualPath, WriteTool, escape,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::state::Inspected;
use crate::change::{
    ChangeSet, State, Step, StepExecutor, TemporaryFiles, inspect, other_device, repository, target,
};
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
    /// Create missing parent directories.
    #[serde(default)]
    pub create_parents: bool,
}

/// Output of `move`.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MoveOutput {
    /// Where it was.
    pub from: String,
    /// Where it is.
    pub to: String,
    /// How many files and directories were moved, itself included; left out of a directory not all of which may be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// What the change survives, for the host: it is in no JSON.
    #[serde(skip)]
    pub durability: ReachedDurability,
}

/// Parsed arguments.
#[derive(Debug)]
pub(crate) struct Job {
    from: VirtualPath,
    to: VirtualPath,
    overwrite: bool,
    create_parents: bool,
}

const EXAMPLES: &[Example] = &[Example {
    description: "Rename a file",
    input: r#"{"from": "notes.txt", "to": "todo.txt"}"#,
    output: r#"{"entries": 1}"#,
}];
const FAILURES: &[Failure] = &[
    Failure {
        code: Code::NotFound,
        when: "nothing is there to move, or the directory above the new path is missing",
        resolution: "Correct `from`, or set `create_parents`",
    },
    Failure {
        code: Code::AlreadyExists,
        when: "something is at the new path",
        resolution: "Choose another, or set `overwrite` to replace a file",
    },
    Failure {
        code: Code::InvalidArguments,
        when: "the new path lies inside the old one",
        resolution: "Choose a path elsewhere",
    },
];

impl WriteTool for Move {
    type Args = MoveArgs;
    type Output = MoveOutput;
    type Job = Job;
    type Steps = ChangeSet;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "move",
            "Move or rename",
            "Moves or renames a file or directory.",
        )
        .intent("Move {from} to {to} [(overwrite: {overwrite})]")
        .scopes(&["write:file"])
        .destructive()
        .group("files", 0.6)
        .side_effects(&[
            "moves the entry",
            "replaces a file if `overwrite` is set",
            "makes missing directories if `create_parents` is set",
        ])
        .reverse(Reverse {
            tool: "move",
            how: "swap `from` and `to`",
            unless: "`overwrite` replaced a file, or directories were made for it",
        })
        .command_line("mv -nT -- {from} {to}")
        .examples(EXAMPLES)
        .failures(FAILURES)
    }

    fn prepare(&self, args: MoveArgs, names: &Namespace) -> Result<Prepared<Job>, CallError> {
        let (from, to) = (names.path(&args.from)?, names.path(&args.to)?);
        target::reject_temporary_name(&to)?;
        target::reject_nested(&from, &to)?;
        let taken = Scope::doing(Operation::Move, from.clone());
        Ok(Prepared {
            needs: vec![taken, target::put_need(&to, args.overwrite)],
            job: Job {
                from,
                to,
                overwrite: args.overwrite,
                create_parents: args.create_parents,
            },
        })
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
        let ResolvedMove {
            from,
            to,
            inspected,
            existing,
        } = resolve_args(job, permit)?;
        let mut steps = target::missing_parents(permit, &to, job.create_parents)?;
        same_device(permit, &inspected, &to, &steps)?;
        steps.push(Step::Move {
            from: from.clone(),
            to: to.clone(),
            state: inspected.state.clone(),
            existing: existing.state.clone(),
        });
        require(permit, (&from, &to), &inspected, &steps)?;
        let mut changes = target::directory_changes(&steps);
        let (replaced, replaced_content) =
            target::replaced_file(&self.0, permit, (&from, &inspected), (&to, &existing))?;
        changes.extend(replaced);
        let (entry, diff) = self.0.describe(permit, &from, &inspected)?;
        let entries = 1 + match entry {
            Entry::Directory { entries } => entries,
            Entry::Absent | Entry::File { .. } => 0,
        };
        let counted = (!diff.hidden).then_some(entries);
        changes.push(Change {
            path: from.clone(),
            op: Op::Move,
            to: Some(to.clone()),
            before: entry,
            after: entry,
            diff,
        });
        let inverse = target::restore_replaced(&to, replaced_content).map(|put_back| {
            let back = Step::Move {
                from: to.clone(),
                to: from.clone(),
                state: inspected.state.clone(),
                existing: State::Absent,
            };
            std::iter::once(back)
                .chain(put_back)
                .chain(target::undo_directories(&steps))
                .collect::<Vec<_>>()
                .into()
        });
        let moved = inspected.items.len() as u64 + 1;
        let reached = ReachedDurability::at_best(Some(self.0.durability()));
        Ok(Plan {
            reply: reply(&from, &to, counted, reached.clone()),
            cost: Cost {
                bytes: 0,
                files: moved + changes.len() as u64 - 1,
            },
            changes,
            resources: Vec::new(),
            steps: ChangeSet::new(steps, self.0.durability(), reached),
            inverse,
        })
    }

    fn apply(&self, change_set: ChangeSet, permit: WritePermit) -> Result<(), CallError> {
        self.0
            .execute(&change_set, permit.reading(), || permit.begin())
    }
}

/// Rejects a move to another file system before anyone is asked; `parents` create the directories above `to`.
fn same_device(
    permit: &ReadPermit,
    inspected: &Inspected,
    to: &VirtualPath,
    parents: &[Step],
) -> Result<(), Interrupt> {
    let first = match parents.first() {
        Some(Step::MakeDirectory { path, .. }) => path,
        _ => to,
    };
    let Some(parent) = first.parent() else {
        return Ok(());
    };
    match (&inspected.meta, resolve::entry(permit, &parent)?) {
        (Some(moved), Some(parent)) if moved.dev != parent.dev => Err(other_device(to).into()),
        _ => Ok(()),
    }
}

/// Requires everything that moving `from`, whose state is `inspected`, to `to` needs.
fn require(
    permit: &ReadPermit,
    (from, to): (&VirtualPath, &VirtualPath),
    inspected: &Inspected,
    steps: &[Step],
) -> Result<(), Interrupt> {
    target::check_write_modes(permit, steps, false)?;
    // Hidden entries are checked once all of the directory may be moved.
    target::require_whole(permit, Operation::Move, (from, inspected), to)?;
    let (source, destination) = (
        |path: &VirtualPath| Ok(path.clone()),
        |path: &VirtualPath| target::relocated(path, from, to),
    );
    target::require_all([
        target::require_beneath(permit, Operation::Move, from, &inspected.items, source),
        target::require_beneath(
            permit,
            Operation::Create,
            from,
            &inspected.items,
            destination,
        ),
        check_visibility(permit, from, to, &inspected.items),
        target::require_parents(permit, to, steps),
        repository::require(permit, steps, &inspected.items),
    ])
}

/// Valid arguments with resolved paths, and the states of both.
struct ResolvedMove {
    from: VirtualPath,
    to: VirtualPath,
    inspected: Inspected,
    existing: Inspected,
}

fn resolve_args(job: &Job, permit: &ReadPermit) -> Result<ResolvedMove, Interrupt> {
    target::reject_root(permit, &job.from)?;
    target::reject_root(permit, &job.to)?;
    let inspected = inspect(permit, &job.from, TemporaryFiles::Included)?;
    let existing = target::destination(permit, &job.to, job.overwrite)?;
    let (from, to) = (
        permit.actual(&job.from).clone(),
        permit.actual(&job.to).clone(),
    );
    target::reject_root(permit, &from)?;
    target::reject_root(permit, &to)?;
    target::reject_temporary_name(&to)?;
    target::reject_nested(&from, &to)?;
    if inspected.state == State::Absent {
        return Err(
            super::suggest::with_suggestions(permit, &from, CallError::not_found(&from)).into(),
        );
    }
    if existing.state != State::Absent && matches!(inspected.state, State::Directory { .. }) {
        let message = format!("there is a file at `{to}`; a directory does not replace it");
        return Err(CallError::new(Code::AlreadyExists, message).into());
    }
    Ok(ResolvedMove {
        from,
        to,
        inspected,
        existing,
    })
}

/// Rejects a move that would make hidden files readable.
fn check_visibility(
    permit: &ReadPermit,
    from: &VirtualPath,
    to: &VirtualPath,
    items: &[crate::change::tree::Item],
) -> Result<(), Interrupt> {
    if permit.shows(to) {
        permit.require(Verb::Read, [from])?;
    }
    for item in items {
        if permit.shows(&target::relocated(&item.path, from, to)?) && !permit.shows(&item.path) {
            let message = format!(
                "`{from}` holds what this worker may not read, and could read at `{to}`; name smaller parts of it"
            );
            return Err(CallError::new(Code::PermissionDenied, message).into());
        }
    }
    Ok(())
}

fn reply(
    from: &VirtualPath,
    to: &VirtualPath,
    entries: Option<u64>,
    durability: ReachedDurability,
) -> Reply {
    let moved = MoveOutput {
        from: from.to_string(),
        to: to.to_string(),
        entries,
        durability,
    };
    let (from, to) = (escape(&moved.from), escape(&moved.to));
    let text = match entries {
        Some(entries) => format!("{from}: moved to {to}, {entries} entries"),
        None => format!("{from}: moved to {to} with everything in it"),
    };
    Reply::text(text, moved)
}
