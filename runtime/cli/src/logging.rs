//! Log lines in, the same on standard error, escaped and cut, if somebody reads them; nobody waits for that.

use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use bailiwick::escape;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// What is logged at `level`. The MCP SDK warns of each mistake of a client, so what it logs is shown from debug on.
pub(crate) fn levels(level: LevelFilter) -> Targets {
    let sdk = if level >= LevelFilter::DEBUG {
        level
    } else {
        LevelFilter::OFF
    };
    Targets::new().with_default(level).with_target("rmcp", sdk)
}

/// The longest line, in characters.
const LONGEST: usize = 1024;
/// How many lines may wait to be read.
const WAITING: usize = 256;

/// Writes from a thread of its own: a client that does not read standard error must not stop the server, and lines that
/// find no room are dropped.
#[derive(Clone)]
pub(crate) struct Log {
    lines: SyncSender<String>,
    unwritten: Arc<Unwritten>,
}

/// How many lines were taken and are not written.
#[derive(Default)]
struct Unwritten {
    count: Mutex<usize>,
    none: Condvar,
}

impl Unwritten {
    fn change(&self, by: isize) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count = count.saturating_add_signed(by);
        if *count == 0 {
            self.none.notify_all();
        }
    }
}

impl Log {
    /// Starts the thread, which writes to `out`; it ends with the program.
    pub(crate) fn start(mut out: impl Write + Send + 'static) -> io::Result<Self> {
        let (sender, lines) = sync_channel::<String>(WAITING);
        let unwritten = Arc::<Unwritten>::default();
        let counted = Arc::clone(&unwritten);
        let write = move || {
            for line in lines {
                // A closed standard error is nobody who could be told.
                let _ = writeln!(out, "{line}");
                counted.change(-1);
            }
        };
        std::thread::Builder::new()
            .name("log".into())
            .spawn(write)?;
        Ok(Self {
            lines: sender,
            unwritten,
        })
    }

    /// Waits until every line that was taken is written, at most `patience`, for nobody may read them.
    pub(crate) fn settle(&self, patience: Duration) {
        let count = self.unwritten.count.lock();
        let count = count.unwrap_or_else(PoisonError::into_inner);
        // Whether all were written in time makes no difference to a program that ends.
        let _ = self
            .unwritten
            .none
            .wait_timeout_while(count, patience, |count| *count > 0);
    }
}

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(text);
        let line: String = line.trim_end().chars().take(LONGEST).collect();
        self.unwritten.change(1);
        // What clients write stands in it, so it must not look like another line or steer a terminal.
        if self.lines.try_send(escape(&line).into_owned()).is_err() {
            self.unwritten.change(-1);
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
        let mut log = Log::start(Gate(gate, Arc::clone(&written))).unwrap();
        for line in ["one", "two", "three"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        log.settle(Duration::from_millis(1));
        assert!(!written.lock().unwrap().contains('\n'));
        for _ in 0..3 {
            open.send(()).unwrap();
        }
        log.settle(Duration::from_secs(30));
        assert_eq!(*written.lock().unwrap(), "one\ntwo\nthree\n");
    }
}
