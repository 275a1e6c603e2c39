//! A request that a server's words led to in, the answer out if it went where it may, in time and not too much.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest,
};

use super::super::address::{self, Reachable};

/// The longest answer, in bytes.
const LONGEST: usize = 256 << 10;
/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many requests one sign-in may take.
const MOST: u32 = 32;

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("the address is none that this server may lead to")]
    Elsewhere,
    #[error("the answer is too long")]
    Long,
    #[error("the sign-in takes too many requests")]
    Many,
}

/// What every request of a sign-in goes through.
pub(super) struct Fetch {
    client: reqwest::Client,
    reachable: Reachable,
    left: AtomicU32,
}

impl Fetch {
    pub(super) fn new(client: reqwest::Client, reachable: Reachable) -> Self {
        Self {
            client,
            reachable,
            left: AtomicU32::new(MOST),
        }
    }

    /// Another sign-in begins.
    pub(super) fn renew(&self) {
        self.left.store(MOST, Ordering::Relaxed);
    }

    async fn fetched(&self, request: OAuthHttpRequest) -> Result<Answer, OAuthHttpClientError> {
        let take = |left: u32| left.checked_sub(1);
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map_err(|_| FetchError::Many)?;
        let request = reqwest::Request::try_from(request.request)?;
        let url = address::read(request.url().as_str()).ok_or(FetchError::Elsewhere)?;
        if !self.reachable.admits_url(&url) {
            return Err(FetchError::Elsewhere.into());
        }
        let mut answer = self.client.execute(request).await?;
        let mut whole = axum::http::Response::new(Vec::new());
        *whole.status_mut() = answer.status();
        *whole.headers_mut() = answer.headers().clone();
        while let Some(more) = answer.chunk().await? {
            let body = whole.body_mut();
            if more.len() > LONGEST.saturating_sub(body.len()) {
                return Err(FetchError::Long.into());
            }
            body.extend_from_slice(&more);
        }
        Ok(whole)
    }
}

type Answer = axum::http::Response<Vec<u8>>;

impl OAuthHttpClient for Fetch {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move { tokio::time::timeout(PATIENCE, self.fetched(request)).await? })
    }
}
