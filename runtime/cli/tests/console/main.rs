//! Tests of the console and the approval page.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes its files itself"
)]

mod activity;
mod agents;
mod api;
mod callers;
mod complete;
mod prompts;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_bailiwick");
