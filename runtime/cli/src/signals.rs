//! Signals that tokio does not name.

use tokio::signal::unix::SignalKind;

/// Sent when a process exceeds its file size limit.
pub(crate) fn file_size_exceeded() -> SignalKind {
    SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())
}
