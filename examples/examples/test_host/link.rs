//! A pair of byte streams in, a pair of channels of messages out: one message a line.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The longest line that is read.
const MOST_LINE: u64 = 8 << 20;
/// How many messages wait to be read.
const MOST_WAITING: usize = 16;
/// How long a server has to end by itself.
const GRACE: Duration = Duration::from_secs(3);

/// What comes from a server.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A message.
    Message(Value),
    /// Something that is no message, and why.
    Broken { text: String, fault: String },
    /// A request that could not be sent or was not answered.
    Failed { id: Value, reason: String },
    /// A line of its standard error.
    Said(String),
    /// The server is gone.
    Ended(String),
}

/// A connection to a server.
pub(crate) struct Link {
    pub(crate) outgoing: mpsc::UnboundedSender<Value>,
    pub(crate) incoming: mpsc::Receiver<Incoming>,
    pub(crate) tasks: JoinSet<()>,
}

impl Link {
    /// A connection whose ends `tasks` will serve.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Value>, mpsc::Sender<Incoming>) {
        let (outgoing, sent) = mpsc::unbounded_channel();
        let (received, incoming) = mpsc::channel(MOST_WAITING);
        let link = Self {
            outgoing,
            incoming,
            tasks: JoinSet::new(),
        };
        (link, sent, received)
    }

    /// Speaks lines over these streams.
    pub(crate) fn lines<R, W>(reader: R, writer: W) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (mut link, sent, received) = Self::new();
        link.tasks.spawn(write(writer, sent));
        link.tasks.spawn(async move {
            let reason = read(reader, &received).await;
            // Nobody listens any more if it fails.
            let _ = received.send(Incoming::Ended(reason)).await;
        });
        link
    }
}

/// Waits until the tasks have ended, which they do once nobody sends or listens; then what is left of them ends.
pub(crate) async fn end(mut tasks: JoinSet<()>) {
    let ended = async { while tasks.join_next().await.is_some() {} };
    if timeout(GRACE, ended).await.is_err() {
        tasks.shutdown().await;
    }
}

/// Writes messages until nobody sends any.
pub(crate) async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut sent: mpsc::UnboundedReceiver<Value>,
) {
    while let Some(message) = sent.recv().await {
        let line = format!("{message}\n");
        let written = writer.write_all(line.as_bytes()).await;
        if written.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
    // A server that is gone already has closed it.
    let _ = writer.shutdown().await;
}

/// Reads messages until there are no more; why.
pub(crate) async fn read(
    reader: impl AsyncRead + Unpin,
    received: &mpsc::Sender<Incoming>,
) -> String {
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        let mut piece = (&mut reader).take(MOST_LINE);
        match piece.read_until(b'\n', &mut line).await {
            Err(error) => return format!("the connection broke: {error}"),
            Ok(0) => return "the server closed the connection".to_owned(),
            Ok(_) if !line.ends_with(b"\n") && piece.limit() == 0 => {
                return "the server sent a line that is too long".to_owned();
            }
            Ok(_) if line.trim_ascii().is_empty() => {}
            Ok(_) => {
                if received.send(understood(&line)).await.is_err() {
                    return "the host closed the connection".to_owned();
                }
            }
        }
    }
}

/// Text as a message, if it is one.
pub(crate) fn understood(text: &[u8]) -> Incoming {
    match serde_json::from_slice(text) {
        Ok(message) => Incoming::Message(message),
        Err(error) => Incoming::Broken {
            text: String::from_utf8_lossy(text).trim_end().to_owned(),
            fault: format!("it is no JSON: {error}"),
        },
    }
}
