//! CORS for pages of the configured origins.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use bailiwick_http::RequestGuard;

/// Methods of Streamable HTTP.
const METHODS: &str = "GET, POST, DELETE";
/// Request headers that pages may send, besides those that begin with [`PARAMETERS`].
const HEADERS: [&str; 8] = [
    "accept",
    "authorization",
    "content-type",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
];
/// Prefix of headers for tool parameters.
const PARAMETERS: &str = "mcp-param-";
/// Response headers that pages may read.
const EXPOSED: &str = "mcp-session-id, retry-after, www-authenticate";
/// Seconds for which browsers may cache a preflight response.
const MAX_AGE: &str = "600";

/// Answers preflight requests, which have no token, and adds CORS headers to other responses.
pub(super) async fn handle(
    State(guard): State<Arc<RequestGuard>>,
    request: Request,
    next: Next,
) -> Response {
    let origin = request.headers().get(header::ORIGIN).cloned();
    let is_allowed = guard.check_names(request.uri(), request.headers()).is_ok();
    let Some(origin) = origin.filter(|_| is_allowed) else {
        return next.run(request).await;
    };
    let is_preflight = request
        .headers()
        .get(header::ACCESS_CONTROL_REQUEST_METHOD)
        .is_some();
    let mut response = if is_preflight && request.method() == Method::OPTIONS {
        preflight(request.headers())
    } else {
        let mut response = next.run(request).await;
        let exposed = HeaderValue::from_static(EXPOSED);
        response
            .headers_mut()
            .insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        response
    };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    response
}

fn preflight(requested: &HeaderMap) -> Response {
    let requested = requested.get(header::ACCESS_CONTROL_REQUEST_HEADERS);
    let requested = requested.and_then(|names| names.to_str().ok());
    let names = requested.unwrap_or_default().split(',').map(str::trim);
    let allowed: Vec<&str> = names
        .filter(|name| HEADERS.contains(name) || name.starts_with(PARAMETERS))
        .collect();
    let mut response = (
        StatusCode::NO_CONTENT,
        [
            (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
            (header::ACCESS_CONTROL_MAX_AGE, MAX_AGE),
        ],
    )
        .into_response();
    if let Ok(allowed) = HeaderValue::from_str(&allowed.join(", ")) {
        response
            .headers_mut()
            .insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    }
    response
}
