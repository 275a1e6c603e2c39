//! Standard input and output without blocking threads.
//!
//! tokio reads and writes the standard streams on threads of its blocking pool, which costs more than the work of a
//! short request. Pipes and sockets need no thread, but must not block. Their open file descriptions may be shared with
//! other processes, and so would be `O_NONBLOCK`: a pipe is therefore opened again by its path in `/proc`, which makes
//! a description of our own. A socket cannot be opened again, so it is set to blocking again when the last of both
//! streams that is this socket is dropped. Everything else, such as a terminal or a file, is left to tokio.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::sync::Arc;
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

/// Standard input and output. Must be called within a tokio runtime.
pub(super) fn streams() -> (Input, Output) {
    let mut last = None;
    (input(&mut last), output(&mut last))
}

/// Standard input; `last` is the socket that was opened last.
fn input(last: &mut Option<Arc<NonBlocking>>) -> Input {
    let stdin = io::stdin();
    match kind(stdin.as_fd()) {
        Some(FileType::Fifo) => match pipe::OpenOptions::new().open_receiver("/proc/self/fd/0") {
            Ok(pipe) => Box::new(pipe),
            Err(_) => Box::new(tokio::io::stdin()),
        },
        Some(FileType::Socket) => match Socket::new(stdin.as_fd(), last) {
            Ok(socket) => Box::new(socket),
            Err(_) => Box::new(tokio::io::stdin()),
        },
        _ => Box::new(tokio::io::stdin()),
    }
}

/// Standard output; `last` is the socket that was opened last.
fn output(last: &mut Option<Arc<NonBlocking>>) -> Output {
    let stdout = io::stdout();
    match kind(stdout.as_fd()) {
        Some(FileType::Fifo) => match pipe::OpenOptions::new().open_sender("/proc/self/fd/1") {
            Ok(pipe) => Box::new(OutputPipe {
                pipe,
                had_large_message: false,
            }),
            Err(_) => Box::new(tokio::io::stdout()),
        },
        Some(FileType::Socket) => match Socket::new(stdout.as_fd(), last) {
            Ok(socket) => Box::new(socket),
            Err(_) => Box::new(tokio::io::stdout()),
        },
        _ => Box::new(tokio::io::stdout()),
    }
}

/// The kind of a stream. A stream that is also standard error is of no kind, since the log is written in blocking mode.
fn kind(fd: BorrowedFd<'_>) -> Option<FileType> {
    let stat = fstat(fd).ok()?;
    let stderr = fstat(io::stderr()).ok();
    let is_stderr = stderr.is_some_and(|stderr| identity(&stderr) == identity(&stat));
    (!is_stderr).then(|| FileType::from_raw_mode(stat.st_mode))
}

/// The device and the inode.
fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
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

/// A socket that does not block.
struct Socket {
    stream: UnixStream,
    _mode: Arc<NonBlocking>,
}

impl Socket {
    fn new(fd: BorrowedFd<'_>, last: &mut Option<Arc<NonBlocking>>) -> io::Result<Self> {
        let identity = identity(&fstat(fd)?);
        let mode = match last.take().filter(|last| last.identity == identity) {
            Some(shared) => shared,
            None => Arc::new(NonBlocking::new(fd.try_clone_to_owned()?, identity)?),
        };
        *last = Some(Arc::clone(&mode));
        Ok(Self {
            stream: UnixStream::from_std(StdUnixStream::from(fd.try_clone_to_owned()?))?,
            _mode: mode,
        })
    }
}

/// The mode of a socket that does not block until this is dropped.
struct NonBlocking {
    socket: OwnedFd,
    identity: (u64, u64),
    was_blocking: bool,
}

impl NonBlocking {
    fn new(socket: OwnedFd, identity: (u64, u64)) -> io::Result<Self> {
        let was_blocking = !fcntl_getfl(&socket)?.contains(OFlags::NONBLOCK);
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self {
            socket,
            identity,
            was_blocking,
        })
    }
}

impl Drop for NonBlocking {
    fn drop(&mut self) {
        if self.was_blocking {
            // If it fails, nobody else can use the socket either.
            let _ = rustix::io::ioctl_fionbio(&self.socket, false);
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
    async fn socket_blocks_again_when_the_last_stream_is_dropped() {
        let is_blocking =
            |socket: &StdUnixStream| !fcntl_getfl(socket).unwrap().contains(OFlags::NONBLOCK);
        let (one, other) = StdUnixStream::pair().unwrap();
        let mut last = None;
        let input = Socket::new(one.as_fd(), &mut last).unwrap();
        let output = Socket::new(one.try_clone().unwrap().as_fd(), &mut last).unwrap();
        let separate = Socket::new(other.as_fd(), &mut last).unwrap();
        drop(last);
        assert!(!is_blocking(&one) && !is_blocking(&other));
        drop(separate);
        assert!(!is_blocking(&one) && is_blocking(&other));
        drop(input);
        assert!(!is_blocking(&one));
        drop(output);
        assert!(is_blocking(&one));
    }

    #[tokio::test]
    async fn only_a_large_message_makes_a_small_pipe_larger() {
        assert_eq!(size_after(64 << 10, 2 << 20).await, LARGE_PIPE);
        assert_eq!(size_after(64 << 10, 100 << 10).await, 64 << 10);
        assert_eq!(size_after(512 << 10, 2 << 20).await, 512 << 10);
    }
}
