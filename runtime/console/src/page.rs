//! The console's HTML page and security headers.

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{Html, Response};

/// Headers of every response. The page itself contains the policy for its script and style.
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

/// The page with questions. Like the other pages, it contains no data: its script requests the state with the secret from
/// the URL.
pub(super) async fn console() -> Html<&'static str> {
    Html(bailiwick_ui::CONSOLE)
}

/// The page with agents and their calls.
pub(super) async fn activity() -> Html<&'static str> {
    Html(bailiwick_ui::CONSOLE)
}

/// The page with grants.
pub(super) async fn permissions() -> Html<&'static str> {
    Html(bailiwick_ui::CONSOLE)
}

/// The script of the permission prompt element.
pub(super) async fn prompt() -> ([(HeaderName, &'static str); 1], &'static str) {
    let kind = (header::CONTENT_TYPE, "text/javascript; charset=utf-8");
    ([kind], bailiwick_ui::PERMISSION_PROMPT)
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
