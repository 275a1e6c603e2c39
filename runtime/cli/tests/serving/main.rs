//! Tests of the MCP server with raw messages.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes its files itself"
)]

mod answers;
mod answers_http;
mod asking;
mod browse;
mod calls;
mod client_roots;
mod clients;
mod commands;
mod edge;
mod ends;
mod eras;
mod fuzz;
mod golden;
mod help;
mod http;
mod lists;
mod program;
mod replay;
mod roots;
mod slow;
mod streams;
mod undo;
mod views;
mod watching;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_bailiwick");
