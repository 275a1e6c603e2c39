//! The texts that a guest sends in, one at a time to its view out; and the other end, for whatever carries them.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::ViewState;
use super::actor::ViewMsg;
use super::instance::Instance;

/// How many messages wait on each way.
pub(super) const WAITING: usize = 256;

/// A guest's end: what carries messages between the page and the view holds it, and the view lives as long as it does.
/// Each text is one JSON-RPC message, whatever carries it.
#[derive(Debug)]
pub struct GuestLink {
    pub(super) ear: GuestEar,
    pub(super) said: mpsc::Receiver<String>,
}

/// The way from a guest to its view; there may be several.
#[derive(Clone, Debug)]
pub struct GuestEar(pub(super) mpsc::Sender<String>);

impl GuestEar {
    /// Passes on what the guest said, and waits while too much waits already; false once the view is closed.
    pub async fn hear(&self, text: impl Into<String>) -> bool {
        self.0.send(text.into()).await.is_ok()
    }
}

impl GuestLink {
    /// The way to the view.
    #[must_use]
    pub fn ear(&self) -> GuestEar {
        self.ear.clone()
    }

    /// The next message for the guest; none once the view is closed.
    pub async fn next(&mut self) -> Option<String> {
        self.said.recv().await
    }
}

/// Passes on what the guest says until the guest, the worker or the view ends, and sees to it that the view does.
/// `out` is the way to the guest, which is closed once its link is gone, whoever still has an ear.
pub(super) async fn keep(
    instance: Arc<Instance>,
    mut heard: mpsc::Receiver<String>,
    out: mpsc::Sender<String>,
) {
    let mut state = instance.state.subscribe();
    loop {
        let text = tokio::select! {
            biased;
            () = instance.worker.revoked() => break,
            // Its sender is in the instance.
            _ = state.wait_for(|state| *state == ViewState::Closed) => break,
            () = out.closed() => break,
            text = heard.recv() => text,
        };
        let Some(text) = text else { break };
        if !instance.heard(text).await {
            break;
        }
    }
    drop(out);
    // What is before it in the mailbox is of this view, too, so the view ends by its turn; unless nobody is there to end it.
    if instance.post(ViewMsg::Close) {
        let closed = state.wait_for(|state| *state == ViewState::Closed);
        let _ = timeout(instance.limits.parting, closed).await;
    }
    instance.end();
}
