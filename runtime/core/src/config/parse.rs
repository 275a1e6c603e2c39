//! Parses a configuration from JSON; errors name the JSON pointer.

use serde_json::Value;

use super::{Config, Restriction, RootConfig};
use crate::path::VirtualPath;
use crate::policy::{EnumKind, KeyScope, Pointer, PolicyError};

impl Config {
    /// Parses a configuration; `roots[].path` is the mount point of a root.
    ///
    /// # Errors
    /// [`PolicyError`] with the JSON pointer of the first invalid member.
    pub fn parse(value: &Value) -> Result<Self, PolicyError> {
        let mut config = Self::new();
        Pointer::top(value).each_key(None, KeyScope::Configuration, |field, at| {
            match field.key {
                "roots" => config.roots = roots(at)?,
                "grantable" => config.grantable = at.patterns()?,
                "allow" => config.allow = at.patterns()?,
                "protect" => config.protect = at.globs()?,
                "strict" => config.strict = at.flag()?,
                "restrictions" => config.restrictions = at.each(restriction)?,
                _ => config.policy.set(field, at)?,
            }
            Ok(())
        })?;
        Ok(config)
    }
}

fn restriction(at: &Pointer<'_>) -> Result<Restriction, PolicyError> {
    let mut restriction = Restriction::default();
    at.each_key(
        Some("restrictions"),
        KeyScope::Configuration,
        |field, at| {
            match field.name() {
                "roots" => restriction.roots = roots(at)?,
                "policy" => restriction.policy = at.policy()?,
                _ => return at.unknown(),
            }
            Ok(())
        },
    )?;
    Ok(restriction)
}

fn roots(at: &Pointer<'_>) -> Result<Vec<RootConfig>, PolicyError> {
    let mut default = false;
    at.each(|item| {
        let root = root(item)?;
        if root.default && std::mem::replace(&mut default, root.default) {
            return Err(item.invalid("is a second default root"));
        }
        Ok(root)
    })
}

fn root(at: &Pointer<'_>) -> Result<RootConfig, PolicyError> {
    let mut root = RootConfig::new(VirtualPath::top());
    let shared = at.root(KeyScope::Configuration, |field, at| {
        match field.name() {
            "default" => root.default = at.flag()?,
            "optional" => root.optional = at.flag()?,
            "access" => root.access = at.word(EnumKind::Access)?,
            _ => return at.unknown(),
        }
        Ok(())
    })?;
    Ok(RootConfig {
        mount: shared.path,
        blocked: shared.blocked == Some(true),
        allow: shared.allow.unwrap_or_default(),
        deny: shared.deny,
        immutable: shared.immutable,
        ..root
    })
}
