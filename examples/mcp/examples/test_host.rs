//! Serves a page for trying an MCP server, or runs the checks of `bailiwick check`.
//!
//! ```text
//! cargo run -p bailiwick-mcp-examples --example test_host -- [check [--json] | --serve] [OPTIONS] [SERVER COMMAND...]
//! ```
//!
//! With a command or `--url`, it serves the page and prints its address. With `check`, it prints a line for each check and exits
//! with 1 if one failed. Without a server, it uses a built-in one: the file tools on a temporary directory. That one is served on
//! a terminal or with `--serve`, and checked otherwise.
//!
//! - `--url URL`: a Streamable HTTP server; with the bearer token of `--bearer TOKEN`
//! - `--revision 2025-11-25` (with a handshake; the default) or `2026-07-28` (stateless)
//! - `--configuration JSON`: sent as `experimental.configuration`
//! - `--elicit`: the built-in server asks by elicitation instead of returning `requested_scopes`
//! - `--port PORT`: the loopback port of the page; any free port by default
#![expect(clippy::print_stderr, reason = "examples print their errors")]

use std::io::{IsTerminal, stdin, stdout};
use std::process::ExitCode;

#[path = "test_host/app.rs"]
mod app;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = std::env::args().skip(1).collect();
    match app::run(arguments, stdin().is_terminal(), &mut stdout()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("test_host: {error}");
            ExitCode::from(2)
        }
    }
}
