//! Limits restarts of a worker.

use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of restarts of one worker within [`WINDOW`].
const MOST: usize = 5;
/// Period in which restarts are counted.
const WINDOW: Duration = Duration::from_secs(10);

/// Times of the recent restarts of one worker.
#[derive(Debug, Default)]
pub(super) struct Restarts(VecDeque<Duration>);

impl Restarts {
    /// Whether a restart at `now` is allowed; if so, it is counted.
    pub(super) fn allow(&mut self, now: Duration) -> bool {
        while self
            .0
            .front()
            .is_some_and(|first| now.saturating_sub(*first) >= WINDOW)
        {
            self.0.pop_front();
        }
        let allowed = self.0.len() < MOST;
        if allowed {
            self.0.push_back(now);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_frequent_restarts_are_rejected() {
        let mut often = Restarts::default();
        let allowed = (0..10)
            .filter(|n| often.allow(Duration::from_secs(*n) / 10))
            .count();
        assert_eq!(allowed, MOST);
        let mut seldom = Restarts::default();
        assert!((0..100).all(|n| seldom.allow(WINDOW / 4 * n)));
    }
}
