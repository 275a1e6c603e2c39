//! Virtual paths: parsed from what a model wrote, normalized.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Maximum length of a path in bytes (Linux `PATH_MAX` without the terminator).
pub(crate) const MAX_PATH: usize = 4095;
/// Maximum length of a name in bytes (Linux `NAME_MAX`).
pub(crate) const MAX_NAME: usize = 255;
/// Maximum number of names in a path.
pub(crate) const MAX_DEPTH: usize = 256;

/// Why a text is not a valid path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The text was empty.
    #[error("the path is empty")]
    Empty,
    /// The text has a NUL, control character or line break.
    #[error("the path contains the control character U+{0:04X}")]
    Control(u32),
    /// A `..` leads above the top.
    #[error("the path leads above `/`")]
    AboveTop,
    /// The path is too long or too deep, or one of its names is too long.
    #[error("the path is too long: at most {MAX_PATH} bytes, {MAX_NAME} a name, {MAX_DEPTH} names")]
    TooLong,
    /// The path is relative and there is no default root.
    #[error("the path is relative and there is no default root; begin it with `/`")]
    Relative,
    /// A character that has another meaning on this system, such as `:` or `\` on Windows.
    #[error("the path contains `{0}`, which is not allowed in a name")]
    Reserved(char),
    /// A name is `*` or `**`, which are wildcards in scopes and globs.
    #[error("`*` and `**` are wildcards, so no tool opens a file of that name")]
    Wildcard,
}

/// An absolute, normalized path in the namespace that tools, scopes, globs and people share.
///
/// It begins with `/`, has no `.`, `..`, `*`, `**`, empty or trailing component and no control character.
/// It is not a host path: `/repo/src/x.rs` is `src/x.rs` in the root that is mounted at `/repo`. A root
/// can also be mounted at its own host path.
///
/// ```
/// use bailiwick::VirtualPath;
/// let repo = VirtualPath::parse("/repo", None)?;
/// let file = VirtualPath::parse("src/../Cargo.toml", Some(&repo))?;
/// assert_eq!(file.as_str(), "/repo/Cargo.toml");
/// assert!(file.starts_with(&repo));
/// assert!(!VirtualPath::parse("/repository", None)?.starts_with(&repo));
/// # Ok::<(), bailiwick::path::PathError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct VirtualPath(Arc<str>);

impl VirtualPath {
    /// Returns the `file://` URI of the file or directory.
    #[doc(hidden)]
    #[must_use]
    pub fn address(&self) -> String {
        let mut uri = String::from("file://");
        for byte in self.as_str().bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                    uri.push(char::from(byte));
                }
                _ => uri.push_str(&format!("%{byte:02X}")),
            }
        }
        uri
    }

    /// Parses `text`. Relative paths are relative to `base`.
    ///
    /// `..` is resolved by name, before any link is followed, so the authorised path is also the path that is opened.
    ///
    /// # Errors
    /// [`PathError`] if `text` is not a valid path.
    pub fn parse(text: &str, base: Option<&Self>) -> Result<Self, PathError> {
        if text.is_empty() {
            return Err(PathError::Empty);
        }
        if text.len() > MAX_PATH {
            return Err(PathError::TooLong);
        }
        if is_plain(text) {
            return Ok(Self(text.into()));
        }
        let mut names: Vec<&str> = Vec::with_capacity(16);
        if !text.starts_with('/') {
            names.extend(base.ok_or(PathError::Relative)?.names());
        }
        for name in text.split('/') {
            match name {
                "" | "." => {}
                ".." => {
                    names.pop().ok_or(PathError::AboveTop)?;
                }
                name => names.push(check_name(name)?),
            }
        }
        Self::from_names(&names)
    }

    /// The top of the namespace, `/`.
    #[must_use]
    pub fn top() -> Self {
        Self("/".into())
    }

    /// Appends a name.
    ///
    /// # Errors
    /// [`PathError`] if `name` is not a single valid name.
    pub fn join(&self, name: &str) -> Result<Self, PathError> {
        self.check_entry(name)?;
        let stem = if self.is_top() { "" } else { &self.0 };
        Ok(Self([stem, "/", name].concat().into()))
    }

    /// Returns whether [`Self::join`] accepts `name`.
    #[must_use]
    pub fn accepts(&self, name: &str) -> bool {
        self.check_entry(name).is_ok()
    }

    fn check_entry(&self, name: &str) -> Result<(), PathError> {
        if name.contains('/') || name == "." || name == ".." {
            return Err(PathError::Reserved('/'));
        }
        if name.is_empty() {
            return Err(PathError::Empty);
        }
        check_name(name)?;
        // Each level has at least two bytes.
        let is_deep = self.0.len() >= 2 * MAX_DEPTH && self.depth() >= MAX_DEPTH;
        if is_deep || self.0.len() + 1 + name.len() > MAX_PATH {
            return Err(PathError::TooLong);
        }
        Ok(())
    }

    fn from_names(names: &[&str]) -> Result<Self, PathError> {
        if names.len() > MAX_DEPTH {
            return Err(PathError::TooLong);
        }
        let length: usize = names.iter().map(|name| name.len() + 1).sum();
        if length > MAX_PATH {
            return Err(PathError::TooLong);
        }
        if names.is_empty() {
            return Ok(Self::top());
        }
        let mut text = String::with_capacity(length);
        for name in names {
            text.push('/');
            text.push_str(name);
        }
        Ok(Self(text.into()))
    }

    /// Returns the path as text, always beginning with `/`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether this is `/` itself.
    #[must_use]
    pub fn is_top(&self) -> bool {
        &*self.0 == "/"
    }

    /// Returns the names from the top down; none for `/`.
    #[must_use]
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/').filter(|name| !name.is_empty())
    }

    /// Returns the number of names in the path.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.names().count()
    }

    /// Returns the last name; none for `/`.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.names().next_back()
    }

    /// Returns the path without its last name; none for `/`.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (stem, name) = self.0.rsplit_once('/')?;
        if name.is_empty() {
            return None;
        }
        Some(if stem.is_empty() {
            Self::top()
        } else {
            Self(stem.into())
        })
    }

    /// Returns whether this is `prefix` or beneath it, compared name by name.
    #[must_use]
    pub fn starts_with(&self, prefix: &Self) -> bool {
        self.beneath(prefix).is_some()
    }

    /// Returns the path relative to `prefix`, without a leading `/` (empty for `prefix` itself); `None` if it is not beneath it.
    #[must_use]
    pub fn beneath(&self, prefix: &Self) -> Option<&str> {
        beneath(&self.0, &prefix.0)
    }

    /// Whether one of the two is the other or beneath it.
    pub(crate) fn touches(&self, other: &Self) -> bool {
        self.starts_with(other) || other.starts_with(self)
    }
}

/// `path` relative to `prefix`, both absolute and normalized; `None` if it is not beneath it.
pub(crate) fn beneath<'p>(path: &'p str, prefix: &str) -> Option<&'p str> {
    if prefix == "/" {
        return path.strip_prefix('/');
    }
    let rest = path.strip_prefix(prefix)?;
    if rest.is_empty() {
        Some(rest)
    } else {
        rest.strip_prefix('/')
    }
}

/// Whether `text` is absolute, printable ASCII and already normalized, so that nothing has to be resolved.
fn is_plain(text: &str) -> bool {
    let Some(relative) = text
        .strip_prefix('/')
        .filter(|text| has_only_safe_ascii(text))
    else {
        return false;
    };
    let mut depth = 0;
    // For short names, comparing each byte is faster than `str::split`.
    let mut names = relative.as_bytes().split(|byte| *byte == b'/');
    let is_name = |name: &[u8]| {
        depth += 1;
        name.len() <= MAX_NAME && !matches!(name, b"" | b"." | b".." | b"*" | b"**")
    };
    names.all(is_name) && depth <= MAX_DEPTH
}

/// Whether `text` is printable ASCII, of which all is allowed in names. Always false on Windows, where some is not.
fn has_only_safe_ascii(text: &str) -> bool {
    // Without an early exit, the compiler checks several bytes at once.
    let printable = |all, byte| all & matches!(byte, b' '..=b'~');
    cfg!(not(windows)) && text.bytes().fold(true, printable)
}

/// Returns `name` if it is valid in a path.
fn check_name(name: &str) -> Result<&str, PathError> {
    if name.len() > MAX_NAME {
        return Err(PathError::TooLong);
    }
    if matches!(name, "*" | "**") {
        return Err(PathError::Wildcard);
    }
    if has_only_safe_ascii(name) {
        return Ok(name);
    }
    if let Some(control) = name
        .chars()
        .find(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'))
    {
        return Err(PathError::Control(control.into()));
    }
    // A name must not contain a drive, an alternate data stream or a second separator.
    #[cfg(windows)]
    if let Some(reserved) = name
        .chars()
        .find(|c| matches!(c, '\\' | ':' | '<' | '>' | '"' | '|' | '?' | '*'))
    {
        return Err(PathError::Reserved(reserved));
    }
    Ok(name)
}

impl fmt::Display for VirtualPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for VirtualPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl<'de> Deserialize<'de> for VirtualPath {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text, None).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::cases;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, PathError>) {
        let base = VirtualPath::parse("/r", None).unwrap();
        let got = VirtualPath::parse(text, Some(&base)).map(|path| path.to_string());
        assert_eq!(got, expected.map(str::to_owned));
    }

    #[test]
    fn dots_and_repeated_separators_are_resolved_lexically() {
        check("a/./b//c/", Ok("/r/a/b/c"));
        check("/p/to/../q", Ok("/p/q"));
        check(".", Ok("/r"));
        check("..", Ok("/"));
        check("/", Ok("/"));
    }

    #[test]
    fn path_above_the_top_is_rejected() {
        check("../..", Err(PathError::AboveTop));
        check("/..", Err(PathError::AboveTop));
    }

    #[test]
    fn control_characters_are_rejected_and_shell_characters_accepted() {
        check("a\0b", Err(PathError::Control(0)));
        check("a\nb", Err(PathError::Control(10)));
        check("a\u{1b}[2J", Err(PathError::Control(27)));
        check("a\u{85}", Err(PathError::Control(0x85)));
        check("a\u{2028}", Err(PathError::Control(0x2028)));
        check("-rf ~ $HOME *.rs", Ok("/r/-rf ~ $HOME *.rs"));
    }

    #[test]
    fn wildcards_are_rejected_as_names_and_accepted_in_names() {
        for name in ["*", "**"] {
            check(name, Err(PathError::Wildcard));
            check(&format!("/r/{name}/f"), Err(PathError::Wildcard));
            check(&format!("\u{e9}/{name}"), Err(PathError::Wildcard));
            let root = VirtualPath::parse("/r", None).unwrap();
            assert_eq!(root.join(name), Err(PathError::Wildcard));
        }
        check("/r/***/a*/.*", Ok("/r/***/a*/.*"));
    }

    #[test]
    fn empty_and_too_long_paths_are_rejected() {
        check(
            &"n".repeat(MAX_NAME),
            Ok(&format!("/r/{}", "n".repeat(MAX_NAME))),
        );
        check(&"n".repeat(MAX_NAME + 1), Err(PathError::TooLong));
        check(&"a/".repeat(MAX_DEPTH), Err(PathError::TooLong));
        check("", Err(PathError::Empty));
    }

    #[test]
    fn prefix_ends_at_a_component_boundary() {
        let root = VirtualPath::parse("/r", None).unwrap();
        let beneath = |text| {
            VirtualPath::parse(text, None)
                .unwrap()
                .beneath(&root)
                .map(str::to_owned)
        };
        assert_eq!(beneath("/r"), Some(String::new()));
        assert_eq!(beneath("/r/a/b"), Some("a/b".to_owned()));
        assert_eq!(beneath("/r-evil"), None);
        assert_eq!(beneath("/"), None);
    }

    proptest! {
        #![proptest_config(cases(256))]
        #[test]
        fn parsing_is_idempotent_and_removes_dots(text in "[a-c./\u{e9}]{0,40}") {
            let base = VirtualPath::parse("/r", None).unwrap();
            if let Ok(path) = VirtualPath::parse(&text, Some(&base)) {
                prop_assert_eq!(&VirtualPath::parse(path.as_str(), None).unwrap(), &path);
                prop_assert!(path.names().all(|name| name != "." && name != ".."));
            }
        }

        #[test]
        fn equivalent_spellings_parse_to_the_same_path(text in "(/[a-c\u{e9}\u{2028}]{0,2}){1,6}") {
            // The same names with a trailing `.`, so that the path is not plain.
            let resolved = VirtualPath::parse(&format!("{text}/."), None);
            prop_assert_eq!(VirtualPath::parse(&text, None), resolved);
        }

        #[test]
        fn parent_joined_with_name_is_the_path(text in "/[a-z]{1,3}(/[a-z]{1,3}){0,5}") {
            let path = VirtualPath::parse(&text, None).unwrap();
            let again = path.parent().unwrap().join(path.name().unwrap()).unwrap();
            prop_assert_eq!(again, path);
        }
    }
}
