//! A connection that begins in, what is its alone while it lasts out.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::{Mutex, watch};

use super::backend::Backend;
use super::client_roots::ClientRoots;
use super::log::LogLevel;
use super::subscriptions::Subscriptions;
use crate::rate::Bucket;

/// What one connection has of its own; that ends with it.
#[derive(Debug)]
pub(super) struct Session {
    /// What it is served with, once it had its handshake.
    pub(super) backend: ArcSwapOption<Backend>,
    pub(super) roots: ClientRoots,
    pub(super) rate_limiter: Arc<Bucket>,
    pub(super) subscriptions: Subscriptions,
    pub(super) log_level: LogLevel,
    /// Held while the person behind the client is asked, since they are asked one thing at a time.
    pub(super) asking: Mutex<()>,
    /// Names the client to servers' requests.
    pub(super) client_id: Arc<()>,
    /// Whether the client can still say something.
    input_open: watch::Sender<bool>,
    /// Each connection that came of this one listens until it has ended.
    children: watch::Sender<()>,
    /// Listens to the one that this came of.
    parent: Option<watch::Receiver<()>>,
}

impl Session {
    pub(super) fn new(rate_limiter: Arc<Bucket>) -> Self {
        Self {
            backend: ArcSwapOption::empty(),
            roots: ClientRoots::default(),
            rate_limiter,
            subscriptions: Subscriptions::default(),
            log_level: LogLevel::default(),
            asking: Mutex::default(),
            client_id: Arc::default(),
            input_open: watch::Sender::new(true),
            children: watch::Sender::default(),
            parent: None,
        }
    }

    pub(super) fn input_open(&self) -> watch::Sender<bool> {
        self.input_open.clone()
    }

    /// Returns once the client can answer nothing any more.
    pub(super) async fn input_closed(&self) {
        // This session holds a sender, so the channel does not close before it is said.
        let _ = self
            .input_open
            .subscribe()
            .wait_for(|input_open| !input_open)
            .await;
    }

    /// One that this one can wait for.
    pub(super) fn child(&self, rate_limiter: Arc<Bucket>) -> Self {
        let mut session = Self::new(rate_limiter);
        session.parent = Some(self.children.subscribe());
        session
    }

    /// Returns once every connection that came of this one has ended.
    #[cfg(feature = "http")]
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
        // Without an executor there are no workers left to end.
        if let Ok(tokio) = tokio::runtime::Handle::try_current() {
            let parent = self.parent.take();
            tokio.spawn(async move {
                backend.end().await;
                drop(parent);
            });
        }
    }
}
