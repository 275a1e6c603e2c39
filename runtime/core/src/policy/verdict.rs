//! Verdicts, and the rules that they come from.

use crate::scope::words;

words! {
    /// The decision on a need, ordered from the least to the most strict, so that the strictest of several is their
    /// `max`.
    #[derive(Default)]
    pub enum Verdict {
        /// The call may continue.
        Allow = "allow",
        /// A person must approve it.
        Ask = "ask",
        /// It is not allowed.
        #[default]
        Deny = "deny",
    }
}

/// Kind of the deciding rule; an index is that of a list entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// No rule applies to the need.
    Open,
    /// A configured root with that access contains it.
    Base,
    /// An allowed scope of the configuration covers it.
    Named,
    /// No configured root with that access contains it.
    Outside,
    /// It is outside all roots, and no grant may cover it.
    Ungrantable,
    /// The resource is not on the base list.
    Unnamed,
    /// It is a need for files without a path.
    NoPath,
    /// It changes a protected file.
    Protected,
    /// It is not in a listed root.
    Unlisted,
    /// It is in a blocked subtree.
    Blocked,
    /// The allow globs of its root do not cover it.
    AllowGlobs,
    /// A deny glob of a root, or of all roots.
    DenyGlob,
    /// An immutable glob of a root, or of all roots.
    ImmutableGlob,
    /// An entry of the deny scopes.
    DenyScope(usize),
    /// An entry of the delegate-only scopes.
    DelegateOnly(usize),
    /// An entry of the ask scopes.
    AskScope(usize),
    /// An entry of the allow scopes.
    AllowScope(usize),
    /// No scope list names it.
    Otherwise,
    /// The verb is not listed.
    Verbs,
    /// The access level is too low for the verb.
    Access,
    /// Nothing may be changed.
    ReadOnly,
    /// It is outside all roots, and `allow_escape` is false.
    Escape,
    /// Scopes of the resource `network` may not be used.
    Network,
    /// Every change requires approval.
    Approval,
}

/// The verdict of one rule on one need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ruling {
    pub(crate) verdict: Verdict,
    pub(crate) rule: Rule,
}

impl Ruling {
    pub(crate) const OPEN: Self = Self::new(Verdict::Allow, Rule::Open);

    pub(crate) const fn new(verdict: Verdict, rule: Rule) -> Self {
        Self { verdict, rule }
    }

    pub(crate) const fn deny(rule: Rule) -> Self {
        Self::new(Verdict::Deny, rule)
    }

    /// A denial by `rule` if `refused`, otherwise no restriction.
    pub(crate) fn deny_if(refused: bool, rule: Rule) -> Self {
        if refused {
            Self::deny(rule)
        } else {
            Self::OPEN
        }
    }

    /// Whether only a grant that names the file satisfies it.
    pub(crate) fn is_exact(self) -> bool {
        self.rule == Rule::Protected
    }

    /// The stricter of two rulings; the first, if they are equally strict.
    #[must_use]
    pub(crate) fn tighter(self, other: Self) -> Self {
        let rank = |ruling: Self| (ruling.verdict, ruling.is_exact());
        if rank(other) > rank(self) {
            other
        } else {
            self
        }
    }
}
