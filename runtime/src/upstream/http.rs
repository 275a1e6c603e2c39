//! An address and headers in, a connection by HTTP out that follows no redirection and uses no proxy.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::OnceLock;

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::runtime::{Builder, Handle};
use tracing::subscriber::NoSubscriber;

use super::address::{self, Place, Reachable};
use super::connect::ConnectError;
use super::server::Server;
use super::session::Session;
use super::spec::{HttpReach, SpecError};

/// What sends requests and hears answers.
#[cfg(feature = "oauth")]
type Sender = Session<super::auth::Signed>;
/// What sends requests and hears answers.
#[cfg(not(feature = "oauth"))]
type Sender = Session<reqwest::Client>;

/// Where everything runs that speaks with servers by HTTP: a thread without a log. rmcp and what is below it log what
/// servers send, as headers, names and ids, and a server may send back the tokens that it was told.
fn unheard() -> Option<&'static Handle> {
    static UNHEARD: OnceLock<Option<Handle>> = OnceLock::new();
    let started = || {
        let runtime = Builder::new_current_thread().enable_all().build().ok()?;
        let handle = runtime.handle().clone();
        let run = move || {
            let never = std::future::pending::<Infallible>();
            tracing::subscriber::with_default(NoSubscriber::default(), || runtime.block_on(never))
        };
        let thread = std::thread::Builder::new().name("bailiwick-http".to_owned());
        thread.spawn(run).ok()?;
        Some(handle)
    };
    UNHEARD.get_or_init(started).as_ref()
}

pub(super) fn transport(
    server: &Server,
    reach: &HttpReach,
) -> Result<StreamableHttpClientTransport<Sender>, ConnectError> {
    let url = address::read(&reach.url).ok_or(ConnectError::Http)?;
    let sender = client(reach, Reachable::Written(Place::said(&url))).ok_or(ConnectError::Http)?;
    #[cfg(feature = "oauth")]
    let sender = super::auth::Signed::new(sender, server.account.clone());
    let sender = Session::new(sender);
    let mut custom = HashMap::new();
    for (name, value) in &reach.headers {
        let name: HeaderName = name.parse().map_err(|_| ConnectError::Http)?;
        let mut value: HeaderValue = value.parse().map_err(|_| ConnectError::Http)?;
        value.set_sensitive(true);
        custom.insert(name, value);
    }
    let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
        .custom_headers(custom)
        .max_sse_event_size(server.bounds.message_bytes);
    let _unheard = unheard().ok_or(ConnectError::Http)?.enter();
    Ok(StreamableHttpClientTransport::with_client(sender, config))
}

/// A client that speaks to `reachable` machines, and sends what is meant for one to no other; none if a certificate is none.
pub(super) fn client(reach: &HttpReach, reachable: Reachable) -> Option<reqwest::Client> {
    let builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .dns_resolver(std::sync::Arc::new(reachable));
    #[cfg(feature = "tls")]
    let builder = builder.tls_certs_merge(authorities(reach)?);
    #[cfg(not(feature = "tls"))]
    let _ = reach;
    builder.build().ok()
}

#[cfg(feature = "tls")]
fn authorities(reach: &HttpReach) -> Option<Vec<reqwest::Certificate>> {
    let mut all = Vec::new();
    for pem in &reach.authorities {
        let read = reqwest::Certificate::from_pem_bundle(pem).ok()?;
        if read.is_empty() {
            return None;
        }
        all.extend(read);
    }
    Some(all)
}

/// Refuses an address that cannot be spoken to, or only in the clear, and headers that cannot be sent.
pub(super) fn check(name: &str, reach: &HttpReach) -> Result<(), SpecError> {
    let name = name.to_owned();
    let Some(url) = address::read(&reach.url) else {
        return Err(SpecError::Url(name));
    };
    if address::is_clear(&url) {
        return Err(SpecError::Clear(name));
    }
    #[cfg(not(feature = "tls"))]
    if url.scheme() == "https" {
        return Err(SpecError::Tls(name));
    }
    #[cfg(feature = "tls")]
    let reachable = Reachable::Written(Place::said(&url));
    #[cfg(feature = "tls")]
    if !reach.authorities.is_empty() && client(reach, reachable).is_none() {
        return Err(SpecError::Certificate(name));
    }
    let mut headers = reach.headers.iter();
    match headers.find(|(header, value)| !is_sendable(header, value)) {
        None => Ok(()),
        Some((header, _)) => Err(SpecError::Header {
            server: name,
            header: crate::escape(header).into(),
        }),
    }
}

/// Whether a header can be sent and is the host's to set.
fn is_sendable(name: &str, value: &str) -> bool {
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
