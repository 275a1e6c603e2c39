//! The time of file systems, which take it from a clock that advances every few milliseconds.

use std::time::{Duration, SystemTime};

use rustix::fs::Stat;
use rustix::time::{ClockId, clock_gettime};

/// How long to wait for the clock.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// The time since 1970. No file system has given a later time so far.
pub(crate) fn now() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default()
}

/// A time such that everything that changes from now on has this time of change or a later one.
pub(crate) fn coarse() -> Duration {
    let coarse = clock_gettime(ClockId::RealtimeCoarse);
    let seconds = u64::try_from(coarse.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(coarse.tv_nsec).unwrap_or(0))
}

/// Whether what changes now gets a later time than `time`, or the clock was set back since.
pub(crate) fn is_later(time: Duration) -> bool {
    coarse() > time || now() < time
}

/// Waits until everything that changes has a later time of change than now. Returns this time. Blocks.
pub(crate) fn wait_for_later() -> Duration {
    let now = now();
    while !is_later(now) {
        std::thread::sleep(TICK);
    }
    now
}

/// When the content or the attributes of an entry changed, since 1970.
#[expect(
    clippy::useless_conversion,
    reason = "the types differ between architectures"
)]
pub(crate) fn changed_at(stat: &Stat) -> Duration {
    let nanos = u32::try_from(u64::from(stat.st_ctime_nsec)).unwrap_or(0);
    u64::try_from(stat.st_ctime).map_or(Duration::ZERO, |seconds| Duration::new(seconds, nanos))
}
