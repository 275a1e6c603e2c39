//! Server entry for registries.

use serde_json::{Value, json};

use super::{Description, dashdash};

/// The entry is marked as not verified, which only a registry can change.
pub(super) fn entry(described: &Description) -> Value {
    let facts = dashdash::metadata(described);
    json!({
        "name": facts.get("name"),
        "description": facts.get("description"),
        "version": described.version,
        "specVersion": facts.get("specVersion"),
        "install": dashdash::install(described),
        "alternativeAccess": dashdash::alternatives(described),
        "categories": described.doc.categories,
        "verified": false,
    })
}
