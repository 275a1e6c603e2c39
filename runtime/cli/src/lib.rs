//! The parts of the program `bailiwick` that other programs use: the checker of MCP servers, and the manual of the file server.

pub mod check;
mod manual;

pub use manual::{description, manual};
