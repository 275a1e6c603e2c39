//! Which call wants to change which paths in, whose turn it is out.
//!
//! A call holds its paths from plan to the end of its effect. Two calls conflict if one of their paths is
//! the other's or an ancestor of it. Turns are first come, first served, so nobody starves. A worker claims
//! for one of its calls at a time, so there are never more claims than workers.

use crate::id::CallId;
use crate::path::VirtualPath;

#[derive(Debug)]
struct Claim<W> {
    call: CallId,
    paths: Vec<VirtualPath>,
    /// Told when the claim is held; gone once it is.
    waiting: Option<W>,
}

impl<W> Claim<W> {
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
pub(crate) struct Locks<W> {
    claims: Vec<Claim<W>>,
}

impl<W> Default for Locks<W> {
    fn default() -> Self {
        Self { claims: Vec::new() }
    }
}

impl<W> Locks<W> {
    /// Claims `paths`; `waiter` comes back at once if it is this call's turn, else later from [`Locks::release`].
    pub(crate) fn claim(&mut self, call: CallId, paths: Vec<VirtualPath>, waiter: W) -> Option<W> {
        let mut claim = Claim {
            call,
            paths,
            waiting: None,
        };
        let held = if self.claims.iter().any(|earlier| earlier.conflicts(&claim)) {
            claim.waiting = Some(waiter);
            None
        } else {
            Some(waiter)
        };
        self.claims.push(claim);
        held
    }

    /// Gives up a claim, held or waiting, and returns those whose turn it is now.
    pub(crate) fn release(&mut self, call: CallId) -> Vec<W> {
        self.claims.retain(|claim| claim.call != call);
        let mut turns = Vec::new();
        for index in 0..self.claims.len() {
            let (earlier, rest) = self.claims.split_at_mut(index);
            if let Some(claim) = rest.first_mut()
                && claim.waiting.is_some()
                && !earlier.iter().any(|earlier| earlier.conflicts(claim))
            {
                turns.extend(claim.waiting.take());
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
    fn claim(locks: &mut Locks<u64>, n: u64, text: &str) -> bool {
        locks.claim(CallId(n), vec![path(text)], n).is_some()
    }

    #[test]
    fn a_path_excludes_itself_its_ancestors_and_what_lies_beneath() {
        let mut locks = Locks::default();
        assert!(claim(&mut locks, 1, "/r/a/b"));
        assert!(!claim(&mut locks, 2, "/r/a/b"));
        assert!(!claim(&mut locks, 3, "/r/a"));
        assert!(!claim(&mut locks, 4, "/r/a/b/c"));
        assert!(claim(&mut locks, 5, "/r/ab"));
    }

    #[test]
    fn turns_are_first_come_first_served() {
        let mut locks = Locks::default();
        assert!(claim(&mut locks, 1, "/r/a"));
        assert!(!claim(&mut locks, 2, "/r"));
        assert!(!claim(&mut locks, 3, "/r/b"));
        assert_eq!(locks.release(CallId(1)), [2]);
        assert_eq!(locks.release(CallId(2)), [3]);
        assert_eq!(locks.release(CallId(3)), [0; 0]);
    }

    #[test]
    fn a_waiter_that_gives_up_lets_the_next_one_pass() {
        let mut locks = Locks::default();
        assert!(claim(&mut locks, 1, "/r/a"));
        assert!(!claim(&mut locks, 2, "/r"));
        assert!(!claim(&mut locks, 3, "/r/b"));
        assert_eq!(locks.release(CallId(2)), [3]);
    }
}
