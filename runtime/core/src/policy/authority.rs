//! Authority: the conjunction of the configuration and all policy layers.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::access::Access;
use super::base::Base;
use super::entries::{EntryRules, EntryRulesBuilder};
use super::error::PolicyError;
use super::explain::{Explanation, LayerName};
use super::flags::{Flag, Flags};
use super::limits::Limits;
use super::need::Need;
use super::open::OpenFolder;
use super::patterns::PatternBudget;
use super::sets::WriteMode;
use super::verdict::{Rule, Ruling, Verdict};
use super::{Layer, Policy};
use crate::call::Origin;
use crate::config::Config;
use crate::path::VirtualPath;
use crate::scope::{Coverage, Scope, ScopePattern, Verb};

/// The authority of a worker or a call: a conjunction of layers. Cheap to clone.
///
/// Layers can be added but never removed, so an authority that is derived from another one is never wider.
///
/// ```
/// use bailiwick::config::RootConfig;
/// use bailiwick::policy::Authority;
/// use bailiwick::{Config, Origin, Policy, Scope, Verdict, VirtualPath};
/// let config = Config::new().root(RootConfig::new(VirtualPath::parse("/repo", None)?));
/// let host = Authority::configured(&config)?;
/// let layer = host.admit(&Policy::nothing().allow("read:file:/repo/src"), Origin::Human)?;
/// let worker = host.narrow(&layer);
/// let need: Scope = "read:file:/repo/src/main.rs".parse()?;
/// assert_eq!(worker.judge(&need, &[]), Verdict::Allow);
/// let need: Scope = "write:file:/repo/src/main.rs".parse()?;
/// assert_eq!(worker.judge(&need, &[]), Verdict::Deny);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Layers cannot be removed, and only [`Authority::admit`] creates them:
/// ```compile_fail
/// fn widened(authority: bailiwick::policy::Authority) -> bailiwick::policy::Authority {
///     bailiwick::policy::Authority { rules: authority.rules } // private
/// }
/// ```
/// ```compile_fail
/// fn forged(layer: bailiwick::policy::Layer) -> bailiwick::policy::Layer {
///     bailiwick::policy::Layer(layer.0) // private
/// }
/// ```
/// A layer can be added:
/// ```
/// fn narrowed(authority: &bailiwick::policy::Authority, layer: &bailiwick::policy::Layer) -> bailiwick::policy::Authority {
///     authority.narrow(layer)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Authority {
    /// A call clones only the outer `Arc` of its worker, so that calls of workers with the same rules do not contend for one
    /// reference count.
    inner: Arc<AuthorityInner>,
}

#[derive(Debug)]
struct AuthorityInner {
    rules: Arc<Rules>,
    /// The last child, since many children often have the same policy.
    child: Mutex<Option<Child>>,
}

/// The rules of an authority.
#[derive(Debug)]
struct Rules {
    base: Arc<Base>,
    layers: Arc<[LayerEntry]>,
    total: Total,
    /// The open folders, found when they are first asked for.
    open: OnceLock<Box<[OpenFolder]>>,
}

/// A child, and the policy and origin that it results from.
#[derive(Debug)]
struct Child {
    policy: Arc<Policy>,
    origin: Origin,
    authority: Authority,
}

/// A layer with its name.
#[derive(Clone, Debug)]
pub(crate) struct LayerEntry {
    pub(crate) name: LayerName,
    pub(crate) layer: Layer,
    /// Whether it is an ancestor's, so that its delegate-only scopes apply.
    pub(crate) inherited: bool,
}

/// The parts of a layer, or of all layers together, that do not depend on the need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Total {
    pub(super) limits: Limits,
    pub(super) flags: Flags,
    pub(super) access: Access,
}

impl Authority {
    fn of(base: Arc<Base>, layers: Arc<[LayerEntry]>, total: Total) -> Self {
        Self::with_rules(Arc::new(Rules {
            base,
            layers,
            total,
            open: OnceLock::new(),
        }))
    }

    fn with_rules(rules: Arc<Rules>) -> Self {
        let child = Mutex::default();
        Self {
            inner: Arc::new(AuthorityInner { rules, child }),
        }
    }

    fn rules(&self) -> &Rules {
        &self.inner.rules
    }

    /// The same authority with a reference count of its own.
    fn separate(&self) -> Self {
        Self::with_rules(Arc::clone(&self.inner.rules))
    }

    /// Creates the authority of a configuration.
    ///
    /// # Errors
    /// [`PolicyError`] if a glob or another text is invalid.
    pub fn configured(config: &Config) -> Result<Self, PolicyError> {
        Self::with_ungrantable(config, Vec::new())
    }

    /// The authority of a configuration where no grant covers the paths `ungrantable` or an ancestor of them.
    pub(crate) fn with_ungrantable(
        config: &Config,
        ungrantable: Vec<VirtualPath>,
    ) -> Result<Self, PolicyError> {
        let mut budget = PatternBudget::configuration();
        let policy = config.policy.configured();
        let first = policy.compile(Limits::default(), &mut budget)?;
        let mut total = first.0.total;
        // By default, grants may reach outside the roots, and no policy needs to allow it.
        let escapes = policy.fields.flags.get(&Flag::AllowEscape) == Some(&true);
        total.flags = total.flags.with(Flag::AllowEscape, escapes);
        let mut layers = vec![first];
        for earlier in &config.restrictions {
            let layer = earlier.policy.compile(Limits::UNLIMITED, &mut budget)?;
            total = total.tighter(layer.0.total);
            layers.push(layer);
        }
        let entry = |layer| LayerEntry {
            name: LayerName::Configuration,
            layer,
            inherited: false,
        };
        let base = Base::compile(config, ungrantable, &mut budget)?;
        let layers = layers.into_iter().map(entry).collect();
        Ok(Self::of(Arc::new(base), layers, total))
    }

    /// Compiles `policy` into a layer. Fails if it requests anything beyond this authority.
    ///
    /// # Errors
    /// [`PolicyError`] with the JSON pointer of the first member that requests more or is invalid.
    pub fn admit(&self, policy: &Policy, origin: Origin) -> Result<Layer, PolicyError> {
        self.admit_within(policy, origin, PatternBudget::of(origin))
    }

    /// Like [`Authority::admit`], for the policy of one call: its compiled globs are not cached.
    pub(crate) fn admit_once(&self, policy: &Policy, origin: Origin) -> Result<Layer, PolicyError> {
        self.admit_within(policy, origin, PatternBudget::of(origin).once())
    }

    fn admit_within(
        &self,
        policy: &Policy,
        origin: Origin,
        mut budget: PatternBudget,
    ) -> Result<Layer, PolicyError> {
        let layer = policy.compile(Limits::UNLIMITED, &mut budget)?;
        policy.admit(self, origin)?;
        Ok(layer)
    }

    /// Returns the authority of a child with `layer`.
    #[must_use]
    pub fn narrow(&self, layer: &Layer) -> Self {
        let agents = |entry: &&LayerEntry| matches!(entry.name, LayerName::Agent(_));
        let index = self.rules().layers.iter().filter(agents).count();
        let inherited = self.rules().layers.iter().map(|entry| LayerEntry {
            inherited: true,
            ..entry.clone()
        });
        self.with(inherited.collect(), LayerName::Agent(index), layer)
    }

    /// The authority of a child with `policy`. It depends on nothing else, so the last one is kept, unless its policy is that
    /// of a stranger, who could make it large.
    ///
    /// # Errors
    /// As for [`Authority::admit`].
    pub(crate) fn child(&self, policy: &Arc<Policy>, origin: Origin) -> Result<Self, PolicyError> {
        let is_same = |child: &&Child| {
            let kept = &child.policy;
            child.origin == origin && (Arc::ptr_eq(kept, policy) || kept == policy)
        };
        if let Some(child) = self.inner.child.lock().as_ref().filter(is_same) {
            return Ok(child.authority.separate());
        }
        let authority = self.narrow(&self.admit(policy, origin)?);
        if matches!(origin, Origin::Human | Origin::Host) {
            let child = Child {
                policy: Arc::clone(policy),
                origin,
                authority: authority.separate(),
            };
            let replaced = self.inner.child.lock().replace(child);
            // Freed after the lock is released.
            drop(replaced);
        }
        Ok(authority)
    }

    /// The authority of a child that has everything that this one may delegate.
    pub(crate) fn delegable(&self) -> Result<Self, PolicyError> {
        let layer = self.admit(&Policy::inherit(), Origin::Host)?;
        Ok(self.narrow(&layer))
    }

    /// Returns this authority for a session with `layer`.
    #[must_use]
    pub fn session(&self, layer: &Layer) -> Self {
        self.with(self.rules().layers.to_vec(), LayerName::Session, layer)
    }

    /// Returns this authority for one call with `layer`.
    #[must_use]
    pub fn overlay(&self, layer: &Layer) -> Self {
        self.with(self.rules().layers.to_vec(), LayerName::Call, layer)
    }

    fn with(&self, mut layers: Vec<LayerEntry>, name: LayerName, layer: &Layer) -> Self {
        layers.push(LayerEntry {
            name,
            layer: layer.clone(),
            inherited: false,
        });
        let total = self.rules().total.tighter(layer.0.total);
        let base = Arc::clone(&self.rules().base);
        Self::of(base, layers.into(), total)
    }

    /// Returns the verdict on one need: the strictest of all layers. A grant turns `Ask` into `Allow`.
    ///
    /// A protected file requires a grant that names the file. Nothing overrides `Deny`.
    #[must_use]
    pub fn judge(&self, need: &Scope, granted: &[Coverage]) -> Verdict {
        let ruling = self.rule(&Need::new(need));
        if ruling.verdict == Verdict::Ask && satisfying(ruling, need, granted).is_some() {
            Verdict::Allow
        } else {
            ruling.verdict
        }
    }

    /// Whether `other` shares the rules of this authority.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner.rules, &other.inner.rules)
    }

    fn rule(&self, need: &Need<'_>) -> Ruling {
        let mut ruling = self.rules().base.judge(need);
        for entry in &*self.rules().layers {
            if ruling.verdict == Verdict::Deny {
                break;
            }
            ruling = ruling.tighter(self.rule_of(entry, need));
        }
        ruling
    }

    pub(crate) fn rule_of(&self, entry: &LayerEntry, need: &Need<'_>) -> Ruling {
        let ruling = entry
            .layer
            .0
            .judge(need, self.rules().base.mounts(), entry.inherited);
        let confined = !entry.layer.0.total.flags.get(Flag::AllowEscape);
        let escapes = || {
            need.path()
                .is_some_and(|path| self.rules().base.is_outside(path))
        };
        ruling.tighter(Ruling::deny_if(confined && escapes(), Rule::Escape))
    }

    /// The rules that may treat entries of `dir` differently from others; `None` if each entry must be judged.
    pub(crate) fn entry_rules(
        &self,
        dir: &VirtualPath,
        granted: &[Coverage],
    ) -> Option<EntryRules<'_>> {
        let mut rules = EntryRulesBuilder::new(dir, &self.rules().base)?;
        self.rules().base.add_entry_rules(&mut rules);
        for entry in &*self.rules().layers {
            entry
                .layer
                .add_entry_rules(self.rules().base.mounts(), &mut rules);
        }
        granted
            .iter()
            .filter_map(Coverage::path)
            .for_each(|path| rules.path(path));
        rules.build()
    }

    /// Explains which layer and rule decide, and the smallest grant that would help.
    #[must_use]
    pub fn explain(&self, need: &Scope, granted: &[Coverage]) -> Explanation {
        Explanation::of(self, need, granted)
    }

    /// The same authority without rules about names: globs and protected names.
    pub(super) fn without_names(&self) -> Self {
        let layers = self.rules().layers.iter().map(|entry| LayerEntry {
            layer: entry.layer.without_names(),
            ..entry.clone()
        });
        let base = Arc::new(self.rules().base.without_names());
        Self::of(base, layers.collect(), self.rules().total)
    }

    /// Returns the open folders inside the roots, in path order. Grants are not considered, and the file system is not
    /// read, so the folders may not exist.
    ///
    /// A subtree in which files are only allowed by an allow glob such as `*.rs` is not listed, since its folders
    /// cannot be read.
    #[must_use]
    pub fn open_folders(&self) -> &[OpenFolder] {
        self.rules().open.get_or_init(|| self.find_open_folders())
    }

    pub(super) fn shared_base(&self) -> Arc<Base> {
        Arc::clone(&self.rules().base)
    }

    #[doc(hidden)]
    #[must_use]
    pub fn base(&self) -> &Base {
        &self.rules().base
    }

    pub(crate) fn layers(&self) -> &[LayerEntry] {
        &self.rules().layers
    }

    /// Approximate size of the call's own policies in bytes.
    pub(crate) fn call_size(&self) -> usize {
        let layers = self.rules().layers.iter();
        let of_call = layers.filter(|entry| entry.name == LayerName::Call);
        of_call.map(|entry| entry.layer.size()).sum()
    }

    /// Returns the limits, each the strictest of all layers.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.rules().total.limits
    }

    /// Returns whether the tool of that name may be called.
    #[must_use]
    pub fn allows_tool(&self, name: &str) -> bool {
        self.all(|layer| layer.0.sets.has_tool(name))
    }

    /// Returns whether files may be written in that mode.
    #[must_use]
    pub fn allows_write_mode(&self, mode: WriteMode) -> bool {
        self.all(|layer| layer.0.sets.has_mode(mode))
    }

    pub(crate) fn has_verb(&self, verb: Verb) -> bool {
        self.all(|layer| layer.0.sets.has_verb(verb))
    }

    fn all(&self, test: impl Fn(&Layer) -> bool) -> bool {
        self.rules().layers.iter().all(|entry| test(&entry.layer))
    }

    /// The tools that are allowed, if any layer lists tools.
    pub(crate) fn tools(&self) -> Option<Vec<&str>> {
        let mut lists = self
            .rules()
            .layers
            .iter()
            .filter_map(|entry| entry.layer.0.sets.tools.as_ref());
        let first = lists.next()?.iter().map(String::as_str);
        Some(first.filter(|tool| self.allows_tool(tool)).collect())
    }

    /// Returns the value of a flag: if it allows something, whether all layers allow it, otherwise whether any layer
    /// restricts it.
    #[must_use]
    pub fn flag(&self, flag: Flag) -> bool {
        self.rules().total.flags.get(flag)
    }

    /// Returns the access level.
    #[must_use]
    pub fn access(&self) -> Access {
        self.rules().total.access
    }

    pub(crate) fn flags(&self) -> Flags {
        self.rules().total.flags
    }

    /// Returns whether anything at or beneath `prefix` could have a verdict other than `Deny`. If this is not certain,
    /// the result is true.
    #[must_use]
    pub fn reaches(&self, prefix: &VirtualPath) -> bool {
        let reaches = |entry: &LayerEntry| entry.layer.0.reaches(prefix, entry.inherited);
        self.rules().base.reaches(prefix) && self.rules().layers.iter().all(reaches)
    }

    /// Whether the subtree at `path` is in a root of every layer.
    pub(crate) fn lists(&self, path: &VirtualPath) -> bool {
        self.rules().base.lists(path) && self.policies_hold(path)
    }

    /// Whether the policies of all layers allow the subtree at `path`, in a root or not.
    pub(crate) fn policies_hold(&self, path: &VirtualPath) -> bool {
        self.all(|layer| layer.0.roots.holds(path))
    }

    /// Whether a layer blocks the subtree at `path`.
    pub(crate) fn blocks(&self, path: &VirtualPath) -> bool {
        let layers = &mut self.rules().layers.iter();
        self.rules().base.blocks(path) || layers.any(|entry| entry.layer.0.roots.blocks(path))
    }

    /// Whether all of `wanted` may be delegated.
    pub(crate) fn holds(&self, wanted: &ScopePattern) -> bool {
        let listed = |layer: &Layer| wanted.path().is_none_or(|path| layer.0.roots.holds(path));
        self.rules().base.holds(wanted)
            && self.all(|layer| listed(layer) && layer.0.scopes.holds(wanted))
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.rules().base.is_strict()
    }

    /// Whether changing this file requires a grant that names it.
    pub(crate) fn protects(&self, need: &Scope) -> bool {
        self.rules().base.protects(need)
    }

    /// Why `need` is protected by its name; `None` if it is not.
    pub(crate) fn protection_reason(&self, need: &Scope) -> Option<&'static str> {
        self.rules().base.protection_reason(need)
    }

    /// Whether a grant of `pattern` could have any effect under this configuration.
    pub(crate) fn is_grantable(&self, pattern: &ScopePattern) -> bool {
        self.rules().base.is_grantable(pattern)
    }

    /// The widest patterns that a person may grant: the roots, and what is configured as grantable outside them.
    pub(crate) fn max_grantable(&self) -> Vec<ScopePattern> {
        self.rules().base.max_grantable()
    }

    /// The mounts of the served roots.
    pub(crate) fn served(&self) -> Vec<VirtualPath> {
        let roots = self.rules().base.listed();
        roots.map(|root| root.mount.path.clone()).collect()
    }
}

/// The grant that satisfies an `Ask`.
pub(crate) fn satisfying<'g>(
    ruling: Ruling,
    need: &Scope,
    granted: &'g [Coverage],
) -> Option<&'g Coverage> {
    granted.iter().find(|grant| {
        grant.covers(need)
            && (!ruling.is_exact() || grant.path().is_some_and(|path| need.path() == Some(path)))
    })
}

impl Total {
    fn tighter(self, other: Self) -> Self {
        let Self {
            limits,
            flags,
            access,
        } = self;
        Self {
            limits: limits.tighter(other.limits),
            flags: flags.tighter(other.flags),
            access: access.min(other.access),
        }
    }
}
