//! How often a server failed in, how long to wait before it is tried again out; or that it is given up.

use std::time::Duration;

/// The shortest and the longest wait.
const MIN_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(60);
/// How often in a row a server may fail.
const MAX_FAILURES: u32 = 10;
/// A server that lasted this long has not failed.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// Counts failures in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Takes up that a server ended that was there for `uptime`; how long to wait, or none if it is given up.
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
    fn waits_grow_and_end() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = std::iter::from_fn(|| backoff.next_delay(Duration::ZERO)).collect();
        assert_eq!(waits.len(), MAX_FAILURES as usize);
        assert_eq!(waits.first(), Some(&MIN_DELAY));
        assert_eq!(waits.last(), Some(&MAX_DELAY));
        assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn a_server_that_lasted_begins_anew() {
        let mut backoff = Backoff::default();
        for _ in 0..5 {
            backoff.next_delay(Duration::ZERO);
        }
        assert_eq!(backoff.next_delay(STABLE_AFTER), Some(MIN_DELAY));
        assert_eq!(backoff.next_delay(Duration::ZERO), Some(MIN_DELAY * 2));
    }
}
