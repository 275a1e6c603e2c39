//! Waiting in async tests.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use bailiwick::monitor::EventsError;
use bailiwick::permission::GrantView;
use bailiwick::{GrantAuthority, Question, Runtime, Worker};
use rustix::fs::inotify::CreateFlags;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::net::unix::pipe;

use super::PATIENCE;

async fn in_time<T>(waiting: impl Future<Output = T>) -> T {
    let reached = tokio::time::timeout(PATIENCE, waiting).await;
    reached.unwrap_or_else(|_| panic!("the state is not reached within a minute"))
}

/// Waits until `find` returns a value, which is called with the open questions after each change.
pub async fn for_questions<T>(
    grants: &GrantAuthority,
    mut find: impl FnMut(&[Question]) -> Option<T>,
) -> T {
    let mut changes = grants.changes();
    in_time(async {
        loop {
            if let Some(found) = find(&grants.questions().await.unwrap()) {
                return found;
            }
            changes.next().await.unwrap();
        }
    })
    .await
}

/// Waits until `reached` returns true, which is called with the grants after each change.
pub async fn for_grants(grants: &GrantAuthority, mut reached: impl FnMut(&[GrantView]) -> bool) {
    let mut changes = grants.changes();
    in_time(async {
        while !reached(&grants.grants().await.unwrap()) {
            changes.next().await.unwrap();
        }
    })
    .await;
}

/// Waits until so many calls of `worker` are in flight.
pub async fn for_calls(runtime: &Runtime, worker: &Worker, in_flight: u32) {
    let mut events = runtime.events();
    in_time(async {
        while worker.status().in_flight != in_flight {
            // Events that were lost may have been the awaited ones, so the state is read again.
            assert_ne!(events.recv().await, Err(EventsError::Closed));
        }
    })
    .await;
}

/// Waits until `reached` returns true, which is called after each change of the tools of servers and apps.
pub async fn for_tools(worker: &Worker, mut reached: impl FnMut() -> bool) {
    let mut changes = worker.tools_changes();
    in_time(async {
        while !reached() {
            changes.next().await.unwrap();
        }
    })
    .await;
}

/// Waits until `reached` returns true, which is called after each change of the file, or of an entry of the directory.
pub async fn for_files(path: &Path, mut reached: impl FnMut() -> bool) {
    let watch = readable(super::watch(
        path,
        CreateFlags::CLOEXEC | CreateFlags::NONBLOCK,
    ));
    let mut changes = [0; 4096];
    in_time(async {
        while !reached() {
            watch.readable().await.unwrap();
            match watch.try_read(&mut changes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                changes => assert_ne!(changes.unwrap(), 0),
            }
        }
    })
    .await;
}

/// Waits until a process has exited, which need not be a child of this one.
pub async fn for_exit(process: i32) {
    match pidfd_open(Pid::from_raw(process).unwrap(), PidfdFlags::NONBLOCK) {
        Err(Errno::SRCH) => {}
        process => in_time(readable(process.unwrap()).readable())
            .await
            .unwrap(),
    }
}

/// Runs the other tasks of this thread until all of them wait: only then does a paused clock advance.
pub async fn until_idle() {
    tokio::time::pause();
    tokio::time::sleep(Duration::from_millis(1)).await;
    tokio::time::resume();
}

/// Registers a descriptor that is no pipe, for which tokio has no safe type.
fn readable(descriptor: OwnedFd) -> pipe::Receiver {
    pipe::Receiver::from_owned_fd_unchecked(descriptor).unwrap()
}
