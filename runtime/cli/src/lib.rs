//! The MCP server checker and the documentation of the file server, for use by other programs.

pub mod check;
mod server_doc;

pub use server_doc::{description, server_doc};
