//! Browsers that authorisation servers led back in, where each was led out: an address of this machine for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use super::authorization_response::single_param;
use super::{SignIn, SignInAnswer};

/// The longest head of a request, in bytes, and how long it may take.
const MAX_HEAD: (usize, Duration) = (16 << 10, Duration::from_secs(2));
/// The most browsers that are read at one time.
const MAX_CONNECTIONS: usize = 16;
/// How long nobody is let in after it failed.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// What the browser shows.
const SUCCESS_PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 29\r\n\
    Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\nYou can close this page now.\n";
const NOT_FOUND_PAGE: &str =
    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Where browsers are led back to on this machine, for hosts that have no such place of their own.
///
/// ```no_run
/// # use bailiwick::{Landing, OAuth, Requested, ServerRequests, SignIn, SignInAnswer, Upstreams};
/// # fn ask_and_open(_: &SignIn) -> bool { true }
/// struct Host { landing: Landing }
///
/// impl ServerRequests for Host {
///     fn sign_in(&self, request: SignIn) -> Requested<'_, SignInAnswer> {
///         Box::pin(async move {
///             // Shows the server's name and address, the issuer and the host, and opens `request.url` if the person wants it.
///             if ask_and_open(&request) { self.landing.led_back(&request).await } else { SignInAnswer::Declined }
///         })
///     }
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let landing = Landing::bind().await?;
/// let oauth = OAuth::new(landing.address());
/// let upstreams = Upstreams::builder().oauth(oauth).requests(Host { landing }).start().await?;
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
    /// Takes a free port of this machine.
    ///
    /// # Errors
    /// If the system has no port, or lets nobody listen.
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

    /// What [`OAuth::new`](super::OAuth::new) is to be told.
    #[must_use]
    pub fn redirect_uri(&self) -> &str {
        &self.pending.redirect_uri
    }

    /// Waits until a browser is redirected here with the answer to that request. Nobody else's ends the wait.
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
                        // Slow ones are not waited for.
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

/// Who waits for a browser, by the state that it brings.
#[derive(Debug)]
struct PendingCallbacks {
    redirect_uri: String,
    senders: Mutex<HashMap<String, oneshot::Sender<String>>>,
}

impl PendingCallbacks {
    /// Tells whoever waits for it where a browser was led.
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

/// One who waits; who does not any more is forgotten.
struct CallbackGuard<'l>(&'l PendingCallbacks, String);

impl<'l> CallbackGuard<'l> {
    fn new(waiting: &'l PendingCallbacks, state: String, sender: oneshot::Sender<String>) -> Self {
        waiting.lock().insert(state.clone(), sender);
        Self(waiting, state)
    }
}

impl Drop for CallbackGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}
