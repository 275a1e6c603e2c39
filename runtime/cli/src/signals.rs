//! Signals that tokio does not define.

use tokio::signal::unix::SignalKind;

/// `SIGXFSZ`, sent to a process that exceeds its file size limit.
pub(crate) fn file_size_exceeded() -> SignalKind {
    SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())
}
