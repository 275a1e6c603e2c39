//! Locks of directories and of temporary files.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::sys::{Errno, FlockOperation, flock};

/// Maximum attempts to acquire a lock, and the delay between them.
const MAX_ATTEMPTS: u32 = 2_000;
const RETRY_DELAY: Duration = Duration::from_millis(1);

/// Lock of a directory, held while a name is checked and changed. All writers of this crate take it, in all processes.
/// It is released on drop and when the process ends.
#[derive(Debug)]
pub(crate) struct DirLock<'d>(BorrowedFd<'d>);

impl<'d> DirLock<'d> {
    /// Locks `dir`, which must be opened for this lock alone.
    ///
    /// # Errors
    /// `EBUSY` if another holder does not release it. Succeeds on file systems without locks.
    pub(crate) fn acquire(dir: BorrowedFd<'d>) -> Result<Self, Errno> {
        for _ in 0..MAX_ATTEMPTS {
            match flock(dir, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) | Err(Errno::BADF | Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => {
                    return Ok(Self(dir));
                }
                Err(Errno::WOULDBLOCK) => std::thread::sleep(RETRY_DELAY),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::BUSY)
    }
}

impl Drop for DirLock<'_> {
    fn drop(&mut self) {
        // Closing the directory also releases it.
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

/// Marks a temporary file as in use while `file` is open.
pub(crate) fn hold_live_lock(file: BorrowedFd<'_>) {
    // On file systems without locks the sweeper leaves the file alone.
    let _ = flock(file, FlockOperation::NonBlockingLockExclusive);
}

/// Whether no live process has marked `file`.
pub(super) fn is_abandoned(file: BorrowedFd<'_>) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}
