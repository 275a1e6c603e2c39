//! A path in, a directory there out.

use bailiwick::{
    CallError, Code, Cost, Halt, Namespace, Plan, Prepared, ReadPermit, Reply, Scope, ToolSpec,
    Verb, VirtualPath, WritePermit, WriteTool, escape,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::{Changer, Step, target};
use crate::resolve::{self, Kind};

/// Makes directories.
#[derive(Debug, Default)]
pub(crate) struct MakeDirectory(Changer);

/// Which directory to make.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MakeDirectoryArgs {
    /// The directory.
    pub path: String,
    /// Make those above it that are missing too, and be content if it is there already.
    #[serde(default)]
    pub create_parents: bool,
}

/// What was made.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DirectoriesMade {
    /// The directory, links followed.
    pub path: String,
    /// How many directories were made: none if it was there already.
    pub made: usize,
}

/// The arguments, understood.
#[derive(Debug)]
pub(crate) struct Job {
    path: VirtualPath,
    create_parents: bool,
}

impl WriteTool for MakeDirectory {
    type Args = MakeDirectoryArgs;
    type Output = DirectoriesMade;
    type Job = Job;
    type Steps = Vec<Step>;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "make_directory",
            "Make a directory",
            "Makes a directory, with `create_parents` also those above it.",
        )
        .intent("Make the directory {path}")
        .scopes(&["write:file"])
    }

    fn prepare(
        &self,
        args: MakeDirectoryArgs,
        names: &Namespace,
    ) -> Result<Prepared<Job>, CallError> {
        let path = names.path(&args.path)?;
        target::free_name(&path)?;
        Ok(Prepared {
            needs: vec![Scope::file(Verb::Write, path.clone())],
            job: Job {
                path,
                create_parents: args.create_parents,
            },
        })
    }

    fn plan(&self, job: &Job, permit: &ReadPermit) -> Result<Plan<Vec<Step>>, Halt> {
        let found = resolve::entry(permit, &job.path)?;
        let path = permit.actual(&job.path).clone();
        target::free_name(&path)?;
        let steps = match found {
            Some(meta) if meta.kind == Kind::Directory && job.create_parents => Vec::new(),
            Some(_) => {
                let message = format!("there is something at `{path}` already");
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
        target::within_modes(permit, &steps, false)?;
        let made = DirectoriesMade {
            path: path.to_string(),
            made: steps.len(),
        };
        let text = format!("{}: {} directories made", escape(&made.path), made.made);
        let changes = target::made(&steps);
        let inverse = target::unmake(&steps);
        Ok(Plan {
            cost: Cost {
                bytes: 0,
                files: changes.len() as u64,
            },
            changes,
            reply: Reply::text(text, made),
            inverse: (!inverse.is_empty()).then_some(inverse),
            steps,
        })
    }

    fn apply(&self, steps: Vec<Step>, permit: WritePermit) -> Result<(), CallError> {
        self.0
            .carry_out(&steps, permit.reading(), || permit.begin())
    }
}
