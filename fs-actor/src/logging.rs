//! Log lines in, the same on standard error, escaped and cut, if somebody reads them; nobody waits for that.

use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, sync_channel};

use bailiwick::escape;

/// The longest line, in characters.
const LONGEST: usize = 1024;
/// How many lines may wait to be read.
const WAITING: usize = 256;

/// Writes from a thread of its own: a client that does not read standard error must not stop the server, and lines that
/// find no room are dropped.
#[derive(Clone)]
pub(crate) struct Log(SyncSender<String>);

impl Log {
    /// Starts the thread; it ends with the program.
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, lines) = sync_channel::<String>(WAITING);
        let write = move || {
            for line in lines {
                // A closed standard error is nobody who could be told.
                let _ = writeln!(io::stderr(), "{line}");
            }
        };
        std::thread::Builder::new()
            .name("log".into())
            .spawn(write)?;
        Ok(Self(sender))
    }
}

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(text);
        let line: String = line.trim_end().chars().take(LONGEST).collect();
        // What clients write stands in it, so it must not look like another line or steer a terminal.
        let _ = self.0.try_send(escape(&line).into_owned());
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
