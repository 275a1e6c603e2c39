//! Grant store: a file with the grants of agents, locked while it is open.
//!
//! The file is small and replaced as a whole. It changes rarely, contains at most 10,000 grants and is readable by
//! people, so a database is not necessary.
//!
//! A grant takes effect at once. It is stored once its audit record is written, and is on disk before success is
//! reported. A grant that cannot be stored is revoked. A revoked grant is also removed from disk before success is
//! reported.

mod edit;
mod format;
mod handle;
mod writer;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::is_at_or_beneath;
use crate::id::GrantId;
use crate::private_file::{self, Folder, PrivateFileError, StoreFile};
use crate::scope::Coverage;
use format::{MAX_BYTES, VERSION};

pub use edit::GrantEditError;
pub use format::GrantDamage;
pub(super) use format::{Contents, MAX_GRANTS};
pub(super) use handle::{PendingSave, StoreHandle, WallClock};
pub use writer::GrantWriteError;

/// A stored grant to an agent, for all workers of that name, now and later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StoredGrant {
    /// Its id, which is the same after restarts.
    pub id: GrantId,
    /// The agent's path, such as `main/tests`.
    pub agent: Arc<str>,
    /// What it covers.
    #[serde(flatten, deserialize_with = "crate::scope::all_parts")]
    pub pattern: Coverage,
    /// Whether the agent's descendants may use it, too.
    pub descendants: bool,
    /// When it was given, in milliseconds since 1970.
    pub given_at_ms: u64,
}

impl StoredGrant {
    /// Returns whether `agent` or a descendant holds it.
    #[must_use]
    pub fn is_held_at_or_beneath(&self, agent: &str) -> bool {
        is_at_or_beneath(&self.agent, agent)
    }
}

/// Why a grant store cannot be opened.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum GrantStoreError {
    /// The file cannot be opened, created or read: it is a link, its folder is missing, or the system refuses.
    #[error("cannot open the grant store `{}`", .file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another user can write the file.
    #[error("`{}` cannot be a grant store: {reason}", .file.display())]
    Unsafe {
        /// The file.
        file: PathBuf,
        /// What is wrong with the file or a folder above it.
        reason: String,
    },
    /// Another runtime uses the file.
    #[error("the grant store `{}` is in use by another process: end it", .file.display())]
    InUse {
        /// The file.
        file: PathBuf,
    },
    /// The file is not a grant store; it was not changed.
    #[error("`{}` is not a grant store", .file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// Another version of this program wrote the file; it was not changed.
    #[error(
        "the grant store `{}` has format version {version}, and this program reads version {VERSION}{}",
        .file.display(),
        if *version < VERSION { "; grants of older versions do not say which operations they cover, so move the file away and grant again" } else { "" }
    )]
    Version {
        /// The file.
        file: PathBuf,
        /// Its version.
        version: u64,
    },
    /// The file is damaged, so none of its grants is used.
    #[error(
        "the grant store `{}` is damaged{}",
        .file.display(),
        .kept_in.as_ref().map(|kept| format!(" and was kept as `{}`", kept.display())).unwrap_or_default()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where it was moved to, so that the next start succeeds; `None` if it was only read.
        kept_in: Option<PathBuf>,
        /// The damage.
        source: GrantDamage,
    },
    /// The file is damaged and could not be moved.
    #[error("the grant store `{}` is damaged ({damage}) and cannot be moved aside", .file.display())]
    SetAside {
        /// The file.
        file: PathBuf,
        /// The damage.
        damage: GrantDamage,
        /// Why it could not be moved.
        source: io::Error,
    },
}

/// Like `Display`, with the causes, since `main` prints this form.
impl fmt::Debug for GrantStoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::error::write_chain(self, f)
    }
}

/// A file with grants to agents, for [`RuntimeBuilder::grant_store`](crate::RuntimeBuilder::grant_store).
///
/// Only one runtime can use it at a time, across processes.
#[derive(Debug)]
pub struct GrantStore {
    file: StoreFile,
    contents: Contents,
}

impl GrantStore {
    /// Opens the file at `path`, or creates an empty one that only its owner may read. A link is not followed.
    ///
    /// No other user may be able to write the file, its folder or a folder above it, except for sticky ones such as `/tmp`.
    ///
    /// A damaged file is moved to `path.corrupt`, `path.corrupt-2` and so on, so that it can be inspected and the next start
    /// begins without grants.
    ///
    /// # Errors
    /// [`GrantStoreError`]; no grant of a rejected file is used.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, GrantStoreError> {
        let path = path.as_ref();
        let file = Folder::of(path).and_then(Folder::locked);
        let file = file.map_err(|error| refused(path, error))?;
        let file_path = file.folder().place().to_owned();
        let read = file.folder().read(MAX_BYTES);
        let Some(bytes) = read.map_err(|error| refused(&file_path, error))? else {
            let contents = Contents::default();
            let written = contents.put(&file);
            written.map_err(|error| refused(&file_path, PrivateFileError::Open(error)))?;
            return Ok(Self { file, contents });
        };
        match format::decode(&file_path, &bytes) {
            Ok(contents) => Ok(Self { file, contents }),
            Err(GrantStoreError::Damaged { source: damage, .. }) => Err(match file.set_aside() {
                Ok(kept_in) => GrantStoreError::Damaged {
                    file: file_path,
                    kept_in: Some(kept_in),
                    source: damage,
                },
                Err(source) => GrantStoreError::SetAside {
                    file: file_path,
                    damage,
                    source,
                },
            }),
            Err(other) => Err(other),
        }
    }

    /// Reads the grants in the file at `path`, in the order of their ids; empty if there is no file. Another runtime
    /// may use the file. The file is not changed.
    ///
    /// # Errors
    /// [`GrantStoreError`]
    pub fn read(path: impl AsRef<Path>) -> Result<Vec<StoredGrant>, GrantStoreError> {
        let path = path.as_ref();
        let folder = Folder::of(path).map_err(|error| refused(path, error))?;
        let read = folder.read(MAX_BYTES);
        let Some(bytes) = read.map_err(|error| refused(folder.place(), error))? else {
            return Ok(Vec::new());
        };
        let contents = format::decode(folder.place(), &bytes)?;
        Ok(contents.grants.into_values().collect())
    }

    /// Returns the grants in the order of their ids.
    pub fn grants(&self) -> impl Iterator<Item = &StoredGrant> {
        self.contents.grants.values()
    }

    /// All files of the store, which workers must not access.
    pub(crate) fn places(&self) -> Vec<PathBuf> {
        self.file.folder().places()
    }

    /// All files of the store at `path`.
    pub(crate) fn places_of(path: &Path) -> io::Result<Vec<PathBuf>> {
        private_file::places_of(path)
    }
}

fn refused(path: &Path, error: PrivateFileError) -> GrantStoreError {
    let file = path.to_owned();
    match error {
        PrivateFileError::Open(source) => GrantStoreError::Open { file, source },
        PrivateFileError::Unsafe(reason) => GrantStoreError::Unsafe { file, reason },
        PrivateFileError::InUse => GrantStoreError::InUse { file },
    }
}

#[cfg(test)]
mod tests;
