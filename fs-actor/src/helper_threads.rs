//! Threads that help a call which walks a tree or searches files.
//!
//! Their number is bounded for each call, and for all calls of this process together. A call also works in its own
//! thread, so it makes progress if no helper is available.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Scope, available_parallelism};

/// Maximum number of helpers of one call.
const MAX_HELPERS: usize = 3;

/// Number of helpers in this process; at most [`OTHER_PROCESSORS`].
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// One less than there are processors, which takes several system calls to find out.
static OTHER_PROCESSORS: LazyLock<usize> =
    LazyLock::new(|| available_parallelism().map_or(0, |processors| processors.get() - 1));

/// The helpers of one call.
#[derive(Debug)]
pub(crate) struct Helpers {
    /// How many may still be started.
    left: AtomicUsize,
}

impl Helpers {
    pub(crate) fn new() -> Self {
        Self {
            left: AtomicUsize::new(MAX_HELPERS.min(*OTHER_PROCESSORS)),
        }
    }

    /// Whether there can be any.
    pub(crate) fn are_possible(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Starts one, if it is available: calls `work`, and runs what it returns on a new thread.
    pub(crate) fn start<'s, W>(&self, scope: &'s Scope<'s, '_>, work: impl FnOnce() -> W)
    where
        W: FnOnce() + Send + 's,
    {
        let less = |left: usize| left.checked_sub(1);
        let reserved = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if reserved.is_err() {
            return;
        }
        let Some(permit) = ThreadPermit::acquire(&RUNNING, *OTHER_PROCESSORS) else {
            self.left.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let work = work();
        let builder = std::thread::Builder::new().name("bailiwick-search".to_owned());
        let started = builder.spawn_scoped(scope, move || {
            let _permit = permit;
            work();
        });
        if started.is_err() {
            // The next attempt would fail as well.
            self.left.store(0, Ordering::Relaxed);
        }
    }
}

/// One of the threads that `running` counts.
struct ThreadPermit {
    running: &'static AtomicUsize,
}

impl ThreadPermit {
    /// `None` if `max` threads are running.
    fn acquire(running: &'static AtomicUsize, max: usize) -> Option<Self> {
        let more = |count| (count < max).then_some(count + 1);
        let taken = running.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        // A permit that is dropped counts as one thread less.
        taken.is_ok().then(|| Self { running })
    }
}

impl Drop for ThreadPermit {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_thread_changes_nothing_and_an_ended_one_makes_room() {
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        let acquire = || ThreadPermit::acquire(&RUNNING, 2);
        for _ in 0..3 {
            let first = acquire();
            let second = acquire();
            assert!(first.is_some() && second.is_some());
            for _ in 0..3 {
                assert!(acquire().is_none());
            }
            assert_eq!(RUNNING.load(Ordering::Acquire), 2);
            drop(first);
            assert!(acquire().is_some());
        }
        assert_eq!(RUNNING.load(Ordering::Acquire), 0);
    }
}
