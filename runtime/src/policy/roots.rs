//! Listed and blocked subtrees in, a ruling on where a path lies out.

use std::sync::Arc;

use serde::Serialize;

use super::authority::Authority;
use super::error::PolicyError;
use super::globs::{Globs, Reading};
use super::need::{Need, Place};
use super::strict;
use super::verdict::{Rule, Ruling};
use crate::path::VirtualPath;

/// One entry of a policy's `roots`: a subtree it keeps, or one it takes away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyRoot {
    /// The subtree; inside what the issuer holds.
    pub path: VirtualPath,
    /// Whether the subtree is taken away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<bool>,
    /// Only what these globs cover is kept; everything if absent, nothing if empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// What these globs cover is taken away.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// What these globs cover cannot be changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub immutable: Vec<String>,
}

impl PolicyRoot {
    /// The whole subtree at `path`.
    #[must_use]
    pub fn new(path: VirtualPath) -> Self {
        Self {
            path,
            blocked: None,
            allow: None,
            deny: Vec::new(),
            immutable: Vec::new(),
        }
    }

    fn is_blocked(&self) -> bool {
        self.blocked == Some(true)
    }
}

/// Which paths an allow list leaves.
#[derive(Clone, Debug)]
enum Kept {
    All,
    None,
    These(Arc<Globs>),
}

/// One compiled entry; the configuration's roots are such entries too.
#[derive(Clone, Debug)]
pub(crate) struct Subtree {
    pub(crate) place: Place,
    pub(crate) blocked: bool,
    kept: Kept,
    deny: Option<Arc<Globs>>,
    immutable: Option<Arc<Globs>>,
}

impl Subtree {
    pub(crate) fn compile(root: &PolicyRoot, at: &str) -> Result<Self, PolicyError> {
        let kept = match &root.allow {
            None => Kept::All,
            Some(texts) => Globs::intern(Reading::Allow, texts, &format!("{at}/allow"))?
                .map_or(Kept::None, Kept::These),
        };
        Ok(Self {
            place: Place::new(root.path.clone()),
            blocked: root.is_blocked(),
            kept,
            deny: Globs::intern(Reading::Deny, &root.deny, &format!("{at}/deny"))?,
            immutable: Globs::intern(Reading::Deny, &root.immutable, &format!("{at}/immutable"))?,
        })
    }

    /// Whether the allow globs leave `path`; none if it does not lie here.
    pub(crate) fn keeps(&self, path: &VirtualPath) -> Option<bool> {
        let rest = path.beneath(&self.place.path)?;
        Some(match &self.kept {
            Kept::All => true,
            Kept::None => false,
            Kept::These(globs) => globs.allows(rest),
        })
    }

    /// What this entry takes away, whatever others leave.
    pub(crate) fn takes(&self, need: &Need<'_>) -> Ruling {
        let Some(path) = need.beneath(&self.place) else {
            return Ruling::OPEN;
        };
        let covers = |globs: &Option<Arc<Globs>>| globs.as_ref().is_some_and(|g| g.denies(path));
        if self.blocked {
            Ruling::deny(Rule::Blocked)
        } else if covers(&self.deny) {
            Ruling::deny(Rule::DenyGlob)
        } else {
            Ruling::deny_if(
                need.changes_file() && covers(&self.immutable),
                Rule::ImmutableGlob,
            )
        }
    }

    pub(crate) fn allow_texts(&self) -> Option<&[String]> {
        match &self.kept {
            Kept::All => None,
            Kept::None => Some(&[]),
            Kept::These(globs) => Some(globs.texts()),
        }
    }

    /// The glob that takes `need` away.
    pub(crate) fn culprit(&self, need: &Need<'_>, rule: Rule) -> Option<&str> {
        let path = need.beneath(&self.place)?;
        let globs = match rule {
            Rule::ImmutableGlob => &self.immutable,
            _ => &self.deny,
        };
        globs.as_ref()?.culprit(path)
    }
}

/// All compiled entries of one policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roots {
    /// Whether what is not listed is lost.
    closed: bool,
    list: Box<[Subtree]>,
}

impl Roots {
    pub(crate) fn compile(roots: Option<&[PolicyRoot]>) -> Result<Self, PolicyError> {
        let Some(roots) = roots else {
            return Ok(Self::default());
        };
        let list = roots
            .iter()
            .enumerate()
            .map(|(index, root)| Subtree::compile(root, &format!("/roots/{index}")))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            closed: roots.is_empty() || !roots.iter().all(PolicyRoot::is_blocked),
            list,
        })
    }

    pub(crate) fn judge(&self, need: &Need<'_>) -> Ruling {
        if !need.is_file() {
            return Ruling::OPEN;
        }
        let taken = self
            .list
            .iter()
            .map(|entry| entry.takes(need))
            .fold(Ruling::OPEN, Ruling::tighter);
        let kept = !self.closed || need.path().is_some_and(|path| self.keeps(path));
        taken.tighter(Ruling::deny_if(!kept, self.unkept(need)))
    }

    fn keeps(&self, path: &VirtualPath) -> bool {
        self.listed().any(|entry| entry.keeps(path) == Some(true))
    }

    fn unkept(&self, need: &Need<'_>) -> Rule {
        let inside = |entry: &Subtree| need.path().and_then(|path| entry.keeps(path)).is_some();
        if self.listed().any(inside) {
            Rule::AllowGlobs
        } else {
            Rule::Unlisted
        }
    }

    /// The entries that keep something.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &Subtree> {
        self.list.iter().filter(|entry| !entry.blocked)
    }

    pub(crate) fn entries(&self) -> &[Subtree] {
        &self.list
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the whole subtree at `path` lies inside what is listed.
    pub(crate) fn holds(&self, path: &VirtualPath) -> bool {
        !self.closed
            || self
                .listed()
                .any(|entry| path.starts_with(&entry.place.path))
    }

    /// Whether something at or beneath `prefix` may be left.
    pub(crate) fn reaches(&self, prefix: &VirtualPath) -> bool {
        let blocked = |entry: &Subtree| entry.blocked && prefix.starts_with(&entry.place.path);
        let touches = |entry: &Subtree| touch(&entry.place.path, prefix);
        !self.list.iter().any(blocked) && (!self.closed || self.listed().any(touches))
    }

    /// What is left of the subtrees `visible`.
    pub(crate) fn narrow(&self, visible: &[VirtualPath]) -> Vec<VirtualPath> {
        if !self.closed {
            return visible.to_vec();
        }
        let pairs = visible
            .iter()
            .flat_map(|held| self.listed().map(move |entry| (held, &entry.place.path)));
        let mut left: Vec<_> = pairs
            .filter(|(held, listed)| touch(held, listed))
            .map(|(held, listed)| {
                if held.starts_with(listed) {
                    held
                } else {
                    listed
                }
            })
            .cloned()
            .collect();
        left.sort_unstable();
        left.dedup();
        left
    }
}

/// Whether one of two subtrees holds the other.
pub(crate) fn touch(a: &VirtualPath, b: &VirtualPath) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

/// Refuses entries outside what the issuer lists, and unblocking.
pub(crate) fn admit(roots: Option<&[PolicyRoot]>, issuer: &Authority) -> Result<(), PolicyError> {
    for (index, root) in roots.unwrap_or_default().iter().enumerate() {
        let at = format!("/roots/{index}");
        if !issuer.lists(&root.path) {
            return Err(PolicyError::expansion(
                format!("{at}/path"),
                "is outside the configured roots",
                root.path.as_str(),
                issuer.visible(),
            ));
        }
        if root.blocked == Some(false) && issuer.blocks(&root.path) {
            return Err(PolicyError::expansion(
                format!("{at}/blocked"),
                "would open what is blocked",
                false,
                true,
            ));
        }
        if let Some(allow) = root.allow.as_deref().filter(|_| issuer.is_strict()) {
            strict::admit(&root.path, allow, issuer, &format!("{at}/allow"))?;
        }
    }
    Ok(())
}
