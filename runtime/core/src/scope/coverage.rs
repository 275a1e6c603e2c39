//! What a grant covers: a scope pattern, a reach and a set of operations.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error as _, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

use super::{Detail, Operations, Reach, Resource, Scope, ScopeError, ScopePattern, Verb};
use crate::path::VirtualPath;
use crate::tool::{GET_PROMPT, READ_RESOURCE};

/// What a grant covers.
///
/// A bare pattern, parsed from text or converted from a [`ScopePattern`], covers everything beneath it and all
/// operations of its verb. The choices in a question ([`Choice`](crate::permission::Choice)) have a reach and
/// operations.
///
/// As JSON it is an object with `pattern`, `reach` and `operations`; a string is parsed as a bare pattern.
///
/// ```
/// use bailiwick::scope::{Coverage, Operation};
/// use bailiwick::{Scope, VirtualPath};
/// let path = VirtualPath::parse("/repo/x", None)?;
/// let asked = Coverage::of(&Scope::doing(Operation::Change, path.clone()));
/// assert!(!asked.covers(&Scope::doing(Operation::Delete, path.clone())));
/// let bare: Coverage = "write:file:/repo".parse()?;
/// assert!(bare.covers(&Scope::doing(Operation::Delete, path)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Coverage {
    pattern: ScopePattern,
    reach: Reach,
    operations: Operations,
}

impl Coverage {
    /// Covers exactly `need`.
    #[must_use]
    pub fn of(need: &Scope) -> Self {
        Self {
            pattern: ScopePattern::of(need),
            reach: need.reach(),
            operations: need.operations(),
        }
    }

    /// Covers `pattern` with this reach and with those of `operations` that belong to its verb. `None` if there are
    /// none.
    #[must_use]
    pub fn new(pattern: ScopePattern, reach: Reach, operations: Operations) -> Option<Self> {
        let operations = operations.intersection(Operations::of(pattern.verb()));
        (!operations.is_empty()).then_some(Self {
            pattern,
            reach,
            operations,
        })
    }

    /// Returns the pattern.
    #[must_use]
    pub fn pattern(&self) -> &ScopePattern {
        &self.pattern
    }

    /// Returns the reach.
    #[must_use]
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Returns the operations.
    #[must_use]
    pub fn operations(&self) -> Operations {
        self.operations
    }

    /// Returns the path of the pattern, if any.
    #[must_use]
    pub fn path(&self) -> Option<&VirtualPath> {
        self.pattern.path()
    }

    /// Returns whether it covers `need`. An MCP server or tool must be named with its mark, which identifies what the
    /// server runs or the definition of the tool.
    #[must_use]
    pub fn covers(&self, need: &Scope) -> bool {
        let resource = Some(need.resource());
        self.pattern.binds(need)
            && self.spans(need.operations(), need.reach(), resource, need.detail())
    }

    /// Returns whether a call with this need does something that it covers: some of the operations, on the same resource.
    pub(crate) fn meets(&self, need: &Scope) -> bool {
        let same = || {
            self.pattern.resource() == Some(need.resource())
                && self.pattern.detail == *need.detail()
        };
        self.pattern.binds(need)
            && !self.operations.intersection(need.operations()).is_empty()
            && (self.reach == Reach::Beneath || same())
    }

    /// Returns whether it covers everything that `other` covers.
    #[must_use]
    pub fn includes(&self, other: &Self) -> bool {
        let pattern = &other.pattern;
        self.pattern.covers_pattern(pattern)
            && self.spans(
                other.operations,
                other.reach,
                pattern.resource(),
                &pattern.detail,
            )
    }

    /// Whether its operations and reach include these, and its pattern covers the resource and detail.
    fn spans(
        &self,
        operations: Operations,
        reach: Reach,
        resource: Option<&Resource>,
        detail: &Detail,
    ) -> bool {
        let same = || self.pattern.resource() == resource && self.pattern.detail == *detail;
        self.operations.includes(operations)
            && (self.reach == Reach::Beneath || reach == Reach::Exact && same())
    }

    /// The same reach and operations with another pattern, if they belong to its verb.
    pub(crate) fn with_pattern(&self, pattern: ScopePattern) -> Option<Self> {
        Self::new(pattern, self.reach, self.operations)
    }

    /// Returns whether it equals a bare pattern.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        *self == Self::from(self.pattern.clone())
    }

    /// Returns what it allows, as a sentence for people. Ambiguous paths are quoted.
    #[must_use]
    pub fn sentence(&self) -> String {
        self.described(false)
    }

    /// What it allows a single call, whose arguments are known.
    pub(crate) fn sentence_of_call(&self) -> String {
        self.described(true)
    }

    fn described(&self, one_call: bool) -> String {
        let Self {
            pattern,
            reach,
            operations,
        } = self;
        let all = all_in(*reach);
        if let Some(segments) = pattern.mcp() {
            let given = if one_call {
                ""
            } else {
                ", whatever it is given"
            };
            return of_server(*operations, *reach, segments, given);
        }
        match (pattern.resource(), &pattern.detail) {
            (_, Detail::Path(path)) => format!("{operations} {}{all}", quoted(path.as_str())),
            (Some(resource), detail) if *operations == Operations::of(Some(Verb::Execute)) => {
                let arguments = if one_call { "" } else { " with any arguments" };
                executing(resource, detail, *reach, arguments)
            }
            (Some(resource), Detail::Segments(segments)) => {
                format!(
                    "{operations} {} {}{all}",
                    resource.as_str(),
                    quoted(segments)
                )
            }
            (Some(Resource::File), Detail::None) => {
                format!("{operations} every file that may be granted")
            }
            (Some(resource), Detail::None) => format!("{operations} {}{all}", resource.as_str()),
            (None, _) => format!("{operations} everything that may be granted"),
        }
    }
}

/// The sentence for executing: for commands and hosts in words of their own.
fn executing(resource: &Resource, detail: &Detail, reach: Reach, arguments: &str) -> String {
    let name = match detail {
        Detail::None => None,
        Detail::Segments(name) => Some(quoted(name)),
        Detail::Path(path) => Some(quoted(path.as_str())),
    };
    match (resource.as_str(), name) {
        ("command", None) => "run every command".to_owned(),
        ("command", Some(name)) => match reach {
            Reach::Exact => format!("run {name}{arguments}"),
            Reach::Beneath => format!("run {name} and its subcommands{arguments}"),
        },
        ("network", None) => "connect to every host".to_owned(),
        ("network", Some(host)) => {
            let every_port = reach == Reach::Beneath && !host.contains(':');
            let ports = if every_port { " on every port" } else { "" };
            format!("connect to {host}{ports}")
        }
        (other, None) => format!("execute {other}{}", all_in(reach)),
        (other, Some(name)) => format!("execute {other} {name}{}", all_in(reach)),
    }
}

fn all_in(reach: Reach) -> &'static str {
    match reach {
        Reach::Exact => "",
        Reach::Beneath => " and everything in it",
    }
}

/// The sentence for a server, or for a tool, resource or prompt of it, without marks.
fn of_server(operations: Operations, reach: Reach, segments: &str, given: &str) -> String {
    let named = |text: &str| quoted(text.split('~').next().unwrap_or(text));
    let mut parts = segments.splitn(3, ':');
    let server = named(parts.next().unwrap_or_default());
    match (parts.next(), parts.next()) {
        (None, _) => {
            format!(
                "{operations} things with every tool, resource and prompt of {server}{given}, and with what it asks for"
            )
        }
        (Some(READ_RESOURCE), None) => format!("{operations} every resource of {server}"),
        (Some(READ_RESOURCE), Some(uri)) => {
            format!(
                "{operations} the resource {} of {server}",
                quoted(&unescaped(uri))
            )
        }
        (Some(GET_PROMPT), None) => format!("{operations} every prompt of {server}"),
        (Some(GET_PROMPT), Some(name)) => {
            format!(
                "{operations} the prompt {} of {server}",
                quoted(&unescaped(name))
            )
        }
        (Some(tool), None) => {
            let more = match reach {
                Reach::Exact => "",
                Reach::Beneath => ", and with what it asks for",
            };
            format!(
                "{operations} things with {} of {server}{given}{more}",
                named(tool)
            )
        }
        (Some(kind), Some(rest)) => {
            let all = all_in(reach);
            format!(
                "{operations} {} {} of {server}{all}",
                named(kind),
                quoted(rest)
            )
        }
    }
}

/// A segment as its server named it.
fn unescaped(segment: &str) -> String {
    let text = segment.replace("%3A", ":").replace("%2A", "*");
    text.replace("%7E", "~").replace("%25", "%")
}

/// The text, quoted if necessary.
pub(crate) fn quoted(text: &str) -> String {
    let plain =
        |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | ':' | '@' | '+');
    if text.chars().all(plain) {
        return text.to_owned();
    }
    let inner = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{inner}\"")
}

impl From<ScopePattern> for Coverage {
    fn from(pattern: ScopePattern) -> Self {
        Self {
            reach: Reach::Beneath,
            operations: Operations::of(pattern.verb()),
            pattern,
        }
    }
}

impl FromStr for Coverage {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        text.parse().map(ScopePattern::into)
    }
}

/// The pattern, followed by reach and operations in brackets if it is not bare.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pattern.fmt(f)?;
        match self.reach {
            _ if self.is_bare() => Ok(()),
            Reach::Exact => write!(f, " (only {})", self.operations),
            Reach::Beneath => write!(f, " (only {}, and everything in it)", self.operations),
        }
    }
}

impl fmt::Debug for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// The object form; reach and operations are both present or both absent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    pattern: ScopePattern,
    reach: Option<Reach>,
    operations: Option<Operations>,
}

impl Form {
    fn coverage<E: serde::de::Error>(self) -> Result<Coverage, E> {
        match (self.reach, self.operations) {
            (None, None) => Ok(self.pattern.into()),
            (Some(reach), Some(operations)) => {
                let whole = Operations::of(self.pattern.verb()).includes(operations);
                Coverage::new(self.pattern, reach, operations)
                    .filter(|_| whole)
                    .ok_or_else(|| {
                        E::custom("`operations` must name operations of the pattern's verb")
                    })
            }
            _ => Err(E::custom("`reach` and `operations` must be given together")),
        }
    }
}

/// Parses the three members among others, which are ignored.
pub(crate) fn beside<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Coverage, D::Error> {
    #[derive(Deserialize)]
    #[serde(remote = "Form")]
    struct Beside {
        pattern: ScopePattern,
        reach: Option<Reach>,
        operations: Option<Operations>,
    }

    Beside::deserialize(deserializer)?.coverage()
}

/// Parses the object form with exactly the three members.
pub(crate) fn all_parts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Coverage, D::Error> {
    // This parses a map, since a struct would only receive its own members.
    let members = serde_json::Map::deserialize(deserializer)?;
    let form = Form::deserialize(serde_json::Value::Object(members)).map_err(D::Error::custom)?;
    if form.reach.is_none() {
        return Err(D::Error::custom("`reach` and `operations` are missing"));
    }
    form.coverage()
}

impl<'de> Deserialize<'de> for Coverage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Coverage;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a scope pattern, or an object with `pattern`, `reach` and `operations`",
                )
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Coverage, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Coverage, M::Error> {
                Form::deserialize(MapAccessDeserializer::new(map))?.coverage()
            }
        }

        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::Operation;

    fn need(text: &str, operations: &[Operation]) -> Scope {
        let scope: Scope = text.parse().unwrap();
        scope.only(operations.iter().copied().collect())
    }

    #[test]
    fn exact_coverage_covers_only_its_path_and_operations() {
        use Operation::{Change, Create, Delete};
        let file = Coverage::of(&need("write:file:/r/a", &[Create, Change]));
        assert!(file.covers(&need("write:file:/r/a", &[Create])));
        assert!(file.covers(&need("write:file:/r/a", &[Create, Change])));
        assert!(!file.covers(&need("write:file:/r/a", &[Delete])));
        assert!(!file.covers(&need("write:file:/r/a", &[Change, Delete])));
        assert!(!file.covers(&need("write:file:/r/a/b", &[Create])));
        assert!(!file.covers(&need("write:file:/r/a", &[Create]).beneath()));
        assert!(!file.covers(&need("read:file:/r/a", &[Operation::Read])));
        let tree = Coverage::of(&need("write:file:/r", &[Delete]).beneath());
        assert!(tree.covers(&need("write:file:/r/a", &[Delete]).beneath()));
        assert!(!tree.covers(&need("write:file:/r/a", &[Change])));
        assert!(!tree.covers(&need("write:file:/rx", &[Delete])));
        let bare: Coverage = "write:file:/r".parse().unwrap();
        for other in [&file, &tree] {
            assert!(bare.includes(other) && !other.includes(&bare));
        }
        assert!(!file.includes(&tree) && !tree.includes(&file));
    }

    #[test]
    fn sentence_names_operations_path_and_reach() {
        use Operation::{Change, Delete, Read};
        let check = |coverage: &Coverage, expected: &str| {
            assert_eq!(coverage.sentence(), expected, "{coverage}");
        };
        check(
            &Coverage::of(&need("write:file:/r/a", &[Change])),
            "change /r/a",
        );
        check(
            &Coverage::of(&need("read:file:/r/a, b", &[Read])),
            "read \"/r/a, b\"",
        );
        let tree = need("write:file:/r", &[Delete, Change]).beneath();
        check(
            &Coverage::of(&tree),
            "change or delete /r and everything in it",
        );
        for (bare, expected) in [
            (
                "write:file",
                "create, change, delete or move every file that may be granted",
            ),
            ("execute:cli:git", "execute cli git and everything in it"),
            ("execute:cli", "execute cli and everything in it"),
            ("execute:command", "run every command"),
            (
                "execute:command:git",
                "run git and its subcommands with any arguments",
            ),
            ("execute:network", "connect to every host"),
            (
                "execute:network:crates.io",
                "connect to crates.io on every port",
            ),
            ("execute:network:crates.io:443", "connect to crates.io:443"),
            (
                "*",
                "read, create, change, delete, move or execute everything that may be granted",
            ),
            (
                "read:mcp:hub~1",
                "read things with every tool, resource and prompt of hub, whatever it is given, and with what it asks for",
            ),
            (
                "read:mcp:hub~1:resources/read",
                "read every resource of hub",
            ),
            (
                "read:mcp:hub~1:resources/read:doc%3A//a%20b%7E",
                "read the resource \"doc://a%20b~\" of hub",
            ),
            ("read:mcp:hub~1:prompts/get", "read every prompt of hub"),
            (
                "read:mcp:hub~1:prompts/get:review",
                "read the prompt review of hub",
            ),
            (
                "execute:mcp:hub~1:push~2",
                "execute things with push of hub, whatever it is given, and with what it asks for",
            ),
        ] {
            check(&bare.parse().unwrap(), expected);
        }
    }

    #[test]
    fn json_has_three_members_and_text_is_a_bare_pattern() {
        let file = Coverage::of(&need("write:file:/r/a", &[Operation::Change]));
        let json = serde_json::json!({"pattern": "write:file:/r/a", "reach": "exact", "operations": ["change"]});
        assert_eq!(serde_json::to_value(&file).unwrap(), json);
        assert_eq!(serde_json::from_value::<Coverage>(json).unwrap(), file);
        let bare: Coverage = "write:file:/r".parse().unwrap();
        for text in [r#""write:file:/r""#, r#"{"pattern":"write:file:/r"}"#] {
            assert_eq!(serde_json::from_str::<Coverage>(text).unwrap(), bare);
        }
        for wrong in [
            r#"{"pattern":"write:file:/r","reach":"exact"}"#,
            r#"{"pattern":"write:file:/r","operations":["change"]}"#,
            r#"{"pattern":"write:file:/r","reach":"exact","operations":[]}"#,
            r#"{"pattern":"write:file:/r","reach":"exact","operations":["change","read"]}"#,
            r#"{"pattern":"write:file:/r","reach":"near","operations":["change"]}"#,
            r#"{"pattern":"write:file:/r","more":1}"#,
        ] {
            assert!(serde_json::from_str::<Coverage>(wrong).is_err(), "{wrong}");
        }
    }
}
