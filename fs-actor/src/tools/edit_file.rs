//! `edit_file`: edits parts of text files.

mod divide;
mod docs;
mod errors;
mod reply;

use bailiwick::config::Namespace;
use bailiwick::effect::{ContentHash, ExcludedChange};
use bailiwick::journal::UndoRecord;
use bailiwick::scope::Operation;
use bailiwick::tool::{Interrupt, Prepared, ReadPermit, WritePermit};
use bailiwick::{CallError, Code, Plan, Scope, ToolSpec, VirtualPath, WorkerId, WriteTool};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hash::HashPrefix;
use super::{optional, suggest};
use crate::change::put::NewContent;
use crate::change::stored::undo_record;
use crate::change::target;
use crate::change::{ChangeSet, StepExecutor};
use crate::edit::{self, AppliedEdit, Edit, Edited, Occurrences};
use crate::replace::ReachedDurability;
use crate::text::Text;
use errors::{edit_error, not_text, patch_error};

/// Maximum number of edits per call.
const MAX_EDITS: usize = 1_000;
/// Maximum size of a file, whatever the policy allows, since matching needs several copies.
pub(super) const MAX_BYTES: u64 = 64 << 20;

/// Edits parts of text files.
#[derive(Debug)]
pub(crate) struct EditFile(pub(super) StepExecutor);

/// One replacement.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
// Descriptions cost models tokens, and here the names say enough.
#[schemars(description = "")]
pub struct EditArgs {
    /// Exact text; must occur once unless an option says otherwise.
    #[serde(alias = "oldText", alias = "old_string")]
    pub old_text: String,
    /// Replacement.
    #[schemars(description = "")]
    #[serde(alias = "newText", alias = "new_string")]
    pub new_text: String,
    /// Replace every occurrence.
    #[serde(default, alias = "replaceAll")]
    pub replace_all: bool,
    /// Replace only this occurrence, from 1.
    #[serde(default)]
    pub occurrence: Option<usize>,
    /// Replace every occurrence; fail unless there are this many.
    #[serde(default)]
    pub expected_count: Option<usize>,
}

/// Arguments of `edit_file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditFileArgs {
    /// File to edit.
    pub path: String,
    // Some clients give models this description without the properties of the items, so that it has their names.
    /// Each `old_text` of the current file becomes `new_text`; all or none.
    #[serde(default)]
    pub edits: Vec<EditArgs>,
    /// Unified diff of this file, instead of `edits`.
    #[serde(default, deserialize_with = "optional::text")]
    pub patch: Option<String>,
    /// Fail unless the file still has this `hash`.
    #[serde(default, deserialize_with = "optional::text")]
    pub expected_hash: Option<HashPrefix>,
}

/// A change that a person excluded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExcludedEdit {
    /// Its first line in the old file, from 1.
    pub line: usize,
    /// Lines that would have been added.
    pub added: usize,
    /// Lines that would have been removed.
    pub removed: usize,
}

/// Output of `edit_file`.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EditFileOutput {
    /// The file, links followed.
    pub path: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// The hash of its new content, for the host; not in the JSON.
    #[serde(skip)]
    pub hash: ContentHash,
    /// Lines added.
    pub added: usize,
    /// Lines removed.
    pub removed: usize,
    /// One for each edit, or for each hunk of the patch.
    pub edits: Vec<AppliedEdit>,
    /// Changes that a person excluded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<ExcludedEdit>,
    /// The durability of the change, for the host; not in the JSON.
    #[serde(skip)]
    pub durability: ReachedDurability,
}

/// Parsed arguments.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) path: VirtualPath,
    change: Change,
    pub(super) expected: Option<HashPrefix>,
}

#[derive(Debug)]
enum Change {
    Edits(Vec<Edit>),
    Patch(String),
}

impl WriteTool for EditFile {
    type Args = EditFileArgs;
    type Output = EditFileOutput;
    type Job = Job;
    type Steps = ChangeSet;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "edit_file",
            "Edit file",
            "Replaces text in a UTF-8 file. Everything else, line endings included, stays.",
        )
        .intent("Edit {path}")
        .scopes(&["read:file", "write:file"])
        .destructive()
        .group("files", 0.9)
        .side_effects(&["changes the content of the file"])
        .examples(docs::EXAMPLES)
        .failures(docs::FAILURES)
    }

    fn prepare(&self, args: EditFileArgs, names: &Namespace) -> Result<Prepared<Job>, CallError> {
        let path = names.path_argument("/path", &args.path)?;
        target::reject_temporary_name(&path)?;
        let refuse = |field: &str, reason: &str| Err(CallError::invalid_argument(field, reason));
        let count = args.edits.len();
        if count > MAX_EDITS {
            let reason = format!("expected at most {MAX_EDITS} edits, got {count}");
            return refuse("/edits", &reason);
        }
        let change = match (args.patch, args.edits.is_empty()) {
            (Some(patch), true) => Change::Patch(patch),
            (None, false) => Change::Edits(
                args.edits
                    .into_iter()
                    .enumerate()
                    .map(parse_edit)
                    .collect::<Result<_, _>>()?,
            ),
            (Some(_), false) => {
                return refuse("/patch", "expected either `edits` or `patch`, got both");
            }
            (None, true) => {
                return refuse("/edits", "expected at least one edit, or a diff as `patch`");
            }
        };
        let needs = [Operation::Read, Operation::Change]
            .map(|operation| Scope::doing(operation, path.clone()));
        let job = Job {
            path,
            change,
            expected: args.expected_hash,
        };
        Ok(Prepared {
            needs: needs.into(),
            job,
        })
    }

    fn plan(&self, job: &Job, permit: &ReadPermit) -> Result<Plan<ChangeSet>, Interrupt> {
        let (path, bytes, limit) = read_target(job, permit)?;
        let edited = apply_change(
            job,
            &path,
            &bytes,
            usize::try_from(limit).unwrap_or(usize::MAX),
            permit,
        )?;
        let content = Bytes::from(edited.text);
        let contents = (bytes, content);
        let (worker, edits) = (permit.worker(), edited.applied);
        let plan = self.rewrite(worker, path.clone(), contents, edits, Vec::new());
        target::require_put(permit, &path, &plan.steps.steps, false)?;
        Ok(plan)
    }

    const DIVISIBLE: bool = true;

    fn divide(
        &self,
        plan: Plan<ChangeSet>,
        excluded: &[ExcludedChange],
    ) -> Result<Plan<ChangeSet>, CallError> {
        self.without_hunks(plan, excluded)
    }

    fn undo_record(&self, _: &ChangeSet, inverse: Option<&ChangeSet>) -> UndoRecord {
        undo_record(inverse.map(|inverse| &*inverse.steps))
    }

    fn apply(&self, change_set: ChangeSet, permit: WritePermit) -> Result<(), CallError> {
        self.0.apply(&change_set, &permit)
    }
}

impl EditFile {
    /// Plans to replace the `old` content of a file, which the `worker` may read, with the `new` one.
    fn rewrite(
        &self,
        worker: Option<WorkerId>,
        path: VirtualPath,
        (old, new): (Bytes, Bytes),
        edits: Vec<AppliedEdit>,
        excluded: Vec<ExcludedEdit>,
    ) -> Plan<ChangeSet> {
        let put = NewContent::rewriting(&self.0, worker, path, old, new);
        put.plan(&self.0, |put, diff, durability| {
            reply::reply(EditFileOutput {
                path: put.path.to_string(),
                bytes: put.content.len() as u64,
                hash: put.hash,
                added: diff.added,
                removed: diff.removed,
                edits,
                left_out: excluded,
                durability,
            })
        })
    }
}

/// The file to edit: resolved path, content, and maximum size.
fn read_target(job: &Job, permit: &ReadPermit) -> Result<(VirtualPath, Bytes, u64), Interrupt> {
    let old = target::read_old(permit, &job.path)?
        .ok_or_else(|| suggest::not_found(permit, &job.path))?;
    let path = permit.actual(&job.path).clone();
    target::reject_temporary_name(&path)?;
    target::check_expected_hash(&path, || old.state(), job.expected.as_ref())?;
    let limit = permit.limits().write_max_bytes.min(MAX_BYTES);
    match old.bytes.filter(|bytes| bytes.len() as u64 <= limit) {
        Some(bytes) => Ok((path, bytes, limit)),
        None => Err(too_large(&path, limit).into()),
    }
}

fn parse_edit((index, args): (usize, EditArgs)) -> Result<Edit, CallError> {
    let occurrences = match (args.replace_all, args.occurrence, args.expected_count) {
        (false, None, None) => Occurrences::Only,
        (true, None, None) => Occurrences::All,
        (false, Some(nth), None) => Occurrences::Nth(nth),
        (_, None, Some(count)) => Occurrences::Exactly(count),
        (true, Some(_), _) | (false, Some(_), Some(_)) => {
            let field = format!("/edits/{index}/occurrence");
            let reason = "expected one occurrence or all of them, got it together with `replace_all` or `expected_count`";
            return Err(CallError::invalid_argument(&field, reason));
        }
    };
    Ok(Edit {
        old: args.old_text,
        new: args.new_text,
        occurrences,
    })
}

pub(super) fn too_large(path: &VirtualPath, limit: u64) -> CallError {
    CallError::new(
        Code::TooLarge,
        format!("`{path}` is larger than the {limit} bytes that may be edited"),
    )
}

pub(super) fn apply_change(
    job: &Job,
    path: &VirtualPath,
    bytes: &[u8],
    limit: usize,
    permit: &ReadPermit,
) -> Result<Edited, CallError> {
    let text = Text::read(bytes).map_err(|reason| not_text(path, reason))?;
    let checkpoint = || permit.checkpoint();
    match &job.change {
        Change::Edits(edits) => {
            edit::apply(&text, edits, limit, checkpoint).map_err(|error| edit_error(path, &error))
        }
        Change::Patch(patch) => edit::apply_patch(&text, patch, limit, checkpoint)
            .map_err(|error| patch_error(path, &error)),
    }
}
