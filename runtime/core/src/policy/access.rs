//! Access levels: the verbs that they allow, and the level of an authority.

use super::authority::Authority;
use super::error::PolicyError;
use super::flags::Flag;
use super::sets::WriteMode;
use super::verdict::Verdict;
use crate::scope::{Resource, ScopePattern, Verb, words};

words! {
    /// How far a worker's access may go. The combination of two levels is the lower one.
    #[derive(Default)]
    pub enum Access {
        /// It may read.
        Read = "read",
        /// It may read and change.
        Interact = "interact",
        /// It may read, change and execute.
        #[default]
        Full = "full",
    }
}

impl Access {
    /// The lowest level that allows `verb`.
    pub(crate) const fn required(verb: Verb) -> Self {
        match verb {
            Verb::Read => Self::Read,
            Verb::Write => Self::Interact,
            Verb::Execute => Self::Full,
        }
    }
}

/// Rejects a level above that of the issuer.
pub(crate) fn admit(access: Option<Access>, issuer: &Authority) -> Result<(), PolicyError> {
    let held = issuer.access();
    match access.filter(|wanted| *wanted > held) {
        Some(wanted) => Err(PolicyError::expansion(
            "/access",
            "is above the issuer's",
            wanted.as_str(),
            held.as_str(),
        )),
        None => Ok(()),
    }
}

impl Authority {
    /// `Read` if nothing can be written even with grants, `Full` if paths outside all roots are grantable, else
    /// `Interact`. If this is not certain, the wider level is returned.
    pub(crate) fn level(&self) -> Access {
        let writes = self.leaves(Verb::Write)
            && !self.closes_files(Verb::Write)
            && self.max_grantable().iter().any(is_of_writing)
            && self
                .layers()
                .iter()
                .all(|held| held.layer.0.scopes.may_write());
        match (writes, self.flag(Flag::AllowEscape)) {
            (false, _) => Access::Read,
            (true, true) => Access::Full,
            (true, false) => Access::Interact,
        }
    }

    /// Whether there may be a need that `kind` covers and that is not denied. If this is not certain, the result is
    /// true.
    pub(crate) fn may_need(&self, kind: &ScopePattern) -> bool {
        let of_files = kind.resource() == Some(&Resource::File);
        let closed = |verb| of_files && self.closes_files(verb);
        let networked = kind.resource().is_some_and(Resource::is_network);
        kind.verb().is_none_or(|verb| self.leaves(verb))
            && !kind.verb().is_some_and(closed)
            && (!networked || self.flag(Flag::Network))
            && self.is_grantable(kind)
            && self
                .layers()
                .iter()
                .all(|held| held.layer.0.scopes.may_need(kind, held.inherited))
    }

    /// Whether no layer denies `verb` for everything.
    fn leaves(&self, verb: Verb) -> bool {
        let mut layers = self.layers().iter();
        layers.all(|held| held.layer.0.verb(verb).verdict == Verdict::Allow)
    }

    /// Whether `verb` is denied for all files, because globs cover them or no write mode is allowed.
    fn closes_files(&self, verb: Verb) -> bool {
        let mut modes = WriteMode::ALL.into_iter();
        let mut layers = self.layers().iter();
        layers.any(|held| held.layer.0.everywhere.closes(verb))
            || verb == Verb::Write && !modes.any(|mode| self.allows_write_mode(mode))
    }
}

/// Whether a pattern covers writing of files.
pub(crate) fn is_of_writing(pattern: &ScopePattern) -> bool {
    pattern.verb().is_none_or(|verb| verb == Verb::Write) && pattern.is_of_files()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Origin;
    use crate::config::{Config, RootConfig};
    use crate::path::VirtualPath;
    use crate::policy::Policy;

    fn mount() -> VirtualPath {
        VirtualPath::parse("/r", None).unwrap()
    }

    #[track_caller]
    fn check(config: &Config, policy: &Policy, level: Access) {
        let held = Authority::configured(config).unwrap();
        let layer = held.admit(policy, Origin::Human).unwrap();
        assert_eq!(held.narrow(&layer).level(), level);
    }

    #[test]
    fn access_level_is_read_if_nothing_can_be_written() {
        let open = Config::new().root(RootConfig::new(mount()));
        check(&open, &Policy::new(), Access::Interact);
        check(
            &open,
            &Policy::new().allow("write:file:/r/src"),
            Access::Interact,
        );
        check(&open, &Policy::new().ask("write:file"), Access::Interact);
        check(
            &open,
            &Policy::new().deny("write:file:/r/src"),
            Access::Interact,
        );
        check(&open, &Policy::new().read_only(true), Access::Read);
        check(&open, &Policy::new().allow("read:file"), Access::Read);
        check(&open, &Policy::new().deny("write:file"), Access::Read);
        check(&open, &Policy::new().otherwise(Verdict::Deny), Access::Read);
        check(&open, &Policy::new().immutable_glob("**"), Access::Read);
        check(
            &open,
            &Policy::new().immutable_glob("src/**"),
            Access::Interact,
        );
        let escaping = Config::new()
            .root(RootConfig::new(mount()))
            .policy(Policy::new().allow_escape(true));
        check(&escaping, &Policy::new(), Access::Full);
        check(&escaping, &Policy::new().read_only(true), Access::Read);
        let closed = Config::new().root(RootConfig::read_only(mount()));
        check(&closed, &Policy::new(), Access::Read);
    }
}
