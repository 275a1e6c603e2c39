//! Timer for deadlines: one thread sleeps until the next one and calls back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

type Callback = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    due: BTreeMap<(Instant, u64), Callback>,
    next: u64,
    /// When the thread wakes up; `None` if it sleeps until it is notified.
    wakes: Option<Instant>,
    /// How often the thread has looked for due deadlines.
    #[cfg(test)]
    looks: usize,
    started: bool,
    closed: bool,
}

/// Calls back at deadlines. Arming and disarming a deadline costs a map entry instead of a timer.
#[derive(Clone, Default)]
pub(crate) struct Deadlines {
    inner: Arc<(Mutex<State>, Condvar)>,
}

/// An armed deadline; dropping it disarms it.
pub(crate) struct DeadlineGuard {
    key: (Instant, u64),
    deadlines: Deadlines,
}

impl Deadlines {
    /// Calls `then` once, `after` from now or a little later, unless the result is dropped before.
    pub(crate) fn arm(
        &self,
        after: Duration,
        then: impl FnOnce() + Send + 'static,
    ) -> DeadlineGuard {
        let now = Instant::now();
        // A deadline beyond the range of the clock is replaced by one in a century.
        let at = now
            .checked_add(after)
            .unwrap_or_else(|| now + Duration::from_secs(3_153_600_000));
        let mut state = self.inner.0.lock();
        state.next += 1;
        let key = (at, state.next);
        state.due.insert(key, Box::new(then));
        self.start(&mut state);
        // The thread finds a later deadline when it wakes for the earlier one.
        if state.wakes.is_none_or(|wakes| at < wakes) {
            self.inner.1.notify_one();
        }
        DeadlineGuard {
            key,
            deadlines: self.clone(),
        }
    }

    /// Ends the thread; armed deadlines never call back.
    pub(crate) fn close(&self) {
        self.inner.0.lock().closed = true;
        self.inner.1.notify_one();
    }

    fn start(&self, state: &mut State) {
        if !state.started {
            let clock = self.clone();
            let spawned = std::thread::Builder::new()
                .name("bailiwick-clock".into())
                .spawn(move || clock.run());
            state.started = spawned.is_ok();
        }
    }

    fn run(&self) {
        let changed = &self.inner.1;
        let mut state = self.inner.0.lock();
        while !state.closed {
            #[cfg(test)]
            {
                state.looks += 1;
            }
            let now = Instant::now();
            let first = state.due.first_key_value().map(|(key, _)| *key);
            state.wakes = first.map(|(at, _)| at);
            match first {
                None => changed.wait(&mut state),
                Some(key) if key.0 <= now => {
                    let then = state.due.remove(&key);
                    drop(state);
                    if let Some(then) = then {
                        then();
                    }
                    state = self.inner.0.lock();
                }
                Some((at, _)) => {
                    changed.wait_for(&mut state, at - now);
                }
            }
        }
    }
}

impl DeadlineGuard {
    /// Time until the deadline.
    pub(super) fn left(&self) -> Duration {
        self.key.0.saturating_duration_since(Instant::now())
    }
}

impl Drop for DeadlineGuard {
    fn drop(&mut self) {
        let callback = self.deadlines.inner.0.lock().due.remove(&self.key);
        // Outside the lock: it may hold the last handle of a worker, which has deadlines of its own.
        drop(callback);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn earlier_deadline_fires_first_and_dropped_deadline_never() {
        let deadlines = Deadlines::default();
        let (fired_tx, fired) = mpsc::channel();
        let arm = |millis, name: &'static str| {
            let fired_tx = fired_tx.clone();
            deadlines.arm(Duration::from_millis(millis), move || {
                fired_tx.send(name).unwrap()
            })
        };
        let _late = arm(400, "late");
        drop(arm(200, "dropped"));
        let _early = arm(20, "early");
        assert_eq!(fired.recv().unwrap(), "early");
        assert_eq!(fired.recv().unwrap(), "late");
    }

    #[test]
    fn deadline_thread_sleeps_until_the_next_deadline() {
        let deadlines = Deadlines::default();
        let (fired_tx, fired) = mpsc::channel();
        let arm = |millis| {
            let fired_tx = fired_tx.clone();
            deadlines.arm(Duration::from_millis(millis), move || {
                fired_tx.send(millis).unwrap()
            })
        };
        let _hour = arm(3_600_000);
        let _soon = arm(300);
        let later: Vec<_> = (0..100).map(|n| arm(1_000_000 + n)).collect();
        assert_eq!(fired.recv().unwrap(), 300);
        drop(later);
        let looks = deadlines.inner.0.lock().looks;
        // At its start, when an earlier deadline is armed, and when that is due; with room for spurious wakes.
        assert!(looks <= 8, "{looks}");
        deadlines.close();
    }
}
