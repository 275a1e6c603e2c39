//! Authority: the conjunction of the configuration and all policy layers.

use std::sync::Arc;

use serde_json::Value;

use super::access::Access;
use super::base::Base;
use super::error::PolicyError;
use super::explain::{Explanation, LayerName};
use super::flags::Flags;
use super::limits::Limits;
use super::need::Need;
use super::patterns::PatternBudget;
use super::sets::WriteMode;
use super::verdict::{Rule, Ruling, Verdict};
use super::{Layer, Policy};
use crate::call::Origin;
use crate::config::Config;
use crate::path::VirtualPath;
use crate::scope::{Coverage, Scope, ScopePattern, Verb};

/// Everything above a call, as a conjunction of layers; cheap to clone.
///
/// Layers can be added and never taken away, so what is derived from an authority is never more open.
///
/// ```
/// use bailiwick::{Authority, Config, Origin, Policy, RootConfig, Scope, Verdict, VirtualPath};
/// let config = Config::new().root(RootConfig::new(VirtualPath::parse("/repo", None)?));
/// let host = Authority::configured(&config)?;
/// let layer = host.admit(&Policy::new().allow("read:file:/repo/src"), Origin::Human)?;
/// let worker = host.narrow(&layer);
/// let need: Scope = "read:file:/repo/src/main.rs".parse()?;
/// assert_eq!(worker.judge(&need, &[]), Verdict::Allow);
/// let need: Scope = "write:file:/repo/src/main.rs".parse()?;
/// assert_eq!(worker.judge(&need, &[]), Verdict::Deny);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// No layer can be taken away, and none can be made but by [`Authority::admit`]:
/// ```compile_fail
/// fn widened(entry: bailiwick::Authority) -> bailiwick::Authority {
///     bailiwick::Authority { layers: [].into(), ..entry } // private
/// }
/// ```
/// ```compile_fail
/// fn forged(layer: bailiwick::Layer) -> bailiwick::Layer {
///     bailiwick::Layer(layer.0) // private
/// }
/// ```
/// What can be done is to add one:
/// ```
/// fn narrowed(entry: &bailiwick::Authority, layer: &bailiwick::Layer) -> bailiwick::Authority {
///     entry.narrow(layer)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Authority {
    base: Arc<Base>,
    layers: Arc<[LayerEntry]>,
    total: Arc<Total>,
}

/// A layer and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct LayerEntry {
    pub(crate) name: LayerName,
    pub(crate) layer: Layer,
    /// Whether it is an ancestor's, so that what was only to be handed on has been.
    pub(crate) inherited: bool,
}

/// What does not depend on the need, of all layers together.
#[derive(Clone, Copy, Debug)]
struct Total {
    limits: Limits,
    flags: Flags,
    access: Access,
}

impl Authority {
    /// What a configuration gives.
    ///
    /// # Errors
    /// [`PolicyError`] if a glob or a builder's text cannot be read.
    pub fn configured(config: &Config) -> Result<Self, PolicyError> {
        Self::with_ungrantable(config, Vec::new())
    }

    /// What a configuration gives on a host where no grant opens the paths `ungrantable`, or what holds one of them.
    pub(crate) fn with_ungrantable(
        config: &Config,
        ungrantable: Vec<VirtualPath>,
    ) -> Result<Self, PolicyError> {
        let mut budget = PatternBudget::configuration();
        let policy = config.policy.configured();
        let first = policy.compile(Limits::default(), &mut budget)?;
        let mut total = Total::of(&first);
        // Where the configuration says nothing, grants may reach outside the roots, and no policy needs to say so.
        total.flags.allow_escape = policy.flags.allow_escape == Some(true);
        let mut layers = vec![first];
        for earlier in &config.restrictions {
            let layer = earlier.policy.compile(Limits::UNLIMITED, &mut budget)?;
            total = total.tighter(Total::of(&layer));
            layers.push(layer);
        }
        let entry = |layer| LayerEntry {
            name: LayerName::Configuration,
            layer,
            inherited: false,
        };
        Ok(Self {
            base: Arc::new(Base::compile(config, &mut budget)?.with_ungrantable(ungrantable)),
            total: Arc::new(total),
            layers: layers.into_iter().map(entry).collect(),
        })
    }

    /// Reads `policy` as one more layer, if it asks for nothing that this authority lacks.
    ///
    /// # Errors
    /// [`PolicyError`] with the JSON pointer of the first member that asks for more or cannot be read.
    pub fn admit(&self, policy: &Policy, origin: Origin) -> Result<Layer, PolicyError> {
        self.admit_within(policy, origin, PatternBudget::of(origin))
    }

    /// Like [`Authority::admit`], for the policy of one call: nothing that is compiled for it is kept.
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

    /// The authority of a child that is kept to `layer`.
    #[must_use]
    pub fn narrow(&self, layer: &Layer) -> Self {
        let agents = |entry: &&LayerEntry| matches!(entry.name, LayerName::Agent(_));
        let index = self.layers.iter().filter(agents).count();
        let inherited = self.layers.iter().map(|entry| LayerEntry {
            inherited: true,
            ..entry.clone()
        });
        self.with(inherited.collect(), LayerName::Agent(index), layer)
    }

    /// This authority for a session that is kept to `layer`.
    #[must_use]
    pub fn session(&self, layer: &Layer) -> Self {
        self.with(self.layers.to_vec(), LayerName::Session, layer)
    }

    /// This authority for one call that is kept to `layer`.
    #[must_use]
    pub fn overlay(&self, layer: &Layer) -> Self {
        self.with(self.layers.to_vec(), LayerName::Call, layer)
    }

    fn with(&self, mut layers: Vec<LayerEntry>, name: LayerName, layer: &Layer) -> Self {
        layers.push(LayerEntry {
            name,
            layer: layer.clone(),
            inherited: false,
        });
        Self {
            base: Arc::clone(&self.base),
            layers: layers.into(),
            total: Arc::new(self.total.tighter(Total::of(layer))),
        }
    }

    /// The verdict on one need: the tightest of all layers, where a grant turns `Ask` into `Allow`.
    ///
    /// A protected file needs a grant that names that very file. Nothing turns `Deny` into anything.
    #[must_use]
    pub fn judge(&self, need: &Scope, granted: &[Coverage]) -> Verdict {
        let ruling = self.rule(&Need::new(need));
        if ruling.verdict == Verdict::Ask && satisfying(ruling, need, granted).is_some() {
            Verdict::Allow
        } else {
            ruling.verdict
        }
    }

    fn rule(&self, need: &Need<'_>) -> Ruling {
        let mut ruling = self.base.judge(need);
        for entry in &*self.layers {
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
            .judge(need, self.base.mounts(), entry.inherited);
        let confined = !entry.layer.0.flags.allow_escape;
        let escapes = || need.path().is_some_and(|path| self.base.is_outside(path));
        ruling.tighter(Ruling::deny_if(confined && escapes(), Rule::Escape))
    }

    /// Says which layer and rule decide, and the smallest grant that would help.
    #[must_use]
    pub fn explain(&self, need: &Scope, granted: &[Coverage]) -> Explanation {
        Explanation::of(self, need, granted)
    }

    pub(crate) fn base(&self) -> &Base {
        &self.base
    }

    pub(crate) fn layers(&self) -> &[LayerEntry] {
        &self.layers
    }

    /// Whether a policy of the call itself is among the layers.
    pub(crate) fn has_call_policy(&self) -> bool {
        let mut layers = self.layers.iter();
        layers.any(|entry| entry.name == LayerName::Call)
    }

    /// About how many bytes the policies of the call itself hold.
    pub(crate) fn call_size(&self) -> usize {
        let layers = self.layers.iter();
        let of_call = layers.filter(|entry| entry.name == LayerName::Call);
        of_call.map(|entry| entry.layer.size()).sum()
    }

    /// The limits, each the tightest of all layers.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.total.limits
    }

    /// Whether the tool of that name may be called.
    #[must_use]
    pub fn allows_tool(&self, name: &str) -> bool {
        self.all(|layer| layer.0.sets.has_tool(name))
    }

    /// Whether files may be written in that way.
    #[must_use]
    pub fn allows_write_mode(&self, mode: WriteMode) -> bool {
        self.all(|layer| layer.0.sets.has_mode(mode))
    }

    pub(crate) fn has_verb(&self, verb: Verb) -> bool {
        self.all(|layer| layer.0.sets.has_verb(verb))
    }

    fn all(&self, test: impl Fn(&Layer) -> bool) -> bool {
        self.layers.iter().all(|entry| test(&entry.layer))
    }

    /// The tools that are left, if any layer lists them.
    pub(crate) fn tools(&self) -> Option<Vec<&str>> {
        let mut lists = self
            .layers
            .iter()
            .filter_map(|entry| entry.layer.0.sets.tools.as_ref());
        let first = lists.next()?.iter().map(String::as_str);
        Some(first.filter(|tool| self.allows_tool(tool)).collect())
    }

    /// Whether the configuration says `allow_escape: true` and no policy says `false`, so that a policy may say `true`. A
    /// configuration or policy that says `false` denies what lies outside every root, even if it is granted; one that says
    /// nothing leaves it as it is.
    #[must_use]
    pub fn allows_escape(&self) -> bool {
        self.total.flags.allow_escape
    }

    /// Whether links are followed at all.
    #[must_use]
    pub fn follows_symlinks(&self) -> bool {
        self.total.flags.follow_symlinks
    }

    /// Whether scopes of the resource `network` may be used.
    #[must_use]
    pub fn allows_network(&self) -> bool {
        self.total.flags.network
    }

    /// Whether nothing may be changed.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.total.flags.read_only
    }

    /// Whether files with more than one name are refused.
    #[must_use]
    pub fn strict_hardlinks(&self) -> bool {
        self.total.flags.strict_hardlinks
    }

    /// Whether a change must have been previewed.
    #[must_use]
    pub fn requires_preview(&self) -> bool {
        self.total.flags.require_preview
    }

    /// Whether every change needs a person; [`Authority::judge`] answers `Ask` for it.
    #[must_use]
    pub fn requires_approval(&self) -> bool {
        self.total.flags.require_approval
    }

    /// How far the worker may go.
    #[must_use]
    pub fn access(&self) -> Access {
        self.total.access
    }

    pub(crate) fn flags(&self) -> Flags {
        self.total.flags
    }

    /// Whether anything at or beneath `prefix` could be other than denied; true when in doubt.
    #[must_use]
    pub fn reaches(&self, prefix: &VirtualPath) -> bool {
        let reaches = |entry: &LayerEntry| entry.layer.0.reaches(prefix, entry.inherited);
        self.base.reaches(prefix) && self.layers.iter().all(reaches)
    }

    /// Whether the subtree at `path` lies in a root of every layer.
    pub(crate) fn lists(&self, path: &VirtualPath) -> bool {
        self.base.lists(path) && self.policies_hold(path)
    }

    /// Whether the policy of every layer holds the subtree at `path`, in a root or not.
    pub(crate) fn policies_hold(&self, path: &VirtualPath) -> bool {
        self.all(|layer| layer.0.roots.holds(path))
    }

    /// Whether a layer blocks the subtree at `path`.
    pub(crate) fn blocks(&self, path: &VirtualPath) -> bool {
        let layers = &mut self.layers.iter();
        self.base.blocks(path) || layers.any(|entry| entry.layer.0.roots.blocks(path))
    }

    /// Whether all of `wanted` may be handed on.
    pub(crate) fn holds(&self, wanted: &ScopePattern) -> bool {
        let listed = |layer: &Layer| wanted.path().is_none_or(|path| layer.0.roots.holds(path));
        self.base.holds(wanted) && self.all(|layer| listed(layer) && layer.0.scopes.holds(wanted))
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.base.is_strict()
    }

    /// Whether only a grant that names this very file lets it be changed.
    pub(crate) fn protects(&self, need: &Scope) -> bool {
        self.base.protects(need)
    }

    /// Why `need` is protected by its name; none if it is not.
    pub(crate) fn protection_reason(&self, need: &Scope) -> Option<&'static str> {
        self.base.protection_reason(need)
    }

    /// Whether a grant of `pattern` could have any effect under this configuration.
    pub(crate) fn is_grantable(&self, pattern: &ScopePattern) -> bool {
        self.base.is_grantable(pattern)
    }

    /// The widest that a person may grant: the roots, and what is configured as grantable beyond them.
    pub(crate) fn max_grantable(&self) -> Vec<ScopePattern> {
        self.base.max_grantable()
    }

    /// The mounts of the served roots.
    pub(crate) fn served(&self) -> Vec<VirtualPath> {
        let roots = self.base.listed();
        roots.map(|root| root.mount.path.clone()).collect()
    }

    /// The subtrees that a worker with this authority can see anyway.
    pub(crate) fn visible(&self) -> Value {
        let mounts = self.base.listed().map(|root| root.mount.path.clone());
        let layers = self.layers.iter();
        let left = layers.fold(mounts.collect::<Vec<_>>(), |left, entry| {
            entry.layer.0.roots.narrow(&left)
        });
        left.iter().map(VirtualPath::as_str).collect()
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
    fn of(layer: &Layer) -> Self {
        Self {
            limits: layer.0.limits,
            flags: layer.0.flags,
            access: layer.0.access,
        }
    }

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
