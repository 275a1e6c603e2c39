//! The README of the repository. Its code examples run as doctests.
#![doc = include_str!("../../../README.md")]
