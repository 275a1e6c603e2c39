//! Explanations: which layer and rule decide on a need, and which grant would help.

use std::fmt;

use serde::{Serialize, Serializer};

use super::Layer;
use super::authority::{Authority, satisfying};
use super::need::Need;
use super::verdict::{Rule, Ruling, Verdict};
use crate::scope::{Coverage, Scope};

/// Origin of a layer of an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LayerName {
    /// The configuration.
    Configuration,
    /// A policy of all workers of the runtime.
    Session,
    /// The policy of the worker at this index of the agent path; 0 is the outermost.
    Agent(usize),
    /// The policy of the call.
    Call,
}

impl fmt::Display for LayerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration => f.write_str("configuration"),
            Self::Session => f.write_str("session"),
            Self::Agent(index) => write!(f, "agent/{index}"),
            Self::Call => f.write_str("call"),
        }
    }
}

impl Serialize for LayerName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Why a need has its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The need.
    pub need: Scope,
    /// The verdict, including grants.
    pub verdict: Verdict,
    /// The layer that decides.
    pub layer: LayerName,
    /// The key of the policy or configuration that decides.
    pub key: &'static str,
    /// The entry that decides, if it is one of a list.
    pub pattern: Option<String>,
    /// The rule as a sentence for people.
    pub rule: &'static str,
    /// The grant that turned `Ask` into `Allow`, if any.
    pub granted_by: Option<Coverage>,
    /// The smallest grant that would help; `None` if none can.
    pub grant: Option<Coverage>,
}

impl Explanation {
    pub(crate) fn of(authority: &Authority, need: &Scope, granted: &[Coverage]) -> Self {
        let folded = Need::new(need);
        let mut ruling = authority.base().judge(&folded);
        let mut decider = None;
        for layer_entry in authority.layers() {
            let tightest = ruling.tighter(authority.rule_of(layer_entry, &folded));
            if tightest != ruling {
                ruling = tightest;
                decider = Some(layer_entry);
            }
        }
        let pattern = match decider {
            Some(layer_entry) => entry(&layer_entry.layer, authority, &folded, ruling),
            None if ruling.rule == Rule::Named => {
                authority.base().allowing(need).map(ToString::to_string)
            }
            None => authority
                .base()
                .entries()
                .find_map(|root| root.matching_glob(&folded, ruling.rule))
                .map(str::to_owned),
        };
        let asks = ruling.verdict == Verdict::Ask;
        let granted_by = satisfying(ruling, need, granted).filter(|_| asks);
        let (key, rule) = describe(ruling.rule);
        Self {
            need: need.clone(),
            verdict: granted_by.map_or(ruling.verdict, |_| Verdict::Allow),
            layer: decider.map_or(LayerName::Configuration, |layer_entry| layer_entry.name),
            key,
            pattern,
            rule,
            granted_by: granted_by.cloned(),
            grant: (asks && granted_by.is_none()).then(|| Coverage::of(need)),
        }
    }
}

impl Explanation {
    /// The explanation of a need that is protected only because of the files around it.
    pub(crate) fn of_protected(authority: &Authority, need: &Scope) -> Self {
        let (key, rule) = describe(Rule::Protected);
        Self {
            verdict: Verdict::Ask,
            layer: LayerName::Configuration,
            key,
            pattern: None,
            rule,
            granted_by: None,
            grant: Some(Coverage::of(need)),
            ..Self::of(authority, need, &[])
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}: {}",
            self.verdict.as_str(),
            self.layer,
            self.rule
        )?;
        match &self.pattern {
            Some(pattern) => write!(f, " ({}: `{pattern}`)", self.key),
            None => write!(f, " ({})", self.key),
        }
    }
}

/// The entry of a policy's list that resulted in the ruling.
fn entry(layer: &Layer, authority: &Authority, need: &Need<'_>, ruling: Ruling) -> Option<String> {
    if let Some(pattern) = layer.0.scopes.pattern(ruling.rule) {
        return Some(pattern.to_string());
    }
    let mut roots = layer.0.roots.entries().iter();
    let of_root = roots.find_map(|root| root.matching_glob(need, ruling.rule));
    let mut found = of_root.map(str::to_owned);
    if let Some(globs) = layer
        .0
        .everywhere
        .of(ruling.rule)
        .filter(|_| found.is_none())
    {
        need.any_beneath(authority.base().mounts(), |path| {
            found = globs.matching_glob(path).map(str::to_owned);
            found.is_some()
        });
    }
    found
}

/// The key of a rule, and the rule as a sentence.
fn describe(rule: Rule) -> (&'static str, &'static str) {
    match rule {
        Rule::Open => ("", "no rule applies"),
        Rule::Base => ("roots", "a configured root allows it"),
        Rule::Named => ("allow", "the configuration allows the scope"),
        Rule::Outside => ("roots", "no configured root allows that access"),
        Rule::Ungrantable => (
            "grantable",
            "no grant opens /, a whole home directory, files in /proc, /sys and /dev, or files of the host program",
        ),
        Rule::Unnamed => ("allow", "the configuration does not name the resource"),
        Rule::NoPath => ("roots", "the file scope has no path"),
        Rule::Protected => (
            "protect",
            "the file steers tools or agents, so only a grant that names it allows the change",
        ),
        Rule::Unlisted => ("roots", "it is outside the roots of the policy"),
        Rule::Blocked => ("roots", "it is at or beneath a blocked path"),
        Rule::AllowGlobs => ("roots", "no allow glob of its root matches it"),
        Rule::DenyGlob => ("deny", "a deny glob covers it"),
        Rule::ImmutableGlob => ("immutable", "an immutable glob covers it"),
        Rule::DenyScope(_) => ("deny_scopes", "a denied scope covers it"),
        Rule::DelegateOnly(_) => ("delegate_only", "it may only be delegated"),
        Rule::AskScope(_) => ("ask_scopes", "a person must be asked"),
        Rule::AllowScope(_) => ("allow_scopes", "an allowed scope covers it"),
        Rule::Otherwise => ("otherwise", "no scope list names it"),
        Rule::Verbs => ("verbs", "the verb is not among those listed"),
        Rule::Access => ("access", "the access level is too low for the verb"),
        Rule::ReadOnly => ("read_only", "nothing may be changed"),
        Rule::Escape => ("allow_escape", "paths outside all roots cannot be granted"),
        Rule::Network => (
            "network",
            "the network is off; it is on if the host allows a scope of `network` with `RuntimeBuilder::allow`, or sets the \
             configuration key `network` to true, and no policy sets it to false",
        ),
        Rule::Approval => ("require_approval", "every change requires approval"),
    }
}
