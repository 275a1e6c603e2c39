//! Deserializes optional text arguments.
//!
//! An empty text counts as absent, since some clients make a model fill in every argument.

use std::fmt::Display;

use serde::de::{Deserialize, Deserializer, Error as _};

/// The default path to search or list.
pub(super) fn current_dir() -> String {
    ".".to_owned()
}

/// Deserializes a path; the default is [`current_dir`].
pub(super) fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    text(deserializer).map(|path| path.unwrap_or_else(current_dir))
}

/// Deserializes an optional text, or a value parsed from it.
pub(super) fn text<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<String, Error: Display>,
{
    let text = Option::<String>::deserialize(deserializer)?;
    let parsed = text.filter(|text| !text.is_empty()).map(T::try_from);
    parsed.transpose().map_err(D::Error::custom)
}
