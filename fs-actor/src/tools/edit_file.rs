//! A file and edits in, the file with exactly those places changed out.

mod divide;
mod making;
mod notes;
mod refusal;

use bailiwick::{
    CallError, Code, ContentHash, ExcludedHunks, Interrupt, Namespace, Operation, Plan, Prepared,
    ReadPermit, Scope, ToolSpec, VirtualPath, WritePermit, WriteTool,
};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hash::HashPrefix;
use super::optional;
use crate::change::target::{self, Old};
use crate::change::{Changer, State, Work, repository};
use crate::edit::{self, Edit, EditError, Edited, PatchError, Places, Strategy};
use crate::replace::Reached;
use crate::text::Text;
use making::Making;
use refusal::{not_text, patch_refused, refused};

/// Edits of one call at most.
const MAX_EDITS: usize = 1_000;
/// The largest file that is edited, whatever the policy allows: matching holds several copies.
const MAX_BYTES: u64 = 64 << 20;

/// Changes parts of text files.
#[derive(Debug)]
pub(crate) struct EditFile(pub(super) Changer);

/// One replacement.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditArgs {
    /// Text to replace, exactly as in the file; it must occur once unless an option below says otherwise.
    #[serde(alias = "oldText", alias = "old_string")]
    pub old_text: String,
    /// Replacement.
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

/// Which file, and what to change in it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditFileArgs {
    /// File to edit.
    pub path: String,
    /// Replacements in the file as it is now, each an object with `old_text`, `new_text` and optionally `replace_all`,
    /// `occurrence` or `expected_count`; all are made or none.
    #[serde(default)]
    pub edits: Vec<EditArgs>,
    /// Unified diff of this file, instead of `edits`.
    #[serde(default, deserialize_with = "optional::text")]
    pub patch: Option<String>,
    /// Fail unless the file still has this `hash` (from `read_file` or `stat`).
    #[serde(default, deserialize_with = "optional::text")]
    pub expected_hash: Option<HashPrefix>,
}

/// How one edit was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Made {
    /// How the old text was found: `exact`, `line_endings` or `whitespace`.
    pub strategy: Strategy,
    /// How many places were changed.
    pub count: usize,
    /// The lines where they begin, the first few, as the file was.
    pub lines: Vec<usize>,
}

/// A run of lines that a person did not let change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NotMade {
    /// Where it begins in the file as it was; the first line is 1.
    pub line: usize,
    /// Lines that would have been added.
    pub added: usize,
    /// Lines that would have been removed.
    pub removed: usize,
}

/// What was changed.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileEdited {
    /// The file, links followed.
    pub path: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// The hash of its new content, for the host: it is in no JSON.
    #[serde(skip)]
    pub hash: ContentHash,
    /// Lines added.
    pub added: usize,
    /// Lines removed.
    pub removed: usize,
    /// One for each edit, or for each hunk of the patch.
    pub edits: Vec<Made>,
    /// What a person left out of the change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<NotMade>,
    /// What the change survives, for the host: it is in no JSON.
    #[serde(skip)]
    pub durability: Reached,
}

/// The arguments, understood.
#[derive(Debug)]
pub(crate) struct Job {
    path: VirtualPath,
    what: What,
    expected: Option<HashPrefix>,
}

#[derive(Debug)]
enum What {
    Edits(Vec<Edit>),
    Patch(String),
}

impl WriteTool for EditFile {
    type Args = EditFileArgs;
    type Output = FileEdited;
    type Job = Job;
    type Steps = Work;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "edit_file",
            "Edit a file",
            "Replaces text in a UTF-8 file. Line endings and everything outside the edits stay as they are.",
        )
        .intent("Edit {path}")
        .scopes(&["read:file", "write:file"])
        .destructive()
        .group("files", 0.9)
.side_effects(&["changes the content of the file"])
.examples(notes::EXAMPLES)
.failures(notes::FAILURES)
    }

    fn prepare(&self, args: EditFileArgs, names: &Namespace) -> Result<Prepared<Job>, CallError> {
        let path = names.path(&args.path)?;
        target::free_name(&path)?;
        let refuse = |field: &str, reason: &str| Err(CallError::invalid_argument(field, reason));
        let count = args.edits.len();
        if count > MAX_EDITS {
            let reason = format!("expected at most {MAX_EDITS} edits, got {count}");
            return refuse("/edits", &reason);
        }
        let what = match (args.patch, args.edits.is_empty()) {
            (Some(patch), true) => What::Patch(patch),
            (None, false) => What::Edits(
                args.edits
                    .into_iter()
                    .enumerate()
                    .map(understand)
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
            what,
            expected: args.expected_hash,
        };
        Ok(Prepared {
            needs: needs.into(),
            job,
        })
    }

    fn plan(&self, job: &Job, permit: &ReadPermit) -> Result<Plan<Work>, Interrupt> {
        let (path, before, bytes, limit) = text_of(job, permit)?;
        let edited = make(
            job,
            &path,
            &bytes,
            usize::try_from(limit).unwrap_or(usize::MAX),
            permit,
        )?;
        let made = Making {
            path,
            before,
            old: bytes,
            content: Bytes::from(edited.text),
            durability: self.0.durability(),
        };
        let plan = made.plan(edited.applied.iter().map(Made::from).collect(), Vec::new());
        target::within_modes(permit, &plan.steps.steps, false)?;
        repository::require(permit, &plan.steps.steps, &[])?;
        Ok(plan)
    }

    const DIVISIBLE: bool = true;

    fn divide(
        &self,
        plan: Plan<Work>,
        left_out: &[ExcludedHunks],
    ) -> Result<Plan<Work>, CallError> {
        divide::divided(plan, left_out)
    }

    fn apply(&self, work: Work, permit: WritePermit) -> Result<(), CallError> {
        self.0.carry_out(&work, permit.reading(), || permit.begin())
    }
}

/// The file to edit: where it really is, its state and bytes, and how large it may become.
fn text_of(job: &Job, permit: &ReadPermit) -> Result<(VirtualPath, State, Bytes, u64), Interrupt> {
    let old = target::old(permit, &job.path)?.ok_or_else(|| missing(permit, &job.path))?;
    let path = permit.actual(&job.path).clone();
    target::free_name(&path)?;
    target::expect(&path, &old.state, job.expected.as_ref())?;
    let limit = permit.limits().write_max_bytes.min(MAX_BYTES);
    let Old {
        state: before,
        bytes: Some(bytes),
        ..
    } = old
    else {
        return Err(too_large(&path, limit).into());
    };
    if bytes.len() as u64 > limit {
        return Err(too_large(&path, limit).into());
    }
    Ok((path, before, bytes, limit))
}

fn understand((index, args): (usize, EditArgs)) -> Result<Edit, CallError> {
    let places = match (args.replace_all, args.occurrence, args.expected_count) {
        (false, None, None) => Places::Only,
        (true, None, None) => Places::All,
        (false, Some(nth), None) => Places::Nth(nth),
        (_, None, Some(count)) => Places::Exactly(count),
        (true, Some(_), _) | (false, Some(_), Some(_)) => {
            let field = format!("/edits/{index}/occurrence");
            let reason = "expected one occurrence or all of them, got it together with `replace_all` or `expected_count`";
            return Err(CallError::invalid_argument(&field, reason));
        }
    };
    Ok(Edit {
        old: args.old_text,
        new: args.new_text,
        places,
    })
}

fn missing(permit: &ReadPermit, path: &VirtualPath) -> CallError {
    super::suggest::instead(permit, path, CallError::not_found(path))
}

fn too_large(path: &VirtualPath, limit: u64) -> CallError {
    CallError::new(
        Code::TooLarge,
        format!("`{path}` is larger than the {limit} bytes that may be edited"),
    )
}

/// Why the edits were not made.
#[derive(Debug)]
enum Failed {
    Stopped(CallError),
    Edit(EditError),
    Patch(PatchError),
}

impl From<EditError> for Failed {
    fn from(error: EditError) -> Self {
        Self::Edit(error)
    }
}

impl From<PatchError> for Failed {
    fn from(error: PatchError) -> Self {
        Self::Patch(error)
    }
}

fn make(
    job: &Job,
    path: &VirtualPath,
    bytes: &[u8],
    limit: usize,
    permit: &ReadPermit,
) -> Result<Edited, CallError> {
    let text = Text::read(bytes).map_err(|reason| not_text(path, reason))?;
    let pause = || permit.checkpoint().map_err(Failed::Stopped);
    let made = match &job.what {
        What::Edits(edits) => edit::apply(&text, edits, limit, pause),
        What::Patch(patch) => edit::apply_patch(&text, patch, limit, pause),
    };
    made.map_err(|failed| match failed {
        Failed::Stopped(error) => error,
        Failed::Edit(error) => refused(path, &error),
        Failed::Patch(error) => patch_refused(path, &error),
    })
}
