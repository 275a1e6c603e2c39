//! The table of tools, one line a tool.

mod find;
mod glob;
mod grep;
mod list_directory;
mod list_roots;
mod read_file;
mod stat;
mod suggest;

use bailiwick::ToolSet;

pub use find::{FindArgs, PathsFound, Wanted};
pub use grep::{CaseArg, FileMatches, GrepArgs, Matches, Mode};
pub use list_directory::{ListDirectoryArgs, Listed, Listing};
pub use list_roots::{ListRootsArgs, Roots};
pub use read_file::{FileRead, FilesRead, Hash, ReadFileArgs};
pub use stat::{FactsFound, StatArgs};

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
        .reader(find::Find)
        .reader(grep::Grep)
}
