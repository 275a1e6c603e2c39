//! Tasks that send and receive the messages of a connection, and the stdio framing.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client::Inbox;

/// The maximum size of a message, in bytes.
pub(super) const MAX_MESSAGE: usize = 4 << 20;
/// How long to wait for a server to exit after the connection is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// The reason for connections that the server closed.
pub(super) const CLOSED: &str = "the server closed the connection";

/// Waits for the tasks to end after the channel is closed, and aborts them after a timeout.
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
pub(super) async fn read(reader: impl AsyncRead + Unpin, inbox: &Inbox) -> Result<(), String> {
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
            Ok(_) => inbox.on_text(&line),
        }
    }
}
