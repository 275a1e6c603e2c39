//! Exponential backoff for reconnecting to servers.

use std::time::Duration;

/// The shortest and the longest delay.
const MIN_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(60);
/// The number of consecutive failures after which a server is given up.
const MAX_FAILURES: u32 = 10;
/// A connection that lasted this long resets the backoff.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// Counts consecutive failures.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Registers the end of a connection after `uptime`. Returns the delay before the next attempt, or `None` to give
    /// up.
    pub(super) fn next_delay(&mut self, uptime: Duration) -> Option<Duration> {
        if uptime >= STABLE_AFTER {
            self.failures = 0;
        }
        self.failures += 1;
        let delay = MIN_DELAY.saturating_mul(1 << (self.failures - 1).min(16));
        (self.failures <= MAX_FAILURES).then(|| delay.min(MAX_DELAY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_and_end() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = std::iter::from_fn(|| backoff.next_delay(Duration::ZERO)).collect();
        assert_eq!(waits.len(), MAX_FAILURES as usize);
        assert_eq!(waits.first(), Some(&MIN_DELAY));
        assert_eq!(waits.last(), Some(&MAX_DELAY));
        assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn stable_server_resets_the_backoff() {
        let mut backoff = Backoff::default();
        for _ in 0..5 {
            backoff.next_delay(Duration::ZERO);
        }
        assert_eq!(backoff.next_delay(STABLE_AFTER), Some(MIN_DELAY));
        assert_eq!(backoff.next_delay(Duration::ZERO), Some(MIN_DELAY * 2));
    }
}
