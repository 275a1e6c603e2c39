//! Plans that create a file or replace its content.

use bailiwick::effect::{ContentHash, Cost, Entry, FileDiff, Op};
use bailiwick::tool::{Interrupt, ReadPermit};
use bailiwick::{CallError, Change, Code, Plan, Reply, VirtualPath, WorkerId};
use bytes::Bytes;

use super::known_contents::Hashed;
use super::target::{self, OldFile};
use super::{ChangeSet, State, Step, StepExecutor};
use crate::diff;
use crate::replace::ReachedDurability;

/// New content for a file.
#[derive(Debug)]
pub(crate) struct NewContent {
    pub(crate) path: VirtualPath,
    /// The state that it replaces.
    pub(crate) before: State,
    /// The entry to report for that state.
    entry: Entry,
    /// The hash of the new content.
    pub(crate) hash: ContentHash,
    /// The old content; `None` if the file is new or too large.
    pub(crate) old: Option<Bytes>,
    pub(crate) content: Bytes,
    /// Steps that create missing parent directories.
    parents: Vec<Step>,
    /// Whether the worker may read the file.
    pub(crate) is_readable: bool,
}

impl NewContent {
    /// New content for the file at `path`, in place of `old`.
    ///
    /// # Errors
    /// `TOO_LARGE`, and as [`target::missing_parents`].
    pub(crate) fn new(
        executor: &StepExecutor,
        permit: &ReadPermit,
        path: VirtualPath,
        old: Option<OldFile>,
        content: Bytes,
        create_parents: bool,
    ) -> Result<Self, Interrupt> {
        let (bytes, limit) = (content.len() as u64, permit.limits().write_max_bytes);
        if bytes > limit {
            let message =
                format!("the file would have {bytes} bytes, more than the {limit} allowed");
            return Err(CallError::new(Code::TooLarge, message).into());
        }
        let parents = match old {
            Some(_) => Vec::new(),
            None => target::missing_parents(permit, &path, create_parents)?,
        };
        let is_readable = permit.shows(&path);
        let meta = old.as_ref().map(|old| old.meta);
        let (before, old, new) = match old {
            // For other files, the time that this takes would tell how much of the new content is also that of the old one.
            Some(OldFile {
                bytes: Some(bytes), ..
            }) if is_readable => {
                let [old, new] = executor.hashed(permit.worker(), &path, [bytes, content]);
                (old.state(), Some(old.content), new)
            }
            Some(old) => (old.state(), old.bytes, Hashed::of(content)),
            None => (State::Absent, None, Hashed::of(content)),
        };
        Ok(Self {
            entry: executor.entry(&before, meta.as_ref(), is_readable)?,
            path,
            before,
            hash: new.hash,
            old,
            content: new.content,
            parents,
            is_readable,
        })
    }

    /// The new content of a file that the `worker` may read, in place of the `old` one.
    pub(crate) fn rewriting(
        executor: &StepExecutor,
        worker: Option<WorkerId>,
        path: VirtualPath,
        old: Bytes,
        content: Bytes,
    ) -> Self {
        let [old, new] = executor.hashed(worker, &path, [old, content]);
        let before = old.state();
        Self {
            path,
            entry: before.entry(),
            before,
            hash: new.hash,
            old: Some(old.content),
            content: new.content,
            parents: Vec::new(),
            is_readable: true,
        }
    }

    /// The plan, with the reply that `reply` makes of this, the diff and the durability.
    /// [`target::require_put`] checks whether the call may execute it.
    pub(crate) fn plan(
        self,
        executor: &StepExecutor,
        reply: impl FnOnce(&Self, &FileDiff, ReachedDurability) -> Reply,
    ) -> Plan<ChangeSet> {
        let hash = self.hash;
        let bytes = self.content.len() as u64;
        let after = State::File { hash, bytes };
        let unchanged = self.is_readable && self.before == after;
        let diff = self.diff();
        let reached = ReachedDurability::requested((!unchanged).then_some(executor.durability()));
        let reply = reply(&self, &diff, reached.clone());
        if unchanged {
            return target::empty_plan(reply);
        }
        let mut changes = target::directory_changes(&self.parents);
        changes.push(Change {
            path: self.path.clone(),
            op: match self.before {
                State::Absent => Op::Create,
                State::File { .. }
                | State::Link { .. }
                | State::Object { .. }
                | State::Directory { .. } => Op::Modify,
            },
            to: None,
            before: self.entry,
            after: after.entry(),
            diff,
        });
        let inverse = match (&self.before, self.old.clone()) {
            (State::Absent, _) => Some(Step::Remove {
                path: self.path.clone(),
                state: after,
            }),
            // A file that was too large to keep cannot be restored.
            (_, old) => old.map(|content| Step::Write {
                path: self.path.clone(),
                content,
                existing: after,
                mode: None,
            }),
        };
        let inverse = inverse
            .map(|back| [vec![back], target::undo_directories(&self.parents)].concat())
            .map(ChangeSet::from);
        let cost = Cost {
            bytes,
            files: changes.len() as u64,
        };
        let mut steps = self.parents;
        steps.push(Step::Write {
            path: self.path,
            content: self.content,
            existing: self.before,
            mode: None,
        });
        Plan {
            resources: Vec::new(),
            changes,
            reply,
            cost,
            steps: ChangeSet {
                replaced: self.old,
                ..executor.change_set(steps, reached)
            },
            inverse,
        }
    }

    fn diff(&self) -> FileDiff {
        match (&self.before, &self.old) {
            (State::Absent, _) => diff::of_bytes(&Bytes::new(), &self.content),
            _ if !self.is_readable => diff::hidden(),
            (_, Some(old)) => diff::of_bytes(old, &self.content),
            (_, None) => FileDiff {
                large: true,
                ..FileDiff::default()
            },
        }
    }
}

impl StepExecutor {
    /// The old and the new content of a file that the worker may read, with their hashes.
    fn hashed(
        &self,
        worker: Option<WorkerId>,
        path: &VirtualPath,
        contents: [Bytes; 2],
    ) -> [Hashed; 2] {
        match worker {
            Some(worker) => self.known_contents.of(worker, path, contents),
            None => Hashed::both(contents),
        }
    }
}
