//! First-come, first-served queue of path locks.
//!
//! A call holds its locks while it is planned and carried out; if a person approved an earlier plan, while it is carried
//! out. Two calls conflict if a path of one is equal to or an ancestor of a path of the other. Locks of entries, which
//! commands hold as long as they run, do not conflict with each other, nor with calls that change what is beneath their
//! paths; other calls are rejected, since they would wait too long. Locks of conflicting calls are granted in order, so no
//! call starves. A worker requests locks for as many of its calls as it may run at once, and for two more, so their number
//! is bounded.

use std::collections::{BTreeMap, BTreeSet};

use crate::path::VirtualPath;

/// Position of a request in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn(u64);

#[derive(Debug)]
struct LockRequest<W> {
    paths: Vec<VirtualPath>,
    kind: Kind,
    /// Notified when the lock is held; `None` from then on.
    waiting: Option<W>,
}

/// What a lock is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// To change the paths and what is beneath them.
    Change,
    /// To keep the entries at the paths where they are.
    Entry,
}

/// Where a path is, compared with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Same,
    Above,
    Beneath,
}

/// Whether a lock conflicts with `other`, whose path is at that position.
fn conflicts(kind: Kind, other: Kind, position: Position) -> bool {
    match (kind, other) {
        (Kind::Change, Kind::Change) => true,
        (Kind::Entry, Kind::Entry) => false,
        (Kind::Change, Kind::Entry) => position != Position::Above,
        (Kind::Entry, Kind::Change) => position != Position::Beneath,
    }
}

/// Lock requests in order; `W` is what waits for them.
#[derive(Debug)]
pub(crate) struct LockQueue<W> {
    requests: BTreeMap<Turn, LockRequest<W>>,
    /// The requests of each path. The texts of all paths beneath a path begin with it and `/`, so they are contiguous.
    by_path: BTreeMap<String, BTreeSet<Turn>>,
    next: Turn,
}

impl<W> Default for LockQueue<W> {
    fn default() -> Self {
        Self {
            requests: BTreeMap::new(),
            by_path: BTreeMap::new(),
            next: Turn::default(),
        }
    }
}

impl<W> LockQueue<W> {
    /// Requests a lock on `paths`. Also returns `waiter` if the lock is held at once, else [`LockQueue::release`] returns it
    /// later.
    pub(crate) fn request(
        &mut self,
        paths: Vec<VirtualPath>,
        kind: Kind,
        waiter: W,
    ) -> (Turn, Option<W>) {
        let turn = self.next;
        self.next.0 += 1;
        let (held, waiting) = if self.is_blocked(turn, &paths, kind) {
            (None, Some(waiter))
        } else {
            (Some(waiter), None)
        };
        for path in &paths {
            let turns = self.by_path.entry(path.as_str().into()).or_default();
            turns.insert(turn);
        }
        let request = LockRequest {
            paths,
            kind,
            waiting,
        };
        self.requests.insert(turn, request);
        (turn, held)
    }

    /// Releases a lock or withdraws its request, and returns the waiters whose locks are held now.
    pub(crate) fn release(&mut self, turn: Turn) -> Vec<W> {
        let Some(released) = self.requests.remove(&turn) else {
            return Vec::new();
        };
        for path in &released.paths {
            if let Some(turns) = self.by_path.get_mut(path.as_str()) {
                turns.remove(&turn);
                if turns.is_empty() {
                    self.by_path.remove(path.as_str());
                }
            }
        }
        let near = released.paths.iter().flat_map(|path| self.near(path));
        let later: BTreeSet<Turn> = near
            .map(|(other, _)| other)
            .filter(|other| *other > turn)
            .collect();
        let mut holders = Vec::new();
        for turn in later {
            let is_next = |lock: &LockRequest<W>| {
                lock.waiting.is_some() && !self.is_blocked(turn, &lock.paths, lock.kind)
            };
            if self.requests.get(&turn).is_some_and(is_next)
                && let Some(lock) = self.requests.get_mut(&turn)
            {
                holders.extend(lock.waiting.take());
            }
        }
        holders
    }

    /// The first of `paths` whose change conflicts with a lock of entries, held or requested.
    pub(crate) fn kept_entry<'p>(&self, paths: &'p [VirtualPath]) -> Option<&'p VirtualPath> {
        let is_kept = |(turn, position): (Turn, Position)| {
            let request = self.requests.get(&turn);
            let request = request.filter(|request| request.kind == Kind::Entry);
            request.is_some_and(|request| conflicts(Kind::Change, request.kind, position))
        };
        paths.iter().find(|path| self.near(path).any(is_kept))
    }

    /// Whether a request before `turn` conflicts with one for `paths`.
    fn is_blocked(&self, turn: Turn, paths: &[VirtualPath], kind: Kind) -> bool {
        let mut others = paths.iter().flat_map(|path| self.near(path));
        others.any(|(other, position)| {
            let request = self.requests.get(&other).filter(|_| other < turn);
            request.is_some_and(|request| conflicts(kind, request.kind, position))
        })
    }

    /// The requests of `path`, its ancestors and what is beneath it.
    fn near(&self, path: &VirtualPath) -> impl Iterator<Item = (Turn, Position)> {
        let ancestors = std::iter::successors(path.parent(), VirtualPath::parent);
        let above = ancestors.filter_map(|path| self.by_path.get(path.as_str()));
        let text = path.as_str().trim_end_matches('/');
        // `0` is the character after `/`.
        let beneath = self.by_path.range(format!("{text}/")..format!("{text}0"));
        let beneath = beneath.filter(|(other, _)| *other != path.as_str());
        let same = self.by_path.get(path.as_str()).into_iter();
        same.map(|turns| (turns, Position::Same))
            .chain(above.map(|turns| (turns, Position::Above)))
            .chain(beneath.map(|(_, turns)| (turns, Position::Beneath)))
            .flat_map(|(turns, position)| turns.iter().map(move |turn| (*turn, position)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> VirtualPath {
        VirtualPath::parse(text, None).unwrap()
    }

    /// Requests a lock on `text`; also returns whether it is held at once.
    fn lock(locks: &mut LockQueue<u64>, n: u64, text: &str) -> (Turn, bool) {
        let (turn, held) = locks.request(vec![path(text)], Kind::Change, n);
        (turn, held.is_some())
    }

    #[test]
    fn path_lock_excludes_itself_ancestors_and_descendants() {
        let mut locks = LockQueue::default();
        assert!(lock(&mut locks, 1, "/r/a/b").1);
        assert!(!lock(&mut locks, 2, "/r/a/b").1);
        assert!(!lock(&mut locks, 3, "/r/a").1);
        assert!(!lock(&mut locks, 4, "/r/a/b/c").1);
        assert!(lock(&mut locks, 5, "/r/ab").1);
    }

    #[test]
    fn changes_of_kept_entries_are_found() {
        let mut locks = LockQueue::default();
        locks.request(vec![path("/r/a/b")], Kind::Entry, 1);
        locks.request(vec![path("/r/c")], Kind::Change, 2);
        for (text, is_kept) in [
            ("/r/a/b", true),
            ("/r/a", true),
            ("/r/a/b/c", false),
            ("/r/c", false),
        ] {
            assert_eq!(locks.kept_entry(&[path(text)]).is_some(), is_kept, "{text}");
        }
    }

    #[test]
    fn locks_are_granted_in_order() {
        let mut locks = LockQueue::default();
        let (first, _) = lock(&mut locks, 1, "/r/a");
        let (second, _) = lock(&mut locks, 2, "/r");
        let (third, held) = lock(&mut locks, 3, "/r/b");
        assert!(!held);
        assert_eq!(locks.release(first), [2]);
        assert_eq!(locks.release(second), [3]);
        assert_eq!(locks.release(third), [0; 0]);
        assert!(locks.by_path.is_empty());
    }

    #[test]
    fn withdrawn_request_unblocks_the_next() {
        let mut locks = LockQueue::default();
        lock(&mut locks, 1, "/r/a");
        let (second, _) = lock(&mut locks, 2, "/r");
        lock(&mut locks, 3, "/r/b");
        assert_eq!(locks.release(second), [3]);
    }

    /// What a test does with a queue.
    #[derive(Clone, Debug)]
    enum Action {
        Request(Vec<VirtualPath>, Kind),
        Release(prop::sample::Index),
    }

    fn actions() -> impl Strategy<Value = Vec<Action>> {
        let path =
            prop::sample::select(vec!["/", "/r", "/r/a", "/r/a/b", "/r/a-", "/r/a0", "/r/b"]);
        let paths = prop::collection::vec(path.prop_map(self::path), 0..3);
        let kind = prop::sample::select(vec![Kind::Change, Kind::Entry]);
        let action = prop_oneof![
            (paths, kind).prop_map(|(paths, kind)| Action::Request(paths, kind)),
            any::<prop::sample::Index>().prop_map(Action::Release),
        ];
        prop::collection::vec(action, 0..40)
    }

    /// A request of the model, with its number and whether it is held.
    type Requested = (u64, Vec<VirtualPath>, Kind, bool);

    /// Holds the locks of all requests that conflict with no earlier one, and returns their numbers.
    fn grant(model: &mut [Requested]) -> Vec<u64> {
        let mut granted = Vec::new();
        for index in 0..model.len() {
            let (earlier, rest) = model.split_at_mut(index);
            let (number, paths, kind, held) = rest.first_mut().unwrap();
            let conflicts =
                |path: &VirtualPath, other: &VirtualPath, theirs: Kind| match (*kind, theirs) {
                    (Kind::Change, Kind::Change) => path.touches(other),
                    (Kind::Entry, Kind::Entry) => false,
                    (Kind::Change, Kind::Entry) => other.starts_with(path),
                    (Kind::Entry, Kind::Change) => path.starts_with(other),
                };
            let is_free = earlier.iter().all(|(_, others, theirs, _)| {
                let mut others = others.iter();
                !others.any(|other| paths.iter().any(|path| conflicts(path, other, *theirs)))
            });
            if is_free && !std::mem::replace(held, true) {
                granted.push(*number);
            }
        }
        granted
    }

    proptest! {
        #![proptest_config(crate::cases::cases(512))]

        #[test]
        fn queue_grants_each_lock_once_no_earlier_request_conflicts(actions in actions()) {
            let (mut locks, mut model, mut turns) = (LockQueue::default(), Vec::new(), Vec::new());
            for (number, action) in (0..).zip(actions) {
                match action {
                    Action::Request(paths, kind) => {
                        let (turn, held) = locks.request(paths.clone(), kind, number);
                        model.push((number, paths, kind, false));
                        turns.push((number, turn));
                        prop_assert_eq!(held.into_iter().collect::<Vec<_>>(), grant(&mut model));
                    }
                    Action::Release(index) if !turns.is_empty() => {
                        let (number, turn) = turns.remove(index.index(turns.len()));
                        model.retain(|(other, ..)| *other != number);
                        prop_assert_eq!(locks.release(turn), grant(&mut model));
                    }
                    Action::Release(_) => {}
                }
            }
        }
    }
}
