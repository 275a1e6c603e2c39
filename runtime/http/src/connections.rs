//! Accepts connections, with limits on their number and on the time of reading a head.
//!
//! A connection is authorized by its first authorized request. If all connections are in use, a new one replaces the
//! oldest unauthorized one, so clients without a token cannot block others.

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::http::{Request, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

/// Delay after a failed accept, most likely for lack of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Maximum number of surplus connections that get an answer; others are closed.
const MAX_REJECTED: usize = 16;

/// Maximum size of a request's head, in bytes.
const MAX_HEAD: usize = 64 << 10;

/// `Retry-After` of rejected connections, in seconds.
const RETRY_AFTER: &str = "5";

/// Accepts the next connection; logs only the first error.
pub async fn accept_next<T>(mut accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>) -> T {
    let mut rejected = false;
    loop {
        match std::future::poll_fn(&mut accept).await {
            Ok(connection) => return connection,
            Err(error) if is_client_error(&error) => {}
            Err(error) => {
                if !rejected {
                    tracing::warn!(%error, "no connection can be accepted");
                    rejected = true;
                }
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Accepts the next client.
async fn accept_client(listener: &TcpListener) -> TcpStream {
    let (client, _) = accept_next(|cx| listener.poll_accept(cx)).await;
    // With Nagle's algorithm, each further small part of a response would wait for the client's delayed acknowledgement, about
    // 40 ms.
    if let Err(error) = client.set_nodelay(true) {
        tracing::debug!(%error, "cannot set `TCP_NODELAY`; responses may be delayed");
    }
    client
}

/// Whether only the client has gone away.
fn is_client_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Limits of a listener's connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Maximum number of connections.
    pub max_connections: usize,
    /// Timeout for the head of each request.
    pub head_timeout: Duration,
    /// Timeout for the first authorized request.
    pub authorization_timeout: Duration,
}

/// Connections without an authorized request, oldest first.
#[derive(Clone, Debug, Default)]
struct Unauthorized(Arc<Mutex<BTreeMap<u64, CancellationToken>>>);

impl Unauthorized {
    /// Closes the oldest; returns whether there was one.
    fn evict(&self) -> bool {
        let oldest = self.0.lock().pop_first();
        oldest.is_some_and(|(_, end)| {
            end.cancel();
            true
        })
    }
}

/// A connection, stored in the extensions of its requests.
#[derive(Clone, Debug)]
pub struct Connection {
    number: u64,
    unauthorized: Unauthorized,
    authorized: CancellationToken,
}

impl Connection {
    /// Marks the connection of an authorized request.
    pub fn authorize<B>(request: &Request<B>) {
        if let Some(connection) = request.extensions().get::<Self>() {
            connection.unauthorized.0.lock().remove(&connection.number);
            connection.authorized.cancel();
        }
    }
}

/// Serves until `stop` is cancelled, and then until all running requests are answered.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    stop: &CancellationToken,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(MAX_HEAD);
    let permits = Arc::new(Semaphore::new(
        limits.max_connections.min(Semaphore::MAX_PERMITS),
    ));
    let rejected = Arc::new(Semaphore::new(MAX_REJECTED));
    let busy_router = busy_router();
    let unauthorized = Unauthorized::default();
    let mut open = JoinSet::new();
    for number in 0_u64.. {
        let client = tokio::select! {
            client = accept_client(&listener) => client,
            () = stop.cancelled() => break,
        };
        while open.try_join_next().is_some() {}
        let mut permit = Arc::clone(&permits).try_acquire_owned().ok();
        if permit.is_none() && unauthorized.evict() {
            // The evicted connection releases its permit at once.
            permit = Arc::clone(&permits).acquire_owned().await.ok();
        }
        let end = CancellationToken::new();
        let (router, permit) = match permit {
            Some(permit) => {
                unauthorized.0.lock().insert(number, end.clone());
                (&router, permit)
            }
            None => match Arc::clone(&rejected).try_acquire_owned() {
                Ok(permit) => (&busy_router, permit),
                Err(_) => continue,
            },
        };
        let state = Connection {
            number,
            unauthorized: unauthorized.clone(),
            authorized: CancellationToken::new(),
        };
        let (http, router, stop) = (http.clone(), router.clone(), stop.clone());
        open.spawn(async move {
            let serving = connection(client, http, router, state.clone(), stop);
            let timed_out = async {
                tokio::select! {
                    biased;
                    () = state.authorized.cancelled() => std::future::pending().await,
                    () = tokio::time::sleep(limits.authorization_timeout) => {}
                }
            };
            tokio::select! {
                // Polled first, so that a request that arrived in time is handled.
                biased;
                () = serving => {}
                () = end.cancelled() => {}
                () = timed_out => {}
            }
            state.unauthorized.0.lock().remove(&state.number);
            drop(permit);
        });
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}

/// Answers surplus connections.
fn busy_router() -> Router {
    let headers = [
        (header::RETRY_AFTER, RETRY_AFTER),
        (header::CONNECTION, "close"),
    ];
    let reason = "all connections are taken; close one, or wait";
    Router::new()
        .fallback(move || async move { (StatusCode::SERVICE_UNAVAILABLE, headers, reason) })
}

async fn connection(
    client: TcpStream,
    http: http1::Builder,
    router: Router,
    state: Connection,
    stop: CancellationToken,
) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(state.clone());
        router.clone().call(request)
    });
    let mut serving = pin!(http.serve_connection(TokioIo::new(client), service));
    let served = tokio::select! {
        served = serving.as_mut() => served,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection was cut off");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn accepted_connections_set_nodelay() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, accept_client(&listener));
        assert!(accepted.nodelay().unwrap());
        drop(client);
    }

    #[tokio::test(start_paused = true)]
    async fn accept_is_retried_after_a_delay() {
        let began = tokio::time::Instant::now();
        let mut answers = vec![
            Ok("client"),
            Err(io::Error::from_raw_os_error(
                rustix::io::Errno::MFILE.raw_os_error(),
            )),
            Err(io::ErrorKind::ConnectionAborted.into()),
            Err(io::Error::from_raw_os_error(
                rustix::io::Errno::NFILE.raw_os_error(),
            )),
        ];
        let accepted = accept_next(|_| Poll::Ready(answers.pop().unwrap())).await;
        assert_eq!(accepted, "client");
        assert_eq!(
            began.elapsed(),
            ACCEPT_RETRY_DELAY * 2,
            "a client that went is no reason to wait"
        );
    }
}
