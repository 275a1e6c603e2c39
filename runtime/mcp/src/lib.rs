//! MCP for [`bailiwick`]: serves workers to MCP clients, and gives workers the tools of third-party MCP servers and
//! MCP Apps.
//!
//! | module | contents |
//! |---|---|
//! | [`gateway`] | the MCP server, over stdio, any byte stream or HTTP on loopback addresses |
//! | [`upstream`] | the MCP client: third-party servers as tools of workers |
//! | [`view`] | the host side of MCP Apps: pages beside an agent's worker |
//! | [`guide`] | how to serve workers, configure clients and put third-party servers behind a policy |

#[cfg(test)]
mod cases;
pub mod gateway;
pub mod guide;
mod inotify;
mod rate;
pub mod upstream;
pub mod view;

pub use gateway::{Gateway, Http, Trust};
pub use upstream::{ServerSpec, Upstreams};
pub use view::View;
