//! `make_directory`: creates directories.

use bailiwick::config::Namespace;
use bailiwick::effect::Cost;
use bailiwick::journal::UndoRecord;
use bailiwick::scope::Operation;
use bailiwick::text::escape;
use bailiwick::tool::{Example, Failure, Interrupt, Prepared, ReadPermit, Reverse, WritePermit};
use bailiwick::{CallError, Code, Plan, Reply, Scope, ToolSpec, VirtualPath, WriteTool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::stored::undo_record;
use crate::change::{ChangeSet, Step, StepExecutor, target};
use crate::replace::ReachedDurability;
use crate::resolve::{self, Kind};

/// Creates directories.
#[derive(Debug)]
pub(crate) struct MakeDirectory(pub(super) StepExecutor);

/// Arguments of `make_directory`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MakeDirectoryArgs {
    /// Directory to create.
    pub path: String,
    /// Create missing parents too; succeed if it exists.
    #[serde(default)]
    pub create_parents: bool,
}

/// Output of `make_directory`.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MakeDirectoryOutput {
    /// The directory, links followed.
    pub path: String,
    /// Number of directories created; 0 if it existed.
    pub made: usize,
    /// The durability of the change, for the host; not in the JSON.
    #[serde(skip)]
    pub durability: ReachedDurability,
}

/// Parsed arguments.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) path: VirtualPath,
    pub(super) create_parents: bool,
}

const EXAMPLES: &[Example] = &[Example {
    description: "Create a directory and its parent",
    input: r#"{"path": "docs/guide", "create_parents": true}"#,
    output: r#"{"made": 2}"#,
}];
const FAILURES: &[Failure] = &[
    Failure {
        code: Code::AlreadyExists,
        when: "the path exists",
        resolution: "Use it as it is, or choose another name",
    },
    Failure {
        code: Code::NotFound,
        when: "the parent directory does not exist",
        resolution: "Set `create_parents`",
    },
];

impl WriteTool for MakeDirectory {
    type Args = MakeDirectoryArgs;
    type Output = MakeDirectoryOutput;
    type Job = Job;
    type Steps = ChangeSet;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("make_directory", "Create directory", "Creates a directory.")
            .intent("Make the directory {path}")
            .scopes(&["write:file"])
            .group("directories", 0.6)
            .side_effects(&["creates directories"])
            .reverse(Reverse {
                tool: "delete",
                how: "call it for each created directory, the innermost first",
                unless: "",
            })
            .command_line("mkdir -- {path}")
            .examples(EXAMPLES)
            .failures(FAILURES)
    }

    fn prepare(
        &self,
        args: MakeDirectoryArgs,
        names: &Namespace,
    ) -> Result<Prepared<Job>, CallError> {
        let path = names.path_argument("/path", &args.path)?;
        target::reject_temporary_name(&path)?;
        Ok(Prepared {
            needs: vec![Scope::doing(Operation::Create, path.clone())],
            job: Job {
                path,
                create_parents: args.create_parents,
            },
        })
    }

    fn plan(&self, job: &Job, permit: &ReadPermit) -> Result<Plan<ChangeSet>, Interrupt> {
        let found = resolve::entry(permit, &job.path)?;
        let path = permit.actual(&job.path).clone();
        target::reject_temporary_name(&path)?;
        let steps = match found {
            Some(meta) if meta.kind == Kind::Directory && job.create_parents => Vec::new(),
            Some(_) => {
                let message = format!("`{path}` already exists");
                return Err(CallError::new(Code::AlreadyExists, message).into());
            }
            None => {
                let mut steps = target::missing_parents(permit, &path, job.create_parents)?;
                steps.push(Step::MakeDirectory {
                    path: path.clone(),
                    mode: None,
                });
                steps
            }
        };
        target::require_put(permit, &path, &steps, false)?;
        let reached = self.0.reached();
        let made = MakeDirectoryOutput {
            path: path.to_string(),
            made: steps.len(),
            durability: reached.clone(),
        };
        let text = format!("{}: {} directories made", escape(&made.path), made.made);
        let changes = target::directory_changes(&steps);
        let inverse = target::undo_directories(&steps);
        Ok(Plan {
            cost: Cost {
                bytes: 0,
                files: changes.len() as u64,
            },
            changes,
            resources: Vec::new(),
            reply: Reply::text(text, made),
            inverse: (!inverse.is_empty()).then(|| inverse.into()),
            steps: self.0.change_set(steps, reached),
        })
    }

    fn undo_record(&self, _: &ChangeSet, inverse: Option<&ChangeSet>) -> UndoRecord {
        undo_record(inverse.map(|inverse| &*inverse.steps))
    }

    fn apply(&self, change_set: ChangeSet, permit: WritePermit) -> Result<(), CallError> {
        self.0.apply(&change_set, &permit)
    }
}
