//! First-come, first-served queue of path locks.
//!
//! A call holds its locks from its plan to the end of its effect. Two calls conflict if a path of one is equal to or an
//! ancestor of a path of the other. Locks are granted in order, so no call starves. A worker requests locks
//! for as many of its calls as it may run at once, and for two more, so their number is bounded.

use crate::id::CallId;
use crate::path::VirtualPath;

#[derive(Debug)]
struct LockRequest<W> {
    call: CallId,
    paths: Vec<VirtualPath>,
    /// Notified when the lock is held; `None` from then on.
    waiting: Option<W>,
}

impl<W> LockRequest<W> {
    fn conflicts(&self, other: &Self) -> bool {
        self.paths.iter().any(|a| {
            other
                .paths
                .iter()
                .any(|b| a.starts_with(b) || b.starts_with(a))
        })
    }
}

/// Lock requests in order; `W` is what waits for them.
#[derive(Debug)]
pub(crate) struct LockQueue<W> {
    requests: Vec<LockRequest<W>>,
}

impl<W> Default for LockQueue<W> {
    fn default() -> Self {
        Self {
            requests: Vec::new(),
        }
    }
}

impl<W> LockQueue<W> {
    /// Requests a lock on `paths`. Returns `waiter` if the lock is held at once, else [`LockQueue::release`] returns it later.
    pub(crate) fn request(
        &mut self,
        call: CallId,
        paths: Vec<VirtualPath>,
        waiter: W,
    ) -> Option<W> {
        let mut lock = LockRequest {
            call,
            paths,
            waiting: None,
        };
        let held = if self.requests.iter().any(|earlier| earlier.conflicts(&lock)) {
            lock.waiting = Some(waiter);
            None
        } else {
            Some(waiter)
        };
        self.requests.push(lock);
        held
    }

    /// Releases a lock or withdraws its request, and returns the waiters whose locks are held now.
    pub(crate) fn release(&mut self, call: CallId) -> Vec<W> {
        self.requests.retain(|lock| lock.call != call);
        let mut turns = Vec::new();
        for index in 0..self.requests.len() {
            let (earlier, rest) = self.requests.split_at_mut(index);
            if let Some(lock) = rest.first_mut()
                && lock.waiting.is_some()
                && !earlier.iter().any(|earlier| earlier.conflicts(lock))
            {
                turns.extend(lock.waiting.take());
            }
        }
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> VirtualPath {
        VirtualPath::parse(text, None).unwrap()
    }

    /// Requests a lock on `text` for call number `n`; true if it is held at once.
    fn lock(locks: &mut LockQueue<u64>, n: u64, text: &str) -> bool {
        locks.request(CallId(n), vec![path(text)], n).is_some()
    }

    #[test]
    fn path_lock_excludes_itself_ancestors_and_descendants() {
        let mut locks = LockQueue::default();
        assert!(lock(&mut locks, 1, "/r/a/b"));
        assert!(!lock(&mut locks, 2, "/r/a/b"));
        assert!(!lock(&mut locks, 3, "/r/a"));
        assert!(!lock(&mut locks, 4, "/r/a/b/c"));
        assert!(lock(&mut locks, 5, "/r/ab"));
    }

    #[test]
    fn locks_are_granted_in_order() {
        let mut locks = LockQueue::default();
        assert!(lock(&mut locks, 1, "/r/a"));
        assert!(!lock(&mut locks, 2, "/r"));
        assert!(!lock(&mut locks, 3, "/r/b"));
        assert_eq!(locks.release(CallId(1)), [2]);
        assert_eq!(locks.release(CallId(2)), [3]);
        assert_eq!(locks.release(CallId(3)), [0; 0]);
    }

    #[test]
    fn withdrawn_request_unblocks_the_next() {
        let mut locks = LockQueue::default();
        assert!(lock(&mut locks, 1, "/r/a"));
        assert!(!lock(&mut locks, 2, "/r"));
        assert!(!lock(&mut locks, 3, "/r/b"));
        assert_eq!(locks.release(CallId(2)), [3]);
    }
}
