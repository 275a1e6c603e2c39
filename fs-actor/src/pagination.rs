//! Pages of entries in path order, with an exact total and a cursor.
//!
//! A directory of a million names does not fit into a worker's memory. So a page consists of the smallest keys after
//! the cursor: it needs one pass and the memory of one page. The cursor is the last key, so it stays valid when files
//! are added or removed.

use std::collections::BTreeMap;

use bailiwick::{CallError, VirtualPath};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Maximum entries per page.
pub(crate) const MAX_PAGE: u32 = 10_000;

/// Start of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor(Vec<u8>);

impl Cursor {
    pub(crate) fn parse(text: &str) -> Result<Self, CallError> {
        let key = URL_SAFE_NO_PAD.decode(text);
        key.map(Self).map_err(|_| {
            let reason = "expected the `next_cursor` of an earlier result; omit it to start over";
            CallError::invalid_argument("/cursor", reason)
        })
    }
}

/// Sort key of `path`, and of `raw` beneath it; directories come directly before their contents.
pub(crate) fn key(path: &VirtualPath, raw: Option<&[u8]>) -> Vec<u8> {
    let mut key: Vec<u8> = path
        .as_str()
        .bytes()
        .map(|byte| if byte == b'/' { 0 } else { byte })
        .collect();
    // Names that are displayed alike must have different keys.
    key.extend(raw.into_iter().flat_map(|raw| [&[1][..], raw].concat()));
    key
}

/// Collects the entries of a page.
#[derive(Debug)]
pub(crate) struct PageBuilder<T> {
    after: Option<Cursor>,
    limit: usize,
    entries: BTreeMap<Vec<u8>, T>,
    total: u64,
    later: u64,
}

/// A page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page<T> {
    /// The entries, in order.
    pub(crate) entries: Vec<T>,
    /// Number of entries on all pages.
    pub(crate) total: u64,
    /// Cursor of the next page.
    pub(crate) next: Option<String>,
}

impl<T> PageBuilder<T> {
    /// A page of `wanted` entries, between 1 and `allowed`.
    pub(crate) fn new(wanted: u32, allowed: u64, after: Option<Cursor>) -> Self {
        let limit = u64::from(wanted.min(MAX_PAGE)).min(allowed).max(1);
        Self {
            after,
            limit: usize::try_from(limit).unwrap_or(1),
            entries: BTreeMap::new(),
            total: 0,
            later: 0,
        }
    }

    /// Counts an entry; `value` is called only if the entry is on the page so far.
    pub(crate) fn add(&mut self, key: Vec<u8>, value: impl FnOnce() -> T) {
        self.total += 1;
        if self.after.as_ref().is_some_and(|after| key <= after.0) {
            return;
        }
        self.later += 1;
        if self.entries.len() >= self.limit {
            if self
                .entries
                .last_key_value()
                .is_some_and(|(last, _)| key > *last)
            {
                return;
            }
            self.entries.pop_last();
        }
        self.entries.insert(key, value());
    }

    pub(crate) fn finish(self) -> Page<T> {
        let more = self.later > u64::try_from(self.entries.len()).unwrap_or(u64::MAX);
        let last = self.entries.last_key_value().filter(|_| more);
        let next = last.map(|(key, _)| URL_SAFE_NO_PAD.encode(key));
        Page {
            total: self.total,
            next,
            entries: self.entries.into_values().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use bailiwick::Code;

    use super::*;

    fn page(keys: &[Vec<u8>], limit: u32, after: Option<&str>) -> Page<Vec<u8>> {
        let mut page = PageBuilder::new(limit, 5, after.map(|text| Cursor::parse(text).unwrap()));
        for key in keys {
            page.add(key.clone(), || key.clone());
        }
        page.finish()
    }

    proptest! {
        #![proptest_config(crate::testing::property_config())]

        #[test]
        fn pages_have_every_entry_once_in_order(
            keys in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 1..4), 0..60),
            limit in 0_u32..9,
            seed in any::<u64>(),
        ) {
            let mut mixed: Vec<Vec<u8>> = keys.iter().cloned().collect();
            mixed.sort_by_key(|key| key.iter().fold(seed, |sum, byte| sum.rotate_left(7) ^ u64::from(*byte)));
            let (mut all, mut next) = (Vec::new(), None);
            loop {
                let got = page(&mixed, limit, next.as_deref());
                prop_assert_eq!(got.total, keys.len() as u64);
                prop_assert!(got.entries.len() <= limit.clamp(1, 5) as usize);
                all.extend(got.entries);
                next = got.next;
                if next.is_none() { break; }
            }
            prop_assert_eq!(all, keys.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn directories_come_directly_before_their_contents() {
        let mut names = ["/r/a-b", "/r/a/x", "/r/a", "/r/a.c"];
        names.sort_by_key(|name| key(&crate::testing::path(name), None));
        assert_eq!(names, ["/r/a", "/r/a/x", "/r/a-b", "/r/a.c"]);
    }

    #[test]
    fn invalid_cursor_is_refused() {
        assert_eq!(
            Cursor::parse("no cursor!").unwrap_err().code(),
            Code::InvalidArguments
        );
        assert!(Cursor::parse("AGE").is_ok());
    }
}
