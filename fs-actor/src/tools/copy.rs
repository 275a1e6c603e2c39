//! `copy`: copies files and directories.

use bailiwick::config::Namespace;
use bailiwick::effect::FileDiff;
use bailiwick::journal::UndoRecord;
use bailiwick::text::escape;
use bailiwick::tool::{Example, Failure, Interrupt, Prepared, ReadPermit, Reverse, WritePermit};
use bailiwick::{CallError, Code, Plan, Reply, ToolSpec, VirtualPath, WriteTool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::transfer::{self, Job, Transfer};
use crate::change::stored::undo_record;
use crate::change::{ChangeSet, Step, StepExecutor, TransferMode, tree};
use crate::replace::ReachedDurability;
use crate::resolve::{self, Kind, Meta};

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
    /// Create missing parents.
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
    /// Number of files and directories copied, itself included.
    pub entries: u64,
    /// Total size of its files, in bytes.
    pub bytes: u64,
    /// Number of temporary files (`.bailiwick-*.tmp`) that were not copied.
    #[serde(skip_serializing_if = "super::is_zero")]
    #[schemars(default)]
    pub left_out: u64,
    /// The durability of the change, for the host; not in the JSON.
    #[serde(skip)]
    pub durability: ReachedDurability,
}

const EXAMPLES: &[Example] = &[Example {
    description: "Copy a directory",
    input: r#"{"from": "src", "to": "backup"}"#,
    output: r#"{"entries": 2}"#,
}];
const FAILURES: &[Failure] = &[
    Failure {
        code: Code::NotFound,
        when: "the source or the parent of the copy does not exist",
        resolution: "Correct `from`, or set `create_parents`",
    },
    Failure {
        code: Code::AlreadyExists,
        when: "the path of the copy exists",
        resolution: "Choose another path, or set `overwrite` to replace a file",
    },
    Failure {
        code: Code::InvalidArguments,
        when: "the copy would be inside the source",
        resolution: "Choose another path",
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
            "Copy file",
            "Copies a file or a directory with its contents.",
        )
        .intent("Copy {from} to {to} [(overwrite: {overwrite})]")
        .scopes(&["read:file", "write:file"])
        .destructive()
        .group("files", 0.5)
        .side_effects(&[
            "creates the copy",
            "replaces a file if `overwrite` is set",
            "creates missing directories if `create_parents` is set",
        ])
        .reverse(Reverse {
            tool: "delete",
            how: "delete `to`, with `recursive` if it is a directory",
            unless: "`overwrite` replaced a file, or parent directories were created",
        })
        .command_line("cp -RnT -- {from} {to}")
        .examples(EXAMPLES)
        .failures(FAILURES)
    }

    fn prepare(&self, args: CopyArgs, names: &Namespace) -> Result<Prepared<Job>, CallError> {
        transfer::prepare(
            names,
            TransferMode::Copy,
            (&args.from, &args.to),
            args.overwrite,
            args.create_parents,
        )
    }

    fn plan(&self, job: &Job, permit: &ReadPermit) -> Result<Plan<ChangeSet>, Interrupt> {
        let copy = Transfer::resolve(TransferMode::Copy, job, permit)?;
        copy.require(permit, || Ok(()))?;
        let Transfer {
            from, inspected, ..
        } = &copy;
        let limit = permit.limits().write_max_bytes;
        let every = inspected.items.iter().map(|item| (&item.path, &item.meta));
        for (path, meta) in every.chain(inspected.meta.as_ref().map(|meta| (from, meta))) {
            check_copyable(path, meta, limit)?;
            resolve::check_hard_links(permit, path, meta)?;
        }
        let undo = undo(&copy);
        copy.plan(&self.0, permit, undo, reply)
    }

    fn undo_record(&self, _: &ChangeSet, inverse: Option<&ChangeSet>) -> UndoRecord {
        undo_record(inverse.map(|inverse| &*inverse.steps))
    }

    fn apply(&self, change_set: ChangeSet, permit: WritePermit) -> Result<(), CallError> {
        self.0.apply(&change_set, &permit)
    }
}

pub(super) fn check_copyable(path: &VirtualPath, meta: &Meta, limit: u64) -> Result<(), CallError> {
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

/// The step that removes the copy, if it can be identified.
fn undo(copy: &Transfer) -> Option<Step> {
    let identified = copy.inspected.state.is_content_only();
    identified.then(|| Step::Remove {
        path: copy.to.clone(),
        state: copy.inspected.state.clone(),
    })
}

fn reply(copy: &Transfer, _: &FileDiff, durability: ReachedDurability) -> Reply {
    let copied = CopyOutput {
        from: copy.from.to_string(),
        to: copy.to.to_string(),
        entries: copy.inspected.items.len() as u64 + 1,
        bytes: copy.inspected.bytes,
        left_out: copy.inspected.excluded_temporaries,
        durability,
    };
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
