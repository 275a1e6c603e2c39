//! Directories as they were configured in, opened roots or the one that is refused out.

use std::path::PathBuf;
use std::sync::Arc;

use super::BuildError;
use crate::config::{Config, RootConfig};
use crate::path::VirtualPath;
use crate::policy::PolicyError;
use crate::root::{Root, RootTable};

impl BuildError {
    /// The `data` of a JSON-RPC error, if a member of the configuration is to blame; `layer` says where that came from
    /// if the error does not.
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

/// A root as it was configured: what workers see, and where it is.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) config: RootConfig,
    pub(super) host: PathBuf,
    pub(super) cross_mounts: bool,
}

/// Names the member of the configuration that is to blame, if it is one.
pub(super) fn pointed(error: BuildError, configured: &[VirtualPath]) -> BuildError {
    let BuildError::Root(source) = error else {
        return error;
    };
    // Of two roots with one path the later is refused.
    match configured.iter().rposition(|path| path == source.mount()) {
        Some(index) => BuildError::Configured {
            field: format!("/roots/{index}/path"),
            source,
        },
        None => BuildError::Root(source),
    }
}

/// Opens every root; ambient authority is used here and nowhere else.
pub(super) fn opened(
    mut config: Config,
    places: Vec<Result<Place, BuildError>>,
    kept_out: &[PathBuf],
) -> Result<(Config, RootTable), BuildError> {
    let mut roots: Vec<Arc<Root>> = Vec::with_capacity(places.len());
    for place in places {
        let Place {
            config: root,
            host,
            cross_mounts,
        } = place?;
        let opened = Root::open(root.mount.clone(), &host, cross_mounts)?;
        for other in &roots {
            opened.beside(other)?;
        }
        for file in kept_out {
            opened.without(file)?;
        }
        roots.push(Arc::new(opened));
        config = config.root(root);
    }
    let restricted = config
        .restrictions
        .iter()
        .flat_map(|earlier| &earlier.roots);
    for root in restricted.map(|root| &root.mount) {
        // What cannot be opened holds nothing that could have another name.
        let Ok(restricted) = Root::open(root.clone(), root.as_str().as_ref(), false) else {
            continue;
        };
        let renamed = |opened: &&Arc<Root>| opened.mount() != root;
        for opened in roots.iter().filter(renamed) {
            opened.beside(&restricted)?;
        }
    }
    Ok((config, RootTable::new(roots)))
}
