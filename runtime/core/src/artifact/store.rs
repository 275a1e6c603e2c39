//! Bounded in-memory store of artifacts with unguessable URIs.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::parts::Parts;
use super::review::Review;
use crate::effect::ArtifactRef;
use crate::error::{CallError, Code};
use crate::id::{ToolName, WorkerId};

/// Default maximum number of calls whose artifacts are stored.
pub(crate) const DEFAULT_COUNT: usize = 256;
/// Default maximum size of the stored artifacts in bytes.
pub(crate) const DEFAULT_BYTES: usize = 64 << 20;

/// Media type of the data of a review page. `bailiwick_ui::review_page` renders the page.
pub const REVIEW_MIME: &str = "application/vnd.bailiwick.review+json";

/// Kind of an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The data of a review page.
    Review,
    /// A unified diff.
    Diff,
    /// The changes for programs.
    Json,
    /// The data of the review page again or, with a query, some of its rows.
    Rows,
    /// Standard output of a program.
    Stdout,
    /// Standard error of a program.
    Stderr,
}

impl Kind {
    const ALL: &[Self] = &[
        Self::Review,
        Self::Diff,
        Self::Json,
        Self::Rows,
        Self::Stdout,
        Self::Stderr,
    ];

    /// Its name, title, media type and the suffix of its URI after the id.
    const fn labels(self) -> [&'static str; 4] {
        match self {
            Self::Review => ["review", "Review", REVIEW_MIME, ""],
            Self::Diff => ["diff", "Diff", "text/x-diff", ".diff"],
            Self::Json => ["json", "Changes", "application/json", ".json"],
            Self::Rows => ["rows", "Rows", "application/json", ".rows"],
            Self::Stdout => ["stdout", "Standard output", "text/plain", ".stdout"],
            Self::Stderr => ["stderr", "Standard error", "text/plain", ".stderr"],
        }
    }
}

/// The reader of an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The host, for a person.
    Host,
    /// A worker: it reads its own artifacts and those of its subtree.
    Worker(WorkerId),
}

/// Content of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Artifact {
    /// Its media type.
    pub mime: &'static str,
    /// Its content.
    pub bytes: Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Id(u128);

impl Id {
    fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(u128::from_ne_bytes(bytes)))
    }

    /// Parses only the form that [`fmt::Display`] writes.
    fn parse(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 32 || !text.bytes().all(plain) {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

struct Set {
    tool: ToolName,
    owner: WorkerId,
    /// The owner's ancestors.
    lineage: Arc<[WorkerId]>,
    parts: Parts,
    size: usize,
    touched: u64,
}

#[derive(Default)]
struct StoreState {
    sets: HashMap<Id, Set>,
    /// From the least to the most recently used.
    order: BTreeMap<u64, Id>,
    /// The sets that contain old texts, in the same order.
    with_old: BTreeMap<u64, Id>,
    size: usize,
    clock: u64,
}

/// Least-recently-used store of artifacts, bounded in number and size.
///
/// A lock protects it instead of an actor: pool threads and the gateway only look up and move a few shared pointers,
/// and never wait while they hold the lock.
#[derive(Clone)]
pub(crate) struct ArtifactStore {
    count: usize,
    bytes: usize,
    state: Arc<Mutex<StoreState>>,
}

impl ArtifactStore {
    /// Stores the artifacts of at most `count` calls and `bytes` in total; 0 is unlimited.
    pub(crate) fn new(count: usize, bytes: usize) -> Self {
        let unlimited = |limit| if limit == 0 { usize::MAX } else { limit };
        Self {
            count: unlimited(count),
            bytes: unlimited(bytes),
            state: Arc::default(),
        }
    }

    /// Stores the artifacts of one call of `owner`, whose ancestors are `lineage`, under one id.
    ///
    /// # Errors
    /// `TOO_LARGE` if they cannot be stored, and `INTERNAL` if there are no random bytes. The call itself still
    /// succeeds, and the audit records why there is no artifact.
    pub(crate) fn put(
        &self,
        tool: &ToolName,
        owner: WorkerId,
        lineage: Arc<[WorkerId]>,
        mut parts: Parts,
    ) -> Result<Vec<ArtifactRef>, CallError> {
        let mut size = parts.size();
        if size > self.bytes {
            size -= parts.forget_old_texts();
        }
        if size > self.bytes {
            return Err(CallError::new(
                Code::TooLarge,
                format!(
                    "the diff is not kept: it has {size} bytes, and at most {} are kept",
                    self.bytes
                ),
            )
            .with("bytes", size)
            .with("limit", self.bytes));
        }
        let id = Id::random().map_err(|_| {
            CallError::new(
                Code::Internal,
                "the diff is not kept: cannot get random bytes from the operating system",
            )
        })?;
        let id_text = id.to_string();
        let kinds = parts.kinds();
        let refs = kinds.map(|kind| address(tool, &id_text, kind)).collect();
        self.with(|state| {
            state.make_room(self.count.saturating_sub(1), self.bytes - size);
            state.size += size;
            state.clock += 1;
            state.order.insert(state.clock, id);
            if parts.old_size() > 0 {
                state.with_old.insert(state.clock, id);
            }
            let set = Set {
                tool: tool.clone(),
                owner,
                lineage,
                parts,
                size,
                touched: state.clock,
            };
            state.sets.insert(id, set);
        });
        Ok(refs)
    }

    /// Returns the artifact at `uri`.
    ///
    /// # Errors
    /// `NOT_FOUND`, whether the URI never existed, its artifact was dropped, or the reader may not read it.
    pub(crate) fn get(&self, uri: &str, reader: Reader) -> Result<Artifact, CallError> {
        let absent =
            || CallError::new(Code::NotFound, "unknown artifact; it may have been evicted");
        let (tool, id, kind, query) = parse(uri).ok_or_else(absent)?;
        let part = self.with(|state| {
            let set = state.sets.get(&id)?;
            let part = set.is_for(tool, reader).then(|| set.parts.part(kind))?;
            state.touch(id);
            part
        });
        let page = format!("ui://{tool}/{id}");
        // Rendering happens after the lock is released.
        let bytes = part.ok_or_else(absent)?.bytes(query, &page)?;
        let [_, _, mime, _] = kind.labels();
        Ok(Artifact {
            mime,
            bytes: bytes.ok_or_else(absent)?,
        })
    }

    /// The stored review of the artifact at `uri`.
    pub(crate) fn review(&self, uri: &str, reader: Reader) -> Option<Arc<Review>> {
        let (tool, id, ..) = parse(uri)?;
        self.with(|state| {
            let set = state.sets.get(&id).filter(|set| set.is_for(tool, reader))?;
            Some(Arc::clone(&set.parts.review.as_ref()?.0))
        })
    }

    /// The artifacts that `reader` may read, the newest first.
    pub(crate) fn list(&self, reader: Reader) -> Vec<ArtifactRef> {
        self.with(|state| {
            let mine = state.order.values().rev().filter_map(|id| {
                let set = state.sets.get(id).filter(|set| set.is_of(reader))?;
                let id_text = id.to_string();
                let kinds = set.parts.kinds();
                Some(kinds.map(move |kind| address(&set.tool, &id_text, kind)))
            });
            mine.flatten().collect()
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut StoreState) -> T) -> T {
        act(&mut self.state.lock())
    }
}

impl fmt::Debug for ArtifactStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArtifactStore")
            .field("count", &self.count)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl Set {
    fn is_of(&self, reader: Reader) -> bool {
        match reader {
            Reader::Host => true,
            Reader::Worker(worker) => worker == self.owner || self.lineage.contains(&worker),
        }
    }

    fn is_for(&self, tool: &str, reader: Reader) -> bool {
        self.is_of(reader) && self.tool.as_str() == tool
    }
}

impl StoreState {
    fn touch(&mut self, id: Id) {
        if let Some(set) = self.sets.get_mut(&id) {
            self.clock += 1;
            self.order.remove(&set.touched);
            self.order.insert(self.clock, id);
            if self.with_old.remove(&set.touched).is_some() {
                self.with_old.insert(self.clock, id);
            }
            set.touched = self.clock;
        }
    }

    fn remove(&mut self, id: Id) {
        if let Some(set) = self.sets.remove(&id) {
            self.order.remove(&set.touched);
            self.with_old.remove(&set.touched);
            self.size -= set.size;
        }
    }

    /// Drops old texts first, since the changes can be shown without them.
    fn make_room(&mut self, count: usize, bytes: usize) {
        while self.size > bytes
            && let Some((_, id)) = self.with_old.pop_first()
        {
            if let Some(set) = self.sets.get_mut(&id) {
                let freed = set.parts.forget_old_texts();
                set.size -= freed;
                self.size -= freed;
            }
        }
        while self.sets.len() > count || self.size > bytes {
            let Some((_, oldest)) = self.order.first_key_value() else {
                return;
            };
            self.remove(*oldest);
        }
    }
}

/// `id` is an [`Id`] as text.
fn address(tool: &ToolName, id: &str, kind: Kind) -> ArtifactRef {
    let [name, title, mime, suffix] = kind.labels();
    ArtifactRef {
        uri: ["ui://", tool.as_str(), "/", id, suffix].concat(),
        name,
        title: [title, " of ", tool.as_str()].concat(),
        mime,
    }
}

/// The tool, id, kind and query of a URI.
fn parse(uri: &str) -> Option<(&str, Id, Kind, Option<&str>)> {
    let (tool, rest) = uri.strip_prefix("ui://")?.split_once('/')?;
    let (id, suffix) = rest.split_at_checked(32)?;
    if let Some(query) = suffix.strip_prefix(".rows?") {
        return Some((tool, Id::parse(id)?, Kind::Rows, Some(query)));
    }
    let mut kinds = Kind::ALL.iter();
    let kind = kinds.find(|kind| matches!(kind.labels(), [.., of] if of == suffix))?;
    Some((tool, Id::parse(id)?, *kind, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: WorkerId = WorkerId(3);
    const PARENT: WorkerId = WorkerId(2);
    const SIBLING: WorkerId = WorkerId(4);

    fn without_review(kept: Vec<(Kind, Bytes)>) -> Parts {
        Parts { kept, review: None }
    }

    fn put(store: &ArtifactStore, text: &str) -> Vec<ArtifactRef> {
        let kept = vec![
            (Kind::Diff, Bytes::copy_from_slice(text.as_bytes())),
            (Kind::Json, Bytes::from_static(b"{}")),
        ];
        let parts = without_review(kept);
        let lineage = [PARENT, WorkerId(1)].into();
        store
            .put(&ToolName::new("edit_file"), OWNER, lineage, parts)
            .unwrap()
    }

    fn uri(store: &ArtifactStore, text: &str) -> String {
        put(store, text).swap_remove(0).uri
    }

    #[test]
    fn owner_ancestors_and_host_read_an_artifact() {
        let store = ArtifactStore::new(DEFAULT_COUNT, DEFAULT_BYTES);
        let refs = put(&store, "the diff");
        let readers = [OWNER, PARENT, WorkerId(1)].map(Reader::Worker);
        for reader in readers.into_iter().chain([Reader::Host]) {
            let diff = store.get(&refs[0].uri, reader).unwrap();
            assert_eq!((diff.mime, &*diff.bytes), ("text/x-diff", &b"the diff"[..]));
            assert_eq!(&*store.get(&refs[1].uri, reader).unwrap().bytes, b"{}");
        }
    }

    #[test]
    fn other_workers_get_not_found() {
        let store = ArtifactStore::new(DEFAULT_COUNT, DEFAULT_BYTES);
        let theirs = uri(&store, "x");
        let unknown = format!("ui://edit_file/{}.diff", "0".repeat(32));
        let refused = store.get(&theirs, Reader::Worker(SIBLING)).unwrap_err();
        assert_eq!(refused.code(), Code::NotFound);
        assert_eq!(
            store.get(&unknown, Reader::Worker(SIBLING)).unwrap_err(),
            refused
        );
        assert_eq!(store.get(&unknown, Reader::Host).unwrap_err(), refused);
    }

    #[test]
    fn changed_uri_is_not_found() {
        let store = ArtifactStore::new(DEFAULT_COUNT, DEFAULT_BYTES);
        let uri = uri(&store, "x");
        for at in 0..uri.len() {
            for with in ["0", "g", "A", "/", ""] {
                let mut other = uri.clone();
                other.replace_range(at..=at, with);
                assert!(
                    other == uri || store.get(&other, Reader::Host).is_err(),
                    "{other}"
                );
            }
        }
        assert!(store.get(&uri, Reader::Host).is_ok());
    }

    #[test]
    fn uris_are_lower_case_and_unique() {
        let store = ArtifactStore::new(0, 0);
        let uris: std::collections::HashSet<String> = (0..2000).map(|_| uri(&store, "x")).collect();
        assert_eq!(uris.len(), 2000);
        for uri in uris {
            let id = uri
                .strip_prefix("ui://edit_file/")
                .unwrap()
                .strip_suffix(".diff")
                .unwrap();
            assert!(id.len() == 32 && !id.contains(|c: char| !matches!(c, '0'..='9' | 'a'..='f')));
        }
    }

    #[test]
    fn least_recently_used_artifact_is_dropped_first() {
        let store = ArtifactStore::new(2, 0);
        let (first, second) = (uri(&store, "1"), uri(&store, "2"));
        store.get(&first, Reader::Host).unwrap();
        let third = uri(&store, "3");
        assert!(store.get(&second, Reader::Host).is_err());
        assert!(store.get(&first, Reader::Host).is_ok());
        assert!(store.get(&third, Reader::Host).is_ok());
    }

    #[test]
    fn size_is_bounded_and_too_large_artifacts_are_rejected() {
        let store = ArtifactStore::new(0, 10);
        let first = uri(&store, "12345678");
        let second = uri(&store, "1234567");
        assert!(store.get(&first, Reader::Host).is_err());
        let parts = without_review(vec![(Kind::Diff, Bytes::from_static(b"12345678901"))]);
        let refused = store
            .put(&ToolName::new("edit_file"), OWNER, [].into(), parts)
            .unwrap_err();
        assert_eq!(refused.code(), Code::TooLarge);
        assert_eq!(refused.details().get("limit"), Some(&10.into()));
        assert!(store.get(&second, Reader::Host).is_ok());
    }

    fn reviewed(store: &ArtifactStore, text: &'static str, old: &'static str) -> String {
        use crate::artifact::{About, Review};
        use crate::effect::{Change, Entry, FileDiff, Hunk, HunkLine, Op};
        let line = HunkLine {
            op: '+',
            text: text.to_owned(),
        };
        let hunk = Hunk {
            old_start: 1,
            old_lines: 0,
            new_start: 2,
            new_lines: 1,
            lines: vec![line],
        };
        let change = Change {
            path: crate::path::VirtualPath::parse("/r/a", None).unwrap(),
            op: Op::Modify,
            to: None,
            before: Entry::Absent,
            after: Entry::Absent,
            diff: FileDiff {
                hunks: [hunk].into(),
                old: Some(Bytes::from_static(old.as_bytes())),
                ..FileDiff::default()
            },
        };
        let about = About {
            tool: ToolName::new("edit_file"),
            agent: "main".into(),
            intent: String::new(),
            preview: false,
        };
        let top = crate::path::VirtualPath::top();
        let (review, around) = Review::new(about, top, vec![change], Vec::new());
        let parts = Parts {
            kept: Vec::new(),
            review: Some((Arc::new(review), around)),
        };
        let tool = ToolName::new("edit_file");
        let mut refs = store.put(&tool, OWNER, [].into(), parts).unwrap();
        refs.swap_remove(0).uri
    }

    /// Whether the lines around the change at `uri` are still kept, and the change itself.
    fn kept(store: &ArtifactStore, uri: &str) -> (bool, bool) {
        let read = |query: &str| {
            let uri = format!("{uri}.rows?change=0&{query}");
            store.get(&uri, Reader::Host).is_ok()
        };
        (read("old=1"), read("from=0"))
    }

    #[test]
    fn old_texts_are_dropped_before_reviews() {
        const OLD: &str = "0123456789 0123456789 0123456789 0123456789 0123456789 0123456789\n";
        let unlimited = ArtifactStore::new(0, 0);
        reviewed(&unlimited, "x\n", "");
        let bare = unlimited.state.lock().size;
        let store = ArtifactStore::new(0, 3 * bare + 2 * OLD.len());
        let first = reviewed(&store, "1\n", OLD);
        let second = reviewed(&store, "2\n", OLD);
        assert_eq!(kept(&store, &second), (true, true));
        assert_eq!(kept(&store, &first), (true, true));
        let third = reviewed(&store, "3\n", OLD);
        let all = [&first, &second, &third].map(|uri| kept(&store, uri));
        assert_eq!(all, [(true, true), (false, true), (true, true)]);
        // Artifacts that are too large are stored without their old texts.
        let small = ArtifactStore::new(0, bare + OLD.len() - 1);
        assert_eq!(kept(&small, &reviewed(&small, "1\n", OLD)), (false, true));
    }
}
