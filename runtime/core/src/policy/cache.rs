//! Cache of compiled glob lists, bounded in bytes. The least recently used lists are dropped first.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use super::globs::{Globs, Reading};

/// Maximum size of the cache in bytes.
pub(super) const MAX_CACHED: usize = 32 << 20;
/// Minimum size that is counted for a list, which bounds the number of lists.
const MIN_COUNTED: usize = 4 << 10;

type Key = (Reading, Box<[String]>);

#[derive(Default)]
struct Lists {
    by_texts: HashMap<Key, Entry, RandomState>,
    bytes: usize,
    uses: u64,
}

struct Entry {
    globs: Arc<Globs>,
    last_use: u64,
}

static LISTS: LazyLock<Mutex<Lists>> = LazyLock::new(Mutex::default);

fn counted(globs: &Globs) -> usize {
    globs.size().max(MIN_COUNTED)
}

/// The compiled list of these texts, if it is cached.
pub(super) fn get(reading: Reading, texts: &[String]) -> Option<Arc<Globs>> {
    let key: Key = (reading, texts.into());
    let mut lists = LISTS.lock();
    lists.uses += 1;
    let now = lists.uses;
    let entry = lists.by_texts.get_mut(&key)?;
    entry.last_use = now;
    Some(Arc::clone(&entry.globs))
}

/// Caches a compiled list, and drops others until all fit.
pub(super) fn insert(reading: Reading, globs: &Arc<Globs>) {
    let size = counted(globs);
    if size > MAX_CACHED {
        return;
    }
    let mut lists = LISTS.lock();
    lists.uses += 1;
    let entry = Entry {
        globs: Arc::clone(globs),
        last_use: lists.uses,
    };
    let replaced = lists
        .by_texts
        .insert((reading, globs.texts().into()), entry);
    lists.bytes += size;
    lists.bytes -= replaced.as_ref().map_or(0, |entry| counted(&entry.globs));
    let mut dropped = Vec::new();
    while lists.bytes > MAX_CACHED {
        let oldest = lists
            .by_texts
            .iter()
            .min_by_key(|(_, entry)| entry.last_use);
        let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
            break;
        };
        let entry = lists.by_texts.remove(&oldest);
        lists.bytes -= entry.as_ref().map_or(0, |entry| counted(&entry.globs));
        dropped.extend(entry);
    }
    drop(lists);
    // The lists are freed after the lock is released.
    drop(dropped);
}

/// Current size of the cache in bytes.
#[cfg(test)]
pub(super) fn bytes() -> usize {
    LISTS.lock().bytes
}
