//! `write_file`: creates, replaces and extends files.

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hash::HashPrefix;
use super::{counted, optional};
use crate::change::put::NewContent;
use crate::change::stored::undo_record;
use crate::change::target;
use crate::change::{ChangeSet, State, StepExecutor};
use crate::replace::ReachedDurability;
use bailiwick::config::Namespace;
use bailiwick::effect::ContentHash;
use bailiwick::journal::UndoRecord;
use bailiwick::text::escape;
use bailiwick::tool::{Example, Failure, Interrupt, Prepared, ReadPermit, WritePermit};
use bailiwick::{CallError, Code, Plan, Reply, Scope, ToolSpec, Verb, VirtualPath, WriteTool};

/// Writes whole files, and appends to files.
#[derive(Debug)]
pub(crate) struct WriteFile(pub(super) StepExecutor);

/// What to do if the file exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IfExists {
    /// Refuse.
    #[default]
    Create,
    /// Replace its content.
    Overwrite,
    /// Add the content at its end.
    Append,
}

/// Arguments of `write_file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteFileArgs {
    /// File to write.
    pub path: String,
    /// The whole content, or with `append` what to add.
    pub content: String,
    /// `create` fails if the file exists.
    #[serde(default)]
    pub mode: IfExists,
    /// Create missing parents.
    #[serde(default)]
    pub create_parents: bool,
    /// Fail unless the file still has this `hash`.
    #[serde(default, deserialize_with = "optional::text")]
    pub expected_hash: Option<HashPrefix>,
}

/// Output of `write_file`.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WriteFileOutput {
    /// The file, links followed.
    pub path: String,
    /// `created`, `overwritten`, `appended` or `unchanged`.
    pub done: &'static str,
    /// Its length in bytes.
    pub bytes: u64,
    /// The hash of its content, if it may be read, for the host; not in the JSON.
    #[serde(skip)]
    pub hash: Option<ContentHash>,
    /// A likely mistake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// The durability of the change, for the host; not in the JSON.
    #[serde(skip)]
    pub durability: ReachedDurability,
}

/// Parsed arguments.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) path: VirtualPath,
    pub(super) content: Bytes,
    pub(super) mode: IfExists,
    pub(super) create_parents: bool,
    pub(super) expected: Option<HashPrefix>,
}

const EXAMPLES: &[Example] = &[
    Example {
        description: "Create a file",
        input: r#"{"path": "new.txt", "content": "hello\n"}"#,
        output: r#"{"done": "created", "bytes": 6}"#,
    },
    Example {
        description: "Add to the end of a file",
        input: r#"{"path": "notes.txt", "content": "four\n", "mode": "append"}"#,
        output: r#"{"done": "appended", "bytes": 19}"#,
    },
];
const FAILURES: &[Failure] = &[
    Failure {
        code: Code::AlreadyExists,
        when: "the file exists",
        resolution: "Change it with `edit_file`, or set `mode`",
    },
    Failure {
        code: Code::NotFound,
        when: "the parent directory does not exist",
        resolution: "Set `create_parents`",
    },
    Failure {
        code: Code::Conflict,
        when: "the file does not match `expected_hash`",
        resolution: "Read it again",
    },
];

impl WriteTool for WriteFile {
    type Args = WriteFileArgs;
    type Output = WriteFileOutput;
    type Job = Job;
    type Steps = ChangeSet;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "write_file",
            "Write file",
            "Creates a file; `mode` can replace or append. To change parts, use `edit_file`.",
        )
        .intent("Write {path}")
        .scopes(&["write:file", "read:file"])
        .destructive()
        .group("files", 0.8)
        .side_effects(&[
            "creates the file",
            "replaces or extends the file if `mode` says so",
            "creates missing directories if `create_parents` is set",
        ])
        .command_line("set -C; printf %s {content} > {path}")
        .examples(EXAMPLES)
        .failures(FAILURES)
    }

    fn prepare(&self, args: WriteFileArgs, names: &Namespace) -> Result<Prepared<Job>, CallError> {
        let path = names.path_argument("/path", &args.path)?;
        target::reject_temporary_name(&path)?;
        let mut needs = vec![target::put_need(&path, args.mode != IfExists::Create)];
        // Comparing and appending read the file, since `expected_hash` could be used to guess its content.
        if args.mode == IfExists::Append || args.expected_hash.is_some() {
            needs.push(Scope::file(Verb::Read, path.clone()));
        }
        let job = Job {
            path,
            content: args.content.into(),
            mode: args.mode,
            create_parents: args.create_parents,
            expected: args.expected_hash,
        };
        Ok(Prepared { needs, job })
    }

    fn plan(&self, job: &Job, permit: &ReadPermit) -> Result<Plan<ChangeSet>, Interrupt> {
        let old = target::read_old(permit, &job.path)?;
        let path = permit.actual(&job.path).clone();
        target::reject_temporary_name(&path)?;
        let before = || old.as_ref().map_or(State::Absent, target::OldFile::state);
        if old.is_some() && job.mode == IfExists::Create {
            return Err(exists(&path).into());
        }
        target::check_expected_hash(&path, before, job.expected.as_ref())?;
        let kept = old.as_ref().map(|old| old.bytes.as_ref());
        let content = content(job, kept, &path)?;
        let parents = job.create_parents;
        let put = NewContent::new(&self.0, permit, path.clone(), old, content, parents)?;
        let plan = put.plan(&self.0, |put, _, durability| {
            reply(written(put, job.mode, durability))
        });
        let appends = job.mode == IfExists::Append;
        target::require_put(permit, &path, &plan.steps.steps, appends)?;
        Ok(plan)
    }

    fn undo_record(&self, _: &ChangeSet, inverse: Option<&ChangeSet>) -> UndoRecord {
        undo_record(inverse.map(|inverse| &*inverse.steps))
    }

    fn apply(&self, change_set: ChangeSet, permit: WritePermit) -> Result<(), CallError> {
        self.0.apply(&change_set, &permit)
    }
}

/// The error for a file that exists, although `mode` is `create`.
pub(super) fn exists(path: &VirtualPath) -> CallError {
    let message = format!(
        "`{path}` already exists; change it with `edit_file`, or set `mode` to `overwrite` or `append`"
    );
    CallError::new(Code::AlreadyExists, message)
}

/// The new content of a file; `old` is the content of the existing one, which is `None` if it is too large.
pub(super) fn content(
    job: &Job,
    old: Option<Option<&Bytes>>,
    path: &VirtualPath,
) -> Result<Bytes, CallError> {
    match (job.mode, old) {
        (IfExists::Append, Some(Some(old))) => Ok([old.as_ref(), &job.content].concat().into()),
        (IfExists::Append, Some(None)) => Err(CallError::new(
            Code::TooLarge,
            format!("`{path}` is too large to append to"),
        )),
        (IfExists::Append, None) | (IfExists::Create | IfExists::Overwrite, _) => {
            Ok(job.content.clone())
        }
    }
}

fn written(put: &NewContent, mode: IfExists, durability: ReachedDurability) -> WriteFileOutput {
    let done = match mode {
        _ if durability.get().is_none() => "unchanged",
        _ if put.before == State::Absent => "created",
        IfExists::Append => "appended",
        IfExists::Create | IfExists::Overwrite => "overwritten",
    };
    let before = put.old.as_ref().filter(|_| put.is_readable);
    WriteFileOutput {
        path: put.path.to_string(),
        done,
        bytes: put.content.len() as u64,
        hash: put.is_readable.then_some(put.hash),
        warning: before.and_then(|before| elision(before, &put.content)),
        durability,
    }
}

fn reply(written: WriteFileOutput) -> Reply {
    let mut text = format!(
        "{}: {}, {}",
        escape(&written.path),
        written.done,
        counted(written.bytes, "byte")
    );
    if let Some(warning) = &written.warning {
        text.push_str(&format!("; warning: {warning}"));
    }
    Reply::text(text, written)
}

/// A warning if the new content is shorter and has a line that elides the rest, such as `// ... rest stays the same`.
pub(super) fn elision(before: &[u8], after: &[u8]) -> Option<String> {
    let (before, after) = (
        std::str::from_utf8(before).ok()?,
        std::str::from_utf8(after).ok()?,
    );
    if after.len() >= before.len() {
        return None;
    }
    let words = [
        "rest",
        "existing",
        "unchanged",
        "same",
        "remain",
        "previous",
        "omitted",
    ];
    let is_elision = |line: &str| {
        let line = line.to_lowercase();
        (line.contains("...") || line.contains('\u{2026}'))
            && words.iter().any(|word| line.contains(word))
    };
    let (at, _) = after
        .lines()
        .enumerate()
        .find(|(_, line)| is_elision(line) && !before.contains(line.trim()))?;
    let number = at + 1;
    Some(format!(
        "line {number} looks like a placeholder for text that is now deleted"
    ))
}
