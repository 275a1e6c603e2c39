//! A non-blocking log on standard error.

use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bailiwick::text::escape;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// The log filter for `level`. Logs of the MCP SDK are shown only from `debug`, since it warns about every client error.
pub(crate) fn filter(level: LevelFilter) -> Targets {
    let sdk = if level >= LevelFilter::DEBUG {
        level
    } else {
        LevelFilter::OFF
    };
    Targets::new().with_default(level).with_target("rmcp", sdk)
}

/// The maximum length of a line, in characters.
const MAX_LINE_CHARS: usize = 1024;
/// The maximum number of queued lines.
const MAX_QUEUED_LINES: usize = 256;

/// Starts the thread. `None` if it cannot be started.
type StartThread = dyn Fn() -> Option<SyncSender<String>> + Send + Sync;

/// Writes lines from a separate thread, since a client may not read standard error. Lines are dropped if the queue is full or
/// the thread cannot be started.
///
/// The first line starts the thread, since most servers never log anything. If a confined thread logs that line, the log
/// thread is confined, too, and can only write to what is open.
#[derive(Clone)]
pub(crate) struct LogWriter {
    lines: Arc<OnceLock<SyncSender<String>>>,
    start: Arc<StartThread>,
    pending: Arc<PendingLines>,
}

/// The number of queued lines.
#[derive(Default)]
struct PendingLines {
    count: Mutex<usize>,
    none: Condvar,
}

impl PendingLines {
    fn add(&self, count: isize) {
        let mut pending = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *pending = pending.saturating_add_signed(count);
        if *pending == 0 {
            self.none.notify_all();
        }
    }
}

impl LogWriter {
    /// A log that is written to `out` until the program exits.
    pub(crate) fn new<W: Write + Send + 'static>(
        out: impl Fn() -> W + Send + Sync + 'static,
    ) -> Self {
        let pending = Arc::<PendingLines>::default();
        let written = Arc::clone(&pending);
        let start = move || {
            let (sender, lines) = sync_channel::<String>(MAX_QUEUED_LINES);
            let (mut out, written) = (out(), Arc::clone(&written));
            let write = move || {
                for line in lines {
                    // Standard error may be closed.
                    let _ = writeln!(out, "{line}");
                    written.add(-1);
                }
            };
            let thread = std::thread::Builder::new().name("log".into());
            thread.spawn(write).ok()?;
            Some(sender)
        };
        Self {
            lines: Arc::default(),
            start: Arc::new(start),
            pending,
        }
    }

    /// The queue of the thread, which is started if it does not run. If that fails, the next line tries it again.
    fn lines(&self) -> Option<&SyncSender<String>> {
        if let Some(lines) = self.lines.get() {
            return Some(lines);
        }
        let started = (self.start)()?;
        // If another thread was faster, the one started here ends.
        Some(self.lines.get_or_init(|| started))
    }

    /// Waits until all queued lines are written, or the timeout expires.
    pub(crate) fn flush_within(&self, timeout: Duration) {
        let count = self.pending.count.lock();
        let count = count.unwrap_or_else(PoisonError::into_inner);
        // The program exits either way.
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
        self.pending.add(1);
        // Lines may contain text from clients, so line breaks and terminal control characters are escaped.
        let line = escape(&line).into_owned();
        let queued = self.lines().map(|lines| lines.try_send(line));
        if !matches!(queued, Some(Ok(()))) {
            self.pending.add(-1);
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

    /// A writer that waits for a signal before each line.
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
    fn flush_waits_for_queued_lines_until_the_timeout() {
        let (open, gate) = channel();
        let written = Arc::<Mutex<String>>::default();
        let gate = Mutex::new(Some(Gate(gate, Arc::clone(&written))));
        let mut log = LogWriter::new(move || gate.lock().unwrap().take().unwrap());
        log.flush_within(Duration::from_secs(30));
        assert!(log.lines.get().is_none());
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
