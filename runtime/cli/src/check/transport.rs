//! A connection as two channels of JSON messages, and the stdio framing.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The maximum size of a message, in bytes.
pub(super) const MAX_MESSAGE: usize = 4 << 20;
/// The capacities of the channels.
const MAX_INCOMING: usize = 4;
const MAX_OUTGOING: usize = 64;
/// The maximum number of bytes that are kept of an invalid message.
const MAX_INVALID: usize = 4 << 10;
/// How long to wait for a server to exit after the connection is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// The reason for connections that the server closed.
pub(super) const CLOSED: &str = "the server closed the connection";

/// Events from the server.
#[derive(Debug)]
pub(super) enum Incoming {
    /// A message.
    Message(Value),
    /// Data that is not a message, and why.
    Invalid { text: String, fault: String },
    /// The request with this id failed, perhaps with an HTTP status.
    Failed {
        id: Value,
        status: Option<u16>,
        reason: String,
    },
    /// A line of the server's standard error.
    Stderr(String),
    /// The connection has ended.
    Ended(String),
}

/// A connection to a server.
pub(super) struct Transport {
    pub(super) outgoing: mpsc::Sender<Value>,
    pub(super) incoming: mpsc::Receiver<Incoming>,
    pub(super) tasks: JoinSet<()>,
}

impl Transport {
    /// Creates the channels. Returns the other ends for the tasks.
    pub(super) fn new() -> (Self, mpsc::Receiver<Value>, mpsc::Sender<Incoming>) {
        let (outgoing, to_send) = mpsc::channel(MAX_OUTGOING);
        let (received, incoming) = mpsc::channel(MAX_INCOMING);
        let transport = Self {
            outgoing,
            incoming,
            tasks: JoinSet::new(),
        };
        (transport, to_send, received)
    }
}

/// Connects to the server `serving` through `stream`.
pub(super) fn in_process(
    stream: DuplexStream,
    serving: impl Future<Output = Result<(), Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
) -> Transport {
    let (mut transport, to_send, received) = Transport::new();
    let (reader, writer) = tokio::io::split(stream);
    transport.tasks.spawn(write(writer, to_send));
    transport.tasks.spawn(async move {
        let (served, closed) = tokio::join!(serving, read(reader, &received));
        let reason = match (served, closed) {
            (Err(failure), _) => format!("the server failed: {failure}"),
            (Ok(()), Err(reason)) => reason,
            (Ok(()), Ok(())) => CLOSED.to_owned(),
        };
        // The receiver may be dropped.
        let _ = received.send(Incoming::Ended(reason)).await;
    });
    transport
}

/// Waits for the tasks to end after the channels are closed, and aborts them after a timeout.
pub(super) async fn end(mut tasks: JoinSet<()>) {
    let ended = async { while tasks.join_next().await.is_some() {} };
    if timeout(CLOSE_TIMEOUT, ended).await.is_err() {
        tasks.shutdown().await;
    }
}

/// Writes messages until the channel is closed, then closes the stream.
pub(super) async fn write(mut writer: impl AsyncWrite + Unpin, mut to_send: mpsc::Receiver<Value>) {
    while let Some(message) = to_send.recv().await {
        let line = format!("{message}\n");
        let written = writer.write_all(line.as_bytes()).await;
        if written.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
    // The server may have closed it.
    let _ = writer.shutdown().await;
}

/// Reads messages until the end of the stream. Returns an error if reading stopped earlier.
pub(super) async fn read(
    reader: impl AsyncRead + Unpin,
    received: &mpsc::Sender<Incoming>,
) -> Result<(), String> {
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut reader).take(MAX_MESSAGE as u64);
        match bounded.read_until(b'\n', &mut line).await {
            Err(error) => return Err(format!("the connection failed: {error}")),
            Ok(0) => return Ok(()),
            Ok(_) if !line.ends_with(b"\n") && bounded.limit() == 0 => {
                return Err(format!(
                    "the server sent a line of more than {MAX_MESSAGE} bytes"
                ));
            }
            Ok(_) if line.trim_ascii().is_empty() => {}
            Ok(_) => {
                if received.send(parse(&line)).await.is_err() {
                    return Err("the connection was closed".to_owned());
                }
            }
        }
    }
}

/// Parses a message.
pub(super) fn parse(text: &[u8]) -> Incoming {
    match serde_json::from_slice(text) {
        Ok(message) => Incoming::Message(message),
        Err(error) => {
            let start = text.get(..MAX_INVALID).unwrap_or(text);
            Incoming::Invalid {
                text: String::from_utf8_lossy(start).trim_end().to_owned(),
                fault: format!("invalid JSON: {error}"),
            }
        }
    }
}
