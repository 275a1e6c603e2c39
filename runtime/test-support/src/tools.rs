//! Tools for tests: they reply, hang, panic, or change a board in memory.
#![expect(
    missing_docs,
    missing_debug_implementations,
    reason = "its items are named for what the tests do with them"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use bailiwick::config::Namespace;
use bailiwick::effect::{ContentHash, Cost, Entry, FileDiff, Op};
use bailiwick::tool::{Interrupt, Prepared, ReadPermit, WritePermit};
use bailiwick::{
    CallError, Change, Code, Plan, ReadTool, Reply, Scope, ToolSpec, Verb, VirtualPath, WriteTool,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    pub path: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Said {
    pub path: String,
}

fn reading(args: &Target, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
    let path = names.path(&args.path)?;
    Ok(Prepared {
        needs: vec![Scope::file(Verb::Read, path.clone())],
        job: path,
    })
}

pub fn said(path: &VirtualPath) -> Reply {
    Reply::text(
        path.as_str(),
        Said {
            path: path.to_string(),
        },
    )
}

/// Replies immediately, on the worker's task.
pub struct Echo;

impl ReadTool for Echo {
    type Args = Target;
    type Output = Said;
    type Job = VirtualPath;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("echo", "Echo", "Says the path.")
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
        reading(&args, names)
    }

    fn read_now(&self, job: &VirtualPath, _: &ReadPermit) -> Option<Result<Reply, Interrupt>> {
        Some(Ok(said(job)))
    }

    fn read(&self, job: &VirtualPath, _: &ReadPermit) -> Result<Reply, Interrupt> {
        Ok(said(job))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Targets {
    pub paths: Vec<String>,
}

/// Reads several paths, and returns the first.
pub struct Gather;

impl ReadTool for Gather {
    type Args = Targets;
    type Output = Said;
    type Job = VirtualPath;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("gather", "Gather", "Says the first of the paths.")
    }

    fn prepare(
        &self,
        args: Targets,
        names: &Namespace,
    ) -> Result<Prepared<VirtualPath>, CallError> {
        let paths = args.paths.iter().map(|path| names.path(path));
        let paths = paths.collect::<Result<Vec<_>, _>>()?;
        let needs = paths
            .iter()
            .map(|path| Scope::file(Verb::Read, path.clone()));
        Ok(Prepared {
            needs: needs.collect(),
            job: paths.first().unwrap().clone(),
        })
    }

    fn read(&self, job: &VirtualPath, _: &ReadPermit) -> Result<Reply, Interrupt> {
        Ok(said(job))
    }
}

/// A tool for views only.
pub struct Peek;

impl ReadTool for Peek {
    type Args = Target;
    type Output = Said;
    type Job = VirtualPath;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("peek", "Peek", "Says the path to a view.").app_only()
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
        reading(&args, names)
    }

    fn read(&self, job: &VirtualPath, _: &ReadPermit) -> Result<Reply, Interrupt> {
        Ok(said(job))
    }
}

/// Panics on the worker's task or on a pool thread, as the path says.
pub struct Panics;

impl ReadTool for Panics {
    type Args = Target;
    type Output = Said;
    type Job = VirtualPath;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("panics", "Panic", "Panics.").sentence(|arguments| {
            let path = arguments["path"].as_str()?;
            assert!(!path.ends_with("unspeakable"), "as a broken tool would");
            None
        })
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
        assert!(!args.path.ends_with("early"), "as a broken tool would");
        reading(&args, names)
    }

    fn read_now(&self, job: &VirtualPath, _: &ReadPermit) -> Option<Result<Reply, Interrupt>> {
        assert!(!job.as_str().ends_with("inline"), "as a broken tool would");
        None
    }

    fn read(&self, _: &VirtualPath, _: &ReadPermit) -> Result<Reply, Interrupt> {
        panic!("as a broken tool would")
    }
}

/// A latch that blocks callers until it is opened.
#[derive(Clone, Default)]
pub struct Latch(Arc<(Mutex<(usize, bool)>, Condvar)>);

impl Latch {
    pub fn wait(&self) {
        let mut state = self.0.0.lock().unwrap();
        state.0 += 1;
        self.0.1.notify_all();
        drop(self.0.1.wait_while(state, |(_, open)| !*open).unwrap());
    }

    pub fn open(&self) {
        self.0.0.lock().unwrap().1 = true;
        self.0.1.notify_all();
    }

    /// The number of callers that have arrived.
    pub fn arrived(&self) -> usize {
        self.0.0.lock().unwrap().0
    }

    /// Waits until `count` callers have arrived.
    pub async fn wait_for(&self, count: usize) {
        let latch = self.clone();
        let waiting = move || {
            drop(
                latch
                    .0
                    .1
                    .wait_while(latch.0.0.lock().unwrap(), |(arrived, _)| *arrived < count)
                    .unwrap(),
            )
        };
        tokio::task::spawn_blocking(waiting).await.unwrap();
    }
}

/// Blocks without reaching a checkpoint, like a read from an unresponsive mount.
pub struct Hangs(pub Latch);

impl ReadTool for Hangs {
    type Args = Target;
    type Output = Said;
    type Job = VirtualPath;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("hangs", "Hang", "Hangs.")
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
        reading(&args, names)
    }

    fn read(&self, job: &VirtualPath, _: &ReadPermit) -> Result<Reply, Interrupt> {
        self.0.wait();
        Ok(said(job))
    }
}

/// The paths that `post` wrote, and how often it was planned and applied.
#[derive(Clone, Default)]
pub struct Board {
    pub posted: Arc<Mutex<Vec<String>>>,
    pub planned: Arc<AtomicUsize>,
    /// Latches before and after the effect begins.
    pub before: Option<Latch>,
    pub within: Option<Latch>,
}

impl Board {
    pub fn posted(&self) -> Vec<String> {
        self.posted.lock().unwrap().clone()
    }
}

/// Writes a path on a board.
pub struct Post(pub Board);

impl WriteTool for Post {
    type Args = Target;
    type Output = Said;
    type Job = VirtualPath;
    type Steps = (VirtualPath, usize);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("post", "Post", "Posts the path.").intent("Post {path}")
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
        let path = names.path(&args.path)?;
        Ok(Prepared {
            needs: vec![Scope::file(Verb::Write, path.clone())],
            job: path,
        })
    }

    fn plan(&self, job: &VirtualPath, _: &ReadPermit) -> Result<Plan<Self::Steps>, Interrupt> {
        self.0.planned.fetch_add(1, Ordering::SeqCst);
        let count = self.0.posted.lock().unwrap().len();
        let after = Entry::File {
            hash: ContentHash::of(job.as_str().as_bytes()),
            bytes: 1,
        };
        let before = Entry::Directory {
            entries: count as u64,
        };
        let diff = FileDiff::default();
        let change = Change {
            path: job.clone(),
            op: Op::Create,
            to: None,
            before,
            after,
            diff,
        };
        let cost = Cost {
            bytes: 10,
            files: 1,
        };
        Ok(Plan {
            changes: vec![change],
            resources: Vec::new(),
            reply: said(job),
            cost,
            steps: (job.clone(), count),
            inverse: None,
        })
    }

    fn apply(&self, (path, count): Self::Steps, permit: WritePermit) -> Result<(), CallError> {
        if let Some(latch) = &self.0.before {
            latch.wait();
        }
        let _commit = permit.begin()?;
        if let Some(latch) = &self.0.within {
            latch.wait();
        }
        let mut posted = self.0.posted.lock().unwrap();
        if posted.len() != count {
            return Err(CallError::new(Code::StalePreview, "the board changed"));
        }
        posted.push(path.to_string());
        Ok(())
    }
}

/// Finds that `/r/above` is a link to `/r/secret`. None of the tool's needs names `/r/above`.
pub struct Strays(pub Board);

impl WriteTool for Strays {
    type Args = Target;
    type Output = Said;
    type Job = VirtualPath;
    type Steps = VirtualPath;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("strays", "Stray", "Posts where a link leads.")
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
        let path = names.path(&args.path)?;
        Ok(Prepared {
            needs: vec![Scope::file(Verb::Write, path.clone())],
            job: path,
        })
    }

    fn plan(&self, job: &VirtualPath, permit: &ReadPermit) -> Result<Plan<VirtualPath>, Interrupt> {
        let above = VirtualPath::parse("/r/above", None).unwrap();
        let actual = permit.actual(&above).clone();
        if actual == above {
            let to = VirtualPath::parse("/r/secret", None).unwrap();
            return Err(Interrupt::Moved { from: above, to });
        }
        let (changes, cost) = (Vec::new(), Cost::default());
        Ok(Plan {
            changes,
            resources: Vec::new(),
            reply: said(job),
            cost,
            steps: actual,
            inverse: None,
        })
    }

    fn apply(&self, actual: VirtualPath, permit: WritePermit) -> Result<(), CallError> {
        let _commit = permit.begin()?;
        self.0.posted.lock().unwrap().push(actual.to_string());
        Ok(())
    }
}
