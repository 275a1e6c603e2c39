//! Plans several steps, each on the result of those before it.

use std::collections::{BTreeMap, HashSet};

use bailiwick::effect::{Change, ContentHash, Cost, Entry, FileDiff, Op};
use bailiwick::scope::Operation;
use bailiwick::text::escape;
use bailiwick::tool::{Interrupt, ReadPermit};
use bailiwick::{CallError, Code, Scope, Verb, Verdict, VirtualPath};
use bytes::Bytes;
use serde_json::json;

use super::state::Inspected;
use super::tree::Item;
use super::{
    State, Step, StepExecutor, TemporaryFiles, TransferMode, inspect, repository, target, tree,
};
use crate::diff;
use crate::resolve::{self, Kind, Meta};
use crate::tools::delete;

/// Maximum number of paths that an error names.
const MAX_NAMED: usize = 20;

/// Steps that are planned one after the other. Writes of the same file are joined.
pub(crate) struct Sequence<'s> {
    executor: &'s StepExecutor,
    permit: &'s ReadPermit,
    /// The state of paths after the steps so far.
    known: BTreeMap<VirtualPath, Known>,
    /// Moves so far: old and new path.
    moves: Vec<(VirtualPath, VirtualPath)>,
    /// `None` for steps that later ones have made unnecessary.
    planned: Vec<Option<PlannedStep>>,
    checks: Vec<Result<(), Interrupt>>,
    conflicts: Vec<VirtualPath>,
}

/// A path after some steps.
#[derive(Clone, Debug)]
struct Known {
    state: State,
    content: Option<Bytes>,
    meta: Option<Meta>,
    /// The step that made it, if no other step has changed it since.
    made_by: Option<usize>,
    /// Whether it is a directory in which there is nothing but what later steps have made.
    is_new: bool,
}

impl Known {
    fn of(state: State, meta: Option<Meta>) -> Self {
        Self {
            state,
            content: None,
            meta,
            made_by: None,
            is_new: false,
        }
    }

    fn absent() -> Self {
        Self::of(State::Absent, None)
    }

    fn is_directory(&self) -> bool {
        matches!(self.state, State::Directory { .. })
    }
}

struct PlannedStep {
    step: Step,
    before: Known,
    inverse: Option<Vec<Step>>,
    change: Change,
    files: u64,
}

/// A finished sequence.
pub(crate) struct Sequenced {
    pub(crate) steps: Vec<Step>,
    /// The steps that undo each step.
    pub(crate) rollback: Vec<Vec<Step>>,
    /// The steps that undo all of them; `None` if one cannot be undone.
    pub(crate) inverse: Option<Vec<Step>>,
    pub(crate) changes: Vec<Change>,
    pub(crate) cost: Cost,
}

impl<'s> Sequence<'s> {
    pub(crate) fn new(executor: &'s StepExecutor, permit: &'s ReadPermit) -> Self {
        Self {
            executor,
            permit,
            known: BTreeMap::new(),
            moves: Vec::new(),
            planned: Vec::new(),
            checks: Vec::new(),
            conflicts: Vec::new(),
        }
    }

    /// Adds a step. If what it would make is there already, nothing is added. If its path is in another state than it
    /// expects, [`Sequence::finish`] fails.
    ///
    /// # Errors
    /// System errors, and `CANCELLED` or `DEADLINE` if the call must stop.
    pub(crate) fn push(&mut self, step: Step) -> Result<(), Interrupt> {
        self.permit.checkpoint()?;
        match step {
            Step::Write {
                path,
                content,
                existing,
                mode,
            } => self.write(path, content, &existing, mode),
            Step::MakeDirectory { path, mode } => self.make_directory(path, mode),
            Step::Remove { path, state } => self.remove(path, state),
            Step::Transfer {
                from, to, state, ..
            } => self.transfer(from, to, &state),
        }
    }

    /// Whether all paths are in the states that `steps` expect, and each of them changes something.
    ///
    /// # Errors
    /// As [`Sequence::push`].
    pub(crate) fn fits(mut self, steps: &[Step]) -> Result<bool, Interrupt> {
        for step in steps {
            if !self.is_expected(step)? {
                return Ok(false);
            }
            self.push(step.clone())?;
            if !self.conflicts.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the step finds what it expects, and not what it would make.
    fn is_expected(&self, step: &Step) -> Result<bool, Interrupt> {
        Ok(match step {
            Step::Write { path, existing, .. } => self.current(path)?.state == *existing,
            Step::MakeDirectory { path, .. } => self.current(path)?.state == State::Absent,
            Step::Remove { path, .. } => self.current(path)?.state != State::Absent,
            Step::Transfer { from, .. } => self.current(from)?.state != State::Absent,
        })
    }

    /// # Errors
    /// `CONFLICT` with the paths that are in another state than expected; `PERMISSION_DENIED` and the interrupts of checks.
    pub(crate) fn finish(self) -> Result<Sequenced, Interrupt> {
        let Self {
            permit,
            planned,
            checks,
            conflicts,
            ..
        } = self;
        if !conflicts.is_empty() {
            return Err(conflict(permit, conflicts).into());
        }
        target::require_all(checks)?;
        let mut sequenced = Sequenced {
            steps: Vec::new(),
            rollback: Vec::new(),
            inverse: Some(Vec::new()),
            changes: Vec::new(),
            cost: Cost::default(),
        };
        for planned in planned.into_iter().flatten() {
            if let Some(content) = planned.step.content() {
                sequenced.cost.bytes += content.len() as u64;
            }
            sequenced.cost.files += planned.files;
            sequenced.steps.push(planned.step);
            sequenced.changes.push(planned.change);
            let later = sequenced.inverse.take();
            sequenced.inverse = later
                .zip(planned.inverse.clone())
                .map(|(later, first)| [first, later].concat());
            sequenced.rollback.push(planned.inverse.unwrap_or_default());
        }
        target::check_write_modes(permit, &sequenced.steps, false)?;
        repository::require(permit, &sequenced.steps, &[])?;
        Ok(sequenced)
    }

    fn conflict(&mut self, path: &VirtualPath) {
        if !self.conflicts.contains(path) {
            self.conflicts.push(path.clone());
        }
    }

    /// Requires that the call may do this.
    fn require(&mut self, need: Scope) {
        self.checks.push(match self.permit.judge_need(&need) {
            Verdict::Allow => Ok(()),
            Verdict::Ask => Err(Interrupt::Needs(vec![need])),
            Verdict::Deny => Err(denied(need.path()).into()),
        });
    }

    /// The path on the disk of what is at `path` after the moves so far.
    fn on_disk(&self, path: &VirtualPath) -> Result<VirtualPath, CallError> {
        let mut moves = self.moves.iter().rev();
        moves.try_fold(path.clone(), |path, (from, to)| {
            if path.starts_with(to) {
                target::relocated(&path, to, from)
            } else {
                Ok(path)
            }
        })
    }

    /// What the steps so far say about `path`; `None` if it is as on the disk.
    fn simulated(&self, path: &VirtualPath) -> Option<Known> {
        if let Some(known) = self.known.get(path) {
            return Some(known.clone());
        }
        let mut above = path.parent();
        while let Some(dir) = above {
            if let Some(known) = self.known.get(&dir) {
                let nothing = known.state == State::Absent || known.is_new;
                return nothing.then(Known::absent);
            }
            above = dir.parent();
        }
        None
    }

    /// Inspects what is at `path` after the steps so far, except what they wrote; its items have their paths after them.
    fn inspect(&self, path: &VirtualPath) -> Result<Inspected, Interrupt> {
        let disk = self.on_disk(path)?;
        let mut inspected = inspect(self.permit, &disk, TemporaryFiles::Included)?;
        if disk != *path {
            for item in &mut inspected.items {
                item.path = target::relocated(&item.path, &disk, path)?;
            }
        }
        if !self.is_touched_beneath(path) {
            return Ok(inspected);
        }
        inspected.items.retain(|item| {
            let known = self.simulated(&item.path);
            known.is_none_or(|known| known.state != State::Absent)
        });
        let known = self.known.iter();
        let known = known.filter(|(known, _)| *known != path && known.starts_with(path));
        let listed: HashSet<&VirtualPath> = inspected.items.iter().map(|item| &item.path).collect();
        let mut moved = Vec::new();
        for (path, known) in known.filter(|(_, known)| known.state != State::Absent) {
            let Some(meta) = known.meta else { continue };
            if !listed.contains(path) {
                moved.push(Item {
                    path: path.clone(),
                    meta,
                });
                if known.is_directory() && !known.is_new {
                    moved.extend(self.inspect(path)?.items);
                }
            }
        }
        if !moved.is_empty() {
            inspected.items.extend(moved);
            // Directories before their contents.
            inspected.items.sort_by(|a, b| a.path.cmp(&b.path));
            inspected.items.dedup_by(|a, b| a.path == b.path);
        }
        Ok(inspected)
    }

    fn current(&self, path: &VirtualPath) -> Result<Known, Interrupt> {
        if let Some(known) = self.simulated(path) {
            return Ok(known);
        }
        let disk = self.on_disk(path)?;
        let inspected = match self.inspect(path) {
            // A directory above it is now a link.
            Err(Interrupt::Moved { .. }) => return Ok(Known::of(other_object(), None)),
            // A directory above it is now a file.
            Err(Interrupt::Failed(error)) if error.code() == Code::NotDirectory => {
                return Ok(Known::absent());
            }
            inspected => inspected?,
        };
        if !matches!(inspected.state, State::File { .. }) {
            return Ok(Known::of(inspected.state, inspected.meta));
        }
        let Some(old) = target::read_old(self.permit, &disk)? else {
            return Ok(Known::of(other_object(), None));
        };
        Ok(Known {
            content: old.bytes,
            ..Known::of(old.state, Some(old.meta))
        })
    }

    /// The content of a file after the steps so far; `None` if it cannot be read or kept.
    fn content(&self, path: &VirtualPath) -> Option<Bytes> {
        self.current(path).ok()?.content
    }

    /// Whether `path` is a directory after the steps so far.
    fn is_directory(&self, path: &VirtualPath) -> Result<bool, Interrupt> {
        if self.permit.root_of(path)?.1.is_empty() {
            return Ok(true);
        }
        if let Some(known) = self.simulated(path) {
            return Ok(known.is_directory());
        }
        match resolve::entry(self.permit, &self.on_disk(path)?) {
            Err(Interrupt::Moved { .. }) => Ok(false),
            Err(Interrupt::Failed(error)) if error.code() == Code::NotDirectory => Ok(false),
            meta => Ok(meta?.is_some_and(|meta| meta.kind == Kind::Directory)),
        }
    }

    /// Whether `path` can be created, as far as the directory above it matters.
    fn has_parent(&mut self, path: &VirtualPath) -> Result<bool, Interrupt> {
        let Some(parent) = path.parent() else {
            return Ok(false);
        };
        let there = self.is_directory(&parent)?;
        if !there {
            self.conflict(&parent);
        }
        Ok(there)
    }

    fn is_touched_beneath(&self, path: &VirtualPath) -> bool {
        let mut known = self.known.keys();
        known.any(|known| known != path && known.starts_with(path))
    }

    fn write(
        &mut self,
        path: VirtualPath,
        content: Bytes,
        existing: &State,
        mode: Option<u32>,
    ) -> Result<(), Interrupt> {
        let current = self.current(&path)?;
        let after = State::of_file(&content);
        if current.state == after {
            return Ok(());
        }
        if current.state != *existing {
            self.conflict(&path);
            return Ok(());
        }
        let operation = match existing {
            State::Absent if !self.has_parent(&path)? => return Ok(()),
            State::Absent => Operation::Create,
            _ => Operation::Change,
        };
        self.require(Scope::doing(operation, path.clone()));
        target::reject_temporary_name(&path)?;
        let (limit, bytes) = (self.permit.limits().write_max_bytes, content.len() as u64);
        if bytes > limit {
            let message = format!("a file would have {bytes} bytes, more than the {limit} allowed");
            return Err(CallError::new(Code::TooLarge, message).into());
        }
        // An earlier write of the same file is replaced.
        let earlier = current.made_by.and_then(|index| {
            let planned = self.planned.get_mut(index)?.take()?;
            Some((index, planned))
        });
        let (index, before, mode) = match earlier {
            Some((index, planned)) => {
                let mode = match planned.step {
                    Step::Write { mode, .. } => mode,
                    _ => None,
                };
                (index, planned.before, mode)
            }
            None => {
                self.planned.push(None);
                (self.planned.len() - 1, current, mode)
            }
        };
        if before.state == after {
            self.known.insert(path, before);
            return Ok(());
        }
        let meta = before.meta;
        let planned = self.write_step(&path, before, content.clone(), mode)?;
        self.set(index, planned);
        let known = Known {
            content: Some(content),
            made_by: Some(index),
            ..Known::of(after, meta)
        };
        self.known.insert(path, known);
        Ok(())
    }

    fn write_step(
        &self,
        path: &VirtualPath,
        before: Known,
        content: Bytes,
        mode: Option<u32>,
    ) -> Result<PlannedStep, CallError> {
        let after = State::of_file(&content);
        let inverse = match (&before.state, &before.content) {
            (State::Absent, _) => Some(vec![Step::Remove {
                path: path.clone(),
                state: after.clone(),
            }]),
            (_, Some(old)) => Some(vec![Step::Write {
                path: path.clone(),
                content: old.clone(),
                existing: after.clone(),
                mode: None,
            }]),
            (_, None) => None,
        };
        let old = before.content.clone().unwrap_or_default();
        let change = Change {
            path: path.clone(),
            op: match before.state {
                State::Absent => Op::Create,
                _ => Op::Modify,
            },
            to: None,
            before: self.entry(&before, path)?,
            after: self.entry(&Known::of(after, None), path)?,
            diff: if self.permit.shows(path) {
                diff::of_bytes(&old, &content)
            } else {
                diff::hidden()
            },
        };
        Ok(PlannedStep {
            step: Step::Write {
                path: path.clone(),
                content,
                existing: before.state.clone(),
                mode,
            },
            before,
            inverse,
            change,
            files: 1,
        })
    }

    /// Adds a step. Returns its index.
    fn plan(&mut self, planned: PlannedStep) -> usize {
        self.planned.push(Some(planned));
        self.planned.len() - 1
    }

    fn set(&mut self, index: usize, planned: PlannedStep) {
        if let Some(place) = self.planned.get_mut(index) {
            *place = Some(planned);
        }
    }

    fn make_directory(&mut self, path: VirtualPath, mode: Option<u32>) -> Result<(), Interrupt> {
        let current = self.current(&path)?;
        if current.is_directory() {
            return Ok(());
        }
        if current.state != State::Absent {
            self.conflict(&path);
            return Ok(());
        }
        if !self.has_parent(&path)? {
            return Ok(());
        }
        self.require(Scope::doing(Operation::Create, path.clone()));
        target::reject_temporary_name(&path)?;
        let step = Step::MakeDirectory {
            path: path.clone(),
            mode,
        };
        let inverse = vec![Step::Remove {
            path: path.clone(),
            state: State::empty_directory(),
        }];
        let change = Change {
            path: path.clone(),
            op: Op::MakeDirectory,
            to: None,
            before: Entry::Absent,
            after: Entry::Directory { entries: 0 },
            diff: FileDiff::default(),
        };
        let index = self.plan(PlannedStep {
            step,
            before: current,
            inverse: Some(inverse),
            change,
            files: 1,
        });
        let known = Known {
            made_by: Some(index),
            is_new: true,
            ..Known::of(State::empty_directory(), None)
        };
        self.known.insert(path, known);
        Ok(())
    }

    fn remove(&mut self, path: VirtualPath, state: State) -> Result<(), Interrupt> {
        target::reject_root(self.permit, &path)?;
        let current = self.current(&path)?;
        if current.state == State::Absent {
            return Ok(());
        }
        let inspected = match (&current.state, current.is_new) {
            (State::Directory { .. }, false) => Some(self.inspect(&path)?),
            _ => None,
        };
        let all_known = if current.is_new {
            self.new_directory(&path)
        } else {
            None
        };
        if let Some(known) = &all_known {
            if *known != state {
                self.conflict(&path);
                return Ok(());
            }
            if self.is_made_here(&path) {
                self.unmake_contents(&path);
            }
        } else if current.is_directory() && self.is_touched_beneath(&path) {
            if state == State::empty_directory() && !self.is_emptied(&path, inspected.as_ref()) {
                self.conflict(&path);
                return Ok(());
            }
            // Another state is compared when the steps are carried out.
        } else if current.state != state {
            self.conflict(&path);
            return Ok(());
        }
        let empty = state == State::empty_directory();
        let need = Scope::doing(Operation::Delete, path.clone());
        self.require(match current.state {
            State::Directory { .. } if !empty => need.beneath(),
            _ => need,
        });
        let items = inspected.as_ref().map(|inspected| &*inspected.items);
        let items = items.filter(|_| !empty).unwrap_or_default();
        let beneath =
            target::require_beneath(self.permit, Operation::Delete, &path, items, |path| {
                Ok(path.clone())
            });
        self.checks.push(beneath);
        // What was made by an earlier step is not made.
        let earlier = current
            .made_by
            .filter(|_| !current.is_directory() || all_known.is_some() && self.is_made_here(&path));
        let earlier = earlier.and_then(|index| {
            let planned = self.planned.get_mut(index)?.take()?;
            Some(planned.before)
        });
        let before = earlier.unwrap_or(current);
        if before.state != State::Absent {
            let planned = self.remove_step(path.clone(), state, before, inspected.as_ref())?;
            self.plan(planned);
        }
        self.known
            .retain(|known, _| known == &path || !known.starts_with(&path));
        self.known.insert(path, Known::absent());
        Ok(())
    }

    /// `inspected` is the directory, if it is one on the disk.
    fn remove_step(
        &self,
        path: VirtualPath,
        state: State,
        before: Known,
        inspected: Option<&Inspected>,
    ) -> Result<PlannedStep, CallError> {
        let whole = inspected.filter(|_| state != State::empty_directory());
        let mode = before.meta.map(|meta| meta.mode & 0o777);
        let inverse = match (&before.state, &before.content, whole) {
            (State::File { .. }, Some(content), _) => Some(vec![Step::Write {
                path: path.clone(),
                content: content.clone(),
                existing: State::Absent,
                mode,
            }]),
            (State::Directory { .. }, _, Some(inspected)) => before.meta.and_then(|meta| {
                delete::restore(&path, &meta, inspected, |path| self.content(path))
            }),
            (State::Directory { .. }, _, None) if state == State::empty_directory() => {
                Some(vec![Step::MakeDirectory {
                    path: path.clone(),
                    mode,
                }])
            }
            _ => None,
        };
        let (entry, diff) = match (whole, &before.content) {
            (Some(inspected), _) => self.executor.describe(self.permit, &path, inspected)?,
            (None, Some(content)) if self.permit.shows(&path) => {
                (self.entry(&before, &path)?, diff::of_bytes(content, b""))
            }
            (None, _) if before.is_directory() => {
                (Entry::Directory { entries: 0 }, FileDiff::default())
            }
            (None, _) => (self.entry(&before, &path)?, diff::hidden()),
        };
        let change = Change {
            path: path.clone(),
            op: Op::Delete,
            to: None,
            before: entry,
            after: Entry::Absent,
            diff,
        };
        let state = if before.is_directory() {
            state
        } else {
            before.state.clone()
        };
        Ok(PlannedStep {
            step: Step::Remove { path, state },
            before,
            inverse,
            change,
            files: whole.map_or(0, |inspected| inspected.items.len() as u64) + 1,
        })
    }

    /// The state of a directory that was made in this sequence; `None` if it has contents that were not.
    fn new_directory(&self, path: &VirtualPath) -> Option<State> {
        let known = self.known.iter();
        let known = known.filter(|(known, _)| *known != path && known.starts_with(path));
        let mut entries = Vec::new();
        for (known, entry) in known {
            let names: Vec<&str> = known.names().skip(path.depth()).collect();
            match (&entry.state, entry.made_by) {
                (State::Absent, _) => {}
                (State::File { hash, bytes }, Some(_)) => {
                    entries.push((names, Some((*hash, *bytes))));
                }
                (State::Directory { .. }, Some(_)) if entry.is_new => entries.push((names, None)),
                _ => return None,
            }
        }
        tree::state_of(entries)
    }

    /// Whether all steps at and beneath `path` made what is there now.
    fn is_made_here(&self, path: &VirtualPath) -> bool {
        let known = self.known.iter();
        let known = known.filter(|(known, _)| known.starts_with(path));
        let makers: Vec<usize> = known.filter_map(|(_, known)| known.made_by).collect();
        let mut planned = self.planned.iter().enumerate();
        let is_own = self
            .known
            .get(path)
            .is_some_and(|known| known.made_by.is_some());
        is_own
            && planned.all(|(index, planned)| {
                let outside = planned.as_ref().is_none_or(|planned| {
                    let mut touched = planned.step.touched();
                    !touched.any(|touched| touched.starts_with(path))
                });
                outside || makers.contains(&index)
            })
    }

    /// Drops the steps that made the contents of a directory, which is not made either.
    fn unmake_contents(&mut self, path: &VirtualPath) {
        let known = self.known.iter();
        let known = known.filter(|(known, _)| *known != path && known.starts_with(path));
        for index in known.filter_map(|(_, known)| known.made_by) {
            if let Some(planned) = self.planned.get_mut(index) {
                *planned = None;
            }
        }
    }

    /// Whether the steps so far remove everything that the directory contains.
    fn is_emptied(&self, path: &VirtualPath, inspected: Option<&Inspected>) -> bool {
        let made = self.known.iter().filter(|(known, _)| *known != path);
        let mut made = made.filter(|(known, _)| known.starts_with(path));
        if made.any(|(_, known)| known.state != State::Absent) {
            return false;
        }
        let mut items = inspected.into_iter().flat_map(|inspected| &inspected.items);
        items.all(|item| {
            let known = self.simulated(&item.path);
            known.is_some_and(|known| known.state == State::Absent)
        })
    }

    fn transfer(
        &mut self,
        from: VirtualPath,
        to: VirtualPath,
        state: &State,
    ) -> Result<(), Interrupt> {
        target::reject_root(self.permit, &from)?;
        target::reject_root(self.permit, &to)?;
        let (current, there) = (self.current(&from)?, self.current(&to)?);
        if current.state == State::Absent && there.state == *state {
            return Ok(());
        }
        if there.state != State::Absent {
            self.conflict(&to);
            return Ok(());
        }
        let touched = current.is_directory() && self.is_touched_beneath(&from);
        if current.state == State::Absent || !touched && current.state != *state {
            self.conflict(&from);
            return Ok(());
        }
        if !self.has_parent(&to)? {
            return Ok(());
        }
        target::reject_temporary_name(&to)?;
        // What was made in this sequence is not on the disk.
        let inspected = if current.is_directory() && !current.is_new {
            Some(self.inspect(&from)?)
        } else {
            None
        };
        let items = inspected.as_ref().map(|inspected| &*inspected.items);
        let items = items.unwrap_or_default();
        self.require_transfer(&from, &to, items, current.is_directory())?;
        let (entry, diff) = match &inspected {
            Some(inspected) => self.executor.describe(self.permit, &from, inspected)?,
            None => (self.entry(&current, &from)?, FileDiff::default()),
        };
        let step = |from: &VirtualPath, to: &VirtualPath| Step::Transfer {
            mode: TransferMode::Move,
            from: from.clone(),
            to: to.clone(),
            state: state.clone(),
            existing: State::Absent,
        };
        self.plan(PlannedStep {
            step: step(&from, &to),
            before: current.clone(),
            inverse: Some(vec![step(&to, &from)]),
            change: Change {
                path: from.clone(),
                op: Op::Move,
                to: Some(to.clone()),
                before: entry,
                after: entry,
                diff,
            },
            files: items.len() as u64 + 1,
        });
        self.note_move(from, to, current)
    }

    /// Requires that the call may move an entry with everything in it.
    fn require_transfer(
        &mut self,
        from: &VirtualPath,
        to: &VirtualPath,
        items: &[Item],
        directory: bool,
    ) -> Result<(), Interrupt> {
        let permit = self.permit;
        for (operation, path) in [(Operation::Move, from), (Operation::Create, to)] {
            let need = Scope::doing(operation, path.clone());
            self.require(if directory { need.beneath() } else { need });
        }
        let beneath =
            [
                target::require_beneath(permit, Operation::Move, from, items, |path| {
                    Ok(path.clone())
                }),
                target::require_beneath(permit, Operation::Create, from, items, |path| {
                    target::relocated(path, from, to)
                }),
            ];
        self.checks.extend(beneath);
        // A move must not make hidden files readable.
        if permit.shows(to) {
            self.checks.push(permit.require(Verb::Read, [from]));
        }
        let made = self.known.keys().filter(|known| known.starts_with(from));
        for path in items.iter().map(|item| &item.path).chain(made) {
            let moved = target::relocated(path, from, to)?;
            let create = Scope::doing(Operation::Create, moved.clone());
            let readable = permit.shows(&moved) && !permit.shows(path);
            if readable || permit.judge_need(&create) == Verdict::Deny {
                return Err(denied(None).into());
            }
        }
        Ok(())
    }

    fn note_move(
        &mut self,
        from: VirtualPath,
        to: VirtualPath,
        moved: Known,
    ) -> Result<(), Interrupt> {
        let known = std::mem::take(&mut self.known);
        for (path, known) in known {
            if path == from || !path.starts_with(&from) {
                self.known.insert(path, known);
            } else {
                let path = target::relocated(&path, &from, &to)?;
                let known = Known {
                    made_by: None,
                    ..known
                };
                self.known.insert(path, known);
            }
        }
        let moved = Known {
            made_by: None,
            ..moved
        };
        self.known.insert(from.clone(), Known::absent());
        self.known.insert(to.clone(), moved);
        self.moves.push((from, to));
        Ok(())
    }

    /// The entry to report; masked if the content may not be read.
    fn entry(&self, known: &Known, path: &VirtualPath) -> Result<Entry, CallError> {
        let shown = self.permit.shows(path);
        match (known.state.entry(), known.meta) {
            (Entry::File { hash, .. }, None) if !shown => Ok(Entry::File {
                hash: self
                    .executor
                    .masked(hash, ContentHash::of(path.as_str().as_bytes()))?,
                bytes: 0,
            }),
            (_, meta) => self.executor.entry(&known.state, meta.as_ref(), shown),
        }
    }
}

/// A state that no path has.
fn other_object() -> State {
    State::Object {
        stamp: ContentHash::of(b""),
        bytes: 0,
    }
}

fn denied(path: Option<&VirtualPath>) -> CallError {
    let message = match path {
        Some(path) => format!("this worker may not change `{}`", escape(path.as_str())),
        None => "this worker may not move everything back".to_owned(),
    };
    CallError::new(Code::PermissionDenied, message)
}

/// The error for paths that are in another state than expected. Paths that the call may not read are not named.
fn conflict(permit: &ReadPermit, paths: Vec<VirtualPath>) -> CallError {
    let count = paths.len();
    let shown = paths.into_iter().filter(|path| permit.shows(path));
    let shown: Vec<String> = shown
        .take(MAX_NAMED)
        .map(|path| path.as_str().to_owned())
        .collect();
    let names: Vec<String> = shown
        .iter()
        .map(|path| format!("`{}`", escape(path)))
        .collect();
    let names = match names.as_slice() {
        [] => format!("{count} paths"),
        names if names.len() < count => {
            format!("{} and {} more", names.join(", "), count - names.len())
        }
        names => names.join(", "),
    };
    let message = format!("{names} changed since; nothing was changed now");
    CallError::new(Code::Conflict, message).with("conflicts", json!(shown))
}
