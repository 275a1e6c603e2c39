//! Undoes changes for people, and recovers changes that a crash interrupted.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::admission::{self, CallOptions};
use super::{Worker, WorkerSpec, outcome};
use crate::call::{Asks, Call, CallMeta, Mode, Origin};
use crate::effect::{Outcome, Preview};
use crate::error::{CallError, Code};
use crate::id::ChangeId;
use crate::journal::{Journal, JournalEntry, Recovered, Recovery};
use crate::path::VirtualPath;
use crate::permission::GrantAuthority;
use crate::policy::Policy;
use crate::scope::{Scope, ScopePattern, Verb};
use crate::supervisor::Core;

/// The tool that reads the bytes of the journal.
const UNDO: &str = "undo";

impl Core {
    /// Whether it has the tool that undoes changes.
    pub(super) fn has_undo_tool(&self) -> bool {
        self.tools.get(UNDO).is_some()
    }
}

impl GrantAuthority {
    /// Undoes changes of any workers, also of those that have ended, and of earlier runtimes that used the journal: all of
    /// them or none. [`Journal::changes_of`] and [`Journal::changes_of_agent`] return the changes of a subtree.
    ///
    /// It is a call of the tool `undo` (`bailiwick_fs::undo_tools`) with the authority of the configuration. Nobody is asked
    /// about it: what the configuration asks about is granted for this call, and what it denies is not undone. The undoing
    /// is a change itself, and can be undone.
    ///
    /// # Errors
    /// `CONFLICT` with the files in `details.conflicts` if they are in another state than the changes left them in;
    /// `NOT_FOUND` if a change is unknown or undone already; `UNKNOWN_TOOL` without the tool `undo`; otherwise as
    /// [`Worker::submit`].
    pub async fn undo(&self, changes: &[ChangeId]) -> Result<Outcome, CallError> {
        let worker = self.undoing().await?;
        let done = undo_granted(&worker.0, Origin::Human, changes).await;
        worker.end().await;
        done
    }

    /// Previews [`GrantAuthority::undo`].
    ///
    /// # Errors
    /// As [`GrantAuthority::undo`].
    pub async fn preview_undo(&self, changes: &[ChangeId]) -> Result<Preview, CallError> {
        let worker = self.undoing().await?;
        let done = preview_granted(&worker.0, changes).await;
        worker.end().await;
        done
    }

    async fn undoing(&self) -> Result<Undoing, CallError> {
        let core = self.core()?;
        if !core.has_undo_tool() {
            let message = "this runtime has no tool `undo`, so nothing can be undone; add `bailiwick_fs::undo_tools` with \
                 `RuntimeBuilder::tools`";
            return Err(CallError::new(Code::UnknownTool, message));
        }
        Undoing::start(core, "~undo").await
    }
}

fn call_of(origin: Origin, changes: &[ChangeId]) -> Call {
    Call::new(UNDO, json!({ "changes": changes })).meta(CallMeta {
        origin,
        asks: Asks::Refuse,
        ..CallMeta::default()
    })
}

/// A worker that undoes changes with the authority of the configuration.
struct Undoing(Worker);

impl Undoing {
    async fn start(core: Arc<Core>, name: &str) -> Result<Self, CallError> {
        let spec = WorkerSpec::for_people(name.to_owned()).policy(Policy::new());
        let shared = core.spawn(None, spec).await;
        let failed =
            |error: crate::supervisor::SpawnError| CallError::new(error.code(), error.to_string());
        shared
            .map(|shared| Self(Worker::new(shared)))
            .map_err(failed)
    }

    async fn end(self) {
        self.0.revoke().await;
    }
}

/// Checks all changes that a crash interrupted, the newest first: keeps complete ones and rolls back the others.
pub(crate) async fn recover(core: &Arc<Core>) -> Vec<Recovered> {
    let Some(journal) = &core.journal else {
        return Vec::new();
    };
    let interrupted = journal.interrupted();
    if interrupted.is_empty() {
        return Vec::new();
    }
    let worker = Undoing::start(Arc::clone(core), "~recovery").await;
    let mut recovered = Vec::new();
    for change in interrupted {
        let outcome = match &worker {
            Ok(worker) => recover_one(&worker.0, journal, &change).await,
            Err(error) => Recovery::Failed {
                error: error.clone(),
            },
        };
        recovered.push(Recovered { change, outcome });
    }
    if let Ok(worker) = worker {
        worker.end().await;
    }
    recovered
}

/// Undoes changes, and grants what the configuration asks about for this call.
async fn undo_granted(
    worker: &Worker,
    origin: Origin,
    changes: &[ChangeId],
) -> Result<Outcome, CallError> {
    let mut granted = writes(worker, changes);
    loop {
        let options = CallOptions {
            sent_grants: granted.clone(),
            ..CallOptions::new(Mode::Apply)
        };
        let done = admission::submit(&worker.shared, call_of(origin, changes), options).await;
        match done.and_then(outcome) {
            Err(error) => grant_missing(&mut granted, error)?,
            done => return done,
        }
    }
}

/// Previews [`undo_granted`].
async fn preview_granted(worker: &Worker, changes: &[ChangeId]) -> Result<Preview, CallError> {
    let mut granted = writes(worker, changes);
    loop {
        let call = call_of(Origin::Human, changes);
        match worker.preview_with(call, granted.clone()).await {
            Err(error) => grant_missing(&mut granted, error)?,
            done => return done,
        }
    }
}

/// Grants for changing exactly the paths that the changes changed. Undoing them rarely needs more.
fn writes(worker: &Worker, changes: &[ChangeId]) -> Vec<ScopePattern> {
    let journal = worker.shared.core.journal.as_ref();
    let entries = journal.map(Journal::entries).unwrap_or_default();
    let chosen: BTreeSet<_> = changes.iter().collect();
    let undone = entries.iter().filter(|entry| chosen.contains(&entry.id));
    let changed = undone.flat_map(|entry| &*entry.changes);
    let paths = changed.flat_map(|change| std::iter::once(&change.path).chain(&change.to));
    let paths: BTreeSet<_> = paths.collect();
    let need = |path: &VirtualPath| Scope::file(Verb::Write, path.clone());
    let patterns = paths.into_iter().map(|path| ScopePattern::of(&need(path)));
    patterns.collect()
}

/// Adds exactly the grants that a call needs; fails with its error if it failed for another reason.
fn grant_missing(granted: &mut Vec<ScopePattern>, error: CallError) -> Result<(), CallError> {
    let known = granted.len();
    if error.code() == Code::ScopeRequired {
        for need in error.requested_scopes().iter().map(ScopePattern::of) {
            if !granted.contains(&need) {
                granted.push(need);
            }
        }
    }
    if granted.len() == known {
        return Err(error);
    }
    Ok(())
}

/// Recovers an interrupted change. Nobody is asked: the change was allowed before it began, and nobody may be there to
/// answer at the start of the program. What the configuration denies is not undone.
async fn recover_one(worker: &Worker, journal: &Journal, change: &JournalEntry) -> Recovery {
    let outcome = match undo_granted(worker, Origin::Host, &[change.id]).await {
        Ok(outcome) => {
            let undone = outcome
                .structured()
                .map(|reply| reply.get("undone") != Some(&json!([])));
            match (undone, outcome.changes.len()) {
                (Err(error), _) => Recovery::Failed { error },
                (Ok(false), _) => Recovery::Completed,
                (Ok(true), 0) => Recovery::NotApplied,
                (Ok(true), files) => Recovery::RolledBack { files },
            }
        }
        Err(error) if error.code() == Code::Conflict => {
            let named = error.details().get("conflicts").and_then(Value::as_array);
            let paths = named.into_iter().flatten().filter_map(Value::as_str);
            Recovery::Conflict {
                paths: paths.map(str::to_owned).collect(),
                error,
            }
        }
        Err(error) => Recovery::Failed { error },
    };
    journal.recovered(change.id, &outcome);
    outcome
}
