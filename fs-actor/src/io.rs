//! File access for your own tools, with the checks of the file tools.
//!
//! Paths are virtual. Nothing outside the roots is opened, not even through links. FIFOs, devices and sockets are not
//! opened either. The permit judges a path before it is opened, and again after links were followed. If a person must
//! allow the path, the functions return an [`Interrupt`], which the tool must return, too. The call is then authorized
//! and runs again. A path that the worker may not read is reported as missing.
//!
//! Therefore, [`Prepared::needs`](bailiwick::tool::Prepared::needs) does not have to contain paths that the tool finds
//! while it runs. It should contain the paths in the arguments, so that a person is asked before the tool runs.
//!
//! [`ToolSet::for_files`](bailiwick::ToolSet::for_files) makes such tools file tools. They then run on the I/O threads, which
//! Landlock confines to the roots
//! ([`RuntimeBuilder::confine_files`](bailiwick::RuntimeBuilder::confine_files)). A tool that implements
//! [`WriteTool::undo_record`](bailiwick::WriteTool::undo_record) makes changes that can be undone if the runtime has a journal.
//!
//! # Examples
//!
//! A tool that counts the lines of all Rust files in a directory, and a tool that appends a line to a file:
//!
//! ```
//! use bailiwick::config::Namespace;
//! use bailiwick::journal::UndoRecord;
//! use bailiwick::tool::{Interrupt, Prepared, ReadPermit, WritePermit};
//! use bailiwick::{CallError, Plan, ReadTool, Reply, Scope, ToolSpec, Verb, VirtualPath, WriteTool};
//! use bailiwick_fs::Kind;
//! use bailiwick_fs::io::{Directory, File, FileWriter, OldFile, PlannedWrite, WalkControl};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct PathArgs {
//!     path: String,
//! }
//!
//! #[derive(Debug, Serialize, JsonSchema)]
//! struct LineCount {
//!     lines: usize,
//! }
//!
//! struct CountLines;
//!
//! impl ReadTool for CountLines {
//!     type Args = PathArgs;
//!     type Output = LineCount;
//!     type Job = VirtualPath;
//!
//!     fn spec(&self) -> ToolSpec {
//!         ToolSpec::new("count_lines", "Count lines", "Counts the lines of all Rust files in a directory.")
//!             .scopes(&["read:file"])
//!             .idempotent()
//!     }
//!
//!     fn prepare(&self, args: PathArgs, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
//!         let path = names.path(&args.path)?;
//!         Ok(Prepared { needs: vec![Scope::file(Verb::Read, path.clone()).beneath()], job: path })
//!     }
//!
//!     fn read(&self, path: &VirtualPath, permit: &ReadPermit) -> Result<Reply, Interrupt> {
//!         let mut lines = 0;
//!         Directory::open(permit, path)?.walk_unignored(permit, |entry| {
//!             if entry.kind() == Kind::File && entry.path().as_str().ends_with(".rs") {
//!                 let content = File::open_entry(permit, entry)?.read(permit, 16 << 20)?;
//!                 lines += content.iter().filter(|byte| **byte == b'\n').count();
//!             }
//!             Ok(WalkControl::Enter)
//!         })?;
//!         Ok(Reply::text(format!("{lines} lines"), LineCount { lines }))
//!     }
//! }
//!
//! #[derive(Default)]
//! struct AppendLine(FileWriter);
//!
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct AppendArgs {
//!     path: String,
//!     line: String,
//! }
//!
//! #[derive(Debug, Serialize, JsonSchema)]
//! struct Appended {
//!     bytes: usize,
//! }
//!
//! impl WriteTool for AppendLine {
//!     type Args = AppendArgs;
//!     type Output = Appended;
//!     type Job = (VirtualPath, String);
//!     type Steps = PlannedWrite;
//!
//!     fn spec(&self) -> ToolSpec {
//!         ToolSpec::new("append_line", "Append line", "Appends a line to a file.")
//!             .scopes(&["read:file", "write:file"])
//!     }
//!
//!     fn prepare(&self, args: AppendArgs, names: &Namespace) -> Result<Prepared<Self::Job>, CallError> {
//!         let path = names.path(&args.path)?;
//!         let needs = [Verb::Read, Verb::Write].map(|verb| Scope::file(verb, path.clone()));
//!         Ok(Prepared { needs: needs.into(), job: (path, args.line) })
//!     }
//!
//!     fn plan(&self, job: &Self::Job, permit: &ReadPermit) -> Result<Plan<PlannedWrite>, Interrupt> {
//!         let (path, line) = job;
//!         let old = OldFile::read(permit, path)?;
//!         let content = [old.content().unwrap_or_default(), line.as_bytes(), b"\n"].concat();
//!         let bytes = content.len();
//!         let reply = Reply::text(format!("{bytes} bytes"), Appended { bytes });
//!         self.0.plan(permit, old, content, reply)
//!     }
//!
//!     fn undo_record(&self, _: &PlannedWrite, inverse: Option<&PlannedWrite>) -> UndoRecord {
//!         self.0.undo_record(inverse)
//!     }
//!
//!     fn apply(&self, planned: PlannedWrite, permit: WritePermit) -> Result<(), CallError> {
//!         self.0.apply(planned, &permit).map(drop)
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use bailiwick::journal::Journal;
//! use bailiwick::{Policy, Runtime, ToolSet, WorkerSpec};
//! use bailiwick_fs::Durability;
//! use serde_json::json;
//!
//! let dir = tempfile::tempdir()?;
//! let (repo, journal) = (dir.path().join("repo"), dir.path().join("journal"));
//! # std::fs::create_dir(&repo)?;
//! std::fs::write(repo.join("main.rs"), "fn main() {}\n")?;
//! let tools = ToolSet::new().reader(CountLines).writer(AppendLine::default()).for_files();
//! let (runtime, _grants) = Runtime::builder()
//!     .root("repo", &repo)
//!     .journal(Journal::open(journal)?)
//!     .tools(bailiwick_fs::undo_tools(Durability::default()))
//!     .tools(tools)
//!     .build()
//!     .await?;
//! let policy = Policy::nothing().allow("read:file").allow("write:file");
//! let worker = runtime.spawn(WorkerSpec::new("main").policy(policy)).await?;
//!
//! worker.call("append_line", json!({"path": "/repo/main.rs", "line": "// end"})).await?;
//! let counted = worker.call("count_lines", json!({"path": "/repo"})).await?;
//! assert_eq!(counted.text(), "2 lines");
//! worker.call("undo", json!({})).await?;
//! let counted = worker.call("count_lines", json!({"path": "/repo"})).await?;
//! assert_eq!(counted.text(), "1 lines");
//! # Ok(())
//! # }
//! ```

mod files;

use bailiwick::journal::UndoRecord;
use bailiwick::scope::Operation;
use bailiwick::text::escape;
use bailiwick::tool::{Interrupt, ReadPermit, WritePermit};
use bailiwick::{CallError, Code, Plan, Reply, Scope, Verb, Verdict, VirtualPath};

use crate::change::put::NewContent;
use crate::change::stored::undo_record;
use crate::change::{ChangeSet, StepExecutor, target, tree};
use crate::replace::Durability;
use crate::resolve::{self, OpenDir};
use crate::walk::{self, IgnoreRules};

pub use crate::change::repository::is_run_by_git;
pub use crate::walk::{WalkControl, WalkEntry};
pub use files::{FilesWriter, NewEntry, NewState, PlannedWrites};

/// A regular file, open for reading.
#[derive(Debug)]
pub struct File {
    path: VirtualPath,
    opened: resolve::OpenFile,
}

impl File {
    /// Opens the regular file at `path`.
    ///
    /// # Errors
    /// [`Interrupt::Needs`] or [`Interrupt::Moved`] if more must be judged; `NOT_FOUND` for a missing file, a file that
    /// the worker may not read and a link out of the roots; `NOT_REGULAR` for a directory, a FIFO and the like; and other
    /// codes for system errors.
    pub fn open(permit: &ReadPermit, path: &VirtualPath) -> Result<Self, Interrupt> {
        permit.checkpoint()?;
        require_read(permit, path, Scope::file)?;
        let opened = resolve::file(permit, path)?;
        let path = permit.actual(path).clone();
        Ok(Self { path, opened })
    }

    /// Opens the regular file that a walk has found.
    ///
    /// # Errors
    /// `NOT_REGULAR` for another kind; `NOT_FOUND` if it no longer exists, is a link, or its name is not UTF-8.
    pub fn open_entry(permit: &ReadPermit, entry: &WalkEntry<'_>) -> Result<Self, CallError> {
        let opened = entry.open(permit)?;
        let path = entry.path().clone();
        Ok(Self { path, opened })
    }

    /// Returns its path without links.
    #[must_use]
    pub fn path(&self) -> &VirtualPath {
        &self.path
    }

    /// Returns the length that it had when it was opened, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.opened.meta.len
    }

    /// Reads the whole file.
    ///
    /// # Errors
    /// `NOT_FOUND` if the call of `permit` may not read it; `TOO_LARGE` if it has more than `max_bytes`; `CANCELLED` or `DEADLINE` if the call must stop.
    pub fn read(&self, permit: &ReadPermit, max_bytes: u64) -> Result<Vec<u8>, CallError> {
        let need = Scope::file(Verb::Read, self.path.clone());
        if permit.judge_need(&need) != Verdict::Allow {
            return Err(CallError::not_found(&self.path));
        }
        tree::read_file(&self.opened, max_bytes, &self.path, permit).map_err(|error| {
            if error.code() != Code::TooLarge {
                return error;
            }
            let shown = escape(self.path.as_str());
            let message = format!("`{shown}` has more than {max_bytes} bytes");
            CallError::new(Code::TooLarge, message)
        })
    }
}

/// An open directory.
#[derive(Debug)]
pub struct Directory {
    path: VirtualPath,
    dir: OpenDir,
}

impl Directory {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// As [`File::open`]; `NOT_DIRECTORY` for anything else.
    pub fn open(permit: &ReadPermit, path: &VirtualPath) -> Result<Self, Interrupt> {
        permit.checkpoint()?;
        require_read(permit, path, |verb, path| Scope::file(verb, path).beneath())?;
        let (dir, path) = walk::start(permit, path)?;
        Ok(Self { path, dir })
    }

    /// Returns its path without links.
    #[must_use]
    pub fn path(&self) -> &VirtualPath {
        &self.path
    }

    /// Visits everything beneath it that the worker may read, directories before their contents. Returns the number of
    /// directories that could not be entered.
    ///
    /// # Errors
    /// Errors of `visit`; `CANCELLED` or `DEADLINE` if the call must stop.
    pub fn walk(
        self,
        permit: &ReadPermit,
        visit: impl FnMut(&WalkEntry<'_>) -> Result<WalkControl, Interrupt>,
    ) -> Result<u64, Interrupt> {
        self.visit(permit, None, visit)
    }

    /// Like [`Directory::walk`], without `.git` and what `.gitignore` and `.ignore` files exclude.
    ///
    /// # Errors
    /// As [`Directory::walk`].
    pub fn walk_unignored(
        self,
        permit: &ReadPermit,
        visit: impl FnMut(&WalkEntry<'_>) -> Result<WalkControl, Interrupt>,
    ) -> Result<u64, Interrupt> {
        let rules = IgnoreRules::for_ancestors(permit, &self.path);
        self.visit(permit, Some(rules), visit)
    }

    fn visit(
        self,
        permit: &ReadPermit,
        rules: Option<IgnoreRules>,
        mut visit: impl FnMut(&WalkEntry<'_>) -> Result<WalkControl, Interrupt>,
    ) -> Result<u64, Interrupt> {
        let skipped = walk::walk(permit, self.dir, &self.path, rules, &mut visit)?;
        Ok(skipped.directories)
    }
}

/// A file before a call writes it.
#[derive(Debug)]
pub struct OldFile {
    path: VirtualPath,
    old: Option<target::OldFile>,
}

impl OldFile {
    /// Reads the file at `path`, which need not exist.
    ///
    /// # Errors
    /// As [`File::open`], except for a missing file; `TOO_LARGE` if it has more than 64 MiB.
    pub fn read(permit: &ReadPermit, path: &VirtualPath) -> Result<Self, Interrupt> {
        require_read(permit, path, Scope::file)?;
        let old = target::read_old(permit, path)?;
        let path = permit.actual(path).clone();
        if old.as_ref().is_some_and(|old| old.bytes.is_none()) {
            let message = format!("`{}` is too large to be changed", escape(path.as_str()));
            return Err(CallError::new(Code::TooLarge, message).into());
        }
        Ok(Self { path, old })
    }

    /// Returns its path without links.
    #[must_use]
    pub fn path(&self) -> &VirtualPath {
        &self.path
    }

    /// Returns its content; `None` if it does not exist.
    #[must_use]
    pub fn content(&self) -> Option<&[u8]> {
        self.old.as_ref()?.bytes.as_deref()
    }
}

/// Steps of a [`FileWriter`].
#[derive(Debug)]
pub struct PlannedWrite {
    change_set: ChangeSet,
    /// What the call that applies it must be allowed to do.
    need: Scope,
}

/// Creates and replaces files, atomically and at one durability. Mode, owner and attributes of a replaced file are kept.
///
/// A tool uses one writer for all its calls.
#[derive(Debug, Default)]
pub struct FileWriter(StepExecutor);

impl FileWriter {
    /// Creates a writer with this durability.
    #[must_use]
    pub fn new(durability: Durability) -> Self {
        Self(StepExecutor::new(durability))
    }

    /// Plans to write `content` to the file, whose directory must exist. The plan has the diff and the cost of the
    /// change, and no changes if the file has this content already.
    ///
    /// # Errors
    /// [`Interrupt::Needs`] and the like if more must be judged; `PERMISSION_DENIED` if the worker may not write the file;
    /// `TOO_LARGE` if the policy allows less.
    pub fn plan(
        &self,
        permit: &ReadPermit,
        old: OldFile,
        content: Vec<u8>,
        reply: Reply,
    ) -> Result<Plan<PlannedWrite>, Interrupt> {
        let OldFile { path, old } = old;
        target::reject_temporary_name(&path)?;
        let operation = match old {
            Some(_) => Operation::Change,
            None => Operation::Create,
        };
        let need = Scope::doing(operation, path.clone());
        let undoing = match operation {
            Operation::Create => Scope::doing(Operation::Delete, path.clone()),
            _ => need.clone(),
        };
        require(permit, need.clone(), || {
            let message = format!("this worker may not write `{}`", escape(path.as_str()));
            CallError::new(Code::PermissionDenied, message)
        })?;
        let put = NewContent::new(&self.0, permit, path.clone(), old, content.into(), false)?;
        let plan = put.plan(&self.0, |_, _, _| reply);
        target::require_put(permit, &path, &plan.steps.steps, false)?;
        Ok(Plan {
            resources: Vec::new(),
            changes: plan.changes,
            reply: plan.reply,
            cost: plan.cost,
            steps: PlannedWrite {
                change_set: plan.steps,
                need,
            },
            inverse: plan.inverse.map(|change_set| PlannedWrite {
                change_set,
                need: undoing,
            }),
        })
    }

    /// Returns what [`WriteTool::undo_record`](bailiwick::WriteTool::undo_record) returns for a plan with this inverse.
    #[must_use]
    pub fn undo_record(&self, inverse: Option<&PlannedWrite>) -> UndoRecord {
        undo_record(inverse.map(|inverse| &*inverse.change_set.steps))
    }

    /// Carries out a plan if the file has not changed since it was planned. Returns the durability that was reached, which
    /// may differ from the requested one; `None` if there was nothing to change.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` if the call of `permit` may not make this change; `STALE_PREVIEW` or `CONFLICT` if the file has changed; `CANCELLED` or `DEADLINE` if the call must stop; codes such
    /// as `IO` for system errors. The file then has its old content.
    pub fn apply(
        &self,
        planned: PlannedWrite,
        permit: &WritePermit,
    ) -> Result<Option<Durability>, CallError> {
        let PlannedWrite { change_set, need } = planned;
        if permit.reading().judge_need(&need) != Verdict::Allow {
            let message = "the plan belongs to a call with other permissions";
            return Err(CallError::new(Code::PermissionDenied, message));
        }
        self.0.apply(&change_set, permit)?;
        Ok(change_set
            .reached
            .get()
            .filter(|_| !change_set.steps.is_empty()))
    }
}

/// Requires that the call may read `path` and the path that it resolves to.
fn require_read(
    permit: &ReadPermit,
    path: &VirtualPath,
    need: impl Fn(Verb, VirtualPath) -> Scope,
) -> Result<(), Interrupt> {
    let actual = permit.actual(path);
    require(permit, need(Verb::Read, actual.clone()), || {
        CallError::not_found(path)
    })
}

fn require(
    permit: &ReadPermit,
    need: Scope,
    denied: impl FnOnce() -> CallError,
) -> Result<(), Interrupt> {
    match permit.judge_need(&need) {
        Verdict::Allow => Ok(()),
        Verdict::Ask => Err(Interrupt::Needs(vec![need])),
        Verdict::Deny => Err(denied().into()),
    }
}
