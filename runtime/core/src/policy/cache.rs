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
    allow: ByTexts,
    deny: ByTexts,
    bytes: usize,
    uses: u64,
}

impl Lists {
    fn of(&mut self, reading: Reading) -> &mut ByTexts {
        match reading {
            Reading::Allow => &mut self.allow,
            Reading::Deny => &mut self.deny,
        }
    }

    /// The list that was not used for the longest time.
    fn oldest(&self) -> Option<(Reading, Box<[String]>)> {
        let of = |reading, lists: &ByTexts| {
            let oldest = lists.iter().min_by_key(|(_, entry)| entry.last_use);
            oldest.map(|(texts, entry)| (entry.last_use, reading, texts.clone()))
        };
        let both = [
            of(Reading::Allow, &self.allow),
            of(Reading::Deny, &self.deny),
        ];
        let oldest = both
            .into_iter()
            .flatten()
            .min_by_key(|(last_use, ..)| *last_use);
        oldest.map(|(_, reading, texts)| (reading, texts))
    }
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
    let entry = lists.of(reading).get_mut(texts)?;
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
    let replaced = lists.of(reading).insert(globs.texts().into(), entry);
    lists.bytes += size;
    lists.bytes -= replaced.as_ref().map_or(0, |entry| counted(&entry.globs));
    let mut dropped = Vec::new();
    while lists.bytes > MAX_CACHED {
        let Some((reading, texts)) = lists.oldest() else {
            break;
        };
        let entry = lists.of(reading).remove(&texts);
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
