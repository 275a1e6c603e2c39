//! Artifacts of calls, each behind a `ui://` address: diffs, JSON and review pages.

mod parts;
mod render;
#[cfg(feature = "ui")]
mod review;
mod store;

pub(crate) use parts::Parts;
pub(crate) use render::{base, diff, json};
#[cfg(feature = "ui")]
pub(crate) use review::{About, OldTexts, Review};
pub use store::Artifact;
pub(crate) use store::{ArtifactStore, DEFAULT_BYTES, DEFAULT_COUNT, Kind, Reader};
