//! The parts of the program `bailiwick` that other programs use: the checker of MCP servers, and the manual of the file server.

pub mod check;
mod server_doc;

pub use server_doc::{description, server_doc};
