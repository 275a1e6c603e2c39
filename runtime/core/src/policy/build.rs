//! Builder methods of a policy; invalid text is reported when the policy is admitted.

use std::fmt;
use std::str::FromStr;

use super::Policy;
use super::access::Access;
use super::error::PolicyError;
use super::flags::Flag;
use super::globs::check;
use super::limits::Limit;
use super::roots::PolicyRoot;
use super::sets::WriteMode;
use super::verdict::Verdict;
use crate::budget::Budget;
use crate::path::VirtualPath;
use crate::scope::{ScopePattern, Verb};

impl Policy {
    /// Same as [`Policy::inherit`]: everything that is not restricted is inherited. Once `allow` or `ask` is called,
    /// scopes that no list names are denied, unless [`Policy::otherwise`] changes that.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a policy without restrictions, so the worker has the authority of its parent. Each method adds a
    /// restriction.
    ///
    /// ```
    /// use bailiwick::Policy;
    /// let all_but_secrets = Policy::inherit().deny_glob(".env");
    /// # let _ = all_but_secrets;
    /// ```
    #[must_use]
    pub fn inherit() -> Self {
        Self::default()
    }

    /// Creates a policy that denies everything except what [`Policy::allow`] and [`Policy::ask`] name.
    ///
    /// ```
    /// use bailiwick::Policy;
    /// let only_sources = Policy::nothing().allow("read:file:/repo/src");
    /// # let _ = only_sources;
    /// ```
    #[must_use]
    pub fn nothing() -> Self {
        Self::default().otherwise(Verdict::Deny)
    }

    /// The default policy of a worker: every call needs approval.
    #[must_use]
    pub fn ask_for_everything() -> Self {
        Self::new().otherwise(Verdict::Ask)
    }

    /// Allows what `pattern` covers. Scopes that no list names are denied, unless [`Policy::otherwise`] changes that.
    #[must_use]
    pub fn allow(mut self, pattern: &str) -> Self {
        self.read(pattern, "allow_scopes", |policy| {
            &mut policy.fields.scopes.allow
        });
        self
    }

    /// Asks a person about what `pattern` covers, even if `allow` names a part of it. To allow that part and ask about
    /// the rest, use `allow` with `otherwise(Verdict::Ask)`.
    #[must_use]
    pub fn ask(mut self, pattern: &str) -> Self {
        self.read(pattern, "ask_scopes", |policy| {
            &mut policy.fields.scopes.ask
        });
        self
    }

    /// Denies what `pattern` covers, even if something else allows it.
    #[must_use]
    pub fn deny(mut self, pattern: &str) -> Self {
        self.read(pattern, "deny_scopes", |policy| {
            &mut policy.fields.scopes.deny
        });
        self
    }

    /// Denies what `pattern` covers to the worker itself, but lets the worker delegate it to its children.
    #[must_use]
    pub fn delegate_only(mut self, pattern: &str) -> Self {
        self.read(pattern, "delegate_only", |policy| {
            &mut policy.fields.scopes.delegate_only
        });
        self
    }

    /// Sets the verdict on what no scope list names.
    #[must_use]
    pub fn otherwise(mut self, verdict: Verdict) -> Self {
        self.fields.scopes.otherwise = Some(verdict);
        self
    }

    /// Restricts the policy to the subtree at `path`. Further calls add subtrees.
    #[must_use]
    pub fn root(mut self, path: &str) -> Self {
        match self.path(path) {
            Some(path) => self.subtree(PolicyRoot::new(path)),
            None => self,
        }
    }

    /// Blocks the subtree at `path`.
    #[must_use]
    pub fn block(mut self, path: &str) -> Self {
        match self.path(path) {
            Some(path) => self.subtree(PolicyRoot {
                blocked: Some(true),
                ..PolicyRoot::new(path)
            }),
            None => self,
        }
    }

    /// Adds a root entry with its own globs.
    #[must_use]
    pub fn subtree(mut self, root: PolicyRoot) -> Self {
        self.fields.roots.get_or_insert_default().push(root);
        self
    }

    fn path(&mut self, path: &str) -> Option<VirtualPath> {
        let index = self.fields.roots.as_ref().map_or(0, Vec::len);
        VirtualPath::parse(path, None)
            .map_err(|error| self.fault(format!("/roots/{index}/path"), &error, path))
            .ok()
    }

    /// Records that the argument `text` of a builder method is invalid.
    fn fault(&mut self, at: String, reason: &dyn fmt::Display, text: &str) {
        let fault = PolicyError::invalid(at, reason.to_string());
        self.faults.push(fault.requested(text));
    }

    /// Denies the files that the glob covers, in every root.
    ///
    /// A glob without `/` matches names at any depth. A glob with `/` is relative to each root, without the name of the
    /// root: in the root `/repo`, `src/secret.rs` covers `/repo/src/secret.rs`, and `repo/src/secret.rs` covers only
    /// `/repo/repo/src/secret.rs`. [`Policy::deny`] and [`Policy::block`] take whole paths.
    ///
    /// ```
    /// use bailiwick::config::RootConfig;
    /// use bailiwick::policy::Authority;
    /// use bailiwick::{Config, Origin, Policy, Verdict, VirtualPath};
    ///
    /// let config = Config::new().root(RootConfig::new(VirtualPath::parse("/repo", None)?));
    /// let host = Authority::configured(&config)?;
    /// let verdict = |policy: Policy| {
    ///     let worker = host.narrow(&host.admit(&policy, Origin::Human)?);
    ///     Ok::<_, Box<dyn std::error::Error>>(worker.judge(&"read:file:/repo/src/secret.rs".parse()?, &[]))
    /// };
    /// assert_eq!(verdict(Policy::inherit().deny_glob("src/secret.rs"))?, Verdict::Deny);
    /// assert_eq!(verdict(Policy::inherit().deny_glob("repo/src/secret.rs"))?, Verdict::Allow);
    /// assert_eq!(verdict(Policy::inherit().deny("*:file:/repo/src/secret.rs"))?, Verdict::Deny);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn deny_glob(mut self, glob: &str) -> Self {
        self.check(glob, "deny", self.fields.deny.len());
        self.fields.deny.push(glob.to_owned());
        self
    }

    /// Denies changes of the files that the glob covers, in every root; see [`Policy::deny_glob`] for the form of globs.
    #[must_use]
    pub fn immutable_glob(mut self, glob: &str) -> Self {
        self.check(glob, "immutable", self.fields.immutable.len());
        self.fields.immutable.push(glob.to_owned());
        self
    }

    fn check(&mut self, glob: &str, key: &str, index: usize) {
        if let Err(reason) = check(glob) {
            self.fault(format!("/{key}/{index}"), &reason, glob);
        }
    }

    /// Restricts the policy to these tools.
    #[must_use]
    pub fn tools<'t>(mut self, tools: impl IntoIterator<Item = &'t str>) -> Self {
        let tools = tools.into_iter().map(str::to_owned);
        self.fields.sets.tools.get_or_insert_default().extend(tools);
        self
    }

    /// Restricts the policy to these verbs.
    #[must_use]
    pub fn verbs(mut self, verbs: impl IntoIterator<Item = Verb>) -> Self {
        self.fields.sets.verbs.get_or_insert_default().extend(verbs);
        self
    }

    /// Restricts the policy to these write modes.
    #[must_use]
    pub fn write_modes(mut self, modes: impl IntoIterator<Item = WriteMode>) -> Self {
        self.fields
            .sets
            .write_modes
            .get_or_insert_default()
            .extend(modes);
        self
    }

    /// Restricts the policy to an access level.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.fields.access = Some(access);
        self
    }

    /// If `allowed` is false, denies paths outside all roots, even if granted. True requires that the issuer allows it.
    #[must_use]
    pub fn allow_escape(self, allowed: bool) -> Self {
        self.flag(Flag::AllowEscape, allowed)
    }

    /// Sets whether links are followed.
    #[must_use]
    pub fn follow_symlinks(self, followed: bool) -> Self {
        self.flag(Flag::FollowSymlinks, followed)
    }

    /// Sets whether scopes of the resource `network` may be used. Tools of the host may need such scopes. MCP servers
    /// are governed by scopes of `mcp` instead, whatever transport they use.
    ///
    /// A policy can only turn the network off. The host turns it on with
    /// [`RuntimeBuilder::allow`](crate::RuntimeBuilder::allow) of such a scope, or with `true` in
    /// [`Config::policy`](crate::Config::policy).
    #[must_use]
    pub fn network(self, allowed: bool) -> Self {
        self.flag(Flag::Network, allowed)
    }

    /// Sets whether all changes are denied.
    #[must_use]
    pub fn read_only(self, read_only: bool) -> Self {
        self.flag(Flag::ReadOnly, read_only)
    }

    /// Sets whether files with several hard links are rejected, since another name may be outside the roots.
    #[must_use]
    pub fn strict_hardlinks(self, strict: bool) -> Self {
        self.flag(Flag::StrictHardlinks, strict)
    }

    /// Sets whether changes must be previewed.
    #[must_use]
    pub fn require_preview(self, required: bool) -> Self {
        self.flag(Flag::RequirePreview, required)
    }

    /// Sets whether every change requires approval.
    #[must_use]
    pub fn require_approval(self, required: bool) -> Self {
        self.flag(Flag::RequireApproval, required)
    }

    /// Limits the size of a returned file or part of a file; 0 is unlimited.
    #[must_use]
    pub fn read_max_bytes(self, bytes: u64) -> Self {
        self.limit(Limit::ReadMaxBytes, bytes)
    }

    /// Limits the size of a written file; 0 is unlimited.
    #[must_use]
    pub fn write_max_bytes(self, bytes: u64) -> Self {
        self.limit(Limit::WriteMaxBytes, bytes)
    }

    /// Limits the entries of one result; 0 is unlimited.
    #[must_use]
    pub fn max_results(self, results: u64) -> Self {
        self.limit(Limit::MaxResults, results)
    }

    /// Limits the calls of a worker; 0 is unlimited. A preview counts as a call, and so does the call that applies it.
    #[must_use]
    pub fn max_calls(self, calls: u64) -> Self {
        self.limit(Limit::MaxCalls, calls)
    }

    /// Limits the lifetime of a worker, in milliseconds; 0 is unlimited.
    #[must_use]
    pub fn ttl_ms(self, milliseconds: u64) -> Self {
        self.limit(Limit::TtlMs, milliseconds)
    }

    /// Sets the minimum time between two calls, in milliseconds.
    #[must_use]
    pub fn min_interval_ms(self, milliseconds: u64) -> Self {
        self.limit(Limit::MinIntervalMs, milliseconds)
    }

    /// Limits the budget of the worker and its descendants.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.fields.limits.budget = Some(budget);
        self
    }

    fn flag(mut self, flag: Flag, value: bool) -> Self {
        self.fields.flags.insert(flag, value);
        self
    }

    fn limit(mut self, limit: Limit, value: u64) -> Self {
        self.fields.limits.counts.insert(limit, value);
        self
    }

    fn read(
        &mut self,
        text: &str,
        key: &str,
        list: impl Fn(&mut Self) -> &mut Option<Vec<ScopePattern>>,
    ) {
        let list_of = list(self).get_or_insert_default();
        match ScopePattern::from_str(text) {
            Ok(pattern) => list_of.push(pattern),
            Err(error) => {
                let at = format!("/{key}/{}", list_of.len());
                self.fault(at, &error, text);
            }
        }
    }
}
