//! Pages of entries in path order, with an exact total and a cursor.
//!
//! A directory of a million names does not fit into a worker's memory. So a page consists of the smallest keys after
//! the cursor: it needs one pass, and the memory of one page for each thread that collects entries. The cursor is the
//! last key, so it stays valid when files are added or removed.

use bailiwick::CallError;
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

/// Sort key of the path `beneath` a directory, and of `raw` as its last name; directories come directly before their
/// contents.
pub(crate) fn key(beneath: &str, raw: Option<&[u8]>) -> Vec<u8> {
    let mut key = Vec::with_capacity(beneath.len() + raw.map_or(0, |raw| raw.len() + 1));
    key.extend(
        beneath
            .bytes()
            .map(|byte| if byte == b'/' { 0 } else { byte }),
    );
    if let Some(raw) = raw {
        // Names that are displayed alike must have different keys.
        key.push(1);
        key.extend_from_slice(raw);
    }
    key
}

/// Collects the entries of a page.
#[derive(Debug)]
pub(crate) struct PageBuilder<T> {
    after: Option<Cursor>,
    limit: usize,
    /// The entries of the page so far, and some that follow them.
    entries: Vec<(Vec<u8>, T)>,
    /// Key of the last entry of a full page; later entries are not on it.
    last: Option<Vec<u8>>,
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
            entries: Vec::new(),
            last: None,
            total: 0,
            later: 0,
        }
    }

    /// Counts an entry; `value` is called only if the entry may be on the page. Keys are unique.
    pub(crate) fn add(&mut self, key: Vec<u8>, value: impl FnOnce() -> T) {
        self.total += 1;
        if self.after.as_ref().is_some_and(|after| key <= after.0) {
            return;
        }
        self.later += 1;
        if self.last.as_ref().is_some_and(|last| key > *last) {
            return;
        }
        self.entries.push((key, value()));
        if self.entries.len() >= self.limit.saturating_mul(2) {
            self.cut();
        }
    }

    /// Adds the entries that another builder of the same page collected.
    pub(crate) fn merge(&mut self, other: Self) {
        self.total += other.total;
        self.later += other.later;
        self.entries.extend(other.entries);
        self.cut();
    }

    /// Sorts the entries and drops those beyond the page.
    fn cut(&mut self) {
        self.entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.entries.truncate(self.limit);
        if self.entries.len() == self.limit {
            self.last = self.entries.last().map(|(key, _)| key.clone());
        }
    }

    pub(crate) fn finish(mut self) -> Page<T> {
        self.cut();
        let more = self.later > u64::try_from(self.entries.len()).unwrap_or(u64::MAX);
        let last = self.entries.last().filter(|_| more);
        let next = last.map(|(key, _)| URL_SAFE_NO_PAD.encode(key));
        Page {
            total: self.total,
            next,
            entries: self.entries.into_iter().map(|(_, value)| value).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use bailiwick::Code;

    use super::*;

    /// The page of two parts that are collected apart.
    fn page(parts: (&[Vec<u8>], &[Vec<u8>]), limit: u32, after: Option<&str>) -> Page<Vec<u8>> {
        let [mut page, other] = [parts.0, parts.1].map(|keys| {
            let after = after.map(|text| Cursor::parse(text).unwrap());
            let mut page = PageBuilder::new(limit, 5, after);
            for key in keys {
                page.add(key.clone(), || key.clone());
            }
            page
        });
        page.merge(other);
        page.finish()
    }

    proptest! {
        #![proptest_config(crate::testing::property_config())]

        #[test]
        fn pages_have_every_entry_once_in_order(
            keys in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 1..4), 0..60),
            limit in 0_u32..9,
            seed in any::<u64>(),
            split in 0_usize..60,
        ) {
            let mut mixed: Vec<Vec<u8>> = keys.iter().cloned().collect();
            mixed.sort_by_key(|key| key.iter().fold(seed, |sum, byte| sum.rotate_left(7) ^ u64::from(*byte)));
            let (mut all, mut next) = (Vec::new(), None);
            loop {
                let got = page(mixed.split_at(split.min(mixed.len())), limit, next.as_deref());
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
        let mut names = ["a-b", "a/x", "a", "a.c"];
        names.sort_by_key(|name| key(name, None));
        assert_eq!(names, ["a", "a/x", "a-b", "a.c"]);
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
