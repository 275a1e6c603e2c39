//! File tools for bailiwick workers: read, search and change files. [`io`] has the file access for your own tools.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "bailiwick-fs works on Linux only: it opens files by system calls that other systems do not have"
);

mod bounded_map;
mod change;
mod diff;
mod edit;
#[doc(hidden)]
#[cfg(fuzzing)]
pub mod fuzzing;
mod helper_threads;
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
pub use tools::*;
