//! Token-bucket rate limiter.

use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Rate limit: a number of events per period, which may also occur in a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Number of events.
    pub calls: u32,
    /// Period.
    pub per: Duration,
}

impl Default for Rate {
    /// 1,000 per second.
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

/// Token bucket.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    rate: Rate,
    state: Mutex<(f64, Instant)>,
}

impl RateLimiter {
    pub(crate) fn new(rate: &Rate) -> Self {
        Self {
            rate: *rate,
            state: Mutex::new((
                f64::from(rate.calls),
                tokio::time::Instant::now().into_std(),
            )),
        }
    }

    /// Takes a token, or returns how many milliseconds to wait for one.
    pub(crate) fn take(&self) -> Result<(), u64> {
        self.take_at(tokio::time::Instant::now().into_std())
    }

    fn take_at(&self, now: Instant) -> Result<(), u64> {
        let each = self.rate.per.as_secs_f64() / f64::from(self.rate.calls.max(1));
        let mut state = self.state.lock();
        let (tokens, last) = &mut *state;
        let since = now.saturating_duration_since(*last).as_secs_f64();
        *tokens = (*tokens + since / each).min(f64::from(self.rate.calls));
        // Another thread may already have stored a later time.
        *last = now.max(*last);
        if *tokens >= 1.0 {
            *tokens -= 1.0;
            return Ok(());
        }
        let wait = Duration::try_from_secs_f64((1.0 - *tokens) * each).unwrap_or(Duration::MAX);
        // Rounded up to whole milliseconds.
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        Err(millis.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(crate::cases::cases(1000))]

        /// For every order of calls and every interval, the number of served calls is at most the burst plus the refill.
        /// A call that waits for the returned time is served.
        #[test]
        fn served_calls_never_exceed_the_rate(
            calls in 1..5_u32,
            per in 1..1000_u64,
            times in prop::collection::vec(0..5000_u64, 1..60),
        ) {
            let rate = Rate { calls, per: Duration::from_millis(per) };
            let limiter = RateLimiter::new(&rate);
            let start = Instant::now();
            let at = |millis: u64| start + Duration::from_millis(millis);
            let (mut served, mut latest) = (Vec::new(), 0);
            for time in times {
                // A call with an earlier time than the call before it counts at that later time.
                latest = time.max(latest);
                if limiter.take_at(at(time)).is_ok() {
                    served.push(latest);
                }
            }
            for (first, from) in served.iter().enumerate() {
                for (last, to) in served.iter().enumerate().skip(first) {
                    let share = u64::from(calls) + (to - from) * u64::from(calls) / per;
                    let count = u64::try_from(last - first).unwrap() + 1;
                    prop_assert!(count <= share, "{} from {} to {}", count, from, to);
                }
            }
            if let Err(wait) = limiter.take_at(at(latest)) {
                prop_assert!(limiter.take_at(at(latest + wait.saturating_sub(2))).is_err());
                prop_assert!(limiter.take_at(at(latest + wait)).is_ok(), "after {} ms", wait);
            }
        }
    }

    #[test]
    fn burst_is_limited_and_refilled_over_time() {
        let rate = Rate {
            calls: 10,
            per: Duration::from_secs(1),
        };
        let limiter = RateLimiter::new(&rate);
        let start = Instant::now();
        assert!((0..10).all(|_| limiter.take_at(start).is_ok()));
        let wait = limiter.take_at(start).unwrap_err();
        assert!(wait <= 101, "{wait}");
        assert!(limiter.take_at(start + Duration::from_millis(150)).is_ok());
        assert!(limiter.take_at(start + Duration::from_millis(150)).is_err());
        assert_eq!(rate.to_string(), "10/second");
    }

    #[test]
    fn longest_period_returns_the_maximum_wait() {
        let limiter = RateLimiter::new(&Rate {
            calls: 1,
            per: Duration::MAX,
        });
        let start = Instant::now();
        assert_eq!(limiter.take_at(start), Ok(()));
        assert_eq!(limiter.take_at(start), Err(u64::MAX));
    }
}
