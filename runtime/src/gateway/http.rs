//! Streamable HTTP on loopback. Who may speak is checked before anything else of a request is looked at.

mod batch;
pub(crate) mod body;
pub(crate) mod connections;
mod cors;
mod events;
mod guard;
mod sessions;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use rmcp::ServerHandler;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::token::Token;
use super::{Gateway, cancelling};
pub(crate) use connections::Connection;
#[cfg(feature = "ui")]
pub(crate) use connections::ConnectionLimits;
pub(super) use connections::accept_next;
pub(crate) use guard::RequestGuard;
use sessions::Sessions;

/// Where MCP is served.
const PATH: &str = "/mcp";

/// The longest request a client may send by default, in bytes.
const MAX_BODY: usize = 4 << 20;

/// How many sessions there may be by default.
const MAX_SESSIONS: usize = 256;

/// How many connections there may be by default: for each session one that listens and one that calls.
const MAX_CONNECTIONS: usize = 2 * MAX_SESSIONS;

/// How long a session may be idle by default.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// How long a client may take by default to send the head of a request, and again to send its body.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a connection may stay without one authorised request.
const AUTHORIZATION_TIMEOUT: Duration = Duration::from_secs(5);

/// How long requests under way may take to end once the server is to stop, and again what sessions leave behind.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// Why nothing is served over HTTP.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The listener can be reached from other machines.
    #[error("{0} is no loopback address; other machines are not served")]
    NotLoopback(SocketAddr),
    /// The listener failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Who may speak to a gateway over HTTP, and the bounds on what they may take.
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
    /// Serves only requests that carry `token` as bearer.
    #[must_use]
    pub fn new(token: Token) -> Self {
        Self {
            token: Some(token),
            ..Self::without_token()
        }
    }

    /// Serves every program on this machine that reaches the address; pages of other origins are refused all the same.
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

    /// Also answers requests whose `Host` header is `host`, such as `localhost:9000` behind `ssh -L` or a published container
    /// port, or `mcp.example` behind a reverse proxy. It is compared whole, so it needs a port unless clients send none.
    ///
    /// Only the names of the loopback address are served by default: a page that rebinds the name of its own host to this
    /// machine is refused.
    #[must_use]
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into());
        self
    }

    /// Lets pages of `origin` use the server from a browser, such as `http://localhost:5173`, by CORS. They need the token as
    /// any other client. It is compared whole: scheme, host, and the port unless the scheme implies it.
    #[must_use]
    pub fn origin(mut self, origin: impl Into<String>) -> Self {
        self.origins.push(origin.into());
        self
    }

    /// Sets the longest request, in bytes (4 MiB by default).
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Sets how many sessions there may be at a time (256 by default); a handshake beyond that is answered 503.
    #[must_use]
    pub fn max_sessions(mut self, sessions: usize) -> Self {
        self.max_sessions = sessions;
        self
    }

    /// Sets how many connections there may be at a time (512 by default); one beyond that is answered 503.
    #[must_use]
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Sets how long a session lasts in which nothing is said by either end (5 minutes by default).
    #[must_use]
    pub fn idle(mut self, time: Duration) -> Self {
        self.idle = time;
        self
    }

    /// Sets how long a client may take to send the head of a request, and again to send its body (30 seconds by
    /// default).
    #[must_use]
    pub fn read_timeout(mut self, time: Duration) -> Self {
        self.read_timeout = time;
        self
    }
}

impl Gateway {
    /// Serves clients over Streamable HTTP at `/mcp` until `stop` completes, and then until what its sessions opened is
    /// ended and recorded.
    ///
    /// A token is one trust domain: whoever carries it may speak in any session it knows the name of, and all of them
    /// share one rate. A client with a handshake gets a worker of its own; stateless clients (2026-07-28) are told
    /// apart by nothing and share one worker, with its budget, artifacts and tasks. Clients that must not see one
    /// another's work need servers of their own: one [`Worker::endpoint`](crate::Worker::endpoint) each.
    ///
    /// # Errors
    /// [`HttpError`] if the listener is no loopback address, or fails.
    pub async fn serve_http(
        &self,
        listener: TcpListener,
        http: Http,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), HttpError> {
        self.serve_with_handler(listener, http, stop, |gateway| gateway)
            .await
    }

    /// The same for a handler around this gateway, such as one with the fixtures of a conformance suite.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub async fn serve_http_with_handler<S: ServerHandler>(
        &self,
        listener: TcpListener,
        http: Http,
        stop: impl Future<Output = ()> + Send,
        make_handler: impl Fn(Self) -> S + Send + Sync + 'static,
    ) -> Result<(), HttpError> {
        self.serve_with_handler(listener, http, stop, make_handler)
            .await
    }

    async fn serve_with_handler<S: ServerHandler>(
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
        // What is opened for sessions of this server is told apart from what others serve.
        let server = self.request();
        let router = server.router(&http, address, stop, make_handler);
        let limits = connections::ConnectionLimits {
            max_connections: http.max_connections,
            head_timeout: http.read_timeout,
            authorization_timeout: http.read_timeout.min(AUTHORIZATION_TIMEOUT),
        };
        let shutdown_timeout = async {
            stop.cancelled().await;
            tokio::time::sleep(SHUTDOWN_TIMEOUT).await;
        };
        // A client that never ends its request must not keep the server, nor what is still to be recorded.
        tokio::select! {
            () = connections::serve(listener, router, limits, stop) => {}
            () = shutdown_timeout => {}
        }
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, server.wait_for_children())
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
        let cors = cors::Cors::new(guard.hosts.clone(), guard.origins.clone());
        let config = StreamableHttpServerConfig::default()
            // `RequestGuard` checks both, and more strictly.
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_max_request_body_bytes(http.max_body)
            .with_cancellation_token(stop.child_token());
        let sessions = Arc::new(Sessions::new(http.max_sessions, http.idle));
        let body_limits = body::BodyLimits {
            max_bytes: http.max_body,
            timeout: http.read_timeout,
            sessions: Arc::clone(&sessions),
        };
        let gateway = self.clone();
        let service = StreamableHttpService::new(
            move || Ok(make_handler(gateway.request())),
            sessions,
            config,
        );
        Router::new()
            .route_service(PATH, service)
            .layer(middleware::map_response(events::decorate_response))
            .layer(middleware::from_fn(sessions::limit_sessions))
            .layer(middleware::from_fn_with_state(body_limits, body::read))
            .layer(middleware::from_fn_with_state(Arc::new(guard), authorize))
            .layer(middleware::from_fn_with_state(cors, cors::handle))
    }
}

/// The names by which a client on this machine reaches `address`; the port that is HTTP's own may go unsaid.
pub(crate) fn host_names(address: SocketAddr) -> Vec<String> {
    let literal = match address.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    let names = ["localhost", "127.0.0.1", "[::1]", &literal];
    let with_port = names
        .iter()
        .map(|name| format!("{name}:{}", address.port()));
    let mut hosts: Vec<_> = with_port.collect();
    if address.port() == 80 {
        hosts.extend(names.map(str::to_owned));
    }
    hosts
}

/// Lets a request through if its sender may speak; nothing else of it is looked at before.
async fn authorize(
    State(guard): State<Arc<RequestGuard>>,
    request: Request,
    next: Next,
) -> Response {
    if let Err(refusal) = guard.check_names(request.uri(), request.headers()) {
        return refusal.into_response();
    }
    // Clients look for OAuth metadata at other paths, and would take a 401 there as a reason to sign in.
    if request.uri().path() != PATH || request.method() == Method::OPTIONS {
        return (StatusCode::NOT_FOUND, "not found; MCP is served at /mcp").into_response();
    }
    if let Err(refusal) = guard.check_token(request.headers()) {
        return refusal.into_response();
    }
    Connection::authorize(&request);
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_port_of_http_goes_unsaid() {
        let at = |address: &str| host_names(address.parse().unwrap());
        assert!(at("127.0.0.2:80").contains(&"127.0.0.2".to_owned()));
        assert!(at("127.0.0.2:80").contains(&"localhost:80".to_owned()));
        assert!(at("[::1]:8080").iter().all(|host| host.ends_with(":8080")));
    }
}
