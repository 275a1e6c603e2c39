//! An address and headers in, a connection by HTTP out that follows no redirection and uses no proxy.

use std::collections::{BTreeMap, HashMap};

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use super::connect::ConnectError;
use super::server::Server;

pub(super) fn transport(
    server: &Server,
    url: &str,
    headers: &BTreeMap<String, String>,
) -> Result<StreamableHttpClientTransport<reqwest::Client>, ConnectError> {
    // Headers may be secrets, and they are for this address.
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .map_err(|_| ConnectError::Http)?;
    let mut custom = HashMap::new();
    for (name, value) in headers {
        let name: HeaderName = name.parse().map_err(|_| ConnectError::Http)?;
        let mut value: HeaderValue = value.parse().map_err(|_| ConnectError::Http)?;
        value.set_sensitive(true);
        custom.insert(name, value);
    }
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(custom)
        .max_sse_event_size(server.bounds.message_bytes);
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// Whether a header can be sent and is the host's to set.
pub(super) fn is_sendable(name: &str, value: &str) -> bool {
    const RESERVED: &[&str] = &[
        "accept",
        "content-type",
        "content-length",
        "host",
        "last-event-id",
    ];
    let plain = name.parse::<HeaderName>();
    let plain = plain
        .is_ok_and(|name| !RESERVED.contains(&name.as_str()) && !name.as_str().starts_with("mcp-"));
    plain && value.parse::<HeaderValue>().is_ok()
}
