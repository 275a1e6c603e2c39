//! The state of a path, precise enough to detect any change.

use bailiwick::effect::{ContentHash, Entry};
use bailiwick::tool::Interrupt;
use bailiwick::{CallError, VirtualPath};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::tree::{self, Item, TemporaryFiles};
use crate::read_view::ReadView;
use crate::resolve::{self, AtPath as _, Kind, Meta, OpenDir};
use crate::sys::Errno;
use crate::text::common_prefix;

/// Larger files are compared by identity and time, not by content.
const MAX_HASHED: u64 = 64 << 20;

/// The state of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub(crate) enum State {
    /// Does not exist.
    Absent,
    /// A file with this content.
    File { hash: ContentHash, bytes: u64 },
    /// A symbolic link with this target.
    Link { target: ContentHash, bytes: u64 },
    /// A special file, or a file too large to hash: the same unchanged object.
    Object { stamp: ContentHash, bytes: u64 },
    /// A directory with its contents.
    Directory {
        digest: ContentHash,
        entries: u64,
        /// The digest depends on content only, so a copy has the same digest.
        content_only: bool,
    },
}

impl State {
    /// The state of a file with the content `bytes`.
    pub(crate) fn of_file(bytes: &[u8]) -> Self {
        Self::File {
            hash: ContentHash::of(bytes),
            bytes: bytes.len() as u64,
        }
    }

    /// The state of a symbolic link to `target`.
    pub(crate) fn of_link(target: &[u8]) -> Self {
        Self::Link {
            target: ContentHash::of(target),
            bytes: target.len() as u64,
        }
    }

    /// The state of an object whose content is not read.
    pub(crate) fn of_object(meta: &Meta) -> Self {
        Self::Object {
            stamp: tree::stamp(meta),
            bytes: meta.len,
        }
    }

    /// The state of an empty directory.
    pub(crate) fn empty_directory() -> Self {
        Self::Directory {
            digest: ContentHash::of(b""),
            entries: 0,
            content_only: true,
        }
    }

    /// Whether a copy has the same state.
    pub(crate) fn is_content_only(&self) -> bool {
        match self {
            Self::File { .. } => true,
            Self::Directory { content_only, .. } => *content_only,
            Self::Absent | Self::Link { .. } | Self::Object { .. } => false,
        }
    }

    /// The entry of a change.
    pub(crate) fn entry(&self) -> Entry {
        match self {
            Self::Absent => Entry::Absent,
            Self::File { hash, bytes }
            | Self::Link {
                target: hash,
                bytes,
            }
            | Self::Object { stamp: hash, bytes } => Entry::File {
                hash: *hash,
                bytes: *bytes,
            },
            Self::Directory { entries, .. } => Entry::Directory { entries: *entries },
        }
    }
}

/// The hashes of two contents. What both begin with is hashed once.
pub(crate) fn hashes_of(old: &[u8], new: &[u8]) -> [ContentHash; 2] {
    let (common, rest) = old.split_at(common_prefix(old, new));
    let new_rest = new.get(common.len()..).unwrap_or_default();
    let hasher = Sha256::new_with_prefix(common);
    [rest, new_rest]
        .map(|rest| ContentHash::from_bytes(hasher.clone().chain_update(rest).finalize().into()))
}

/// The state of a path and its contents.
#[derive(Debug)]
pub(crate) struct Inspected {
    pub(crate) state: State,
    /// `None` if it does not exist.
    pub(crate) meta: Option<Meta>,
    /// Everything beneath a directory.
    pub(crate) items: Vec<Item>,
    /// Total bytes of all files.
    pub(crate) bytes: u64,
    /// Number of temporary files that are excluded from the items.
    pub(crate) excluded_temporaries: u64,
}

impl Inspected {
    pub(super) const ABSENT: Self = Self {
        state: State::Absent,
        meta: None,
        items: Vec::new(),
        bytes: 0,
        excluded_temporaries: 0,
    };
}

/// Inspects `path` without following a link.
///
/// # Errors
/// As [`resolve::parent`]; `TOO_LARGE` for a tree beyond the limits.
pub(crate) fn inspect(
    view: &dyn ReadView,
    path: &VirtualPath,
    temporaries: TemporaryFiles,
) -> Result<Inspected, Interrupt> {
    let (dir, name) = match resolve::parent(view, path) {
        Ok(found) => found,
        Err(Interrupt::Failed(error)) if error.code() == bailiwick::Code::NotFound => {
            return Ok(Inspected::ABSENT);
        }
        Err(interrupt) => return Err(interrupt),
    };
    Ok(inspect_in(&dir, &name, path, temporaries, view)?)
}

/// Inspects `name` in `dir`, whose virtual path is `path`.
pub(crate) fn inspect_in(
    dir: &OpenDir,
    name: &str,
    path: &VirtualPath,
    temporaries: TemporaryFiles,
    view: &dyn ReadView,
) -> Result<Inspected, CallError> {
    let meta = match tree::stat(dir.as_fd(), name) {
        Ok(meta) => meta,
        Err(Errno::NOENT) => return Ok(Inspected::ABSENT),
        Err(errno) => return Err(resolve::to_call_error(errno, path)),
    };
    let state = match meta.kind {
        Kind::Directory => {
            let scanned = tree::scan(dir.enter(name).at(path)?, path, temporaries, view)?;
            return Ok(Inspected {
                meta: Some(meta),
                ..scanned
            });
        }
        Kind::File if meta.len <= MAX_HASHED => {
            let file = dir.read(name).at(path)?;
            let (hash, bytes) = tree::hash_file(&file, MAX_HASHED, path, view)?;
            State::File { hash, bytes }
        }
        Kind::Link => State::of_link(&tree::read_link(dir.as_fd(), name).at(path)?),
        Kind::File | Kind::Special => State::of_object(&meta),
    };
    Ok(Inspected {
        state,
        meta: Some(meta),
        bytes: meta.len,
        ..Inspected::ABSENT
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::testing::property_config())]

        #[test]
        fn hashes_of_two_contents_are_those_of_each(
            common in "[ab]{0,40}",
            times in 0..40_usize,
            old in "[ab]{0,100}",
            new in "[ab]{0,100}",
        ) {
            let common = common.repeat(times);
            let [old, new] = [old, new].map(|rest| format!("{common}{rest}"));
            let expected = [&old, &new].map(|text| ContentHash::of(text.as_bytes()));
            prop_assert_eq!(hashes_of(old.as_bytes(), new.as_bytes()), expected);
        }
    }
}
