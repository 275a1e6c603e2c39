//! Checks `Host`, `Origin` and the bearer token of requests.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::connections::Connection;
use crate::token::Token;

/// Accepted `Host` and `Origin` values, and the required token.
#[derive(Clone, Debug)]
pub struct RequestGuard {
    /// Accepted values of `Host`.
    pub hosts: Vec<String>,
    /// Accepted values of `Origin`.
    pub origins: Vec<String>,
    /// The required token.
    pub token: Option<Token>,
}

/// Why a request was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// There is not exactly one `Host` header.
    NoHost,
    /// The `Host` is not a name of this server, as after DNS rebinding.
    Host,
    /// The `Origin` is not allowed.
    Origin,
    /// The token is missing or wrong.
    Token,
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        match self {
            Self::NoHost => {
                (StatusCode::BAD_REQUEST, "exactly one Host is required").into_response()
            }
            Self::Host => (
                StatusCode::FORBIDDEN,
                "this Host is not served; the server can allow it (`--allow-host`)",
            )
                .into_response(),
            Self::Origin => (
                StatusCode::FORBIDDEN,
                "this Origin is not served; the server can allow it (`--allow-origin`)",
            )
                .into_response(),
            Self::Token => (
                StatusCode::UNAUTHORIZED,
                // Connections without a token are closed.
                [
                    (header::WWW_AUTHENTICATE, "Bearer"),
                    (header::CONNECTION, "close"),
                ],
                "a bearer token is required",
            )
                .into_response(),
        }
    }
}

/// Middleware that rejects requests that a guard does not accept. A guard without a token, such as that of a page that
/// loads its data with a token, does not authorize the connection.
pub async fn authorize(
    State(guard): State<Arc<RequestGuard>>,
    request: Request,
    next: Next,
) -> Response {
    match guard.check(request.uri(), request.headers()) {
        Ok(()) => {
            if guard.token.is_some() {
                Connection::authorize(&request);
            }
            next.run(request).await
        }
        Err(rejection) => rejection.into_response(),
    }
}

impl RequestGuard {
    /// Accepts requests of the pages that these hosts serve over HTTP.
    #[must_use]
    pub fn same_origin(hosts: &[String], token: Option<Token>) -> Self {
        Self {
            origins: hosts.iter().map(|host| format!("http://{host}")).collect(),
            hosts: hosts.to_vec(),
            token,
        }
    }

    /// Checks the names and the token of a request.
    ///
    /// # Errors
    /// The first matching [`Rejection`].
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Rejection> {
        self.check_names(uri, headers)?;
        self.check_token(headers)
    }

    /// Checks `Host` and `Origin`. Whole values are compared without parsing.
    ///
    /// # Errors
    /// The first matching [`Rejection`].
    pub fn check_names(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Rejection> {
        let host = single_value(headers, &header::HOST, Rejection::NoHost)?;
        let host = host.ok_or(Rejection::NoHost)?;
        let target = uri.authority().map(|target| target.as_str().as_bytes());
        let mut names = std::iter::once(host.as_bytes()).chain(target);
        if !names.all(|name| matches_any(name, &self.hosts)) {
            return Err(Rejection::Host);
        }
        let origin = single_value(headers, &header::ORIGIN, Rejection::Origin)?;
        if origin.is_some_and(|origin| !matches_any(origin.as_bytes(), &self.origins)) {
            return Err(Rejection::Origin);
        }
        Ok(())
    }

    /// Checks the token.
    ///
    /// # Errors
    /// [`Rejection::Token`]
    pub fn check_token(&self, headers: &HeaderMap) -> Result<(), Rejection> {
        let Some(token) = &self.token else {
            return Ok(());
        };
        let value = single_value(headers, &header::AUTHORIZATION, Rejection::Token)?;
        let given = value
            .and_then(|value| value.to_str().ok()?.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        match given {
            Some((_, given)) if token.matches(given.trim()) => Ok(()),
            _ => Err(Rejection::Token),
        }
    }
}

/// The value of a header that occurs at most once.
fn single_value<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
    duplicate: Rejection,
) -> Result<Option<&'h HeaderValue>, Rejection> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (first, None) => Ok(first),
        _ => Err(duplicate),
    }
}

fn matches_any(given: &[u8], known: &[String]) -> bool {
    known
        .iter()
        .any(|known| known.as_bytes().eq_ignore_ascii_case(given))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        guard: &RequestGuard,
        target: &'static str,
        lines: &[(&str, &str)],
    ) -> Option<Rejection> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name = HeaderName::try_from(*name).unwrap();
            headers.append(name, value.parse().unwrap());
        }
        guard.check(&Uri::from_static(target), &headers).err()
    }

    #[test]
    fn only_exact_and_single_names_are_accepted() {
        let guard = RequestGuard {
            hosts: vec!["localhost:8080".into()],
            origins: vec!["http://localhost:8080".into()],
            token: None,
        };
        let own = ("host", "localhost:8080");
        let page = ("origin", "http://localhost:8080");
        let refused = |lines: &[_]| check(&guard, "/mcp", lines);
        assert_eq!(refused(&[own]), None);
        assert_eq!(refused(&[("host", "LocalHost:8080")]), None);
        assert_eq!(refused(&[own, page]), None);
        assert_eq!(refused(&[]), Some(Rejection::NoHost));
        assert_eq!(refused(&[own, own]), Some(Rejection::NoHost));
        assert_eq!(refused(&[("host", "")]), Some(Rejection::Host));
        assert_eq!(
            refused(&[("host", "me@localhost:8080")]),
            Some(Rejection::Host)
        );
        assert_eq!(refused(&[own, page, page]), Some(Rejection::Origin));
        assert_eq!(refused(&[own, ("origin", "")]), Some(Rejection::Origin));
        let absolute = |target| check(&guard, target, &[own]);
        assert_eq!(absolute("http://localhost:8080/mcp"), None);
        assert_eq!(
            absolute("http://evil.example:8080/mcp"),
            Some(Rejection::Host)
        );
    }

    #[test]
    fn only_the_exact_token_is_accepted() {
        let token = Token::random().unwrap();
        let guard = RequestGuard {
            hosts: vec!["h".into()],
            origins: Vec::new(),
            token: Some(token.clone()),
        };
        let refused = |values: &[&str]| {
            let lines = values.iter().map(|value| ("authorization", *value));
            let lines: Vec<_> = std::iter::once(("host", "h")).chain(lines).collect();
            check(&guard, "/mcp", &lines)
        };
        let right = format!("Bearer {}", token.reveal());
        assert_eq!(refused(&[&right]), None);
        assert_eq!(refused(&[&format!("bearer {}", token.reveal())]), None);
        for wrong in ["Bearer", "Bearer ", "Basic x", "Bearer x"] {
            assert_eq!(refused(&[wrong]), Some(Rejection::Token), "{wrong}");
        }
        assert_eq!(refused(&[&right, &right]), Some(Rejection::Token));
        assert_eq!(refused(&[]), Some(Rejection::Token));
    }
}
