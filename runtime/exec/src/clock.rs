//! The time of file systems, which take it from a clock that advances every few milliseconds.

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// How long to wait for the clock.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// The time since 1970. No file system has given a later time so far.
pub(crate) fn now() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default()
}

/// Whether what changes now gets a later time than `time`, or the clock was set back since.
pub(crate) fn is_later(time: Duration) -> bool {
    let coarse = clock_gettime(ClockId::RealtimeCoarse);
    let seconds = u64::try_from(coarse.tv_sec).unwrap_or(0);
    let coarse = Duration::new(seconds, u32::try_from(coarse.tv_nsec).unwrap_or(0));
    coarse > time || now() < time
}
