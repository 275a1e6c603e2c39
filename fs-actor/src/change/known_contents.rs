//! The contents that workers planned with before, and their hashes.

use std::fmt;

use bailiwick::effect::ContentHash;
use bailiwick::{VirtualPath, WorkerId};
use bytes::Bytes;

use super::state::{State, hashes_of};
use crate::bounded_map::BoundedMap;

/// Maximum number of files, shared by all workers.
const MAX_FILES: usize = 64;
/// Maximum size of a content that is kept.
const MAX_BYTES: usize = 64 << 10;

/// The last two contents with which each worker planned for a file, with their hashes: a call that was previewed is planned
/// again, and the content that a call writes is what the next one replaces. Neither is then hashed or kept again.
///
/// A content is compared in full. Workers do not share entries, since the time that a plan takes would tell the contents that
/// another worker planned; it tells only that others planned changes of many files, which evicts entries.
pub(crate) struct KnownContents(BoundedMap<(WorkerId, VirtualPath), [Hashed; 2]>);

/// A content and its hash.
#[derive(Clone)]
pub(crate) struct Hashed {
    pub(crate) content: Bytes,
    pub(crate) hash: ContentHash,
}

impl Hashed {
    pub(super) fn of(content: Bytes) -> Self {
        Self {
            hash: ContentHash::of(&content),
            content,
        }
    }

    /// Two contents, of which what both begin with is hashed once.
    pub(super) fn both([old, new]: [Bytes; 2]) -> [Self; 2] {
        let [old_hash, new_hash] = hashes_of(&old, &new);
        [(old, old_hash), (new, new_hash)].map(|(content, hash)| Self { content, hash })
    }

    /// The state of a file with this content.
    pub(super) fn state(&self) -> State {
        State::File {
            hash: self.hash,
            bytes: self.content.len() as u64,
        }
    }
}

/// Without the contents.
impl fmt::Debug for KnownContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownContents").finish_non_exhaustive()
    }
}

impl Default for KnownContents {
    fn default() -> Self {
        Self(BoundedMap::new(MAX_FILES))
    }
}

impl KnownContents {
    /// Two contents of the file at `path`, which the worker may read, with their hashes. If one equals a content that is kept,
    /// the kept one is returned, so that previews and waiting calls share memory.
    pub(crate) fn of(
        &self,
        worker: WorkerId,
        path: &VirtualPath,
        [old, new]: [Bytes; 2],
    ) -> [Hashed; 2] {
        if old.len().max(new.len()) > MAX_BYTES {
            return Hashed::both([old, new]);
        }
        let key = (worker, path.clone());
        let known = self.0.get(&key);
        let find = |content: &Bytes| {
            let mut known = known.iter().flatten();
            known.find(|known| known.content == content).cloned()
        };
        // A copy, since the buffer of a content may be larger than it.
        let copied = |content: Bytes| Bytes::copy_from_slice(&content);
        let hashed = match (find(&old), find(&new)) {
            (Some(old), Some(new)) => return [old, new],
            (None, None) => Hashed::both([old, new].map(copied)),
            (Some(old), None) => [old, Hashed::of(copied(new))],
            (None, Some(new)) => [Hashed::of(copied(old)), new],
        };
        self.0.insert(key, hashed.clone());
        hashed
    }
}

#[cfg(test)]
mod tests {
    use bailiwick::tool::ReadPermit;
    use bailiwick::{Policy, Reply, Runtime, Scope, ToolSet, ToolSpec, Verb, WorkerSpec};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::put::NewContent;
    use super::super::{StepExecutor, target};
    use super::*;
    use crate::testing::World;

    fn path(name: &str) -> VirtualPath {
        VirtualPath::parse(&format!("/r/{name}"), None).unwrap()
    }

    proptest! {
        #![proptest_config(crate::testing::property_config())]

        #[test]
        fn known_contents_have_their_hashes(
            plans in proptest::collection::vec((0..2_u64, "[fg]", "[ab]{0,2}", "[ab]{0,2}"), 1..20),
        ) {
            let known = KnownContents::default();
            for (worker, name, old, new) in plans {
                let contents = [old, new].map(Bytes::from);
                let hashed = known.of(WorkerId(worker), &path(&name), contents.clone());
                for (hashed, content) in hashed.into_iter().zip(contents) {
                    prop_assert_eq!(hashed.hash, ContentHash::of(&content));
                    prop_assert_eq!(hashed.content, content);
                }
            }
        }
    }

    #[test]
    fn known_content_is_not_hashed_again() {
        let (known, worker, file) = (KnownContents::default(), WorkerId(1), path("f"));
        let [a, b, c] = ["a", "b", "c"].map(Bytes::from);
        // As if these were the hashes of `a` and `b`.
        let [hash_of_a, hash_of_b] = [b"1", b"2"].map(|mark| ContentHash::of(mark));
        let kept = [(&a, hash_of_a), (&b, hash_of_b)].map(|(content, hash)| Hashed {
            content: content.clone(),
            hash,
        });
        known.0.insert((worker, file.clone()), kept);
        let hashes = |old: &Bytes, new: &Bytes| {
            let contents = [old.clone(), new.clone()];
            known.of(worker, &file, contents).map(|hashed| hashed.hash)
        };
        assert_eq!(hashes(&b, &a), [hash_of_b, hash_of_a]);
        assert_eq!(hashes(&b, &c), [hash_of_b, ContentHash::of(b"c")]);
    }

    #[test]
    fn equal_contents_are_kept_once() {
        let (known, worker, file) = (KnownContents::default(), WorkerId(1), path("f"));
        let kept = |old: &str, new: &str| {
            let contents = [old, new].map(|text| Bytes::from(text.to_owned()));
            known
                .of(worker, &file, contents)
                .map(|hashed| hashed.content)
        };
        let is_one = |one: &Bytes, other: &Bytes| one.as_ptr() == other.as_ptr();
        let [a, b] = kept("a", "b");
        let [a_again, b_again] = kept("a", "b");
        assert!(is_one(&a, &a_again) && is_one(&b, &b_again));
        let [b_again, c] = kept("b", "c");
        assert!(is_one(&b, &b_again));
        let [d, c_again] = kept("d", "c");
        assert!(is_one(&c, &c_again));
        assert_eq!((&*c, &*d), (&b"c"[..], &b"d"[..]));
    }

    #[tokio::test]
    async fn contents_of_files_that_the_worker_may_not_read_are_not_kept() {
        let world = World::new(&["file root/f old"]);
        let executor = StepExecutor::default();
        let spec = ToolSpec::new("plan", "Plan", "Plans a write.");
        let planner = executor.clone();
        let needs = |_: &Value, _: &_| Ok(vec![Scope::file(Verb::Write, path("f"))]);
        let plan = move |_: &Value, permit: &ReadPermit| {
            let old = target::read_old(permit, &path("f"))?;
            let new = Bytes::from_static(b"new");
            NewContent::new(&planner, permit, path("f"), old, new, false)?;
            Ok(Reply::text("planned", ()))
        };
        let tools = ToolSet::new().read_function(spec, needs, plan);
        let (runtime, _) = Runtime::builder()
            .root("r", world.host("root"))
            .tools(tools.for_files())
            .build()
            .await
            .unwrap();
        let write = Policy::nothing().allow("write:file:/r");
        let read_and_write = write.clone().allow("read:file:/r");
        for (policy, is_kept) in [(write, false), (read_and_write, true)] {
            let spec = WorkerSpec::new("main").policy(policy);
            let worker = runtime.spawn(spec).await.unwrap();
            worker.call("plan", json!({})).await.unwrap();
            let key = (worker.id(), path("f"));
            let known = &executor.known_contents.0;
            assert_eq!(known.get(&key).is_some(), is_kept);
        }
    }

    #[test]
    fn only_the_worker_that_planned_with_a_small_content_has_its_hash() {
        let known = KnownContents::default();
        let (worker, other, file) = (WorkerId(1), WorkerId(2), path("f"));
        let kept = |worker| known.0.get(&(worker, file.clone())).is_some();
        let large = Bytes::from(vec![b'x'; MAX_BYTES + 1]);
        known.of(worker, &file, [Bytes::new(), large.clone()]);
        assert!(!kept(worker));
        let small = large.slice(1..);
        known.of(worker, &file, [Bytes::new(), small]);
        assert!(kept(worker));
        assert!(!kept(other));
    }
}
