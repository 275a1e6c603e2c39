//! Plans that create a file or replace its content.

use bailiwick::effect::{Cost, FileDiff, Op};
use bailiwick::tool::{Interrupt, ReadPermit};
use bailiwick::{CallError, Change, Code, Plan, Reply, VirtualPath};
use bytes::Bytes;

use super::target::{self, OldFile};
use super::{ChangeSet, State, Step, StepExecutor};
use crate::diff;
use crate::replace::ReachedDurability;

/// New content for a file.
#[derive(Debug)]
pub(crate) struct Put {
    pub(crate) path: VirtualPath,
    /// The file that it replaces.
    pub(crate) old: Option<OldFile>,
    pub(crate) content: Bytes,
    pub(crate) create_parents: bool,
    /// The content begins with that of the old file.
    pub(crate) appends: bool,
}

impl Put {
    /// The plan, with the reply that `reply` makes of the durability.
    ///
    /// # Errors
    /// `TOO_LARGE`, and as [`target::missing_parents`] and [`target::require_put`].
    pub(crate) fn plan(
        self,
        executor: &StepExecutor,
        permit: &ReadPermit,
        reply: impl FnOnce(&Self, ReachedDurability) -> Reply,
    ) -> Result<Plan<ChangeSet>, Interrupt> {
        self.check_size(permit.limits().write_max_bytes)?;
        let shown = permit.shows(&self.path);
        let mut steps = match self.old {
            Some(_) => Vec::new(),
            None => target::missing_parents(permit, &self.path, self.create_parents)?,
        };
        let old = self.old.as_ref();
        let before = old.map_or(State::Absent, |old| old.state.clone());
        let after = State::of_file(&self.content);
        let unchanged = shown && before == after;
        let diff = self.diff(shown);
        let reached = ReachedDurability::at_best((!unchanged).then_some(executor.durability()));
        let reply = reply(&self, reached.clone());
        if unchanged {
            return Ok(target::empty_plan(reply));
        }
        steps.push(Step::Write {
            path: self.path.clone(),
            content: self.content.clone(),
            existing: before.clone(),
            mode: None,
        });
        target::require_put(permit, &self.path, &steps, self.appends)?;
        let mut changes = target::directory_changes(&steps);
        changes.push(Change {
            path: self.path.clone(),
            op: old.map_or(Op::Create, |_| Op::Modify),
            to: None,
            before: executor.entry(&before, old.map(|old| &old.meta), shown)?,
            after: after.entry(),
            diff,
        });
        let cost = Cost {
            bytes: self.content.len() as u64,
            files: changes.len() as u64,
        };
        let inverse = self.inverse(after).map(|back| {
            [vec![back], target::undo_directories(&steps)]
                .concat()
                .into()
        });
        Ok(Plan {
            resources: Vec::new(),
            changes,
            reply,
            cost,
            steps: executor.change_set(steps, reached),
            inverse,
        })
    }

    fn check_size(&self, limit: u64) -> Result<(), CallError> {
        if self.content.len() as u64 <= limit {
            return Ok(());
        }
        let message = format!(
            "the file would have {} bytes, more than the {limit} allowed",
            self.content.len()
        );
        Err(CallError::new(Code::TooLarge, message))
    }

    fn diff(&self, shown: bool) -> FileDiff {
        match &self.old {
            Some(_) if !shown => diff::hidden(),
            Some(OldFile { bytes: None, .. }) => FileDiff {
                large: true,
                ..FileDiff::default()
            },
            Some(OldFile {
                bytes: Some(old), ..
            }) => diff::of_bytes(old, &self.content),
            None => diff::of_bytes(&Bytes::new(), &self.content),
        }
    }

    /// The step that restores the file, unless it was too large to keep.
    fn inverse(self, after: State) -> Option<Step> {
        let Some(old) = self.old else {
            return Some(Step::Remove {
                path: self.path,
                state: after,
            });
        };
        Some(Step::Write {
            path: self.path,
            content: old.bytes?,
            existing: after,
            mode: None,
        })
    }
}
