//! Servers by HTTPS in, those whose certificate counts out.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::serve::Listener;
use bailiwick::{ServerFailure, ServerSpec, ServerState, SpecError, Upstreams};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::server::TlsStream;

use super::support::started;
use super::town::{Town, Ways};

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
async fn certified(name: &str) -> (String, Town) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([name.to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let town = Town::at(
        format!("https://localhost:{port}"),
        Ways {
            open: true,
            ..Ways::default()
        },
    );
    let listener = Encrypted(listener, TlsAcceptor::from(Arc::new(config)));
    let router = town.router();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (authority.pem(), town)
}

/// How the server fares; one that is not connected failed for its certificate.
async fn state(spec: ServerSpec) -> ServerState {
    let upstreams = started([spec]).await;
    let state = upstreams.state("town").unwrap();
    let failure = upstreams.failure("town");
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
async fn a_server_is_reached_by_https_if_its_certificate_counts() {
    let (authority, town) = certified("localhost").await;
    let spec = ServerSpec::http("town", town.url());
    assert_eq!(
        state(spec.clone().authority(authority.clone())).await,
        ServerState::Ready
    );
    assert_ne!(state(spec.clone()).await, ServerState::Ready);
    let (other, _) = certified("localhost").await;
    assert_ne!(state(spec.authority(other)).await, ServerState::Ready);
    // One that is certified under another name.
    let (authority, town) = certified("other.example").await;
    let spec = ServerSpec::http("town", town.url()).authority(authority);
    assert_ne!(state(spec).await, ServerState::Ready);
}

#[tokio::test]
async fn what_is_no_certificate_is_refused_before_anything_starts() {
    let empty = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for pem in ["no PEM", "", empty] {
        let spec = ServerSpec::http("town", "https://localhost:1").authority(pem);
        let refused = Upstreams::builder().server(spec).start().await.map(|_| ());
        assert_eq!(refused, Err(SpecError::Certificate("town".into())));
    }
}
