//! The signals that this program handles.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// `SIGXFSZ`, sent to a process that exceeds its file size limit.
pub(crate) fn file_size_exceeded() -> SignalKind {
    SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())
}

/// SIGINT and SIGTERM, from the creation of this value.
pub(crate) struct StopSignals {
    interrupted: Signal,
    terminated: Signal,
}

impl StopSignals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupted: signal(SignalKind::interrupt())?,
            terminated: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> SignalKind {
        tokio::select! {
            Some(()) = self.interrupted.recv() => SignalKind::interrupt(),
            Some(()) = self.terminated.recv() => SignalKind::terminate(),
            else => std::future::pending().await,
        }
    }
}
