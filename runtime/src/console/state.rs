//! Sources of questions in, what a page sees of all of them out; and what has to be remembered between two looks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::ConsoleSource;
use super::audit::AuditReader;
use super::response::{self, SessionTally, StateResponse};
use crate::id::{GrantId, QuestionId};
use crate::permission::{GrantAuthority, GrantView, Run, Silenced};

/// How long changes are gathered before pages are told.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// Every source of the console.
#[derive(Debug)]
pub(super) struct ConsoleState {
    sources: Mutex<BTreeMap<u64, Arc<SourceState>>>,
    /// Goes up whenever there is something new to see.
    version: watch::Sender<u64>,
    pub(super) stop: CancellationToken,
}

/// One source, and what is remembered of it.
#[derive(Debug)]
pub(super) struct SourceState {
    pub(super) config: ConsoleSource,
    pub(super) run: Run,
    /// How far its record was read.
    pub(super) reader: Arc<Mutex<AuditReader>>,
    stats: Mutex<SourceStats>,
}

#[derive(Debug, Default)]
pub(super) struct SourceStats {
    /// How often each grant was used when it was looked at last, and when that was seen to have grown.
    uses: BTreeMap<GrantId, (u64, Option<u64>)>,
    /// How many questions of each session were allowed and denied here.
    tallies: BTreeMap<Arc<str>, (u64, u64)>,
    /// The rules that were suggested: each is, once.
    pub(super) suggested: BTreeSet<String>,
}

/// What is compared to see whether there is something new.
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
        let run = config.grants.broker().run();
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

    /// Looks at a source whenever something of it may have changed, until its runtime is gone.
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

    /// Tells every page to look again.
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
        // What changes while this looks is told anew.
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

    /// Sees what is open, granted and silenced, and notes what was used.
    async fn snapshot(&self) -> Snapshot {
        // A runtime that is gone has nothing open, and its console is about to hear of that.
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
        let asked =
            |question| response::question_view(question, &config.server, &config.known_servers);
        response.questions.extend(questions.iter().map(asked));
        let batches = crate::permission::batches(&questions);
        let together = batches.iter().map(|batch| response::batch_view(run, batch));
        response.batches.extend(together);
        let mut stats = self.stats();
        stats.note_uses(&grants);
        response.grants.extend(grants.iter().map(|grant| {
            let used = stats.uses.get(&grant.id).and_then(|(_, at)| *at);
            response::grant_entry(run, grant, used)
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
            roots: mounts.map(|root| root.place.path.clone()).collect(),
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
