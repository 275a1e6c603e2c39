//! Signals that tokio does not name.

use tokio::signal::unix::SignalKind;

/// Sent to a process that writes beyond its limit on file sizes.
pub(crate) fn file_size_exceeded() -> SignalKind {
    SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())
}
