//! Reads optional text arguments.
//!
//! An empty text counts as absent: some clients make a model fill in every argument.

use std::fmt::Display;

use serde::de::{Deserialize, Deserializer, Error as _};

/// The default of a path to search or list.
pub(super) fn current_dir() -> String {
    ".".to_owned()
}

/// Reads a path that is [`current_dir`] by default.
pub(super) fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    text(deserializer).map(|path| path.unwrap_or_else(current_dir))
}

/// Reads an optional text, or what is parsed from it.
pub(super) fn text<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<String, Error: Display>,
{
    let text = Option::<String>::deserialize(deserializer)?;
    let parsed = text.filter(|text| !text.is_empty()).map(T::try_from);
    parsed.transpose().map_err(D::Error::custom)
}
