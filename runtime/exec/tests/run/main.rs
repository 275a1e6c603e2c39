//! Runs real programs in sandboxes.
#![expect(clippy::disallowed_methods, reason = "tests prepare files")]

mod commands;
#[cfg(feature = "interop")]
mod network;
#[cfg(feature = "interop")]
mod other_programs;
mod sandbox;
