//! How fast calls may come in, whether a call comes too soon out.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many tool calls may be made in a span of time; that many may also come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub calls: u32,
    /// In which time.
    pub per: Duration,
}

impl Default for Rate {
    /// 1,000 a second.
    fn default() -> Self {
        Self {
            calls: 1000,
            per: Duration::from_secs(1),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.per.as_secs() {
            1 => write!(f, "{}/second", self.calls),
            60 => write!(f, "{}/minute", self.calls),
            3600 => write!(f, "{}/hour", self.calls),
            _ => write!(f, "{}/{:?}", self.calls, self.per),
        }
    }
}

/// Tokens that calls take and time gives back.
#[derive(Debug)]
pub(super) struct Bucket {
    rate: Rate,
    state: Mutex<(f64, Instant)>,
}

impl Bucket {
    pub(super) fn new(rate: &Rate) -> Self {
        Self {
            rate: *rate,
            state: Mutex::new((f64::from(rate.calls), Instant::now())),
        }
    }

    /// Takes a token, or says how long until there is one.
    pub(super) fn take(&self) -> Result<(), Duration> {
        self.take_at(Instant::now())
    }

    fn take_at(&self, now: Instant) -> Result<(), Duration> {
        let each = self.rate.per.as_secs_f64() / f64::from(self.rate.calls.max(1));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (tokens, last) = &mut *state;
        let since = now.saturating_duration_since(*last).as_secs_f64();
        *tokens = (*tokens + since / each).min(f64::from(self.rate.calls));
        *last = now;
        if *tokens >= 1.0 {
            *tokens -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - *tokens) * each))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_served_up_to_the_rate_and_time_gives_it_back() {
        let rate = Rate {
            calls: 10,
            per: Duration::from_secs(1),
        };
        let bucket = Bucket::new(&rate);
        let start = Instant::now();
        assert!((0..10).all(|_| bucket.take_at(start).is_ok()));
        let wait = bucket.take_at(start).unwrap_err();
        assert!(wait <= Duration::from_millis(101));
        assert!(bucket.take_at(start + Duration::from_millis(150)).is_ok());
        assert!(bucket.take_at(start + Duration::from_millis(150)).is_err());
        assert_eq!(rate.to_string(), "10/second");
    }
}
