//! The README, whose code runs with the tests, and the one thing that two examples share.
#![doc = include_str!("../../README.md")]

mod show;

pub use show::{coloured, diff};
