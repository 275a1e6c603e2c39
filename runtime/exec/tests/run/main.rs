//! Runs real programs in sandboxes.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests prepare files, and fail by panicking"
)]

mod budgets;
mod changes;
#[cfg(feature = "interop")]
mod command_network;
mod commands;
mod confined_files;
#[cfg(feature = "interop")]
mod network;
#[cfg(feature = "interop")]
mod other_programs;
mod overlay;
mod sandbox;
