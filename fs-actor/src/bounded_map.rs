//! A map for caches.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A map with a maximum number of entries.
#[derive(Debug)]
pub(crate) struct BoundedMap<K, V> {
    entries: Mutex<HashMap<K, V>>,
    max: usize,
}

impl<K: Clone + Eq + Hash, V: Clone> BoundedMap<K, V> {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            entries: Mutex::default(),
            max,
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.lock().get(key).cloned()
    }

    /// Adds an entry, and evicts an arbitrary other one if the map is full.
    pub(crate) fn insert(&self, key: &K, value: V) {
        let mut entries = self.lock();
        let replaced = entries.insert(key.clone(), value);
        let over = entries.len() > self.max;
        let other = entries.keys().find(|other| over && *other != key).cloned();
        let evicted = other.and_then(|other| entries.remove(&other));
        // They are dropped after the lock is released.
        drop(entries);
        drop((replaced, evicted));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, V>> {
        // Nothing panics while it is locked.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_map_evicts_another_entry_than_the_new_one() {
        let map = BoundedMap::new(3);
        for number in 0..100 {
            map.insert(&number, number);
            assert_eq!(map.get(&number), Some(number));
            assert!(map.lock().len() <= 3);
        }
        map.insert(&99, 7);
        assert_eq!((map.get(&99), map.lock().len()), (Some(7), 3));
    }
}
