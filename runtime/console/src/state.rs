//! Shared state of the console and a snapshot of it for pages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::ConsoleSource;
use crate::activity::{OutcomeView, agent_view, outcome_view, undo_states};
use crate::audit::AuditReader;
use crate::response::{self, StateResponse};
use bailiwick::Runtime;
use bailiwick::activity::RecentCall;
use bailiwick::audit::wall_clock;
use bailiwick::monitor::{EventKind, Events, EventsError};
use bailiwick::permission::{
    GrantAuthority, GrantId, GrantView, Question, QuestionId, Run, Silenced,
};

/// Changes within this time are reported together.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// Maximum number of own answers that are remembered. The runtime remembers fewer ended questions.
const MAX_ANSWERED: usize = 1000;

/// Maximum number of suggested rules that are remembered, so that they are not suggested again.
const MAX_SUGGESTED: usize = 1000;

/// Maximum number of ended questions in the state.
const MAX_OUTCOMES: usize = 200;

/// All sources of the console.
#[derive(Debug)]
pub(super) struct ConsoleState {
    sources: Mutex<BTreeMap<u64, Arc<SourceState>>>,
    /// Incremented when something changed.
    version: watch::Sender<u64>,
    pub(super) stop: CancellationToken,
}

/// One source and its derived state.
#[derive(Debug)]
pub(super) struct SourceState {
    pub(super) config: ConsoleSource,
    pub(super) run: Run,
    /// Position in its audit log.
    pub(super) reader: Arc<Mutex<AuditReader>>,
    stats: Mutex<SourceStats>,
}

#[derive(Debug, Default)]
pub(super) struct SourceStats {
    /// Use count of each grant when it was last read, and when it last grew.
    uses: BTreeMap<GrantId, (u64, Option<u64>)>,
    /// Questions that this console answered.
    answered: BTreeSet<QuestionId>,
    /// Rules that were already suggested, the oldest first.
    pub(super) suggested: VecDeque<String>,
}

/// State whose changes increment the version.
type Snapshot = (Vec<QuestionId>, Vec<GrantView>, Vec<Silenced>);

/// Waits until a worker or a call starts or ends, or a worker is paused or resumed.
async fn activity(events: &mut Option<Events>) {
    while let Some(receiver) = events {
        match receiver.recv().await.map(|event| event.kind) {
            Ok(
                EventKind::WorkerStarted { .. }
                | EventKind::WorkerEnded
                | EventKind::WorkerPaused { .. }
                | EventKind::WorkerResumed { .. }
                | EventKind::CallStarted { .. }
                | EventKind::CallEnded { .. },
            )
            | Err(EventsError::Lost(_)) => return,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    std::future::pending().await
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ConsoleState {
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self {
            sources: Mutex::default(),
            version: watch::Sender::new(1),
            stop,
        }
    }

    pub(super) fn add_source(self: &Arc<Self>, config: ConsoleSource) {
        let run = config.grants.run();
        let source = Arc::new(SourceState {
            config,
            run,
            reader: Arc::default(),
            stats: Mutex::default(),
        });
        lock(&self.sources).insert(run.nonce, Arc::clone(&source));
        let state = Arc::clone(self);
        tokio::spawn(async move {
            let stop = state.stop.clone();
            tokio::select! {
                () = stop.cancelled() => {}
                () = state.watch(&source) => {}
            }
            lock(&state.sources).remove(&run.nonce);
            state.notify();
        });
    }

    /// Watches a source for changes until its runtime shuts down.
    async fn watch(&self, source: &SourceState) {
        let mut changes = source.grants().changes();
        let mut previous = None;
        let mut acted = true;
        let mut events = None;
        loop {
            if acted {
                // Subscribed before pages read the state, so that no event is missed. Earlier events are not needed.
                events = source.runtime().map(|runtime| runtime.events());
            }
            let snapshot = Some(source.snapshot().await);
            if acted || snapshot != previous {
                previous = snapshot;
                self.notify();
            }
            acted = tokio::select! {
                change = changes.next() => match change {
                    Some(()) => false,
                    None => return,
                },
                () = activity(&mut events) => true,
            };
            tokio::time::sleep(DEBOUNCE).await;
        }
    }

    /// Increments the version, so that pages reload their state.
    pub(super) fn notify(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    pub(super) fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub(super) fn source(&self, nonce: u64) -> Option<Arc<SourceState>> {
        lock(&self.sources).get(&nonce).cloned()
    }

    pub(super) fn sources(&self) -> Vec<Arc<SourceState>> {
        lock(&self.sources).values().cloned().collect()
    }

    pub(super) async fn state(&self) -> StateResponse {
        // Changes during this function cause another update.
        let version = *self.version.borrow();
        let mut state = StateResponse {
            version,
            now: wall_clock(),
            ..StateResponse::default()
        };
        let mut outcomes = Vec::new();
        for source in self.sources() {
            source.add_to(&mut state, &mut outcomes).await;
        }
        outcomes.sort_by_key(|outcome| std::cmp::Reverse(outcome.at));
        state
            .outcomes
            .extend(outcomes.into_iter().take(MAX_OUTCOMES));
        state.omitted = response::Omitted {
            agents: state.agents.omitted(),
            questions: state.questions.omitted(),
            grants: state.grants.omitted(),
            refusals: state.refusals.omitted(),
        };
        state
    }
}

impl SourceState {
    pub(super) fn grants(&self) -> &GrantAuthority {
        &self.config.grants
    }

    /// The runtime, if the console shows its agents and it has not ended.
    pub(super) fn runtime(&self) -> Option<Runtime> {
        self.config.runtime.as_ref()?.upgrade()
    }

    pub(super) fn stats(&self) -> MutexGuard<'_, SourceStats> {
        lock(&self.stats)
    }

    /// Whether this console answered the question of a call.
    pub(super) fn has_answered(&self, call: &RecentCall) -> bool {
        let question = call.question.as_ref();
        question.is_some_and(|question| self.stats().answered.contains(question))
    }

    /// Reads the open questions, grants and denials, and records grant uses.
    async fn snapshot(&self) -> Snapshot {
        // Errors mean that the runtime has shut down; the watch ends then.
        let open = self.grants().questions().await.unwrap_or_default();
        let grants = self.grants().grants().await.unwrap_or_default();
        let silenced = self.grants().silenced().await.unwrap_or_default();
        self.stats().note_uses(&grants);
        let open = open.into_iter().map(|question| question.id).collect();
        (open, grants, silenced)
    }

    async fn add_to(&self, response: &mut StateResponse, outcomes: &mut Vec<OutcomeView>) {
        let (config, run) = (&self.config, self.run);
        let (Ok(questions), Ok(grants), Ok(silenced)) = (
            self.grants().questions().await,
            self.grants().grants().await,
            self.grants().silenced().await,
        ) else {
            return;
        };
        let runtime = self.runtime();
        if let Some(runtime) = &runtime {
            self.add_activity(response, outcomes, runtime, &questions);
        }
        let stores_grants = self.grants().stores_grants();
        let to_view = |question| {
            let known = &config.known_servers;
            response::question_view(question, &config.server, known, stores_grants)
        };
        response.questions.extend(questions.iter().map(to_view));
        let mut stats = self.stats();
        stats.note_uses(&grants);
        response.grants.extend(grants.iter().map(|grant| {
            let used = stats.uses.get(&grant.id).and_then(|(_, at)| *at);
            response::grant_entry(self.grants(), grant, used)
        }));
        let refusals = silenced.iter().map(|one| response::denial_view(run, one));
        response.refusals.extend(refusals);
        let mounts = self.grants().authority().base().listed();
        response.sources.push(response::SourceView {
            run: response::run_name(run),
            server: config.server.name.clone(),
            roots: mounts.map(|root| root.mount.path.clone()).collect(),
            templates: config
                .templates
                .iter()
                .map(response::template_view)
                .collect(),
            recorded: config.audit.is_some(),
            stores_grants,
            activity: runtime.is_some(),
        });
    }

    /// Adds the live agents and the questions that have ended.
    fn add_activity(
        &self,
        response: &mut StateResponse,
        outcomes: &mut Vec<OutcomeView>,
        runtime: &Runtime,
        questions: &[Question],
    ) {
        let workers = runtime.workers();
        let agents = workers.iter();
        response
            .agents
            .extend(agents.map(|worker| agent_view(self.run, worker, questions)));
        let stats = self.stats();
        let ended = runtime.ended_questions();
        let undo = undo_states(Some(runtime), ended.iter().map(|ended| ended.call));
        outcomes.extend(ended.iter().map(|ended| {
            let own = stats.answered.contains(&ended.question);
            let live = workers.iter().any(|worker| worker.id() == ended.worker);
            let undo = undo.get(&ended.call).copied();
            outcome_view(self.run, ended, (own, live), undo)
        }));
    }
}

impl SourceStats {
    fn note_uses(&mut self, grants: &[GrantView]) {
        let before = std::mem::take(&mut self.uses);
        for grant in grants {
            let (used, at) = before.get(&grant.id).copied().unwrap_or_default();
            let at = if grant.used > used {
                Some(wall_clock())
            } else {
                at
            };
            self.uses.insert(grant.id, (grant.used, at));
        }
    }

    /// Remembers that this console answered a question.
    pub(super) fn note_answer(&mut self, question: QuestionId) {
        self.answered.insert(question);
        if self.answered.len() > MAX_ANSWERED {
            self.answered.pop_first();
        }
    }

    /// Remembers that a rule was suggested.
    pub(super) fn note_suggestion(&mut self, rule: String) {
        if self.suggested.len() >= MAX_SUGGESTED {
            self.suggested.pop_front();
        }
        self.suggested.push_back(rule);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_suggestions_are_remembered() {
        let mut stats = SourceStats::default();
        for rule in 0..=MAX_SUGGESTED {
            stats.note_suggestion(rule.to_string());
        }
        assert_eq!(stats.suggested.len(), MAX_SUGGESTED);
        assert!(!stats.suggested.contains(&"0".to_owned()));
        assert!(stats.suggested.contains(&MAX_SUGGESTED.to_string()));
    }
}
