//! Checks an MCP server over stdio or HTTP and reports protocol errors.
//!
//! [`run`] runs all checks once, as `bailiwick check` does. A test host keeps a
//! [`Connected`] server instead, and can show the messages of its [`MessageLog`].
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use bailiwick_cli::check::{self, Connection, Outcome, Target};
//!
//! # async fn example() {
//! let target = Target::command("node", ["server.js"]);
//! let interrupted = std::future::pending();
//! let report = check::run(target, Connection::default(), Duration::from_secs(60), interrupted).await;
//! if let Some(report) = report {
//!     assert_eq!(report.count(Outcome::Fail), 0, "{report}");
//! }
//! # }
//! ```
//!
//! Messages are handled as JSON, since the types of client libraries drop unknown members such as `configSchema`. They are
//! validated with the types of `rmcp`. Input from servers is bounded in size, and every wait has a deadline.

mod checks;
mod child;
mod client;
mod connection;
mod http;
mod log;
mod message;
mod report;
mod server;
mod session;
mod target;
mod transport;

pub use client::ServerError;
pub use connection::{Connection, ParseRevisionError, Revision};
pub use log::{Entry, MessageLog, Side};
pub use report::{Check, Outcome, Report, run};
pub use server::{ListedTool, ServerInfo, member};
pub use session::Connected;
pub use target::{Target, UrlError};
