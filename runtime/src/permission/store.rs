//! Grant store: a file with the grants of agents, locked while it is open.
//!
//! A small file that is replaced as a whole: it changes at the speed of people, holds 10,000 grants at most, and
//! people can read it. That is why it is no database.
//!
//! A grant counts at once, is stored once its record is written, and is on the disk when whoever gave it hears so; one that
//! cannot be stored is taken back.
//! What was taken back is gone from the disk when that is told, too.

mod edit;
mod format;
mod handle;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::is_at_or_beneath;
use crate::id::GrantId;
use crate::private_file::{self, Folder, PrivateFileError, StoreFile};
use crate::scope::Coverage;
use format::{MOST_BYTES, Unread, VERSION};

pub use edit::GrantEditError;
pub use format::GrantDamage;
pub(super) use format::{Contents, MOST_GRANTS};
pub(super) use handle::{PendingSave, StoreFailure, StoreHandle, WallClock, wall_clock};
pub use writer::GrantWriteError;

/// A grant to an agent as it is stored: it holds for every worker of that name, now and later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StoredGrant {
    /// Names it, over restarts too.
    pub id: GrantId,
    /// The agent's path, such as `main/tests`.
    pub agent: Arc<str>,
    /// What it covers.
    #[serde(flatten, deserialize_with = "crate::scope::all_parts")]
    pub pattern: Coverage,
    /// Whether the agent's sub-agents may use it too.
    pub descendants: bool,
    /// When it was given, in milliseconds since 1970.
    pub given_at_ms: u64,
}

impl StoredGrant {
    /// Whether `agent` holds it, or an agent beneath that one.
    #[must_use]
    pub fn is_held_at_or_beneath(&self, agent: &str) -> bool {
        is_at_or_beneath(&self.agent, agent)
    }
}

/// Why a file cannot keep grants, or not those that are in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrantStoreError {
    /// It cannot be opened, made or read: it is a link, its folder is missing, or the system refuses.
    #[error("cannot open the grant store `{}`", .file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Somebody else may have written it.
    #[error("`{}` cannot be a grant store: {reason}", .file.display())]
    Unsafe {
        /// The file.
        file: PathBuf,
        /// What is wrong with it or with a folder above it.
        reason: String,
    },
    /// Another runtime keeps its grants there.
    #[error("the grant store `{}` is in use", .file.display())]
    InUse {
        /// The file.
        file: PathBuf,
    },
    /// It is some other file; it was left alone.
    #[error("`{}` is no grant store", .file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// Another version of this program wrote it; it was left alone.
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
    /// It is not as it was written, so no grant in it counts.
    #[error(
        "the grant store `{}` is damaged{}",
        .file.display(),
        .kept_in.as_ref().map(|kept| format!(" and was kept as `{}`", kept.display())).unwrap_or_default()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where it was moved to, out of the way of the next start; none if it was only read.
        kept_in: Option<PathBuf>,
        /// What is wrong with it.
        source: GrantDamage,
    },
    /// It is damaged, and could not be moved out of the way either.
    #[error("the grant store `{}` is damaged ({damage}) and cannot be moved aside", .file.display())]
    SetAside {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        damage: GrantDamage,
        /// Why it could not be moved.
        source: io::Error,
    },
}

/// A file that keeps what people granted to agents, for [`RuntimeBuilder::grant_store`](crate::RuntimeBuilder::grant_store).
///
/// One runtime at a time has it; a second is refused, in any process.
#[derive(Debug)]
pub struct GrantStore {
    file: StoreFile,
    contents: Contents,
}

impl GrantStore {
    /// Opens the file at `path`, or makes an empty one that only its owner may read. A link is not followed.
    ///
    /// Nobody else may write the file, its folder or a folder above it, but for sticky ones such as `/tmp`.
    ///
    /// A damaged file is moved aside to `path.corrupt`, or `path.corrupt-2` and so on, so that it can be looked into
    /// and the next start begins without grants.
    ///
    /// # Errors
    /// [`GrantStoreError`]; no grant of a file that is refused counts.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, GrantStoreError> {
        let path = path.as_ref();
        let file = Folder::of(path).and_then(Folder::locked);
        let file = file.map_err(|error| refused(path, error))?;
        let place = file.folder().place().to_owned();
        let read = file.folder().read(MOST_BYTES);
        let Some(bytes) = read.map_err(|error| refused(&place, error))? else {
            let contents = Contents::default();
            let written = contents.put(&file);
            written.map_err(|error| refused(&place, PrivateFileError::Open(error)))?;
            return Ok(Self { file, contents });
        };
        match format::decode(&bytes) {
            Ok(contents) => Ok(Self { file, contents }),
            Err(Unread::Damaged(damage)) => Err(match file.set_aside() {
                Ok(kept_in) => GrantStoreError::Damaged {
                    file: place,
                    kept_in: Some(kept_in),
                    source: damage,
                },
                Err(source) => GrantStoreError::SetAside {
                    file: place,
                    damage,
                    source,
                },
            }),
            Err(other) => Err(unread(place, other)),
        }
    }

    /// The grants in the file at `path`, by number; none if there is no file. It may be in use, and is left as it is.
    ///
    /// # Errors
    /// [`GrantStoreError`]
    pub fn read(path: impl AsRef<Path>) -> Result<Vec<StoredGrant>, GrantStoreError> {
        let path = path.as_ref();
        let folder = Folder::of(path).map_err(|error| refused(path, error))?;
        let read = folder.read(MOST_BYTES);
        let Some(bytes) = read.map_err(|error| refused(folder.place(), error))? else {
            return Ok(Vec::new());
        };
        let contents = format::decode(&bytes);
        let contents = contents.map_err(|other| unread(folder.place().to_owned(), other))?;
        Ok(contents.grants.into_values().collect())
    }

    /// The grants that are in it, by number.
    pub fn grants(&self) -> impl Iterator<Item = &StoredGrant> {
        self.contents.grants.values()
    }

    /// Every file that belongs to it; workers must reach none of them.
    pub(crate) fn places(&self) -> Vec<PathBuf> {
        self.file.folder().places()
    }

    /// Every file that belongs to the store at `path`, whoever has it.
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

fn unread(file: PathBuf, unread: Unread) -> GrantStoreError {
    match unread {
        Unread::Foreign => GrantStoreError::Foreign { file },
        Unread::Version(version) => GrantStoreError::Version { file, version },
        Unread::Damaged(source) => GrantStoreError::Damaged {
            file,
            kept_in: None,
            source,
        },
    }
}

#[cfg(test)]
mod tests;
