//! Hashes of the contents that workers planned with before.

use std::fmt;

use bailiwick::effect::ContentHash;
use bailiwick::{VirtualPath, WorkerId};
use bytes::Bytes;

use super::state::hashes_of;
use crate::bounded_map::BoundedMap;

/// Maximum number of files, shared by all workers.
const MAX_FILES: usize = 64;
/// Maximum size of a content that is kept.
const MAX_BYTES: usize = 64 << 10;

/// The last two contents with which each worker planned for a file, with their hashes: a call that was previewed is planned
/// again, and the content that a call writes is what the next one replaces.
///
/// A content is compared in full. Workers do not share entries, since the time that a plan takes would tell the contents that
/// another worker planned; it tells only that others planned changes of many files, which evicts entries.
pub(crate) struct KnownHashes(BoundedMap<(WorkerId, VirtualPath), [Hashed; 2]>);

#[derive(Clone)]
struct Hashed {
    content: Bytes,
    hash: ContentHash,
}

/// Without the contents.
impl fmt::Debug for KnownHashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownHashes").finish_non_exhaustive()
    }
}

impl Default for KnownHashes {
    fn default() -> Self {
        Self(BoundedMap::new(MAX_FILES))
    }
}

impl KnownHashes {
    /// The hashes of two contents of the file at `path`, which the worker may read.
    pub(crate) fn of(
        &self,
        worker: WorkerId,
        path: &VirtualPath,
        contents: [&Bytes; 2],
    ) -> [ContentHash; 2] {
        let [old, new] = contents;
        if old.len().max(new.len()) > MAX_BYTES {
            return hashes_of(old, new);
        }
        let key = (worker, path.clone());
        let known = self.0.get(&key);
        let hash_of = |content: &Bytes| {
            let mut known = known.iter().flatten();
            let same = known.find(|known| known.content == content);
            same.map(|known| known.hash)
        };
        let hashes = match contents.map(hash_of) {
            [Some(old), Some(new)] => return [old, new],
            [None, None] => hashes_of(old, new),
            [old_hash, new_hash] => [
                old_hash.unwrap_or_else(|| ContentHash::of(old)),
                new_hash.unwrap_or_else(|| ContentHash::of(new)),
            ],
        };
        let [old, new] = [(old, hashes[0]), (new, hashes[1])].map(|(content, hash)| Hashed {
            // A copy, since the buffer of a content may be larger than it.
            content: Bytes::copy_from_slice(content),
            hash,
        });
        self.0.insert(key, [old, new]);
        hashes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(name: &str) -> VirtualPath {
        VirtualPath::parse(&format!("/r/{name}"), None).unwrap()
    }

    proptest! {
        #![proptest_config(crate::testing::property_config())]

        #[test]
        fn known_hashes_are_those_of_the_contents(
            plans in proptest::collection::vec((0..2_u64, "[fg]", "[ab]{0,2}", "[ab]{0,2}"), 1..20),
        ) {
            let known = KnownHashes::default();
            for (worker, name, old, new) in plans {
                let [old, new] = [old, new].map(Bytes::from);
                let expected = [&old, &new].map(|content| ContentHash::of(content));
                let hashes = known.of(WorkerId(worker), &path(&name), [&old, &new]);
                prop_assert_eq!(hashes, expected);
            }
        }
    }

    #[test]
    fn known_content_is_not_hashed_again() {
        let (known, worker, file) = (KnownHashes::default(), WorkerId(1), path("f"));
        let [a, b, c] = ["a", "b", "c"].map(Bytes::from);
        // As if these were the hashes of `a` and `b`.
        let [hash_of_a, hash_of_b] = [b"1", b"2"].map(|mark| ContentHash::of(mark));
        let kept = [(&a, hash_of_a), (&b, hash_of_b)].map(|(content, hash)| Hashed {
            content: content.clone(),
            hash,
        });
        known.0.insert((worker, file.clone()), kept);
        assert_eq!(known.of(worker, &file, [&b, &a]), [hash_of_b, hash_of_a]);
        let hashes = known.of(worker, &file, [&b, &c]);
        assert_eq!(hashes, [hash_of_b, ContentHash::of(b"c")]);
    }

    #[test]
    fn only_the_worker_that_planned_with_a_small_content_has_its_hash() {
        let known = KnownHashes::default();
        let (worker, other, file) = (WorkerId(1), WorkerId(2), path("f"));
        let kept = |worker| known.0.get(&(worker, file.clone())).is_some();
        let large = Bytes::from(vec![b'x'; MAX_BYTES + 1]);
        known.of(worker, &file, [&Bytes::new(), &large]);
        assert!(!kept(worker));
        let small = large.slice(1..);
        known.of(worker, &file, [&Bytes::new(), &small]);
        assert!(kept(worker));
        assert!(!kept(other));
    }
}
