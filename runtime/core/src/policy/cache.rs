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

/// Lists by their texts.
type ByTexts = HashMap<Box<[String]>, Entry, RandomState>;

#[derive(Default)]
struct Lists {
    by_reading: HashMap<Reading, ByTexts, RandomState>,
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
    let mut lists = LISTS.lock();
    lists.uses += 1;
    let now = lists.uses;
    let entry = lists.by_reading.get_mut(&reading)?.get_mut(texts)?;
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
    let by_texts = lists.by_reading.entry(reading).or_default();
    let replaced = by_texts.insert(globs.texts().into(), entry);
    lists.bytes += size;
    lists.bytes -= replaced.as_ref().map_or(0, |entry| counted(&entry.globs));
    let mut dropped = Vec::new();
    while lists.bytes > MAX_CACHED {
        let all = lists.by_reading.iter();
        let all = all.flat_map(|(reading, by_texts)| by_texts.iter().map(move |it| (*reading, it)));
        let oldest = all.min_by_key(|(_, (_, entry))| entry.last_use);
        let Some((reading, texts)) = oldest.map(|(reading, (texts, _))| (reading, texts.clone()))
        else {
            break;
        };
        let by_texts = lists.by_reading.get_mut(&reading);
        let entry = by_texts.and_then(|by_texts| by_texts.remove(&texts));
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
