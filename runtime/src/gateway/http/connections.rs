//! Connections of a listener, bounded in number and in the time that a head may take.
//!
//! A connection counts as known once one of its requests was authorised. If all places are taken, the oldest that is not
//! known makes room, so that nobody without a token can keep others out.

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::http::{Request, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

/// How long a listener is left alone that gives no connection; most likely no descriptor is free.
const PAUSE: Duration = Duration::from_millis(200);

/// How many clients beyond the bound are told so at a time; others are hung up on.
const TOLD: usize = 16;

/// The longest head of a request, in bytes.
const MAX_HEAD: usize = 64 << 10;

/// When a client that found no place may try again.
const RETRY_AFTER: &str = "5";

/// The next connection of a listener; what keeps it from giving one is told once.
pub(in crate::gateway) async fn next<T>(
    mut accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
) -> T {
    let mut told = false;
    loop {
        match std::future::poll_fn(&mut accept).await {
            Ok(connection) => return connection,
            Err(error) if went(&error) => {}
            Err(error) => {
                if !told {
                    tracing::warn!(%error, "no connection can be accepted");
                    told = true;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Whether it is the client alone that is gone.
fn went(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// How many connections are served at a time, and how long each may take to say what it wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) most: usize,
    /// For the head of each request.
    pub(crate) time: Duration,
    /// For the first request that is authorised.
    pub(crate) unknown: Duration,
}

/// The connections that had no authorised request yet, oldest first.
#[derive(Clone, Debug, Default)]
struct Unknown(Arc<Mutex<BTreeMap<u64, CancellationToken>>>);

impl Unknown {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the oldest; whether there was one.
    fn evict(&self) -> bool {
        let oldest = self.all().pop_first();
        oldest.is_some_and(|(_, end)| {
            end.cancel();
            true
        })
    }
}

/// One connection; every request has it among its extensions.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    number: u64,
    unknown: Unknown,
    known: CancellationToken,
}

impl Connection {
    /// The sender of this request may speak, so its connection is kept.
    pub(crate) fn authorise<B>(request: &Request<B>) {
        if let Some(connection) = request.extensions().get::<Self>() {
            connection.unknown.all().remove(&connection.number);
            connection.known.cancel();
        }
    }
}

/// Serves until `stop` is cancelled, and then until every request under way is answered.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    stop: &CancellationToken,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(bounds.time)
        .max_buf_size(MAX_HEAD);
    let places = Arc::new(Semaphore::new(bounds.most.min(Semaphore::MAX_PERMITS)));
    let told = Arc::new(Semaphore::new(TOLD));
    let full = full();
    let unknown = Unknown::default();
    let mut open = JoinSet::new();
    for number in 0_u64.. {
        let (client, _) = tokio::select! {
            client = next(|cx| listener.poll_accept(cx)) => client,
            () = stop.cancelled() => break,
        };
        while open.try_join_next().is_some() {}
        let mut place = Arc::clone(&places).try_acquire_owned().ok();
        if place.is_none() && unknown.evict() {
            // The one that ends leaves its place at once.
            place = Arc::clone(&places).acquire_owned().await.ok();
        }
        let end = CancellationToken::new();
        let (router, place) = match place {
            Some(place) => {
                unknown.all().insert(number, end.clone());
                (&router, place)
            }
            None => match Arc::clone(&told).try_acquire_owned() {
                Ok(place) => (&full, place),
                Err(_) => continue,
            },
        };
        let state = Connection {
            number,
            unknown: unknown.clone(),
            known: CancellationToken::new(),
        };
        let (http, router, stop) = (http.clone(), router.clone(), stop.clone());
        open.spawn(async move {
            let serving = connection(client, http, router, state.clone(), stop);
            let late = async {
                tokio::select! {
                    biased;
                    () = state.known.cancelled() => std::future::pending().await,
                    () = tokio::time::sleep(bounds.unknown) => {}
                }
            };
            tokio::select! {
                // What came in time is looked at first, however late that is.
                biased;
                () = serving => {}
                () = end.cancelled() => {}
                () = late => {}
            }
            state.unknown.all().remove(&state.number);
            drop(place);
        });
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}

/// Answers whoever found no place.
fn full() -> Router {
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

    #[tokio::test(start_paused = true)]
    async fn a_listener_without_descriptors_is_asked_again_after_a_pause() {
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
        let accepted = next(|_| Poll::Ready(answers.pop().unwrap())).await;
        assert_eq!(accepted, "client");
        assert_eq!(
            began.elapsed(),
            PAUSE * 2,
            "a client that went is no reason to wait"
        );
    }
}
