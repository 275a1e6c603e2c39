//! Parses the authorization response in a redirect.

use reqwest::Url;

use super::SignInError;

/// The longest URL, in bytes.
const MAX_URL_BYTES: usize = 16 << 10;

/// The parameters of a successful authorization response.
pub(super) struct AuthorizationResponse {
    pub(super) code: String,
    pub(super) issuer: Option<String>,
}

impl AuthorizationResponse {
    /// Parses the redirected URL and compares its state with `state`.
    pub(super) fn read(address: &str, state: &str) -> Result<Self, SignInError> {
        let url = Url::parse(address).map_err(|_| SignInError::State)?;
        if address.len() > MAX_URL_BYTES || single_param(&url, "state")?.as_deref() != Some(state) {
            return Err(SignInError::State);
        }
        match single_param(&url, "error")?.as_deref() {
            None => {}
            Some("access_denied") => return Err(SignInError::Declined),
            Some(_) => return Err(SignInError::Rejected),
        }
        Ok(Self {
            code: single_param(&url, "code")?.ok_or(SignInError::State)?,
            issuer: single_param(&url, "iss")?,
        })
    }
}

/// A query parameter, which must not occur twice.
pub(super) fn single_param(url: &Url, key: &str) -> Result<Option<String>, SignInError> {
    let mut values = url.query_pairs().filter(|(name, _)| name == key);
    let first = values.next();
    if values.next().is_some() {
        return Err(SignInError::State);
    }
    Ok(first.map(|(_, value)| value.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: Result<(&str, Option<&str>), SignInError>) {
        let read = AuthorizationResponse::read(&format!("http://127.0.0.1:1/x?{query}"), "s1");
        let read = read.map(|back| (back.code, back.issuer));
        let expected = expected.map(|(code, issuer)| (code.into(), issuer.map(Into::into)));
        assert_eq!(read, expected, "{query}");
    }

    #[test]
    fn code_requires_the_requested_state() {
        check("code=c%201&state=s1", Ok(("c 1", None)));
        check(
            "iss=https%3A%2F%2Fa&state=s1&code=c",
            Ok(("c", Some("https://a"))),
        );
        for query in [
            "",
            "code=c",
            "state=s1",
            "code=c&state=s2",
            "code=c&state=",
            "code=c&state=s1&state=s1",
            "code=c&code=d&state=s1",
            "error=access_denied&state=s2",
        ] {
            check(query, Err(SignInError::State));
        }
        check("error=access_denied&state=s1", Err(SignInError::Declined));
        check("error=x&code=c&state=s1", Err(SignInError::Rejected));
        assert!(AuthorizationResponse::read("?code=c&state=s1", "s1").is_err());
    }
}
