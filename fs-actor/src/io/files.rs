//! Changes of several files in one call.

use std::collections::BTreeSet;
use std::time::Duration;

use bailiwick::effect::{Cost, ResourceChange};
use bailiwick::journal::{JournalView, UndoRecord};
use bailiwick::scope::Operation;
use bailiwick::text::escape;
use bailiwick::tool::{Interrupt, ReadPermit, WritePermit};
use bailiwick::{CallError, Code, Plan, Reply, Scope, Verdict, VirtualPath};

use crate::change::put::NewContent;
use crate::change::repository::ProtectedEntries;
use crate::change::state::Inspected;
use crate::change::stored::undo_record;
use crate::change::{ChangeSet, Step, StepExecutor, TemporaryFiles, inspect, permissions, target};
use crate::replace::Durability;
use crate::resolve::{self, Meta};
use crate::tools::delete;

/// Maximum size of the old contents that a plan keeps, without a journal.
const MAX_KEPT: u64 = 16 << 20;

/// What a path is to become.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NewState {
    /// A file with this content.
    File {
        /// The whole content.
        content: Vec<u8>,
        /// Its permission bits, such as `0o640`. Without them, a new file has the default of the system, and a replaced file
        /// keeps its own. Set-id bits and the sticky bit are ignored.
        mode: Option<u32>,
    },
    /// The same file with other permission bits, such as `0o755`. Set-id bits and the sticky bit are ignored.
    Permissions {
        /// The permission bits.
        mode: u32,
    },
    /// A directory.
    Directory {
        /// Its permission bits; without them, the default of the system. The owner can always read and change it.
        mode: Option<u32>,
    },
    /// Nothing: what is there is deleted.
    Absent {
        /// Whether to delete a directory with its contents.
        recursive: bool,
    },
}

/// The new state of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewEntry {
    /// The path, which contains no links.
    pub path: VirtualPath,
    /// What it becomes.
    pub state: NewState,
    /// Whether the new state was derived from an existing file or directory.
    pub existed: bool,
    /// The directories at and above the path, with the device and inode that they had. If one is another directory now, the
    /// path is not changed.
    pub directories: Vec<(VirtualPath, (u64, u64))>,
    /// When the new state was derived, as the time since 1970. What has changed since is not overwritten.
    pub derived_at: Duration,
}

impl NewEntry {
    /// Creates an entry for a path that did not exist at `derived_at`.
    #[must_use]
    pub fn new(path: VirtualPath, state: NewState, derived_at: Duration) -> Self {
        Self {
            path,
            state,
            existed: false,
            directories: Vec::new(),
            derived_at,
        }
    }

    /// Sets whether the path existed at `derived_at`.
    #[must_use]
    pub fn existed(mut self, existed: bool) -> Self {
        self.existed = existed;
        self
    }

    /// Sets the directories at and above the path, with the device and inode that they had.
    #[must_use]
    pub fn directories(mut self, directories: Vec<(VirtualPath, (u64, u64))>) -> Self {
        self.directories = directories;
        self
    }

    /// What the call must be allowed to do.
    #[must_use]
    pub fn need(&self) -> Scope {
        let need = Scope::doing(self.operation(), self.path.clone());
        match self.state {
            NewState::Absent { recursive: true } => need.beneath(),
            NewState::Absent { recursive: false }
            | NewState::File { .. }
            | NewState::Permissions { .. }
            | NewState::Directory { .. } => need,
        }
    }

    fn operation(&self) -> Operation {
        match (&self.state, self.existed) {
            (NewState::Absent { .. }, _) => Operation::Delete,
            (_, true) => Operation::Change,
            (_, false) => Operation::Create,
        }
    }

    /// Checks that nothing has changed since the new state was derived.
    fn check(&self, found: Option<&Meta>) -> Result<(), CallError> {
        let unchanged = match found {
            None => !self.existed,
            Some(meta) => self.existed && changed_at(meta) <= self.derived_at,
        };
        if unchanged {
            return Ok(());
        }
        Err(changed(&self.path))
    }
}

fn changed(path: &VirtualPath) -> CallError {
    let path = escape(path.as_str());
    let message = format!("`{path}` has changed since its new state was derived");
    CallError::new(Code::Conflict, message)
}

/// When the content or the attributes of an entry changed, since 1970.
fn changed_at(meta: &Meta) -> Duration {
    u64::try_from(meta.changed).map_or(Duration::ZERO, |seconds| {
        Duration::new(seconds, meta.changed_nanos)
    })
}

/// Steps of a [`FilesWriter`].
#[derive(Debug)]
pub struct PlannedWrites {
    change_set: ChangeSet,
    /// What the call that applies it must be allowed to do.
    needs: Vec<Scope>,
}

/// Creates, replaces and deletes several files in one call: one plan, one question.
///
/// Each change is atomic. If one fails, the later ones are not made, and `details.done` is the number of changes that
/// remain in effect.
///
/// A tool uses one writer for all its calls.
#[derive(Debug, Default)]
pub struct FilesWriter(StepExecutor);

impl FilesWriter {
    /// Creates a writer with this durability.
    #[must_use]
    pub fn new(durability: Durability) -> Self {
        Self(StepExecutor::new(durability))
    }

    /// Plans to give all paths their new states. Missing directories above them are created. The plan has the diff and
    /// the cost of every change; a file that has the new content and permissions already is left out.
    ///
    /// # Errors
    /// [`Interrupt::Needs`] and the like if more must be judged, once for all entries; `CONFLICT` if an entry has changed
    /// since its new state was derived; `PERMISSION_DENIED` if the worker may not make one of the changes; `TOO_LARGE` if
    /// the policy allows less.
    pub fn plan(
        &self,
        permit: &ReadPermit,
        entries: Vec<NewEntry>,
        reply: Reply,
    ) -> Result<Plan<PlannedWrites>, Interrupt> {
        let mut whole = Whole::keeping(most_kept(permit));
        let mut needs = Vec::new();
        let mut checks = Vec::new();
        // Several entries together may complete a repository.
        let mut protected = ProtectedEntries::default();
        for entry in entries {
            permit.checkpoint()?;
            let need = entry.need();
            checks.push(match permit.judge_need(&need) {
                Verdict::Allow => Ok(()),
                Verdict::Ask => Err(Interrupt::Needs(vec![need.clone()])),
                Verdict::Deny => Err(denied(&entry.path).into()),
            });
            needs.push(need);
            let path = entry.path.clone();
            let exists = !matches!(entry.state, NewState::Absent { .. });
            match self.plan_one(permit, entry) {
                Ok(plan) => {
                    for step in &plan.steps.steps {
                        let exists = !matches!(step, Step::Remove { .. });
                        checks.push(protected.add(permit, step.path(), exists));
                    }
                    whole.add(plan);
                }
                Err(Interrupt::Moved { from, .. }) => return Err(changed(&from).into()),
                Err(interrupt @ Interrupt::Failed(_)) => checks.push(Err(interrupt)),
                // It is planned when it is allowed.
                Err(interrupt) => {
                    checks.push(Err(interrupt));
                    checks.push(protected.add(permit, &path, exists));
                }
            }
        }
        checks.push(protected.require(permit));
        target::require_all(checks)?;
        let reached = self.0.reached();
        Ok(Plan {
            changes: whole.changes,
            resources: whole.resources,
            reply,
            cost: whole.cost,
            steps: PlannedWrites {
                change_set: self.0.change_set(whole.steps, reached),
                needs: needs.clone(),
            },
            inverse: whole.inverse.map(|steps| PlannedWrites {
                change_set: steps.into(),
                needs,
            }),
        })
    }

    fn plan_one(&self, permit: &ReadPermit, entry: NewEntry) -> Result<Plan<ChangeSet>, Interrupt> {
        target::reject_temporary_name(&entry.path)?;
        for (path, identity) in &entry.directories {
            let found = resolve::entry(permit, path)?;
            if found.is_none_or(|meta| (meta.dev, meta.ino) != *identity) {
                return Err(changed(&entry.path).into());
            }
        }
        let found = inspect(permit, &entry.path, TemporaryFiles::Included)?;
        entry.check(found.meta.as_ref())?;
        let path = entry.path.clone();
        match entry.state {
            NewState::Absent { recursive } => {
                for item in &found.items {
                    entry.check(Some(&item.meta))?;
                }
                delete::plan(&self.0, &path, recursive, permit)
            }
            NewState::Directory { mode } => {
                let mut steps = target::missing_parents(permit, &path, true)?;
                steps.push(Step::MakeDirectory {
                    path: path.clone(),
                    mode: mode.map(|mode| mode & permissions::BITS | 0o700),
                });
                target::require_put(permit, &path, &steps, false)?;
                let changes = target::directory_changes(&steps);
                let inverse = target::undo_directories(&steps);
                Ok(Plan {
                    cost: Cost {
                        bytes: 0,
                        files: changes.len() as u64,
                    },
                    changes,
                    resources: Vec::new(),
                    reply: Reply::text("", ()),
                    inverse: Some(inverse.into()),
                    steps: steps.into(),
                })
            }
            NewState::File { content, mode } => {
                let old = target::read_old(permit, &path)?;
                let old_mode = old.as_ref().map(|old| old.meta.mode & permissions::BITS);
                let put =
                    NewContent::new(&self.0, permit, path.clone(), old, content.into(), true)?;
                let mut plan = put.plan(&self.0, |_, _, _| Reply::text("", ()));
                if let Some(mode) = mode.map(|mode| mode & permissions::BITS)
                    && Some(mode) != old_mode
                {
                    if plan.changes.is_empty() {
                        return self.plan_permissions(permit, path, &found, mode);
                    }
                    give_mode(&mut plan, old_mode, mode);
                    let shown = old_mode.filter(|_| permit.shows(&path));
                    plan.resources
                        .extend(permissions::described(&path, shown, mode));
                }
                target::require_put(permit, &path, &plan.steps.steps, false)?;
                Ok(plan)
            }
            NewState::Permissions { mode } => {
                self.plan_permissions(permit, path, &found, mode & permissions::BITS)
            }
        }
    }

    /// Plans to change the permission bits of a file.
    fn plan_permissions(
        &self,
        permit: &ReadPermit,
        path: VirtualPath,
        found: &Inspected,
        to: u32,
    ) -> Result<Plan<ChangeSet>, Interrupt> {
        let meta = found
            .meta
            .as_ref()
            .ok_or_else(|| CallError::not_found(&path))?;
        permissions::require_changeable(&path, meta)?;
        let from = meta.mode;
        if from == to {
            return Ok(target::empty_plan(Reply::text("", ())));
        }
        let shown = permit.shows(&path);
        let steps = vec![permissions::step(&path, &found.state, from, to)];
        target::require_put(permit, &path, &steps, false)?;
        let entry = self.0.entry(&found.state, Some(meta), shown)?;
        let described = permissions::described(&path, shown.then_some(from), to);
        Ok(Plan {
            cost: Cost { bytes: 0, files: 1 },
            resources: described.into_iter().collect(),
            reply: Reply::text("", ()),
            inverse: Some(vec![permissions::step(&path, &found.state, to, from)].into()),
            steps: steps.into(),
            changes: vec![permissions::change(path, entry)],
        })
    }

    /// Returns what [`WriteTool::undo_record`](bailiwick::WriteTool::undo_record) returns for a plan with this inverse.
    #[must_use]
    pub fn undo_record(&self, inverse: Option<&PlannedWrites>) -> UndoRecord {
        undo_record(inverse.map(|inverse| &*inverse.change_set.steps))
    }

    /// Carries out a plan. Returns the durability that was reached, which may differ from the requested one; `None` if there was
    /// nothing to change.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` if the call of `permit` may not make these changes; `STALE_PREVIEW` or `CONFLICT` if a file has
    /// changed since the plan; `CANCELLED` or `DEADLINE` if the call must stop; codes such as `IO` for system errors.
    /// `details.done` is the number of steps that remain in effect, including created parent directories.
    pub fn apply(
        &self,
        planned: PlannedWrites,
        permit: &WritePermit,
    ) -> Result<Option<Durability>, CallError> {
        let PlannedWrites { change_set, needs } = planned;
        let allowed = |need| permit.reading().judge_need(need) == Verdict::Allow;
        if !needs.iter().all(allowed) {
            let message = "the plan belongs to a call with other permissions";
            return Err(CallError::new(Code::PermissionDenied, message));
        }
        self.0.apply(&change_set, permit)?;
        Ok(change_set
            .reached
            .get()
            .filter(|_| !change_set.steps.is_empty()))
    }
}

fn denied(path: &VirtualPath) -> CallError {
    let message = format!("this worker may not change `{}`", escape(path.as_str()));
    CallError::new(Code::PermissionDenied, message)
}

/// Gives the file that a plan writes the permission bits `mode`.
fn give_mode(plan: &mut Plan<ChangeSet>, old: Option<u32>, new: u32) {
    if let Some(Step::Write { mode, .. }) = plan.steps.steps.last_mut() {
        *mode = Some(new);
    }
    let back = plan.inverse.as_mut().and_then(|it| it.steps.first_mut());
    if let Some(Step::Write { mode, .. }) = back {
        *mode = old;
    }
}

/// The most bytes of old contents that a plan keeps: what the journal keeps of one change.
fn most_kept(permit: &ReadPermit) -> u64 {
    permit.journal().map_or(MAX_KEPT, JournalView::change_bytes)
}

/// The plans of all entries as one.
struct Whole {
    changes: Vec<bailiwick::Change>,
    resources: Vec<ResourceChange>,
    cost: Cost,
    steps: Vec<Step>,
    /// `None` if one of them cannot be undone, or if it would have more than `most_kept` bytes of old contents.
    inverse: Option<Vec<Step>>,
    kept: u64,
    most_kept: u64,
    /// Directories that are created, each once.
    made: BTreeSet<VirtualPath>,
}

impl Whole {
    fn keeping(most_kept: u64) -> Self {
        Self {
            changes: Vec::new(),
            resources: Vec::new(),
            cost: Cost::default(),
            steps: Vec::new(),
            inverse: Some(Vec::new()),
            kept: 0,
            most_kept,
            made: BTreeSet::new(),
        }
    }

    /// Adds the plan of an entry, without the directories that an earlier entry creates.
    fn add(&mut self, plan: Plan<ChangeSet>) {
        let Plan {
            changes,
            resources,
            cost,
            steps,
            inverse,
            ..
        } = plan;
        // A file that has the content and the permissions already.
        if changes.is_empty() {
            return;
        }
        let steps = steps.steps;
        let repeated: BTreeSet<VirtualPath> = steps
            .iter()
            .filter_map(Step::created_directory)
            .filter(|path| self.made.contains(*path))
            .cloned()
            .collect();
        let is_repeated = |step: &Step| match step {
            Step::MakeDirectory { path, .. } | Step::Remove { path, .. } => repeated.contains(path),
            Step::Write { .. }
            | Step::SetMode { .. }
            | Step::MakeLink { .. }
            | Step::Transfer { .. } => false,
        };
        let made = steps.iter().filter_map(Step::created_directory);
        self.made.extend(made.cloned());
        self.steps
            .extend(steps.into_iter().filter(|step| !is_repeated(step)));
        let changes = changes.into_iter();
        self.changes
            .extend(changes.filter(|change| !repeated.contains(&change.path)));
        self.resources.extend(resources);
        self.cost.bytes += cost.bytes;
        self.cost.files += cost.files - repeated.len() as u64;
        let contents = inverse.iter().flat_map(|inverse| &inverse.steps);
        let contents = contents.filter_map(Step::content);
        self.kept += contents.map(|content| content.len() as u64).sum::<u64>();
        let inverse = inverse.filter(|_| self.kept <= self.most_kept);
        self.inverse = self.inverse.take().zip(inverse).map(|(later, first)| {
            let first = first.steps.into_iter().filter(|step| !is_repeated(step));
            first.chain(later).collect()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::State;
    use crate::testing::path;

    /// The plan of deleting the file `name` of this many bytes.
    fn deletion(name: &str, bytes: usize) -> Plan<ChangeSet> {
        let state = State::of_file(&vec![0; bytes]);
        let inverse = vec![Step::Write {
            path: path(name),
            content: vec![0; bytes].into(),
            existing: State::Absent,
            mode: None,
        }];
        let change = bailiwick::Change {
            path: path(name),
            op: bailiwick::effect::Op::Delete,
            to: None,
            before: state.entry(),
            after: bailiwick::effect::Entry::Absent,
            diff: bailiwick::effect::FileDiff::default(),
        };
        let step = Step::Remove {
            path: path(name),
            state,
        };
        Plan {
            changes: vec![change],
            resources: Vec::new(),
            reply: Reply::text("", ()),
            cost: Cost::default(),
            steps: vec![step].into(),
            inverse: Some(inverse.into()),
        }
    }

    /// The bytes of old contents that the plan of these deletions keeps.
    fn kept(sizes: &[usize]) -> Option<usize> {
        let mut whole = Whole::keeping(100);
        for (index, bytes) in sizes.iter().enumerate() {
            whole.add(deletion(&format!("/r/{index}"), *bytes));
        }
        assert_eq!(whole.steps.len(), sizes.len());
        let inverse = whole.inverse?;
        let contents = inverse.iter().filter_map(Step::content);
        Some(contents.map(bytes::Bytes::len).sum())
    }

    #[test]
    fn plan_keeps_no_old_contents_beyond_the_limit() {
        assert_eq!(kept(&[40, 60]), Some(100));
        assert_eq!(kept(&[40, 61]), None);
        assert_eq!(kept(&[101]), None);
        assert_eq!(kept(&[101, 1]), None);
    }
}
