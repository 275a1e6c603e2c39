//! Changes of commands that are kept apart until a call applies them.

mod apply;
mod collect;
mod seen;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bailiwick::VirtualPath;
use bailiwick::scope::{Operation, Scope};
use schemars::JsonSchema;
use serde::Serialize;

pub use apply::{AppliedChanges, ApplyChanges};
pub(crate) use collect::collect;
pub(crate) use seen::{Identity, Seen};

/// Maximum number of commands whose changes are kept.
const MAX_COMMANDS: usize = 16;
/// Maximum size of all kept changes, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// How a changed path differs from the roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ChangeKind {
    /// A file was created.
    Created,
    /// The content of a file was changed.
    Changed,
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
    /// Whether a created file can be executed.
    executable: bool,
    /// The path of the content in the directory of all changes.
    stored: String,
    /// The directories at and above the path before the command ran.
    directories: Vec<(VirtualPath, Identity)>,
}

impl KeptChange {
    /// What a call must be allowed to do to apply it.
    pub(crate) fn need(&self) -> Scope {
        let operation = match self.kind {
            ChangeKind::Created | ChangeKind::DirectoryCreated => Operation::Create,
            ChangeKind::Changed => Operation::Change,
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
    /// In the order of the paths.
    pub(crate) changes: Vec<KeptChange>,
    /// When the command started, since 1970.
    pub(crate) began: Duration,
    /// The directory in memory that contains them.
    directory: OwnedFd,
}

impl KeptChanges {
    /// The memory that they take, in bytes.
    fn bytes(&self) -> u64 {
        rustix::fs::fstatvfs(&self.directory).map_or(0, |stat| {
            let blocks = (stat.f_blocks - stat.f_bfree).saturating_mul(stat.f_frsize);
            // Extended attributes are charged as entries of 1 KiB.
            let entries = (stat.f_files - stat.f_ffree).saturating_mul(1 << 10);
            blocks.saturating_add(entries)
        })
    }
}

/// The changes of the last commands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store(Arc<Mutex<VecDeque<Arc<KeptChanges>>>>);

impl Store {
    /// Keeps changes. The oldest are dropped if there are too many.
    pub(crate) fn add(&self, changes: KeptChanges) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(Arc::new(changes));
        while kept.len() > 1
            && (kept.len() > MAX_COMMANDS
                || kept.iter().map(|kept| kept.bytes()).sum::<u64>() > MAX_BYTES)
        {
            kept.pop_front();
        }
    }

    fn get(&self, id: &str) -> Option<Arc<KeptChanges>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|kept| kept.id == id).cloned()
    }

    fn remove(&self, id: &str) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|kept| kept.id != id);
    }
}

/// Returns a time such that everything that changes later has a later time of change.
///
/// File systems take their times from a clock that advances every few milliseconds.
pub(crate) async fn start_of_changes() -> Duration {
    let began = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    while coarse_clock() <= began {
        tokio::time::sleep(Duration::from_millis(1)).await;
        // The clock was set back.
        if SystemTime::now() < SystemTime::UNIX_EPOCH + began {
            break;
        }
    }
    began
}

/// The time that file systems use, since 1970.
fn coarse_clock() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
