//! The tool `apply_changes`.

use std::io::Read as _;
use std::sync::Arc;

use bailiwick::config::Namespace;
use bailiwick::effect::Op;
use bailiwick::journal::UndoRecord;
use bailiwick::text::escape;
use bailiwick::tool::{Interrupt, Prepared, ReadPermit, WritePermit};
use bailiwick::{CallError, Change, Code, Plan, Reply, ToolSpec, VirtualPath, WriteTool};
use bailiwick_fs::io::{FilesWriter, NewEntry, NewState, PlannedWrites};
use rustix::fs::{Mode, OFlags, openat};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ChangeKind, KeptChange, KeptChanges, Store};

/// Maximum size of all contents that one call applies.
const MAX_BYTES: u64 = 64 << 20;
/// Maximum number of changes that one call applies.
const MAX_CHANGES: usize = 1_000;

/// Applies changes that [`Commands`](crate::Commands) has kept apart.
#[derive(Debug)]
pub struct ApplyChanges {
    store: Store,
    writer: FilesWriter,
}

impl ApplyChanges {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            writer: FilesWriter::default(),
        }
    }
}

/// Arguments of `apply_changes`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[doc(hidden)]
pub struct ApplyArgs {
    /// The `id` of the changes, from `run_command`.
    id: String,
    /// Only these files and directories, with all that they contain; everything if absent.
    #[serde(default)]
    paths: Vec<String>,
}

/// Result of `apply_changes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct AppliedChanges {
    /// Number of files created.
    pub created: usize,
    /// Number of files whose content or permissions were changed.
    pub changed: usize,
    /// Number of files, and of directories with their contents, deleted.
    pub deleted: usize,
    /// Number of directories created.
    pub directories: usize,
}

#[derive(Debug)]
#[doc(hidden)]
pub struct Job {
    kept: Arc<KeptChanges>,
    changes: Vec<KeptChange>,
}

/// The plan, and the changes that are applied completely.
#[derive(Debug)]
#[doc(hidden)]
pub struct Steps {
    writes: PlannedWrites,
    whole: Option<String>,
}

impl WriteTool for ApplyChanges {
    type Args = ApplyArgs;
    type Output = AppliedChanges;
    type Job = Job;
    type Steps = Steps;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "apply_changes",
            "Apply the changes of a command",
            "Applies changes that `run_command` kept apart.",
        )
        .scopes(&["write:file"])
        .destructive()
        .deletes()
    }

    fn prepare(&self, args: ApplyArgs, names: &Namespace) -> Result<Prepared<Job>, CallError> {
        let kept = self.store.get(&args.id, names.worker()).ok_or_else(|| {
            let message = "no changes with this id are kept; run the command again";
            CallError::new(Code::NotFound, message)
        })?;
        let paths = args.paths.iter().enumerate();
        let paths =
            paths.map(|(index, path)| names.path_argument(&format!("/paths/{index}"), path));
        let paths = paths.collect::<Result<Vec<VirtualPath>, _>>()?;
        for path in &paths {
            let mut changes = kept.changes.iter();
            if !changes.any(|change| change.path.starts_with(path)) {
                let path = escape(path.as_str());
                let message = format!("the command did not change `{path}`");
                return Err(CallError::new(Code::NotFound, message));
            }
        }
        let is_meant = |change: &&KeptChange| {
            paths.is_empty() || paths.iter().any(|path| change.path.starts_with(path))
        };
        let changes: Vec<KeptChange> = kept.changes.iter().filter(is_meant).cloned().collect();
        let sizes = changes.iter().map(|change| change.bytes);
        let bytes = sizes.fold(0, u64::saturating_add);
        if changes.len() > MAX_CHANGES || bytes > MAX_BYTES {
            return Err(CallError::new(
                Code::TooLarge,
                "a call applies at most 1,000 changes with 64 MiB in all; name some of them in `paths`",
            ));
        }
        Ok(Prepared {
            needs: changes.iter().map(KeptChange::need).collect(),
            job: Job { kept, changes },
        })
    }

    fn plan(&self, job: &Job, permit: &ReadPermit) -> Result<Plan<Steps>, Interrupt> {
        let mut entries = Vec::new();
        for change in &job.changes {
            permit.checkpoint()?;
            let state = match change.kind {
                ChangeKind::Created | ChangeKind::Changed => NewState::File {
                    content: content(&job.kept, change)?,
                    mode: change.mode,
                },
                ChangeKind::Permissions => NewState::Permissions {
                    mode: change.mode.unwrap_or_default(),
                },
                ChangeKind::DirectoryCreated => NewState::Directory { mode: change.mode },
                ChangeKind::Deleted => NewState::Absent {
                    recursive: change.is_directory,
                },
            };
            let existed = match change.kind {
                ChangeKind::Changed | ChangeKind::Permissions | ChangeKind::Deleted => true,
                ChangeKind::Created | ChangeKind::DirectoryCreated => false,
            };
            let entry = NewEntry::new(change.path.clone(), state, job.kept.began);
            let entry = entry.directories(change.directories.clone());
            entries.push(entry.existed(existed));
        }
        let plan = self.writer.plan(permit, entries, Reply::text("", ()))?;
        let is_whole = job.changes.len() == job.kept.changes.len();
        Ok(Plan {
            reply: reply(&plan.changes),
            changes: plan.changes,
            resources: plan.resources,
            cost: plan.cost,
            steps: Steps {
                writes: plan.steps,
                whole: is_whole.then(|| job.kept.id.clone()),
            },
            inverse: plan.inverse.map(|writes| Steps {
                writes,
                whole: None,
            }),
        })
    }

    fn undo_record(&self, _: &Steps, inverse: Option<&Steps>) -> UndoRecord {
        let inverse = inverse.map(|inverse| &inverse.writes);
        self.writer.undo_record(inverse)
    }

    fn apply(&self, steps: Steps, permit: WritePermit) -> Result<(), CallError> {
        self.writer.apply(steps.writes, &permit)?;
        if let Some(id) = steps.whole {
            self.store.remove(&id);
        }
        Ok(())
    }
}

fn content(kept: &KeptChanges, change: &KeptChange) -> Result<Vec<u8>, CallError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lost = |error: std::io::Error| {
        let message = format!("the changes of the command cannot be read: {error}");
        CallError::new(Code::Io, message)
    };
    let file = openat(
        &kept.directory,
        change.stored.as_str(),
        flags,
        Mode::empty(),
    )
    .map_err(|error| lost(error.into()))?;
    let mut content = Vec::new();
    let mut file = std::fs::File::from(file).take(change.bytes);
    file.read_to_end(&mut content).map_err(lost)?;
    Ok(content)
}

fn reply(changes: &[Change]) -> Reply {
    let count = |op| changes.iter().filter(|change| change.op == op).count();
    let applied = AppliedChanges {
        created: count(Op::Create),
        changed: count(Op::Modify),
        deleted: count(Op::Delete),
        directories: count(Op::MakeDirectory),
    };
    let text = format!(
        "{} files created, {} changed, {} deleted; {} directories created",
        applied.created, applied.changed, applied.deleted, applied.directories
    );
    Reply::text(text, applied)
}
