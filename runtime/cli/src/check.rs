//! Checks MCP servers: connects to one over stdio or HTTP, and reports what is right and wrong with it.
//!
//! [`run`] makes every check once, as `bailiwick check` does. A test host keeps a [`Session`] instead, whose
//! messages it can show.
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
//! The messages are JSON, not the types of a client library: those drop members that they have no name for, such as
//! `configSchema`. rmcp's types say what a message should look like. What a server sends is bounded in size, and every
//! wait has a deadline.

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
pub use log::{Entry, Side};
pub use report::{Check, Outcome, Report, run};
pub use server::{ListedTool, ServerInfo, member};
pub use session::{Connected, Session, State};
pub use target::{Target, UrlError};
