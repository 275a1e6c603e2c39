//! What several examples share.

mod end;
mod show;

pub use end::{Failure, ended};
pub use show::{coloured, diff};
