//! Entries in any order in, the next few in path order out, with an exact total and a cursor.
//!
//! A directory of a million names cannot be kept, let alone sorted, within a worker's share of memory. So a
//! page is the smallest keys beyond the cursor: one pass, memory for one page, and a cursor that is the last
//! key itself, which stays right when files come and go in between.

use std::collections::BTreeMap;

use bailiwick::{CallError, VirtualPath};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The most entries of one page, whatever is asked for: a page is kept in memory.
pub(crate) const MAX_PAGE: u32 = 10_000;

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor(Vec<u8>);

impl Cursor {
    pub(crate) fn parse(text: &str) -> Result<Self, CallError> {
        let key = URL_SAFE_NO_PAD.decode(text);
        key.map(Self).map_err(|_| {
            let reason =
                "expected the `next_cursor` of an earlier answer; leave it out to begin anew";
            CallError::invalid_argument("/cursor", reason)
        })
    }
}

/// The key that sorts `path`, and beneath it `raw`, directories directly before what they hold.
pub(crate) fn key(path: &VirtualPath, raw: Option<&[u8]>) -> Vec<u8> {
    let mut key: Vec<u8> = path
        .as_str()
        .bytes()
        .map(|byte| if byte == b'/' { 0 } else { byte })
        .collect();
    // Two names that look alike must not share a key.
    key.extend(raw.into_iter().flat_map(|raw| [&[1][..], raw].concat()));
    key
}

/// One page being gathered.
#[derive(Debug)]
pub(crate) struct PageBuilder<T> {
    after: Option<Cursor>,
    limit: usize,
    entries: BTreeMap<Vec<u8>, T>,
    total: u64,
    later: u64,
}

/// One page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page<T> {
    /// Its entries, in order.
    pub(crate) entries: Vec<T>,
    /// How many there are on all pages.
    pub(crate) total: u64,
    /// Where the next page begins, if there is one.
    pub(crate) next: Option<String>,
}

impl<T> PageBuilder<T> {
    /// A page of as many entries as are `wanted`, but at least one and no more than are `allowed`.
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

    /// Counts the entry with this key, and makes it of `value` only if it is on this page so far.
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
        fn the_pages_together_are_everything_once_in_order(
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
    fn a_directory_stands_directly_before_what_it_holds() {
        let mut names = ["/r/a-b", "/r/a/x", "/r/a", "/r/a.c"];
        names.sort_by_key(|name| key(&crate::testing::path(name), None));
        assert_eq!(names, ["/r/a", "/r/a/x", "/r/a-b", "/r/a.c"]);
    }

    #[test]
    fn a_cursor_that_is_none_is_refused() {
        assert_eq!(
            Cursor::parse("no cursor!").unwrap_err().code(),
            Code::InvalidArguments
        );
        assert!(Cursor::parse("AGE").is_ok());
    }
}
