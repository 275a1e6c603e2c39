//! The file tools.

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
mod write_file;

use bailiwick::ToolSet;

use crate::change::StepExecutor;
use crate::replace::Durability;

pub use copy::{CopyArgs, CopyOutput};
pub use delete::{DeleteArgs, DeleteOutput};
pub use edit_file::{EditArgs, EditFileArgs, EditFileOutput};
pub use find::{FindArgs, FindOutput, KindFilter};
pub use grep::{FileMatches, GrepArgs, GrepMode, GrepOutput, MatchLine};
pub use hash::{HashPrefix, ParseHashPrefixError};
pub use list_directory::{DirectoryEntry, ListDirectoryArgs, ListDirectoryOutput};
pub use list_roots::{ListRootsArgs, ListRootsOutput};
pub use make_directory::{MakeDirectoryArgs, MakeDirectoryOutput};
pub use move_entry::{MoveArgs, MoveOutput};
pub use read_file::{FileContent, LazyHash, ReadFileArgs, ReadFileOutput};
pub use stat::{StatArgs, StatOutput};
pub use write_file::{IfExists, WriteFileArgs, WriteFileOutput};

/// The page on which MCP Apps clients show the folders of a call: the file browser of `bailiwick-mcp`.
const FILE_BROWSER: &str = "ui://bailiwick/files";

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
/// level
/// that was reached, which the file system may lower.
///
/// ```
/// use bailiwick_fs::Durability;
/// let tools = bailiwick_fs::tools_with(Durability::Durable);
/// assert!(tools.names().any(|name| name == "write_file"));
/// ```
#[must_use]
pub fn tools_with(durability: Durability) -> ToolSet {
    let executor = || StepExecutor::new(durability);
    ToolSet::new()
        .reader(list_roots::ListRoots)
        .reader(list_directory::ListDirectory)
        .reader(stat::Stat)
        .reader(read_file::ReadFile::default())
        .writer(write_file::WriteFile(executor()))
        .writer(edit_file::EditFile(executor()))
        .writer(make_directory::MakeDirectory(executor()))
        .writer(move_entry::Move(executor()))
        .writer(copy::Copy(executor()))
        .writer(delete::Delete(executor()))
        .reader(find::Find)
        .reader(grep::Grep)
        .for_files()
}

/// Omits zero counts from JSON.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
