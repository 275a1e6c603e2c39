//! Bounded queue of messages to one client, and the task that writes them.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

/// Maximum bytes of queued messages other than rejections; a longer message is queued alone.
const MAX_QUEUED_BYTES: u32 = 1 << 20;
/// Maximum bytes of queued rejections. The limit is separate, so that a client that sends many requests before it reads
/// any answer still gets all rejections up to this limit.
const MAX_QUEUED_REJECTION_BYTES: u32 = 1 << 20;
/// No more lines are added to a write that has this many bytes.
const WRITE_THRESHOLD: usize = 64 << 10;
/// How long to wait for a client that reads nothing, after the connection has ended.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A queued line with its permit.
struct QueuedLine {
    text: Vec<u8>,
    _permit: QueuePermit,
}

/// Sender of the queue. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct OutgoingQueue {
    lines: mpsc::UnboundedSender<QueuedLine>,
    messages: Arc<Semaphore>,
    rejections: Arc<Semaphore>,
}

/// Queue space, released on drop.
pub(super) type QueuePermit = OwnedSemaphorePermit;

impl OutgoingQueue {
    /// Starts the task that writes to `writer`.
    pub(super) fn new<W>(writer: W) -> (Self, WriterTask)
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (lines, waiting) = mpsc::unbounded_channel();
        let (progress_tx, progress) = watch::channel(());
        let outgoing = Self {
            lines,
            messages: Arc::new(Semaphore::new(MAX_QUEUED_BYTES as usize)),
            rejections: Arc::new(Semaphore::new(MAX_QUEUED_REJECTION_BYTES as usize)),
        };
        let task = tokio::spawn(async move {
            if let Err(error) = write(waiting, writer, progress_tx).await {
                tracing::debug!(%error, "a client cannot be written to");
            }
        });
        (outgoing, WriterTask { task, progress })
    }

    /// Waits for queue space for a message of `bytes`.
    pub(super) async fn reserve(&self, bytes: usize) -> io::Result<QueuePermit> {
        reserve(&self.messages, bytes, MAX_QUEUED_BYTES).await
    }

    /// Waits for queue space for a rejection of `bytes`.
    pub(super) async fn reserve_for_rejection(&self, bytes: usize) -> io::Result<QueuePermit> {
        reserve(&self.rejections, bytes, MAX_QUEUED_REJECTION_BYTES).await
    }

    /// Queues a message. Fails if the client no longer reads.
    pub(super) fn send(&self, mut text: Vec<u8>, permit: QueuePermit) -> io::Result<()> {
        text.push(b'\n');
        let sent = self.lines.send(QueuedLine {
            text,
            _permit: permit,
        });
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Completes when the client no longer reads.
    pub(super) async fn closed(&self) {
        self.lines.closed().await;
    }
}

async fn reserve(semaphore: &Arc<Semaphore>, bytes: usize, max: u32) -> io::Result<QueuePermit> {
    let bytes = u32::try_from(bytes).unwrap_or(max).min(max);
    let permit = Arc::clone(semaphore).acquire_many_owned(bytes).await;
    permit.map_err(io::Error::other)
}

async fn write<W: AsyncWrite + Unpin>(
    mut waiting: mpsc::UnboundedReceiver<QueuedLine>,
    mut writer: W,
    progress_tx: watch::Sender<()>,
) -> io::Result<()> {
    while let Some(line) = waiting.recv().await {
        let mut bytes = line.text.len();
        let mut lines = vec![line];
        while bytes < WRITE_THRESHOLD
            && let Ok(line) = waiting.try_recv()
        {
            bytes += line.text.len();
            lines.push(line);
        }
        let mut slices: Vec<_> = lines.iter().map(|line| IoSlice::new(&line.text)).collect();
        let mut rest = slices.as_mut_slice();
        while !rest.is_empty() {
            let written = writer.write_vectored(rest).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut rest, written);
            progress_tx.send_replace(());
        }
        writer.flush().await?;
    }
    writer.shutdown().await
}

/// The task that writes to one client. It ends after the last [`OutgoingQueue`] is dropped.
#[derive(Debug)]
pub(super) struct WriterTask {
    task: JoinHandle<()>,
    progress: watch::Receiver<()>,
}

impl WriterTask {
    /// Waits until everything is written, or the client stops reading.
    pub(super) async fn wait(mut self) {
        loop {
            tokio::select! {
                biased;
                // The result only says whether the task panicked.
                _ = &mut self.task => return,
                moved = tokio::time::timeout(STALL_TIMEOUT, self.progress.changed()) => {
                    if moved.is_err() {
                        tracing::warn!("a client does not read; its last answers are dropped");
                        self.task.abort();
                    }
                }
            }
        }
    }
}
