//! Streamable HTTP server on loopback addresses. Requests are authorized before anything else in them is read.

mod batch;
mod body;
mod cors;
mod events;
mod sessions;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use bailiwick_http::{Connection, ConnectionLimits, RequestGuard, Token, host_names, serve};
use rmcp::ServerHandler;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Gateway, cancelling};
use sessions::Sessions;

/// Path of the MCP endpoint.
const PATH: &str = "/mcp";

/// Default maximum request body, in bytes.
const MAX_BODY: usize = 4 << 20;

/// Default maximum number of sessions.
const MAX_SESSIONS: usize = 256;

/// Default maximum number of connections: one that listens and one that calls per session.
const MAX_CONNECTIONS: usize = 2 * MAX_SESSIONS;

/// Default idle timeout of a session.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Default timeout for reading the head of a request, and again for its body.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout for the first authorized request of a connection.
const AUTHORIZATION_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for running requests to finish on shutdown, and then for sessions to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// Error of [`Gateway::serve_http`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The listener is reachable from other machines.
    #[error("`{0}` is not a loopback address")]
    NotLoopback(SocketAddr),
    /// The listener failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Authorization and limits of the HTTP server.
#[derive(Clone, Debug)]
pub struct Http {
    token: Option<Token>,
    hosts: Vec<String>,
    origins: Vec<String>,
    max_body: usize,
    max_sessions: usize,
    max_connections: usize,
    idle: Duration,
    read_timeout: Duration,
}

impl Http {
    /// Requires `token` as the bearer token.
    #[must_use]
    pub fn new(token: Token) -> Self {
        Self {
            token: Some(token),
            ..Self::without_token()
        }
    }

    /// Requires no token: any program on this machine may connect. Pages of other origins are still rejected.
    #[must_use]
    pub fn without_token() -> Self {
        Self {
            token: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            max_body: MAX_BODY,
            max_sessions: MAX_SESSIONS,
            max_connections: MAX_CONNECTIONS,
            idle: IDLE_TIMEOUT,
            read_timeout: READ_TIMEOUT,
        }
    }

    /// Also accepts requests whose `Host` header is `host`, such as `localhost:9000` behind `ssh -L` or a published
    /// container port, or `mcp.example` behind a reverse proxy. The whole value is compared, so it needs a port unless
    /// clients send none.
    ///
    /// Only names of the loopback address are accepted by default, which protects against DNS rebinding.
    #[must_use]
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into());
        self
    }

    /// Allows pages of `origin`, such as `http://localhost:5173`, by CORS. They need the token like any other client.
    /// The whole value is compared: scheme, host, and the port unless it is the scheme's default.
    #[must_use]
    pub fn origin(mut self, origin: impl Into<String>) -> Self {
        self.origins.push(origin.into());
        self
    }

    /// Sets the maximum request body, in bytes (4 MiB by default).
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Sets the maximum number of sessions (256 by default). Further handshakes get 503 Service Unavailable.
    #[must_use]
    pub fn max_sessions(mut self, sessions: usize) -> Self {
        self.max_sessions = sessions;
        self
    }

    /// Sets the maximum number of connections (512 by default). Further connections get 503 Service Unavailable.
    #[must_use]
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Sets the idle timeout of a session (5 minutes by default). A session with open requests is not idle.
    #[must_use]
    pub fn idle(mut self, time: Duration) -> Self {
        self.idle = time;
        self
    }

    /// Sets the timeout for reading the head of a request, and again for its body (30 seconds by default).
    #[must_use]
    pub fn read_timeout(mut self, time: Duration) -> Self {
        self.read_timeout = time;
        self
    }
}

impl Gateway {
    /// Serves clients over Streamable HTTP at `/mcp` until `stop` completes, and then until the backends of its
    /// sessions have ended and their effects are recorded.
    ///
    /// All clients with the token are one trust domain: each can use any session whose id it knows, and all share one
    /// rate. A stateful client gets its own worker. Stateless clients (2026-07-28) cannot be distinguished and share
    /// one worker, with its budget, artifacts and tasks. To isolate clients, give each its own
    /// [`Endpoint`](super::Endpoint).
    ///
    /// # Errors
    /// [`HttpError`] if the listener is not on a loopback address, or fails.
    pub async fn serve_http(
        &self,
        listener: TcpListener,
        http: Http,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), HttpError> {
        self.serve_http_with_handler(listener, http, stop, |gateway| gateway)
            .await
    }

    /// Like [`Gateway::serve_http`], with a handler around this gateway, such as one with the fixtures of a conformance
    /// suite.
    #[doc(hidden)]
    pub async fn serve_http_with_handler<S: ServerHandler>(
        &self,
        listener: TcpListener,
        http: Http,
        stop: impl Future<Output = ()> + Send,
        make_handler: impl Fn(Self) -> S + Send + Sync + 'static,
    ) -> Result<(), HttpError> {
        let stopped = CancellationToken::new();
        let serving = self.serve_stoppable(listener, http, &stopped, make_handler);
        cancelling(&stopped, stop, serving).await
    }

    async fn serve_stoppable<S: ServerHandler>(
        &self,
        listener: TcpListener,
        http: Http,
        stop: &CancellationToken,
        make_handler: impl Fn(Self) -> S + Send + Sync + 'static,
    ) -> Result<(), HttpError> {
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            return Err(HttpError::NotLoopback(address));
        }
        // The sessions of this server are children of this one, separate from those of other servers.
        let server = self.request();
        let router = server.router(&http, address, stop, make_handler);
        let limits = ConnectionLimits {
            max_connections: http.max_connections,
            head_timeout: http.read_timeout,
            authorization_timeout: http.read_timeout.min(AUTHORIZATION_TIMEOUT),
        };
        let shutdown_timeout = async {
            stop.cancelled().await;
            tokio::time::sleep(SHUTDOWN_TIMEOUT).await;
        };
        // A client that never ends its request must not delay the shutdown.
        tokio::select! {
            () = serve(listener, router, limits, stop) => {}
            () = shutdown_timeout => {}
        }
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, server.session.wait_for_children())
            .await
            .is_err()
        {
            tracing::warn!("a session did not end in time; its last records may be missing");
        }
        self.end_session().await;
        Ok(())
    }

    fn router<S: ServerHandler>(
        &self,
        http: &Http,
        address: SocketAddr,
        stop: &CancellationToken,
        make_handler: impl Fn(Self) -> S + Send + Sync + 'static,
    ) -> Router {
        let hosts = host_names(address);
        let own = hosts.iter().map(|host| format!("http://{host}"));
        let guard = RequestGuard {
            origins: own.chain(http.origins.iter().cloned()).collect(),
            hosts: hosts.iter().chain(&http.hosts).cloned().collect(),
            token: http.token.clone(),
        };
        let guard = Arc::new(guard);
        let config = StreamableHttpServerConfig::default()
            // `RequestGuard` checks both more strictly.
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_max_request_body_bytes(http.max_body)
            .with_cancellation_token(stop.child_token());
        let sessions = Arc::new(Sessions::new(http.max_sessions, http.idle));
        let body_limits = body::BodyLimits {
            max_bytes: http.max_body,
            timeout: http.read_timeout,
            sessions: Arc::clone(&sessions),
            stop: stop.clone(),
        };
        let gateway = self.clone();
        let service = StreamableHttpService::new(
            move || Ok(make_handler(gateway.request())),
            sessions,
            config,
        );
        Router::new()
            .route_service(PATH, service)
            .layer(middleware::map_response_with_state(
                self.state.decorator.clone(),
                events::decorate_response,
            ))
            .layer(middleware::from_fn(sessions::limit_sessions))
            .layer(middleware::from_fn_with_state(body_limits, body::read))
            .layer(middleware::from_fn_with_state(
                Arc::clone(&guard),
                authorize,
            ))
            .layer(middleware::from_fn_with_state(guard, cors::handle))
    }
}

/// Rejects requests that [`RequestGuard`] does not accept.
async fn authorize(
    State(guard): State<Arc<RequestGuard>>,
    request: Request,
    next: Next,
) -> Response {
    if let Err(refusal) = guard.check_names(request.uri(), request.headers()) {
        return refusal.into_response();
    }
    // Clients request OAuth metadata at other paths, and would start to sign in on a 401.
    if request.uri().path() != PATH || request.method() == Method::OPTIONS {
        return (StatusCode::NOT_FOUND, "not found; MCP is served at /mcp").into_response();
    }
    if let Err(refusal) = guard.check_token(request.headers()) {
        return refusal.into_response();
    }
    Connection::authorize(&request);
    next.run(request).await
}
