//! Two paths in, what stands at the first standing at the second too out.

use bailiwick::{
    CallError, Change, Code, Cost, Example, Failure, Interrupt, Namespace, Op, Operation, Plan,
    Prepared, ReadPermit, Reply, Reverse, Scope, ToolSpec, Verb, VirtualPath, WritePermit,
    WriteTool, escape,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::state::Seen;
use crate::change::{Changer, State, Step, Temporaries, Work, repository, see, target, tree};
use crate::replace::Reached;
use crate::resolve::{self, Kind};

/// Copies files and directories.
#[derive(Debug)]
pub(crate) struct Copy(pub(super) Changer);

/// What to copy, and where to.
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

/// What was copied.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Copied {
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
    type Output = Copied;
    type Job = Job;
    type Steps = Work;

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
        target::free_name(&to)?;
        target::apart(&from, &to)?;
        Ok(Prepared {
            needs: vec![
                Scope::file(Verb::Read, from.clone()),
                target::put(&to, args.overwrite),
            ],
            job: Job {
                from,
                to,
                overwrite: args.overwrite,
                create_parents: args.create_parents,
            },
        })
    }

    fn plan(&self, job: &Job, permit: &ReadPermit) -> Result<Plan<Work>, Interrupt> {
        let Judged {
            from,
            to,
            seen,
            over,
        } = judged(job, permit)?;
        let mut steps = target::missing_parents(permit, &to, job.create_parents)?;
        steps.push(Step::Copy {
            from: from.clone(),
            to: to.clone(),
            what: seen.state.clone(),
            over: over.state.clone(),
        });
        require(permit, (&from, &to), &seen, &steps)?;
        let limit = permit.limits().write_max_bytes;
        let every = seen.items.iter().map(|item| (&item.path, &item.meta));
        for (path, meta) in every.chain(seen.meta.as_ref().map(|meta| (&from, meta))) {
            may_be_copied(path, meta, limit)?;
            resolve::one_name(permit, path, meta)?;
        }
        let mut changes = target::made(&steps);
        let (replaced, kept) = target::replaced(&self.0, permit, (&from, &seen), (&to, &over))?;
        changes.extend(replaced);
        let (entry, diff) = self.0.described(permit, &from, &seen)?;
        changes.push(Change {
            path: from.clone(),
            op: Op::Copy,
            to: Some(to.clone()),
            before: entry,
            after: entry,
            diff,
        });
        let inverse = inverse(&to, &seen.state, kept, &steps);
        let entries = seen.items.len() as u64 + 1;
        let reached = Reached::at_best(Some(self.0.durability()));
        Ok(Plan {
            reply: reply(Copied {
                from: from.to_string(),
                to: to.to_string(),
                entries,
                bytes: seen.bytes,
                left_out: seen.left_out,
                durability: reached.clone(),
            }),
            cost: Cost {
                bytes: seen.bytes,
                files: entries + changes.len() as u64 - 1,
            },
            changes,
            steps: Work::new(steps, self.0.durability(), reached),
            inverse: inverse.map(Work::from),
        })
    }

    fn apply(&self, work: Work, permit: WritePermit) -> Result<(), CallError> {
        self.0.carry_out(&work, permit.reading(), || permit.begin())
    }
}

/// Requires all that the call must be allowed for copying `from`, which is `seen`, to `to`.
fn require(
    permit: &ReadPermit,
    (from, to): (&VirtualPath, &VirtualPath),
    seen: &Seen,
    steps: &[Step],
) -> Result<(), Interrupt> {
    target::within_modes(permit, steps, false)?;
    // What may not be read yet is not looked through for names.
    target::require_whole(permit, Operation::Read, (from, seen), to)?;
    let (here, there) = (
        |path: &VirtualPath| Ok(path.clone()),
        |path: &VirtualPath| target::relocated(path, from, to),
    );
    target::require_all([
        target::require_beneath(permit, Operation::Read, from, &seen.items, here),
        target::require_beneath(permit, Operation::Create, from, &seen.items, there),
        target::require_parents(permit, to, steps),
        repository::require(permit, steps, &seen.items),
    ])
}

/// A copy that makes sense: the real paths, what is copied and what is replaced.
struct Judged {
    from: VirtualPath,
    to: VirtualPath,
    seen: Seen,
    over: Seen,
}

fn judged(job: &Job, permit: &ReadPermit) -> Result<Judged, Interrupt> {
    target::not_a_root(permit, &job.to)?;
    if resolve::entry(permit, &job.from)?.is_none() {
        let missing = CallError::not_found(&job.from);
        return Err(super::suggest::instead(permit, &job.from, missing).into());
    }
    let seen = see(permit, &job.from, Temporaries::LeftOut)?;
    let over = target::destination(permit, &job.to, job.overwrite)?;
    let (from, to) = (
        permit.actual(&job.from).clone(),
        permit.actual(&job.to).clone(),
    );
    target::not_a_root(permit, &to)?;
    target::free_name(&to)?;
    target::apart(&from, &to)?;
    let Some(meta) = seen.meta else {
        return Err(CallError::not_found(&from).into());
    };
    if over.state != State::Absent && meta.kind != Kind::File {
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

fn may_be_copied(
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

/// What removes the copy and puts back what it replaced, if the copy can be told from anything else.
fn inverse(
    to: &VirtualPath,
    what: &State,
    kept: Option<target::Old>,
    made: &[Step],
) -> Option<Vec<Step>> {
    match what {
        State::File { .. } | State::Directory { exact: true, .. } => {}
        State::Absent | State::Object { .. } | State::Directory { exact: false, .. } => {
            return None;
        }
    }
    let remove = Step::Remove {
        path: to.clone(),
        what: what.clone(),
    };
    let put_back = target::put_back(to, kept)?;
    Some(
        std::iter::once(remove)
            .chain(put_back)
            .chain(target::unmake(made))
            .collect(),
    )
}

fn reply(copied: Copied) -> Reply {
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
