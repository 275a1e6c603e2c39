//! State of one connection.

use std::sync::atomic::AtomicU8;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use rmcp::service::{Peer, RoleServer};
use tokio::sync::{Mutex, watch};

use super::backend::Backend;
use super::client_roots::ClientRoots;
use super::subscriptions::Subscriptions;
use crate::rate::RateLimiter;

/// State of one connection.
#[derive(Debug)]
pub(super) struct Session {
    /// The backend, after the handshake.
    pub(super) backend: ArcSwapOption<Backend>,
    pub(super) roots: ClientRoots,
    /// The client of a line transport, after the handshake.
    pub(super) peer: OnceLock<Peer<RoleServer>>,
    pub(super) rate_limiter: Arc<RateLimiter>,
    pub(super) subscriptions: Subscriptions,
    /// Minimum severity of log notifications for a stateful client; 0 until the client sets it.
    pub(super) log_level: AtomicU8,
    /// Held while the user is asked, so that questions are asked one at a time.
    pub(super) asking: Mutex<()>,
    /// Identifies the client in requests of servers.
    pub(super) client_id: Arc<()>,
    /// Whether the client may send more input.
    pub(super) input_open: watch::Sender<bool>,
    /// Child sessions subscribe until they have ended.
    children: watch::Sender<()>,
    /// Subscription to the parent session.
    parent: Option<watch::Receiver<()>>,
}

impl Session {
    pub(super) fn new(rate_limiter: Arc<RateLimiter>) -> Self {
        Self {
            backend: ArcSwapOption::empty(),
            roots: ClientRoots::default(),
            peer: OnceLock::new(),
            rate_limiter,
            subscriptions: Subscriptions::default(),
            log_level: AtomicU8::default(),
            asking: Mutex::default(),
            client_id: Arc::default(),
            input_open: watch::Sender::new(true),
            children: watch::Sender::default(),
            parent: None,
        }
    }

    /// Completes when the client can no longer answer.
    pub(super) async fn input_closed(&self) {
        // The channel cannot close, since this session holds a sender.
        let mut input_open = self.input_open.subscribe();
        let _ = input_open.wait_for(|input_open| !input_open).await;
    }

    /// A child session, which this session can wait for.
    pub(super) fn child(&self, rate_limiter: Arc<RateLimiter>) -> Self {
        let mut session = Self::new(rate_limiter);
        session.parent = Some(self.children.subscribe());
        session
    }

    /// Completes when all child sessions and the backends that they own have ended.
    pub(super) async fn wait_for_children(&self) {
        self.children.closed().await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let backend = self.backend.swap(None);
        let Some(backend) = backend.filter(|backend| backend.is_owned()) else {
            return;
        };
        // Without a tokio runtime there are no workers to end.
        if let Ok(tokio) = tokio::runtime::Handle::try_current() {
            let parent = self.parent.take();
            tokio.spawn(async move {
                backend.end().await;
                drop(parent);
            });
        }
    }
}
