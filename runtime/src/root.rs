//! A directory that a person configured in, the handle through which workers see it out.
//!
//! This is the only file that takes ambient authority.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use crate::path::VirtualPath;
use crate::policy::Authority;

/// Why a directory cannot be a root.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RootError {
    /// It cannot be opened as a directory.
    #[error("cannot open the root `{mount}`")]
    Open {
        /// Where it was to be mounted.
        mount: VirtualPath,
        /// The system's reason.
        source: std::io::Error,
    },
    /// It would hand out the whole machine or the kernel's own files.
    #[error("`{mount}` cannot be a root: {reason}")]
    Unsafe {
        /// Where it was to be mounted.
        mount: VirtualPath,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// A directory opened once, and where it stands in the namespace.
#[derive(Debug)]
pub struct Root {
    mount: VirtualPath,
    host: PathBuf,
    dir: Dir,
    cross_mounts: bool,
}

impl Root {
    /// Opens `host` and mounts it at `mount`.
    pub(crate) fn open(
        mount: VirtualPath,
        host: &Path,
        cross_mounts: bool,
    ) -> Result<Self, RootError> {
        let failed = |source| RootError::Open {
            mount: mount.clone(),
            source,
        };
        let host = host.canonicalize().map_err(failed)?;
        let dir = Dir::open_ambient_dir(&host, ambient_authority()).map_err(failed)?;
        if let Some(reason) = unsafe_reason(&host, &dir) {
            return Err(RootError::Unsafe { mount, reason });
        }
        Ok(Self {
            mount,
            host,
            dir,
            cross_mounts,
        })
    }

    /// Where it stands in the namespace.
    #[must_use]
    pub fn mount(&self) -> &VirtualPath {
        &self.mount
    }

    /// The handle. Open beneath it only what a permit allowed.
    #[must_use]
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Whether file systems mounted inside it belong to it.
    #[must_use]
    pub fn crosses_mounts(&self) -> bool {
        self.cross_mounts
    }

    /// The virtual path of an absolute link target that points into this root.
    #[must_use]
    pub fn virtual_path(&self, host: &Path) -> Option<VirtualPath> {
        let rest = host.strip_prefix(&self.host).ok()?.to_str()?;
        if rest.is_empty() {
            return Some(self.mount.clone());
        }
        VirtualPath::parse(rest, Some(&self.mount)).ok()
    }
}

/// Says why `dir` must not be a root, if so.
fn unsafe_reason(host: &Path, _dir: &Dir) -> Option<&'static str> {
    if host.parent().is_none() {
        return Some("it is the top of the file system; configure the directories that are needed");
    }
    None
}

/// The roots that one worker holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct RootTable {
    roots: Vec<Arc<Root>>,
}

impl RootTable {
    pub(crate) fn new(roots: Vec<Arc<Root>>) -> Self {
        Self { roots }
    }

    /// The roots of which `authority` may leave something.
    pub(crate) fn reached_by(&self, authority: &Authority) -> Self {
        let reached = self
            .roots
            .iter()
            .filter(|root| authority.reaches(&root.mount));
        Self {
            roots: reached.cloned().collect(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Root> {
        self.roots.iter().map(Arc::as_ref)
    }

    /// The root with the longest mount that holds `path`, and the path beneath it.
    pub(crate) fn find<'p>(&'p self, path: &'p VirtualPath) -> Option<(&'p Root, &'p str)> {
        let holding = self
            .iter()
            .filter_map(|root| Some((root, path.beneath(&root.mount)?)));
        holding.min_by_key(|(_, rest)| rest.len())
    }
}
