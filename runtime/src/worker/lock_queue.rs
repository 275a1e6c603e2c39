//! First-come, first-served queue of path locks.
//!
//! A call holds its paths from plan to the end of its effect. Two calls conflict if one of their paths is
//! the other's or an ancestor of it. Turns are first come, first served, so nobody starves. A worker requests
//! for one of its calls at a time, so there are never more requests than workers.

use crate::id::CallId;
use crate::path::VirtualPath;

#[derive(Debug)]
struct LockRequest<W> {
    call: CallId,
    paths: Vec<VirtualPath>,
    /// Told when the lock is held; gone once it is.
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

/// Claims in the order they came; `W` is whatever waits.
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
    /// Claims `paths`; `waiter` comes back at once if it is this call's turn, else later from [`LockQueue::release`].
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

    /// Gives up a lock, held or waiting, and returns those whose turn it is now.
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

    /// Claims `text` for call number `n`; true if it is held at once.
    fn lock(locks: &mut LockQueue<u64>, n: u64, text: &str) -> bool {
        locks.request(CallId(n), vec![path(text)], n).is_some()
    }

    #[test]
    fn a_path_excludes_itself_its_ancestors_and_what_lies_beneath() {
        let mut locks = LockQueue::default();
        assert!(lock(&mut locks, 1, "/r/a/b"));
        assert!(!lock(&mut locks, 2, "/r/a/b"));
        assert!(!lock(&mut locks, 3, "/r/a"));
        assert!(!lock(&mut locks, 4, "/r/a/b/c"));
        assert!(lock(&mut locks, 5, "/r/ab"));
    }

    #[test]
    fn turns_are_first_come_first_served() {
        let mut locks = LockQueue::default();
        assert!(lock(&mut locks, 1, "/r/a"));
        assert!(!lock(&mut locks, 2, "/r"));
        assert!(!lock(&mut locks, 3, "/r/b"));
        assert_eq!(locks.release(CallId(1)), [2]);
        assert_eq!(locks.release(CallId(2)), [3]);
        assert_eq!(locks.release(CallId(3)), [0; 0]);
    }

    #[test]
    fn a_waiter_that_gives_up_lets_the_next_one_pass() {
        let mut locks = LockQueue::default();
        assert!(lock(&mut locks, 1, "/r/a"));
        assert!(!lock(&mut locks, 2, "/r"));
        assert!(!lock(&mut locks, 3, "/r/b"));
        assert_eq!(locks.release(CallId(2)), [3]);
    }
}
