//! A path in, nothing there any more out.

use bailiwick::{
    CallError, Change, Code, Cost, DirectoryContents, Entry, Example, Failure, FileDiff, Interrupt,
    Namespace, Op, Operation, Plan, Prepared, ReadPermit, Reply, Scope, ToolSpec, VirtualPath,
    WritePermit, WriteTool, escape,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::state::Seen;
use crate::change::{Changer, State, Step, Temporaries, Work, repository, see, target};
use crate::diff;
use crate::replace::Reached;
use crate::resolve::{Kind, Meta};

/// The most that is kept of a directory so that its removal can be taken back.
const MAX_KEPT_BYTES: u64 = 8 << 20;
const MAX_KEPT_ENTRIES: usize = 1_000;

/// Removes files and directories.
#[derive(Debug)]
pub(crate) struct Delete(pub(super) Changer);

/// What to remove.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteArgs {
    /// File, directory or link to delete.
    pub path: String,
    /// Delete a directory with its contents.
    #[serde(default)]
    pub recursive: bool,
}

/// What was removed.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Deleted {
    /// Where it was.
    pub path: String,
    /// Files, links and the like; left out of a directory not all of which may be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Directories, itself included; left out of a directory not all of which may be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directories: Option<u64>,
    /// What the change survives, for the host: it is in no JSON.
    #[serde(skip)]
    pub durability: Reached,
}

/// The arguments, understood.
#[derive(Debug)]
pub(crate) struct Job {
    path: VirtualPath,
    recursive: bool,
}

const EXAMPLES: &[Example] = &[
    Example {
        description: "Remove a file",
        input: r#"{"path": "notes.txt"}"#,
        output: r#"{"files": 1, "directories": 0}"#,
    },
    Example {
        description: "Remove a directory with what it holds",
        input: r#"{"path": "src", "recursive": true}"#,
        output: r#"{"files": 1, "directories": 1}"#,
    },
];
const FAILURES: &[Failure] = &[
    Failure {
        code: Code::NotFound,
        when: "nothing is there",
        resolution: "Take it as done, or list the directory",
    },
    Failure {
        code: Code::InvalidArguments,
        when: "the directory holds something",
        resolution: "Set `recursive` if all of it shall go",
    },
];

impl WriteTool for Delete {
    type Args = DeleteArgs;
    type Output = Deleted;
    type Job = Job;
    type Steps = Work;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("delete", "Delete", "Deletes a file or an empty directory.")
            .intent("Delete {path} [(recursive: {recursive})]")
            .scopes(&["write:file"])
            .destructive()
            .group("files", 0.4)
            .side_effects(&[
                "removes the entry",
                "removes all it holds if `recursive` is set",
            ])
            .deletes()
            .command_line("rm -d -- {path}")
            .examples(EXAMPLES)
            .failures(FAILURES)
    }

    fn prepare(&self, args: DeleteArgs, names: &Namespace) -> Result<Prepared<Job>, CallError> {
        let path = names.path(&args.path)?;
        let need = Scope::doing(Operation::Delete, path.clone());
        Ok(Prepared {
            needs: vec![if args.recursive { need.beneath() } else { need }],
            job: Job {
                path,
                recursive: args.recursive,
            },
        })
    }

    fn plan(&self, job: &Job, permit: &ReadPermit) -> Result<Plan<Work>, Interrupt> {
        target::not_a_root(permit, &job.path)?;
        let seen = see(permit, &job.path, Temporaries::Counted)?;
        let path = permit.actual(&job.path).clone();
        target::not_a_root(permit, &path)?;
        let Some(meta) = seen.meta else {
            return Err(super::suggest::instead(permit, &path, CallError::not_found(&path)).into());
        };
        let shown = permit.shows(&path);
        let directory = meta.kind == Kind::Directory;
        // Whether a directory that may not be read is empty is not told either.
        if !job.recursive && directory && !(shown && seen.items.is_empty()) {
            let is = if shown { "not empty" } else { "a directory" };
            let reason = format!("`{path}` is {is}; set it to `true` to delete all of it");
            return Err(CallError::invalid_argument("/recursive", reason).into());
        }
        let steps = vec![Step::Remove {
            path: path.clone(),
            what: seen.state.clone(),
        }];
        target::within_modes(permit, &steps, false)?;
        target::require_all([
            target::require_beneath(permit, Operation::Delete, &path, &seen.items, |path| {
                Ok(path.clone())
            }),
            repository::require(permit, &steps, &seen.items),
        ])?;
        let inverse = restore(permit, &path, &meta, &seen);
        let (before, described) = self.0.described(permit, &path, &seen)?;
        let reached = Reached::at_best(Some(self.0.durability()));
        let reply = reply(
            &path,
            described.contents.as_ref().filter(|_| !described.hidden),
            directory,
            reached.clone(),
        );
        let change = Change {
            path,
            op: Op::Delete,
            to: None,
            before,
            after: Entry::Absent,
            diff: if directory || !shown {
                described
            } else {
                removed(inverse.as_deref())
            },
        };
        Ok(Plan {
            changes: vec![change],
            reply,
            cost: Cost {
                bytes: 0,
                files: seen.items.len() as u64 + 1,
            },
            steps: Work::new(steps, self.0.durability(), reached),
            inverse: inverse.map(Work::from),
        })
    }

    fn apply(&self, work: Work, permit: WritePermit) -> Result<(), CallError> {
        self.0.carry_out(&work, permit.reading(), || permit.begin())
    }
}

/// The content of a file that is removed, as lines removed.
fn removed(inverse: Option<&[Step]>) -> FileDiff {
    match inverse {
        Some([Step::Write { content, .. }]) => diff::of_bytes(content, b""),
        Some(_) | None => FileDiff {
            large: true,
            ..FileDiff::default()
        },
    }
}

/// What brings all of it back, unless that is more than is kept.
fn restore(permit: &ReadPermit, path: &VirtualPath, meta: &Meta, seen: &Seen) -> Option<Vec<Step>> {
    if let State::File { .. } = seen.state {
        return write_back(permit, path, meta).map(|step| vec![step]);
    }
    let small = seen.bytes <= MAX_KEPT_BYTES && seen.items.len() <= MAX_KEPT_ENTRIES;
    let exact = matches!(seen.state, State::Directory { exact: true, .. });
    if !small || !exact {
        return None;
    }
    let every = seen.items.iter().map(|item| (&item.path, &item.meta));
    let steps = std::iter::once((path, meta))
        .chain(every)
        .map(|(path, meta)| match meta.kind {
            Kind::Directory => Some(Step::MakeDirectory {
                path: path.clone(),
                mode: Some(meta.mode & 0o777 | 0o700),
            }),
            Kind::File => write_back(permit, path, meta),
            Kind::Link | Kind::Special => None,
        });
    steps.collect()
}

fn write_back(permit: &ReadPermit, path: &VirtualPath, meta: &Meta) -> Option<Step> {
    // What cannot be read again just after it was looked at is not brought back; it is still removed only as it was.
    let old = target::old(permit, path).ok().flatten()?;
    Some(Step::Write {
        path: path.clone(),
        content: old.bytes?,
        over: State::Absent,
        mode: Some(meta.mode & 0o777),
    })
}

fn reply(
    path: &VirtualPath,
    contents: Option<&DirectoryContents>,
    directory: bool,
    durability: Reached,
) -> Reply {
    let counts = match contents {
        Some(contents) => Some((contents.files + contents.others, contents.directories + 1)),
        None if directory => None,
        None => Some((1, 0)),
    };
    let path = path.to_string();
    let text = match counts {
        Some((files, directories)) => {
            format!(
                "{}: {files} files and {directories} directories deleted",
                escape(&path)
            )
        }
        None => format!("{}: deleted with everything in it", escape(&path)),
    };
    let deleted = Deleted {
        path,
        files: counts.map(|(files, _)| files),
        directories: counts.map(|(_, directories)| directories),
        durability,
    };
    Reply::text(text, deleted)
}
