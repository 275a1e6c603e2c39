//! Cache of open files.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bailiwick::VirtualPath;

use super::{Meta, OpenFile};

/// Maximum number of open files, shared by all workers of a runtime.
const MAX_FILES: usize = 32;

/// Cache of small open files.
///
/// The path is resolved on each call. A cached file is used only if it is the object that was found, and unchanged.
/// Since it is open, its inode number is not reused.
#[derive(Debug, Default)]
pub(crate) struct FileCache {
    files: Mutex<HashMap<VirtualPath, Arc<OpenFile>>>,
}

impl FileCache {
    /// The cached file for `path`, if it is the object that was `found`.
    pub(super) fn get(&self, path: &VirtualPath, found: &Meta) -> Option<Arc<OpenFile>> {
        let files = self.lock();
        let file = files.get(path).filter(|file| file.meta == *found)?;
        Some(Arc::clone(file))
    }

    /// Adds `file`, and evicts an arbitrary other file if the cache is full.
    pub(super) fn insert(&self, path: &VirtualPath, file: &Arc<OpenFile>) {
        let mut files = self.lock();
        let replaced = files.insert(path.clone(), Arc::clone(file));
        let over = files.len() > MAX_FILES;
        let other = files.keys().find(|other| over && *other != path).cloned();
        let evicted = other.and_then(|other| files.remove(&other));
        // Files are closed after the lock is released.
        drop(files);
        drop((replaced, evicted));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<VirtualPath, Arc<OpenFile>>> {
        // Nothing panics while it is locked.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn is_within_bound(&self) -> bool {
        self.lock().len() <= MAX_FILES
    }
}
