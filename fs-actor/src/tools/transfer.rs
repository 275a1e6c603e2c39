//! What `copy` and `move` have in common: arguments, checks and plan.

use bailiwick::config::Namespace;
use bailiwick::effect::{Cost, FileDiff, Op};
use bailiwick::scope::Operation;
use bailiwick::tool::{Interrupt, Prepared, ReadPermit};
use bailiwick::{CallError, Change, Code, Plan, Reply, Scope, VirtualPath};

use super::suggest;
use crate::change::state::Inspected;
use crate::change::{
    ChangeSet, State, Step, StepExecutor, TemporaryFiles, TransferMode, inspect, repository, target,
};
use crate::replace::ReachedDurability;
use crate::resolve::{self, Kind};

/// What the call does to the source.
fn operation(mode: TransferMode) -> Operation {
    match mode {
        TransferMode::Copy => Operation::Read,
        TransferMode::Move => Operation::Move,
    }
}

/// Parsed arguments.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) from: VirtualPath,
    pub(super) to: VirtualPath,
    pub(super) overwrite: bool,
    pub(super) create_parents: bool,
}

/// Parses the arguments.
pub(super) fn prepare(
    names: &Namespace,
    mode: TransferMode,
    (from, to): (&str, &str),
    overwrite: bool,
    create_parents: bool,
) -> Result<Prepared<Job>, CallError> {
    let from = names.path_argument("/from", from)?;
    let to = names.path_argument("/to", to)?;
    target::reject_temporary_name(&to)?;
    target::reject_nested(&from, &to)?;
    Ok(Prepared {
        needs: vec![
            Scope::doing(operation(mode), from.clone()),
            target::put_need(&to, overwrite),
        ],
        job: Job {
            from,
            to,
            overwrite,
            create_parents,
        },
    })
}

/// A copy or move with resolved paths.
pub(super) struct Transfer {
    mode: TransferMode,
    pub(super) from: VirtualPath,
    pub(super) to: VirtualPath,
    /// The state of the source.
    pub(super) inspected: Inspected,
    /// The state of the destination.
    existing: Inspected,
    pub(super) steps: Vec<Step>,
}

impl Transfer {
    /// Resolves the paths, inspects both entries, and computes the steps.
    pub(super) fn resolve(
        mode: TransferMode,
        job: &Job,
        permit: &ReadPermit,
    ) -> Result<Self, Interrupt> {
        let reject_roots = |from: &VirtualPath, to: &VirtualPath| {
            if mode == TransferMode::Move {
                target::reject_root(permit, from)?;
            }
            target::reject_root(permit, to)
        };
        reject_roots(&job.from, &job.to)?;
        let temporaries = match mode {
            // A copy follows a link at the end of the path.
            TransferMode::Copy if resolve::entry(permit, &job.from)?.is_none() => {
                return Err(suggest::not_found(permit, &job.from).into());
            }
            TransferMode::Copy => TemporaryFiles::Excluded,
            TransferMode::Move => TemporaryFiles::Included,
        };
        let inspected = inspect(permit, &job.from, temporaries)?;
        let existing = target::destination(permit, &job.to, job.overwrite)?;
        let (from, to) = (
            permit.actual(&job.from).clone(),
            permit.actual(&job.to).clone(),
        );
        reject_roots(&from, &to)?;
        target::reject_temporary_name(&to)?;
        target::reject_nested(&from, &to)?;
        let meta = inspected
            .meta
            .ok_or_else(|| suggest::not_found(permit, &from))?;
        if existing.state != State::Absent && meta.kind == Kind::Directory {
            let message = format!("`{to}` is a file, which a directory cannot replace");
            return Err(CallError::new(Code::AlreadyExists, message).into());
        }
        let mut steps = target::missing_parents(permit, &to, job.create_parents)?;
        steps.push(Step::Transfer {
            mode,
            from: from.clone(),
            to: to.clone(),
            state: inspected.state.clone(),
            existing: existing.state.clone(),
        });
        Ok(Self {
            mode,
            from,
            to,
            inspected,
            existing,
            steps,
        })
    }

    /// Requires everything that the steps need; `check` is the result of a further check.
    pub(super) fn require(
        &self,
        permit: &ReadPermit,
        check: impl FnOnce() -> Result<(), Interrupt>,
    ) -> Result<(), Interrupt> {
        let Self {
            from,
            to,
            inspected,
            steps,
            ..
        } = self;
        let (operation, items) = (operation(self.mode), &inspected.items);
        target::check_write_modes(permit, steps, false)?;
        // Entries are checked one by one once all of the directory may be copied or moved.
        target::require_whole(permit, operation, (from, inspected), to)?;
        target::require_all([
            target::require_beneath(permit, operation, from, items, |path| Ok(path.clone())),
            target::require_beneath(permit, Operation::Create, from, items, |path| {
                target::relocated(path, from, to)
            }),
            check(),
            target::require_parents(permit, to, steps),
            repository::require(permit, steps, items),
        ])
    }

    /// The plan. `undo` reverts the last step; `None` if nothing can.
    pub(super) fn plan(
        self,
        executor: &StepExecutor,
        permit: &ReadPermit,
        undo: Option<Step>,
        reply: impl FnOnce(&Self, &FileDiff, ReachedDurability) -> Reply,
    ) -> Result<Plan<ChangeSet>, Interrupt> {
        let (op, bytes) = match self.mode {
            TransferMode::Copy => (Op::Copy, self.inspected.bytes),
            TransferMode::Move => (Op::Move, 0),
        };
        let mut changes = target::directory_changes(&self.steps);
        let source = (&self.from, &self.inspected);
        let (replaced, old) =
            target::replaced_file(executor, permit, source, (&self.to, &self.existing))?;
        changes.extend(replaced);
        let (entry, diff) = executor.describe(permit, &self.from, &self.inspected)?;
        let restore = undo.zip(target::restore_replaced(&self.to, old));
        let inverse = restore.map(|(undo, restore)| {
            let parents = target::undo_directories(&self.steps);
            [vec![undo], restore, parents].concat().into()
        });
        let reached = executor.reached();
        let reply = reply(&self, &diff, reached.clone());
        let files = self.inspected.items.len() + 1 + changes.len();
        changes.push(Change {
            path: self.from,
            op,
            to: Some(self.to),
            before: entry,
            after: entry,
            diff,
        });
        Ok(Plan {
            resources: Vec::new(),
            changes,
            reply,
            cost: Cost {
                bytes,
                files: files as u64,
            },
            steps: executor.change_set(self.steps, reached),
            inverse,
        })
    }
}
