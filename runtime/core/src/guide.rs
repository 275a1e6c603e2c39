//! Guides: how to embed the library, write policies, work with grants, undo changes and keep an audit.

#[doc = include_str!("guide/embedding.md")]
pub mod embedding {}

#[doc = include_str!("guide/policies.md")]
pub mod policies {}

#[doc = include_str!("guide/grants.md")]
pub mod grants {}

#[doc = include_str!("guide/changes.md")]
pub mod changes {}

#[doc = include_str!("guide/audit.md")]
pub mod audit {}
