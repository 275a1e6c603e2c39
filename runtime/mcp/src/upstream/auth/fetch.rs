//! HTTP client for authorization servers, with limits on addresses, time and size.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest,
};

use super::super::address::{self, AddressPolicy};

/// The longest response, in bytes.
const MAX_BODY_BYTES: usize = 256 << 10;
/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest number of requests per sign-in.
const MAX_REQUESTS: u32 = 32;

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("the server may not use this address")]
    AddressNotAllowed,
    #[error("the answer is too long")]
    TooLarge,
    #[error("the sign-in takes too many requests")]
    TooManyRequests,
}

/// Executes all HTTP requests of a sign-in.
pub(super) struct BoundedHttpClient {
    client: reqwest::Client,
    policy: AddressPolicy,
    remaining: AtomicU32,
}

impl BoundedHttpClient {
    pub(super) fn new(client: reqwest::Client, policy: AddressPolicy) -> Self {
        Self {
            client,
            policy,
            remaining: AtomicU32::new(MAX_REQUESTS),
        }
    }

    /// Resets the request budget for another sign-in.
    pub(super) fn reset_budget(&self) {
        self.remaining.store(MAX_REQUESTS, Ordering::Relaxed);
    }

    async fn fetch(&self, request: OAuthHttpRequest) -> Result<Response, OAuthHttpClientError> {
        let take = |remaining: u32| remaining.checked_sub(1);
        let request_budget =
            self.remaining
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        request_budget.map_err(|_| FetchError::TooManyRequests)?;
        let request = reqwest::Request::try_from(request.request)?;
        let url =
            address::parse_http_url(request.url().as_str()).ok_or(FetchError::AddressNotAllowed)?;
        if !self.policy.allows_url(&url) {
            return Err(FetchError::AddressNotAllowed.into());
        }
        let mut received = self.client.execute(request).await?;
        let mut response = axum::http::Response::new(Vec::new());
        *response.status_mut() = received.status();
        *response.headers_mut() = received.headers().clone();
        while let Some(more) = received.chunk().await? {
            let body = response.body_mut();
            if more.len() > MAX_BODY_BYTES.saturating_sub(body.len()) {
                return Err(FetchError::TooLarge.into());
            }
            body.extend_from_slice(&more);
        }
        Ok(response)
    }
}

type Response = axum::http::Response<Vec<u8>>;

impl OAuthHttpClient for BoundedHttpClient {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move { tokio::time::timeout(TIMEOUT, self.fetch(request)).await? })
    }
}
