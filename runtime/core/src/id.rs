//! Identifier newtypes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Id of a worker, unique in its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(#[doc(hidden)] pub u64);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{}", self.0)
    }
}

/// Maximum length of a worker's name in characters.
const MAX_NAME: usize = 64;

/// Whether `name` is a valid worker name, which is one part of an agent's path.
pub(crate) fn is_agent_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.chars().count())
        && !name.contains('/')
        && !name.chars().any(crate::text::is_deceptive)
}

/// Id of a call, unique in its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(#[doc(hidden)] pub u64);

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

/// Id of a question, unique in its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QuestionId(#[doc(hidden)] pub u64);

impl fmt::Display for QuestionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "q{}", self.0)
    }
}

/// Id of a denial for the rest of a session, unique in its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SilencedId(#[doc(hidden)] pub u64);

/// Id of a grant, unique in its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GrantId(#[doc(hidden)] pub u64);

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}", self.0)
    }
}

/// Error of parsing a [`GrantId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be the number of a grant, such as g3")]
#[non_exhaustive]
pub struct ParseGrantIdError;

impl FromStr for GrantId {
    type Err = ParseGrantIdError;

    /// Parses `g3`, or `3` as in JSON.
    fn from_str(text: &str) -> Result<Self, ParseGrantIdError> {
        let digits = text.strip_prefix('g').unwrap_or(text);
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse().ok().filter(|_| plain);
        number.map(Self).ok_or(ParseGrantIdError)
    }
}

/// Number of a change in a [`Journal`](crate::journal::Journal), which is the same after restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChangeId(#[doc(hidden)] pub u64);

impl fmt::Display for ChangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Maximum length of the name of a tool in bytes, before its deceptive characters are escaped.
const MAX_TOOL_NAME: usize = 128;

/// Name of a tool, such as `read_file`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolName(Arc<str>);

impl ToolName {
    /// Wraps a name; the registry rejects names that are not `[a-z0-9_]{1,64}`. Deceptive characters are escaped and more
    /// than 128 bytes are cut, since the name of an unknown tool may be any text.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut ends = (0..=name.len().min(MAX_TOOL_NAME)).rev();
        let end = ends.find(|end| name.is_char_boundary(*end));
        let (kept, _) = name.split_at(end.unwrap_or_default());
        let escaped = crate::text::escape(kept);
        Self(escaped.into())
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for ToolName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_name_is_bounded_and_escaped() {
        assert_eq!(ToolName::new("read_file").as_str(), "read_file");
        let long = "é".repeat(1 << 20);
        assert!(ToolName::new(&long).as_str().len() <= MAX_TOOL_NAME);
        assert!(!ToolName::new("\u{1b}]0;x").as_str().contains('\u{1b}'));
    }

    #[test]
    fn grant_id_is_parsed_from_text_or_number() {
        for text in ["g3", "3", "g03"] {
            assert_eq!(text.parse(), Ok(GrantId(3)), "{text}");
        }
        assert_eq!(GrantId(3).to_string().parse(), Ok(GrantId(3)));
        for text in [
            "",
            "g",
            "gg3",
            "-3",
            "+3",
            "g+3",
            "3 ",
            "w3",
            "99999999999999999999",
        ] {
            assert_eq!(text.parse::<GrantId>(), Err(ParseGrantIdError), "{text}");
        }
    }
}
