//! A worker in, a server of its own for a sub-agent in any language out; it closes when the worker is revoked.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::http::Http;
use super::token::Token;
use super::{About, FileTools, Gateway};
use crate::worker::Worker;

/// Where a worker is served: by HTTP on this machine alone, and at a socket for clients that speak over stdio.
///
/// It closes when it is dropped and when the worker is revoked. Whoever has the token or can open the socket speaks
/// to the worker as its agent: it may narrow and nothing else.
#[derive(Debug)]
pub struct Endpoint {
    url: String,
    token: Token,
    socket: Arc<Socket>,
    _open: DropGuard,
}

impl Endpoint {
    /// Where it is served over Streamable HTTP.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What a client sends there as bearer.
    #[must_use]
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// The socket where one message a line is spoken; `bailiwick-fs --attach SOCKET` joins it to stdio.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket.path
    }
}

impl Worker {
    /// Serves this worker to its agent.
    ///
    /// # Errors
    /// The system's, if it gives no port, no socket or no random bits.
    pub async fn endpoint(&self, about: About, files: Option<FileTools>) -> io::Result<Endpoint> {
        let mut gateway = Gateway::worker(self, about);
        if let Some(files) = files {
            gateway = gateway.files(files);
        }
        let gateway = gateway.build();
        let token = Token::random().map_err(io::Error::other)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}/mcp", listener.local_addr()?);
        let socket = Arc::new(Socket::new()?);
        let stream = UnixListener::bind(&socket.path)?;
        let stop = CancellationToken::new();
        let http = Http::new().token(token.clone());
        tokio::spawn(listen(gateway.clone(), listener, http, stop.clone()));
        tokio::spawn(accept(gateway, stream, Arc::clone(&socket), stop.clone()));
        tokio::spawn(close_with(self.clone(), stop.clone()));
        Ok(Endpoint {
            url,
            token,
            socket,
            _open: stop.drop_guard(),
        })
    }
}

async fn listen(gateway: Gateway, listener: TcpListener, http: Http, stop: CancellationToken) {
    if let Err(error) = gateway.serve_http(listener, http, stop.clone()).await {
        tracing::warn!(%error, "an endpoint closed");
    }
    stop.cancel();
}

/// Serves each connection to the socket until the endpoint closes.
async fn accept(
    gateway: Gateway,
    stream: UnixListener,
    _socket: Arc<Socket>,
    stop: CancellationToken,
) {
    loop {
        let connection = tokio::select! {
            connection = stream.accept() => connection,
            () = stop.cancelled() => return,
        };
        let Ok((client, _)) = connection else {
            // Most likely no descriptor is free; the next client may find one.
            tokio::task::yield_now().await;
            continue;
        };
        let (gateway, stop) = (gateway.clone(), stop.clone());
        tokio::spawn(async move {
            let (reader, writer) = client.into_split();
            tokio::select! {
                served = gateway.serve(reader, writer) => {
                    if let Err(error) = served {
                        tracing::debug!(%error, "a client went before it began");
                    }
                }
                () = stop.cancelled() => {}
            }
        });
    }
}

async fn close_with(worker: Worker, stop: CancellationToken) {
    tokio::select! {
        () = worker.revoked() => stop.cancel(),
        () = stop.cancelled() => {}
    }
}

/// A socket in a directory that only this user may enter.
#[derive(Debug)]
struct Socket {
    directory: PathBuf,
    path: PathBuf,
}

impl Socket {
    fn new() -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;

        let name = Token::random().map_err(io::Error::other)?;
        let name = name.reveal().get(..32).unwrap_or_default();
        let directory = std::env::temp_dir().join(format!("bailiwick-{name}"));
        std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
        let path = directory.join("worker.sock");
        Ok(Self { directory, path })
    }
}

impl Drop for Socket {
    #[expect(
        clippy::disallowed_methods,
        reason = "the socket is this library's own, and no root holds it"
    )]
    fn drop(&mut self) {
        // What is not there any more needs no removal.
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_dir(&self.directory);
    }
}
