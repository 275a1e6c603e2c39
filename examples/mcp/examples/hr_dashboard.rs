//! A file of employees in, an MCP server with a page on which people look at them and change them out.
//!
//! ```text
//! cargo run -p bailiwick-mcp-examples --example hr_dashboard -- [--http 127.0.0.1:PORT] [DIR]
//! ```
//!
//! It serves `employees.json` in DIR over stdio, or over HTTP on this machine; without DIR people who do not exist, in a
//! folder that goes with it. To try it out:
//!
//! ```text
//! cargo build -p bailiwick-mcp-examples --examples
//! cargo run -p bailiwick-mcp-examples --example test_host -- target/debug/examples/hr_dashboard
//! npx @modelcontextprotocol/inspector target/debug/examples/hr_dashboard
//! npx @modelcontextprotocol/inspector --cli target/debug/examples/hr_dashboard --method tools/list
//! ```
//!
//! Four things that a page in a chat makes hard, and how they are done here:
//!
//! - **The model opens the page and does not see what is on it.** `show_dashboard` answers sums and names the page
//!   (`ToolSpec::page`); `list_employees`, `employee_details` and `list_raises` are for the page alone
//!   (`ToolSpec::app_only`): no model is offered them, and clients that show no pages are told that there are none.
//! - **A change is looked at before it is made.** `raise_salaries` and `update_employee` have plans, so the page previews
//!   them by the gateway's own `preview_call`.
//! - **A page changes nothing by itself.** It asks by `commit_call`, with the token of the preview that is on the screen. The
//!   gateway puts that to the person behind the client by elicitation, in the client's own window and not in the page, each
//!   time and whatever was granted before. A client that cannot elicit is answered `SCOPE_REQUIRED` with `requested_scopes`:
//!   if it asks its person by itself, it sends the call again with `granted_scopes`; else the page offers to put the change
//!   into the chat (`ui/message`), where the model can ask for it in its turn.
//! - **What was previewed is what is done.** If the file changed meanwhile the answer is `STALE_PREVIEW`, and nothing happens.
#![expect(
    clippy::print_stderr,
    reason = "a server says where it is, and why it failed"
)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use bailiwick::{Http, Token};
use bailiwick_examples::{BoxError, exit_code};
use tokio::net::TcpListener;

#[path = "hr_dashboard/server.rs"]
mod server;

#[derive(Default)]
struct Options {
    http: Option<SocketAddr>,
    folder: Option<PathBuf>,
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, BoxError> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--http" => {
                let address: SocketAddr =
                    arguments.next().ok_or("--http needs an address")?.parse()?;
                if !address.ip().is_loopback() {
                    return Err("--http is for this machine alone".into());
                }
                options.http = Some(address);
            }
            folder if !folder.starts_with('-') && options.folder.is_none() => {
                options.folder = Some(folder.into());
            }
            other => return Err(format!("`{}` is no option", bailiwick::escape(other)).into()),
        }
    }
    Ok(options)
}

async fn run() -> Result<(), BoxError> {
    let options = options(std::env::args().skip(1))?;
    let scratch = tempfile::tempdir()?;
    let folder = options.folder.unwrap_or_else(|| scratch.path().to_owned());
    server::seed(&folder)?;
    let gateway = server::gateway(folder)?;
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
                // Without signals it is ended in some other way.
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
