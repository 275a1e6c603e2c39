//! Browsers that authorisation servers led back in, where each was led out: an address of this machine for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use super::sent::one;
use super::{SignIn, SignInAnswer};

/// The longest head of a request, in bytes, and how long it may take.
const HEAD: (usize, Duration) = (16 << 10, Duration::from_secs(2));
/// The most browsers that are read at one time.
const MOST: usize = 16;
/// How long nobody is let in after it failed.
const PAUSE: Duration = Duration::from_millis(100);
/// What the browser shows.
const SEEN: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 29\r\n\
    Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\nYou can close this page now.\n";
const UNKNOWN: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

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
pub struct Landing {
    listener: TcpListener,
    awaited: Arc<Waiting>,
    places: Arc<Semaphore>,
}

impl Landing {
    /// Takes a free port of this machine.
    ///
    /// # Errors
    /// If the system has no port, or lets nobody listen.
    pub async fn bind() -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = format!("http://{}/signed-in", listener.local_addr()?);
        Ok(Self {
            listener,
            awaited: Arc::new(Waiting {
                address,
                tells: Mutex::default(),
            }),
            places: Arc::new(Semaphore::new(MOST)),
        })
    }

    /// What [`OAuth::new`](super::OAuth::new) is to be told.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.awaited.address
    }

    /// Waits until a browser is redirected here with the answer to that request. Nobody else's ends the wait.
    pub async fn led_back(&self, request: &SignIn) -> SignInAnswer {
        let url = Url::parse(&request.url).ok();
        let Some(state) = url.and_then(|url| one(&url, "state").ok().flatten()) else {
            return SignInAnswer::Unavailable;
        };
        let (tell, mut told) = oneshot::channel();
        let _awaited = Awaited::new(&self.awaited, state, tell);
        loop {
            tokio::select! {
                address = &mut told => {
                    return address.map_or(SignInAnswer::Unavailable, SignInAnswer::Completed);
                }
                arrived = self.arrived() => {
                    let Some((browser, place)) = arrived else { continue };
                    let awaited = Arc::clone(&self.awaited);
                    tokio::spawn(async move {
                        let _place = place;
                        // Slow ones are not waited for.
                        let _ = timeout(HEAD.1, receive(browser, &awaited)).await;
                    });
                }
            }
        }
    }

    async fn arrived(&self) -> Option<(TcpStream, OwnedSemaphorePermit)> {
        let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
        match self.listener.accept().await {
            Ok((browser, _)) => Some((browser, place)),
            Err(_) => {
                sleep(PAUSE).await;
                None
            }
        }
    }
}

async fn receive(mut browser: TcpStream, awaited: &Waiting) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut limited = (&mut browser).take(HEAD.0 as u64);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if limited.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let known = awaited.tell(&String::from_utf8_lossy(&head)).is_some();
    let page = if known { SEEN } else { UNKNOWN };
    browser.write_all(page.as_bytes()).await?;
    browser.shutdown().await
}

/// Who waits for a browser, by the state that it brings.
#[derive(Debug)]
struct Waiting {
    address: String,
    tells: Mutex<HashMap<String, oneshot::Sender<String>>>,
}

impl Waiting {
    /// Tells whoever waits for it where a browser was led.
    fn tell(&self, head: &str) -> Option<()> {
        let target = head.strip_prefix("GET ")?.split(' ').next()?;
        let (path, query) = target.split_once('?')?;
        if path != "/signed-in" {
            return None;
        }
        let url = Url::parse(&format!("{}?{query}", self.address)).ok()?;
        let state = one(&url, "state").ok()??;
        let waits = self.lock().remove(&state)?;
        waits.send(url.into()).ok()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<String>>> {
        self.tells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who waits; who does not any more is forgotten.
struct Awaited<'l>(&'l Waiting, String);

impl<'l> Awaited<'l> {
    fn new(waiting: &'l Waiting, state: String, tell: oneshot::Sender<String>) -> Self {
        waiting.lock().insert(state.clone(), tell);
        Self(waiting, state)
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}
