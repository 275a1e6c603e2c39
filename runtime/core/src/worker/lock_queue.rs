//! First-come, first-served queue of path locks.
//!
//! A call holds its locks while it is planned and carried out; if a person approved an earlier plan, while it is carried
//! out. Two calls conflict if a path of one is equal to or an ancestor of a path of the other, unless both share their locks.
//! Locks of conflicting calls are granted in order, so no call starves. A worker requests locks for as many of its calls as it may run at once,
//! and for two more, so their number is bounded.

use std::collections::{BTreeMap, BTreeSet};

use crate::path::VirtualPath;

/// Position of a request in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn(u64);

#[derive(Debug)]
struct LockRequest<W> {
    paths: Vec<VirtualPath>,
    sharing: Sharing,
    /// Notified when the lock is held; `None` from then on.
    waiting: Option<W>,
}

/// Whether others may hold a lock on the same paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Nobody else.
    Exclusive,
    /// Those who share it, too.
    Shared,
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
        sharing: Sharing,
        waiter: W,
    ) -> (Turn, Option<W>) {
        let turn = self.next;
        self.next.0 += 1;
        let (held, waiting) = if self.is_blocked(turn, &paths, sharing) {
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
            sharing,
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
        let conflicting = released
            .paths
            .iter()
            .flat_map(|path| self.conflicting(path));
        let later: BTreeSet<Turn> = conflicting.filter(|other| *other > turn).collect();
        let mut holders = Vec::new();
        for turn in later {
            let is_next = |lock: &LockRequest<W>| {
                lock.waiting.is_some() && !self.is_blocked(turn, &lock.paths, lock.sharing)
            };
            if self.requests.get(&turn).is_some_and(is_next)
                && let Some(lock) = self.requests.get_mut(&turn)
            {
                holders.extend(lock.waiting.take());
            }
        }
        holders
    }

    /// Whether a request before `turn` conflicts with one for `paths`.
    fn is_blocked(&self, turn: Turn, paths: &[VirtualPath], sharing: Sharing) -> bool {
        let is_shared = |other| {
            let other = self.requests.get(&other);
            sharing == Sharing::Shared && other.is_some_and(|it| it.sharing == Sharing::Shared)
        };
        let mut others = paths.iter().flat_map(|path| self.conflicting(path));
        others.any(|other| other < turn && !is_shared(other))
    }

    /// The requests of `path`, its ancestors and what is beneath it.
    fn conflicting(&self, path: &VirtualPath) -> impl Iterator<Item = Turn> {
        let ancestors = std::iter::successors(Some(path.clone()), VirtualPath::parent);
        let above = ancestors.filter_map(|path| self.by_path.get(path.as_str()));
        let text = path.as_str().trim_end_matches('/');
        // `0` is the character after `/`.
        let beneath = self.by_path.range(format!("{text}/")..format!("{text}0"));
        above
            .chain(beneath.map(|(_, turns)| turns))
            .flat_map(|turns| turns.iter().copied())
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
        let (turn, held) = locks.request(vec![path(text)], Sharing::Exclusive, n);
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
        Request(Vec<VirtualPath>, Sharing),
        Release(prop::sample::Index),
    }

    fn actions() -> impl Strategy<Value = Vec<Action>> {
        let path =
            prop::sample::select(vec!["/", "/r", "/r/a", "/r/a/b", "/r/a-", "/r/a0", "/r/b"]);
        let paths = prop::collection::vec(path.prop_map(self::path), 0..3);
        let sharing = prop::sample::select(vec![Sharing::Exclusive, Sharing::Shared]);
        let action = prop_oneof![
            (paths, sharing).prop_map(|(paths, sharing)| Action::Request(paths, sharing)),
            any::<prop::sample::Index>().prop_map(Action::Release),
        ];
        prop::collection::vec(action, 0..40)
    }

    /// A request of the model, with its number and whether it is held.
    type Requested = (u64, Vec<VirtualPath>, Sharing, bool);

    /// Holds the locks of all requests that conflict with no earlier one, and returns their numbers.
    fn grant(model: &mut [Requested]) -> Vec<u64> {
        let mut granted = Vec::new();
        for index in 0..model.len() {
            let (earlier, rest) = model.split_at_mut(index);
            let (number, paths, sharing, held) = rest.first_mut().unwrap();
            let is_free = earlier
                .iter()
                .filter(|(_, _, theirs, _)| [*theirs, *sharing] != [Sharing::Shared; 2])
                .flat_map(|(_, theirs, ..)| theirs)
                .all(|theirs| !paths.iter().any(|path| path.touches(theirs)));
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
                    Action::Request(paths, sharing) => {
                        let (turn, held) = locks.request(paths.clone(), sharing, number);
                        model.push((number, paths, sharing, false));
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
