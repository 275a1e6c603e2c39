//! Tests with HTTPS servers.

use bailiwick_test_support::certificates;
use bailiwick_test_support::checks::{expected, outcomes};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::http::{Program, TOKEN};
use crate::support::{Place, command, run};

/// Passes on what comes by TLS to a server without it.
async fn forward(listener: TcpListener, acceptor: TlsAcceptor, to: String) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, to) = (acceptor.clone(), to.clone());
        tokio::spawn(async move {
            // A client that does not trust the certificate ends the handshake.
            let Ok(mut near) = acceptor.accept(stream).await else {
                return;
            };
            let mut far = TcpStream::connect(to).await.unwrap();
            let _ = copy_bidirectional(&mut near, &mut far).await;
        });
    }
}

#[tokio::test]
async fn own_program_passes_over_https_with_a_trusted_certificate() {
    let place = Place::new();
    let (authority, acceptor) = certificates::issue("localhost");
    let trusted = place.path().join("authority.pem");
    std::fs::write(&trusted, authority).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let name = format!("localhost:{}", listener.local_addr().unwrap().port());
    let program = Program::start(&place, &["--allow-host", &name]).await;
    let address = program.url.strip_prefix("http://").unwrap();
    let address = address.strip_suffix("/mcp").unwrap().to_owned();
    tokio::spawn(forward(listener, acceptor, address));

    let url = format!("https://{name}/mcp");
    let arguments = ["--url", &url, "--bearer-env", "TOKEN"];
    let with = run(command(&arguments)
        .env("TOKEN", TOKEN)
        .env("SSL_CERT_FILE", &trusted))
    .await;
    assert_eq!(with.code, 0, "{}{}", with.stdout, with.stderr);
    assert_eq!(outcomes(&with.report()), expected("pass", &[]));

    let (other, _) = certificates::issue("localhost");
    std::fs::write(&trusted, other).unwrap();
    let without = run(command(&arguments)
        .env("TOKEN", TOKEN)
        .env("SSL_CERT_FILE", &trusted))
    .await;
    assert_eq!((without.code, without.stdout.as_str()), (2, ""));
    assert!(without.stderr.contains("certificate"), "{}", without.stderr);
}
