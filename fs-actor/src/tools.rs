//! The table of tools, one line a tool.

mod copy;
mod delete;
mod edit_file;
mod find;
mod glob;
mod grep;
mod list_directory;
mod list_roots;
mod make_directory;
mod move_entry;
mod read_file;
mod stat;
mod suggest;
mod write_file;

use bailiwick::ToolSet;

pub use copy::{Copied, CopyArgs};
pub use delete::{DeleteArgs, Deleted};
pub use edit_file::{EditArgs, EditFileArgs, FileEdited, Made};
pub use find::{FindArgs, PathsFound, Wanted};
pub use grep::{CaseArg, FileMatches, GrepArgs, Matches, Mode};
pub use list_directory::{ListDirectoryArgs, Listed, Listing};
pub use list_roots::{ListRootsArgs, Roots};
pub use make_directory::{DirectoriesMade, MakeDirectoryArgs};
pub use move_entry::{MoveArgs, Moved};
pub use read_file::{FileRead, FilesRead, Hash, ReadFileArgs};
pub use stat::{FactsFound, StatArgs};
pub use write_file::{IfExists, WriteFileArgs, Written};

/// The file tools.
///
/// ```
/// assert!(bailiwick_fs::tools().names().any(|name| name == "read_file"));
/// ```
#[must_use]
pub fn tools() -> ToolSet {
    ToolSet::new()
        .reader(list_roots::ListRoots)
        .reader(list_directory::ListDirectory)
        .reader(stat::Stat)
        .reader(read_file::ReadFile::default())
        .writer(write_file::WriteFile::default())
        .writer(edit_file::EditFile::default())
        .writer(make_directory::MakeDirectory::default())
        .writer(move_entry::Move::default())
        .writer(copy::Copy::default())
        .writer(delete::Delete::default())
        .reader(find::Find)
        .reader(grep::Grep)
}
