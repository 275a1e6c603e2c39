//! Changes in, by-products for people out, each behind a `ui://` address.

mod render;
mod store;

pub(crate) use render::{base, diff, json};
pub use store::Artifact;
pub(crate) use store::{ArtifactStore, DEFAULT_BYTES, DEFAULT_COUNT, Kind, Reader};
