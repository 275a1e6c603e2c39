//! The README, whose code runs with the tests, and what several examples share.
#![doc = include_str!("../../README.md")]

mod end;
mod show;

pub use end::{Failure, ended};
pub use show::{coloured, diff};
