//! A map for caches.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A map with a maximum number of entries, of which the least recently used is evicted.
#[derive(Debug)]
pub(crate) struct BoundedMap<K, V> {
    state: Mutex<State<K, V>>,
    max: usize,
}

#[derive(Debug)]
struct State<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// Counts uses.
    clock: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    last_used: u64,
}

impl<K: Clone + Eq + Hash, V: Clone> BoundedMap<K, V> {
    pub(crate) fn new(max: usize) -> Self {
        let state = State {
            entries: HashMap::new(),
            clock: 0,
        };
        Self {
            state: Mutex::new(state),
            max,
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let state = &mut *self.lock();
        let entry = state.entries.get_mut(key)?;
        state.clock += 1;
        entry.last_used = state.clock;
        Some(entry.value.clone())
    }

    /// Adds an entry.
    pub(crate) fn insert(&self, key: K, value: V) {
        let mut state = self.lock();
        state.clock += 1;
        let last_used = state.clock;
        let replaced = state.entries.insert(key, Entry { value, last_used });
        let mut evicted = None;
        if state.entries.len() > self.max {
            let oldest = state
                .entries
                .iter()
                .min_by_key(|(_, entry)| entry.last_used);
            let oldest = oldest.map(|(key, _)| key.clone());
            evicted = oldest.and_then(|key| state.entries.remove(&key));
        }
        // They are dropped after the lock is released.
        drop(state);
        drop((replaced, evicted));
    }

    fn lock(&self) -> MutexGuard<'_, State<K, V>> {
        // Nothing panics while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_map_evicts_the_least_recently_used_entry() {
        let map = BoundedMap::new(3);
        for number in 0..100 {
            map.insert(number, number);
            assert_eq!(map.get(&0), Some(0));
            assert!(map.lock().entries.len() <= 3);
        }
        let kept = |number| map.get(&number).is_some();
        assert!(kept(98) && kept(99) && !kept(97));
        map.insert(98, 7);
        assert_eq!((map.get(&98), kept(99)), (Some(7), true));
    }
}
