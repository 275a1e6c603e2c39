//! Delays requests of an HTTP session until its server-to-client stream is open.
//!
//! A server sends its requests on a stream that the client opens per session. Requests sent before the stream is open
//! may be dropped, as by servers of the reference SDK, and the call that depends on them would never end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::rate::{Rate, RateLimiter};

/// How long requests wait for the stream.
const STREAM_TIMEOUT: Duration = Duration::from_secs(2);
/// Limits how often streams are opened, for servers that close them at once.
const STREAM_RATE: Rate = Rate {
    calls: 16,
    per: Duration::from_secs(8),
};

/// The server-to-client streams of one connection.
#[derive(Clone, Debug)]
pub(super) struct SessionStreams {
    /// The session whose requests no longer wait: its stream is open or was rejected, or the wait timed out.
    ready_session: watch::Sender<Option<Arc<str>>>,
    limiter: Arc<RateLimiter>,
}

impl Default for SessionStreams {
    fn default() -> Self {
        Self {
            ready_session: watch::Sender::default(),
            limiter: Arc::new(RateLimiter::new(&STREAM_RATE)),
        }
    }
}

impl SessionStreams {
    /// Waits until the stream of a session is open or rejected, or for the timeout.
    pub(super) async fn wait_until_open(&self, session: &Arc<str>) {
        let mut ready_session = self.ready_session.subscribe();
        let it = ready_session.wait_for(|ready_session| ready_session.as_ref() == Some(session));
        if timeout(STREAM_TIMEOUT, it).await.is_err() {
            self.ready_session.send_replace(Some(Arc::clone(session)));
        }
    }

    /// Runs `opening`, which opens a stream, at a limited rate.
    pub(super) async fn open<T>(
        &self,
        session: Option<Arc<str>>,
        opening: impl Future<Output = T>,
    ) -> T {
        while let Err(wait) = self.limiter.take() {
            sleep(Duration::from_millis(wait)).await;
        }
        let opened = opening.await;
        if session.is_some() {
            self.ready_session.send_replace(session);
        }
        opened
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reopening_streams_is_rate_limited() {
        let streams = SessionStreams::default();
        let open = || streams.open(Some("one".into()), ready(()));
        for _ in 0..STREAM_RATE.calls {
            open().now_or_never().unwrap();
        }
        // Requests of the session are not delayed.
        let session = "one".into();
        streams.wait_until_open(&session).now_or_never().unwrap();
        let mut more = 0;
        let opening = async {
            loop {
                open().await;
                more += 1;
            }
        };
        assert!(timeout(STREAM_RATE.per, opening).await.is_err());
        assert!((1..=STREAM_RATE.calls).contains(&more), "{more}");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_a_bounded_time_for_each_session_stream() {
        let streams = SessionStreams::default();
        for name in ["one", "two", "one", "two"] {
            let session: Arc<str> = name.into();
            let opening = streams.open(Some(Arc::clone(&session)), pending::<()>());
            assert!(opening.now_or_never().is_none());
            let request = || streams.wait_until_open(&session);
            let both = async { tokio::join!(request(), request()) };
            timeout(STREAM_TIMEOUT + Duration::from_millis(1), both)
                .await
                .unwrap();
            request().now_or_never().unwrap();
        }
    }
}
