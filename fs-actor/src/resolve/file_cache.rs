//! Files that were read a moment ago in, the same files without opening them anew out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bailiwick::VirtualPath;

use super::{Meta, OpenFile};

/// The most files held open, by all workers of a runtime together.
const MAX_FILES: usize = 32;

/// Small files that are read again and again, held open.
///
/// What a path leads to is found anew on every call. Only if that is the very object that is held, not changed in
/// any way since, is it read without being opened. Being held, it cannot have lent its number to another.
#[derive(Debug, Default)]
pub(crate) struct FileCache {
    files: Mutex<HashMap<VirtualPath, Arc<OpenFile>>>,
}

impl FileCache {
    /// The file held for `path`, if it is what was found there just now.
    pub(super) fn get(&self, path: &VirtualPath, found: &Meta) -> Option<Arc<OpenFile>> {
        let files = self.lock();
        let file = files.get(path).filter(|file| file.meta == *found)?;
        Some(Arc::clone(file))
    }

    /// Holds `file` in place of any other, which one does not matter.
    pub(super) fn insert(&self, path: &VirtualPath, file: &Arc<OpenFile>) {
        let mut files = self.lock();
        let replaced = files.insert(path.clone(), Arc::clone(file));
        let over = files.len() > MAX_FILES;
        let other = files.keys().find(|other| over && *other != path).cloned();
        let evicted = other.and_then(|other| files.remove(&other));
        // Closed outside the lock.
        drop(files);
        drop((replaced, evicted));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<VirtualPath, Arc<OpenFile>>> {
        // Nothing that can panic runs under the lock.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn is_within_bound(&self) -> bool {
        self.lock().len() <= MAX_FILES
    }
}
