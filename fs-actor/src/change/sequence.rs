//! Plans several steps, each on the result of those before it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bailiwick::effect::{Change, ContentHash, Cost, Entry, FileDiff, Op, ResourceChange};
use bailiwick::scope::Operation;
use bailiwick::text::escape;
use bailiwick::tool::{Interrupt, ReadPermit};
use bailiwick::{CallError, Code, Scope, Verb, Verdict, VirtualPath};
use bytes::Bytes;
use serde_json::json;

use super::state::Inspected;
use super::tree::Item;
use super::{
    MAX_NAMED, State, Step, StepExecutor, TemporaryFiles, TransferMode, inspect, named,
    permissions, repository, target, tree,
};
use crate::diff;
use crate::resolve::{self, Kind, Meta};
use crate::tools::delete;

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
    /// The bytes of old contents that the inverses of the planned steps keep.
    kept: u64,
    /// The most that are kept. Larger steps are planned without an inverse.
    most_kept: u64,
    /// Whether directories are inspected with the temporary files of writers.
    temporaries: TemporaryFiles,
}

/// A path after some steps.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) state: State,
    /// The content of a file, or the target of a symbolic link, if it can be kept.
    pub(crate) content: Option<Bytes>,
    /// Whether it is a file on the disk, whose content can be read again.
    is_on_disk: bool,
    /// `None` if an earlier step makes it.
    pub(crate) meta: Option<Meta>,
    /// The mode with which an earlier step makes it, if not the default.
    mode: Option<u32>,
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
            is_on_disk: false,
            meta,
            mode: None,
            made_by: None,
            is_new: false,
        }
    }

    fn absent() -> Self {
        Self::of(State::Absent, None)
    }

    /// The same entry, on which other steps depend or that they have changed.
    fn of_other_steps(self) -> Self {
        Self {
            made_by: None,
            ..self
        }
    }

    /// The same entry without a content that can be read again.
    fn without_content(self) -> Self {
        let content = self.content.filter(|_| !self.is_on_disk);
        Self { content, ..self }
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.state, State::Directory { .. })
    }

    /// Its permission bits; `None` for the default of a new entry.
    pub(super) fn file_mode(&self) -> Option<u32> {
        self.meta.map(|meta| meta.mode & 0o777).or(self.mode)
    }

    /// Whether it is a regular file.
    pub(crate) fn is_file(&self) -> bool {
        match self.state {
            State::File { .. } => true,
            State::Object { .. } => self.meta.is_some_and(|meta| meta.kind == Kind::File),
            State::Absent | State::Link { .. } | State::Directory { .. } => false,
        }
    }
}

struct PlannedStep {
    step: Step,
    before: Known,
    inverse: Option<Vec<Step>>,
    changes: Vec<Change>,
    /// What people see besides.
    resources: Vec<ResourceChange>,
    /// The cost.
    files: u64,
    bytes: u64,
}

impl PlannedStep {
    /// The bytes of old contents that its inverse keeps.
    fn kept(&self) -> u64 {
        let contents = self.inverse.iter().flatten().filter_map(Step::content);
        contents.map(|content| content.len() as u64).sum()
    }

    /// Whether it rewrites a file that only grows.
    fn appends(&self) -> bool {
        match (&self.step, &self.before.content) {
            (Step::Write { content, .. }, Some(old)) => content.starts_with(old),
            _ => false,
        }
    }
}

/// A finished sequence.
pub(crate) struct Sequenced {
    pub(crate) steps: Vec<Step>,
    /// The steps that undo each step.
    pub(crate) rollback: Vec<Vec<Step>>,
    /// The steps that undo all of them; `None` if one cannot be undone.
    pub(crate) inverse: Option<Vec<Step>>,
    pub(crate) changes: Vec<Change>,
    pub(crate) resources: Vec<ResourceChange>,
    /// The number of changes of each step, and its cost.
    pub(crate) sizes: Vec<(usize, Cost)>,
}

impl Sequenced {
    /// The cost of all steps.
    pub(crate) fn cost(&self) -> Cost {
        let costs = self.sizes.iter().map(|(_, cost)| cost);
        costs.fold(Cost::default(), |sum, cost| Cost {
            bytes: sum.bytes + cost.bytes,
            files: sum.files + cost.files,
        })
    }
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
            kept: 0,
            most_kept: u64::MAX,
            temporaries: TemporaryFiles::Included,
        }
    }

    /// A sequence that undoes what a crash interrupted, so temporary files are without a writer and will be removed.
    pub(crate) fn after_crash(executor: &'s StepExecutor, permit: &'s ReadPermit) -> Self {
        Self {
            temporaries: TemporaryFiles::Excluded,
            ..Self::new(executor, permit)
        }
    }

    /// Sets how many bytes of old contents are kept. Steps that exceed this are planned without an inverse.
    pub(crate) fn keep_at_most(&mut self, bytes: u64) {
        self.most_kept = bytes;
    }

    /// The bytes of old contents that are kept to undo the steps so far.
    pub(crate) fn kept(&self) -> u64 {
        self.kept
    }

    /// The bytes of new contents that the steps so far write.
    pub(crate) fn written(&self) -> u64 {
        let planned = self.planned.iter().flatten();
        planned.map(|planned| planned.bytes).sum()
    }

    /// The bytes of all contents of files that it has in memory.
    #[cfg(test)]
    pub(super) fn held(&self) -> u64 {
        let planned = || self.planned.iter().flatten();
        let known = self.known.values();
        let before = known.chain(planned().map(|planned| &planned.before));
        let before = before.filter_map(|known| known.content.as_ref());
        let inverse = planned().flat_map(|planned| planned.inverse.iter().flatten());
        let contents = before.chain(inverse.filter_map(Step::content));
        let contents: BTreeMap<_, _> = contents
            .map(|content| (content.as_ptr(), content.len() as u64))
            .collect();
        contents.values().sum()
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
            Step::SetMode {
                path,
                state,
                from,
                to,
            } => self.set_mode(path, &state, from, to),
            Step::MakeDirectory { path, mode } => self.make_directory(path, mode),
            Step::MakeLink { path, target } => self.make_link(path, target),
            Step::Remove { path, state } => self.remove(path, state),
            Step::Transfer {
                mode,
                from,
                to,
                state,
                existing,
            } => self.transfer(mode, from, to, (&state, &existing)),
        }
    }

    /// Adds a step that creates a directory above `target`.
    ///
    /// # Errors
    /// As [`Sequence::push`].
    pub(crate) fn push_parent(
        &mut self,
        path: VirtualPath,
        target: &VirtualPath,
    ) -> Result<(), Interrupt> {
        let may_create = self.permit.require_parents(target, [&path]);
        self.checks.push(may_create);
        self.create_directory(path, None)
    }

    /// Adds the results of further checks, for [`Sequence::finish`].
    pub(crate) fn require_all(&mut self, checks: Vec<Result<(), Interrupt>>) {
        self.checks.extend(checks);
    }

    /// A path that one of the steps changes so that the change cannot be undone.
    pub(crate) fn irreversible(&self) -> Option<&VirtualPath> {
        let mut planned = self.planned.iter().flatten();
        let planned = planned.find(|planned| planned.inverse.is_none())?;
        planned.step.touched().next()
    }

    /// Whether all paths are in the states that `steps` expect, and each of them changes something.
    ///
    /// # Errors
    /// As [`Sequence::push`].
    pub(crate) fn fits(self, steps: &[Step]) -> Result<bool, Interrupt> {
        self.fits_after(0, steps)
    }

    /// As [`Sequence::fits`], but what the first steps restore may be there already: a directory is deleted entry by entry.
    ///
    /// # Errors
    /// As [`Sequence::push`].
    pub(crate) fn fits_in_part(self, steps: &[Step]) -> Result<bool, Interrupt> {
        let restoring = steps.iter().take_while(|step| step.restores()).count();
        self.fits_after(restoring, steps)
    }

    fn fits_after(mut self, restoring: usize, steps: &[Step]) -> Result<bool, Interrupt> {
        for (index, step) in steps.iter().enumerate() {
            if index < restoring && self.is_restored(step)? {
                continue;
            }
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
            Step::SetMode {
                path, state, from, ..
            } => {
                let current = self.current(path)?;
                current.state == *state && current.file_mode() == Some(*from)
            }
            Step::MakeDirectory { path, .. } | Step::MakeLink { path, .. } => {
                self.current(path)?.state == State::Absent
            }
            Step::Remove { path, .. } => self.current(path)?.state != State::Absent,
            Step::Transfer { from, .. } => self.current(from)?.state != State::Absent,
        })
    }

    /// Whether the path of a step that restores something is as the step would leave it.
    fn is_restored(&self, step: &Step) -> Result<bool, Interrupt> {
        for (path, state) in step.results() {
            let current = self.current(path)?;
            let same = match state {
                State::Directory { .. } => current.is_directory(),
                state => current.state == state,
            };
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
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
            return Err(conflict(permit, &conflicts).into());
        }
        target::require_all(checks)?;
        let planned: Vec<PlannedStep> = planned.into_iter().flatten().collect();
        let inverses = planned.iter().rev();
        let inverses: Option<Vec<&[Step]>> =
            inverses.map(|planned| planned.inverse.as_deref()).collect();
        let mut sequenced = Sequenced {
            steps: Vec::new(),
            rollback: Vec::new(),
            inverse: inverses.map(|inverses| inverses.concat()),
            changes: Vec::new(),
            resources: Vec::new(),
            sizes: Vec::new(),
        };
        for planned in planned {
            let cost = Cost {
                bytes: planned.bytes,
                files: planned.files,
            };
            sequenced.sizes.push((planned.changes.len(), cost));
            let step = std::slice::from_ref(&planned.step);
            target::check_write_modes(permit, step, planned.appends())?;
            sequenced.steps.push(planned.step);
            sequenced.changes.extend(planned.changes);
            sequenced.resources.extend(planned.resources);
            sequenced.rollback.push(planned.inverse.unwrap_or_default());
        }
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
    pub(crate) fn on_disk(&self, path: &VirtualPath) -> Result<VirtualPath, CallError> {
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
                let nothing = !known.is_directory() || known.is_new;
                return nothing.then(Known::absent);
            }
            above = dir.parent();
        }
        None
    }

    /// Whether steps so far changed something at or above `path`.
    pub(crate) fn is_changed(&self, path: &VirtualPath) -> bool {
        self.known.contains_key(path)
            || std::iter::successors(path.parent(), VirtualPath::parent)
                .any(|above| self.known.contains_key(&above))
    }

    /// Whether what is at `path` after the steps so far, if anything, is not on the disk.
    pub(crate) fn is_new(&self, path: &VirtualPath) -> bool {
        let simulated = self.simulated(path);
        simulated.is_some_and(|known| known.is_new || known.state == State::Absent)
    }

    /// Inspects what is at `path` after the steps so far, except what they wrote; its items have their paths after them.
    fn inspect(&self, path: &VirtualPath) -> Result<Inspected, Interrupt> {
        let is_new = self.is_new(path);
        let disk = self.on_disk(path)?;
        let mut inspected = if is_new {
            Inspected::ABSENT
        } else {
            inspect(self.permit, &disk, self.temporaries)?
        };
        if disk != *path {
            for item in &mut inspected.items {
                item.path = target::relocated(&item.path, &disk, path)?;
            }
        }
        if !is_new && !self.is_touched_beneath(path) {
            return Ok(inspected);
        }
        inspected
            .items
            .retain(|item| self.simulated(&item.path).is_none());
        let known = known_beneath(&self.known, path);
        for (path, known) in known.filter(|(_, known)| known.state != State::Absent) {
            let Some(meta) = known.meta else { continue };
            inspected.items.push(Item {
                path: path.clone(),
                meta,
            });
            if known.is_directory() {
                inspected.items.extend(self.inspect(path)?.items);
            }
        }
        // Directories before their contents.
        inspected.items.sort_by(|a, b| a.path.cmp(&b.path));
        inspected.items.dedup_by(|a, b| a.path == b.path);
        Ok(inspected)
    }

    /// Inspects what is at `path` if it is a directory.
    fn inspect_directory(
        &self,
        path: &VirtualPath,
        known: &Known,
    ) -> Result<Option<Inspected>, Interrupt> {
        let directory = known.is_directory();
        directory.then(|| self.inspect(path)).transpose()
    }

    pub(crate) fn current(&self, path: &VirtualPath) -> Result<Known, Interrupt> {
        if let Some(known) = self.simulated(path) {
            if !known.is_on_disk || known.content.is_some() {
                return Ok(known);
            }
            let content = target::restorable(self.permit, &self.on_disk(path)?, Kind::File);
            let content = content.filter(|content| State::of_file(content) == known.state);
            return Ok(Known { content, ..known });
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
            let link = inspected.meta.filter(|meta| meta.kind == Kind::Link);
            let target = link.and_then(|_| target::restorable(self.permit, &disk, Kind::Link));
            return Ok(Known {
                content: target,
                ..Known::of(inspected.state, inspected.meta)
            });
        }
        let Some(old) = target::read_old(self.permit, &disk)? else {
            return Ok(Known::of(other_object(), None));
        };
        Ok(Known {
            content: old.bytes.clone(),
            is_on_disk: true,
            ..Known::of(old.state(), Some(old.meta))
        })
    }

    /// The content of a file, or the target of a link, after the steps so far; `None` if it cannot be read or kept.
    fn content(&self, path: &VirtualPath) -> Option<Bytes> {
        self.current(path).ok()?.content
    }

    /// Whether `path` is a directory after the steps so far.
    pub(crate) fn is_directory(&self, path: &VirtualPath) -> Result<bool, Interrupt> {
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

    pub(crate) fn is_touched_beneath(&self, path: &VirtualPath) -> bool {
        known_beneath(&self.known, path).next().is_some()
    }

    /// Removes what the steps so far say about the paths beneath `path`.
    fn take_beneath(&mut self, path: &VirtualPath) -> Vec<(VirtualPath, Known)> {
        let paths = known_beneath(&self.known, path).map(|(path, _)| path.clone());
        let paths: Vec<VirtualPath> = paths.collect();
        let taken = paths
            .iter()
            .filter_map(|path| self.known.remove_entry(path));
        taken.collect()
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
        let earlier = current
            .made_by
            .and_then(|index| Some((index, self.take(index)?)));
        let (index, before, mode) = match earlier {
            Some((index, planned)) => {
                let mode = mode.or(match planned.step {
                    Step::Write { mode, .. } => mode,
                    _ => None,
                });
                (index, planned.before, mode)
            }
            None => {
                self.planned.push(None);
                (self.planned.len() - 1, current, mode)
            }
        };
        let is_same_mode = mode.is_none() || mode == before.file_mode();
        if before.state == after && is_same_mode {
            self.known.insert(path, before.without_content());
            return Ok(());
        }
        let mode = mode.or(before.mode);
        let meta = before.meta.map(|meta| with_mode(meta, mode));
        let planned = self.write_step(&path, before, content.clone(), mode)?;
        self.set(index, planned);
        let known = Known {
            content: Some(content),
            made_by: Some(index),
            mode,
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
                mode: mode.and_then(|_| before.file_mode()),
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
        let old_mode = before.meta.map(|meta| meta.mode);
        let shown = self.permit.shows(path);
        let resources = old_mode
            .zip(mode)
            .and_then(|(from, to)| permissions::described(path, shown.then_some(from), to));
        Ok(PlannedStep {
            resources: resources.into_iter().collect(),
            bytes: content.len() as u64,
            step: Step::Write {
                path: path.clone(),
                content,
                existing: before.state.clone(),
                mode,
            },
            before,
            inverse,
            changes: vec![change],
            files: 1,
        })
    }

    /// Adds a step. Returns its index.
    fn plan(&mut self, planned: PlannedStep) -> usize {
        self.planned.push(None);
        let index = self.planned.len() - 1;
        self.set(index, planned);
        index
    }

    fn set(&mut self, index: usize, mut planned: PlannedStep) {
        let kept = self.kept.saturating_add(planned.kept());
        if kept > self.most_kept {
            planned.inverse = None;
            planned.before.content = None;
        } else {
            self.kept = kept;
        }
        if let Some(place) = self.planned.get_mut(index) {
            *place = Some(planned);
        }
    }

    /// Removes a step that is unnecessary.
    fn take(&mut self, index: usize) -> Option<PlannedStep> {
        let planned = self.planned.get_mut(index)?.take()?;
        self.kept = self.kept.saturating_sub(planned.kept());
        Some(planned)
    }

    fn set_mode(
        &mut self,
        path: VirtualPath,
        state: &State,
        from: u32,
        to: u32,
    ) -> Result<(), Interrupt> {
        let current = self.current(&path)?;
        let mode = current.file_mode();
        if current.state == *state && mode == Some(to) {
            return Ok(());
        }
        if current.state != *state || mode != Some(from) {
            self.conflict(&path);
            return Ok(());
        }
        self.require(Scope::doing(Operation::Change, path.clone()));
        let entry = self.entry(&current, &path)?;
        let known = Known {
            meta: current.meta.map(|meta| with_mode(meta, Some(to))),
            mode: Some(to),
            ..current.clone().without_content().of_other_steps()
        };
        self.plan(PlannedStep {
            changes: vec![permissions::change(path.clone(), entry)],
            resources: permissions::described(&path, self.permit.shows(&path).then_some(from), to)
                .into_iter()
                .collect(),
            inverse: Some(vec![permissions::step(&path, state, to, from)]),
            step: permissions::step(&path, state, from, to),
            before: current.without_content(),
            files: 1,
            bytes: 0,
        });
        self.known.insert(path, known);
        Ok(())
    }

    fn make_link(&mut self, path: VirtualPath, target: Bytes) -> Result<(), Interrupt> {
        let current = self.current(&path)?;
        let state = State::of_link(&target);
        if current.state == state {
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
        let (change, described) = target::created_link(&path, &target, self.permit.shows(&path));
        let index = self.plan(PlannedStep {
            step: Step::MakeLink {
                path: path.clone(),
                target: target.clone(),
            },
            before: current,
            inverse: Some(vec![Step::Remove {
                path: path.clone(),
                state: state.clone(),
            }]),
            changes: vec![change],
            resources: described.into_iter().collect(),
            files: 1,
            bytes: 0,
        });
        let known = Known {
            content: Some(target),
            made_by: Some(index),
            ..Known::of(state, None)
        };
        self.known.insert(path, known);
        Ok(())
    }

    fn make_directory(&mut self, path: VirtualPath, mode: Option<u32>) -> Result<(), Interrupt> {
        if !self.current(&path)?.is_directory() {
            self.require(Scope::doing(Operation::Create, path.clone()));
        }
        self.create_directory(path, mode)
    }

    fn create_directory(&mut self, path: VirtualPath, mode: Option<u32>) -> Result<(), Interrupt> {
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
            changes: vec![change],
            resources: Vec::new(),
            files: 1,
            bytes: 0,
        });
        let known = Known {
            made_by: Some(index),
            is_new: true,
            mode,
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
        let inspected = self.inspect_directory(&path, &current)?;
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
        let earlier = earlier.and_then(|index| Some(self.take(index)?.before));
        let before = earlier.unwrap_or(current);
        if before.state != State::Absent {
            // What is on the disk now is not what will be deleted.
            let changed = !empty
                && before.is_directory()
                && (before.is_new || self.is_touched_beneath(&path));
            let restore = match changed {
                true => Some(self.restore(&path, &before)?),
                false => None,
            };
            let on_disk = inspected.as_ref().filter(|_| !before.is_new);
            let mut planned = self.remove_step(path.clone(), state, before, on_disk)?;
            if let Some(restore) = restore {
                planned.inverse = restore;
            }
            self.plan(planned);
        }
        self.take_beneath(&path);
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
        let mode = before.file_mode();
        let inverse = match (&before.state, &before.content, whole) {
            (State::File { .. }, Some(content), _) => Some(vec![Step::Write {
                path: path.clone(),
                content: content.clone(),
                existing: State::Absent,
                mode,
            }]),
            (State::Link { .. }, Some(target), _) => Some(vec![Step::MakeLink {
                path: path.clone(),
                target: target.clone(),
            }]),
            (State::Directory { .. }, _, Some(inspected)) => before.meta.and_then(|meta| {
                delete::restore(&path, &meta, inspected, |path, _| self.content(path))
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
            (None, Some(content)) if before.is_file() && self.permit.shows(&path) => {
                (self.entry(&before, &path)?, diff::of_bytes(content, b""))
            }
            (None, _) if before.is_directory() => {
                (Entry::Directory { entries: 0 }, FileDiff::default())
            }
            (None, Some(_)) if self.permit.shows(&path) => {
                (self.entry(&before, &path)?, FileDiff::default())
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
            changes: vec![change],
            resources: Vec::new(),
            files: whole.map_or(0, |inspected| inspected.items.len() as u64) + 1,
            bytes: 0,
        })
    }

    /// The state of a directory that was made in this sequence; `None` if it has contents that were not.
    fn new_directory(&self, path: &VirtualPath) -> Option<State> {
        let mut entries = Vec::new();
        for (known, entry) in known_beneath(&self.known, path) {
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

    /// The steps that restore a directory as it is after the steps so far, unless it is too large to keep.
    fn restore(&self, path: &VirtualPath, known: &Known) -> Result<Option<Vec<Step>>, Interrupt> {
        let contents = self.contents(path)?;
        let bytes = contents.values();
        let bytes = bytes.filter_map(|known| known.state.entry().bytes());
        let bytes = bytes.fold(0, u64::saturating_add);
        if contents.len() > delete::MAX_RESTORABLE_ENTRIES || bytes > delete::MAX_RESTORABLE_BYTES {
            return Ok(None);
        }
        let steps = std::iter::once((path, known)).chain(&contents);
        let steps = steps.map(|(path, known)| {
            let content = match known.is_on_disk {
                true => self.content(path),
                false => known.content.clone(),
            };
            let (path, mode) = (path.clone(), known.file_mode());
            Some(match (&known.state, &content) {
                (State::Directory { .. }, _) => Step::MakeDirectory {
                    path,
                    mode: mode.map(|mode| mode | 0o700),
                },
                (State::Link { .. }, target) => Step::MakeLink {
                    path,
                    target: target.clone()?,
                },
                (_, content) => Step::Write {
                    path,
                    content: content.clone()?,
                    existing: State::Absent,
                    mode,
                },
            })
        });
        Ok(steps.collect())
    }

    /// Whether all steps at and beneath `path` made what is there now.
    fn is_made_here(&self, path: &VirtualPath) -> bool {
        let own = self.known.get(path).and_then(|known| known.made_by);
        let contents = known_beneath(&self.known, path);
        let contents = contents.filter_map(|(_, known)| known.made_by);
        let makers: BTreeSet<usize> = own.into_iter().chain(contents).collect();
        let mut planned = self.planned.iter().enumerate();
        own.is_some()
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
        let known = known_beneath(&self.known, path);
        let made: Vec<usize> = known.filter_map(|(_, known)| known.made_by).collect();
        for index in made {
            self.take(index);
        }
    }

    /// Whether the steps so far remove everything that the directory contains.
    fn is_emptied(&self, path: &VirtualPath, inspected: Option<&Inspected>) -> bool {
        let mut made = known_beneath(&self.known, path);
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
        mode: TransferMode,
        from: VirtualPath,
        to: VirtualPath,
        (state, existing): (&State, &State),
    ) -> Result<(), Interrupt> {
        if mode == TransferMode::Move {
            target::reject_root(self.permit, &from)?;
        }
        target::reject_root(self.permit, &to)?;
        let (current, there) = (self.current(&from)?, self.current(&to)?);
        if mode == TransferMode::Move && current.state == State::Absent && there.state == *state {
            return Ok(());
        }
        if there.state != *existing {
            self.conflict(&to);
            return Ok(());
        }
        let touched = current.is_directory() && self.is_touched_beneath(&from);
        if current.state == State::Absent || !touched && current.state != *state {
            self.conflict(&from);
            return Ok(());
        }
        if there.state == State::Absent && !self.has_parent(&to)? {
            return Ok(());
        }
        target::reject_temporary_name(&to)?;
        let inspected = self.inspect_directory(&from, &current)?;
        let items = inspected.as_ref().map(|inspected| &*inspected.items);
        let items = items.unwrap_or_default();
        let replaces = there.state != State::Absent;
        self.require_transfer(
            mode,
            (&from, &to),
            items,
            (current.is_directory(), replaces),
        )?;
        // What was made in this sequence is not on the disk.
        let (entry, diff) = match inspected.as_ref().filter(|_| !current.is_new) {
            Some(inspected) => self.executor.describe(self.permit, &from, inspected)?,
            None => (self.entry(&current, &from)?, FileDiff::default()),
        };
        let bytes = self.copied_size(mode, &from, &current)?;
        let restore = replaced_content(&to, &there);
        let mut changes = Vec::new();
        if replaces {
            changes.push(self.replaced_file((&from, &current), (&to, &there))?);
        }
        changes.push(Change {
            path: from.clone(),
            op: mode.op(),
            to: Some(to.clone()),
            before: entry,
            after: entry,
            diff,
        });
        self.plan(PlannedStep {
            step: Step::Transfer {
                mode,
                from: from.clone(),
                to: to.clone(),
                state: state.clone(),
                existing: existing.clone(),
            },
            before: current.clone().without_content(),
            inverse: transferred_back(mode, &from, &to, state)
                .zip(restore)
                .map(|(back, restore)| [vec![back], restore].concat()),
            files: (items.len() + changes.len()) as u64,
            bytes,
            changes,
            resources: Vec::new(),
        });
        match mode {
            TransferMode::Move => self.note_move(from, to, current),
            TransferMode::Copy => self.note_copy(from, to, current),
        }
    }

    /// The number of bytes that are written.
    fn copied_size(
        &self,
        mode: TransferMode,
        from: &VirtualPath,
        known: &Known,
    ) -> Result<u64, Interrupt> {
        match mode {
            TransferMode::Copy => Ok(self.size(from, known)?),
            TransferMode::Move => Ok(0),
        }
    }

    /// Requires that the call may move or copy an entry with everything in it.
    fn require_transfer(
        &mut self,
        mode: TransferMode,
        (from, to): (&VirtualPath, &VirtualPath),
        items: &[Item],
        (directory, replaces): (bool, bool),
    ) -> Result<(), Interrupt> {
        let permit = self.permit;
        let source = match mode {
            TransferMode::Move => Operation::Move,
            TransferMode::Copy => Operation::Read,
        };
        let destination = if replaces {
            Operation::Change
        } else {
            Operation::Create
        };
        for (operation, path) in [(source, from), (destination, to)] {
            let need = Scope::doing(operation, path.clone());
            self.require(if directory { need.beneath() } else { need });
        }
        let beneath = [
            target::require_beneath(permit, source, from, items, |path| Ok(path.clone())),
            target::require_beneath(permit, Operation::Create, from, items, |path| {
                target::relocated(path, from, to)
            }),
        ];
        self.checks.extend(beneath);
        // A move must not make hidden files readable.
        if mode == TransferMode::Move && permit.shows(to) {
            self.checks.push(permit.require(Verb::Read, [from]));
        }
        let made = self.known.get_key_value(from).into_iter();
        let made = made.chain(known_beneath(&self.known, from));
        let made = made.filter(|(_, known)| known.state != State::Absent);
        for path in items
            .iter()
            .map(|item| &item.path)
            .chain(made.map(|(path, _)| path))
        {
            let moved = target::relocated(path, from, to)?;
            let create = Scope::doing(destination, moved.clone());
            let readable = permit.shows(&moved) && !permit.shows(path);
            match permit.judge_need(&create) {
                Verdict::Allow if !readable => {}
                Verdict::Ask if !readable => self.checks.push(Err(Interrupt::Needs(vec![create]))),
                Verdict::Allow | Verdict::Ask | Verdict::Deny => return Err(denied(None).into()),
            }
        }
        Ok(())
    }

    /// The change to report for a file that another one replaces.
    fn replaced_file(
        &self,
        (from, source): (&VirtualPath, &Known),
        (to, there): (&VirtualPath, &Known),
    ) -> Result<Change, CallError> {
        let shown = self.permit.shows(to) && self.permit.shows(from);
        let diff = match (&there.content, &source.content) {
            _ if !shown => diff::hidden(),
            (Some(old), Some(new)) => diff::of_bytes(old, new),
            (None, _) | (_, None) => FileDiff {
                binary: true,
                ..FileDiff::default()
            },
        };
        Ok(Change {
            path: to.clone(),
            op: Op::Modify,
            to: None,
            before: self.entry(there, to)?,
            after: self.entry(source, from)?,
            diff,
        })
    }

    fn note_move(
        &mut self,
        from: VirtualPath,
        to: VirtualPath,
        moved: Known,
    ) -> Result<(), Interrupt> {
        for (path, known) in self.take_beneath(&from) {
            let path = target::relocated(&path, &from, &to)?;
            self.known.insert(path, known.of_other_steps());
        }
        self.known.insert(from.clone(), Known::absent());
        let moved = moved.without_content().of_other_steps();
        self.known.insert(to.clone(), moved);
        self.moves.push((from, to));
        Ok(())
    }

    fn note_copy(
        &mut self,
        from: VirtualPath,
        to: VirtualPath,
        copied: Known,
    ) -> Result<(), Interrupt> {
        // The copy depends on the steps that made its source.
        if let Some(known) = self.known.get_mut(&from) {
            known.made_by = None;
        }
        let mut known = Vec::new();
        for (path, beneath) in self.take_beneath(&from) {
            let beneath = beneath.of_other_steps();
            known.push((target::relocated(&path, &from, &to)?, beneath.clone()));
            known.push((path, beneath));
        }
        self.known.extend(known);
        // Until something changes it, its content is that of its source.
        let copied = copied.without_content().of_other_steps();
        self.known.insert(to.clone(), copied);
        self.moves.push((from, to));
        Ok(())
    }

    /// The entries of a directory, and of the directories in it, after the steps so far, without contents that can be read.
    ///
    /// # Errors
    /// As [`Sequence::push`].
    pub(crate) fn contents(
        &self,
        path: &VirtualPath,
    ) -> Result<BTreeMap<VirtualPath, Known>, Interrupt> {
        let mut contents = BTreeMap::new();
        for item in self.inspect(path)?.items {
            let known = match item.meta.kind {
                Kind::Directory => Known::of(State::empty_directory(), Some(item.meta)),
                Kind::File | Kind::Link | Kind::Special => {
                    self.current(&item.path)?.without_content()
                }
            };
            contents.insert(item.path, known);
        }
        let known = known_beneath(&self.known, path);
        let known = known.filter(|(_, known)| known.state != State::Absent);
        contents.extend(known.map(|(path, known)| (path.clone(), known.clone())));
        Ok(contents)
    }

    /// The number of bytes of all files at and beneath `path` after the steps so far.
    fn size(&self, path: &VirtualPath, known: &Known) -> Result<u64, Interrupt> {
        let bytes = |known: &Known| known.state.entry().bytes().unwrap_or_default();
        if !known.is_directory() {
            return Ok(bytes(known));
        }
        Ok(self.contents(path)?.values().map(bytes).sum())
    }

    /// The state of a directory after the steps so far; `None` if it has entries that cannot be compared by their content.
    ///
    /// # Errors
    /// As [`Sequence::push`].
    pub(crate) fn directory_state(&self, path: &VirtualPath) -> Result<Option<State>, Interrupt> {
        let contents = self.contents(path)?;
        let mut entries = Vec::new();
        for (entry, known) in &contents {
            let names = entry.names().skip(path.depth()).collect();
            match known.state {
                State::File { hash, bytes } => entries.push((names, Some((hash, bytes)))),
                State::Directory { .. } => entries.push((names, None)),
                State::Absent | State::Link { .. } | State::Object { .. } => return Ok(None),
            }
        }
        Ok(tree::state_of(entries))
    }

    /// Requires a grant for each protected file that `step` changes after the steps so far.
    ///
    /// # Errors
    /// As [`repository::require`].
    pub(crate) fn require_protected(&mut self, step: &Step) -> Result<(), Interrupt> {
        let moved = match step {
            Step::Transfer { from, .. } => from,
            Step::Remove { path, .. } => path,
            Step::Write { .. }
            | Step::SetMode { .. }
            | Step::MakeLink { .. }
            | Step::MakeDirectory { .. } => {
                let checked = self.protected(step, &[]);
                self.checks.push(checked);
                return Ok(());
            }
        };
        let items = match self.current(moved)? {
            known if known.is_directory() => self.inspect(moved)?.items,
            _ => Vec::new(),
        };
        let checked = self.protected(step, &items);
        self.checks.push(checked);
        Ok(())
    }

    fn protected(&self, step: &Step, items: &[Item]) -> Result<(), Interrupt> {
        let markers = |dir: &VirtualPath| {
            let on_disk = if self.is_new(dir) {
                repository::Markers::default()
            } else {
                repository::read_markers(self.permit, &self.on_disk(dir)?)?
            };
            Ok(on_disk.after(|name| {
                let known = self.simulated(&dir.join(name).ok()?)?;
                Some(known.state != State::Absent)
            }))
        };
        repository::require_after(self.permit, step, items, &markers)
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

/// What is known about the paths beneath `path`.
fn known_beneath<'k>(
    known: &'k BTreeMap<VirtualPath, Known>,
    path: &'k VirtualPath,
) -> impl Iterator<Item = (&'k VirtualPath, &'k Known)> {
    let known = known.range((Bound::Excluded(path), Bound::Unbounded));
    // Names such as `d-1` are between `d` and what is beneath it.
    let known = known.take_while(|(known, _)| known.as_str().starts_with(path.as_str()));
    known.filter(|(known, _)| known.starts_with(path))
}

/// Steps that restore a replaced file; `None` if its content was not kept.
fn replaced_content(path: &VirtualPath, there: &Known) -> Option<Vec<Step>> {
    if there.state == State::Absent {
        return Some(Vec::new());
    }
    Some(vec![Step::Write {
        path: path.clone(),
        content: there.content.clone()?,
        existing: State::Absent,
        mode: there.file_mode(),
    }])
}

/// The metadata with other permission bits.
fn with_mode(meta: Meta, mode: Option<u32>) -> Meta {
    Meta {
        mode: mode.unwrap_or(meta.mode),
        ..meta
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
        None => "this worker may not move everything there".to_owned(),
    };
    CallError::new(Code::PermissionDenied, message)
}

/// The error for paths that are in another state than expected. Paths that the call may not read are not named.
pub(crate) fn conflict(permit: &ReadPermit, paths: &[VirtualPath]) -> CallError {
    let shown = paths.iter().filter(|path| permit.shows(path));
    let shown: Vec<&str> = shown.take(MAX_NAMED).map(VirtualPath::as_str).collect();
    let names = named(&shown, paths.len());
    let message = format!("{names} changed since; nothing was changed now");
    CallError::new(Code::Conflict, message).with("conflicts", json!(shown))
}

/// The step that undoes a move or copy; `None` if the copy could not be compared.
fn transferred_back(
    mode: TransferMode,
    from: &VirtualPath,
    to: &VirtualPath,
    state: &State,
) -> Option<Step> {
    match mode {
        TransferMode::Move => Some(Step::Transfer {
            mode,
            from: to.clone(),
            to: from.clone(),
            state: state.clone(),
            existing: State::Absent,
        }),
        TransferMode::Copy => state.is_content_only().then(|| Step::Remove {
            path: to.clone(),
            state: state.clone(),
        }),
    }
}
