//! Artifacts of calls, each with a `ui://` URI: diffs, JSON and review pages.

mod parts;
mod render;
mod review;
mod store;

pub(crate) use parts::Parts;
pub(crate) use render::base;
pub(crate) use review::{About, OldTexts, Review};
pub use store::{Artifact, REVIEW_MIME};
pub(crate) use store::{ArtifactStore, DEFAULT_BYTES, DEFAULT_COUNT, Kind, Reader};
