//! Prefixes of file hashes, as models see and send them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use bailiwick::effect::ContentHash;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// Number of digits in results.
const SHOWN: usize = 12;

/// A prefix of the SHA-256 of a file's content: 12 to 64 hexadecimal digits.
///
/// Results have 12 digits, which distinguish versions of a file and use few tokens. Arguments may have more.
///
/// ```
/// use bailiwick_fs::HashPrefix;
/// let hash: HashPrefix = "5891b5b522d5".parse()?;
/// assert!(hash.matches(&bailiwick::effect::ContentHash::of(b"hello\n")));
/// assert!(!hash.matches(&bailiwick::effect::ContentHash::of(b"hello")));
/// # Ok::<(), bailiwick_fs::ParseHashPrefixError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String")]
pub struct HashPrefix(Box<str>);

/// The text is not 12 to 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a hash of 12 to 64 lower-case hexadecimal digits, as returned by `read_file`")]
pub struct ParseHashPrefixError;

impl HashPrefix {
    /// Whether `hash` has this prefix.
    #[must_use]
    pub fn matches(&self, hash: &ContentHash) -> bool {
        hash.to_string().starts_with(&*self.0)
    }
}

impl From<ContentHash> for HashPrefix {
    fn from(hash: ContentHash) -> Self {
        let mut digits = hash.to_string();
        digits.truncate(SHOWN);
        Self(digits.into())
    }
}

impl FromStr for HashPrefix {
    type Err = ParseHashPrefixError;

    fn from_str(text: &str) -> Result<Self, ParseHashPrefixError> {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if (SHOWN..=64).contains(&text.len()) && text.bytes().all(digit) {
            Ok(Self(text.into()))
        } else {
            Err(ParseHashPrefixError)
        }
    }
}

impl TryFrom<String> for HashPrefix {
    type Error = ParseHashPrefixError;

    fn try_from(text: String) -> Result<Self, ParseHashPrefixError> {
        text.parse()
    }
}

impl fmt::Display for HashPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for HashPrefix {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "HashPrefix".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_matches_hashes_that_begin_with_it() {
        let hash = ContentHash::of(b"text");
        let short = HashPrefix::from(hash);
        assert_eq!(short.to_string().len(), 12);
        assert!(short.matches(&hash));
        assert!(
            hash.to_string()
                .parse::<HashPrefix>()
                .unwrap()
                .matches(&hash)
        );
        assert!(!short.matches(&ContentHash::of(b"other")));
    }

    #[test]
    fn invalid_hash_is_refused() {
        let digits = "0".repeat(65);
        for text in ["", "5891b5b522d", "5891B5B522D5", "5891b5b522dg", &digits] {
            assert_eq!(
                text.parse::<HashPrefix>(),
                Err(ParseHashPrefixError),
                "{text}"
            );
        }
        assert!("5891b5b522d5".parse::<HashPrefix>().is_ok());
    }
}
