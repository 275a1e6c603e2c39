//! The outermost layer, compiled from the configuration.

use std::sync::Arc;

use super::entries::EntryRulesBuilder;
use super::error::PolicyError;
use super::globs::{Globs, Reading};
use super::need::{MountPoint, Need};
use super::patterns::PatternBudget;
use super::protect;
use super::roots::{AllowList, Subtree, blocks, depth_of, innermost, otherwise_spelt};
use super::verdict::{Rule, Ruling, Verdict};
use crate::config::Config;
use crate::path::VirtualPath;
use crate::scope::{Resource, Scope, ScopePattern, Verb};

/// The configuration: the only layer that gives authority.
#[derive(Debug)]
#[doc(hidden)]
pub struct Base {
    roots: Box<[Subtree]>,
    /// Roots of earlier sources, which only restrict.
    restrictions: Box<[Box<[Subtree]>]>,
    /// All mounts, including blocked ones.
    mounts: Box<[MountPoint]>,
    allow: Box<[ScopePattern]>,
    grantable: Box<[ScopePattern]>,
    protected: Option<Arc<Globs>>,
    strict: bool,
    /// Host paths that no grant may cover. Their ancestors cannot be granted, either.
    ungrantable: Box<[VirtualPath]>,
}

/// Top-level directories with files of the kernel.
const KERNEL: [&str; 3] = ["dev", "proc", "sys"];

impl Base {
    pub(crate) fn compile(
        config: &Config,
        ungrantable: Vec<VirtualPath>,
        budget: &mut PatternBudget,
    ) -> Result<Self, PolicyError> {
        let Config {
            roots,
            grantable,
            allow,
            protect,
            strict,
            policy: _,
            restrictions,
        } = config;
        let compiled = Subtree::compile_roots(roots, budget)?;
        let earlier = restrictions
            .iter()
            .map(|earlier| Subtree::compile_roots(&earlier.roots, budget))
            .collect::<Result<_, _>>()?;
        let protected: Vec<String> = protect::globs()
            .map(str::to_owned)
            .chain(protect.iter().cloned())
            .collect();
        Ok(Self {
            roots: compiled,
            restrictions: earlier,
            mounts: roots
                .iter()
                .map(|root| MountPoint::new(root.mount.clone()))
                .collect(),
            allow: allow.as_slice().into(),
            grantable: grantable.as_slice().into(),
            protected: Globs::intern(Reading::Deny, &protected, "/protect", budget)?,
            strict: *strict,
            ungrantable: ungrantable.into(),
        })
    }

    pub(crate) fn judge(&self, need: &Need<'_>) -> Ruling {
        if !need.is_file() {
            return self.resource(need);
        }
        let Some(path) = need.path() else {
            return Ruling::deny(Rule::NoPath);
        };
        let taken = self
            .entries()
            .map(|subtree| subtree.globs(need))
            .fold(Ruling::OPEN, Ruling::tighter);
        let earlier = self.restrictions.iter();
        let restricted = earlier.filter_map(|roots| self.innermost(roots, need, path));
        taken
            .tighter(self.judge_roots(need, path))
            .tighter(restricted.fold(Ruling::OPEN, Ruling::tighter))
            .tighter(self.protection(need))
    }

    /// The ruling of the innermost root that contains the file. If no root contains it, the ruling states whether it is
    /// grantable.
    fn judge_roots(&self, need: &Need<'_>, path: &VirtualPath) -> Ruling {
        let depth = depth_of(self.roots.iter(), path);
        let outside = || match depth {
            None if self.is_ungrantable(need.verb(), path) => Ruling::deny(Rule::Ungrantable),
            None | Some(_) => self.by_grant(need, Rule::Outside),
        };
        let no_root = depth.is_none().then(outside);
        let rulings = no_root
            .into_iter()
            .chain(self.innermost(&self.roots, need, path));
        rulings.reduce(Ruling::tighter).unwrap_or_else(outside)
    }

    /// The ruling of those of `roots` that decide on the file, if any; see [`Subtree::decides`].
    fn innermost(&self, roots: &[Subtree], need: &Need<'_>, path: &VirtualPath) -> Option<Ruling> {
        let depth = depth_of(roots.iter(), path);
        let rulings = roots.iter().filter_map(|root| {
            let spelling = root.decides(need, depth)?;
            Some(match root.leaves(spelling) {
                Ok(()) if root.permits(need.verb()) => Ruling::new(Verdict::Allow, Rule::Base),
                Ok(()) => self.by_grant(need, Rule::Outside),
                Err(rule) => Ruling::deny(rule),
            })
        });
        rulings.reduce(Ruling::tighter)
    }

    /// Whether no grant may cover a host path outside all roots. These paths are the top of the file system,
    /// ungrantable paths with their ancestors and the files beside them, files of the kernel, and for writing also top-level
    /// entries.
    pub(super) fn is_ungrantable(&self, verb: Verb, path: &VirtualPath) -> bool {
        let first = path.names().next();
        path.is_top()
            || path.depth() == 1 && verb == Verb::Write
            || first.is_some_and(|name| KERNEL.contains(&name))
            || self
                .ungrantable
                .iter()
                .any(|ungrantable| ungrantable.starts_with(path) || is_beside(ungrantable, path))
    }

    /// The same without rules about names: globs and protected names.
    pub(super) fn without_names(&self) -> Self {
        let without = |roots: &[Subtree]| roots.iter().map(Subtree::without_names).collect();
        Self {
            roots: without(&self.roots),
            restrictions: self
                .restrictions
                .iter()
                .map(|roots| without(roots))
                .collect(),
            mounts: self.mounts.clone(),
            allow: self.allow.clone(),
            grantable: self.grantable.clone(),
            protected: None,
            strict: self.strict,
            ungrantable: self.ungrantable.clone(),
        }
    }

    /// The allow globs that apply in the folder at `path`; a file must match all of them.
    pub(super) fn allow_lists(&self, path: &VirtualPath) -> Vec<AllowList> {
        let sources = std::iter::once(&self.roots).chain(&self.restrictions);
        let lists = sources.flat_map(|roots| {
            let innermost = innermost(roots, path);
            let innermost = innermost.filter_map(|root| Some([root.allow_globs()?].into()));
            innermost.chain(otherwise_spelt(roots, path))
        });
        lists.collect()
    }

    /// The allowed scopes and those that a person may grant outside the roots.
    pub(super) fn patterns(&self) -> impl Iterator<Item = &ScopePattern> {
        self.allow.iter().chain(&self.grantable)
    }

    /// The folders outside the roots in which a person may grant something.
    pub(super) fn grantable_folders(&self) -> impl Iterator<Item = VirtualPath> {
        let of_files = self
            .grantable
            .iter()
            .filter(|pattern| pattern.is_of_files());
        of_files.map(|pattern| pattern.path().cloned().unwrap_or_else(VirtualPath::top))
    }

    fn resource(&self, need: &Need<'_>) -> Ruling {
        if self.allowing(need.scope()).is_some() {
            Ruling::new(Verdict::Allow, Rule::Named)
        } else {
            self.by_grant(need, Rule::Unnamed)
        }
    }

    /// The allowed scope of the configuration that covers `need`.
    pub(crate) fn allowing(&self, need: &Scope) -> Option<&ScopePattern> {
        self.allow.iter().find(|pattern| pattern.covers(need))
    }

    fn by_grant(&self, need: &Need<'_>, rule: Rule) -> Ruling {
        if covers(&self.grantable, need) {
            Ruling::new(Verdict::Ask, rule)
        } else {
            Ruling::deny(rule)
        }
    }

    fn protection(&self, need: &Need<'_>) -> Ruling {
        let protected = || {
            protect::is_protected_name(need)
                || self
                    .protected
                    .as_ref()
                    .is_some_and(|globs| need.any_beneath(&self.mounts, |path| globs.denies(path)))
        };
        if need.changes_file() && protected() {
            Ruling::new(Verdict::Ask, Rule::Protected)
        } else {
            Ruling::OPEN
        }
    }

    /// Whether `need` would change a protected file.
    pub(crate) fn protects(&self, need: &Scope) -> bool {
        self.protection(&Need::new(need)).verdict == Verdict::Ask
    }

    /// Why `need` is protected by its name; `None` if it is not.
    pub(crate) fn protection_reason(&self, need: &Scope) -> Option<&'static str> {
        let need = Need::new(need);
        let protected = self.protection(&need).verdict == Verdict::Ask;
        protected.then(|| protect::reason(&need, &self.mounts))
    }

    /// The roots, and what is grantable outside them.
    pub(crate) fn max_grantable(&self) -> Vec<ScopePattern> {
        let held = self
            .roots
            .iter()
            .filter(|root| !root.blocked)
            .flat_map(|root| {
                let verbs = Verb::ALL.into_iter().filter(|verb| root.permits(*verb));
                verbs.map(|verb| ScopePattern::of(&Scope::file(verb, root.mount.path.clone())))
            });
        held.chain(self.grantable.iter().cloned()).collect()
    }

    /// Whether a grant of `pattern` could have any effect: a person may grant some of it, or a policy may ask for some.
    pub(crate) fn is_grantable(&self, pattern: &ScopePattern) -> bool {
        let max_grantable = self.max_grantable();
        let mut reached = max_grantable.iter().chain(&self.allow);
        reached.any(|reached| reached.overlaps(pattern))
    }

    /// Whether a file is outside all roots, including blocked ones.
    pub(crate) fn is_outside(&self, path: &VirtualPath) -> bool {
        !self
            .mounts
            .iter()
            .any(|mount| path.starts_with(&mount.path))
    }

    /// Adds the rules on entries of a directory.
    pub(super) fn add_entry_rules<'b>(&'b self, rules: &mut EntryRulesBuilder<'b, '_>) {
        let Self {
            roots: _,
            restrictions: _,
            mounts,
            allow,
            grantable,
            // Changes of protected files are not denied, but need approval.
            protected: _,
            strict: _,
            // Only paths outside all roots are judged by it.
            ungrantable: _,
        } = self;
        self.entries().for_each(|subtree| rules.subtree(subtree));
        mounts.iter().for_each(|mount| rules.path(&mount.path));
        let patterns = allow.iter().chain(grantable);
        patterns.for_each(|pattern| rules.pattern(pattern));
    }

    pub(crate) fn mounts(&self) -> &[MountPoint] {
        &self.mounts
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.strict
    }

    /// Returns the roots that are not blocked.
    #[doc(hidden)]
    pub fn listed(&self) -> impl Iterator<Item = &Subtree> {
        self.roots.iter().filter(|subtree| !subtree.blocked)
    }

    /// All roots, including those of earlier sources.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Subtree> {
        self.roots.iter().chain(self.restrictions.iter().flatten())
    }

    /// Whether a configured root contains the subtree at `path`.
    pub(crate) fn lists(&self, path: &VirtualPath) -> bool {
        self.listed().any(|root| path.starts_with(&root.mount.path))
    }

    /// Whether something that `wanted` covers could be allowed.
    pub(crate) fn holds(&self, wanted: &ScopePattern) -> bool {
        let named = |list: &[ScopePattern]| list.iter().any(|held| held.covers_pattern(wanted));
        match (wanted.resource(), wanted.path()) {
            (_, Some(path)) => self.lists(path) || named(&self.grantable),
            (Some(Resource::Other(_)), None) => named(&self.allow) || named(&self.grantable),
            (Some(Resource::File) | None, None) => true,
        }
    }

    /// Whether a blocked root decides on the subtree at `path`.
    pub(crate) fn blocks(&self, path: &VirtualPath) -> bool {
        blocks(self.roots.iter(), path)
    }

    /// Whether something at or beneath `prefix` may be allowed, now or by a grant.
    pub(crate) fn reaches(&self, prefix: &VirtualPath) -> bool {
        let beneath = |root: &Subtree| root.mount.path.starts_with(prefix);
        self.listed().any(beneath)
            || !self.blocks(prefix)
                && (self.listed().any(|root| root.mount.path.touches(prefix))
                    || self.grantable.iter().any(|pattern| pattern.touches(prefix)))
    }
}

/// Whether `path` is `ungrantable` with the endings that audits, journals and stores append to the names of their files:
/// numbers of segments, locks, new and damaged files.
fn is_beside(ungrantable: &VirtualPath, path: &VirtualPath) -> bool {
    let endings = path.as_str().strip_prefix(ungrantable.as_str());
    let endings = endings.and_then(|endings| endings.strip_prefix('.'));
    let is_number = |text: &str| {
        let mut bytes = text.bytes();
        !text.is_empty() && bytes.all(|byte| byte.is_ascii_digit() || byte == b'-')
    };
    let is_ending = |ending: &str| {
        let damaged = ending.strip_prefix("corrupt-");
        let number = damaged.or_else(|| ending.strip_prefix("torn-"));
        matches!(ending, "lock" | "new" | "corrupt") || is_number(number.unwrap_or(ending))
    };
    endings.is_some_and(|endings| endings.split('.').all(is_ending))
}

fn covers(list: &[ScopePattern], need: &Need<'_>) -> bool {
    list.iter().any(|pattern| pattern.covers(need.scope()))
}
