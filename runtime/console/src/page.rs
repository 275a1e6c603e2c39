//! The console's HTML pages and security headers.

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{Html, Response};

/// Headers of every response. Each page contains the policy for its script and style.
const SECURITY_HEADERS: [(HeaderName, &str); 8] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; object-src 'none'",
    ),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("permissions-policy"),
        "clipboard-read=(), geolocation=(), camera=(), microphone=()",
    ),
];

// The pages contain no data: their scripts request it with the secret from the URL.

/// The page for answering questions.
pub(super) async fn questions() -> Html<&'static str> {
    Html(bailiwick_ui::CONSOLE)
}

/// The page for the activity of agents.
pub(super) async fn activity() -> Html<&'static str> {
    Html(bailiwick_ui::ACTIVITY)
}

/// The page for permissions.
pub(super) async fn permissions() -> Html<&'static str> {
    Html(bailiwick_ui::PERMISSIONS)
}

/// Adds the security headers to every response.
pub(super) async fn add_security_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in SECURITY_HEADERS {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}
