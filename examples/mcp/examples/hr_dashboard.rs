//! An MCP server with a page for viewing and changing employee data.
//!
//! ```text
//! cargo run -p bailiwick-mcp-examples --example hr_dashboard -- [--http 127.0.0.1:PORT] [DIR]
//! ```
//!
//! Serves `employees.json` in DIR over stdio, or over HTTP on this machine. Without DIR, it uses sample data in a temporary
//! directory. To try it out:
//!
//! ```text
//! cargo build -p bailiwick-mcp-examples --examples
//! cargo run -p bailiwick-cli -- test-host target/debug/examples/hr_dashboard
//! npx @modelcontextprotocol/inspector target/debug/examples/hr_dashboard
//! npx @modelcontextprotocol/inspector --cli target/debug/examples/hr_dashboard --method tools/list
//! ```
//!
//! What it shows:
//!
//! - **The model opens the page but does not see its data.** `show_dashboard` returns totals and names the page
//!   (`ToolSpec::page`). `list_employees`, `employee_details` and `list_raises` are for the page only (`ToolSpec::app_only`): they
//!   are not listed for models, nor for clients without MCP Apps.
//! - **Changes are previewed.** `raise_salaries` and `update_employee` are `WriteTool`s, so the page can preview them with the
//!   gateway's tool `preview_call`.
//! - **The page cannot change anything without approval.** It calls `commit_call` with the preview token. The gateway asks the
//!   person by elicitation, in the client's own window, every time, regardless of grants. Clients without elicitation get
//!   `SCOPE_REQUIRED` with `requested_scopes`. If they ask the person themselves, they repeat the call with `granted_scopes`.
//!   Otherwise the page offers to send the change to the chat (`ui/message`), where the model can request it.
//! - **Exactly the preview is applied.** If the file has changed since, the call fails with `STALE_PREVIEW`.
#![expect(
    clippy::print_stderr,
    reason = "the server prints its address and errors"
)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use bailiwick_examples::{BoxError, exit_code};
use bailiwick_mcp::gateway::{Http, Token};
use tokio::net::TcpListener;

#[path = "hr_dashboard/server.rs"]
mod server;

#[derive(Default)]
struct Options {
    http: Option<SocketAddr>,
    dir: Option<PathBuf>,
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, BoxError> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--http" => {
                let address: SocketAddr =
                    arguments.next().ok_or("--http needs an address")?.parse()?;
                if !address.ip().is_loopback() {
                    return Err("--http needs a loopback address".into());
                }
                options.http = Some(address);
            }
            dir if !dir.starts_with('-') && options.dir.is_none() => {
                options.dir = Some(dir.into());
            }
            other => {
                return Err(format!("unknown option `{}`", bailiwick::text::escape(other)).into());
            }
        }
    }
    Ok(options)
}

async fn run() -> Result<(), BoxError> {
    let options = options(std::env::args().skip(1))?;
    let scratch = tempfile::tempdir()?;
    let dir = options.dir.unwrap_or_else(|| scratch.path().to_owned());
    server::seed(&dir)?;
    let gateway = server::gateway(dir)?;
    match options.http {
        None => {
            gateway
                .serve(tokio::io::stdin(), tokio::io::stdout())
                .await?
        }
        Some(address) => {
            let listener = TcpListener::bind(address).await?;
            let token = Token::random()?;
            eprintln!("serving http://{}/mcp", listener.local_addr()?);
            eprintln!("bearer token: {}", token.reveal());
            let stop = async {
                // If signals are not available, the process must be killed.
                let _ = tokio::signal::ctrl_c().await;
            };
            gateway.serve_http(listener, Http::new(token), stop).await?;
        }
    }
    gateway.shutdown().await;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    exit_code(run().await)
}
