//! The table of tools, one line a tool.

mod copy;
mod delete;
mod edit_file;
mod list_directory;
mod list_roots;
mod make_directory;
mod move_entry;
mod read_file;
mod stat;
mod suggest;
mod write_file;

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
        .writer(write_file::WriteFile::default())
        .writer(edit_file::EditFile::default())
        .writer(make_directory::MakeDirectory::default())
        .writer(move_entry::Move::default())
        .writer(copy::Copy::default())
        .writer(delete::Delete::default())
}
