//! Plans the operations of a batch, each on the state that those before it leave.

use std::collections::BTreeSet;

use bailiwick::effect::Op;
use bailiwick::scope::Operation as FileOperation;
use bailiwick::text::escape;
use bailiwick::tool::{Interrupt, ReadPermit};
use bailiwick::{CallError, Code, Scope, Verdict, VirtualPath};
use bytes::Bytes;
use serde_json::json;

use super::BatchWarning;
use super::operation::{Operation, in_operation};
use crate::change::sequence::{Known, Sequence, Sequenced};
use crate::change::{
    State, Step, StepExecutor, TemporaryFiles, TransferMode, inspect, other_device, target,
};
use crate::replace::is_temporary;
use crate::resolve::{self, Kind};
use crate::tools::write_file::IfExists;
use crate::tools::{copy, delete, edit_file, make_directory, suggest, transfer, write_file};

/// Maximum number of failed operations that an error describes.
const MAX_FAILURES: usize = 20;

/// A planned batch.
pub(super) struct Planned {
    pub(super) sequenced: Sequenced,
    /// Operations that change nothing.
    pub(super) unchanged: Vec<usize>,
    pub(super) warnings: Vec<BatchWarning>,
}

/// Plans operations one after the other.
pub(super) struct Planner<'p> {
    permit: &'p ReadPermit,
    sequence: Sequence<'p>,
    /// What the operations need that they found while they were planned.
    checks: Vec<Result<(), Interrupt>>,
    /// Requested paths of which an operation does not follow a link at the end.
    unfollowed: BTreeSet<VirtualPath>,
    /// Files that `write_file` writes as a whole.
    whole: BTreeSet<VirtualPath>,
    warning: Option<String>,
    /// The most bytes of old contents that can be kept to roll the batch back.
    most_kept: u64,
}

impl<'p> Planner<'p> {
    pub(super) fn new(executor: &'p StepExecutor, permit: &'p ReadPermit) -> Self {
        Self {
            permit,
            sequence: Sequence::new(executor, permit),
            checks: Vec::new(),
            unfollowed: BTreeSet::new(),
            whole: BTreeSet::new(),
            warning: None,
            most_kept: super::most_kept(permit),
        }
    }

    /// Plans all operations. The error of one that cannot be planned names it, and also others that do not depend on it.
    pub(super) fn plan(mut self, operations: &[Operation]) -> Result<Planned, Interrupt> {
        let all = || operations.iter().flat_map(Operation::paths);
        let unfollowed = all().filter(|(_, follows)| !follows);
        self.unfollowed = unfollowed.map(|(path, _)| path.clone()).collect();
        let (mut unchanged, mut warnings) = (Vec::new(), Vec::new());
        let (mut failures, mut failed) = (Failures::default(), Vec::new());
        for (index, operation) in operations.iter().enumerate() {
            let paths = operation.paths();
            let depends = |path: &VirtualPath| {
                let mut failed = failed.iter();
                failed
                    .any(|other: &&VirtualPath| path.starts_with(other) || other.starts_with(path))
            };
            if paths.iter().any(|(path, _)| depends(path)) {
                failed.extend(paths.iter().map(|(path, _)| *path));
                continue;
            }
            let added = self.add(operation);
            if self.sequence.kept() > self.most_kept {
                // Further operations would read more.
                return Err(super::not_kept(self.most_kept).into());
            }
            super::check_written(self.sequence.written())?;
            match added {
                Ok(true) => {}
                Ok(false) => unchanged.push(index),
                Err(Interrupt::Failed(error)) if is_of_operation(error.code()) => {
                    failures.push(in_operation(index, operation.tool(), &error));
                    failed.extend(paths.iter().map(|(path, _)| *path));
                }
                // All links and needs are reported at once.
                Err(
                    interrupt @ (Interrupt::Moved { .. }
                    | Interrupt::Needs(_)
                    | Interrupt::Protected(_)
                    | Interrupt::All(_)),
                ) => {
                    self.checks.push(Err(interrupt));
                    failed.extend(paths.iter().map(|(path, _)| *path));
                }
                Err(interrupt @ Interrupt::Failed(_)) => return Err(interrupt),
            }
            if let Some(warning) = self.warning.take() {
                warnings.push(BatchWarning {
                    operation: index,
                    warning,
                });
            }
        }
        let moved: Vec<Interrupt> = self
            .checks
            .extract_if(.., |check| matches!(check, Err(Interrupt::Moved { .. })))
            .filter_map(Result::err)
            .collect();
        if !moved.is_empty() {
            return Err(Interrupt::All(moved));
        }
        failures.check(operations.len())?;
        self.sequence.require_all(self.checks);
        let mut sequenced = self.sequence.finish()?;
        for change in &mut sequenced.changes {
            change.diff.whole = change.op == Op::Modify && self.whole.contains(&change.path);
        }
        Ok(Planned {
            sequenced,
            unchanged,
            warnings,
        })
    }

    /// Adds an operation. Returns whether it changes something.
    fn add(&mut self, operation: &Operation) -> Result<bool, Interrupt> {
        let changes = match operation {
            Operation::Write(job) => self.write(job),
            Operation::Edit(job) => self.edit(job),
            Operation::MakeDirectory(job) => self.make_directory(job),
            Operation::Move(job) => self.transfer(TransferMode::Move, job),
            Operation::Copy(job) => self.transfer(TransferMode::Copy, job),
            Operation::Delete(job) => self.delete(job),
        }?;
        if let Some(path) = self.sequence.irreversible() {
            return Err(not_restorable(path).into());
        }
        Ok(changes)
    }

    /// Adds a step.
    fn push(&mut self, step: Step, appends: bool) -> Result<(), Interrupt> {
        target::check_write_modes(self.permit, std::slice::from_ref(&step), appends)?;
        self.sequence.require_protected(&step)?;
        self.sequence.push(step)
    }

    /// The path of an operation without links, as its tool resolves it.
    fn resolve(&self, path: &VirtualPath, follows: bool) -> Result<VirtualPath, Interrupt> {
        if !self.sequence.is_changed(path) {
            let found = if follows {
                resolve::entry(self.permit, path).map(drop)
            } else {
                resolve::parent(self.permit, path).map(drop)
            };
            match found {
                Err(Interrupt::Moved { .. }) if follows && self.unfollowed.contains(path) => {
                    return Err(link_itself(path).into());
                }
                Err(interrupt @ (Interrupt::Moved { .. } | Interrupt::Needs(_))) => {
                    return Err(interrupt);
                }
                // The errors of the operation itself are more precise.
                Err(_) | Ok(()) => {}
            }
            let actual = self.permit.actual(path).clone();
            target::reject_temporary_name(&actual)?;
            return Ok(actual);
        }
        let mut above = path.parent();
        while let Some(dir) = above.filter(|dir| self.sequence.is_changed(dir)) {
            let known = self.sequence.current(&dir)?;
            if !known.is_directory() && known.state != State::Absent {
                return Err(target::not_a_directory(&dir).into());
            }
            above = dir.parent();
        }
        // An earlier operation changed something on this path, whose names are then those of no links.
        let disk = self.sequence.on_disk(path)?;
        if disk != *path {
            let found = if follows {
                resolve::entry(self.permit, &disk).map(drop)
            } else {
                resolve::parent(self.permit, &disk).map(drop)
            };
            if matches!(found, Err(Interrupt::Moved { .. })) {
                return Err(link_itself(path).into());
            }
        }
        Ok(path.clone())
    }

    /// The file at `path`; `None` if nothing is there.
    fn file(&self, path: &VirtualPath) -> Result<Option<Known>, Interrupt> {
        self.permit.checkpoint()?;
        let known = self.sequence.current(path)?;
        if known.is_file() {
            return Ok(Some(known));
        }
        if !self.sequence.is_changed(path) {
            // `write_file` and `edit_file` fail with this error.
            target::read_old(self.permit, path)?;
        }
        if known.state == State::Absent {
            return Ok(None);
        }
        let path = escape(path.as_str());
        let message = format!("`{path}` is not a regular file");
        Err(CallError::new(Code::NotRegular, message).into())
    }

    /// Adds the directories that are missing above `path`.
    fn parents(&mut self, path: &VirtualPath, create: bool) -> Result<(), Interrupt> {
        let mut missing = Vec::new();
        let mut above = path.parent();
        while let Some(dir) = above {
            if self.sequence.is_directory(&dir)? {
                break;
            }
            if self.sequence.current(&dir)?.state != State::Absent {
                return Err(target::not_a_directory(&dir).into());
            }
            above = dir.parent();
            missing.push(dir);
        }
        if let Some(first) = missing.last().filter(|_| !create) {
            return Err(target::missing_parent(first).into());
        }
        for dir in missing.into_iter().rev() {
            let step = Step::MakeDirectory {
                path: dir.clone(),
                mode: None,
            };
            target::check_write_modes(self.permit, std::slice::from_ref(&step), false)?;
            self.sequence.require_protected(&step)?;
            self.sequence.push_parent(dir, path)?;
        }
        Ok(())
    }

    fn not_found(&self, path: &VirtualPath) -> CallError {
        if self.sequence.is_changed(path) {
            CallError::not_found(path)
        } else {
            suggest::not_found(self.permit, path)
        }
    }

    fn write(&mut self, job: &write_file::Job) -> Result<bool, Interrupt> {
        let path = self.resolve(&job.path, true)?;
        let old = self.file(&path)?;
        if old.is_some() && job.mode == IfExists::Create {
            return Err(write_file::exists(&path).into());
        }
        let existing = old.as_ref().map_or(State::Absent, |old| old.state.clone());
        target::check_expected_hash(&path, || existing.clone(), job.expected.as_ref())?;
        let kept = old.as_ref().map(|old| old.content.as_ref());
        let content = write_file::content(job, kept, &path)?;
        if let Some(before) = kept.flatten().filter(|_| self.permit.shows(&path)) {
            self.warning = write_file::elision(before, &content);
        }
        self.whole.insert(path.clone());
        if old.is_none() {
            self.parents(&path, job.create_parents)?;
        }
        self.put(path, content, existing, job.mode == IfExists::Append)
    }

    fn edit(&mut self, job: &edit_file::Job) -> Result<bool, Interrupt> {
        let path = self.resolve(&job.path, true)?;
        let old = self.file(&path)?.ok_or_else(|| self.not_found(&path))?;
        target::check_expected_hash(&path, || old.state.clone(), job.expected.as_ref())?;
        let limit = self
            .permit
            .limits()
            .write_max_bytes
            .min(edit_file::MAX_BYTES);
        let old_content = old.content.filter(|content| content.len() as u64 <= limit);
        let old_content = old_content.ok_or_else(|| edit_file::too_large(&path, limit))?;
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let edited = edit_file::apply_change(job, &path, &old_content, most, self.permit)?;
        self.put(path, edited.text.into(), old.state, false)
    }

    fn put(
        &mut self,
        path: VirtualPath,
        content: Bytes,
        existing: State,
        appends: bool,
    ) -> Result<bool, Interrupt> {
        if State::of_file(&content) == existing {
            return Ok(false);
        }
        let step = Step::Write {
            path,
            content,
            existing,
            mode: None,
        };
        self.push(step, appends)?;
        Ok(true)
    }

    fn make_directory(&mut self, job: &make_directory::Job) -> Result<bool, Interrupt> {
        let path = self.resolve(&job.path, true)?;
        if self.sequence.is_directory(&path)? && job.create_parents {
            return Ok(false);
        }
        if self.sequence.is_directory(&path)?
            || self.sequence.current(&path)?.state != State::Absent
        {
            let message = format!("`{path}` already exists");
            return Err(CallError::new(Code::AlreadyExists, message).into());
        }
        self.parents(&path, job.create_parents)?;
        let step = Step::MakeDirectory { path, mode: None };
        self.push(step, false)?;
        Ok(true)
    }

    fn transfer(&mut self, mode: TransferMode, job: &transfer::Job) -> Result<bool, Interrupt> {
        for path in [&job.from, &job.to] {
            if mode == TransferMode::Move || path == &job.to {
                target::reject_root(self.permit, path)?;
            }
        }
        let from = self.resolve(&job.from, mode == TransferMode::Copy)?;
        let source = self.sequence.current(&from)?;
        let missing = source.state == State::Absent;
        // In the order of the tool `copy`, which fails with the same code.
        if missing && mode == TransferMode::Copy {
            return Err(self.not_found(&from).into());
        }
        let to = self.resolve(&job.to, false)?;
        target::reject_nested(&from, &to)?;
        let there = self.sequence.current(&to)?;
        let kind = match there.state {
            State::Absent => None,
            State::Directory { .. } => Some(Kind::Directory),
            _ if there.is_file() => Some(Kind::File),
            _ => Some(Kind::Special),
        };
        target::check_destination(&to, kind, job.overwrite)?;
        if missing {
            return Err(self.not_found(&from).into());
        }
        if source.is_directory() && kind.is_some() {
            let message = format!("`{to}` is a file, which a directory cannot replace");
            return Err(CallError::new(Code::AlreadyExists, message).into());
        }
        let state = match mode {
            TransferMode::Move => {
                self.same_device(&from, &source, &to)?;
                self.state(&from, &source)?
            }
            TransferMode::Copy => self.copied_state(&from, &source)?,
        };
        if kind.is_none() {
            self.parents(&to, job.create_parents)?;
        }
        let step = Step::Transfer {
            mode,
            from,
            to,
            state,
            existing: there.state,
        };
        self.push(step, false)?;
        Ok(true)
    }

    /// The state in which an entry will be when it is moved or deleted.
    fn state(&self, path: &VirtualPath, known: &Known) -> Result<State, Interrupt> {
        if !known.is_directory() || !self.sequence.is_touched_beneath(path) {
            return Ok(known.state.clone());
        }
        let state = self.sequence.directory_state(path)?;
        Ok(state.ok_or_else(|| not_comparable(path))?)
    }

    /// The state of an entry that is copied, after checking that it can be.
    fn copied_state(&self, from: &VirtualPath, source: &Known) -> Result<State, Interrupt> {
        let limit = self.permit.limits().write_max_bytes;
        let check = |path: &VirtualPath, known: &Known| {
            if let Some(meta) = known.meta {
                copy::check_copyable(path, &meta, limit)?;
                resolve::check_hard_links(self.permit, path, &meta)?;
            }
            Ok::<_, CallError>(())
        };
        check(from, source)?;
        if !source.is_directory() {
            return Ok(source.state.clone());
        }
        let contents = self.sequence.contents(from)?;
        for (path, known) in &contents {
            check(path, known)?;
            if path.names().any(is_temporary) {
                let message = format!("a file in `{from}` is being written; try again");
                return Err(CallError::new(Code::Conflict, message).into());
            }
        }
        if self.sequence.is_changed(from) || self.sequence.is_touched_beneath(from) {
            return self.state(from, source);
        }
        Ok(inspect(self.permit, from, TemporaryFiles::Excluded)?.state)
    }

    /// Rejects a move to another file system before anyone is asked.
    fn same_device(
        &self,
        from: &VirtualPath,
        source: &Known,
        to: &VirtualPath,
    ) -> Result<(), Interrupt> {
        let device = |path: &VirtualPath| {
            let above = std::iter::successors(path.parent(), VirtualPath::parent);
            for dir in above.filter(|dir| !self.sequence.is_new(dir)) {
                if let Some(meta) = resolve::entry(self.permit, &self.sequence.on_disk(&dir)?)? {
                    return Ok::<_, Interrupt>(Some(meta.dev));
                }
            }
            Ok(None)
        };
        let own = match source.meta {
            Some(meta) => Some(meta.dev),
            None => device(from)?,
        };
        if own != device(to)? {
            return Err(other_device(to).into());
        }
        Ok(())
    }

    fn delete(&mut self, job: &delete::Job) -> Result<bool, Interrupt> {
        target::reject_root(self.permit, &job.path)?;
        let path = self.resolve(&job.path, false)?;
        target::reject_root(self.permit, &path)?;
        let known = self.sequence.current(&path)?;
        if known.state == State::Absent {
            return Err(self.not_found(&path).into());
        }
        let state = if known.is_directory() {
            self.deleted_directory(job, &path, &known)?
        } else {
            known.state
        };
        self.push(Step::Remove { path, state }, false)?;
        Ok(true)
    }

    /// The state in which a directory will be when it is deleted.
    fn deleted_directory(
        &mut self,
        job: &delete::Job,
        path: &VirtualPath,
        known: &Known,
    ) -> Result<State, Interrupt> {
        let contents = self.sequence.contents(path)?;
        let shown = self.permit.shows(path);
        if !(job.recursive || shown && contents.is_empty()) {
            return Err(delete::not_empty(path, shown).into());
        }
        for entry in contents.keys() {
            let need = Scope::doing(FileOperation::Delete, entry.clone());
            match self.permit.judge_need(&need) {
                Verdict::Allow => {}
                Verdict::Ask if self.permit.shows(entry) => {
                    self.checks.push(Err(Interrupt::Needs(vec![need])));
                }
                Verdict::Ask | Verdict::Deny => {
                    let message =
                        format!("permission denied for an entry below `{path}`; narrow the path");
                    return Err(CallError::new(Code::PermissionDenied, message).into());
                }
            }
        }
        if contents.is_empty() {
            return Ok(State::empty_directory());
        }
        self.state(path, known)
    }
}

/// Errors of operations that cannot be made.
#[derive(Default)]
struct Failures {
    first: Vec<CallError>,
    count: usize,
}

impl Failures {
    fn push(&mut self, error: CallError) {
        self.count += 1;
        if self.first.len() < MAX_FAILURES {
            self.first.push(error);
        }
    }

    /// One error for all of them, with the code of the first.
    fn check(mut self, operations: usize) -> Result<(), CallError> {
        if self.count <= 1 {
            return self.first.pop().map_or(Ok(()), Err);
        }
        let Some(first) = self.first.first() else {
            return Ok(());
        };
        let messages: Vec<&str> = self.first.iter().map(CallError::message).collect();
        let message = format!(
            "{} of {operations} operations fail, so nothing was changed. {}",
            self.count,
            messages.join(". ")
        );
        let failures: Vec<_> = self
            .first
            .iter()
            .map(|error| {
                let mut failure = error.details().clone();
                failure.insert("code".to_owned(), error.code().as_str().into());
                failure
            })
            .collect();
        Err(CallError::new(first.code(), message).with("failures", json!(failures)))
    }
}

/// Whether the code belongs to one operation; otherwise the whole call must stop.
fn is_of_operation(code: Code) -> bool {
    !matches!(code, Code::Cancelled | Code::Deadline | Code::Internal)
}

fn link_itself(path: &VirtualPath) -> CallError {
    let path = escape(path.as_str());
    let message = format!(
        "`{path}` is or contains a link that another operation moves or deletes; make these operations in separate calls"
    );
    CallError::new(Code::InvalidArguments, message)
}

fn not_restorable(path: &VirtualPath) -> CallError {
    let path = escape(path.as_str());
    let message = format!(
        "`{path}` could not be restored if the batch failed, since it is too large, or is or contains a link or special \
         file; change it in a separate call"
    );
    CallError::new(Code::TooLarge, message)
}

fn not_comparable(path: &VirtualPath) -> CallError {
    let path = escape(path.as_str());
    let message = format!(
        "`{path}` contains links, special files or too much, and another operation changes something in it; make these \
         operations in separate calls"
    );
    CallError::new(Code::TooLarge, message)
}
