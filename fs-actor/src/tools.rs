//! The file tools.

mod apply_batch;
mod copy;
pub(crate) mod delete;
mod edit_file;
mod find;
mod glob;
mod grep;
mod hash;
mod list_directory;
mod list_roots;
mod make_directory;
mod move_entry;
mod optional;
mod read_file;
mod stat;
mod suggest;
mod transfer;
mod undo;
mod write_file;

use bailiwick::ToolSet;

use crate::change::StepExecutor;
use crate::replace::Durability;

pub use apply_batch::{
    ApplyBatchArgs, ApplyBatchOutput, BatchCounts, BatchExcluded, BatchOperation, BatchTool,
    BatchWarning,
};
pub use copy::{CopyArgs, CopyOutput};
pub use delete::{DeleteArgs, DeleteOutput};
pub use edit_file::{EditArgs, EditFileArgs, EditFileOutput, ExcludedEdit};
pub use find::{FindArgs, FindOutput, KindFilter};
pub use grep::{FileMatches, GrepArgs, GrepMode, GrepOutput, MatchLine};
pub use hash::{HashPrefix, ParseHashPrefixError};
pub use list_directory::{DirectoryEntry, ListDirectoryArgs, ListDirectoryOutput};
pub use list_roots::{ListRootsArgs, ListRootsOutput};
pub use make_directory::{MakeDirectoryArgs, MakeDirectoryOutput};
pub use move_entry::{MoveArgs, MoveOutput};
pub use read_file::{FileContent, LazyHash, ReadFileArgs, ReadFileOutput};
pub use stat::{StatArgs, StatOutput};
pub use undo::{RedoArgs, RedoOutput, UndoArgs, UndoOutput};
pub use write_file::{IfExists, WriteFileArgs, WriteFileOutput};

/// The page on which MCP Apps clients show the folders of a call: the file browser of `bailiwick-mcp`.
const FILE_BROWSER: &str = "ui://bailiwick/files";

/// A number with its noun, such as `1 byte` or `2 bytes`.
fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The names of [`tools`] and [`undo_tools`], sorted: for
/// [`ConfigSources::tools`](bailiwick::config::ConfigSources::tools), without making the tools.
///
/// ```
/// use bailiwick_fs::Durability;
/// let tools = bailiwick_fs::tools().and(bailiwick_fs::undo_tools(Durability::default()));
/// assert!(tools.names().eq(bailiwick_fs::TOOL_NAMES));
/// ```
pub const TOOL_NAMES: [&str; 15] = [
    "apply_batch",
    "copy",
    "delete",
    "edit_file",
    "find",
    "grep",
    "list_directory",
    "list_roots",
    "make_directory",
    "move",
    "read_file",
    "redo",
    "stat",
    "undo",
    "write_file",
];

/// The file tools. Changes survive a crash of the program and, on file systems that order renames, of the machine
/// ([`Durability::Ordered`]).
///
/// ```
/// assert!(bailiwick_fs::tools().names().any(|name| name == "read_file"));
/// ```
#[must_use]
pub fn tools() -> ToolSet {
    tools_with(Durability::default())
}

/// The file tools with this durability. A call's typed output ([`WriteFileOutput::durability`] and the like) has the
/// level that was
/// reached, which may differ from the requested one.
///
/// ```
/// use bailiwick_fs::Durability;
/// let tools = bailiwick_fs::tools_with(Durability::Durable);
/// assert!(tools.names().any(|name| name == "write_file"));
/// ```
#[must_use]
pub fn tools_with(durability: Durability) -> ToolSet {
    let executor = StepExecutor::new(durability);
    ToolSet::new()
        .reader(list_roots::ListRoots)
        .reader(list_directory::ListDirectory)
        .reader(stat::Stat)
        .reader(read_file::ReadFile::default())
        .writer(write_file::WriteFile(executor.clone()))
        .writer(edit_file::EditFile(executor.clone()))
        .writer(make_directory::MakeDirectory(executor.clone()))
        .writer(move_entry::Move(executor.clone()))
        .writer(copy::Copy(executor.clone()))
        .writer(delete::Delete(executor.clone()))
        .writer(apply_batch::ApplyBatch::new(executor))
        .reader(find::Find)
        .reader(grep::Grep)
        .for_files()
}

/// The tools `undo` and `redo`, for a runtime with a journal ([`RuntimeBuilder::journal`](bailiwick::RuntimeBuilder::journal)).
/// They take back what the file tools of this crate changed, with this durability.
///
/// ```
/// use bailiwick::journal::Journal;
/// use bailiwick::{Policy, Runtime, WorkerSpec};
/// use bailiwick_fs::Durability;
/// use serde_json::json;
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let dir = tempfile::tempdir()?;
/// let (repo, journal) = (dir.path().join("repo"), dir.path().join("journal"));
/// # std::fs::create_dir(&repo)?;
/// let (runtime, _grants) = Runtime::builder()
///     .root("repo", &repo)
///     .journal(Journal::open(journal)?)
///     .tools(bailiwick_fs::tools())
///     .tools(bailiwick_fs::undo_tools(Durability::default()))
///     .build()
///     .await?;
/// let worker = runtime.spawn(WorkerSpec::new("main").policy(Policy::new())).await?;
/// worker.call("write_file", json!({"path": "/repo/a", "content": "text"})).await?;
/// worker.call("undo", json!({})).await?;
/// assert!(!repo.join("a").exists());
/// worker.call("redo", json!({})).await?;
/// assert!(repo.join("a").exists());
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn undo_tools(durability: Durability) -> ToolSet {
    let executor = StepExecutor::new(durability);
    ToolSet::new()
        .writer(undo::Undo(executor.clone()))
        .writer(undo::Redo(executor))
        .for_files()
}

/// Omits zero counts from JSON.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
