//! Listed and blocked subtrees of a policy.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Policy;
use super::access::Access;
use super::authority::Authority;
use super::error::PolicyError;
use super::globs::{DenyGlobs, Globs, Reading};
use super::need::{MountPoint, Need, Spelling};
use super::patterns::PatternBudget;
use super::strict;
use super::verdict::{Rule, Ruling};
use crate::config::RootConfig;
use crate::path::VirtualPath;
use crate::scope::{Scope, Verb};

/// One entry of a policy's `roots`: a listed or blocked subtree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRoot {
    /// The subtree, which must be inside those of the issuer.
    pub path: VirtualPath,
    /// Whether the subtree is blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<bool>,
    /// The globs of files that are allowed. Everything is allowed if it is absent, and nothing if it is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// The globs of files that are denied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// The globs of files that cannot be changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub immutable: Vec<String>,
}

impl PolicyRoot {
    /// Creates an entry for the whole subtree at `path`.
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

impl Policy {
    /// Whether it names any subtrees.
    pub(crate) fn names_subtrees(&self) -> bool {
        self.fields
            .roots
            .as_ref()
            .is_some_and(|roots| !roots.is_empty())
    }

    /// Resolves links in `roots`: for an entry that is a link, adds an entry for its target if `issuer` lists that. `real`
    /// resolves a path.
    pub(crate) fn through_links(
        mut self,
        issuer: &Authority,
        real: impl Fn(&VirtualPath) -> Option<VirtualPath>,
    ) -> Self {
        let named = self.fields.roots.as_deref().unwrap_or_default();
        let led = |root: &PolicyRoot| {
            let path = real(&root.path).filter(|path| issuer.lists(path))?;
            let known = named.iter().any(|named| named.path == path);
            (!known).then(|| PolicyRoot {
                path,
                ..root.clone()
            })
        };
        let led: Vec<_> = named.iter().filter_map(led).collect();
        if let Some(roots) = &mut self.fields.roots {
            roots.extend(led);
        }
        self
    }
}

/// Allow globs of entries for the same folder; a file must match one of them.
pub(super) type AllowList = Arc<[(MountPoint, Arc<Globs>)]>;

/// The paths that an allow list allows.
#[derive(Clone, Debug)]
enum AllowSet {
    All,
    None,
    Matching(Arc<Globs>),
}

/// One compiled entry. The roots of the configuration are also such entries.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Subtree {
    #[doc(hidden)]
    pub mount: MountPoint,
    pub(crate) blocked: bool,
    /// Whether a root of the configuration allows changes. Entries of policies do not use it.
    writable: bool,
    allowed: AllowSet,
    denied: DenyGlobs,
}

impl Subtree {
    pub(crate) fn compile(
        root: &PolicyRoot,
        at: &str,
        budget: &mut PatternBudget,
    ) -> Result<Self, PolicyError> {
        let allowed = match &root.allow {
            None => AllowSet::All,
            Some(texts) => Globs::intern(Reading::Allow, texts, &format!("{at}/allow"), budget)?
                .map_or(AllowSet::None, AllowSet::Matching),
        };
        Ok(Self {
            mount: MountPoint::new(root.path.clone()),
            blocked: root.is_blocked(),
            writable: true,
            allowed,
            denied: DenyGlobs::compile(&root.deny, &root.immutable, at, budget)?,
        })
    }

    /// Compiles roots of the configuration.
    pub(crate) fn compile_roots(
        roots: &[RootConfig],
        budget: &mut PatternBudget,
    ) -> Result<Box<[Self]>, PolicyError> {
        let compile = |(index, root): (usize, &RootConfig)| {
            let RootConfig {
                mount,
                default: _,
                optional: _,
                access,
                allow,
                deny,
                immutable,
                blocked,
            } = root;
            let entry = PolicyRoot {
                path: mount.clone(),
                blocked: Some(*blocked),
                // In a configuration, an empty list counts as unset.
                allow: Some(allow.clone()).filter(|allow| !allow.is_empty()),
                deny: deny.clone(),
                immutable: immutable.clone(),
            };
            Ok(Self {
                writable: *access != Access::Read,
                ..Self::compile(&entry, &format!("/roots/{index}"), budget)?
            })
        };
        roots.iter().enumerate().map(compile).collect()
    }

    /// Whether a root of the configuration allows `verb`.
    pub(crate) fn permits(&self, verb: Verb) -> bool {
        match verb {
            Verb::Read => true,
            Verb::Write => self.writable,
            // A root does not allow its files to be executed.
            Verb::Execute => false,
        }
    }

    /// The path of the need relative to this entry, if this entry decides on it. `depth` is the depth of the innermost
    /// entries that contain the path. They decide, and also all entries that are at least as deep and contain another
    /// spelling of the path, since a file system may treat both as the same.
    pub(crate) fn decides<'n>(
        &self,
        need: &'n Need<'_>,
        depth: Option<usize>,
    ) -> Option<Spelling<'n>> {
        let decides = depth.is_none_or(|depth| self.mount.depth >= depth);
        need.beneath(&self.mount).filter(|_| decides)
    }

    /// Checks that this entry allows a path.
    ///
    /// # Errors
    /// The rule that denies it.
    pub(crate) fn leaves(&self, path: Spelling<'_>) -> Result<(), Rule> {
        let allowed = match &self.allowed {
            AllowSet::All => true,
            AllowSet::None => false,
            AllowSet::Matching(globs) => globs.allows(path.as_written()),
        };
        match (self.blocked, allowed) {
            (true, _) => Err(Rule::Blocked),
            (false, false) => Err(Rule::AllowGlobs),
            (false, true) => Ok(()),
        }
    }

    /// The ruling of the deny and immutable globs of this entry, which also apply to entries inside it.
    pub(crate) fn globs(&self, need: &Need<'_>) -> Ruling {
        match need.beneath(&self.mount) {
            Some(path) => self.denied.judge(need, |globs| globs.denies(path)),
            None => Ruling::OPEN,
        }
    }

    /// This entry without its globs. An empty allow list still allows nothing.
    pub(super) fn without_names(&self) -> Self {
        Self {
            allowed: match &self.allowed {
                AllowSet::All | AllowSet::Matching(_) => AllowSet::All,
                AllowSet::None => AllowSet::None,
            },
            denied: DenyGlobs::default(),
            ..self.clone()
        }
    }

    /// Its allow globs, if it has any.
    pub(super) fn allow_globs(&self) -> Option<(MountPoint, Arc<Globs>)> {
        match &self.allowed {
            AllowSet::All | AllowSet::None => None,
            AllowSet::Matching(globs) => Some((self.mount.clone(), Arc::clone(globs))),
        }
    }

    /// Whether it has rules about names.
    pub(super) fn has_names(&self) -> bool {
        matches!(self.allowed, AllowSet::Matching(_)) || !self.denied.is_empty()
    }

    /// Its deny and immutable globs.
    pub(super) fn denied(&self) -> &DenyGlobs {
        &self.denied
    }

    pub(crate) fn allow_texts(&self) -> Option<&[String]> {
        match &self.allowed {
            AllowSet::All => None,
            AllowSet::None => Some(&[]),
            AllowSet::Matching(globs) => Some(globs.texts()),
        }
    }

    /// The glob that denies `need`.
    pub(crate) fn matching_glob(&self, need: &Need<'_>, rule: Rule) -> Option<&str> {
        let path = need.beneath(&self.mount)?;
        self.denied.of(rule)?.matching_glob(path)
    }
}

/// All compiled entries of one policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roots {
    /// Whether paths that are not listed are denied.
    closed: bool,
    list: Box<[Subtree]>,
}

impl Roots {
    pub(crate) fn compile(
        roots: Option<&[PolicyRoot]>,
        budget: &mut PatternBudget,
    ) -> Result<Self, PolicyError> {
        let Some(roots) = roots else {
            return Ok(Self::default());
        };
        let list = roots
            .iter()
            .enumerate()
            .map(|(index, root)| Subtree::compile(root, &format!("/roots/{index}"), budget))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            closed: roots.is_empty() || !roots.iter().all(PolicyRoot::is_blocked),
            list,
        })
    }

    pub(crate) fn judge(&self, need: &Need<'_>) -> Ruling {
        let Some(path) = need.path().filter(|_| need.is_file()) else {
            return Ruling::deny_if(self.closed && need.is_file(), Rule::Unlisted);
        };
        let globs = self.list.iter().map(|entry| entry.globs(need));
        let taken = globs.fold(Ruling::OPEN, Ruling::tighter);
        taken.tighter(
            self.left(need, path)
                .map_or_else(Ruling::deny, |()| Ruling::OPEN),
        )
    }

    /// The ruling of the entries that decide on the path; see [`Subtree::decides`].
    fn left(&self, need: &Need<'_>, path: &VirtualPath) -> Result<(), Rule> {
        let depth = depth_of(self.list.iter(), path);
        let mut left = match (depth, self.closed) {
            (None, true) => return Err(Rule::Unlisted),
            (None, false) => Ok(()),
            // It is enough if one of several entries for the same subtree allows it, unless one of them is blocked.
            (Some(_), _) => Err(Rule::AllowGlobs),
        };
        for entry in &self.list {
            let Some(spelling) = entry.decides(need, depth) else {
                continue;
            };
            let otherwise_spelt = !path.starts_with(&entry.mount.path);
            match entry.leaves(spelling) {
                Err(rule) if otherwise_spelt || rule == Rule::Blocked => return Err(rule),
                Ok(()) if !otherwise_spelt => left = Ok(()),
                Ok(()) | Err(_) => {}
            }
        }
        left
    }

    /// These entries without their globs.
    pub(super) fn without_names(&self) -> Self {
        Self {
            closed: self.closed,
            list: self.list.iter().map(Subtree::without_names).collect(),
        }
    }

    /// The allow globs that apply in the folder at `path`; a file must match one glob of each list.
    pub(super) fn allow_lists(&self, path: &VirtualPath) -> Vec<AllowList> {
        let mut lists = otherwise_spelt(&self.list, path);
        let mut list = Vec::new();
        for entry in innermost(&self.list, path) {
            match &entry.allowed {
                AllowSet::All => return lists,
                AllowSet::None => {}
                AllowSet::Matching(_) => list.extend(entry.allow_globs()),
            }
        }
        if !list.is_empty() {
            lists.push(list.into());
        }
        lists
    }

    /// The entries that are not blocked.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &Subtree> {
        self.list.iter().filter(|entry| !entry.blocked)
    }

    pub(crate) fn entries(&self) -> &[Subtree] {
        &self.list
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the whole subtree at `path` is inside a listed one.
    pub(crate) fn holds(&self, path: &VirtualPath) -> bool {
        !self.closed
            || self
                .listed()
                .any(|entry| path.starts_with(&entry.mount.path))
    }

    /// Whether a blocked entry decides on the subtree at `path`.
    pub(crate) fn blocks(&self, path: &VirtualPath) -> bool {
        blocks(self.list.iter(), path)
    }

    /// Whether something at or beneath `prefix` may be allowed.
    pub(crate) fn reaches(&self, prefix: &VirtualPath) -> bool {
        let beneath = |entry: &Subtree| entry.mount.path.starts_with(prefix);
        let touches = |entry: &Subtree| entry.mount.path.touches(prefix);
        self.listed().any(beneath)
            || !self.blocks(prefix) && (!self.closed || self.listed().any(touches))
    }
}

/// The innermost entries that contain `path`.
pub(super) fn innermost<'e>(
    entries: &'e [Subtree],
    path: &VirtualPath,
) -> impl Iterator<Item = &'e Subtree> {
    let depth = depth_of(entries.iter(), path);
    let path = path.clone();
    entries.iter().filter(move |entry| {
        Some(entry.mount.depth) == depth && path.starts_with(&entry.mount.path)
    })
}

/// The allow globs of the entries that decide on `path` because it is another spelling of what they contain.
pub(super) fn otherwise_spelt(entries: &[Subtree], path: &VirtualPath) -> Vec<AllowList> {
    let depth = depth_of(entries.iter(), path);
    let scope = Scope::file(Verb::Read, path.clone());
    let need = Need::new(&scope);
    let spelt = entries.iter().filter(|entry| {
        entry.decides(&need, depth).is_some() && !path.starts_with(&entry.mount.path)
    });
    let lists = spelt.filter_map(|entry| Some([entry.allow_globs()?].into()));
    lists.collect()
}

/// The depth of the innermost entries that contain `path`.
pub(crate) fn depth_of<'e>(
    entries: impl Iterator<Item = &'e Subtree>,
    path: &VirtualPath,
) -> Option<usize> {
    let holding = entries.filter(|entry| path.starts_with(&entry.mount.path));
    holding.map(|entry| entry.mount.depth).max()
}

/// Whether a blocked entry is among the innermost ones that contain `path`.
pub(crate) fn blocks<'e>(
    entries: impl Iterator<Item = &'e Subtree> + Clone,
    path: &VirtualPath,
) -> bool {
    let depth = depth_of(entries.clone(), path);
    let mut blocked = entries.filter(|entry| entry.blocked && Some(entry.mount.depth) == depth);
    blocked.any(|entry| path.starts_with(&entry.mount.path))
}

/// Rejects entries that the issuer does not list or that it blocks.
pub(crate) fn admit(roots: Option<&[PolicyRoot]>, issuer: &Authority) -> Result<(), PolicyError> {
    for (index, root) in roots.unwrap_or_default().iter().enumerate() {
        let at = format!("/roots/{index}");
        if !issuer.lists(&root.path) {
            let error = PolicyError::expansion(
                format!("{at}/path"),
                "is outside the configured roots",
                root.path.as_str(),
                Value::Null,
            );
            return Err(error.held(issuer.delegable()?.open_folders()));
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
