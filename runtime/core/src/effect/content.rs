//! Content blocks of results.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

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
            Self::Text(text) => text.0.bytes.len(),
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
#[derive(Clone)]
pub struct Utf8(Arc<SharedText>);

struct SharedText {
    bytes: Bytes,
    /// The text as a JSON string, once it is known.
    json: OnceLock<Box<RawValue>>,
}

impl Utf8 {
    /// Wraps `bytes` if they are valid UTF-8.
    ///
    /// # Errors
    /// [`std::str::Utf8Error`] if they are not valid UTF-8.
    pub fn new(bytes: Bytes) -> Result<Self, std::str::Utf8Error> {
        std::str::from_utf8(&bytes)?;
        Ok(Self::of(bytes))
    }

    fn of(bytes: Bytes) -> Self {
        let json = OnceLock::new();
        Self(Arc::new(SharedText { bytes, json }))
    }

    /// Escapes the text for JSON, so that writing it and its clones as JSON text only copies it: a result of MCP contains
    /// the text of a file twice.
    #[doc(hidden)]
    pub fn escape_once(&self) {
        if self.0.json.get().is_none()
            && let Ok(json) = to_raw_value(self.as_str())
        {
            // If another thread was faster, its text is the same.
            let _ = self.0.json.set(json);
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Checked in `new`; checking again avoids an `unsafe` block.
        std::str::from_utf8(&self.0.bytes).unwrap_or_default()
    }
}

impl PartialEq for Utf8 {
    fn eq(&self, other: &Self) -> bool {
        self.0.bytes == other.0.bytes
    }
}

impl Eq for Utf8 {}

impl Serialize for Utf8 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.json.get() {
            Some(json) => json.serialize(serializer),
            None => serializer.serialize_str(self.as_str()),
        }
    }
}

impl fmt::Debug for Utf8 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl From<String> for Utf8 {
    fn from(text: String) -> Self {
        Self::of(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::cases;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        #![proptest_config(cases(256))]

        #[test]
        fn escaped_text_is_written_as_before(text in "([a\"\\\\\n ä\u{2028}\u{7f}]|.){0,40}|[\u{0}-\u{20}]{0,5}") {
            let text = Utf8::from(text);
            let output = json!({"text": text});
            let written = serde_json::to_string(&text).unwrap();
            text.escape_once();
            text.escape_once();
            prop_assert_eq!(serde_json::to_string(&text).unwrap(), written);
            prop_assert_eq!(json!({"text": text}), output);
            prop_assert_eq!(&text, &Utf8::from(text.as_str().to_owned()));
        }
    }
}
