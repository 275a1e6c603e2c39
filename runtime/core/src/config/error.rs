//! Errors of configuration sources, which name the flag, variable or file at fault.

use std::fmt;

use serde_json::Value;

use super::ConfigSource;
use crate::policy::keys::Key;
use crate::policy::{PolicyError, PolicyErrorKind};

/// Why a configuration source is invalid.
#[derive(Clone, PartialEq, thiserror::Error)]
pub struct ConfigError {
    origin: ConfigSource,
    fault: PolicyError,
    /// The key whose flag or variable is invalid.
    set: Option<&'static Key>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = place(self.origin, self.set, self.field());
        write!(f, "{place} {}", self.fault.reason())
    }
}

/// Like `Display`, with the causes, since `main` prints this form.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::error::write_chain(self, f)
    }
}

impl ConfigError {
    pub(super) fn new(origin: ConfigSource, fault: PolicyError) -> Self {
        Self {
            origin,
            fault,
            set: None,
        }
    }

    /// This error, for a source whose texts have these keys.
    pub(super) fn of_texts(mut self, has: impl Fn(&str) -> bool) -> Self {
        self.set = set_by(self.fault.field(), has);
        self
    }

    /// Returns the invalid source.
    #[must_use]
    pub fn origin(&self) -> ConfigSource {
        self.origin
    }

    /// Returns the kind of error.
    #[must_use]
    pub fn kind(&self) -> PolicyErrorKind {
        self.fault.kind()
    }

    /// Returns the JSON pointer of the invalid member; empty for the whole document.
    #[must_use]
    pub fn field(&self) -> &str {
        self.fault.field()
    }

    /// Returns the `data` of a JSON-RPC error; its `layer` is the source.
    #[must_use]
    pub fn data(&self) -> Value {
        self.fault.data(self.origin.as_str())
    }
}

/// The key whose text contains `pointer`: a member of a key if the member has its own text, otherwise the key.
pub(super) fn set_by(pointer: &str, has: impl Fn(&str) -> bool) -> Option<&'static Key> {
    let key = pointer.strip_prefix('/')?;
    let top = key.split('/').next().unwrap_or_default();
    let member = Key::find(key).filter(|field| has(field.key));
    member
        .or_else(|| Key::find(top))
        .filter(|field| field.is_settable())
}

/// Describes the location of the member at `pointer`.
pub(super) fn place(origin: ConfigSource, set: Option<&Key>, pointer: &str) -> String {
    let name = match (origin, set) {
        // On the command line, roots are usually given without a flag.
        (ConfigSource::Flags, Some(field)) if field.key == "roots" => "ROOT or --roots".to_owned(),
        (ConfigSource::Flags, Some(field)) => format!("--{}", field.flag()),
        (ConfigSource::Environment, Some(field)) => field.variable(),
        _ if pointer.is_empty() => return format!("configuration ({}):", origin.as_str()),
        _ => return format!("configuration ({}): {pointer}", origin.as_str()),
    };
    let within = set.and_then(|field| pointer.strip_prefix('/')?.strip_prefix(field.key));
    let within = within.unwrap_or_default().split('/').skip(1);
    let within: Vec<String> = within
        .map(|step| match step.parse::<usize>() {
            Ok(index) => format!("item {}", index.saturating_add(1)),
            Err(_) => step.to_owned(),
        })
        .collect();
    if within.is_empty() {
        name
    } else {
        format!("{name} ({})", within.join(", "))
    }
}
