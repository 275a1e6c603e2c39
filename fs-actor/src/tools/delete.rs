//! `delete`: deletes files and directories.

use bailiwick::config::Namespace;
use bailiwick::effect::{Cost, DirectoryContents, Entry, FileDiff, Op};
use bailiwick::journal::UndoRecord;
use bailiwick::scope::Operation;
use bailiwick::text::escape;
use bailiwick::tool::{Example, Failure, Interrupt, Prepared, ReadPermit, WritePermit};
use bailiwick::{CallError, Change, Code, Plan, Reply, Scope, ToolSpec, VirtualPath, WriteTool};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::suggest;
use crate::change::state::Inspected;
use crate::change::stored::undo_record;
use crate::change::{
    ChangeSet, State, Step, StepExecutor, TemporaryFiles, inspect, repository, target,
};
use crate::diff;
use crate::replace::ReachedDurability;
use crate::resolve::{Kind, Meta};

/// Maximum size of a directory that is kept for undo.
pub(crate) const MAX_RESTORABLE_BYTES: u64 = 8 << 20;
pub(crate) const MAX_RESTORABLE_ENTRIES: usize = 1_000;

/// Deletes files and directories.
#[derive(Debug)]
pub(crate) struct Delete(pub(super) StepExecutor);

/// Arguments of `delete`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteArgs {
    /// File, directory or link to delete.
    pub path: String,
    /// Delete a directory with its contents.
    #[serde(default)]
    pub recursive: bool,
}

/// Output of `delete`.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DeleteOutput {
    /// The deleted path.
    pub path: String,
    /// Number of entries other than directories; absent if some of them may not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Number of directories, itself included; absent if some of them may not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directories: Option<u64>,
    /// The durability of the change, for the host; not in the JSON.
    #[serde(skip)]
    pub durability: ReachedDurability,
}

/// Parsed arguments.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) path: VirtualPath,
    pub(super) recursive: bool,
}

const EXAMPLES: &[Example] = &[
    Example {
        description: "Remove a file",
        input: r#"{"path": "notes.txt"}"#,
        output: r#"{"files": 1, "directories": 0}"#,
    },
    Example {
        description: "Remove a directory with its contents",
        input: r#"{"path": "src", "recursive": true}"#,
        output: r#"{"files": 1, "directories": 1}"#,
    },
];
const FAILURES: &[Failure] = &[
    Failure {
        code: Code::NotFound,
        when: "the path does not exist",
        resolution: "Nothing to do, or list the parent directory",
    },
    Failure {
        code: Code::InvalidArguments,
        when: "the directory is not empty",
        resolution: "Set `recursive` to delete its contents",
    },
];

impl WriteTool for Delete {
    type Args = DeleteArgs;
    type Output = DeleteOutput;
    type Job = Job;
    type Steps = ChangeSet;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "delete",
            "Delete file",
            "Deletes a file or an empty directory.",
        )
        .intent("Delete {path} [(recursive: {recursive})]")
        .scopes(&["write:file"])
        .destructive()
        .group("files", 0.4)
        .side_effects(&[
            "removes the entry",
            "removes its contents if `recursive` is set",
        ])
        .deletes()
        .command_line("rm -d -- {path}")
        .examples(EXAMPLES)
        .failures(FAILURES)
    }

    fn prepare(&self, args: DeleteArgs, names: &Namespace) -> Result<Prepared<Job>, CallError> {
        let path = names.path_argument("/path", &args.path)?;
        let need = Scope::doing(Operation::Delete, path.clone());
        Ok(Prepared {
            needs: vec![if args.recursive { need.beneath() } else { need }],
            job: Job {
                path,
                recursive: args.recursive,
            },
        })
    }

    fn plan(&self, job: &Job, permit: &ReadPermit) -> Result<Plan<ChangeSet>, Interrupt> {
        plan(&self.0, &job.path, job.recursive, permit)
    }

    fn undo_record(&self, _: &ChangeSet, inverse: Option<&ChangeSet>) -> UndoRecord {
        undo_record(inverse.map(|inverse| &*inverse.steps))
    }

    fn apply(&self, change_set: ChangeSet, permit: WritePermit) -> Result<(), CallError> {
        self.0.apply(&change_set, &permit)
    }
}

/// Plans to delete a file or directory.
///
/// # Errors
/// As [`WriteTool::plan`].
pub(crate) fn plan(
    executor: &StepExecutor,
    path: &VirtualPath,
    recursive: bool,
    permit: &ReadPermit,
) -> Result<Plan<ChangeSet>, Interrupt> {
    target::reject_root(permit, path)?;
    let inspected = inspect(permit, path, TemporaryFiles::Included)?;
    let path = permit.actual(path).clone();
    target::reject_root(permit, &path)?;
    let Some(meta) = inspected.meta else {
        return Err(suggest::not_found(permit, &path).into());
    };
    let shown = permit.shows(&path);
    let directory = meta.kind == Kind::Directory;
    // The error must not reveal whether a hidden directory is empty.
    if !recursive && directory && !(shown && inspected.items.is_empty()) {
        return Err(not_empty(&path, shown).into());
    }
    let steps = vec![Step::Remove {
        path: path.clone(),
        state: inspected.state.clone(),
    }];
    target::check_write_modes(permit, &steps, false)?;
    target::require_all([
        target::require_beneath(permit, Operation::Delete, &path, &inspected.items, |path| {
            Ok(path.clone())
        }),
        repository::require(permit, &steps, &inspected.items),
    ])?;
    let read = |path: &VirtualPath, meta: &Meta| target::restorable(permit, path, meta.kind);
    let inverse = restore(&path, &meta, &inspected, read);
    let (before, described) = executor.describe(permit, &path, &inspected)?;
    let reached = executor.reached();
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
            removed_lines(inverse.as_deref())
        },
    };
    Ok(Plan {
        changes: vec![change],
        resources: Vec::new(),
        reply,
        cost: Cost {
            bytes: 0,
            files: inspected.items.len() as u64 + 1,
        },
        steps: executor.change_set(steps, reached),
        inverse: inverse.map(ChangeSet::from),
    })
}

/// The error for a directory that is deleted without `recursive`.
pub(super) fn not_empty(path: &VirtualPath, shown: bool) -> CallError {
    let is = if shown { "not empty" } else { "a directory" };
    let reason = format!("`{path}` is {is}; set it to `true` to delete all of it");
    CallError::invalid_argument("/recursive", reason)
}

/// The content of a deleted file, as removed lines.
fn removed_lines(inverse: Option<&[Step]>) -> FileDiff {
    match inverse {
        Some([Step::Write { content, .. }]) => diff::of_bytes(content, b""),
        Some([Step::MakeLink { .. }]) => FileDiff::default(),
        Some(_) | None => FileDiff {
            large: true,
            ..FileDiff::default()
        },
    }
}

/// Steps that restore everything, unless it is too large to keep. `read` returns the content of a file, or the target of
/// a symbolic link.
pub(crate) fn restore(
    path: &VirtualPath,
    meta: &Meta,
    inspected: &Inspected,
    read: impl Fn(&VirtualPath, &Meta) -> Option<Bytes>,
) -> Option<Vec<Step>> {
    // If a file cannot be read again, there is no inverse; the deletion still checks the planned state.
    let write_back = |path: &VirtualPath, meta: &Meta| {
        Some(Step::Write {
            path: path.clone(),
            content: read(path, meta)?,
            existing: State::Absent,
            mode: Some(meta.mode & 0o777),
        })
    };
    let link_back = |path: &VirtualPath, meta: &Meta| {
        Some(Step::MakeLink {
            path: path.clone(),
            target: read(path, meta)?,
        })
    };
    if let State::Link { .. } = inspected.state {
        return link_back(path, meta).map(|step| vec![step]);
    }
    if let State::File { .. } = inspected.state {
        return write_back(path, meta).map(|step| vec![step]);
    }
    let small =
        inspected.bytes <= MAX_RESTORABLE_BYTES && inspected.items.len() <= MAX_RESTORABLE_ENTRIES;
    let content_only = matches!(
        inspected.state,
        State::Directory {
            content_only: true,
            ..
        }
    );
    if !small || !content_only {
        return None;
    }
    let every = inspected.items.iter().map(|item| (&item.path, &item.meta));
    let steps = std::iter::once((path, meta))
        .chain(every)
        .map(|(path, meta)| match meta.kind {
            Kind::Directory => Some(Step::MakeDirectory {
                path: path.clone(),
                mode: Some(meta.mode & 0o777 | 0o700),
            }),
            Kind::File => write_back(path, meta),
            Kind::Link => link_back(path, meta),
            Kind::Special => None,
        });
    steps.collect()
}

fn reply(
    path: &VirtualPath,
    contents: Option<&DirectoryContents>,
    directory: bool,
    durability: ReachedDurability,
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
    let deleted = DeleteOutput {
        path,
        files: counts.map(|(files, _)| files),
        directories: counts.map(|(_, directories)| directories),
        durability,
    };
    Reply::text(text, deleted)
}
