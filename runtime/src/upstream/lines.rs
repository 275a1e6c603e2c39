//! A reader that limits the length of lines.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use super::failure::ServerFailure;
use super::line::Line;

/// A reader that fails at a line of more than `most` bytes and ends the connection. A message that was passed over without a
/// word would leave its caller waiting; a connection that ends answers everybody.
#[derive(Debug)]
pub(super) struct Lines<R> {
    inner: R,
    most: usize,
    line: Arc<Line>,
    /// Bytes since the last line break.
    run: usize,
}

impl<R> Lines<R> {
    pub(super) fn new(inner: R, most: usize, line: &Arc<Line>) -> Self {
        Self {
            inner,
            most,
            line: Arc::clone(line),
            run: 0,
        }
    }

    fn count(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let first = lines.next().unwrap_or_default();
        self.run += first.len();
        let mut longest = self.run;
        for line in lines {
            self.run = line.len();
            longest = longest.max(line.len());
        }
        if longest > self.most {
            self.line.end(ServerFailure::MessageTooLarge);
            return Err(io::Error::other("a message of the server is too long"));
        }
        Ok(())
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Lines<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(context, buf))?;
        let fresh = buf.filled().get(before..).unwrap_or_default();
        let counted = this.count(fresh);
        if counted.is_err() {
            // A read that fails has read nothing.
            buf.set_filled(before);
        }
        Poll::Ready(counted)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn check(text: &str, fits: bool) {
        // One byte at a time, and all at once.
        for step in [1, text.len().max(1)] {
            let (mut ours, theirs) = tokio::io::duplex(step);
            let text = text.to_owned();
            let expected = text.clone();
            let writer = tokio::spawn(async move {
                tokio::io::AsyncWriteExt::write_all(&mut ours, text.as_bytes()).await
            });
            let mut read = String::new();
            let line = Arc::default();
            let end = Lines::new(theirs, 4, &line).read_to_string(&mut read).await;
            assert_eq!(end.is_ok(), fits, "{expected:?}");
            let cause = (!fits).then_some(ServerFailure::MessageTooLarge);
            assert_eq!(line.end_cause(), cause, "{expected:?}");
            if fits {
                writer.await.unwrap().unwrap();
                assert_eq!(read, expected);
            }
        }
    }

    #[tokio::test]
    async fn a_line_may_be_as_long_as_it_may_and_no_longer() {
        check("1234\n1234\n", true).await;
        check("", true).await;
        check("\n\n\n\n\n\n", true).await;
        check("1234", true).await;
        check("12345\n", false).await;
        check("1\n12345", false).await;
        check("12345", false).await;
    }
}
