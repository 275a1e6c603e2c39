//! Waiting for events of files, locks, processes and runtimes. Nothing here polls.

#[cfg(any(feature = "runtime", feature = "stage"))]
mod events;

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

#[cfg(any(feature = "runtime", feature = "stage"))]
pub use events::{
    for_calls, for_exit, for_files, for_grants, for_questions, for_tools, until_idle,
};

/// The longest wait before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until nobody holds the lock of `file`. Closing a locked file does not release the lock while a process that
/// another test starts has a copy of it, which is until `exec`.
pub fn for_lock(file: &Path) {
    let file = File::open(file).unwrap();
    file.lock().unwrap();
    // Released explicitly, so that no such process has a copy of this lock.
    file.unlock().unwrap();
}

/// Blocks until `reached` returns true, which is called after each change of the file, or of an entry of the directory.
pub fn block_for_files(path: &Path, mut reached: impl FnMut() -> bool + Send + 'static) {
    let watch = watch(path, CreateFlags::CLOEXEC);
    let (waited, has_waited) = mpsc::channel();
    std::thread::spawn(move || {
        let mut changes = [MaybeUninit::uninit(); 4096];
        let mut changes = inotify::Reader::new(watch, &mut changes);
        while !reached() {
            changes.next().unwrap();
        }
        waited.send(())
    });
    let waited = has_waited.recv_timeout(PATIENCE);
    assert!(waited.is_ok(), "the state is not reached within a minute");
}

fn watch(path: &Path, flags: CreateFlags) -> OwnedFd {
    let watch = inotify::init(flags).unwrap();
    let changes = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MODIFY | WatchFlags::MOVE;
    inotify::add_watch(&watch, path, changes).unwrap();
    watch
}
