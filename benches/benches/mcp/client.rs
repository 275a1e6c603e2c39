//! A minimal MCP client with little overhead: one request at a time, over a stream or HTTP.

use std::io;
use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream, DuplexStream};
use tokio::net::TcpStream;

/// A connection after the handshake.
pub(crate) enum Client {
    /// One message per line.
    Lines(BufStream<DuplexStream>),
    /// Streamable HTTP.
    Http {
        stream: BufStream<TcpStream>,
        address: SocketAddr,
        session: Option<String>,
    },
}

/// The head of a response.
#[derive(Default)]
struct Head {
    length: usize,
    is_chunked: bool,
    session: Option<String>,
}

impl Client {
    /// Connects to a server at the other end of `stream`.
    pub(crate) async fn lines(stream: DuplexStream) -> io::Result<Self> {
        Self::Lines(BufStream::new(stream)).initialize().await
    }

    /// Connects to a server at `/mcp`.
    pub(crate) async fn http(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let client = Self::Http {
            stream: BufStream::new(stream),
            address,
            session: None,
        };
        client.initialize().await
    }

    async fn initialize(mut self) -> io::Result<Self> {
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "bench", "version": "0" },
        });
        self.request("initialize", &params).await?;
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        self.send(&note).await?;
        if let Self::Http { .. } = self {
            self.read().await?;
        }
        Ok(self)
    }

    /// Sends a request and returns its result.
    ///
    /// # Errors
    /// If the connection fails, or the response is an error.
    pub(crate) async fn request(&mut self, method: &str, params: &Value) -> io::Result<Value> {
        self.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
            .await?;
        let text = self.read().await?;
        let mut response: Value = serde_json::from_str(&text)?;
        match response.get_mut("result") {
            Some(result) => Ok(result.take()),
            None => Err(io::Error::other(text)),
        }
    }

    async fn send(&mut self, message: &Value) -> io::Result<()> {
        match self {
            Self::Lines(stream) => {
                stream.write_all(format!("{message}\n").as_bytes()).await?;
                stream.flush().await
            }
            Self::Http {
                stream,
                address,
                session,
            } => {
                let body = message.to_string();
                let session = session.as_ref().map_or_else(String::new, |session| {
                    format!("mcp-session-id: {session}\r\nmcp-protocol-version: 2025-06-18\r\n")
                });
                let request = format!(
                    "POST /mcp HTTP/1.1\r\nhost: {address}\r\naccept: application/json, text/event-stream\r\n\
                     content-type: application/json\r\n{session}content-length: {}\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(request.as_bytes()).await?;
                stream.flush().await
            }
        }
    }

    /// Reads a response, which is JSON or the last event of a stream.
    async fn read(&mut self) -> io::Result<String> {
        match self {
            Self::Lines(stream) => {
                let mut line = String::new();
                stream.read_line(&mut line).await?;
                Ok(line)
            }
            Self::Http {
                stream, session, ..
            } => {
                let head = read_head(stream).await?;
                if head.session.is_some() {
                    *session = head.session;
                }
                let body = if head.is_chunked {
                    let mut body = Vec::new();
                    loop {
                        let size = read_line(stream).await?;
                        let size =
                            usize::from_str_radix(size.trim_end(), 16).map_err(io::Error::other)?;
                        body.extend(read_bytes(stream, size).await?);
                        read_line(stream).await?;
                        if size == 0 {
                            break body;
                        }
                    }
                } else {
                    read_bytes(stream, head.length).await?
                };
                let body = String::from_utf8(body).map_err(io::Error::other)?;
                let mut events = body.lines().filter_map(|line| line.strip_prefix("data: "));
                Ok(events.next_back().unwrap_or(&body).to_owned())
            }
        }
    }
}

async fn read_line(stream: &mut BufStream<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    match stream.read_line(&mut line).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line),
    }
}

async fn read_bytes(stream: &mut BufStream<TcpStream>, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn read_head(stream: &mut BufStream<TcpStream>) -> io::Result<Head> {
    let status = read_line(stream).await?;
    if !status.starts_with("HTTP/1.1 2") {
        return Err(io::Error::other(status));
    }
    let mut head = Head::default();
    loop {
        let line = read_line(stream).await?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            return Ok(head);
        };
        match name {
            "content-length" => head.length = value.parse().map_err(io::Error::other)?,
            "transfer-encoding" => head.is_chunked = value == "chunked",
            "mcp-session-id" => head.session = Some(value.to_owned()),
            _ => {}
        }
    }
}
