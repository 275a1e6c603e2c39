//! SHA-256 hashes of file contents.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// SHA-256 of a file's bytes; written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    /// The hash of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The hash of all bytes that `reader` returns.
    ///
    /// # Errors
    /// Those of `reader`.
    pub fn of_reader(mut reader: impl io::Read) -> io::Result<Self> {
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(Self(hasher.finalize().into())),
                Ok(length) => hasher.update(buffer.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Wraps a hash that was computed elsewhere, for example while streaming.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the raw hash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Writes the digits to `buffer`. Every audit record contains two hashes, so this avoids `fmt` for each byte.
    pub(crate) fn hex<'b>(&self, buffer: &'b mut [u8; 64]) -> &'b str {
        let digit = |nibble: u8| match nibble {
            0..=9 => b'0' + nibble,
            _ => b'a' - 10 + nibble,
        };
        for (pair, byte) in buffer.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 0xf)]);
        }
        std::str::from_utf8(buffer).unwrap_or_default()
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.hex(&mut [0; 64]))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for ContentHash {
    type Err = ParseContentHashError;

    fn from_str(text: &str) -> Result<Self, ParseContentHashError> {
        let mut bytes = [0; 32];
        let digits = text.as_bytes();
        // `from_str_radix` would accept a sign.
        let plain = |digit: &u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(digit);
        if digits.len() != 64 || !digits.iter().all(plain) {
            return Err(ParseContentHashError);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| ParseContentHashError)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| ParseContentHashError)?;
        }
        Ok(Self(bytes))
    }
}

/// Error of parsing a [`ContentHash`]: the text is not 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a content hash is 64 lower-case hexadecimal digits")]
pub struct ParseContentHashError;

impl Serialize for ContentHash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.hex(&mut [0; 64]))
    }
}

impl<'de> Deserialize<'de> for ContentHash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for ContentHash {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ContentHash".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-f]{64}$", "description": "SHA-256 of the file's bytes" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_round_trips_through_text() {
        let hash = ContentHash::of(b"content");
        assert_eq!(hash.to_string().parse(), Ok(hash));
    }

    #[test]
    fn invalid_hash_text_is_rejected() {
        let plain = "0f".repeat(32);
        assert!(plain.parse::<ContentHash>().is_ok());
        for odd in ["+f", "0F", "0 ", "0g", "", "0"] {
            let text = format!("{}{odd}", "0f".repeat(31));
            assert_eq!(
                text.parse::<ContentHash>(),
                Err(ParseContentHashError),
                "{text}"
            );
        }
    }
}
