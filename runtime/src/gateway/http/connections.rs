//! A listener in, its connections served out, bounded in number and in the time that a head may take.

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
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
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
    pub(crate) time: Duration,
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
    let mut open = JoinSet::new();
    loop {
        let (client, _) = tokio::select! {
            client = next(|cx| listener.poll_accept(cx)) => client,
            () = stop.cancelled() => break,
        };
        while open.try_join_next().is_some() {}
        let (router, place) = match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => (&router, place),
            Err(_) => match Arc::clone(&told).try_acquire_owned() {
                Ok(place) => (&full, place),
                Err(_) => continue,
            },
        };
        open.spawn(connection(
            client,
            http.clone(),
            router.clone(),
            place,
            stop.clone(),
        ));
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
    _place: OwnedSemaphorePermit,
    stop: CancellationToken,
) {
    let service = service_fn(move |request: Request<Incoming>| router.clone().call(request));
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
