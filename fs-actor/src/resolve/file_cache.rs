//! Cache of open files.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bailiwick::VirtualPath;

use super::{Meta, OpenFile};
use crate::bounded_map::BoundedMap;

/// Maximum number of open files, shared by all workers of a runtime.
const MAX_FILES: usize = 32;

/// Cache of small open files, each with a value that was computed from its content.
///
/// The path is resolved on each call. A cached file is used only if it is the object that was found, and unchanged.
/// Since it is open, its inode number is not reused.
#[derive(Debug)]
pub(crate) struct FileCache<T>(BoundedMap<VirtualPath, Arc<CachedFile<T>>>);

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
        Self(BoundedMap::new(MAX_FILES))
    }
}

impl<T> FileCache<T> {
    /// The cached file for `path`, if it is the object that was `found`.
    pub(super) fn get(&self, path: &VirtualPath, found: &Meta) -> Option<Arc<CachedFile<T>>> {
        self.0.get(path).filter(|file| file.open.meta == *found)
    }

    pub(super) fn insert(&self, path: &VirtualPath, file: &Arc<CachedFile<T>>) {
        self.0.insert(path.clone(), Arc::clone(file));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it is locked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
