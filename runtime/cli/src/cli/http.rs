//! Accepted `Host` and `Origin` headers of the HTTP server.

use std::net::Ipv6Addr;

use super::variables::Variables;
use super::{CliError, ServeFlags};

/// An invalid item of `--allow-host` or `--allow-origin`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AllowListError {
    #[error(
        "must be a host name or address with an optional port, such as mcp.example or localhost:9000"
    )]
    Host,
    #[error("must be a scheme, a host and an optional port, such as https://app.example")]
    Origin,
}

/// Fills the lists that no flag has set from their variables, and removes these variables.
pub(super) fn complete(flags: &mut ServeFlags, variables: &mut Variables) -> Result<(), CliError> {
    let mut complete = |list: &mut Vec<String>, variable, parse: fn(&str) -> _| {
        let text = super::variables::take(variables, variable)?.unwrap_or_default();
        if list.is_empty() {
            let items = text.split([',', '\n']).map(str::trim);
            let items = items.filter(|item| !item.is_empty()).map(parse);
            let items: Result<_, AllowListError> = items.collect();
            *list = items.map_err(|reason| CliError::Name { variable, reason })?;
        }
        Ok(())
    };
    complete(&mut flags.allow_host, "BAILIWICK_ALLOW_HOST", parse_host)?;
    complete(
        &mut flags.allow_origin,
        "BAILIWICK_ALLOW_ORIGIN",
        parse_origin,
    )
}

/// Parses a value of the `Host` header.
pub(super) fn parse_host(text: &str) -> Result<String, AllowListError> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (text, None),
    };
    let address = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    let is_name = match address {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            !name.is_empty() && name.bytes().all(plain)
        }
    };
    let is_port = |port: &str| {
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        digits && port.parse().is_ok_and(|port: u16| port > 0)
    };
    if is_name && port.is_none_or(is_port) {
        Ok(text.to_owned())
    } else {
        Err(AllowListError::Host)
    }
}

/// Parses an origin and removes the default port of its scheme, as browsers do.
pub(super) fn parse_origin(text: &str) -> Result<String, AllowListError> {
    let (scheme, rest) = text.split_once("://").ok_or(AllowListError::Origin)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic());
    if !is_scheme || !scheme.bytes().all(plain) {
        return Err(AllowListError::Origin);
    }
    let host = parse_host(rest).map_err(|_| AllowListError::Origin)?;
    let implied = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let host = host.strip_suffix(implied).unwrap_or(&host);
    Ok(format!("{scheme}://{host}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_origins_are_checked() {
        for good in [
            "localhost:9000",
            "mcp.example",
            "10.0.0.1:1",
            "[::1]:9000",
            "[::1]",
            "a_b-c:65535",
        ] {
            assert_eq!(parse_host(good).unwrap(), good);
        }
        for bad in [
            "", ":80", "a:", "a:0", "a:65536", "a:+1", "::1", "[x]:1", "me@host", "a/b",
            "http://a", "*", "a b",
        ] {
            assert!(parse_host(bad).is_err(), "{bad}");
        }
        for (given, expected) in [
            ("https://app.example", "https://app.example"),
            ("https://app.example:443", "https://app.example"),
            ("http://app.example:443", "http://app.example:443"),
            ("http://localhost:80", "http://localhost"),
            ("http://[::1]:5173", "http://[::1]:5173"),
            ("vscode-webview://x1", "vscode-webview://x1"),
        ] {
            assert_eq!(parse_origin(given).unwrap(), expected);
        }
        for bad in [
            "null",
            "*",
            "app.example",
            "https://",
            "https://a/",
            "https://a/b",
            "://a",
            "1x://a",
            "https://*.example",
        ] {
            assert!(parse_origin(bad).is_err(), "{bad}");
        }
    }
}
