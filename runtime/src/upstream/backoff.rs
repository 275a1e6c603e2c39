//! How often a server failed in, how long to wait before it is tried again out; or that it is given up.

use std::time::Duration;

/// The shortest and the longest wait.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);
/// How often in a row a server may fail.
const MOST: u32 = 10;
/// A server that lasted this long has not failed.
const STEADY: Duration = Duration::from_secs(60);

/// Counts failures in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Takes up that a server ended that was there for `lasted`; how long to wait, or none if it is given up.
    pub(super) fn ended(&mut self, lasted: Duration) -> Option<Duration> {
        if lasted >= STEADY {
            self.failures = 0;
        }
        self.failures += 1;
        let doubled = FIRST.saturating_mul(1 << (self.failures - 1).min(16));
        (self.failures <= MOST).then(|| doubled.min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_end() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = std::iter::from_fn(|| backoff.ended(Duration::ZERO)).collect();
        assert_eq!(waits.len(), MOST as usize);
        assert_eq!(waits.first(), Some(&FIRST));
        assert_eq!(waits.last(), Some(&LONGEST));
        assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn a_server_that_lasted_begins_anew() {
        let mut backoff = Backoff::default();
        for _ in 0..5 {
            backoff.ended(Duration::ZERO);
        }
        assert_eq!(backoff.ended(STEADY), Some(FIRST));
        assert_eq!(backoff.ended(Duration::ZERO), Some(FIRST * 2));
    }
}
