//! Standard input and output without blocking threads.
//!
//! tokio reads and writes the standard streams on threads of its blocking pool, which costs more than the work of a
//! short request. Pipes and sockets need no thread, but must not block. Their open file descriptions may be shared with
//! other processes, and so would be `O_NONBLOCK`: a pipe is therefore opened again by its path in `/proc`, which makes
//! a description of our own. A socket cannot be opened again, so it is set to blocking again at the end. Everything
//! else, such as a terminal or a file, is left to tokio.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::fs::{FileType, OFlags, Stat, fcntl_getfl, fstat};
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// The first message of at least this size makes the pipe larger, so that large messages need fewer switches between the
/// processes. Until then the pipe stays small, since small messages are faster in a small pipe.
const LARGE_MESSAGE: usize = 512 * 1024;
/// Size of such a pipe.
const LARGE_PIPE: usize = 256 * 1024;

pub(super) type Input = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Standard input. Must be called within a tokio runtime.
pub(super) fn input() -> Input {
    let stdin = io::stdin();
    match kind(stdin.as_fd()) {
        Some(FileType::Fifo) => match pipe::OpenOptions::new().open_receiver("/proc/self/fd/0") {
            Ok(pipe) => Box::new(pipe),
            Err(_) => Box::new(tokio::io::stdin()),
        },
        Some(FileType::Socket) => match Socket::new(stdin.as_fd()) {
            Ok(socket) => Box::new(socket),
            Err(_) => Box::new(tokio::io::stdin()),
        },
        _ => Box::new(tokio::io::stdin()),
    }
}

/// Standard output. Must be called within a tokio runtime.
pub(super) fn output() -> Output {
    let stdout = io::stdout();
    match kind(stdout.as_fd()) {
        Some(FileType::Fifo) => match pipe::OpenOptions::new().open_sender("/proc/self/fd/1") {
            Ok(pipe) => Box::new(OutputPipe {
                pipe,
                had_large_message: false,
            }),
            Err(_) => Box::new(tokio::io::stdout()),
        },
        Some(FileType::Socket) => match Socket::new(stdout.as_fd()) {
            Ok(socket) => Box::new(socket),
            Err(_) => Box::new(tokio::io::stdout()),
        },
        _ => Box::new(tokio::io::stdout()),
    }
}

/// The kind of a stream. A stream that is also standard error is of no kind, since the log is written in blocking mode.
fn kind(fd: BorrowedFd<'_>) -> Option<FileType> {
    let stat = fstat(fd).ok()?;
    let identity = |stat: &Stat| (stat.st_dev, stat.st_ino);
    let stderr = fstat(io::stderr()).ok();
    let is_stderr = stderr.is_some_and(|stderr| identity(&stderr) == identity(&stat));
    (!is_stderr).then(|| FileType::from_raw_mode(stat.st_mode))
}

/// A pipe that becomes larger with the first large message.
struct OutputPipe {
    pipe: pipe::Sender,
    /// Whether it was made larger, or could not be.
    had_large_message: bool,
}

impl OutputPipe {
    fn before_writing(&mut self, bytes: usize) {
        if bytes >= LARGE_MESSAGE && !self.had_large_message {
            self.had_large_message = true;
            if fcntl_getpipe_size(&self.pipe).is_ok_and(|size| size < LARGE_PIPE) {
                // Where users may not have larger pipes, messages only take longer.
                let _ = fcntl_setpipe_size(&self.pipe, LARGE_PIPE);
            }
        }
    }
}

impl AsyncWrite for OutputPipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.before_writing(bytes.len());
        Pin::new(&mut self.pipe).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.before_writing(slices.iter().map(|slice| slice.len()).sum());
        Pin::new(&mut self.pipe).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.pipe.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}

/// A socket that does not block until it is dropped.
struct Socket {
    stream: UnixStream,
    was_blocking: bool,
}

impl Socket {
    fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let was_blocking = !fcntl_getfl(fd)?.contains(OFlags::NONBLOCK);
        let stream = StdUnixStream::from(fd.try_clone_to_owned()?);
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream: UnixStream::from_std(stream)?,
            was_blocking,
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.was_blocking {
            // If it fails, nobody else can use the socket either.
            let _ = rustix::io::ioctl_fionbio(&self.stream, false);
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Other processes may use the socket. The client sees the end when the last descriptor is closed.
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Sends a message through a pipe of `size` bytes. Returns the size of the pipe after that.
    async fn size_after(size: usize, message: usize) -> usize {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let size = fcntl_setpipe_size(&writer, size).unwrap();
        let mut reader = pipe::Receiver::from_owned_fd(reader).unwrap();
        let mut output = OutputPipe {
            pipe: pipe::Sender::from_owned_fd(writer).unwrap(),
            had_large_message: false,
        };
        let sent = vec![7; message];
        let mut received = vec![0; message];
        let (first, second) = sent.split_at(message / 2);
        let mut slices = [IoSlice::new(first), IoSlice::new(second)];
        let write = async {
            let mut rest = &mut slices[..];
            while !rest.is_empty() {
                let written = output.write_vectored(rest).await.unwrap();
                IoSlice::advance_slices(&mut rest, written);
            }
        };
        let ((), read) = tokio::join!(write, reader.read_exact(&mut received));
        read.unwrap();
        assert_eq!(received, sent);
        let after = fcntl_getpipe_size(&output.pipe).unwrap();
        assert!(after >= size);
        after
    }

    #[tokio::test]
    async fn only_a_large_message_makes_a_small_pipe_larger() {
        assert_eq!(size_after(64 << 10, 2 << 20).await, LARGE_PIPE);
        assert_eq!(size_after(64 << 10, 100 << 10).await, 64 << 10);
        assert_eq!(size_after(512 << 10, 2 << 20).await, 512 << 10);
    }
}
