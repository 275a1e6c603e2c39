//! Tests of HTTPS servers.

use super::oauth_server::{Behavior, OAuthServer};
use axum::serve::Listener;
use bailiwick_mcp::upstream::{ServerFailure, ServerSpec, ServerState, SpecError, Upstreams};
use bailiwick_test_support::certificates;
use bailiwick_test_support::upstream::start;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

struct Encrypted(TcpListener, TlsAcceptor);

impl Listener for Encrypted {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, from) = self.0.accept().await.unwrap();
            // Clients that do not trust it end the handshake.
            if let Ok(stream) = self.1.accept(stream).await {
                return (stream, from);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

/// An authority of its own: as PEM, and a server for `name` that it certified.
async fn certified_server(name: &str) -> (String, OAuthServer) {
    let (authority, acceptor) = certificates::issue(name);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = OAuthServer::at(
        format!("https://localhost:{port}"),
        Behavior {
            open: true,
            ..Behavior::default()
        },
    );
    let listener = Encrypted(listener, acceptor);
    let router = server.router();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (authority, server)
}

/// How the server fares; one that is not connected failed for its certificate.
async fn state(spec: ServerSpec) -> ServerState {
    let upstreams = start([spec]).await;
    let state = upstreams.state("remote").unwrap();
    let failure = upstreams.failure("remote");
    if state == ServerState::Ready {
        assert_eq!(failure, None);
    } else {
        assert!(
            matches!(failure, Some(ServerFailure::Tls(_))),
            "{failure:?}"
        );
    }
    state
}

#[tokio::test]
async fn https_server_needs_a_trusted_certificate() {
    let (authority, server) = certified_server("localhost").await;
    let spec = ServerSpec::http("remote", server.url());
    assert_eq!(
        state(spec.clone().authority(authority.clone())).await,
        ServerState::Ready
    );
    assert_ne!(state(spec.clone()).await, ServerState::Ready);
    let (other, _) = certified_server("localhost").await;
    assert_ne!(state(spec.authority(other)).await, ServerState::Ready);
    // One that is certified under another name.
    let (authority, server) = certified_server("other.example").await;
    let spec = ServerSpec::http("remote", server.url()).authority(authority);
    assert_ne!(state(spec).await, ServerState::Ready);
}

#[tokio::test]
async fn invalid_certificate_is_rejected_at_start() {
    let empty = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for pem in ["no PEM", "", empty] {
        let spec = ServerSpec::http("remote", "https://localhost:1").authority(pem);
        let refused = Upstreams::builder().server(spec).start().await.map(|_| ());
        assert_eq!(refused, Err(SpecError::Certificate("remote".into())));
    }
}
