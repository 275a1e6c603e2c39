//! A reader that limits the length of lines and the number of JSON values per line.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use super::connection_state::ConnectionState;
use super::failure::ServerFailure;

/// The largest number of JSON values in a message: numbers, strings, arrays, objects and their members. Parsed values
/// take much more memory than their text.
pub(super) const MAX_VALUES: usize = 50_000;

/// Counts JSON values before parsing, by commas and opening brackets outside of strings.
#[derive(Debug, Default)]
pub(super) struct ValueCounter {
    values: usize,
    in_string: bool,
    escaped: bool,
}

impl ValueCounter {
    pub(super) fn feed(&mut self, text: &[u8]) {
        for byte in text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b',' | b'[' | b'{' if !self.in_string => self.values += 1,
                _ => {}
            }
        }
    }

    pub(super) fn exceeds_limit(&self) -> bool {
        self.values > MAX_VALUES
    }
}

/// A reader that fails and ends the connection if a line is longer than `max_line_bytes` or has too many values.
/// Skipping such a message would leave its caller waiting; ending the connection fails all pending requests.
#[derive(Debug)]
pub(super) struct MaxLineReader<R> {
    inner: R,
    max_line_bytes: usize,
    state: Arc<ConnectionState>,
    /// Bytes since the last line break.
    line_bytes: usize,
    values: ValueCounter,
}

impl<R> MaxLineReader<R> {
    pub(super) fn new(inner: R, max_line_bytes: usize, state: &Arc<ConnectionState>) -> Self {
        Self {
            inner,
            max_line_bytes,
            state: Arc::clone(state),
            line_bytes: 0,
            values: ValueCounter::default(),
        }
    }

    fn count(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            self.line_bytes += text.len();
            self.values.feed(text);
            if self.line_bytes > self.max_line_bytes {
                self.state.end(ServerFailure::MessageTooLarge);
                return Err(io::Error::other("a message of the server is too long"));
            }
            if self.values.exceeds_limit() {
                self.state.end(ServerFailure::TooManyValues);
                return Err(io::Error::other(
                    "a message of the server has too many values",
                ));
            }
            if piece.ends_with(b"\n") {
                self.line_bytes = 0;
                self.values = ValueCounter::default();
            }
        }
        Ok(())
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for MaxLineReader<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(context, buf))?;
        let new_bytes = buf.filled().get(before..).unwrap_or_default();
        let counted = this.count(new_bytes);
        if counted.is_err() {
            // A failed read must not return bytes.
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
            let state = Arc::default();
            let end = MaxLineReader::new(theirs, 4, &state)
                .read_to_string(&mut read)
                .await;
            assert_eq!(end.is_ok(), fits, "{expected:?}");
            let cause = (!fits).then_some(ServerFailure::MessageTooLarge);
            assert_eq!(state.end_cause(), cause, "{expected:?}");
            if fits {
                writer.await.unwrap().unwrap();
                assert_eq!(read, expected);
            }
        }
    }

    #[tokio::test]
    async fn line_length_is_bounded() {
        check("1234\n1234\n", true).await;
        check("", true).await;
        check("\n\n\n\n\n\n", true).await;
        check("1234", true).await;
        check("12345\n", false).await;
        check("1\n12345", false).await;
        check("12345", false).await;
    }

    async fn ends_with(text: String) -> Option<ServerFailure> {
        let state = Arc::default();
        let mut read = String::new();
        let mut lines = MaxLineReader::new(text.as_bytes(), 1 << 20, &state);
        let end = lines.read_to_string(&mut read).await;
        assert_eq!(end.is_ok(), state.end_cause().is_none());
        state.end_cause()
    }

    #[tokio::test]
    async fn line_with_too_many_values_closes_the_connection() {
        let array = |count: usize| format!("[{}]", vec!["1"; count].join(","));
        let objects = |count: usize| format!("[{}]", vec!["{}"; count].join(","));
        let (fits, over) = (array(MAX_VALUES), array(MAX_VALUES + 1));
        assert_eq!(ends_with(format!("{fits}\n{fits}\n")).await, None);
        let cause = Some(ServerFailure::TooManyValues);
        for text in [
            over.clone(),
            format!("{fits}\n{over}\n"),
            objects(MAX_VALUES / 2 + 1),
        ] {
            assert_eq!(ends_with(text).await, cause);
        }
        assert_eq!(ends_with(objects(MAX_VALUES / 2)).await, None);
        // A string is one value, whatever it contains.
        let text = format!(r#"["\\\"{}"]"#, "[{,".repeat(MAX_VALUES));
        assert_eq!(ends_with(text.clone()).await, None);
        assert_eq!(ends_with(text.replace(r#"\\\""#, r#"\\""#)).await, cause);
    }
}
