//! Serves one worker to one agent, over HTTP and a Unix socket.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::http::Http;
use super::{FileTools, Gateway, GatewayInfo};
use bailiwick::worker::Worker;
use bailiwick_http::{Token, accept_next};

/// Maximum number of clients of a socket.
const MAX_CLIENTS: usize = 64;

/// A server for one worker: over HTTP on the loopback address, and on a Unix socket for stdio clients.
///
/// It closes when it is dropped or the worker is revoked. Clients with the token or access to the socket have the
/// agent's trust ([`Trust::Agent`](super::Trust::Agent)). All clients share one rate limit.
#[derive(Debug)]
pub struct Endpoint {
    url: String,
    token: Token,
    socket: Arc<Socket>,
    _open: DropGuard,
}

impl Endpoint {
    /// URL of the Streamable HTTP server.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Bearer token for the HTTP server.
    #[must_use]
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Path of the socket, with one message per line; `bailiwick serve --attach SOCKET` connects it to stdio.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket.path
    }
}

impl Endpoint {
    /// Serves `worker` to its agent.
    ///
    /// # Errors
    /// The operating system has no port, socket or random bytes.
    pub async fn open(
        worker: &Worker,
        info: GatewayInfo,
        files: Option<FileTools>,
    ) -> io::Result<Self> {
        let mut gateway = Gateway::worker(worker, info);
        if let Some(files) = files {
            gateway = gateway.files(files);
        }
        let gateway = gateway.build();
        let token = Token::random()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}/mcp", listener.local_addr()?);
        let socket = Arc::new(Socket::new()?);
        let stream = UnixListener::bind(&socket.path)?;
        let stop = CancellationToken::new();
        let http = Http::new(token.clone());
        tokio::spawn(listen(gateway.clone(), listener, http, stop.clone()));
        tokio::spawn(accept(gateway, stream, Arc::clone(&socket), stop.clone()));
        let (worker, stop_on_revoke) = (worker.clone(), stop.clone());
        tokio::spawn(async move {
            let revoked = stop_on_revoke.run_until_cancelled(worker.revoked());
            revoked.await;
            stop_on_revoke.cancel();
        });
        Ok(Self {
            url,
            token,
            socket,
            _open: stop.drop_guard(),
        })
    }
}

async fn listen(gateway: Gateway, listener: TcpListener, http: Http, stop: CancellationToken) {
    if let Err(error) = gateway.serve_http(listener, http, stop.cancelled()).await {
        tracing::warn!(%error, "an endpoint closed");
    }
    stop.cancel();
}

/// Accepts connections to the socket until the endpoint closes.
async fn accept(
    gateway: Gateway,
    stream: UnixListener,
    _socket: Arc<Socket>,
    stop: CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let accepting = accept_next(|cx| stream.poll_accept(cx));
        let Some((client, _)) = stop.run_until_cancelled(accepting).await else {
            return;
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            tracing::debug!("an endpoint hung up on a client: all its connections are taken");
            continue;
        };
        let (gateway, stop) = (gateway.request(), stop.clone());
        tokio::spawn(async move {
            let _permit = permit;
            let (reader, writer) = client.into_split();
            let serving = gateway.serve_lines(reader, writer, stop.clone());
            if let Some(Err(error)) = stop.run_until_cancelled(serving).await {
                tracing::debug!(%error, "a client went before it began");
            }
        });
    }
}

/// A socket in a directory that only this user can access.
#[derive(Debug)]
struct Socket {
    directory: PathBuf,
    path: PathBuf,
}

impl Socket {
    fn new() -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;

        let name = Token::random()?;
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
        reason = "the socket belongs to this library and is outside every root"
    )]
    fn drop(&mut self) {
        // It may have been removed already.
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_dir(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    use tokio::net::UnixStream;

    use super::*;
    use crate::gateway::Rate;
    use bailiwick::{Policy, Runtime, WorkerSpec};

    /// A socket whose clients may make that many calls an hour.
    async fn open(runtime: &Runtime, calls: u32) -> (Arc<Socket>, DropGuard) {
        let spec = WorkerSpec::new("agent").policy(Policy::new());
        let worker = runtime.spawn(spec).await.unwrap();
        let info = GatewayInfo {
            name: "test".into(),
            title: "Test".into(),
            version: "0".into(),
            instructions: String::new(),
        };
        let per = Duration::from_secs(3600);
        let gateway = Gateway::worker(&worker, info).rate(Rate { calls, per });
        let socket = Arc::new(Socket::new().unwrap());
        let stream = UnixListener::bind(&socket.path).unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(accept(
            gateway.build(),
            stream,
            Arc::clone(&socket),
            stop.clone(),
        ));
        (socket, stop.drop_guard())
    }

    async fn runtime() -> (Runtime, tempfile::TempDir) {
        let root = tempfile::tempdir().unwrap();
        let builder = Runtime::builder().root("r", root.path());
        (builder.build().await.unwrap().0, root)
    }

    /// Calls an unknown tool; `None` if the socket closed the connection.
    async fn call(client: &mut UnixStream) -> Option<Value> {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "none", "arguments": {}, "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        }});
        // The write fails if the connection was closed.
        let _ = client.write_all(format!("{request}\n").as_bytes()).await;
        let mut line = String::new();
        let _ = BufReader::new(client).read_line(&mut line).await;
        serde_json::from_str(&line).ok()
    }

    #[tokio::test]
    async fn connections_of_an_endpoint_share_one_rate() {
        let (runtime, _root) = runtime().await;
        let (socket, _open) = open(&runtime, 2).await;
        for code in ["UNKNOWN_TOOL", "UNKNOWN_TOOL", "RATE_LIMITED"] {
            let mut client = UnixStream::connect(&socket.path).await.unwrap();
            let answer = call(&mut client).await.unwrap();
            assert!(answer.to_string().contains(code), "{answer}");
        }
        let (other, _open) = open(&runtime, 2).await;
        let mut client = UnixStream::connect(&other.path).await.unwrap();
        let answer = call(&mut client).await.unwrap();
        assert!(answer.to_string().contains("UNKNOWN_TOOL"), "{answer}");
    }

    #[tokio::test]
    async fn connection_beyond_the_limit_is_closed() {
        let (runtime, _root) = runtime().await;
        let (socket, _open) = open(&runtime, 1000).await;
        let mut clients = Vec::new();
        for _ in 0..MAX_CLIENTS {
            clients.push(UnixStream::connect(&socket.path).await.unwrap());
        }
        let mut beyond = UnixStream::connect(&socket.path).await.unwrap();
        assert_eq!(beyond.read(&mut [0; 1]).await.unwrap(), 0);
        assert!(call(clients.last_mut().unwrap()).await.is_some());
        drop(clients);
        let served = async {
            loop {
                let mut client = UnixStream::connect(&socket.path).await.unwrap();
                if call(&mut client).await.is_some() {
                    break;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), served)
            .await
            .expect("a client that went leaves its place");
    }
}
