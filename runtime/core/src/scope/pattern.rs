//! Scope patterns: `verb[:resource[:detail]]`, the form of rules.

use std::fmt;
use std::str::FromStr;

use super::{Detail, Operations, Reach, Resource, Scope, ScopeError, Verb, write_parts};
use crate::path::VirtualPath;

/// Pattern of scopes, such as `read`, `read:*` or `write:file:/repo/src`. Its last parts may be omitted.
///
/// ```
/// use bailiwick::Scope;
/// use bailiwick::scope::ScopePattern;
/// let rule: ScopePattern = "write:file:/p/to".parse()?;
/// assert!(rule.covers(&"write:file:/p/to/x".parse::<Scope>()?));
/// assert!(!rule.covers(&"write:file:/p/tox".parse::<Scope>()?));
/// assert!(!rule.covers(&"read:file:/p/to/x".parse::<Scope>()?));
/// # Ok::<(), bailiwick::scope::ScopeError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopePattern {
    pub(super) verb: Option<Verb>,
    pub(super) resource: Option<Resource>,
    pub(super) detail: Detail,
}

impl ScopePattern {
    /// The pattern that covers every scope, `*`.
    pub const ANY: Self = Self {
        verb: None,
        resource: None,
        detail: Detail::None,
    };

    /// Returns the pattern that covers exactly `scope` and everything beneath it.
    #[must_use]
    pub fn of(scope: &Scope) -> Self {
        Self {
            verb: Some(scope.verb),
            resource: Some(scope.resource.clone()),
            detail: scope.detail.clone(),
        }
    }

    /// Returns the verb that it is limited to, if any.
    #[must_use]
    pub fn verb(&self) -> Option<Verb> {
        self.verb
    }

    /// Returns the resource that it is limited to, if any.
    #[must_use]
    pub fn resource(&self) -> Option<&Resource> {
        self.resource.as_ref()
    }

    /// Returns the path that it is limited to, if any.
    #[must_use]
    pub fn path(&self) -> Option<&VirtualPath> {
        match &self.detail {
            Detail::Path(path) => Some(path),
            Detail::None | Detail::Segments(_) => None,
        }
    }

    /// Everything of a resource.
    pub(crate) fn of_resource(resource: Resource) -> Self {
        Self {
            resource: Some(resource),
            ..Self::ANY
        }
    }

    /// The same for every verb.
    pub(crate) fn of_any_verb(&self) -> Self {
        Self {
            verb: None,
            ..self.clone()
        }
    }

    /// A need of a resource that is not a file: the entry `name` beneath this pattern.
    pub(crate) fn need_beneath(&self, verb: Verb, name: &str) -> Scope {
        let segments = match &self.detail {
            Detail::Segments(segments) => format!("{segments}:{name}"),
            Detail::None | Detail::Path(_) => name.to_owned(),
        };
        Scope {
            verb,
            resource: self
                .resource
                .clone()
                .unwrap_or(Resource::Other(name.into())),
            detail: Detail::Segments(segments.into()),
            operations: Operations::of(Some(verb)),
            reach: Reach::Exact,
        }
    }

    /// Whether it may cover files.
    pub(crate) fn is_of_files(&self) -> bool {
        matches!(self.resource, None | Some(Resource::File))
    }

    /// Whether it may cover files at, beneath or above `path`.
    pub(crate) fn touches(&self, path: &VirtualPath) -> bool {
        self.is_of_files() && self.path().is_none_or(|own| own.touches(path))
    }

    /// Returns whether it covers `scope`.
    #[must_use]
    pub fn covers(&self, scope: &Scope) -> bool {
        self.verb.is_none_or(|verb| verb == scope.verb)
            && self
                .resource
                .as_ref()
                .is_none_or(|resource| *resource == scope.resource)
            && detail_covers(&self.detail, &scope.detail, is_mcp(Some(&scope.resource)))
    }

    /// Everything of the verb and the resource of `scope`.
    pub(crate) fn kind_of(scope: &Scope) -> Self {
        Self {
            detail: Detail::None,
            ..Self::of(scope)
        }
    }

    /// Like [`ScopePattern::covers`], but an MCP server or tool must be named with its mark, since a grant is bound to
    /// the form that the server or tool had when the grant was given.
    #[must_use]
    pub(crate) fn binds(&self, scope: &Scope) -> bool {
        self.covers(scope) && strictly(&self.detail, &scope.detail)
    }

    /// This pattern with the marks of `scope`, where it names an MCP server or tool without a mark. `None` if it does
    /// not cover `scope`.
    #[must_use]
    pub(crate) fn marked_as(&self, scope: &Scope) -> Option<Self> {
        if !self.covers(scope) {
            return None;
        }
        let (Detail::Segments(rule), Detail::Segments(need)) = (&self.detail, &scope.detail) else {
            return Some(self.clone());
        };
        let both = rule.split(':').zip(need.split(':'));
        let marked: Vec<&str> = both.map(|(_, need)| need).collect();
        Some(self.with_segments(&marked.join(":")))
    }

    /// The segments of a pattern of MCP, if it has any.
    pub(crate) fn mcp(&self) -> Option<&str> {
        match &self.detail {
            Detail::Segments(segments) if is_mcp(self.resource()) => Some(segments),
            _ => None,
        }
    }

    pub(crate) fn with_segments(&self, segments: &str) -> Self {
        Self {
            detail: Detail::Segments(segments.into()),
            ..self.clone()
        }
    }

    /// Returns whether it covers everything that `other` covers.
    #[must_use]
    pub fn covers_pattern(&self, other: &Self) -> bool {
        (self.verb.is_none() || self.verb == other.verb)
            && (self.resource.is_none() || self.resource == other.resource)
            && detail_covers(&self.detail, &other.detail, is_mcp(other.resource()))
    }

    /// Returns whether there may be a scope that both cover.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        fn agree<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> bool {
            one.is_none() || other.is_none() || one == other
        }
        agree(self.verb.as_ref(), other.verb.as_ref())
            && agree(self.resource.as_ref(), other.resource.as_ref())
            && detail_meets(&self.detail, &other.detail, is_mcp(self.resource()))
    }
}

/// How many segments of an `mcp` scope may have a mark: the server and its tool.
const MARKED: usize = 2;

/// Whether the first segments may have marks, as those of `write:mcp:SERVER~MARK:TOOL~MARK`.
fn is_mcp(resource: Option<&Resource>) -> bool {
    resource.is_some_and(|resource| resource.as_str() == "mcp")
}

/// A path prefix for files, a segment prefix for other resources. A rule without a detail covers all. A segment without
/// a mark covers the same name with any mark.
fn detail_covers(rule: &Detail, need: &Detail, marked: bool) -> bool {
    match (rule, need) {
        (Detail::None, _) => true,
        (Detail::Path(rule), Detail::Path(need)) => need.starts_with(rule),
        (Detail::Segments(rule), Detail::Segments(need)) => {
            let mut segments = need.split(':');
            rule.split(':').enumerate().all(|(index, rule)| {
                let need = segments.next();
                need.is_some_and(|need| names(rule, need, marked && index < MARKED))
            })
        }
        (Detail::Path(_) | Detail::Segments(_), _) => false,
    }
}

/// Whether both details may overlap.
fn detail_meets(one: &Detail, other: &Detail, marked: bool) -> bool {
    match (one, other) {
        (Detail::None, _) | (_, Detail::None) => true,
        (Detail::Path(one), Detail::Path(other)) => one.touches(other),
        (Detail::Segments(one), Detail::Segments(other)) => {
            let mut both = one.split(':').zip(other.split(':')).enumerate();
            both.all(|(index, (one, other))| {
                let marked = marked && index < MARKED;
                names(one, other, marked) || names(other, one, marked)
            })
        }
        (Detail::Path(_), Detail::Segments(_)) | (Detail::Segments(_), Detail::Path(_)) => false,
    }
}

/// Whether a segment of a rule matches that of a need: equal, or without the mark of the need.
fn names(rule: &str, need: &str, marked: bool) -> bool {
    rule == need || (marked && need.split_once('~').is_some_and(|(name, _)| name == rule))
}

/// Whether both names are equal, including marks.
fn strictly(rule: &Detail, need: &Detail) -> bool {
    match (rule, need) {
        (Detail::Segments(_), Detail::Segments(_)) => detail_covers(rule, need, false),
        _ => true,
    }
}

impl FromStr for ScopePattern {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        if text.chars().any(char::is_control) {
            return Err(ScopeError::Control);
        }
        let mut parts = text.splitn(3, ':');
        let verb = star(parts.next().unwrap_or_default());
        let resource = parts.next();
        let detail = parts.next();
        if verb.is_none() && (resource, detail) == (None, None) {
            return Ok(Self::ANY);
        }
        let verb = verb.map(str::parse).transpose()?;
        let resource = resource.and_then(star).map(str::parse).transpose()?;
        let detail = match (&resource, detail.and_then(star)) {
            (_, None) => Detail::None,
            (None, Some(_)) => return Err(ScopeError::Star(text.into())),
            (Some(Resource::File), Some(path)) => file_detail(text, path)?,
            (Some(Resource::Other(_)), Some(segments)) => segment_detail(text, segments)?,
        };
        Ok(Self {
            verb,
            resource,
            detail,
        })
    }
}

fn star(segment: &str) -> Option<&str> {
    (segment != "*").then_some(segment)
}

fn file_detail(whole: &str, path: &str) -> Result<Detail, ScopeError> {
    if path.split('/').any(|name| name == "..") {
        return Err(ScopeError::Dots(whole.into()));
    }
    if path.split('/').any(|name| name == "*" || name == "**") {
        return Err(ScopeError::Star(whole.into()));
    }
    let path =
        VirtualPath::parse(path, None).map_err(|source| ScopeError::Path(whole.into(), source))?;
    Ok(Detail::Path(path))
}

fn segment_detail(whole: &str, segments: &str) -> Result<Detail, ScopeError> {
    let segments = segments.strip_suffix(":*").unwrap_or(segments);
    if segments.split(':').any(str::is_empty) {
        return Err(ScopeError::Empty(whole.into()));
    }
    if segments.split(':').any(|segment| segment == "*") {
        return Err(ScopeError::Star(whole.into()));
    }
    Ok(Detail::Segments(segments.into()))
}

impl fmt::Display for ScopePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = self.verb.map_or("*", Verb::as_str);
        write_parts(
            f,
            verb,
            self.resource.as_ref().map(Resource::as_str),
            &self.detail,
        )
    }
}
