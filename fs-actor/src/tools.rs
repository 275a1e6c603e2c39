//! The table of tools, one line a tool.

mod list_directory;
mod list_roots;
mod read_file;
mod stat;
mod suggest;

use bailiwick::ToolSet;

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
        .reader(read_file::ReadFile)
}
