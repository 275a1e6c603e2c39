//! `copy`: copies files and directories.

use bailiwick::config::Namespace;
use bailiwick::effect::{Cost, Op};
use bailiwick::scope::Operation;
use bailiwick::tool::{Example, Failure, Interrupt, Prepared, ReadPermit, Reverse, WritePermit};
use bailiwick::{
    CallError, Change, Code, Plan, Reply, Scope, ToolSpec, Verb, VirtualPath, WriteTool, escape,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::state::Inspected;
use crate::change::{
    ChangeSet, State, Step, StepExecutor, TemporaryFiles, inspect, repository, target, tree,
};
use crate::replace::ReachedDurability;
use crate::resolve::{self, Kind};

/// Copies files and directories.
#[derive(Debug)]
pub(crate) struct Copy(pub(super) StepExecutor);

/// Arguments of `copy`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CopyArgs {
    /// Existing path.
    #[serde(alias = "source")]
    pub from: String,
    /// Path of the copy, including the name.
    #[serde(alias = "destination")]
    pub to: String,
    /// Replace an existing file.
    #[serde(default)]
    pub overwrite: bool,
    /// Create missing parent directories.
    #[serde(default)]
    pub create_parents: bool,
}

/// Output of `copy`.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CopyOutput {
    /// The original.
    pub from: String,
    /// The copy.
    pub to: String,
    /// How many files and directories the copy has, itself included.
    pub entries: u64,
    /// The bytes of all its files.
    pub bytes: u64,
    /// How many unfinished files of other writers (`.bailiwick-*.tmp`) were left out.
    #[serde(skip_serializing_if = "super::is_zero")]
    #[schemars(default)]
    pub left_out: u64,
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
    description: "Copy a directory",
    input: r#"{"from": "src", "to": "backup"}"#,
    output: r#"{"entries": 2}"#,
}];
const FAILURES: &[Failure] = &[
    Failure {
        code: Code::NotFound,
        when: "nothing is there to copy, or the directory above the copy is missing",
        resolution: "Correct `from`, or set `create_parents`",
    },
    Failure {
        code: Code::AlreadyExists,
        when: "something is at the path of the copy",
        resolution: "Choose another, or set `overwrite` to replace a file",
    },
    Failure {
        code: Code::InvalidArguments,
        when: "the copy would lie inside what is copied",
        resolution: "Choose a path elsewhere",
    },
];

impl WriteTool for Copy {
    type Args = CopyArgs;
    type Output = CopyOutput;
    type Job = Job;
    type Steps = ChangeSet;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "copy",
            "Copy",
            "Copies a file or a directory with its contents.",
        )
        .intent("Copy {from} to {to} [(overwrite: {overwrite})]")
        .scopes(&["read:file", "write:file"])
        .destructive()
        .group("files", 0.5)
        .side_effects(&[
            "makes the copy",
            "replaces a file if `overwrite` is set",
            "makes missing directories if `create_parents` is set",
        ])
        .reverse(Reverse {
            tool: "delete",
            how: "delete `to`, with `recursive` if it is a directory",
            unless: "`overwrite` replaced a file, or directories were made for it",
        })
        .command_line("cp -RnT -- {from} {to}")
        .examples(EXAMPLES)
        .failures(FAILURES)
    }

    fn prepare(&self, args: CopyArgs, names: &Namespace) -> Result<Prepared<Job>, CallError> {
        let (from, to) = (names.path(&args.from)?, names.path(&args.to)?);
        target::reject_temporary_name(&to)?;
        target::reject_nested(&from, &to)?;
        Ok(Prepared {
            needs: vec![
                Scope::file(Verb::Read, from.clone()),
                target::put_need(&to, args.overwrite),
            ],
            job: Job {
                from,
                to,
                overwrite: args.overwrite,
                create_parents: args.create_parents,
            },
        })
    }

    fn plan(&self, job: &Job, permit: &ReadPermit) -> Result<Plan<ChangeSet>, Interrupt> {
        let ResolvedCopy {
            from,
            to,
            inspected,
            existing,
        } = resolve_args(job, permit)?;
        let mut steps = target::missing_parents(permit, &to, job.create_parents)?;
        steps.push(Step::Copy {
            from: from.clone(),
            to: to.clone(),
            state: inspected.state.clone(),
            existing: existing.state.clone(),
        });
        require(permit, (&from, &to), &inspected, &steps)?;
        let limit = permit.limits().write_max_bytes;
        let every = inspected.items.iter().map(|item| (&item.path, &item.meta));
        for (path, meta) in every.chain(inspected.meta.as_ref().map(|meta| (&from, meta))) {
            check_copyable(path, meta, limit)?;
            resolve::check_hard_links(permit, path, meta)?;
        }
        let mut changes = target::directory_changes(&steps);
        let (replaced, replaced_content) =
            target::replaced_file(&self.0, permit, (&from, &inspected), (&to, &existing))?;
        changes.extend(replaced);
        let (entry, diff) = self.0.describe(permit, &from, &inspected)?;
        changes.push(Change {
            path: from.clone(),
            op: Op::Copy,
            to: Some(to.clone()),
            before: entry,
            after: entry,
            diff,
        });
        let inverse = inverse(&to, &inspected.state, replaced_content, &steps);
        let entries = inspected.items.len() as u64 + 1;
        let reached = ReachedDurability::at_best(Some(self.0.durability()));
        Ok(Plan {
            reply: reply(CopyOutput {
                from: from.to_string(),
                to: to.to_string(),
                entries,
                bytes: inspected.bytes,
                left_out: inspected.left_out,
                durability: reached.clone(),
            }),
            cost: Cost {
                bytes: inspected.bytes,
                files: entries + changes.len() as u64 - 1,
            },
            changes,
            resources: Vec::new(),
            steps: ChangeSet::new(steps, self.0.durability(), reached),
            inverse: inverse.map(ChangeSet::from),
        })
    }

    fn apply(&self, change_set: ChangeSet, permit: WritePermit) -> Result<(), CallError> {
        self.0
            .execute(&change_set, permit.reading(), || permit.begin())
    }
}

/// Requires everything that copying `from`, whose state is `inspected`, to `to` needs.
fn require(
    permit: &ReadPermit,
    (from, to): (&VirtualPath, &VirtualPath),
    inspected: &Inspected,
    steps: &[Step],
) -> Result<(), Interrupt> {
    target::check_write_modes(permit, steps, false)?;
    // A tree that may not be read yet is not checked by name.
    target::require_whole(permit, Operation::Read, (from, inspected), to)?;
    let (source, destination) = (
        |path: &VirtualPath| Ok(path.clone()),
        |path: &VirtualPath| target::relocated(path, from, to),
    );
    target::require_all([
        target::require_beneath(permit, Operation::Read, from, &inspected.items, source),
        target::require_beneath(
            permit,
            Operation::Create,
            from,
            &inspected.items,
            destination,
        ),
        target::require_parents(permit, to, steps),
        repository::require(permit, steps, &inspected.items),
    ])
}

/// Valid arguments with resolved paths, and the states of both.
struct ResolvedCopy {
    from: VirtualPath,
    to: VirtualPath,
    inspected: Inspected,
    existing: Inspected,
}

fn resolve_args(job: &Job, permit: &ReadPermit) -> Result<ResolvedCopy, Interrupt> {
    target::reject_root(permit, &job.to)?;
    if resolve::entry(permit, &job.from)?.is_none() {
        let missing = CallError::not_found(&job.from);
        return Err(super::suggest::with_suggestions(permit, &job.from, missing).into());
    }
    let inspected = inspect(permit, &job.from, TemporaryFiles::Excluded)?;
    let existing = target::destination(permit, &job.to, job.overwrite)?;
    let (from, to) = (
        permit.actual(&job.from).clone(),
        permit.actual(&job.to).clone(),
    );
    target::reject_root(permit, &to)?;
    target::reject_temporary_name(&to)?;
    target::reject_nested(&from, &to)?;
    let Some(meta) = inspected.meta else {
        return Err(CallError::not_found(&from).into());
    };
    if existing.state != State::Absent && meta.kind != Kind::File {
        let message = format!("there is a file at `{to}`; a directory does not replace it");
        return Err(CallError::new(Code::AlreadyExists, message).into());
    }
    Ok(ResolvedCopy {
        from,
        to,
        inspected,
        existing,
    })
}

fn check_copyable(
    path: &VirtualPath,
    meta: &crate::resolve::Meta,
    limit: u64,
) -> Result<(), CallError> {
    match meta.kind {
        Kind::Directory => Ok(()),
        Kind::File if meta.len <= limit => Ok(()),
        Kind::File => {
            let message = format!(
                "`{path}` has {} bytes, more than the {limit} that may be written",
                meta.len
            );
            Err(CallError::new(Code::TooLarge, message))
        }
        Kind::Link | Kind::Special => Err(tree::not_copied(path)),
    }
}

/// Steps that remove the copy and restore what it replaced, if the copy can be identified.
fn inverse(
    to: &VirtualPath,
    state: &State,
    replaced_content: Option<target::OldFile>,
    made: &[Step],
) -> Option<Vec<Step>> {
    match state {
        State::File { .. }
        | State::Directory {
            content_only: true, ..
        } => {}
        State::Absent
        | State::Object { .. }
        | State::Directory {
            content_only: false,
            ..
        } => {
            return None;
        }
    }
    let remove = Step::Remove {
        path: to.clone(),
        state: state.clone(),
    };
    let put_back = target::restore_replaced(to, replaced_content)?;
    Some(
        std::iter::once(remove)
            .chain(put_back)
            .chain(target::undo_directories(made))
            .collect(),
    )
}

fn reply(copied: CopyOutput) -> Reply {
    let mut text = format!(
        "{}: copied to {}, {} entries, {} bytes",
        escape(&copied.from),
        escape(&copied.to),
        copied.entries,
        copied.bytes
    );
    if copied.left_out > 0 {
        text.push_str(&format!(", {} unfinished files left out", copied.left_out));
    }
    Reply::text(text, copied)
}
