//! CPU time and memory of another process, from `/proc`.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// The CPU time of each thread of a process.
#[derive(Debug, Default)]
pub(crate) struct CpuTimes(HashMap<String, u64>);

impl CpuTimes {
    pub(crate) fn of(pid: u32) -> Self {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
        let tasks = tasks.flatten().flatten();
        let times = tasks.filter_map(|task| {
            let times = fs::read_to_string(task.path().join("schedstat")).ok()?;
            let running = times.split(' ').next()?.parse().ok()?;
            Some((task.file_name().into_string().ok()?, running))
        });
        Self(times.collect())
    }

    /// The time that has been spent since `earlier`. Threads that have ended in between do not count.
    pub(crate) fn since(&self, earlier: &Self) -> Duration {
        let spent = self.0.iter().map(|(thread, nanos)| {
            nanos.saturating_sub(earlier.0.get(thread).copied().unwrap_or_default())
        });
        Duration::from_nanos(spent.sum())
    }
}

/// Resident memory in MiB: now, and the maximum so far.
pub(crate) fn resident(pid: u32) -> (f64, f64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
        kib.unwrap_or(f64::NAN) / 1024.0
    };
    (field("VmRSS:"), field("VmHWM:"))
}
