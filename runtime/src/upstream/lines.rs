//! What a server writes in, the same out, until a line is longer than any message may be.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// A reader that fails at a line of more than `most` bytes. A message that was passed over without a word would leave
/// its caller waiting; a connection that ends answers everybody.
#[derive(Debug)]
pub(super) struct Lines<R> {
    inner: R,
    most: usize,
    /// Bytes since the last line break.
    run: usize,
}

impl<R> Lines<R> {
    pub(super) fn new(inner: R, most: usize) -> Self {
        Self {
            inner,
            most,
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
            let end = Lines::new(theirs, 4).read_to_string(&mut read).await;
            assert_eq!(end.is_ok(), fits, "{expected:?}");
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
