//! HTTP handlers for agents, their calls and pauses.

mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::json;

use crate::error::ApiError;
use crate::permissions::{self, AskedCall};
use crate::request::{self, GrantRequest};
use crate::response;
use crate::routes::{self, ApiResult, AppState, json_response};
use crate::state::{ConsoleState, SourceState};
use bailiwick::activity::{CallId, RecentCall};
use bailiwick::audit::wall_clock;
use bailiwick::journal::{ChangeId, JournalEntry};
use bailiwick::permission::{AuthorityError, DecidedBy};
use bailiwick::{Origin, Runtime, Worker};

pub(super) use view::{
    AgentView, CallResult, CallRow, OutcomeView, UndoState, agent_view, outcome_view,
};
use view::{CallDetails, ChangedView};

/// Maximum number of calls in one response.
const MAX_CALLS: usize = 200;
/// Maximum length of a text filter, in characters.
const MAX_TEXT: usize = 200;
/// Maximum number of agents and of tools to filter by.
const MAX_NAMES: usize = 500;

/// The name of the workers that undo changes for people.
const UNDO_AGENT: &str = "~undo";

/// The time in which calls are compared with a new grant.
const HOUR_MS: u64 = 3_600_000;

/// Filter of the calls to show: all given members must match.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ActivityQuery {
    run: Option<String>,
    /// The agent with this path, and its descendants.
    agent: Option<String>,
    worker: Option<String>,
    tool: Option<String>,
    result: Option<CallResult>,
    /// Text in the sentence, the message, the names of agent and tool, or a path.
    text: Option<String>,
    /// Whether to omit previews and calls of tools that only read.
    effects_only: bool,
    since: Option<u64>,
    until: Option<u64>,
    /// Only calls that are older than this one.
    before: Option<String>,
    limit: Option<usize>,
}

/// A worker to pause or to resume.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PauseRequest {
    worker: String,
    paused: bool,
}

/// A worker to stop.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StopRequest {
    worker: String,
}

/// Whose changes to undo.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UndoRequest {
    of: UndoOf,
    /// The changes that the person confirmed; all of them in a preview.
    #[serde(default)]
    changes: Vec<ChangeId>,
}

/// A call, or an agent and its sub-agents.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum UndoOf {
    /// The name of a call.
    Call(String),
    /// The name of a live worker.
    Worker(String),
    /// The path of names of workers that may have ended.
    Agent(String),
}

/// A call of one of the sources.
struct SourceCall {
    source: Arc<SourceState>,
    call: Arc<RecentCall>,
}

impl SourceCall {
    /// The newest calls have the greatest keys.
    fn key(&self) -> (u64, u64, u64) {
        (self.call.at, self.source.run.nonce, self.call.call.0)
    }
}

impl ActivityQuery {
    fn admits(&self, call: &RecentCall) -> bool {
        let Self {
            agent,
            tool,
            result,
            text,
            since,
            until,
            ..
        } = self;
        let mut agents = agent.iter();
        agents.all(|agent| call.is_made_at_or_beneath(agent))
            && tool.as_ref().is_none_or(|tool| *tool == call.tool.as_str())
            && result.is_none_or(|result| CallResult::of(call) == Some(result))
            && (!self.effects_only || (call.mutates && !call.preview))
            && since.is_none_or(|since| call.at >= since)
            && until.is_none_or(|until| call.at <= until)
            && text.as_ref().is_none_or(|text| contains(call, text))
    }
}

/// Whether a call contains a text in lower case.
fn contains(call: &RecentCall, text: &str) -> bool {
    let found = |part: &str| part.to_lowercase().contains(text);
    let changes = call.content.iter().flat_map(|content| &content.changes);
    let mut paths = changes.flat_map(|change| std::iter::once(&change.path).chain(&change.to));
    let mut needs = call.needs.iter().filter_map(|need| need.path());
    found(&call.intent)
        || found(&call.agent)
        || found(call.tool.as_str())
        || call.message.as_deref().is_some_and(found)
        || needs.any(|path| found(path.as_str()))
        || paths.any(|path| found(path.as_str()))
}

/// The source and number in the name of a worker or call.
fn named(
    console: &ConsoleState,
    name: &str,
    code: &'static str,
) -> Result<(Arc<SourceState>, u64), ApiError> {
    let missing = || ApiError::missing(code);
    let (run, number) = request::handle(name).ok_or_else(missing)?;
    Ok((console.source(run).ok_or_else(missing)?, number))
}

/// A live worker and its runtime.
fn live_worker(
    console: &ConsoleState,
    name: &str,
) -> Result<(Arc<SourceState>, Runtime, Worker), ApiError> {
    let missing = || ApiError::missing("NO_WORKER");
    let (source, number) = named(console, name, "NO_WORKER")?;
    let runtime = source.runtime().ok_or_else(missing)?;
    let mut workers = runtime.workers().into_iter();
    let worker = workers.find(|worker| worker.id().0 == number);
    let worker = worker.ok_or_else(missing)?;
    Ok((source, runtime, worker))
}

/// Whether a call is an undo that a person asked for, such as on the page.
fn is_of_person(call: &RecentCall) -> bool {
    call.origin == Origin::Human && &*call.agent == UNDO_AGENT
}

/// The recent calls of all sources, or of one run, without the previews of the page itself; the newest first.
fn recent_calls(console: &ConsoleState, run: Option<&str>) -> Result<Vec<SourceCall>, ApiError> {
    let sources = match run {
        Some(run) => vec![routes::source_of_run(console, run)?],
        None => console.sources(),
    };
    let mut calls = Vec::new();
    for source in sources {
        let of_source = source.runtime().map(|runtime| runtime.recent_calls());
        let of_source = of_source.into_iter().flatten();
        let of_source = of_source.filter(|call| !(call.preview && is_of_person(call)));
        calls.extend(of_source.map(|call| SourceCall {
            source: Arc::clone(&source),
            call,
        }));
    }
    calls.sort_by_key(|call| std::cmp::Reverse(call.key()));
    Ok(calls)
}

pub(super) async fn activity(State(console): AppState, body: Bytes) -> ApiResult {
    let mut query: ActivityQuery = request::parse(&body)?;
    if let Some(text) = &mut query.text {
        if text.chars().count() > MAX_TEXT {
            return Err(ApiError::too_long("a text to find", MAX_TEXT));
        }
        *text = text.to_lowercase();
    }
    let worker = query.worker.as_deref().map(|worker| {
        let missing = || ApiError::missing("NO_WORKER");
        request::handle(worker).ok_or_else(missing)
    });
    let worker = worker.transpose()?;
    let all = recent_calls(&console, query.run.as_deref())?;
    let names = |name: fn(&RecentCall) -> &str| -> BTreeSet<&str> {
        let names = all.iter().map(|call| name(&call.call));
        names.collect()
    };
    let (mut agents, tools) = (names(|call| &call.agent), names(|call| call.tool.as_str()));
    if all.iter().any(|call| is_of_person(&call.call)) {
        agents.remove(UNDO_AGENT);
    }
    let bounded = |names: BTreeSet<&str>| -> Vec<String> {
        let names = names.into_iter().take(MAX_NAMES);
        names.map(str::to_owned).collect()
    };
    let mut shown = all.as_slice();
    if let Some(before) = &query.before {
        let before = request::handle(before);
        let known = shown
            .iter()
            .position(|call| Some((call.source.run.nonce, call.call.call.0)) == before);
        // A call that is not kept any more was older than all others.
        shown = known
            .and_then(|index| shown.get(index + 1..))
            .unwrap_or_default();
    }
    let limit = query.limit.unwrap_or(MAX_CALLS).clamp(1, MAX_CALLS);
    let of_worker = |call: &SourceCall| (call.source.run.nonce, call.call.worker.0);
    let mut matching = shown.iter().filter(|call| {
        worker.is_none_or(|worker| of_worker(call) == worker) && query.admits(&call.call)
    });
    let page: Vec<&SourceCall> = matching.by_ref().take(limit).collect();
    let more = matching.next().is_some();
    let calls = rows(&page);
    let undoable = query.agent.clone().map_or(0, |agent| {
        let found = undoable(&console, &UndoOf::Agent(agent));
        found.map_or(0, |(_, changes)| changes.len())
    });
    json_response(&json!({
        "calls": calls,
        "more": more,
        "agents": bounded(agents),
        "tools": bounded(tools),
        "undoable": undoable,
    }))
}

/// The rows of calls.
fn rows(calls: &[&SourceCall]) -> Vec<CallRow> {
    let mut undo: BTreeMap<u64, BTreeMap<CallId, UndoState>> = BTreeMap::new();
    for call in calls {
        let run = call.source.run.nonce;
        undo.entry(run).or_insert_with(|| {
            let of_run = calls.iter().filter(|call| call.source.run.nonce == run);
            let runtime = call.source.runtime();
            undo_states(runtime.as_ref(), of_run.map(|call| call.call.call))
        });
    }
    let row = |call: &&SourceCall| {
        let SourceCall { source, call } = call;
        let undo = undo.get(&source.run.nonce);
        let undo = undo.and_then(|states| states.get(&call.call)).copied();
        let flags = (source.has_answered(call), source.grants().stores_grants());
        CallRow::new(source.run, call, flags, undo)
    };
    calls.iter().map(row).collect()
}

pub(super) async fn call(State(console): AppState, Path(name): Path<String>) -> ApiResult {
    let (source, number) = named(&console, &name, "NO_CALL")?;
    let runtime = source.runtime();
    let found = runtime.as_ref();
    let found = found.and_then(|runtime| runtime.recent_call(CallId(number)));
    let found = found.ok_or_else(|| ApiError::missing("NO_CALL"))?;
    let undo = undo_states(runtime.as_ref(), [found.call]).remove(&found.call);
    let flags = (source.has_answered(&found), source.grants().stores_grants());
    let row = CallRow::new(source.run, &found, flags, undo);
    json_response(&CallDetails::new(row, &found))
}

pub(super) async fn agent(State(console): AppState, Path(name): Path<String>) -> ApiResult {
    let (source, runtime, worker) = live_worker(&console, &name)?;
    let questions = source.grants().questions().await?;
    let undoable = changes_of(&runtime, &worker).len();
    let changed = worker.changed();
    let paths = changed.paths.iter();
    let paths: Vec<ChangedView<'_>> = paths
        .map(|path| ChangedView::new(source.run, path))
        .collect();
    json_response(&json!({
        "agent": agent_view(source.run, &worker, &questions),
        "may": permissions::statements(&worker, source.run).await,
        "changed": paths,
        "changed_omitted": changed.omitted,
        "undoable": undoable,
    }))
}

/// The changes of a call or an agent that are in effect, and what undoing them would do.
pub(super) async fn preview_undo(State(console): AppState, body: Bytes) -> ApiResult {
    let UndoRequest { of, .. } = request::parse(&body)?;
    let (source, changes) = undoable(&console, &of)?;
    let preview = source.grants().preview_undo(&changes).await;
    let preview = preview.map_err(|error| ApiError::undo(&error))?;
    json_response(&json!({ "undoes": changes, "changes": preview.changes }))
}

/// Undoes the changes that a person confirmed.
pub(super) async fn undo(State(console): AppState, body: Bytes) -> ApiResult {
    let UndoRequest { of, changes } = request::parse(&body)?;
    let (source, own) = undoable(&console, &of)?;
    if changes.is_empty() || changes.iter().any(|change| !own.contains(change)) {
        return Err(ApiError::missing("NO_CHANGE"));
    }
    let outcome = source.grants().undo(&changes).await;
    let outcome = outcome.map_err(|error| ApiError::undo(&error))?;
    console.notify();
    json_response(&json!({ "files": outcome.changes.len() }))
}

/// The changes of a call or an agent that are in effect, and a source that can undo them.
fn undoable(
    console: &ConsoleState,
    of: &UndoOf,
) -> Result<(Arc<SourceState>, Vec<ChangeId>), ApiError> {
    let found = match of {
        UndoOf::Call(name) => {
            let (source, number) = named(console, name, "NO_CALL")?;
            let runtime = source.runtime();
            let changes = changes_of_calls(runtime.as_ref(), [CallId(number)]);
            let possible = changes.iter();
            let possible =
                possible.filter(|change| UndoState::of(change) == Some(UndoState::Possible));
            let possible = possible.map(|change| change.id).collect();
            Some((source, possible))
        }
        UndoOf::Worker(name) => {
            let (source, runtime, worker) = live_worker(console, name)?;
            Some((source, changes_of(&runtime, &worker)))
        }
        UndoOf::Agent(agent) => {
            let sources = console.sources().into_iter();
            // Sources that have the same journal find the same changes.
            let mut found = sources.filter_map(|source| {
                let changes = source.runtime()?.journal()?.changes_of_agent(agent);
                Some((source, changes))
            });
            found.find(|(_, changes)| !changes.is_empty())
        }
    };
    let found = found.filter(|(_, changes)| !changes.is_empty());
    found.ok_or_else(|| ApiError::missing("NO_CHANGE"))
}

fn changes_of_calls(
    runtime: Option<&Runtime>,
    calls: impl IntoIterator<Item = CallId>,
) -> Vec<JournalEntry> {
    let journal = runtime.and_then(Runtime::journal);
    journal.map_or_else(Vec::new, |journal| {
        journal.changes_of_calls(&calls.into_iter().collect())
    })
}

/// Whether what these calls changed can be undone, or was undone.
pub(super) fn undo_states(
    runtime: Option<&Runtime>,
    calls: impl IntoIterator<Item = CallId>,
) -> BTreeMap<CallId, UndoState> {
    let changes = changes_of_calls(runtime, calls);
    let states = changes.iter();
    let states = states.filter_map(|change| Some((change.call, UndoState::of(change)?)));
    states.collect()
}

fn changes_of(runtime: &Runtime, worker: &Worker) -> Vec<ChangeId> {
    let journal = runtime.journal();
    journal.map_or_else(Vec::new, |journal| journal.changes_of(worker.id()))
}

/// The calls of the last hour that a grant would have allowed without a question.
pub(super) async fn would_allow(State(console): AppState, body: Bytes) -> ApiResult {
    let request: GrantRequest = request::parse(&body)?;
    let (source, grant) = routes::new_grant(&console, request).await?;
    let since = wall_clock().saturating_sub(HOUR_MS);
    let calls = source.runtime().map(|runtime| runtime.recent_calls());
    let asked = calls.into_iter().flatten().rev();
    let asked = asked.filter(|call| call.question.is_some() && call.at >= since);
    let asked = asked.map(|call| AskedCall {
        call: response::name_in_run(source.run, call.call.0),
        at: call.at,
        worker: call.worker,
        agent: Arc::clone(&call.agent),
        sentence: call.intent.clone(),
        needs: (call.asked_omitted == 0).then(|| call.asked.clone()),
    });
    json_response(&permissions::would_allow(asked, &grant, source.grants()))
}

pub(super) async fn pause(State(console): AppState, body: Bytes) -> ApiResult {
    let PauseRequest { worker, paused } = request::parse(&body)?;
    let (_, _, worker) = live_worker(&console, &worker)?;
    if paused {
        worker.pause(DecidedBy::Person);
    } else {
        let resumed = worker.resume(DecidedBy::Person);
        resumed.map_err(AuthorityError::Audit)?;
    }
    console.notify();
    json_response(&json!({}))
}

pub(super) async fn stop_worker(State(console): AppState, body: Bytes) -> ApiResult {
    let StopRequest { worker } = request::parse(&body)?;
    let (_, _, worker) = live_worker(&console, &worker)?;
    let revoked = worker.revoke_by(DecidedBy::Person).await;
    console.notify();
    json_response(&json!({ "unfinished": revoked.unfinished }))
}
