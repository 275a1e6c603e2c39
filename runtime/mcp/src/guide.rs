//! Guides: how to serve workers over MCP, and how to use third-party servers and MCP Apps under a policy.

#[doc = include_str!("guide/serving.md")]
pub mod serving {}

#[doc = include_str!("guide/clients.md")]
pub mod clients {}

#[doc = include_str!("guide/gateway.md")]
pub mod gateway {}

#[doc = include_str!("guide/views.md")]
pub mod views {}

#[doc = include_str!("guide/checking.md")]
pub mod checking {}
