//! Calls of a worker and their states, and the paths that they changed.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::FixedState;
use parking_lot::Mutex;

use super::admission::json_size;
use super::{Shared, Worker};
use crate::effect::{Change, Op};
use crate::error::Code;
use crate::id::{CallId, ToolName, WorkerId};
use crate::path::VirtualPath;
use crate::pipeline::CallInfo;

/// Maximum number of ended calls that are kept.
const MAX_ENDED: usize = 8;
/// Maximum size of the arguments that are kept with an ended call.
const MAX_ARGUMENTS: u64 = 512;
/// Maximum nesting of the arguments that are kept with an ended call.
const MAX_KEPT_NESTING: usize = 8;
/// Maximum number of changed paths that are kept.
const MAX_CHANGED: usize = 1000;

/// A call of a worker, from [`Worker::activity`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallActivity {
    /// The call.
    pub call: CallId,
    /// The tool.
    pub tool: ToolName,
    /// One sentence for people, rendered from the tool's template. It quotes the agent's arguments.
    pub intent: String,
    /// Its state.
    pub state: CallState,
    /// When it entered this state.
    pub since: Instant,
}

/// State of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallState {
    /// Its arguments are parsed and its needs are judged.
    Preparing,
    /// It waits until its worker, which is paused, is resumed.
    Paused,
    /// It waits for a person's answer.
    Asking,
    /// It waits for other calls: for calls that change the same paths, because the worker's share of the threads is in use,
    /// or because its tool limits its concurrent calls. A call whose changes are planned for a question is in this state, too.
    Queued,
    /// It runs, or waits for a thread.
    Running,
    /// It ended, with a code if it was denied or failed.
    Ended(Option<Code>),
}

/// Paths that a worker and its descendants changed, from [`Worker::changed`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangedPaths {
    /// The first 1,000 paths that were changed, in path order.
    pub paths: Vec<ChangedPath>,
    /// How many further changes are not in the list.
    pub omitted: u64,
}

/// A path that a call changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangedPath {
    /// The path.
    pub path: VirtualPath,
    /// The last operation.
    pub op: Op,
    /// The target of a move or copy.
    pub to: Option<VirtualPath>,
    /// The worker whose call it was.
    pub worker: WorkerId,
    /// That worker's path of names.
    pub agent: Arc<str>,
}

/// A call that has not ended.
#[derive(Debug)]
struct Open {
    info: Arc<CallInfo>,
    state: CallState,
    since: Instant,
}

/// A call with the sentence about it.
#[derive(Clone, Debug)]
struct Row {
    call: CallId,
    tool: ToolName,
    intent: Intent,
    state: CallState,
    since: Instant,
}

/// The sentence about a call, rendered when it is read, since few are.
#[derive(Clone, Debug)]
enum Intent {
    Of(Arc<CallInfo>),
    /// Of an ended call that would need much memory or whose tool can change.
    Rendered(String),
}

/// The calls of a worker, and what it and its descendants changed.
#[derive(Debug, Default)]
pub(super) struct Activity {
    calls: Mutex<Calls>,
    changed: Mutex<Changed>,
}

#[derive(Debug, Default)]
struct Calls {
    open: HashMap<CallId, Open, FixedState>,
    ended: VecDeque<Row>,
}

/// The last change of a path.
#[derive(Debug)]
struct LastChange {
    op: Op,
    to: Option<VirtualPath>,
    worker: WorkerId,
    agent: Arc<str>,
}

#[derive(Debug, Default)]
struct Changed {
    paths: BTreeMap<VirtualPath, LastChange>,
    omitted: u64,
}

impl Activity {
    pub(super) fn begin(&self, info: &Arc<CallInfo>, admitted_at: Instant) {
        let open = Open {
            info: Arc::clone(info),
            state: CallState::Preparing,
            since: admitted_at,
        };
        self.calls.lock().open.insert(info.id, open);
    }

    pub(super) fn enter(&self, call: CallId, state: CallState) {
        if let Some(open) = self.calls.lock().open.get_mut(&call)
            && open.state != state
        {
            (open.state, open.since) = (state, Instant::now());
        }
    }

    fn end(&self, ended: Row) {
        let mut calls = self.calls.lock();
        calls.open.remove(&ended.call);
        if calls.ended.len() >= MAX_ENDED {
            calls.ended.pop_front();
        }
        calls.ended.push_back(ended);
    }

    fn change(&self, worker: &Shared, changes: &[Change]) {
        let mut changed = self.changed.lock();
        changed.add(worker.id, &worker.agent, changes);
    }
}

impl Changed {
    fn add(&mut self, worker: WorkerId, agent: &Arc<str>, changes: &[Change]) {
        for Change { path, op, to, .. } in changes {
            if self.paths.len() < MAX_CHANGED || self.paths.contains_key(path) {
                let change = LastChange {
                    op: *op,
                    to: to.clone(),
                    worker,
                    agent: Arc::clone(agent),
                };
                self.paths.insert(path.clone(), change);
            } else {
                self.omitted += 1;
            }
        }
    }
}

impl Shared {
    /// Records that a call ended `now`.
    pub(super) fn end_activity(&self, info: &Arc<CallInfo>, code: Option<Code>, now: Instant) {
        self.activity.end(Row {
            call: info.id,
            tool: info.tool.clone(),
            intent: match self.is_rendered_later(info) {
                true => Intent::Of(Arc::clone(info)),
                false => Intent::Rendered(self.intent(info, &[])),
            },
            state: CallState::Ended(code),
            since: now,
        });
    }

    /// Whether a call is small and its tool never changes, unlike those of third-party servers.
    fn is_rendered_later(&self, info: &CallInfo) -> bool {
        let tool = self.core.tools.own(info.tool.as_str());
        info.requests.is_none()
            && info.excluded.is_empty()
            && tool.is_some_and(|entry| entry.remote.is_none())
            && json_size(&info.arguments, MAX_KEPT_NESTING)
                .is_some_and(|size| size <= MAX_ARGUMENTS)
    }

    /// Records changes of this worker, for its ancestors, too.
    pub(super) fn changed(&self, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        self.activity.change(self, changes);
        for ancestor in self.lineage.iter() {
            let ancestor = self.core.registry.get(ancestor);
            if let Some(ancestor) = ancestor.map(|entry| Arc::clone(&entry)) {
                ancestor.activity.change(self, changes);
            }
        }
    }
}

impl Worker {
    /// Returns the calls that have not ended, in the order in which they were received, followed by the last eight that
    /// have ended.
    ///
    /// ```
    /// # async fn example(worker: bailiwick::Worker) {
    /// for call in worker.activity() {
    ///     println!("{} {:?} for {:?}", call.intent, call.state, call.since.elapsed());
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn activity(&self) -> Vec<CallActivity> {
        let rows = {
            let calls = self.shared.activity.calls.lock();
            let open = calls.open.values().map(|open| Row {
                call: open.info.id,
                tool: open.info.tool.clone(),
                intent: Intent::Of(Arc::clone(&open.info)),
                state: open.state,
                since: open.since,
            });
            let mut rows: Vec<_> = open.collect();
            rows.sort_by_key(|row| row.call);
            rows.extend(calls.ended.iter().cloned());
            rows
        };
        let rows = rows.into_iter().map(|row| CallActivity {
            call: row.call,
            tool: row.tool,
            intent: match row.intent {
                Intent::Of(info) => self.shared.intent(&info, &[]),
                Intent::Rendered(sentence) => sentence,
            },
            state: row.state,
            since: row.since,
        });
        rows.collect()
    }

    /// Returns the paths that the calls of this worker and its descendants changed, including descendants that have
    /// ended. Calls that failed after a part of their effect are not included; the audit records how far they got.
    #[must_use]
    pub fn changed(&self) -> ChangedPaths {
        let changed = self.shared.activity.changed.lock();
        let paths = changed.paths.iter();
        let paths = paths.map(|(path, change)| ChangedPath {
            path: path.clone(),
            op: change.op,
            to: change.to.clone(),
            worker: change.worker,
            agent: Arc::clone(&change.agent),
        });
        ChangedPaths {
            paths: paths.collect(),
            omitted: changed.omitted,
        }
    }
}

#[doc(hidden)]
impl Worker {
    /// How many changes [`Worker::changed`] reports, including omitted ones.
    #[must_use]
    pub fn changes_count(&self) -> u64 {
        let changed = self.shared.activity.changed.lock();
        changed.omitted.saturating_add(changed.paths.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{Entry, FileDiff};

    #[test]
    fn changed_paths_are_bounded_and_have_the_last_operation() {
        let mut changed = Changed::default();
        let mut change = |n: usize, op: Op| {
            let change = Change {
                path: VirtualPath::parse(&format!("/r/f{n}"), None).unwrap(),
                op,
                to: None,
                before: Entry::Absent,
                after: Entry::Absent,
                diff: FileDiff::default(),
            };
            changed.add(WorkerId(1), &"main".into(), &[change]);
        };
        for n in 0..MAX_CHANGED + 2 {
            change(n, Op::Create);
        }
        change(0, Op::Delete);
        assert_eq!((changed.paths.len(), changed.omitted), (MAX_CHANGED, 2));
        let first = VirtualPath::parse("/r/f0", None).unwrap();
        assert_eq!(changed.paths[&first].op, Op::Delete);
    }
}
