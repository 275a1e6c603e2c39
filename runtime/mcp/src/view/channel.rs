//! Channel between a view and the transport to its page.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use super::ViewState;
use super::actor::ViewMsg;
use super::instance::Instance;

/// The largest number of queued messages in each direction.
pub(super) const MAX_QUEUED: usize = 256;

/// The number of maximum-size messages that fit the byte budget: incoming, where senders wait, and outgoing, where they
/// do not.
pub(super) const INCOMING_MESSAGES: usize = 2;
pub(super) const OUTGOING_MESSAGES: usize = 8;

/// A message with its reserved bytes.
pub(super) type QueuedMessage = (String, OwnedSemaphorePermit);

/// Limits the bytes of queued messages.
#[derive(Clone, Debug)]
pub(super) struct ByteBudget {
    permits: Arc<Semaphore>,
    capacity: u32,
}

impl ByteBudget {
    pub(super) fn of(messages: usize, max_message: usize) -> Self {
        let capacity = u32::try_from(max_message.saturating_mul(messages)).unwrap_or(u32::MAX);
        let permits = usize::try_from(capacity).unwrap_or(usize::MAX);
        Self {
            permits: Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS))),
            capacity,
        }
    }

    /// The permits for a message; `None` if it exceeds the capacity.
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

/// The page's end of a view. The transport to the page owns it, and the view lives as long as it does. Each text is one
/// JSON-RPC message.
#[derive(Debug)]
pub struct ViewChannel {
    pub(super) sender: ViewSender,
    pub(super) rx: mpsc::Receiver<QueuedMessage>,
}

/// Sends messages of the page to its view. Clones share the channel.
#[derive(Clone, Debug)]
pub struct ViewSender {
    pub(super) tx: mpsc::Sender<QueuedMessage>,
    pub(super) budget: ByteBudget,
}

impl ViewSender {
    /// Sends a message of the page, and waits while the queue is full, by number or by bytes. Returns false if the view
    /// is closed, or if the message is longer than two maximum-size messages. A message above the maximum size is
    /// answered with an error.
    pub async fn send(&self, text: impl Into<String>) -> bool {
        let text = text.into();
        match self.budget.reserve(&text).await {
            Some(permit) => self.tx.send((text, permit)).await.is_ok(),
            None => false,
        }
    }
}

impl ViewChannel {
    /// Returns a sender for messages of the page.
    #[must_use]
    pub fn sender(&self) -> ViewSender {
        self.sender.clone()
    }

    /// Receives the next message for the page; `None` once the view is closed.
    pub async fn next(&mut self) -> Option<String> {
        let (text, _) = self.rx.recv().await?;
        Some(text)
    }
}

/// Forwards messages of the page until the channel, the worker or the view ends, and then closes the view. `out` is the
/// sending half of the channel, which is closed once the [`ViewChannel`] is dropped.
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
            // The sender is in the instance.
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
    // Messages before this one in the mailbox are handled first, unless the actor is gone.
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
    fn queued_bytes_are_bounded() {
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
