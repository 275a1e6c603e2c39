//! Two paths in, what stood at the first now standing at the second out.

use bailiwick::{
    CallError, Change, Code, Cost, Entry, Example, Failure, Interrupt, Namespace, Op, Operation,
    Plan, Prepared, ReadPermit, Reply, Reverse, Scope, ToolSpec, Verb, VirtualPath, WritePermit,
    WriteTool, escape,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::state::Seen;
use crate::change::{
    Changer, State, Step, Temporaries, Work, other_device, repository, see, target,
};
use crate::replace::Reached;
use crate::resolve;

/// Moves and renames files and directories.
#[derive(Debug)]
pub(crate) struct Move(pub(super) Changer);

/// What to move, and where to.
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

/// What was moved.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Moved {
    /// Where it was.
    pub from: String,
    /// Where it is.
    pub to: String,
    /// How many files and directories were moved, itself included; left out of a directory not all of which may be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// What the change survives, for the host: it is in no JSON.
    #[serde(skip)]
    pub durability: Reached,
}

/// The arguments, understood.
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
    type Output = Moved;
    type Job = Job;
    type Steps = Work;

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
        target::free_name(&to)?;
        target::apart(&from, &to)?;
        let taken = Scope::doing(Operation::Move, from.clone());
        Ok(Prepared {
            needs: vec![taken, target::put(&to, args.overwrite)],
            job: Job {
                from,
                to,
                overwrite: args.overwrite,
                create_parents: args.create_parents,
            },
        })
    }

    /// What becomes readable at its new place must be readable at its old one.
    fn also_needs(&self, job: &Job, permit: &ReadPermit) -> Vec<Scope> {
        if permit.shows(&job.to) && !permit.shows(&job.from) {
            vec![Scope::file(Verb::Read, job.from.clone())]
        } else {
            Vec::new()
        }
    }

    fn plan(&self, job: &Job, permit: &ReadPermit) -> Result<Plan<Work>, Interrupt> {
        let Judged {
            from,
            to,
            seen,
            over,
        } = judged(job, permit)?;
        let mut steps = target::missing_parents(permit, &to, job.create_parents)?;
        same_device(permit, &seen, &to, &steps)?;
        steps.push(Step::Move {
            from: from.clone(),
            to: to.clone(),
            what: seen.state.clone(),
            over: over.state.clone(),
        });
        require(permit, (&from, &to), &seen, &steps)?;
        let mut changes = target::made(&steps);
        let (replaced, kept) = target::replaced(&self.0, permit, (&from, &seen), (&to, &over))?;
        changes.extend(replaced);
        let (entry, diff) = self.0.described(permit, &from, &seen)?;
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
        let inverse = target::put_back(&to, kept).map(|put_back| {
            let back = Step::Move {
                from: to.clone(),
                to: from.clone(),
                what: seen.state.clone(),
                over: State::Absent,
            };
            std::iter::once(back)
                .chain(put_back)
                .chain(target::unmake(&steps))
                .collect::<Vec<_>>()
                .into()
        });
        let moved = seen.items.len() as u64 + 1;
        let reached = Reached::at_best(Some(self.0.durability()));
        Ok(Plan {
            reply: reply(&from, &to, counted, reached.clone()),
            cost: Cost {
                bytes: 0,
                files: moved + changes.len() as u64 - 1,
            },
            changes,
            steps: Work::new(steps, self.0.durability(), reached),
            inverse,
        })
    }

    fn apply(&self, work: Work, permit: WritePermit) -> Result<(), CallError> {
        self.0.carry_out(&work, permit.reading(), || permit.begin())
    }
}

/// Refuses a move to another file system, below the directories that `parents` make, before anybody is asked about it.
fn same_device(
    permit: &ReadPermit,
    seen: &Seen,
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
    match (&seen.meta, resolve::entry(permit, &parent)?) {
        (Some(moved), Some(parent)) if moved.dev != parent.dev => Err(other_device(to).into()),
        _ => Ok(()),
    }
}

/// Requires all that the call must be allowed for moving `from`, which is `seen`, to `to`.
fn require(
    permit: &ReadPermit,
    (from, to): (&VirtualPath, &VirtualPath),
    seen: &Seen,
    steps: &[Step],
) -> Result<(), Interrupt> {
    target::within_modes(permit, steps, false)?;
    // Entries that may not be named yet are judged once all of the directory may be moved.
    target::require_whole(permit, Operation::Move, (from, seen), to)?;
    let (here, there) = (
        |path: &VirtualPath| Ok(path.clone()),
        |path: &VirtualPath| target::relocated(path, from, to),
    );
    target::require_all([
        target::require_beneath(permit, Operation::Move, from, &seen.items, here),
        target::require_beneath(permit, Operation::Create, from, &seen.items, there),
        stays_hidden(permit, from, to, &seen.items),
        target::require_parents(permit, to, steps),
        repository::require(permit, steps, &seen.items),
    ])
}

/// A move that makes sense: the real paths, what is moved and what is replaced.
struct Judged {
    from: VirtualPath,
    to: VirtualPath,
    seen: Seen,
    over: Seen,
}

fn judged(job: &Job, permit: &ReadPermit) -> Result<Judged, Interrupt> {
    target::not_a_root(permit, &job.from)?;
    target::not_a_root(permit, &job.to)?;
    let seen = see(permit, &job.from, Temporaries::Counted)?;
    let over = target::destination(permit, &job.to, job.overwrite)?;
    let (from, to) = (
        permit.actual(&job.from).clone(),
        permit.actual(&job.to).clone(),
    );
    target::not_a_root(permit, &from)?;
    target::not_a_root(permit, &to)?;
    target::free_name(&to)?;
    target::apart(&from, &to)?;
    if seen.state == State::Absent {
        return Err(super::suggest::instead(permit, &from, CallError::not_found(&from)).into());
    }
    if over.state != State::Absent && matches!(seen.state, State::Directory { .. }) {
        let message = format!("there is a file at `{to}`; a directory does not replace it");
        return Err(CallError::new(Code::AlreadyExists, message).into());
    }
    Ok(Judged {
        from,
        to,
        seen,
        over,
    })
}

/// Refuses a move that would make readable what is not: to be read there, it must be readable here.
fn stays_hidden(
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

fn reply(from: &VirtualPath, to: &VirtualPath, entries: Option<u64>, durability: Reached) -> Reply {
    let moved = Moved {
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
