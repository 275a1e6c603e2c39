//! Judged calls in, files read, searched and changed out: the tools that a worker offers.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "bailiwick-fs works on Linux only: it opens files by system calls that other systems do not have"
);

mod change;
mod diff;
mod edit;
mod lens;
mod media;
mod page;
mod replace;
mod resolve;
mod search;
mod sys;
#[cfg(test)]
mod testing;
mod text;
mod tools;
mod walk;

pub use edit::Strategy;
pub use replace::{Durability, Reached};
pub use resolve::Kind;
pub use tools::{
    CaseArg, Copied, CopyArgs, DeleteArgs, Deleted, DirectoriesMade, EditArgs, EditFileArgs,
    FactsFound, FileEdited, FileMatches, FileRead, FilesRead, FindArgs, GrepArgs, Hash, HashPrefix,
    IfExists, ListDirectoryArgs, ListRootsArgs, Listed, Listing, Made, MakeDirectoryArgs,
    MatchLine, Matches, Mode, MoveArgs, Moved, ParseHashPrefixError, PathsFound, ReadFileArgs,
    Roots, StatArgs, Wanted, WriteFileArgs, Written,
};
pub use tools::{tools, tools_with};
