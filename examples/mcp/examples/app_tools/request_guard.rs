//! Authorization of requests: the token, and the `Host` and `Origin` headers.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};

/// Checks that requests come from the served page.
pub(crate) struct RequestGuard {
    hosts: [String; 2],
    bearer: String,
}

impl RequestGuard {
    /// Accepts `token`, and pages served at `address`.
    pub(crate) fn new(address: SocketAddr, token: &str) -> Arc<Self> {
        let port = address.port();
        Arc::new(Self {
            hosts: [format!("127.0.0.1:{port}"), format!("localhost:{port}")],
            bearer: format!("Bearer {token}"),
        })
    }

    /// Requires the token for these routes.
    pub(crate) fn require_token(self: &Arc<Self>, routes: Router) -> Router {
        routes.layer(from_fn_with_state(Arc::clone(self), check_token))
    }

    /// Rejects requests for other hosts and from pages of other origins.
    pub(crate) fn require_local(self: &Arc<Self>, routes: Router) -> Router {
        routes.layer(from_fn_with_state(Arc::clone(self), check_origin))
    }
}

pub(crate) fn page(text: &'static str, policy: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, policy),
    ];
    (headers, text).into_response()
}

pub(crate) fn script(text: &'static str) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/javascript; charset=utf-8")];
    (kind, text).into_response()
}

/// The value of a header, unless it occurs several times.
pub(crate) fn single_header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value.as_bytes()),
        _ => None,
    }
}

/// Rejects requests with another `Host` or `Origin`.
async fn check_origin(
    State(guard): State<Arc<RequestGuard>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let host = single_header(headers, &header::HOST);
    let is_own = |name: &[u8]| guard.hosts.iter().any(|host| host.as_bytes() == name);
    let mut response = if !host.is_some_and(is_own) {
        (StatusCode::FORBIDDEN, "invalid Host").into_response()
    } else if headers.contains_key(header::ORIGIN)
        && !single_header(headers, &header::ORIGIN)
            .and_then(|origin| origin.strip_prefix(b"http://"))
            .is_some_and(is_own)
    {
        (StatusCode::FORBIDDEN, "invalid Origin").into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Compares in constant time, except for the lengths.
pub(crate) fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    let pairs = a.iter().zip(b);
    a.len() == b.len() && pairs.fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// Rejects requests without the token.
async fn check_token(
    State(guard): State<Arc<RequestGuard>>,
    request: Request,
    next: Next,
) -> Response {
    let token = single_header(request.headers(), &header::AUTHORIZATION).unwrap_or_default();
    if !constant_time_eq(token, guard.bearer.as_bytes()) {
        let reason = "the token of the page is required";
        return (StatusCode::UNAUTHORIZED, reason).into_response();
    }
    next.run(request).await
}
