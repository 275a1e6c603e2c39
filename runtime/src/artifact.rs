//! Changes in, by-products for people out, each behind a `ui://` address.

mod render;
mod store;

use serde::Serialize;

pub(crate) use render::{diff, json};
pub use store::Artifact;
pub(crate) use store::{ArtifactStore, Kind, Reader};

/// Where people find an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArtifactRef {
    /// `ui://edit_file/<id>.diff`, for example; the id has 128 random bits.
    pub uri: String,
    /// `diff`, `json` or `review`.
    pub name: &'static str,
    /// Its media type.
    pub mime: &'static str,
}
