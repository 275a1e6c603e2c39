//! The texts that a guest sends in, one at a time to its view out; and the other end, for whatever carries them.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use super::ViewState;
use super::actor::ViewMsg;
use super::instance::Instance;

/// How many messages wait on each way.
pub(super) const MAX_QUEUED: usize = 256;

/// How many of the longest messages wait, in bytes: of what the guest says, and of what it is told, which is not held back.
pub(super) const INCOMING_MESSAGES: usize = 2;
pub(super) const OUTGOING_MESSAGES: usize = 8;

/// A text, and the room that it takes as long as it waits.
pub(super) type QueuedMessage = (String, OwnedSemaphorePermit);

/// How many bytes wait on one way.
#[derive(Clone, Debug)]
pub(super) struct ByteBudget {
    permits: Arc<Semaphore>,
    capacity: u32,
}

impl ByteBudget {
    pub(super) fn of(messages: usize, longest: usize) -> Self {
        let capacity = u32::try_from(longest.saturating_mul(messages)).unwrap_or(u32::MAX);
        let most = usize::try_from(capacity).unwrap_or(usize::MAX);
        Self {
            permits: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            capacity,
        }
    }

    /// What a text takes; none if there is never room for it.
    fn permits_for(&self, text: &str) -> Option<u32> {
        let bytes = u32::try_from(text.len()).ok()?;
        (bytes <= self.capacity).then_some(bytes)
    }

    async fn reserve(&self, text: &str) -> Option<OwnedSemaphorePermit> {
        let permits = Arc::clone(&self.permits);
        permits
            .acquire_many_owned(self.permits_for(text)?)
            .await
            .ok()
    }

    pub(super) fn try_reserve(&self, text: &str) -> Option<OwnedSemaphorePermit> {
        let permits = Arc::clone(&self.permits);
        permits.try_acquire_many_owned(self.permits_for(text)?).ok()
    }
}

/// A guest's end: what carries messages between the page and the view holds it, and the view lives as long as it does.
/// Each text is one JSON-RPC message, whatever carries it.
#[derive(Debug)]
pub struct ViewChannel {
    pub(super) sender: ViewSender,
    pub(super) rx: mpsc::Receiver<QueuedMessage>,
}

/// The way from a guest to its view; there may be several.
#[derive(Clone, Debug)]
pub struct ViewSender {
    pub(super) tx: mpsc::Sender<QueuedMessage>,
    pub(super) budget: ByteBudget,
}

impl ViewSender {
    /// Passes on what the guest said, and waits while too much waits already, by number or by bytes. False once the view is
    /// closed, and of a text that is longer than two messages may be together: that is heard by nobody. To one that is
    /// longer than one may be the view answers that it is.
    pub async fn send(&self, text: impl Into<String>) -> bool {
        let text = text.into();
        match self.budget.reserve(&text).await {
            Some(permit) => self.tx.send((text, permit)).await.is_ok(),
            None => false,
        }
    }
}

impl ViewChannel {
    /// The way to the view.
    #[must_use]
    pub fn sender(&self) -> ViewSender {
        self.sender.clone()
    }

    /// The next message for the guest; none once the view is closed.
    pub async fn next(&mut self) -> Option<String> {
        let (text, _) = self.rx.recv().await?;
        Some(text)
    }
}

/// Passes on what the guest says until the guest, the worker or the view ends, and sees to it that the view does.
/// `out` is the way to the guest, which is closed once its link is gone, whoever still has an ear.
pub(super) async fn run_channel(
    instance: Arc<Instance>,
    mut incoming: mpsc::Receiver<QueuedMessage>,
    out: mpsc::Sender<QueuedMessage>,
) {
    let mut state = instance.state.subscribe();
    loop {
        let text = tokio::select! {
            biased;
            () = instance.worker.revoked() => break,
            // Its sender is in the instance.
            _ = state.wait_for(|state| *state == ViewState::Closed) => break,
            () = out.closed() => break,
            text = incoming.recv() => text,
        };
        let Some((text, _permit)) = text else { break };
        if !instance.deliver(text).await {
            break;
        }
    }
    drop(out);
    // What is before it in the mailbox is of this view, too, so the view ends by its turn; unless nobody is there to end it.
    if instance.post(ViewMsg::Close) {
        let closed = state.wait_for(|state| *state == ViewState::Closed);
        let _ = timeout(instance.limits.teardown, closed).await;
    }
    instance.end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_bytes_wait_and_no_more() {
        let budget = ByteBudget::of(2, 10);
        assert_eq!(budget.permits_for(&"x".repeat(20)), Some(20));
        assert_eq!(budget.permits_for(&"x".repeat(21)), None);
        let first = budget.try_reserve(&"x".repeat(15));
        assert!(first.is_some() && budget.try_reserve(&"x".repeat(6)).is_none());
        assert!(budget.try_reserve(&"x".repeat(5)).is_some());
        drop(first);
        assert!(budget.try_reserve(&"x".repeat(20)).is_some());
    }
}
