//! HTTP connections to servers, without redirects and proxies.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tracing::subscriber::NoSubscriber;

use super::address::{self, AddressPolicy, Zone};
use super::connection_state::ConnectionState;
use super::failure::ServerFailure;
use super::http_client::HttpClient;
use super::server::Server;
use super::spec::{HttpConfig, SpecError};

/// A thread that runs the HTTP transport of one connection, so that a noisy server does not slow others.
///
/// The thread has no tracing subscriber: rmcp and lower layers log headers, names and ids from servers, which may
/// repeat tokens.
#[derive(Debug)]
pub(super) struct HttpThread {
    runtime: Handle,
    /// Dropping it ends the thread.
    _stop: oneshot::Sender<()>,
}

impl HttpThread {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            // An error: nothing is ever sent, and the sender is dropped.
            let _ = tracing::subscriber::with_default(NoSubscriber::default(), || {
                runtime.block_on(stopped)
            });
            // A DNS lookup may still be running.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("bailiwick-http".to_owned());
        thread.spawn(run)?;
        Ok(Self {
            runtime: handle,
            _stop: stop,
        })
    }
}

/// Creates the transport to a server and the thread that it runs on.
pub(super) fn transport(
    server: &Server,
    config: &HttpConfig,
    line: &Arc<ConnectionState>,
) -> Result<(HttpThread, StreamableHttpClientTransport<HttpClient>), ServerFailure> {
    let invalid = || ServerFailure::Start(io::ErrorKind::InvalidInput);
    let url = address::parse_http_url(&config.url).ok_or_else(invalid)?;
    let client =
        client(config, AddressPolicy::Configured(Zone::of_url(&url))).ok_or_else(invalid)?;
    let client = HttpClient::new(client, server.account.clone(), line);
    let mut headers = HashMap::new();
    for (name, value) in &config.headers {
        let name: HeaderName = name.parse().map_err(|_| invalid())?;
        let mut value: HeaderValue = value.parse().map_err(|_| invalid())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    let options = StreamableHttpClientTransportConfig::with_uri(url.as_str())
        .custom_headers(headers)
        .max_sse_event_size(server.bounds.message_bytes);
    let thread = HttpThread::start().map_err(|error| ServerFailure::Start(error.kind()))?;
    let transport = {
        let _on_the_thread = thread.runtime.enter();
        StreamableHttpClientTransport::with_client(client, options)
    };
    Ok((thread, transport))
}

/// Creates a client that contacts only addresses that `policy` allows; `None` if a certificate is invalid.
pub(super) fn client(config: &HttpConfig, policy: AddressPolicy) -> Option<reqwest::Client> {
    let builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .dns_resolver(std::sync::Arc::new(policy));
    #[cfg(feature = "tls")]
    let builder = builder.tls_certs_merge(authorities(config)?);
    #[cfg(not(feature = "tls"))]
    let _ = config;
    builder.build().ok()
}

#[cfg(feature = "tls")]
fn authorities(config: &HttpConfig) -> Option<Vec<reqwest::Certificate>> {
    let mut all = Vec::new();
    for pem in &config.authorities {
        let read = reqwest::Certificate::from_pem_bundle(pem).ok()?;
        if read.is_empty() {
            return None;
        }
        all.extend(read);
    }
    Some(all)
}

/// Rejects invalid and insecure URLs, and headers that cannot be sent.
pub(super) fn check(name: &str, config: &HttpConfig) -> Result<(), SpecError> {
    let name = name.to_owned();
    let Some(url) = address::parse_http_url(&config.url) else {
        return Err(SpecError::Url(name));
    };
    if address::is_insecure(&url) {
        return Err(SpecError::Insecure(name));
    }
    #[cfg(not(feature = "tls"))]
    if url.scheme() == "https" {
        return Err(SpecError::Tls(name));
    }
    #[cfg(feature = "tls")]
    let policy = AddressPolicy::Configured(Zone::of_url(&url));
    #[cfg(feature = "tls")]
    if !config.authorities.is_empty() && client(config, policy).is_none() {
        return Err(SpecError::Certificate(name));
    }
    let mut headers = config.headers.iter();
    match headers.find(|(header, value)| !is_sendable(header, value)) {
        None => Ok(()),
        Some((header, _)) => Err(SpecError::Header {
            server: name,
            header: bailiwick::text::escape(header).into(),
        }),
    }
}

/// Whether a header is valid and not reserved for the transport.
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn http_threads_are_independent_and_end_with_their_connection() {
        let (busy, idle) = (HttpThread::start().unwrap(), HttpThread::start().unwrap());
        let (release, released) = mpsc::channel::<()>();
        let blocked = busy.runtime.spawn(async move { released.recv().is_err() });
        assert!(idle.runtime.spawn(async { true }).await.unwrap());
        drop(release);
        assert!(blocked.await.unwrap());
        let pending = idle.runtime.spawn(std::future::pending::<()>());
        drop(idle);
        assert!(pending.await.unwrap_err().is_cancelled());
    }
}
