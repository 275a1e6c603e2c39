//! The directories that a command saw, to notice that others replaced one while it ran.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bailiwick::VirtualPath;
use bailiwick::tool::ReadPermit;
use rustix::fs::{Dir, FileType, Mode, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::Errno;

use super::{DIRECTORY, MAX_DEPTH};
use crate::clock::changed_at;

/// Device and inode of a directory.
pub(crate) type Identity = (u64, u64);

/// Maximum number of directories that are recorded.
const MAX_DIRECTORIES: usize = 100_000;

/// The directories that a command saw.
///
/// They are recorded while it runs, so that its start does not depend on their number. A directory that was replaced
/// meanwhile has a later time of change, and so has the directory that contains it.
#[derive(Debug)]
pub(crate) struct Directories {
    /// When the command started, since 1970.
    began: Duration,
    known: Mutex<HashMap<VirtualPath, Identity>>,
    ended: AtomicBool,
}

impl Directories {
    pub(crate) fn new(began: Duration) -> Arc<Self> {
        Arc::new(Self {
            began,
            known: Mutex::default(),
            ended: AtomicBool::new(false),
        })
    }

    /// When the command started, since 1970.
    pub(crate) fn began(&self) -> Duration {
        self.began
    }

    /// Records the directories in the directory at `path`, until the command has ended. Blocks.
    pub(crate) fn record(&self, path: &VirtualPath, permit: &ReadPermit) {
        // What cannot be read is not recorded.
        let opened = permit.root_of(path).map(|(root, rest)| {
            let rest = if rest.is_empty() { "." } else { rest };
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            openat2(root.dir(), rest, DIRECTORY, Mode::empty(), resolve)
        });
        if let Ok(Ok(top)) = opened {
            let _ = self.record_entries(path, top.as_fd(), 0);
        }
    }

    /// False if the recording has ended.
    fn record_entries(
        &self,
        path: &VirtualPath,
        directory: BorrowedFd<'_>,
        depth: usize,
    ) -> Result<bool, Errno> {
        if depth >= MAX_DEPTH {
            return Ok(true);
        }
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            if self.has_ended() {
                return Ok(false);
            }
            let is_other = !matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            let name = entry.file_name().to_str().ok();
            let name = name.filter(|name| !is_other && !matches!(*name, "." | ".."));
            let Some((name, inner)) = name.and_then(|name| Some((name, path.join(name).ok()?)))
            else {
                continue;
            };
            let Ok(found) = openat(directory, name, DIRECTORY, Mode::empty()) else {
                continue;
            };
            let stat = fstat(&found)?;
            if self.is_unchanged(&stat, &fstat(directory)?) && !self.add(inner.clone(), &stat) {
                return Ok(false);
            }
            // The contents of a directory that cannot be read are not recorded.
            if !self
                .record_entries(&inner, found.as_fd(), depth + 1)
                .unwrap_or(true)
            {
                return Ok(false);
            }
        }
        Ok(!self.has_ended())
    }

    /// Adds a directory; false if there are too many.
    fn add(&self, path: VirtualPath, stat: &Stat) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(path, identity(stat));
        known.len() < MAX_DIRECTORIES && !self.has_ended()
    }

    /// Ends the recording.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Whether [`Directories::end`] was called.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Whether the command saw this directory at `path`; `above` is the directory that contains it, which the command saw.
    pub(crate) fn is_same(&self, path: &VirtualPath, stat: &Stat, above: &Stat) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(path) {
            Some(seen) => *seen == identity(stat),
            None => self.is_unchanged(stat, above),
        }
    }

    /// Whether a directory is certainly the one that was at its place when the command started.
    fn is_unchanged(&self, stat: &Stat, above: &Stat) -> bool {
        changed_at(stat) <= self.began || changed_at(above) <= self.began
    }
}

#[expect(
    clippy::useless_conversion,
    reason = "the types differ between architectures"
)]
pub(super) fn identity(stat: &Stat) -> Identity {
    (u64::from(stat.st_dev), u64::from(stat.st_ino))
}
