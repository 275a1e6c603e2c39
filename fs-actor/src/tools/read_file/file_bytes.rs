//! The bytes of a file, and what is computed from them on demand.

use std::fmt;
use std::str::Utf8Error;
use std::sync::{Arc, OnceLock};

use bailiwick::effect::{ContentHash, Utf8};
use bytes::Bytes;
use serde::{Serialize, Serializer};

use super::render::BOM;
use crate::tools::hash::HashPrefix;

/// The bytes of a file. Hash and text are computed once and shared by clones.
#[derive(Clone, Debug)]
pub(super) struct FileBytes(Arc<Inner>);

struct Inner {
    bytes: Bytes,
    hash: OnceLock<ContentHash>,
    text: OnceLock<Utf8>,
}

impl FileBytes {
    pub(super) fn new(bytes: Bytes) -> Self {
        Self(Arc::new(Inner {
            bytes,
            hash: OnceLock::new(),
            text: OnceLock::new(),
        }))
    }

    pub(super) fn bytes(&self) -> &Bytes {
        &self.0.bytes
    }

    pub(super) fn hash(&self) -> LazyHash {
        LazyHash(HashSource::Content(self.clone()))
    }

    pub(super) fn has_bom(&self) -> bool {
        self.0.bytes.starts_with(BOM)
    }

    /// The bytes without the byte order mark.
    pub(super) fn after_bom(&self) -> Bytes {
        self.0
            .bytes
            .slice(if self.has_bom() { BOM.len() } else { 0 }..)
    }

    /// The text without the byte order mark.
    pub(super) fn text(&self) -> Result<Utf8, Utf8Error> {
        if let Some(text) = self.0.text.get() {
            return Ok(text.clone());
        }
        let text = Utf8::new(self.after_bom())?;
        Ok(self.0.text.get_or_init(|| text).clone())
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

/// The hash of a file, computed on demand. It is serialized as its first 12 digits ([`HashPrefix`]).
#[derive(Clone)]
pub struct LazyHash(HashSource);

#[derive(Clone)]
enum HashSource {
    Content(FileBytes),
    Known(ContentHash),
}

impl LazyHash {
    /// The hash.
    #[must_use]
    pub fn get(&self) -> ContentHash {
        match &self.0 {
            HashSource::Content(content) => {
                let content = &content.0;
                *content.hash.get_or_init(|| ContentHash::of(&content.bytes))
            }
            HashSource::Known(hash) => *hash,
        }
    }
}

impl From<ContentHash> for LazyHash {
    fn from(hash: ContentHash) -> Self {
        Self(HashSource::Known(hash))
    }
}

impl fmt::Debug for LazyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LazyHash(..)")
    }
}

impl Serialize for LazyHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        HashPrefix::from(self.get()).serialize(serializer)
    }
}
