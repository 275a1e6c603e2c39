//! Nothing in, the page and what a browser may do with it out.

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{Html, Response};

/// What holds for whatever the console serves. The page itself says which script and style it may run.
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

/// The page. It is the same for everybody: what it shows it must ask for, with the secret of its address.
pub(super) async fn page() -> Html<&'static str> {
    Html(bailiwick_ui::CONSOLE)
}

/// The element on it that asks a person.
pub(super) async fn prompt() -> ([(HeaderName, &'static str); 1], &'static str) {
    let kind = (header::CONTENT_TYPE, "text/javascript; charset=utf-8");
    ([kind], bailiwick_ui::PERMISSION_PROMPT)
}

/// Answers with the headers that hold for everything.
pub(super) async fn add_security_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in SECURITY_HEADERS {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}
