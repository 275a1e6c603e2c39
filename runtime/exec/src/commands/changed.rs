//! The files that a command changed in the mode `live`, for the audit.

use std::fs::File;
use std::io;

use bailiwick::VirtualPath;
use bailiwick::effect::ContentHash;
use bailiwick::tool::ReadPermit;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde::Serialize;

use super::program::hash;
use crate::view;

/// Maximum number of bytes that are hashed after a command.
const MAX_HASHED: u64 = 16 << 20;
/// Maximum size of all recorded paths, as JSON in bytes.
const MAX_PATH_BYTES: usize = 16 << 10;

/// The files whose times say that they were changed while a command ran, by it or by others. Deleted files, and files in
/// directories that were moved, are not among them.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ChangedFiles {
    /// The first ones.
    files: Vec<ChangedFile>,
    /// Their number.
    total: u64,
    /// Why not all are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) incomplete: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct ChangedFile {
    path: String,
    /// Absent if it cannot be read, or if too much was hashed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<ContentHash>,
}

impl ChangedFiles {
    /// Hashes the first of the files. Blocks.
    pub(super) fn new(changed: &view::ChangedFiles, permit: &ReadPermit) -> Self {
        let mut path_bytes = MAX_PATH_BYTES;
        let mut bytes = MAX_HASHED;
        let files = changed.first.iter().map_while(|path| {
            let length = serde_json::to_vec(path.as_str()).ok()?.len();
            path_bytes = path_bytes.checked_sub(length)?;
            let hashed = open(path, permit).and_then(|file| hash(&file, bytes)).ok();
            bytes -= hashed.map_or(0, |hashed| hashed.identity.bytes);
            Some(ChangedFile {
                path: path.to_string(),
                sha256: hashed.map(|hashed| hashed.sha256),
            })
        });
        Self {
            files: files.collect(),
            total: changed.total,
            incomplete: changed.incomplete(),
        }
    }

    /// These without the list.
    pub(super) fn without_list(self) -> Self {
        Self {
            files: Vec::new(),
            ..self
        }
    }
}

fn open(path: &VirtualPath, permit: &ReadPermit) -> io::Result<File> {
    let (root, inner) = permit.root_of(path).map_err(io::Error::other)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = rustix::fs::openat2(root.dir(), inner, flags, Mode::empty(), resolve)?;
    Ok(file.into())
}
