//! Allow, ask, deny and delegate-only scope lists of a policy.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::access::is_of_writing;
use super::authority::Authority;
use super::error::PolicyError;
use super::fold::fold;
use super::need::Need;
use super::verdict::{Rule, Ruling, Verdict};
use crate::config::similar_resource;
use crate::path::{VirtualPath, beneath};
use crate::scope::{Detail, Resource, Scope, ScopePattern, Verb};

/// The scope lists of a policy: `deny` precedes `ask`, which precedes `allow`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScopeLists {
    #[serde(rename = "allow_scopes", skip_serializing_if = "Option::is_none")]
    pub(crate) allow: Option<Vec<ScopePattern>>,
    #[serde(rename = "ask_scopes", skip_serializing_if = "Option::is_none")]
    pub(crate) ask: Option<Vec<ScopePattern>>,
    #[serde(rename = "deny_scopes", skip_serializing_if = "Option::is_none")]
    pub(crate) deny: Option<Vec<ScopePattern>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delegate_only: Option<Vec<ScopePattern>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) otherwise: Option<Verdict>,
}

/// Compiled scope lists.
#[derive(Clone, Debug)]
pub(crate) struct Scopes {
    allow: Box<[ScopePattern]>,
    ask: Box<[RestrictingPattern]>,
    deny: Box<[RestrictingPattern]>,
    delegate_only: Box<[RestrictingPattern]>,
    otherwise: Verdict,
}

/// A pattern that denies something or asks for it, also in other spellings of its path.
#[derive(Clone, Debug)]
struct RestrictingPattern {
    pattern: ScopePattern,
    folded: Option<Box<str>>,
}

impl RestrictingPattern {
    fn new(pattern: &ScopePattern) -> Self {
        Self {
            folded: pattern.path().map(|path| fold(path.as_str()).into()),
            pattern: pattern.clone(),
        }
    }

    /// Whether it covers the need in any spelling.
    fn covers(&self, need: &Need<'_>) -> bool {
        let Some(folded) = &self.folded else {
            return self.pattern.covers(need.scope());
        };
        self.is_of(need.verb()) && need.is_file() && beneath(need.folded(), folded).is_some()
    }

    fn is_of(&self, verb: Verb) -> bool {
        self.pattern.verb().is_none_or(|own| own == verb)
    }

    /// Whether it covers a part of what is needed, in any spelling.
    fn overlaps(&self, need: &Need<'_>) -> bool {
        match &self.folded {
            // A need for all files includes those at its path.
            Some(_) if need.path().is_none() => need.is_file() && self.is_of(need.verb()),
            Some(_) => self.covers(need),
            None => self.covers(need) || self.lies_within(need.scope()),
        }
    }

    /// A need for a whole resource includes the denied parts of it.
    fn lies_within(&self, need: &Scope) -> bool {
        *need.detail() == Detail::None
            && self.is_of(need.verb())
            && self.pattern.resource() == Some(need.resource())
    }

    fn covers_pattern(&self, wanted: &ScopePattern) -> bool {
        match (&self.folded, wanted.path()) {
            (Some(folded), Some(path)) => {
                let verb = self.pattern.verb();
                (verb.is_none() || verb == wanted.verb())
                    && beneath(&fold(path.as_str()), folded).is_some()
            }
            _ => self.pattern.covers_pattern(wanted),
        }
    }
}

impl Scopes {
    pub(crate) fn compile(lists: &ScopeLists) -> Self {
        let ScopeLists {
            allow,
            ask,
            deny,
            delegate_only,
            otherwise,
        } = lists;
        let restricting = |list: &Option<Vec<ScopePattern>>| {
            let patterns = list.iter().flatten();
            patterns.map(RestrictingPattern::new).collect()
        };
        let named = allow.is_some() || ask.is_some();
        Self {
            allow: allow.as_deref().unwrap_or_default().into(),
            ask: restricting(ask),
            deny: restricting(deny),
            delegate_only: restricting(delegate_only),
            otherwise: otherwise.unwrap_or(if named { Verdict::Deny } else { Verdict::Allow }),
        }
    }

    /// Judges the need for the worker itself, or for a descendant if `inherited`.
    pub(crate) fn judge(&self, need: &Need<'_>, inherited: bool) -> Ruling {
        let as_written = |it: &RestrictingPattern| it.pattern.covers(need.scope());
        let in_any_spelling = |it: &RestrictingPattern| it.covers(need);
        if let Some(index) = self.deny.iter().position(|it| it.overlaps(need)) {
            return Ruling::deny(Rule::DenyScope(index));
        }
        if !inherited && let Some(index) = self.delegate_only.iter().position(in_any_spelling) {
            return Ruling::deny(Rule::DelegateOnly(index));
        }
        if let Some(index) = self.ask.iter().position(as_written) {
            return Ruling::new(Verdict::Ask, Rule::AskScope(index));
        }
        let ruling = if let Some(index) = self.allow.iter().position(|it| it.covers(need.scope())) {
            Ruling::new(Verdict::Allow, Rule::AllowScope(index))
        } else if let Some(index) = self.delegate_only.iter().position(as_written) {
            Ruling::new(Verdict::Allow, Rule::DelegateOnly(index))
        } else if self.otherwise == Verdict::Allow {
            Ruling::OPEN
        } else {
            return Ruling::new(self.otherwise, Rule::Otherwise);
        };
        // An ask pattern also restricts other spellings of its path, but does not open them: an answer could allow what the
        // policy does not name.
        match self.ask.iter().position(in_any_spelling) {
            Some(index) => Ruling::new(Verdict::Ask, Rule::AskScope(index)),
            None => ruling,
        }
    }

    /// Whether a worker with these lists may delegate all of `wanted`.
    pub(crate) fn holds(&self, wanted: &ScopePattern) -> bool {
        !self.deny.iter().any(|denied| denied.covers_pattern(wanted))
            && self.leaves(true, |held| held.covers_pattern(wanted))
    }

    /// Whether something at or beneath `prefix` may be allowed.
    pub(crate) fn reaches(&self, prefix: &VirtualPath, inherited: bool) -> bool {
        self.leaves(inherited, |pattern| pattern.touches(prefix))
    }

    /// Whether a need that `kind` covers may be allowed. If this is not certain, the result is true.
    pub(crate) fn may_need(&self, kind: &ScopePattern, inherited: bool) -> bool {
        let mut handed = self.delegate_only.iter().filter(|_| !inherited);
        !self.deny.iter().any(|denied| denied.covers_pattern(kind))
            && !handed.any(|it| it.pattern.covers_pattern(kind))
            && self.leaves(inherited, |pattern| pattern.overlaps(kind))
    }

    /// Whether any file could be written, now or by a grant. If this is not certain, the result is true.
    pub(crate) fn may_write(&self) -> bool {
        let all =
            |denied: &RestrictingPattern| denied.folded.is_none() && is_of_writing(&denied.pattern);
        !self.deny.iter().any(all) && self.leaves(true, is_of_writing)
    }

    /// The patterns that allow or ask; for a descendant if `inherited`.
    fn named(&self, inherited: bool) -> impl Iterator<Item = &ScopePattern> {
        let handed = self.delegate_only.iter().filter(move |_| inherited);
        let restricting = self.ask.iter().chain(handed).map(|it| &it.pattern);
        self.allow.iter().chain(restricting)
    }

    /// Whether something that `test` accepts is not denied, because of a pattern or by default.
    fn leaves(&self, inherited: bool, test: impl Fn(&ScopePattern) -> bool) -> bool {
        self.otherwise != Verdict::Deny || self.named(inherited).any(test)
    }

    /// All patterns of these lists.
    pub(super) fn patterns(&self) -> impl Iterator<Item = &ScopePattern> {
        let denied = self.deny.iter().map(|denied| &denied.pattern);
        self.named(true).chain(denied)
    }

    /// The paths that patterns of these lists name.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &VirtualPath> {
        self.patterns().filter_map(ScopePattern::path)
    }

    /// The pattern that resulted in a ruling of this field.
    pub(crate) fn pattern(&self, rule: Rule) -> Option<&ScopePattern> {
        match rule {
            Rule::AllowScope(index) => self.allow.get(index),
            Rule::AskScope(index) => Some(&self.ask.get(index)?.pattern),
            Rule::DelegateOnly(index) => Some(&self.delegate_only.get(index)?.pattern),
            Rule::DenyScope(index) => Some(&self.deny.get(index)?.pattern),
            _ => None,
        }
    }
}

/// Rejects patterns that the issuer does not have.
pub(crate) fn admit(lists: &ScopeLists, issuer: &Authority) -> Result<(), PolicyError> {
    let ScopeLists {
        allow,
        ask,
        deny: _,
        delegate_only,
        otherwise: _,
    } = lists;
    let wanted = [
        ("allow_scopes", allow),
        ("ask_scopes", ask),
        ("delegate_only", delegate_only),
    ];
    for (key, list) in wanted {
        for (index, pattern) in list.iter().flatten().enumerate() {
            if !issuer.holds(pattern) {
                let more = "is more than the issuer of the policy holds";
                let error = PolicyError::expansion(
                    format!("/{key}/{index}"),
                    format!("{more}; {}", advice(pattern, issuer)),
                    pattern.to_string(),
                    Value::Null,
                );
                return Err(if pattern.is_of_files() {
                    error.held(issuer.delegable()?.open_folders())
                } else {
                    error
                });
            }
        }
    }
    Ok(())
}

/// What helps if `issuer` does not hold `pattern`.
fn advice(pattern: &ScopePattern, issuer: &Authority) -> String {
    if pattern.is_of_files() {
        return "name a part of what it holds".to_owned();
    }
    if issuer.base().holds(pattern) {
        return "the host allows it, but a policy of the issuer does not".to_owned();
    }
    let resource = pattern.resource().map(Resource::as_str);
    match resource.and_then(similar_resource) {
        Some(similar) => format!("did you mean the resource `{similar}`?"),
        None => {
            "the host allows it with `RuntimeBuilder::allow` (configuration key `allow`)".to_owned()
        }
    }
}
