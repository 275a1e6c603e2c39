//! Parses a configuration from JSON; errors name the JSON pointer.

use serde_json::Value;

use super::{Config, Restriction, RootConfig};
use crate::path::VirtualPath;
use crate::policy::{Access, Key, KeyScope, Pointer, Policy, PolicyError};

impl Config {
    /// Parses a configuration; `roots[].path` is the mount point of a root.
    ///
    /// # Errors
    /// [`PolicyError`] with the JSON pointer of the first invalid member.
    pub fn parse(value: &Value) -> Result<Self, PolicyError> {
        let mut config = Self::new();
        for (key, at) in Pointer::top(value).members()? {
            Key::check(key, KeyScope::Configuration, at.pointer())?;
            match key {
                "roots" => config.roots = roots(&at)?,
                "grantable" => config.grantable = at.patterns()?,
                "allow" => config.allow = at.patterns()?,
                "protect" => config.protect = at.globs()?,
                "strict" => config.strict = at.flag()?,
                "restrictions" => config.restrictions = restrictions(&at)?,
                _ => config.policy.set(key, &at)?,
            }
        }
        Ok(config)
    }
}

fn restrictions(at: &Pointer<'_>) -> Result<Vec<Restriction>, PolicyError> {
    at.items()?.map(|item| restriction(&item)).collect()
}

fn restriction(at: &Pointer<'_>) -> Result<Restriction, PolicyError> {
    let mut restriction = Restriction::default();
    for (key, at) in at.members()? {
        match key {
            "roots" => restriction.roots = roots(&at)?,
            "policy" => restriction.policy = policy(&at)?,
            _ => return Err(at.invalid("is an unknown key")),
        }
    }
    Ok(restriction)
}

fn policy(at: &Pointer<'_>) -> Result<Policy, PolicyError> {
    let mut policy = Policy::new();
    for (key, at) in at.members()? {
        Key::check(key, KeyScope::Policy, at.pointer())?;
        policy.set(key, &at)?;
    }
    Ok(policy)
}

fn roots(at: &Pointer<'_>) -> Result<Vec<RootConfig>, PolicyError> {
    let mut read: Vec<RootConfig> = Vec::new();
    for item in at.items()? {
        let root = root(&item)?;
        if root.default && read.iter().any(|other| other.default) {
            return Err(item.invalid("is a second default root"));
        }
        read.push(root);
    }
    Ok(read)
}

fn root(at: &Pointer<'_>) -> Result<RootConfig, PolicyError> {
    let mut root = RootConfig::new(VirtualPath::top());
    let mut mount = None;
    for (key, at) in at.members()? {
        Key::check(
            &format!("roots/{key}"),
            KeyScope::Configuration,
            at.pointer(),
        )?;
        match key {
            "path" => mount = Some(at.path()?),
            "default" => root.default = at.flag()?,
            "optional" => root.optional = at.flag()?,
            "access" => root.access = at.one_of(&Access::ALL, Access::as_str)?,
            "blocked" => root.blocked = at.flag()?,
            "allow" => root.allow = at.globs()?,
            "deny" => root.deny = at.globs()?,
            "immutable" => root.immutable = at.globs()?,
            _ => return Err(at.invalid("is no known key")),
        }
    }
    root.mount = mount.ok_or_else(|| at.invalid("must have a `path`"))?;
    Ok(root)
}
