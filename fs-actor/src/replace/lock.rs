//! A directory in, the right to change names in it out, for as long as it is held.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::sys::{Errno, FlockOperation, flock};

/// Tries for a lock that somebody else holds, and the pause between them.
const MAX_ATTEMPTS: u32 = 2_000;
const RETRY_DELAY: Duration = Duration::from_millis(1);

/// Held between the last look at a name and its change. All who write through this crate wait for each
/// other, in this process and in others; the lock goes with the holder, however that ends.
#[derive(Debug)]
pub(crate) struct DirLock<'d>(BorrowedFd<'d>);

impl<'d> DirLock<'d> {
    /// Locks `dir`, which must be open for this holder alone.
    ///
    /// # Errors
    /// `EBUSY` if somebody keeps it locked; a file system without locks is no error, as nobody can hold one there.
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
        // Closing the directory frees it too.
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

/// Tells the sweeper, for as long as `file` is open, that its owner lives.
pub(crate) fn hold_live_lock(file: BorrowedFd<'_>) {
    // Where there are no locks the sweeper cannot take one either, and leaves the file alone.
    let _ = flock(file, FlockOperation::NonBlockingLockExclusive);
}

/// Whether nobody who lives has marked `file`.
pub(super) fn is_abandoned(file: BorrowedFd<'_>) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}
