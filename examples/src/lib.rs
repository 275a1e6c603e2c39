//! Helpers that several examples share, and the README, whose code runs as a doc test.
#![doc = include_str!("../../README.md")]

mod end;
mod show;

pub use end::{Failure, ended};
pub use show::{coloured, diff};
