//! Requests in, those of the page itself out; whoever else asks is turned away before anything is looked at.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};

/// Who may ask.
pub(crate) struct Callers {
    hosts: [String; 2],
    bearer: String,
}

impl Callers {
    /// Those who were given `token`, by a page of this address.
    pub(crate) fn new(address: SocketAddr, token: &str) -> Arc<Self> {
        let port = address.port();
        Arc::new(Self {
            hosts: [format!("127.0.0.1:{port}"), format!("localhost:{port}")],
            bearer: format!("Bearer {token}"),
        })
    }

    /// Lets them alone ask what these routes answer.
    pub(crate) fn trusted(self: &Arc<Self>, routes: Router) -> Router {
        routes.layer(from_fn_with_state(Arc::clone(self), bearer))
    }

    /// Lets only those ask who call this host by its own name and come from none but its pages.
    pub(crate) fn local(self: &Arc<Self>, routes: Router) -> Router {
        routes.layer(from_fn_with_state(Arc::clone(self), known))
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

/// The one header of that name; none if there are several.
pub(crate) fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value.as_bytes()),
        _ => None,
    }
}

/// Turns away who calls this host by a name of others, or comes from a page of others.
async fn known(State(callers): State<Arc<Callers>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = single(headers, &header::HOST);
    let own = |name: &[u8]| callers.hosts.iter().any(|host| host.as_bytes() == name);
    let mut answer = if !host.is_some_and(own) {
        (StatusCode::FORBIDDEN, "this Host is not served").into_response()
    } else if headers.contains_key(header::ORIGIN)
        && !single(headers, &header::ORIGIN)
            .and_then(|origin| origin.strip_prefix(b"http://"))
            .is_some_and(own)
    {
        (StatusCode::FORBIDDEN, "this Origin is not served").into_response()
    } else {
        next.run(request).await
    };
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// Whether both are the same. How long it takes says nothing of where two of one length differ.
pub(crate) fn same(given: &[u8], wanted: &[u8]) -> bool {
    let both = given.iter().zip(wanted);
    given.len() == wanted.len() && both.fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// Turns away who does not know the token.
async fn bearer(State(callers): State<Arc<Callers>>, request: Request, next: Next) -> Response {
    let given = single(request.headers(), &header::AUTHORIZATION).unwrap_or_default();
    if !same(given, callers.bearer.as_bytes()) {
        let reason = "the token of this page is required";
        return (StatusCode::UNAUTHORIZED, reason).into_response();
    }
    next.run(request).await
}
