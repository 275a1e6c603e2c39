//! Shared state of the console and a snapshot of it for pages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::ConsoleSource;
use crate::audit::AuditReader;
use crate::response::{self, SessionTally, StateResponse};
use bailiwick::permission::{GrantAuthority, GrantId, GrantView, QuestionId, Run, Silenced};

/// Changes within this time are reported together.
const DEBOUNCE: Duration = Duration::from_millis(50);

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
    /// Number of allowed and denied questions per session.
    tallies: BTreeMap<Arc<str>, (u64, u64)>,
    /// Rules that were already suggested.
    pub(super) suggested: BTreeSet<String>,
}

/// State whose changes increment the version.
type Snapshot = (Vec<QuestionId>, Vec<GrantView>, Vec<Silenced>);

pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
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
        loop {
            let snapshot = Some(source.snapshot().await);
            if snapshot != previous {
                previous = snapshot;
                self.notify();
            }
            if changes.next().await.is_none() {
                return;
            }
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
            now: now_ms(),
            ..StateResponse::default()
        };
        for source in self.sources() {
            source.add_to(&mut state).await;
        }
        state.omitted = response::Omitted {
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

    pub(super) fn stats(&self) -> MutexGuard<'_, SourceStats> {
        lock(&self.stats)
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

    async fn add_to(&self, response: &mut StateResponse) {
        let (config, run) = (&self.config, self.run);
        let (Ok(questions), Ok(grants), Ok(silenced)) = (
            self.grants().questions().await,
            self.grants().grants().await,
            self.grants().silenced().await,
        ) else {
            return;
        };
        let to_view =
            |question| response::question_view(question, &config.server, &config.known_servers);
        response.questions.extend(questions.iter().map(to_view));
        let mut stats = self.stats();
        stats.note_uses(&grants);
        response.grants.extend(grants.iter().map(|grant| {
            let used = stats.uses.get(&grant.id).and_then(|(_, at)| *at);
            response::grant_entry(self.grants(), grant, used)
        }));
        let refusals = silenced.iter().map(|one| response::denial_view(run, one));
        response.refusals.extend(refusals);
        let tallies = stats.tallies.iter();
        response
            .tallies
            .extend(tallies.map(|(session, (allowed, denied))| SessionTally {
                session: Arc::clone(session),
                allowed: *allowed,
                denied: *denied,
            }));
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
        });
    }
}

impl SourceStats {
    fn note_uses(&mut self, grants: &[GrantView]) {
        let before = std::mem::take(&mut self.uses);
        for grant in grants {
            let (used, at) = before.get(&grant.id).copied().unwrap_or_default();
            let at = if grant.used > used {
                Some(now_ms())
            } else {
                at
            };
            self.uses.insert(grant.id, (grant.used, at));
        }
    }

    pub(super) fn count(&mut self, session: &Arc<str>, allowed: bool) {
        let (yes, no) = self.tallies.entry(Arc::clone(session)).or_default();
        if allowed {
            *yes += 1;
        } else {
            *no += 1;
        }
    }
}
