//! Locks of directories and of temporary files.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::sys::{Errno, FlockOperation, flock, fstat};

/// Maximum attempts to acquire a lock that another process holds, and the delay between them.
const MAX_ATTEMPTS: u32 = 2_000;
const RETRY_DELAY: Duration = Duration::from_millis(1);
/// How long to wait for a writer of this process.
const LOCAL_WAIT: Duration = Duration::from_secs(2);

/// The directories that threads of this process have locked or are locking. They wait for each other here, without
/// polling.
static LOCAL: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());
static RELEASED: Condvar = Condvar::new();

/// Lock of a directory, held while a name is checked and changed. All writers of this crate take it, in all processes.
/// It is released on drop and when the process ends.
#[derive(Debug)]
pub(crate) struct DirLock<'d> {
    dir: BorrowedFd<'d>,
    /// Released after the directory.
    _local: LocalLock,
}

impl<'d> DirLock<'d> {
    /// Locks `dir`, whose open file description must hold no other lock.
    ///
    /// # Errors
    /// `EBUSY` if another holder does not release it. On file systems without lock support and for `O_PATH` handles, only
    /// writers in this process are excluded.
    pub(crate) fn acquire(dir: BorrowedFd<'d>) -> Result<Self, Errno> {
        let local = LocalLock::acquire(dir)?;
        for _ in 0..MAX_ATTEMPTS {
            match flock(dir, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) | Err(Errno::BADF | Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => {
                    return Ok(Self { dir, _local: local });
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
        let _ = flock(self.dir, FlockOperation::Unlock);
    }
}

/// A directory in [`LOCAL`].
#[derive(Debug)]
struct LocalLock((u64, u64));

impl LocalLock {
    fn acquire(dir: BorrowedFd<'_>) -> Result<Self, Errno> {
        let stat = fstat(dir)?;
        let number = (stat.st_dev, stat.st_ino);
        let mut held = LOCAL.lock();
        let waited = RELEASED.wait_while_for(&mut held, |held| held.contains(&number), LOCAL_WAIT);
        if waited.timed_out() {
            return Err(Errno::BUSY);
        }
        held.insert(number);
        Ok(Self(number))
    }
}

impl Drop for LocalLock {
    fn drop(&mut self) {
        LOCAL.lock().remove(&self.0);
        RELEASED.notify_all();
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
