//! Two paths in, what stood at the first now standing at the second out.

use bailiwick::{
    CallError, Change, Code, Cost, Entry, Example, Failure, Halt, Namespace, Op, Operation, Plan,
    Prepared, ReadPermit, Reply, Reverse, Scope, ToolSpec, Verb, VirtualPath, WritePermit,
    WriteTool, escape, not_yours,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::state::Seen;
use crate::change::{Changer, State, Step, Temporaries, Work, repository, see, target};
use crate::replace::{Durability, Reached};

/// Moves and renames files and directories.
#[derive(Debug, Default)]
pub(crate) struct Move(Changer);

/// What to move, and where to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveArgs {
    /// The file, directory or link to move. A link is moved itself, not what it leads to.
    #[serde(alias = "source")]
    pub from: String,
    /// The whole new path, last name included.
    #[serde(alias = "destination")]
    pub to: String,
    /// Replace the file that is there.
    #[serde(default)]
    pub overwrite: bool,
    /// Make the directories above the new path that are missing.
    #[serde(default)]
    pub create_parents: bool,
    /// What the change must survive: a crash of the program (`visible`), of the machine too (`ordered`), or be on the
    /// disk when the call answers (`durable`).
    #[serde(default)]
    pub durability: Durability,
}

/// What was moved.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Moved {
    /// Where it was.
    pub from: String,
    /// Where it is.
    pub to: String,
    /// How many files and directories were moved, itself included, as far as they may be read.
    pub entries: u64,
    /// What the change survives, which may be less than was asked; not in a preview.
    #[serde(skip_serializing_if = "Reached::is_unknown")]
    #[schemars(with = "Option<Durability>")]
    pub durability: Reached,
}

/// The arguments, understood.
#[derive(Debug)]
pub(crate) struct Job {
    durability: Durability,
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
            "Moves or renames a file or directory in one step. Refuses to replace anything unless `overwrite` is set, and then only a file by a file.",
        )
        .intent("Move {from} to {to} [(overwrite: {overwrite})]")
        .scopes(&["write:file"])
        .destructive()
        .group("files", 0.6)
.side_effects(&["moves the entry", "replaces a file if `overwrite` is set", "makes missing directories if `create_parents` is set"])
.reverse(Reverse { tool: "move", how: "swap `from` and `to`", unless: "`overwrite` replaced a file, or directories were made for it" })
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
                durability: args.durability,
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

    fn plan(&self, job: &Job, permit: &ReadPermit) -> Result<Plan<Work>, Halt> {
        let Judged {
            from,
            to,
            seen,
            over,
        } = judged(job, permit)?;
        let mut steps = target::missing_parents(permit, &to, job.create_parents)?;
        let mut changes = target::made(&steps);
        let (replaced, kept) = target::replaced(&self.0, permit, (&from, &seen), (&to, &over))?;
        changes.extend(replaced);
        let (entry, diff) = self.0.described(permit, &from, &seen)?;
        let entries = 1 + match entry {
            Entry::Directory { entries } => entries,
            Entry::Absent | Entry::File { .. } => 0,
        };
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
        steps.push(Step::Move {
            from: from.clone(),
            to: to.clone(),
            what: seen.state,
            over: over.state,
        });
        target::within_modes(permit, &steps, false)?;
        repository::require(permit, &steps, &seen.items)?;
        let reached = Reached::at_best(Some(job.durability));
        Ok(Plan {
            reply: reply(&from, &to, entries, reached.clone()),
            cost: Cost {
                bytes: 0,
                files: moved + changes.len() as u64 - 1,
            },
            changes,
            steps: Work::new(steps, job.durability, reached),
            inverse,
        })
    }

    fn apply(&self, work: Work, permit: WritePermit) -> Result<(), CallError> {
        self.0.carry_out(&work, permit.reading(), || permit.begin())
    }
}

/// A move that may be made: the real paths, what is moved and what is replaced.
struct Judged {
    from: VirtualPath,
    to: VirtualPath,
    seen: Seen,
    over: Seen,
}

fn judged(job: &Job, permit: &ReadPermit) -> Result<Judged, Halt> {
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
        return Err(super::suggest::instead(permit, &from, not_yours(&from)).into());
    }
    if over.state != State::Absent && matches!(seen.state, State::Directory { .. }) {
        let message = format!("there is a file at `{to}`; a directory does not replace it");
        return Err(CallError::new(Code::AlreadyExists, message).into());
    }
    let at = |path: &VirtualPath| target::relocated(path, &from, &to);
    target::require_whole(permit, Operation::Move, (&from, &seen), &to)?;
    target::require_beneath(permit, Operation::Move, &from, &seen.items, |path| {
        Ok(path.clone())
    })?;
    target::require_beneath(permit, Operation::Create, &from, &seen.items, at)?;
    stays_hidden(permit, &from, &to, &seen.items)?;
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
) -> Result<(), Halt> {
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

fn reply(from: &VirtualPath, to: &VirtualPath, entries: u64, durability: Reached) -> Reply {
    let moved = Moved {
        from: from.to_string(),
        to: to.to_string(),
        entries,
        durability,
    };
    let text = format!(
        "{}: moved to {}, {entries} entries",
        escape(&moved.from),
        escape(&moved.to)
    );
    Reply::text(text, moved)
}
