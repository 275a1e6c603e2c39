//! `write_file`: creates, replaces and extends files.

use bailiwick::config::Namespace;
use bailiwick::effect::{ContentHash, Cost, FileDiff, Op};
use bailiwick::scope::Operation;
use bailiwick::tool::{Example, Failure, Interrupt, Prepared, ReadPermit, WritePermit};
use bailiwick::{
    CallError, Change, Code, Plan, Reply, Scope, ToolSpec, Verb, VirtualPath, WriteTool, escape,
};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hash::HashPrefix;
use super::optional;
use crate::change::target::{self, OldFile};
use crate::change::{ChangeSet, State, Step, StepExecutor};
use crate::diff;
use crate::replace::ReachedDurability;

/// Writes whole files, and appends to files.
#[derive(Debug)]
pub(crate) struct WriteFile(pub(super) StepExecutor);

/// What to do if a file is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IfExists {
    /// Refuse.
    #[default]
    Create,
    /// Replace what it holds.
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
    /// Create missing parent directories.
    #[serde(default)]
    pub create_parents: bool,
    /// Fail unless the file still has this `hash` (from `read_file` or `stat`).
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
    /// The hash of its content, if it may be read; for the host: it is in no JSON.
    #[serde(skip)]
    pub hash: Option<ContentHash>,
    /// Something that looks like a mistake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// What the change survives, for the host: it is in no JSON.
    #[serde(skip)]
    pub durability: ReachedDurability,
}

/// Parsed arguments.
#[derive(Debug)]
pub(crate) struct Job {
    path: VirtualPath,
    content: Bytes,
    mode: IfExists,
    create_parents: bool,
    expected: Option<HashPrefix>,
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
        when: "there is a file already",
        resolution: "Change it with `edit_file`, or set `mode`",
    },
    Failure {
        code: Code::NotFound,
        when: "the directory above is missing",
        resolution: "Set `create_parents`",
    },
    Failure {
        code: Code::Conflict,
        when: "the file is not what `expected_hash` says",
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
            "Write a file",
            "Creates a file, or with `mode` replaces it or appends to it. To change parts of a file, use `edit_file`.",
        )
        .intent("Write {path} [({mode})]")
        .scopes(&["write:file", "read:file"])
        .destructive()
        .group("files", 0.8)
.side_effects(&["creates the file", "replaces or extends the file if `mode` says so", "makes missing directories if `create_parents` is set"])
.command_line("set -C; printf %s {content} > {path}")
.examples(EXAMPLES)
.failures(FAILURES)
    }

    fn prepare(&self, args: WriteFileArgs, names: &Namespace) -> Result<Prepared<Job>, CallError> {
        let path = names.path(&args.path)?;
        target::reject_temporary_name(&path)?;
        let create = Scope::doing(Operation::Create, path.clone());
        let mut needs = vec![match args.mode {
            IfExists::Create => create,
            IfExists::Overwrite | IfExists::Append => create.or(Operation::Change),
        }];
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
        let shown = permit.shows(&path);
        let before = old.as_ref().map_or(State::Absent, |old| old.state.clone());
        let meta = old.as_ref().map(|old| old.meta);
        if old.is_some() && job.mode == IfExists::Create {
            let message = format!(
                "there is a file at `{path}` already; change it with `edit_file`, or set mode to `overwrite` or `append`"
            );
            return Err(CallError::new(Code::AlreadyExists, message).into());
        }
        target::check_expected_hash(&path, &before, job.expected.as_ref())?;
        let content = content(job, old.as_ref(), &path)?;
        check_size(&content, permit.limits().write_max_bytes)?;
        let mut steps = if old.is_none() {
            target::missing_parents(permit, &path, job.create_parents)?
        } else {
            Vec::new()
        };
        let after = State::of_file(&content);
        let unchanged = shown && before == after;
        let diff = diff_of(old.as_ref(), &content, shown);
        let reached = ReachedDurability::at_best((!unchanged).then_some(self.0.durability()));
        let written = written(job, &path, old.as_ref(), &content, shown, unchanged);
        let reply = reply(written, &reached);
        if unchanged {
            return Ok(target::empty_plan(reply));
        }
        steps.push(Step::Write {
            path: path.clone(),
            content: content.clone(),
            existing: before.clone(),
            mode: None,
        });
        target::require_put(permit, &path, &steps, job.mode == IfExists::Append)?;
        let mut changes = target::directory_changes(&steps);
        changes.push(Change {
            path: path.clone(),
            op: old.as_ref().map_or(Op::Create, |_| Op::Modify),
            to: None,
            before: self.0.entry(&before, meta.as_ref(), shown)?,
            after: after.entry(),
            diff,
        });
        let inverse = inverse(&path, old, &after).map(|back| {
            [vec![back], target::undo_directories(&steps)]
                .concat()
                .into()
        });
        let cost = Cost {
            bytes: content.len() as u64,
            files: changes.len() as u64,
        };
        Ok(Plan {
            changes,
            resources: Vec::new(),
            reply,
            cost,
            steps: ChangeSet::new(steps, self.0.durability(), reached),
            inverse,
        })
    }

    fn apply(&self, change_set: ChangeSet, permit: WritePermit) -> Result<(), CallError> {
        self.0
            .execute(&change_set, permit.reading(), || permit.begin())
    }
}

fn content(job: &Job, old: Option<&OldFile>, path: &VirtualPath) -> Result<Bytes, CallError> {
    match (job.mode, old) {
        (
            IfExists::Append,
            Some(OldFile {
                bytes: Some(bytes), ..
            }),
        ) => Ok([bytes.as_ref(), &job.content].concat().into()),
        (IfExists::Append, Some(OldFile { bytes: None, .. })) => Err(CallError::new(
            Code::TooLarge,
            format!("`{path}` is too large to be added to"),
        )),
        (IfExists::Append, None) | (IfExists::Create | IfExists::Overwrite, _) => {
            Ok(job.content.clone())
        }
    }
}

fn check_size(content: &Bytes, limit: u64) -> Result<(), CallError> {
    if content.len() as u64 <= limit {
        return Ok(());
    }
    let message = format!(
        "the file would have {} bytes, more than the {limit} allowed",
        content.len()
    );
    Err(CallError::new(Code::TooLarge, message))
}

fn diff_of(old: Option<&OldFile>, content: &Bytes, shown: bool) -> FileDiff {
    match old {
        Some(_) if !shown => diff::hidden(),
        Some(OldFile { bytes: None, .. }) => FileDiff {
            large: true,
            ..FileDiff::default()
        },
        Some(OldFile {
            bytes: Some(old), ..
        }) => diff::of_bytes(old, content),
        None => diff::of_bytes(&Bytes::new(), content),
    }
}

/// The step that restores the file, unless it was too large to keep.
fn inverse(path: &VirtualPath, old: Option<OldFile>, after: &State) -> Option<Step> {
    let Some(old) = old else {
        return Some(Step::Remove {
            path: path.clone(),
            state: after.clone(),
        });
    };
    Some(Step::Write {
        path: path.clone(),
        content: old.bytes?,
        existing: after.clone(),
        mode: None,
    })
}

fn written(
    job: &Job,
    path: &VirtualPath,
    old: Option<&OldFile>,
    content: &Bytes,
    shown: bool,
    unchanged: bool,
) -> WriteFileOutput {
    let done = match (job.mode, old) {
        _ if unchanged => "unchanged",
        (_, None) => "created",
        (IfExists::Append, Some(_)) => "appended",
        (IfExists::Create | IfExists::Overwrite, Some(_)) => "overwritten",
    };
    let before = old.filter(|_| shown).and_then(|old| old.bytes.as_deref());
    WriteFileOutput {
        path: path.to_string(),
        done,
        bytes: content.len() as u64,
        hash: shown.then(|| ContentHash::of(content)),
        warning: before.and_then(|before| elision(before, content)),
        durability: ReachedDurability::default(),
    }
}

fn reply(mut written: WriteFileOutput, reached: &ReachedDurability) -> Reply {
    written.durability = reached.clone();
    let mut text = format!(
        "{}: {}, {} bytes",
        escape(&written.path),
        written.done,
        written.bytes
    );
    if let Some(warning) = &written.warning {
        text.push_str(&format!("; warning: {warning}"));
    }
    Reply::text(text, written)
}

/// A warning if the new content is shorter and has a line that elides the rest, such as `// ... rest stays the same`.
fn elision(before: &[u8], after: &[u8]) -> Option<String> {
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
        "line {number} looks as if it stood for text that is now gone"
    ))
}
