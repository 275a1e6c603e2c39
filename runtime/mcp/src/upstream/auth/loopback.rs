//! Local HTTP listener that receives OAuth redirects.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONNECTION, REFERRER_POLICY};
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse;
use axum::routing::get;
use bailiwick_http::ConnectionLimits;
use parking_lot::Mutex;
use reqwest::Url;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::flow::single_param;
use bailiwick::requests::{SignIn, SignInAnswer};

const PATH: &str = "/signed-in";
const LIMITS: ConnectionLimits = ConnectionLimits {
    max_connections: 16,
    head_timeout: Duration::from_secs(2),
    authorization_timeout: Duration::from_secs(2),
};

/// A loopback listener for OAuth redirects, for hosts without a redirect URI of their own.
///
/// ```no_run
/// # use bailiwick::requests::{BoxFuture, ServerRequests, SignIn, SignInAnswer};
/// # use bailiwick_mcp::upstream::{LoopbackRedirect, OAuth, Upstreams};
/// # fn ask_and_open(_: &SignIn) -> bool { true }
/// struct Host { redirect: LoopbackRedirect }
///
/// impl ServerRequests for Host {
///     fn sign_in(&self, request: SignIn) -> BoxFuture<'_, SignInAnswer> {
///         Box::pin(async move {
///             // Shows the server, its address, the issuer and the host, and opens `request.url` if the person agrees.
///             if ask_and_open(&request) { self.redirect.wait_for_callback(&request).await } else { SignInAnswer::Declined }
///         })
///     }
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let redirect = LoopbackRedirect::bind().await?;
/// let oauth = OAuth::new(redirect.redirect_uri());
/// let upstreams = Upstreams::builder().oauth(oauth).requests(Host { redirect }).start().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LoopbackRedirect {
    listener: std::net::TcpListener,
    pending: Arc<PendingCallbacks>,
}

impl LoopbackRedirect {
    /// Binds a free port on 127.0.0.1.
    ///
    /// # Errors
    /// An I/O error if binding fails.
    pub async fn bind() -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?.into_std()?;
        let pending = Arc::new(PendingCallbacks {
            redirect_uri: format!("http://{}{PATH}", listener.local_addr()?),
            senders: Mutex::default(),
        });
        Ok(Self { listener, pending })
    }

    /// The redirect URI for [`OAuth::new`](super::OAuth::new).
    #[must_use]
    pub fn redirect_uri(&self) -> &str {
        &self.pending.redirect_uri
    }

    /// Waits for the redirect that answers `request`. Other redirects are ignored. One that came before this call waits
    /// for it.
    pub async fn wait_for_callback(&self, request: &SignIn) -> SignInAnswer {
        let url = Url::parse(&request.url).ok();
        let Some(state) = url.and_then(|url| single_param(&url, "state").ok().flatten()) else {
            return SignInAnswer::Unavailable;
        };
        let (sender, callback) = oneshot::channel();
        self.pending.senders.lock().insert(state.clone(), sender);
        let _guard = CallbackGuard(&self.pending, state);
        let Ok(_stop) = self.serve() else {
            return SignInAnswer::Unavailable;
        };
        let redirected = callback.await;
        redirected.map_or(SignInAnswer::Unavailable, SignInAnswer::Completed)
    }

    /// Accepts connections until the guard is dropped. Others stay in the queue of the listener, so that no redirect is
    /// rejected before anybody waits for it.
    fn serve(&self) -> std::io::Result<DropGuard> {
        let listener = TcpListener::from_std(self.listener.try_clone()?)?;
        let callbacks = Arc::clone(&self.pending);
        let router =
            Router::new().route(PATH, get(async move |uri: Uri| receive(&callbacks, &uri)));
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move {
            bailiwick_http::serve(listener, router, LIMITS, &stopped).await;
        });
        Ok(stop.drop_guard())
    }
}

fn receive(pending: &PendingCallbacks, uri: &Uri) -> impl IntoResponse + use<> {
    let headers = [
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (CONNECTION, "close"),
    ];
    match pending.deliver(uri.query().unwrap_or_default()) {
        Some(()) => (StatusCode::OK, headers, "You can close this page now.\n"),
        None => (StatusCode::NOT_FOUND, headers, ""),
    }
}

/// Pending requests by their `state` parameter.
#[derive(Debug)]
struct PendingCallbacks {
    redirect_uri: String,
    senders: Mutex<HashMap<String, oneshot::Sender<String>>>,
}

impl PendingCallbacks {
    /// Delivers a redirect to the request that it belongs to.
    fn deliver(&self, query: &str) -> Option<()> {
        let url = Url::parse(&format!("{}?{query}", self.redirect_uri)).ok()?;
        let state = single_param(&url, "state").ok()??;
        let sender = self.senders.lock().remove(&state)?;
        sender.send(url.into()).ok()
    }
}

/// Removes a pending request when it is dropped.
struct CallbackGuard<'l>(&'l PendingCallbacks, String);

impl Drop for CallbackGuard<'_> {
    fn drop(&mut self) {
        self.0.senders.lock().remove(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn redirect_before_the_wait_is_not_lost() {
        let redirect = LoopbackRedirect::bind().await.unwrap();
        let url = Url::parse(redirect.redirect_uri()).unwrap();
        let port = url.port().unwrap();
        let mut browser = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let head = format!("GET {PATH}?state=s&code=c HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        browser.write_all(head.as_bytes()).await.unwrap();
        let mut page = [0; 12];
        // The person may be faster than the host, which waits after it has opened the page.
        let early = timeout(Duration::from_millis(300), browser.read_exact(&mut page)).await;
        assert!(early.is_err(), "answered before anybody waits");
        let asked = "https://example.org/authorize?state=s".to_owned();
        let text = String::new;
        let request = SignIn::new(text(), text(), text(), text(), asked);
        let answer = redirect.wait_for_callback(&request).await;
        let expected = format!("{}?state=s&code=c", redirect.redirect_uri());
        assert_eq!(answer, SignInAnswer::Completed(expected));
        browser.read_exact(&mut page).await.unwrap();
        assert_eq!(&page, b"HTTP/1.1 200");
    }
}
