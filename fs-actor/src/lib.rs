//! Judged calls in, files read, searched and changed out: the tools that a worker offers.

mod lens;
mod page;
mod resolve;
mod search;
#[cfg(test)]
mod testing;
mod tools;
mod walk;

pub use resolve::Kind;
pub use tools::tools;
pub use tools::{
    CaseArg, FactsFound, FileMatches, FileRead, FilesRead, FindArgs, GrepArgs, Hash,
    ListDirectoryArgs, ListRootsArgs, Listed, Listing, Matches, Mode, PathsFound, ReadFileArgs,
    Roots, StatArgs, Wanted,
};
