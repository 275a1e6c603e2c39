//! Cache of open files.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bailiwick::VirtualPath;

use super::{Meta, OpenFile};

/// Maximum number of open files, shared by all workers of a runtime.
const MAX_FILES: usize = 32;

/// Cache of small open files, each with a value that was computed from its content.
///
/// The path is resolved on each call. A cached file is used only if it is the object that was found, and unchanged.
/// Since it is open, its inode number is not reused.
#[derive(Debug)]
pub(crate) struct FileCache<T> {
    files: Mutex<HashMap<VirtualPath, Arc<CachedFile<T>>>>,
}

/// An open file of the cache.
#[derive(Debug)]
pub(crate) struct CachedFile<T> {
    pub(crate) open: OpenFile,
    computed: Mutex<Option<T>>,
}

impl<T: Clone> CachedFile<T> {
    pub(super) fn new(open: OpenFile) -> Self {
        Self {
            open,
            computed: Mutex::new(None),
        }
    }

    /// The value that was set last. The content may have changed since.
    pub(crate) fn computed(&self) -> Option<T> {
        lock(&self.computed).clone()
    }

    pub(crate) fn set_computed(&self, value: T) {
        let previous = lock(&self.computed).replace(value);
        // It is dropped after the lock is released.
        drop(previous);
    }
}

impl<T> Default for FileCache<T> {
    fn default() -> Self {
        Self {
            files: Mutex::default(),
        }
    }
}

impl<T> FileCache<T> {
    /// The cached file for `path`, if it is the object that was `found`.
    pub(super) fn get(&self, path: &VirtualPath, found: &Meta) -> Option<Arc<CachedFile<T>>> {
        let files = lock(&self.files);
        let file = files.get(path).filter(|file| file.open.meta == *found)?;
        Some(Arc::clone(file))
    }

    /// Adds `file`, and evicts an arbitrary other file if the cache is full.
    pub(super) fn insert(&self, path: &VirtualPath, file: &Arc<CachedFile<T>>) {
        let mut files = lock(&self.files);
        let replaced = files.insert(path.clone(), Arc::clone(file));
        let over = files.len() > MAX_FILES;
        let other = files.keys().find(|other| over && *other != path).cloned();
        let evicted = other.and_then(|other| files.remove(&other));
        // Files are closed after the lock is released.
        drop(files);
        drop((replaced, evicted));
    }

    #[cfg(test)]
    pub(super) fn is_within_bound(&self) -> bool {
        lock(&self.files).len() <= MAX_FILES
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it is locked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
