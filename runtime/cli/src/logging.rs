//! Log lines in, the same on standard error, escaped and cut, if somebody reads them; nobody waits for that.

use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use bailiwick::escape;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// What is logged at `level`. The MCP SDK warns of each mistake of a client, so what it logs is shown from debug on.
pub(crate) fn filter(level: LevelFilter) -> Targets {
    let sdk = if level >= LevelFilter::DEBUG {
        level
    } else {
        LevelFilter::OFF
    };
    Targets::new().with_default(level).with_target("rmcp", sdk)
}

/// The longest line, in characters.
const MAX_LINE_CHARS: usize = 1024;
/// How many lines may wait to be read.
const MAX_QUEUED_LINES: usize = 256;

/// Writes from a thread of its own: a client that does not read standard error must not stop the server, and lines that
/// find no room are dropped.
#[derive(Clone)]
pub(crate) struct LogWriter {
    lines: SyncSender<String>,
    pending: Arc<PendingLines>,
}

/// How many lines were taken and are not written.
#[derive(Default)]
struct PendingLines {
    count: Mutex<usize>,
    none: Condvar,
}

impl PendingLines {
    fn change(&self, by: isize) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count = count.saturating_add_signed(by);
        if *count == 0 {
            self.none.notify_all();
        }
    }
}

impl LogWriter {
    /// Starts the thread, which writes to `out`; it ends with the program.
    pub(crate) fn start(mut out: impl Write + Send + 'static) -> io::Result<Self> {
        let (sender, lines) = sync_channel::<String>(MAX_QUEUED_LINES);
        let pending = Arc::<PendingLines>::default();
        let count = Arc::clone(&pending);
        let write = move || {
            for line in lines {
                // A closed standard error is nobody who could be told.
                let _ = writeln!(out, "{line}");
                count.change(-1);
            }
        };
        std::thread::Builder::new()
            .name("log".into())
            .spawn(write)?;
        Ok(Self {
            lines: sender,
            pending,
        })
    }

    /// Waits until every line that was taken is written, at most `timeout`, for nobody may read them.
    pub(crate) fn flush_within(&self, timeout: Duration) {
        let count = self.pending.count.lock();
        let count = count.unwrap_or_else(PoisonError::into_inner);
        // Whether all were written in time makes no difference to a program that ends.
        let _ = self
            .pending
            .none
            .wait_timeout_while(count, timeout, |count| *count > 0);
    }
}

impl Write for LogWriter {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(text);
        let line: String = line.trim_end().chars().take(MAX_LINE_CHARS).collect();
        self.pending.change(1);
        // What clients write stands in it, so it must not look like another line or steer a terminal.
        if self.lines.try_send(escape(&line).into_owned()).is_err() {
            self.pending.change(-1);
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// Takes a line when it is let to.
    struct Gate(Receiver<()>, Arc<Mutex<String>>);

    impl Write for Gate {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            if text.ends_with(b"\n") {
                self.0.recv().map_err(io::Error::other)?;
            }
            let text = std::str::from_utf8(text).unwrap();
            self.1.lock().unwrap().push_str(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_was_logged_is_written_before_the_end_unless_nobody_reads_it() {
        let (open, gate) = channel();
        let written = Arc::<Mutex<String>>::default();
        let mut log = LogWriter::start(Gate(gate, Arc::clone(&written))).unwrap();
        for line in ["one", "two", "three"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        log.flush_within(Duration::from_millis(1));
        assert!(!written.lock().unwrap().contains('\n'));
        for _ in 0..3 {
            open.send(()).unwrap();
        }
        log.flush_within(Duration::from_secs(30));
        assert_eq!(*written.lock().unwrap(), "one\ntwo\nthree\n");
    }
}
