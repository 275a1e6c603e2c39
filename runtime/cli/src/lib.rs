//! The MCP server checker, the test host and the documentation of the file server, for use by other programs.

pub mod check;
mod server_doc;
pub mod test_host;

pub use server_doc::{description, server_doc, server_doc_with_commands};
