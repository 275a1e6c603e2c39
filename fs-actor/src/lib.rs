//! File tools for bailiwick workers: read, search and change files. [`io`] has the file access for your own tools.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "bailiwick-fs works on Linux only: it opens files by system calls that other systems do not have"
);

mod change;
mod diff;
mod edit;
pub mod io;
mod media;
mod pagination;
mod read_view;
mod replace;
mod resolve;
mod search;
mod sys;
#[cfg(test)]
mod testing;
mod text;
mod tools;
mod walk;

pub use edit::{AppliedEdit, MatchStrategy};
pub use replace::{Durability, ReachedDurability};
pub use resolve::Kind;
pub use search::CaseArg;
pub use tools::{
    CopyArgs, CopyOutput, DeleteArgs, DeleteOutput, DirectoryEntry, EditArgs, EditFileArgs,
    EditFileOutput, FileContent, FileMatches, FindArgs, FindOutput, GrepArgs, GrepMode, GrepOutput,
    HashPrefix, IfExists, KindFilter, LazyHash, ListDirectoryArgs, ListDirectoryOutput,
    ListRootsArgs, ListRootsOutput, MakeDirectoryArgs, MakeDirectoryOutput, MatchLine, MoveArgs,
    MoveOutput, ParseHashPrefixError, ReadFileArgs, ReadFileOutput, StatArgs, StatOutput,
    WriteFileArgs, WriteFileOutput,
};
pub use tools::{tools, tools_with};
