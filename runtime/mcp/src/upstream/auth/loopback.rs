//! Local HTTP listener that receives OAuth redirects.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use super::authorization_response::single_param;
use bailiwick::requests::{SignIn, SignInAnswer};

/// The longest request head, in bytes, and its timeout.
const MAX_HEAD: (usize, Duration) = (16 << 10, Duration::from_secs(2));
/// The largest number of concurrent connections.
const MAX_CONNECTIONS: usize = 16;
/// The pause after a failed `accept`.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// The page shown after a redirect.
const SUCCESS_PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 29\r\n\
    Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\nYou can close this page now.\n";
const NOT_FOUND_PAGE: &str =
    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

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
    listener: TcpListener,
    pending: Arc<PendingCallbacks>,
    connection_slots: Arc<Semaphore>,
}

impl LoopbackRedirect {
    /// Binds a free port on 127.0.0.1.
    ///
    /// # Errors
    /// An I/O error if binding fails.
    pub async fn bind() -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let redirect_uri = format!("http://{}/signed-in", listener.local_addr()?);
        Ok(Self {
            listener,
            pending: Arc::new(PendingCallbacks {
                redirect_uri,
                senders: Mutex::default(),
            }),
            connection_slots: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        })
    }

    /// The redirect URI for [`OAuth::new`](super::OAuth::new).
    #[must_use]
    pub fn redirect_uri(&self) -> &str {
        &self.pending.redirect_uri
    }

    /// Waits for the redirect that answers `request`. Other redirects are ignored.
    pub async fn wait_for_callback(&self, request: &SignIn) -> SignInAnswer {
        let url = Url::parse(&request.url).ok();
        let Some(state) = url.and_then(|url| single_param(&url, "state").ok().flatten()) else {
            return SignInAnswer::Unavailable;
        };
        let (sender, mut callback) = oneshot::channel();
        let _guard = CallbackGuard::new(&self.pending, state, sender);
        loop {
            tokio::select! {
                redirect_uri = &mut callback => {
                    return redirect_uri.map_or(SignInAnswer::Unavailable, SignInAnswer::Completed);
                }
                accept = self.accept() => {
                    let Some((browser, slot)) = accept else { continue };
                    let pending = Arc::clone(&self.pending);
                    tokio::spawn(async move {
                        let _slot = slot;
                        // Slow connections time out.
                        let _ = timeout(MAX_HEAD.1, receive(browser, &pending)).await;
                    });
                }
            }
        }
    }

    async fn accept(&self) -> Option<(TcpStream, OwnedSemaphorePermit)> {
        let slot = Arc::clone(&self.connection_slots)
            .acquire_owned()
            .await
            .ok()?;
        match self.listener.accept().await {
            Ok((browser, _)) => Some((browser, slot)),
            Err(_) => {
                sleep(ACCEPT_RETRY).await;
                None
            }
        }
    }
}

async fn receive(mut browser: TcpStream, pending: &PendingCallbacks) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut limited = (&mut browser).take(MAX_HEAD.0 as u64);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if limited.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let known = pending.deliver(&String::from_utf8_lossy(&head)).is_some();
    let page = if known { SUCCESS_PAGE } else { NOT_FOUND_PAGE };
    browser.write_all(page.as_bytes()).await?;
    browser.shutdown().await
}

/// Pending requests by their `state` parameter.
#[derive(Debug)]
struct PendingCallbacks {
    redirect_uri: String,
    senders: Mutex<HashMap<String, oneshot::Sender<String>>>,
}

impl PendingCallbacks {
    /// Delivers a redirect to the request that it belongs to.
    fn deliver(&self, head: &str) -> Option<()> {
        let target = head.strip_prefix("GET ")?.split(' ').next()?;
        let (path, query) = target.split_once('?')?;
        if path != "/signed-in" {
            return None;
        }
        let url = Url::parse(&format!("{}?{query}", self.redirect_uri)).ok()?;
        let state = single_param(&url, "state").ok()??;
        let sender = self.lock().remove(&state)?;
        sender.send(url.into()).ok()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<String>>> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a pending request when it is dropped.
struct CallbackGuard<'l>(&'l PendingCallbacks, String);

impl<'l> CallbackGuard<'l> {
    fn new(
        callbacks: &'l PendingCallbacks,
        state: String,
        sender: oneshot::Sender<String>,
    ) -> Self {
        callbacks.lock().insert(state.clone(), sender);
        Self(callbacks, state)
    }
}

impl Drop for CallbackGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}
