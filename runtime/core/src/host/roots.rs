//! Opens the configured roots.

use std::error::Error as _;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use super::{BuildError, BuildFault};
use crate::config::{Config, Restriction, RootConfig, UnavailableRoot};
use crate::path::VirtualPath;
use crate::policy::{Policy, PolicyError};
use crate::root::{Root, RootError, RootTable};

impl BuildError {
    /// Returns the `data` of a JSON-RPC error about the first fault, if all faults are in the configuration. `layer`
    /// names the source of the configuration if the fault does not.
    #[must_use]
    pub fn data(&self, layer: &str) -> Option<Value> {
        let data = self.faults().iter().map(|fault| fault.data(layer));
        data.collect::<Option<Vec<_>>>()?.into_iter().next()
    }
}

impl BuildFault {
    fn data(&self, layer: &str) -> Option<Value> {
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

/// Adds the JSON pointer of the part of the configuration that caused the error, if any.
pub(super) fn to_fault(source: RootError, configured: &[VirtualPath]) -> BuildFault {
    // If two roots have the same path, the later one is rejected.
    match configured.iter().rposition(|path| path == source.mount()) {
        Some(index) => BuildFault::Configured {
            field: format!("/roots/{index}/path"),
            source,
        },
        None => BuildFault::Root(source),
    }
}

/// The configuration and its open roots.
pub(super) struct Opened {
    pub(super) config: Config,
    pub(super) roots: RootTable,
    pub(super) unavailable: Vec<UnavailableRoot>,
}

/// Opens all roots. This is the only use of ambient authority. Optional roots that cannot be opened are left out,
/// unless no root remains. The returned configuration includes rejected roots, so that policies can be compared with
/// it.
pub(super) fn open_roots(
    mut config: Config,
    configured: Vec<ConfiguredRoot>,
    kept_out: &[PathBuf],
) -> (Opened, Vec<RootError>) {
    let mut roots: Vec<Arc<Root>> = Vec::with_capacity(configured.len());
    let mut unavailable: Vec<UnavailableRoot> = Vec::new();
    let mut left_out: Vec<RootConfig> = Vec::new();
    let (mut errors, mut first_left_out, mut default_left_out) = (Vec::new(), None, false);
    for root in configured {
        match open(&root, &roots, kept_out) {
            Err(error) if may_be_left_out(&root.config, &error) => {
                let reason = reason(&error);
                let path = root.config.mount.clone();
                tracing::warn!(%path, reason = %crate::text::escape(&reason), "a root is left out");
                unavailable.push(UnavailableRoot { path, reason });
                default_left_out |= root.config.default;
                first_left_out = first_left_out.or(Some(error));
                left_out.push(root.config);
                continue;
            }
            Err(error) => errors.push(error),
            Ok(opened) => roots.push(Arc::new(opened)),
        }
        config = config.root(RootConfig {
            default: root.config.default || std::mem::take(&mut default_left_out),
            ..root.config
        });
    }
    if roots.is_empty() && errors.is_empty() {
        errors.extend(first_left_out);
    }
    errors.extend(alias_errors(&config, &roots));
    if !left_out.is_empty() {
        // The restrictions of a nested root hold even if its directory is created later.
        config.restrictions.push(Restriction {
            roots: left_out,
            policy: Policy::new(),
        });
    }
    let opened = Opened {
        config,
        roots: RootTable::new(roots),
        unavailable,
    };
    (opened, errors)
}

/// Errors about roots that are an alias of a directory that an earlier source restricts.
fn alias_errors(config: &Config, roots: &[Arc<Root>]) -> Vec<RootError> {
    let earlier = config.restrictions.iter();
    let mounts = earlier.flat_map(|earlier| earlier.roots.iter().map(|root| &root.mount));
    // A directory that cannot be opened contains no aliases.
    let restricted =
        mounts.filter_map(|mount| Root::open(mount.clone(), mount.as_str().as_ref(), false).ok());
    let errors = restricted.filter_map(|restricted| {
        let others = roots
            .iter()
            .filter(|root| root.mount() != restricted.mount());
        others
            .into_iter()
            .find_map(|root| root.beside(&restricted).err())
    });
    errors.collect()
}

/// Whether a root that was rejected with `error` can be left out. A root with restrictions must not be left out if it
/// is an alias of another, since its restrictions may apply to the other.
fn may_be_left_out(root: &RootConfig, error: &RootError) -> bool {
    let plain = RootConfig {
        default: root.default,
        optional: root.optional,
        ..RootConfig::new(root.mount.clone())
    };
    root.optional && (matches!(error, RootError::Open { .. }) || *root == plain)
}

fn open(
    root: &ConfiguredRoot,
    others: &[Arc<Root>],
    kept_out: &[PathBuf],
) -> Result<Root, RootError> {
    let mount = root.config.mount.clone();
    let opened = Root::open(mount, &root.host, root.cross_mounts)?;
    opened.require_unique_names()?;
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
