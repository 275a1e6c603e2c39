//! Opens the configured roots.

use std::error::Error as _;
use std::path::PathBuf;
use std::sync::Arc;

use super::BuildError;
use crate::config::{Config, Restriction, RootConfig, UnavailableRoot};
use crate::path::VirtualPath;
use crate::policy::{Policy, PolicyError};
use crate::root::{Root, RootError, RootTable};

impl BuildError {
    /// The `data` of a JSON-RPC error, if a member of the configuration caused it; `layer` names its source if the error
    /// does not.
    #[must_use]
    pub fn data(&self, layer: &str) -> Option<serde_json::Value> {
        match self {
            Self::Configured { field, source } => {
                Some(PolicyError::invalid(field.as_str(), source.to_string()).data(layer))
            }
            Self::Policy(error) => Some(error.data(layer)),
            Self::Source(error) => Some(error.data()),
            _ => None,
        }
    }
}

/// A configured root and its host directory.
#[derive(Debug)]
pub(super) struct ConfiguredRoot {
    pub(super) config: RootConfig,
    pub(super) host: PathBuf,
    pub(super) cross_mounts: bool,
}

/// Adds the JSON pointer of the member of the configuration that caused the error, if any.
pub(super) fn pointed(error: BuildError, configured: &[VirtualPath]) -> BuildError {
    let BuildError::Root(source) = error else {
        return error;
    };
    // Of two roots with the same path the later is refused.
    match configured.iter().rposition(|path| path == source.mount()) {
        Some(index) => BuildError::Configured {
            field: format!("/roots/{index}/path"),
            source,
        },
        None => BuildError::Root(source),
    }
}

/// Opens all roots; the only use of ambient authority. Optional roots that cannot be opened are left out and returned,
/// unless no root is left.
pub(super) fn opened(
    mut config: Config,
    places: Vec<Result<ConfiguredRoot, BuildError>>,
    kept_out: &[PathBuf],
) -> Result<(Config, RootTable, Vec<UnavailableRoot>), BuildError> {
    let mut roots: Vec<Arc<Root>> = Vec::with_capacity(places.len());
    let mut unavailable: Vec<UnavailableRoot> = Vec::new();
    let mut left_out: Vec<RootConfig> = Vec::new();
    let (mut first_error, mut default_left_out) = (None, false);
    for place in places {
        let place = place?;
        let opened = match open(&place, &roots, kept_out) {
            Err(error) if may_be_left_out(&place.config, &error) => {
                let reason = reason(&error);
                let path = place.config.mount.clone();
                tracing::warn!(%path, reason = %crate::escape(&reason), "a root is left out");
                unavailable.push(UnavailableRoot { path, reason });
                default_left_out |= place.config.default;
                first_error = first_error.or(Some(error));
                left_out.push(place.config);
                continue;
            }
            opened => opened?,
        };
        roots.push(Arc::new(opened));
        config = config.root(RootConfig {
            default: place.config.default || std::mem::take(&mut default_left_out),
            ..place.config
        });
    }
    if let Some(error) = first_error.filter(|_| roots.is_empty()) {
        return Err(error.into());
    }
    let restricted = config
        .restrictions
        .iter()
        .flat_map(|earlier| &earlier.roots);
    for root in restricted.map(|root| &root.mount) {
        // A directory that cannot be opened contains no aliases.
        let Ok(restricted) = Root::open(root.clone(), root.as_str().as_ref(), false) else {
            continue;
        };
        let renamed = |opened: &&Arc<Root>| opened.mount() != root;
        for opened in roots.iter().filter(renamed) {
            opened.beside(&restricted)?;
        }
    }
    if !left_out.is_empty() {
        // The restrictions of a nested root hold even if its directory is created later.
        config.restrictions.push(Restriction {
            roots: left_out,
            policy: Policy::new(),
        });
    }
    Ok((config, RootTable::new(roots), unavailable))
}

/// Whether a root that was refused with `error` can be left out. One that is an alias of another might restrict it.
fn may_be_left_out(root: &RootConfig, error: &RootError) -> bool {
    let plain = RootConfig {
        default: root.default,
        optional: root.optional,
        ..RootConfig::new(root.mount.clone())
    };
    root.optional && (matches!(error, RootError::Open { .. }) || *root == plain)
}

fn open(
    place: &ConfiguredRoot,
    others: &[Arc<Root>],
    kept_out: &[PathBuf],
) -> Result<Root, RootError> {
    let mount = place.config.mount.clone();
    let opened = Root::open(mount, &place.host, place.cross_mounts)?;
    for other in others {
        opened.beside(other)?;
    }
    for file in kept_out {
        opened.without(file)?;
    }
    Ok(opened)
}

/// An error with its cause.
fn reason(error: &RootError) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
