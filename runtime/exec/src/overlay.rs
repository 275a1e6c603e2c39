//! Changes of commands that are kept apart until a call applies them.

mod apply;
mod collect;
mod copies;
mod directories;
mod moves;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bailiwick::scope::{Operation, Scope};
use bailiwick::tool::Owner;
use bailiwick::{VirtualPath, WorkerId};
use rustix::fs::OFlags;
use schemars::JsonSchema;
use serde::Serialize;

use crate::clock;

pub use apply::{AppliedChanges, ApplyChanges};
pub(crate) use collect::collect;
pub(crate) use directories::{Directories, Identity};

/// Maximum depth of directories.
const MAX_DEPTH: usize = 256;
/// Flags that open a directory.
const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Flags that open a file, without waiting if it is none.
const FILE: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);
/// Maximum number of commands of a worker whose changes are kept, and of all workers.
const MAX_COMMANDS: (usize, usize) = (16, 256);
/// Maximum size of the kept changes of a worker, and of all workers, in bytes.
const MAX_BYTES: (u64, u64) = (256 << 20, 1 << 30);
/// How long changes are kept at least if those of other workers need their room.
const KEPT_FOR: Duration = Duration::from_secs(3600);

/// How a changed path differs from the roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ChangeKind {
    /// A file was created.
    Created,
    /// The content of a file was changed, and possibly its permissions.
    Changed,
    /// The permissions of a file were changed.
    Permissions,
    /// A file, or a directory with its contents, was deleted.
    Deleted,
    /// A directory was created.
    DirectoryCreated,
}

impl std::fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Permissions => "changed permissions of",
            Self::Deleted => "deleted",
            Self::DirectoryCreated => "created directory",
        })
    }
}

/// One change of a command that can be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptChange {
    pub(crate) path: VirtualPath,
    pub(crate) kind: ChangeKind,
    /// Whether it concerns a directory.
    pub(crate) is_directory: bool,
    /// Length of a file.
    pub(crate) bytes: u64,
    /// The permission bits of what was created, and new bits of an existing file.
    mode: Option<u32>,
    /// The path of the content in the directory of all changes.
    stored: String,
    /// The directories at and above the path before the command ran.
    directories: Vec<(VirtualPath, Identity)>,
}

impl KeptChange {
    /// The new permission bits of an existing file, if they change.
    pub(crate) fn changed_mode(&self) -> Option<u32> {
        let existed = matches!(self.kind, ChangeKind::Changed | ChangeKind::Permissions);
        self.mode.filter(|_| existed)
    }

    /// What a call must be allowed to do to apply it.
    pub(crate) fn need(&self) -> Scope {
        let operation = match self.kind {
            ChangeKind::Created | ChangeKind::DirectoryCreated => Operation::Create,
            ChangeKind::Changed | ChangeKind::Permissions => Operation::Change,
            ChangeKind::Deleted => Operation::Delete,
        };
        let need = Scope::doing(operation, self.path.clone());
        if self.kind == ChangeKind::Deleted && self.is_directory {
            need.beneath()
        } else {
            need
        }
    }
}

/// A change that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DroppedChange {
    /// The changed path.
    pub path: String,
    /// Why it is dropped.
    pub reason: &'static str,
}

/// The changes of one command.
#[derive(Debug)]
pub(crate) struct KeptChanges {
    /// Identifies the changes; nobody can guess it.
    pub(crate) id: String,
    /// The worker that ran the command.
    pub(crate) owner: Option<Owner>,
    /// When they were kept.
    pub(crate) since: Instant,
    /// In the order of the paths.
    pub(crate) changes: Vec<KeptChange>,
    /// When the command started, since 1970.
    pub(crate) began: Duration,
    /// The directory in memory that contains them.
    directory: OwnedFd,
    /// The memory that they take.
    bytes: u64,
}

impl KeptChanges {
    /// The worker that ran the command.
    fn worker(&self) -> Option<WorkerId> {
        self.owner.as_ref().map(Owner::worker)
    }

    /// Whether `worker` may apply them: the worker that ran the command, or one of its ancestors.
    fn are_for(&self, worker: Option<WorkerId>) -> bool {
        match (&self.owner, worker) {
            (Some(owner), Some(worker)) => owner.is_or_is_beneath(worker),
            (owner, worker) => owner.is_none() && worker.is_none(),
        }
    }
}

/// The memory that a directory of changes takes, in bytes.
fn bytes_of(directory: &OwnedFd) -> u64 {
    rustix::fs::fstatvfs(directory).map_or(0, |stat| {
        let blocks = (stat.f_blocks - stat.f_bfree).saturating_mul(stat.f_frsize);
        // Extended attributes are charged as entries of 1 KiB.
        let entries = (stat.f_files - stat.f_ffree).saturating_mul(1 << 10);
        blocks.saturating_add(entries)
    })
}

/// Why changes are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotKept {
    /// They take more memory than the changes of one worker may.
    TooLarge,
    /// The changes of other workers take too much.
    Full,
}

/// The changes of the last commands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store(Arc<Mutex<VecDeque<Arc<KeptChanges>>>>);

impl Store {
    /// Keeps changes. To make room, the oldest of the same worker are dropped, and those of others if they are old or their
    /// worker has ended. If that is not enough, nothing is dropped and the changes are not kept.
    pub(crate) fn add(&self, changes: KeptChanges) -> Result<(), NotKept> {
        if changes.bytes > MAX_BYTES.0 {
            return Err(NotKept::TooLarge);
        }
        let mut kept = self.lock();
        let mut left = kept.clone();
        let (worker, now) = (changes.worker(), changes.since);
        loop {
            let own = || left.iter().filter(|kept| kept.worker() == worker);
            let size = |bytes: u64, kept: &Arc<KeptChanges>| bytes.saturating_add(kept.bytes);
            let own_is_full =
                own().count() >= MAX_COMMANDS.0 || own().fold(changes.bytes, size) > MAX_BYTES.0;
            let all_is_full =
                left.len() >= MAX_COMMANDS.1 || left.iter().fold(changes.bytes, size) > MAX_BYTES.1;
            let may_go = |kept: &Arc<KeptChanges>| {
                kept.worker() == worker
                    || !own_is_full && now.saturating_duration_since(kept.since) > KEPT_FOR
            };
            if !own_is_full && !all_is_full {
                left.push_back(Arc::new(changes));
                *kept = left;
                return Ok(());
            }
            let oldest = left.iter().position(may_go).ok_or(NotKept::Full)?;
            left.remove(oldest);
        }
    }

    /// The kept changes, without those of workers that have ended.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<KeptChanges>>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|kept| !kept.owner.as_ref().is_some_and(Owner::has_ended));
        kept
    }

    /// The changes `id`, if `worker` may apply them.
    fn get(&self, id: &str, worker: Option<WorkerId>) -> Option<Arc<KeptChanges>> {
        let kept = self.lock();
        let mut kept = kept.iter();
        kept.find(|kept| kept.id == id && kept.are_for(worker))
            .cloned()
    }

    fn remove(&self, id: &str) {
        let mut kept = self.lock();
        kept.retain(|kept| kept.id != id);
    }
}

/// The result if changes cannot be kept.
pub(crate) fn no_room(overlays: &[(VirtualPath, Identity)], why: NotKept) -> DroppedChange {
    DroppedChange {
        path: overlays
            .first()
            .map_or_else(String::new, |(path, _)| path.to_string()),
        reason: match why {
            NotKept::TooLarge => {
                "the changes take more than the 256 MiB that are kept for a worker"
            }
            NotKept::Full => {
                "the memory for kept changes is full; the changes of other workers must be applied first"
            }
        },
    }
}

/// The result if changes cannot be read.
pub(crate) fn unread(overlays: &[(VirtualPath, Identity)]) -> Vec<DroppedChange> {
    let dropped = overlays.iter().map(|(path, _)| DroppedChange {
        path: path.to_string(),
        reason: "its changes cannot be read, so nothing is kept",
    });
    dropped.collect()
}

/// Waits until everything that changes has a later time of change than `began`, which takes milliseconds after that time.
pub(crate) async fn start_of_changes(began: Duration) {
    while !clock::is_later(began) {
        tokio::time::sleep(clock::TICK).await;
    }
}

#[cfg(test)]
mod tests {
    use bailiwick::{Policy, Reply, Runtime, ToolSet, ToolSpec, Worker, WorkerSpec};
    use serde_json::{Value, json};

    use super::*;

    /// A worker, and the owner of what it keeps.
    async fn worker(runtime: &Runtime, owners: &Mutex<Vec<Owner>>) -> (Worker, Owner) {
        let spec = WorkerSpec::new("tester").policy(Policy::new());
        let worker = runtime.spawn(spec).await.unwrap();
        worker.call("note_owner", json!({})).await.unwrap();
        let owner = owners.lock().unwrap().pop().unwrap();
        (worker, owner)
    }

    fn changes(owner: &Owner, bytes: u64) -> KeptChanges {
        let directory = rustix::fs::open("/proc", DIRECTORY, rustix::fs::Mode::empty());
        KeptChanges {
            id: owner.worker().to_string(),
            owner: Some(owner.clone()),
            since: Instant::now(),
            changes: Vec::new(),
            began: Duration::ZERO,
            directory: directory.unwrap(),
            bytes,
        }
    }

    /// A runtime with the tool `note_owner`, and what the tool noted.
    async fn runtime() -> (Runtime, Arc<Mutex<Vec<Owner>>>) {
        let owners: Arc<Mutex<Vec<Owner>>> = Arc::default();
        let noted = Arc::clone(&owners);
        let spec = ToolSpec::new("note_owner", "Note the owner", "Notes who calls it.");
        let tools = ToolSet::new().read_function(
            spec,
            |_: &Value, _| Ok(Vec::new()),
            move |_, permit| {
                noted.lock().unwrap().extend(permit.owner());
                Ok(Reply::text("noted", ()))
            },
        );
        let runtime = Runtime::builder().tools(tools).build().await.unwrap().0;
        (runtime, owners)
    }

    #[tokio::test]
    async fn changes_of_ended_workers_leave_room_for_others() {
        let (runtime, owners) = runtime().await;
        let store = Store::default();
        let mut workers = Vec::new();
        for _ in 0..MAX_COMMANDS.1 / MAX_COMMANDS.0 {
            let (worker, owner) = worker(&runtime, &owners).await;
            for _ in 0..MAX_COMMANDS.0 {
                store.add(changes(&owner, 0)).unwrap();
            }
            workers.push(worker);
        }
        let (_other, other) = worker(&runtime, &owners).await;
        assert_eq!(store.add(changes(&other, 0)), Err(NotKept::Full));
        workers.remove(0).revoke().await;
        for _ in 0..MAX_COMMANDS.0 {
            store.add(changes(&other, 0)).unwrap();
        }
        let (_last, last) = worker(&runtime, &owners).await;
        assert_eq!(store.add(changes(&last, 0)), Err(NotKept::Full));
    }

    #[tokio::test]
    async fn changes_that_do_not_fit_replace_none() {
        let (runtime, owners) = runtime().await;
        let (_worker, owner) = worker(&runtime, &owners).await;
        let store = Store::default();
        store.add(changes(&owner, 1)).unwrap();
        let kept = store.get(&owner.worker().to_string(), Some(owner.worker()));
        let kept = kept.unwrap();
        let is_kept = || store.lock().iter().any(|other| Arc::ptr_eq(other, &kept));
        let too_large = changes(&owner, MAX_BYTES.0 + 1);
        assert_eq!(store.add(too_large), Err(NotKept::TooLarge));
        assert!(is_kept());
        let mut others = Vec::new();
        for _ in 0..MAX_BYTES.1 / MAX_BYTES.0 {
            let (other, owner) = worker(&runtime, &owners).await;
            store.add(changes(&owner, MAX_BYTES.0 - 1)).unwrap();
            others.push(other);
        }
        assert_eq!(store.add(changes(&owner, 5)), Err(NotKept::Full));
        assert!(is_kept());
        store.add(changes(&owner, 4)).unwrap();
        assert!(!is_kept());
    }
}
