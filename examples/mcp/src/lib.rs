//! The README, whose code runs with the tests.
#![doc = include_str!("../../../README.md")]
