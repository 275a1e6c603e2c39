//! A file and edits in, the file with exactly those places changed out.

mod divide;
mod making;
mod notes;
mod refusal;

use bailiwick::{
    CallError, Code, ContentHash, Halt, LeftOut, Namespace, Operation, Plan, Prepared, ReadPermit,
    Scope, ToolSpec, VirtualPath, WritePermit, WriteTool, not_yours,
};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::target::{self, Old};
use crate::change::{Changer, State, Work, repository};
use crate::edit::{self, Edit, EditError, Edited, PatchError, Places, Strategy};
use crate::replace::{Durability, Reached};
use crate::text::Text;
use making::Making;
use refusal::{not_text, patch_refused, refused};

/// Edits of one call at most.
const MAX_EDITS: usize = 1_000;
/// The largest file that is edited, whatever the policy allows: matching holds several copies.
const MAX_BYTES: u64 = 64 << 20;

/// Changes parts of text files.
#[derive(Debug, Default)]
pub(crate) struct EditFile(Changer);

/// One replacement.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditArgs {
    /// The text to replace, as it stands in the file. It may be part of a line or many lines.
    #[serde(alias = "oldText", alias = "old_string")]
    pub old_text: String,
    /// What takes its place.
    #[serde(alias = "newText", alias = "new_string")]
    pub new_text: String,
    /// Replace every place, not the only one.
    #[serde(default, alias = "replaceAll")]
    pub replace_all: bool,
    /// Replace this place alone, counted from 1.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub occurrence: Option<usize>,
    /// Replace every place, and refuse unless there are this many.
    #[serde(default)]
    pub expected_count: Option<usize>,
}

/// Which file, and what to change in it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditFileArgs {
    /// The file. A link is followed if it leads to a place that you may write.
    pub path: String,
    /// The replacements. All are matched against the file as it is, so they must not overlap; all are made or none.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    pub edits: Vec<EditArgs>,
    /// A unified patch of this file instead of `edits`.
    #[serde(default)]
    pub patch: Option<String>,
    /// Refuse with CONFLICT unless the file has this hash now, as `read_file` gave it.
    #[serde(default)]
    pub expected_hash: Option<ContentHash>,
    /// What the change must survive: a crash of the program (`visible`), of the machine too (`ordered`), or be on the
    /// disk when the call answers (`durable`).
    #[serde(default)]
    pub durability: Durability,
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
    /// The hash of its new content.
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
    /// What the change survives, which may be less than was asked; not in a preview.
    #[serde(skip_serializing_if = "Reached::is_unknown")]
    #[schemars(with = "Option<Durability>")]
    pub durability: Reached,
}

/// The arguments, understood.
#[derive(Debug)]
pub(crate) struct Job {
    durability: Durability,
    path: VirtualPath,
    what: What,
    expected: Option<ContentHash>,
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
            "Replaces text in a UTF-8 file. Each old_text must occur exactly once unless `replace_all`, `occurrence` or `expected_count` says otherwise. Line endings, byte order mark and everything outside the edits stay as they are. Or give a unified `patch`.",
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
        let invalid = |message: &str| CallError::new(Code::InvalidArguments, message);
        if args.edits.len() > MAX_EDITS {
            return Err(invalid("too many edits; make at most 1000 in one call"));
        }
        let what = match (args.patch, args.edits.is_empty()) {
            (Some(patch), true) => What::Patch(patch),
            (None, false) => What::Edits(
                args.edits
                    .into_iter()
                    .map(understand)
                    .collect::<Result<_, _>>()?,
            ),
            (Some(_), false) => return Err(invalid("give either edits or a patch, not both")),
            (None, true) => return Err(invalid("there is nothing to do: give edits or a patch")),
        };
        let needs = [Operation::Read, Operation::Change]
            .map(|operation| Scope::doing(operation, path.clone()));
        let job = Job {
            path,
            what,
            expected: args.expected_hash,
            durability: args.durability,
        };
        Ok(Prepared {
            needs: needs.into(),
            job,
        })
    }

    fn plan(&self, job: &Job, permit: &ReadPermit) -> Result<Plan<Work>, Halt> {
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
            durability: job.durability,
        };
        let plan = made.plan(edited.applied.iter().map(Made::from).collect(), Vec::new());
        target::within_modes(permit, &plan.steps.steps, false)?;
        repository::require(permit, &plan.steps.steps, &[])?;
        Ok(plan)
    }

    const DIVISIBLE: bool = true;

    fn divide(&self, plan: Plan<Work>, left_out: &[LeftOut]) -> Result<Plan<Work>, CallError> {
        divide::divided(plan, left_out)
    }

    fn apply(&self, work: Work, permit: WritePermit) -> Result<(), CallError> {
        self.0.carry_out(&work, permit.reading(), || permit.begin())
    }
}

/// The file to edit: where it really is, its state and bytes, and how large it may become.
fn text_of(job: &Job, permit: &ReadPermit) -> Result<(VirtualPath, State, Bytes, u64), Halt> {
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

fn understand(args: EditArgs) -> Result<Edit, CallError> {
    let places = match (args.replace_all, args.occurrence, args.expected_count) {
        (false, None, None) => Places::Only,
        (true, None, None) => Places::All,
        (false, Some(nth), None) => Places::Nth(nth),
        (_, None, Some(count)) => Places::Exactly(count),
        (true, Some(_), _) | (false, Some(_), Some(_)) => {
            let message = "an edit is for one occurrence, or for all of them: set one of the two";
            return Err(CallError::new(Code::InvalidArguments, message));
        }
    };
    Ok(Edit {
        old: args.old_text,
        new: args.new_text,
        places,
    })
}

fn missing(permit: &ReadPermit, path: &VirtualPath) -> CallError {
    super::suggest::instead(permit, path, not_yours(path))
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
