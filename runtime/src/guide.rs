//! Guides: how to embed the library, serve workers over MCP and put third-party servers behind a policy.

#[doc = include_str!("guide/embedding.md")]
pub mod embedding {}

#[doc = include_str!("guide/policies.md")]
pub mod policies {}

#[doc = include_str!("guide/grants.md")]
pub mod grants {}

#[doc = include_str!("guide/audit.md")]
pub mod audit {}

#[doc = include_str!("guide/clients.md")]
pub mod clients {}

#[doc = include_str!("guide/serving.md")]
pub mod serving {}

#[cfg(feature = "mcp")]
#[doc = include_str!("guide/gateway.md")]
pub mod gateway {}

#[cfg(feature = "mcp")]
#[doc = include_str!("guide/views.md")]
pub mod views {}

#[doc = include_str!("guide/checking.md")]
pub mod checking {}
