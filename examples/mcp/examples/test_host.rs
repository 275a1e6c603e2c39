//! A page on which people try an MCP server; or, with `check`, the checks of `bailiwick check`.
//!
//! ```text
//! cargo run -p bailiwick-mcp-examples --example test_host -- [check [--json] | --serve] [OPTIONS] [SERVER COMMAND...]
//! ```
//!
//! With a command or `--url` it serves the page and prints its address; with `check` it prints a line for each check and
//! exits with 1 if one failed. Without either it takes a server of its own, the file tools on a small tree that is made for it:
//! at a terminal, or with `--serve`, for the page, else for the checks.
//!
//! - `--url URL`: a Streamable HTTP server; `--bearer TOKEN` is sent to it
//! - `--revision 2025-11-25` (with a handshake; the default) or `2026-07-28` (stateless)
//! - `--configuration JSON`: what is sent as `experimental.configuration`
//! - `--elicit`: the own server puts its questions by elicitation in place of naming `requested_scopes`
//! - `--port PORT`: where the page is served, on loopback alone; any free port by default
#![expect(clippy::print_stderr, reason = "a host says why it failed")]

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
        Err(failure) => {
            eprintln!("test_host: {failure}");
            ExitCode::from(2)
        }
    }
}
