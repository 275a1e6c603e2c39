//! A connection that begins in, what is its alone while it lasts out.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::{Mutex, watch};

use super::client_roots::ClientRoots;
use super::door::Served;
use super::log::Level;
use super::watch::Watches;
use crate::rate::RateLimiter;

/// What one connection has of its own; that ends with it.
#[derive(Debug)]
pub(super) struct Session {
    /// What it is served with, once it had its handshake.
    pub(super) served: ArcSwapOption<Served>,
    pub(super) roots: ClientRoots,
    pub(super) bucket: Arc<RateLimiter>,
    pub(super) watches: Watches,
    pub(super) level: Level,
    /// Held while the person behind the client is asked, since they are asked one thing at a time.
    pub(super) asking: Mutex<()>,
    /// Names the client to servers' requests.
    pub(super) client: Arc<()>,
    /// Whether the client can still say something.
    speaks: watch::Sender<bool>,
    /// Each connection that came of this one listens until it has ended.
    heirs: watch::Sender<()>,
    /// Listens to the one that this came of.
    heir: Option<watch::Receiver<()>>,
}

impl Session {
    pub(super) fn new(bucket: Arc<RateLimiter>) -> Self {
        Self {
            served: ArcSwapOption::empty(),
            roots: ClientRoots::default(),
            bucket,
            watches: Watches::default(),
            level: Level::default(),
            asking: Mutex::default(),
            client: Arc::default(),
            speaks: watch::Sender::new(true),
            heirs: watch::Sender::default(),
            heir: None,
        }
    }

    pub(super) fn speaks(&self) -> watch::Sender<bool> {
        self.speaks.clone()
    }

    /// Returns once the client can answer nothing any more.
    pub(super) async fn silent(&self) {
        // This session holds a sender, so the channel does not close before it is said.
        let _ = self.speaks.subscribe().wait_for(|speaks| !speaks).await;
    }

    /// One that this one can wait for.
    pub(super) fn heir(&self, bucket: Arc<RateLimiter>) -> Self {
        let mut session = Self::new(bucket);
        session.heir = Some(self.heirs.subscribe());
        session
    }

    /// Returns once every connection that came of this one has ended.
    #[cfg(feature = "http")]
    pub(super) async fn heirless(&self) {
        self.heirs.closed().await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let served = self.served.swap(None);
        let Some(served) = served.filter(|served| served.ends_with_its_connection()) else {
            return;
        };
        // Without an executor there are no workers left to end.
        if let Ok(tokio) = tokio::runtime::Handle::try_current() {
            let heir = self.heir.take();
            tokio.spawn(async move {
                served.end().await;
                drop(heir);
            });
        }
    }
}
