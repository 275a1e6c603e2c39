//! Revocation gates: once a gate is closed, no effect begins.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::error::{CallError, Code};

/// How long a revocation waits for effects in progress.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

const CLOSED: u64 = 1 << 63;

/// Why a gate is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The worker or an ancestor was revoked.
    WorkerRevoked,
    /// The lifetime of the worker or of an ancestor has passed.
    WorkerExpired,
    /// The runtime has ended.
    RuntimeEnded,
    /// The grant was revoked or narrowed.
    GrantRevoked,
}

/// Open until revoked. Each effect holds a pass, and code that closes the gate can wait until all passes are dropped.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// The top bit is set once the gate is closed; the other bits count passes.
    state: AtomicU64,
    /// Set before the gate is closed.
    reason: OnceLock<CloseReason>,
    changed: Notify,
}

/// Held while an effect is in progress.
#[derive(Debug)]
pub(crate) struct Pass(Arc<Gate>);

impl Gate {
    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::SeqCst) & CLOSED != 0
    }

    /// Returns a pass, or `None` once the gate is closed.
    pub(crate) fn pass(self: &Arc<Self>) -> Option<Pass> {
        let before = self.state.fetch_add(1, Ordering::SeqCst);
        let pass = Pass(Arc::clone(self));
        (before & CLOSED == 0).then_some(pass)
    }

    /// The error for a call that the closed gate stops.
    pub(crate) fn error(&self) -> CallError {
        let (cause, message) = match self.reason.get() {
            Some(CloseReason::WorkerRevoked) => {
                ("worker_revoked", "the worker, or one above it, was revoked")
            }
            Some(CloseReason::WorkerExpired) => (
                "worker_expired",
                "the lifetime of the worker, or of one above it, has passed (`ttl_ms`)",
            ),
            Some(CloseReason::RuntimeEnded) => ("runtime_ended", "the runtime has ended"),
            Some(CloseReason::GrantRevoked) => (
                "grant_revoked",
                "a grant that the call used was revoked or narrowed",
            ),
            // It is open.
            None => return CallError::new(Code::Cancelled, "the call was cancelled"),
        };
        CallError::new(Code::Cancelled, message).with("cause", cause)
    }

    /// Closes the gate, so that no further pass is handed out. Returns whether it was open. The first reason is kept.
    pub(crate) fn close(&self, why: CloseReason) -> bool {
        let _ = self.reason.set(why);
        let open = self.state.fetch_or(CLOSED, Ordering::SeqCst) & CLOSED == 0;
        self.changed.notify_waiters();
        open
    }

    /// Waits until the gate is closed.
    pub(crate) async fn closed(&self) {
        self.until(|state| state & CLOSED != 0).await;
    }

    /// Waits until all passes are dropped.
    pub(crate) async fn idle(&self) {
        self.until(|state| state & !CLOSED == 0).await;
    }

    async fn until(&self, reached: impl Fn(u64) -> bool) {
        loop {
            let changed = self.changed.notified();
            if reached(self.state.load(Ordering::SeqCst)) {
                return;
            }
            changed.await;
        }
    }
}

/// Returns a pass of each of `gates`; fails if one is closed. A revocation waits until the passes are dropped.
pub(crate) fn passes<'g>(
    gates: impl IntoIterator<Item = &'g Arc<Gate>>,
) -> Result<Vec<Pass>, CallError> {
    let passes = gates.into_iter();
    let passes = passes.map(|gate| gate.pass().ok_or_else(|| gate.error()));
    passes.collect()
}

/// Waits at most `grace` until all passes of all `gates` are dropped; returns how many gates still have one.
pub(crate) async fn settled(gates: &[Arc<Gate>], grace: Duration) -> usize {
    let end = Instant::now() + grace;
    let mut unfinished = 0;
    for gate in gates {
        if timeout_at(end, gate.idle()).await.is_err() {
            unfinished += 1;
        }
    }
    unfinished
}

impl Drop for Pass {
    fn drop(&mut self) {
        let before = self.0.state.fetch_sub(1, Ordering::SeqCst);
        if before == CLOSED | 1 {
            self.0.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Waker};

    #[tokio::test]
    async fn closed_gate_waits_for_passes_and_issues_none() {
        let gate = Arc::new(Gate::default());
        let pass = gate.pass().unwrap();
        assert!(gate.close(CloseReason::WorkerRevoked));
        assert!(gate.pass().is_none());
        let mut idle = pin!(gate.idle());
        let mut context = Context::from_waker(Waker::noop());
        assert!(idle.as_mut().poll(&mut context).is_pending());
        drop(pass);
        idle.await;
        assert!(!gate.close(CloseReason::RuntimeEnded));
        assert_eq!(gate.error().details()["cause"], "worker_revoked");
    }

    #[tokio::test]
    async fn hanging_pass_is_counted_after_the_grace_period() {
        let gates = [Arc::<Gate>::default(), Arc::default(), Arc::default()];
        let hangs = gates[1].pass().unwrap();
        assert_eq!(settled(&gates, Duration::ZERO).await, 1);
        drop(hangs);
        assert_eq!(settled(&gates, Duration::ZERO).await, 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_effect_begins_after_close_and_idle() {
        for _ in 0..2_000 {
            let gate = Arc::new(Gate::default());
            let closed = Arc::new(AtomicBool::new(false));
            let effect = std::thread::spawn({
                let (gate, closed) = (Arc::clone(&gate), Arc::clone(&closed));
                move || {
                    gate.pass()
                        .is_none_or(|_pass| !closed.load(Ordering::SeqCst))
                }
            });
            gate.close(CloseReason::WorkerRevoked);
            gate.idle().await;
            closed.store(true, Ordering::SeqCst);
            assert!(effect.join().unwrap());
        }
    }
}
