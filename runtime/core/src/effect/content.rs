//! Content blocks of results.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::path::VirtualPath;

/// A block of content for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content {
    /// Text, stored as bytes that are known to be UTF-8, so that file text is never copied.
    Text(Utf8),
    /// An image.
    Image {
        /// Its bytes.
        bytes: Bytes,
        /// Its media type.
        mime: &'static str,
    },
    /// Audio.
    Audio {
        /// Its bytes.
        bytes: Bytes,
        /// Its media type.
        mime: &'static str,
    },
    /// Other binary content.
    Blob {
        /// Its path, with links resolved.
        path: VirtualPath,
        /// Its bytes.
        bytes: Bytes,
    },
    /// A link to a resource of a third-party server.
    Link {
        /// The server.
        server: Arc<str>,
        /// The URI of the resource at the server.
        uri: String,
        /// Its name.
        name: String,
        /// Its media type, according to the server.
        mime: Option<String>,
    },
}

impl Content {
    /// Returns the number of bytes of content.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.0.len(),
            Self::Image { bytes, .. } | Self::Audio { bytes, .. } | Self::Blob { bytes, .. } => {
                bytes.len()
            }
            Self::Link { uri, name, .. } => uri.len() + name.len(),
        }
    }

    /// Returns whether there is no content.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Bytes that are known to be UTF-8; clones share them.
#[derive(Clone, PartialEq, Eq)]
pub struct Utf8(Bytes);

impl Utf8 {
    /// Wraps `bytes` if they are valid UTF-8.
    ///
    /// # Errors
    /// [`std::str::Utf8Error`] if they are not valid UTF-8.
    pub fn new(bytes: Bytes) -> Result<Self, std::str::Utf8Error> {
        std::str::from_utf8(&bytes)?;
        Ok(Self(bytes))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Checked in `new`; checking again avoids an `unsafe` block.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl serde::Serialize for Utf8 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Debug for Utf8 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl From<String> for Utf8 {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}
