//! Scopes: `verb:resource[:detail]`, the form of the needs of calls.

mod coverage;
mod marks;
mod operation;
mod pattern;
mod words;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::path::{PathError, VirtualPath};

pub use coverage::Coverage;
pub(crate) use coverage::{all_parts, beside, quoted};
#[doc(hidden)]
pub use marks::Marks;
pub use operation::{Operation, Operations, Reach};
pub use pattern::ScopePattern;
pub(crate) use words::words;

words! {
    /// A kind of access to a resource. No verb implies another: `write` does not cover `read`.
    pub enum Verb {
        /// Read its content, names and sizes, and check whether it exists.
        Read = "read",
        /// Create, change, move or remove it.
        Write = "write",
        /// Run it.
        Execute = "execute",
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Verb {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        Self::ALL
            .into_iter()
            .find(|verb| verb.as_str() == text)
            .ok_or_else(|| ScopeError::Verb(text.into()))
    }
}

/// Kind of resource of a scope: `file`, `command`, `network`, `mcp`, ...
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Files and directories; details are paths.
    File,
    /// Anything else; details are colon-separated segments.
    Other(Arc<str>),
}

impl Resource {
    /// Returns the resource as written in a scope.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::File => "file",
            Self::Other(name) => name,
        }
    }

    /// Whether it is the resource `network`, whose scopes also need the key `network`.
    pub(crate) fn is_network(&self) -> bool {
        self.as_str() == "network"
    }

    /// Whether it is the resource `command`, whose details are programs.
    pub(crate) fn is_command(&self) -> bool {
        self.as_str() == "command"
    }
}

impl FromStr for Resource {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let mut chars = text.chars();
        let plain = chars.next().is_some_and(|c| c.is_ascii_lowercase())
            && chars
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-'));
        match text {
            "file" => Ok(Self::File),
            _ if plain => Ok(Self::Other(text.into())),
            _ => Err(ScopeError::Resource(text.into())),
        }
    }
}

/// Why a text is not a scope or pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScopeError {
    /// The first segment is not `read`, `write` or `execute`.
    #[error("`{0}` is not a verb: use read, write or execute")]
    Verb(String),
    /// The second segment is not a lower-case name.
    #[error("`{0}` is not a resource: use a lower-case name such as file, command or mcp")]
    Resource(String),
    /// A segment between two colons is empty.
    #[error("`{0}` has an empty segment")]
    Empty(String),
    /// A segment given to [`Scope::new`] contains a colon.
    #[error("`{0}` contains `:`, so it is not one segment of a scope")]
    Colon(String),
    /// `*` is only valid as the whole last segment.
    #[error(
        "`{0}` has a `*` that is not allowed: a path covers everything beneath it without `/*`, in other scopes only the whole \
         last segment may be `*`, and globs match names"
    )]
    Star(String),
    /// The path of a file scope is not absolute and plain.
    #[error("`{0}` needs an absolute path without `.` and `..`")]
    Path(String, #[source] PathError),
    /// The path of a file scope contains `..`.
    #[error("`{0}` contains `..`")]
    Dots(String),
    /// It contains a control character.
    #[error("the scope contains a control character")]
    Control,
    /// A scope has no resource. Only a pattern may omit it.
    #[error("`{0}` names no resource")]
    Incomplete(String),
}

/// The last part of a scope.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Detail {
    /// The resource as a whole.
    None,
    /// A path, for files.
    Path(VirtualPath),
    /// Colon-separated segments, for everything else.
    Segments(Arc<str>),
}

/// What one call needs: always concrete, such as `write:file:/repo/src/x.rs`.
///
/// In addition to its text it has operations and a reach: by default all operations of its verb, and exactly the named
/// resource. Only grants use them; policies and the text form only distinguish verbs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    verb: Verb,
    resource: Resource,
    detail: Detail,
    operations: Operations,
    reach: Reach,
}

impl Scope {
    /// Creates a scope for a resource that is not a file, such as `execute:chat:alice`. Use it, and not the parser, if a
    /// segment comes from the arguments of a call: a grant of `execute:chat:alice` also covers `execute:chat:alice:x`.
    ///
    /// # Errors
    /// [`ScopeError`] if the resource is invalid, or a segment is empty or `*`, or contains `:` or a control character.
    ///
    /// ```
    /// use bailiwick::{Scope, Verb};
    /// assert_eq!(Scope::new(Verb::Execute, "chat", &["alice"])?.to_string(), "execute:chat:alice");
    /// assert!(Scope::new(Verb::Execute, "chat", &["alice:x"]).is_err());
    /// # Ok::<(), bailiwick::scope::ScopeError>(())
    /// ```
    pub fn new(verb: Verb, resource: &str, segments: &[&str]) -> Result<Self, ScopeError> {
        let mut text = format!("{verb}:{resource}");
        for segment in segments {
            if segment.contains(':') {
                return Err(ScopeError::Colon((*segment).into()));
            }
            text.push(':');
            text.push_str(segment);
        }
        text.parse()
    }

    /// Creates a scope for all operations of `verb` on the file or directory at `path`.
    #[must_use]
    pub fn file(verb: Verb, path: VirtualPath) -> Self {
        Self {
            verb,
            resource: Resource::File,
            detail: Detail::Path(path),
            operations: Operations::of(Some(verb)),
            reach: Reach::Exact,
        }
    }

    /// Creates a scope for only `operation` on the file or directory at `path`.
    #[must_use]
    pub fn doing(operation: Operation, path: VirtualPath) -> Self {
        Self::file(operation.verb(), path).only(operation.into())
    }

    /// Adds `operation`, if it belongs to the verb.
    #[must_use]
    pub fn or(mut self, operation: Operation) -> Self {
        if operation.verb() == self.verb {
            self.operations = self.operations | operation.into();
        }
        self
    }

    /// Restricts it to those of `operations` that belong to its verb, or to all operations if none of them does.
    #[must_use]
    pub fn only(mut self, operations: Operations) -> Self {
        let of_verb = Operations::of(Some(self.verb));
        let only = operations.intersection(of_verb);
        self.operations = if only.is_empty() { of_verb } else { only };
        self
    }

    /// Extends it to everything beneath the resource.
    #[must_use]
    pub fn beneath(mut self) -> Self {
        self.reach = Reach::Beneath;
        self
    }

    /// Returns the scope for all operations of `verb` on the same resource.
    #[must_use]
    pub fn with_verb(&self, verb: Verb) -> Self {
        Self {
            verb,
            operations: Operations::of(Some(verb)),
            ..self.clone()
        }
    }

    /// Returns the same scope for the file or directory at `path`.
    pub(crate) fn at(&self, path: VirtualPath) -> Self {
        Self {
            resource: Resource::File,
            detail: Detail::Path(path),
            ..self.clone()
        }
    }

    /// Returns the operations.
    #[must_use]
    pub fn operations(&self) -> Operations {
        self.operations
    }

    /// Returns the reach.
    #[must_use]
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Returns whether this includes `other`.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        Coverage::of(self).covers(other)
    }

    /// Returns the verb.
    #[must_use]
    pub fn verb(&self) -> Verb {
        self.verb
    }

    /// Returns the kind of resource.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Returns the detail.
    #[must_use]
    pub fn detail(&self) -> &Detail {
        &self.detail
    }

    /// Returns the path, if this is a file scope.
    #[must_use]
    pub fn path(&self) -> Option<&VirtualPath> {
        match &self.detail {
            Detail::Path(path) => Some(path),
            Detail::None | Detail::Segments(_) => None,
        }
    }
}

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let pattern: ScopePattern = text.parse()?;
        // The name of a file may end like this.
        let is_path = matches!(pattern.detail, Detail::Path(_));
        match (pattern.verb, pattern.resource) {
            (Some(verb), Some(resource)) if is_path || !text.ends_with(":*") => Ok(Self {
                verb,
                resource,
                detail: pattern.detail,
                operations: Operations::of(Some(verb)),
                reach: Reach::Exact,
            }),
            (Some(_), Some(_)) => Err(ScopeError::Star(text.into())),
            _ => Err(ScopeError::Incomplete(text.into())),
        }
    }
}

fn write_parts(
    f: &mut fmt::Formatter<'_>,
    verb: &str,
    resource: Option<&str>,
    detail: &Detail,
) -> fmt::Result {
    f.write_str(verb)?;
    match (resource, detail) {
        (None, _) => Ok(()),
        (Some(resource), Detail::None) => write!(f, ":{resource}"),
        (Some(resource), Detail::Path(path)) => write!(f, ":{resource}:{path}"),
        (Some(resource), Detail::Segments(segments)) => write!(f, ":{resource}:{segments}"),
    }
}

impl Scope {
    /// The text without the marks of MCP servers and tools, as models know them: `read:mcp:SERVER:TOOL`.
    pub(crate) fn without_marks(&self) -> String {
        let text = self.to_string();
        if self.resource.as_str() != "mcp" {
            return text;
        }
        let segments = text.split(':').map(|segment| {
            let (name, _mark) = segment.split_once('~').unwrap_or((segment, ""));
            name
        });
        segments.collect::<Vec<_>>().join(":")
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_parts(
            f,
            self.verb.as_str(),
            Some(self.resource.as_str()),
            &self.detail,
        )
    }
}

macro_rules! text_form {
    ($type:ty) => {
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "\"{self}\"")
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
text_form!(Scope);
text_form!(ScopePattern);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> ScopePattern {
        text.parse().unwrap()
    }

    #[track_caller]
    fn check(rule: &str, need: &str, covered: bool) {
        let (rule, need) = (pattern(rule), need.parse::<Scope>().unwrap());
        assert_eq!(rule.covers(&need), covered, "{rule} {need}");
        assert_eq!(
            rule.covers_pattern(&ScopePattern::of(&need)),
            covered,
            "{rule} {need}"
        );
    }

    #[test]
    fn wildcard_spellings_are_equal() {
        for text in ["read", "read:*", "read:*:*"] {
            assert_eq!(pattern(text), pattern("read"));
        }
        for text in ["*", "*:*", "*:*:*"] {
            assert_eq!(pattern(text), ScopePattern::ANY);
        }
        assert_eq!(pattern("execute:cli:git:*"), pattern("execute:cli:git"));
        assert_eq!(pattern("write:file:/p/"), pattern("write:file:/p"));
        assert_eq!(pattern("*:file:/p").to_string(), "*:file:/p");
    }

    #[test]
    fn name_of_a_file_may_end_like_a_wildcard() {
        let path = VirtualPath::parse("/e:*", None).unwrap();
        let need = Scope::file(Verb::Write, path);
        assert_eq!(need.to_string().parse::<Scope>().as_ref(), Ok(&need));
        assert!(pattern("write:file:/e:*").covers(&need));
        check("write:file:/e:*", "write:file:/e:x", false);
        for wildcard in ["write:file:*", "write:file:/e/*", "execute:cli:git:*"] {
            assert!(matches!(
                wildcard.parse::<Scope>(),
                Err(ScopeError::Star(_))
            ));
        }
    }

    proptest! {
        #![proptest_config(crate::cases::cases(256))]

        #[test]
        fn scope_of_every_path_is_read_back(text in "/(\\*|\\*\\*|[*:.~%a\u{e9}]{1,3})(/(\\*|\\*\\*|[*:.~%a]{1,3})){0,2}") {
            if let Ok(path) = VirtualPath::parse(&text, None) {
                let need = Scope::file(Verb::Write, path);
                prop_assert_eq!(need.to_string().parse(), Ok(need.clone()));
                let pattern = ScopePattern::of(&need);
                prop_assert_eq!(pattern.to_string().parse(), Ok(pattern));
            }
        }
    }

    #[test]
    fn path_is_covered_by_itself_and_its_ancestors() {
        check("write:file:/p/to", "write:file:/p/to", true);
        check("write:file:/p/to", "write:file:/p/to/x", true);
        check("write:file:/p/to", "write:file:/p/tox", false);
        check("write:file:/p/to", "write:file:/p", false);
        check("write:file:/", "write:file:/p", true);
        check("write:file:/p", "write:file", false);
        check("write:file:/P", "write:file:/p", false);
    }

    #[test]
    fn verbs_and_resources_do_not_imply_others() {
        check("write", "read:file:/p", false);
        check("write", "write:database:t", true);
        check("write:file", "write:database:t", false);
        check("*:database", "write:database:t", true);
        check("*:database", "write:file:/t", false);
    }

    #[test]
    fn segments_are_compared_whole() {
        check("execute:cli:safe", "execute:cli:safe:ls", true);
        check("execute:cli:safe", "execute:cli:safest:ls", false);
        check("execute:cli:safe:ls", "execute:cli:safe", false);
    }

    #[test]
    fn unmarked_server_covers_every_mark() {
        check("write:mcp:disk", "write:mcp:disk~1:edit~2", true);
        check("write:mcp:disk:edit", "write:mcp:disk~1:edit~2", true);
        check("write:mcp:disk~1", "write:mcp:disk~1:edit~2", true);
        check("write:mcp:disk~1:edit", "write:mcp:disk~1:edit~2", true);
        check("write:mcp:disk~2", "write:mcp:disk~1:edit~2", false);
        check("write:mcp:disk:edit~3", "write:mcp:disk~1:edit~2", false);
        check("write:mcp:dis", "write:mcp:disk~1:edit~2", false);
        check("write:mcp:disk~", "write:mcp:disk~1:edit~2", false);
        check("write:mcp:disk:edit:x", "write:mcp:disk~1:edit~2", false);
        // Only a server and its tool have marks.
        check("write:mcp:disk:file:a", "write:mcp:disk~1:file:a", true);
        check("write:mcp:disk:file:a", "write:mcp:disk~1:file:a~b", false);
        check("write:clock:disk", "write:clock:disk~1", false);
    }

    #[test]
    fn overlap_is_symmetric_for_marked_names() {
        let overlap = |one: &str, other: &str, expected| {
            let (one, other) = (pattern(one), pattern(other));
            assert_eq!(one.overlaps(&other), expected, "{one} and {other}");
            assert_eq!(other.overlaps(&one), expected, "{other} and {one}");
        };
        overlap("write:mcp:disk:edit", "write:mcp:disk~1", true);
        overlap("write:mcp:disk~1:edit", "write:mcp:disk:edit~2", true);
        overlap("write:mcp:disk", "write:mcp:disk~1:edit~2", true);
        overlap("write", "write:mcp:disk~1:edit~2", true);
        overlap("write:mcp:disk~2:edit", "write:mcp:disk~1", false);
        overlap("write:mcp:disk:read", "write:mcp:disk~1:edit~2", false);
        overlap("write:mcp:dis:edit", "write:mcp:disk~1", false);
        overlap("write:clock:disk", "write:clock:disk~1", false);
        overlap("write:file:/r/a", "write:file:/r", true);
        overlap("write:file:/r/a", "write:file:/r/b", false);
    }

    #[test]
    fn grants_bind_to_marks() {
        let binds = |rule: &str, need: &str| pattern(rule).binds(&need.parse().unwrap());
        assert!(binds("write:mcp:disk~1:edit~2", "write:mcp:disk~1:edit~2"));
        assert!(binds("write:mcp:disk~1", "write:mcp:disk~1:edit~2"));
        assert!(binds("write:mcp", "write:mcp:disk~1:edit~2"));
        assert!(binds("write:mcp:disk", "write:mcp:disk:file:a"));
        assert!(!binds("write:mcp:disk", "write:mcp:disk~1:edit~2"));
        assert!(!binds("write:mcp:disk~1:edit", "write:mcp:disk~1:edit~2"));
        assert!(!binds("write:mcp:disk~2", "write:mcp:disk~1:edit~2"));
        assert!(binds("write:file:/a", "write:file:/a/b~1"));
    }

    #[test]
    fn marked_as_adds_the_marks_of_the_scope() {
        let marked = |rule: &str, need: &str| {
            let marked = pattern(rule).marked_as(&need.parse().unwrap());
            marked.map(|pattern| pattern.to_string())
        };
        let need = "write:mcp:disk~1:edit~2";
        assert_eq!(marked("write:mcp:disk", need).unwrap(), "write:mcp:disk~1");
        assert_eq!(marked("write:mcp:disk:edit", need).unwrap(), need);
        assert_eq!(marked("write:mcp:disk~1:edit", need).unwrap(), need);
        assert_eq!(marked("write", need).unwrap(), "write");
        assert_eq!(marked("write:mcp:disk~9", need), None);
        assert_eq!(
            marked("write:file:/a", "write:file:/a/b").unwrap(),
            "write:file:/a"
        );
    }

    #[test]
    fn narrower_pattern_does_not_cover_a_wider_one() {
        assert!(pattern("*").covers_pattern(&pattern("read")));
        assert!(!pattern("read").covers_pattern(&pattern("*")));
        assert!(!pattern("read:file").covers_pattern(&pattern("read")));
        assert!(!pattern("read:file:/p").covers_pattern(&pattern("read:file")));
        assert!(pattern("read:file").covers_pattern(&pattern("read:file:/p")));
    }

    #[test]
    fn invalid_scopes_are_rejected() {
        let refused = |text: &str| text.parse::<ScopePattern>().is_err();
        for text in [
            "",
            "fly",
            "read:File",
            "read:",
            "write:file:p",
            "write:file:/p/../q",
            "write:file:/p/*",
        ] {
            assert!(refused(text), "{text}");
        }
        for text in [
            "execute:cli::x",
            "execute:cli:*:x",
            "*:*:/p",
            "read:file:/a\0b",
            "read:file:/a\nb",
            "rea*",
        ] {
            assert!(refused(text), "{text}");
        }
        for text in ["read", "read:*", "*:file", "read:file:*", "execute:cli:*"] {
            assert!(
                text.parse::<Scope>().is_err() || !text.contains('*'),
                "{text}"
            );
        }
        assert_eq!(
            "read".parse::<Scope>(),
            Err(ScopeError::Incomplete("read".to_owned()))
        );
        assert!("read:file:/a:b".parse::<Scope>().is_ok());
    }
}
