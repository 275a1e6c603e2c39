//! Server entry for registries.

use serde_json::{Value, json};

use super::{Description, dashdash};

/// What only a registry can say, it says: nobody verified the entry yet.
pub(super) fn entry(described: &Description) -> Value {
    let facts = dashdash::metadata(described);
    json!({
        "name": facts.get("name"),
        "description": facts.get("description"),
        "version": described.version,
        "specVersion": facts.get("specVersion"),
        "install": dashdash::install(described),
        "alternativeAccess": dashdash::alternatives(described),
        "categories": described.manual.categories,
        "verified": false,
    })
}
