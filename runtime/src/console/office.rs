//! Sources of questions in, what a page sees of all of them out; and what has to be remembered between two looks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::ConsoleSource;
use super::record::Reading;
use super::show::{self, Answered, State};
use crate::id::{GrantId, QuestionId};
use crate::permission::{GrantAuthority, GrantView, Run, Silenced};

/// How long changes are gathered before pages are told.
const GATHER: Duration = Duration::from_millis(50);

/// Every source of the console.
#[derive(Debug)]
pub(super) struct Office {
    desks: Mutex<BTreeMap<u64, Arc<Desk>>>,
    /// Goes up whenever there is something new to see.
    version: watch::Sender<u64>,
    pub(super) stop: CancellationToken,
}

/// One source, and what is remembered of it.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) source: ConsoleSource,
    pub(super) run: Run,
    /// How far its record was read.
    pub(super) reading: Arc<Mutex<Reading>>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
pub(super) struct Kept {
    /// How often each grant was used when it was looked at last, and when that was seen to have grown.
    uses: BTreeMap<GrantId, (u64, Option<u64>)>,
    /// How many questions of each session were allowed and denied here.
    tallies: BTreeMap<Arc<str>, (u64, u64)>,
    /// The rules that were suggested: each is, once.
    pub(super) suggested: BTreeSet<String>,
}

/// What is compared to see whether there is something new.
type Sight = (Vec<QuestionId>, Vec<GrantView>, Vec<Silenced>);

pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Office {
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self {
            desks: Mutex::default(),
            version: watch::Sender::new(1),
            stop,
        }
    }

    pub(super) fn attend(self: &Arc<Self>, source: ConsoleSource) {
        let run = source.grants.broker().run();
        let desk = Arc::new(Desk {
            source,
            run,
            reading: Arc::default(),
            kept: Mutex::default(),
        });
        locked(&self.desks).insert(run.nonce, Arc::clone(&desk));
        let office = Arc::clone(self);
        tokio::spawn(async move {
            let stop = office.stop.clone();
            tokio::select! {
                () = stop.cancelled() => {}
                () = office.watch(&desk) => {}
            }
            locked(&office.desks).remove(&run.nonce);
            office.renewed();
        });
    }

    /// Looks at a source whenever something of it may have changed, until its runtime is gone.
    async fn watch(&self, desk: &Desk) {
        let mut changes = desk.grants().changes();
        let mut seen = None;
        loop {
            let sight = Some(desk.look().await);
            if sight != seen {
                seen = sight;
                self.renewed();
            }
            if changes.next().await.is_none() {
                return;
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Tells every page to look again.
    pub(super) fn renewed(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    pub(super) fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub(super) fn desk(&self, nonce: u64) -> Option<Arc<Desk>> {
        locked(&self.desks).get(&nonce).cloned()
    }

    pub(super) fn desks(&self) -> Vec<Arc<Desk>> {
        locked(&self.desks).values().cloned().collect()
    }

    pub(super) async fn state(&self) -> State {
        // What changes while this looks is told anew.
        let version = *self.version.borrow();
        let mut state = State {
            version,
            now: now_ms(),
            ..State::default()
        };
        for desk in self.desks() {
            desk.show(&mut state).await;
        }
        state.omitted = show::Omitted {
            questions: state.questions.omitted(),
            grants: state.grants.omitted(),
            refusals: state.refusals.omitted(),
        };
        state
    }
}

impl Desk {
    pub(super) fn grants(&self) -> &GrantAuthority {
        &self.source.grants
    }

    pub(super) fn kept(&self) -> MutexGuard<'_, Kept> {
        locked(&self.kept)
    }

    /// Sees what is open, granted and silenced, and notes what was used.
    async fn look(&self) -> Sight {
        // A runtime that is gone has nothing open, and its console is about to hear of that.
        let open = self.grants().questions().await.unwrap_or_default();
        let grants = self.grants().grants().await.unwrap_or_default();
        let silenced = self.grants().silenced().await.unwrap_or_default();
        self.kept().note_uses(&grants);
        let open = open.into_iter().map(|question| question.id).collect();
        (open, grants, silenced)
    }

    async fn show(&self, state: &mut State) {
        let (source, run) = (&self.source, self.run);
        let (Ok(questions), Ok(grants), Ok(silenced)) = (
            self.grants().questions().await,
            self.grants().grants().await,
            self.grants().silenced().await,
        ) else {
            return;
        };
        let asked = |question| show::asked(question, &source.server, &source.known);
        state.questions.extend(questions.iter().map(asked));
        let batches = crate::permission::batches(&questions);
        let together = batches.iter().map(|batch| show::together(run, batch));
        state.batches.extend(together);
        let mut kept = self.kept();
        kept.note_uses(&grants);
        state.grants.extend(grants.iter().map(|grant| {
            let used = kept.uses.get(&grant.id).and_then(|(_, at)| *at);
            show::granted(run, grant, used)
        }));
        let refusals = silenced.iter().map(|one| show::still_refused(run, one));
        state.refusals.extend(refusals);
        let tallies = kept.tallies.iter();
        state
            .tallies
            .extend(tallies.map(|(session, (allowed, denied))| Answered {
                session: Arc::clone(session),
                allowed: *allowed,
                denied: *denied,
            }));
        let mounts = self.grants().authority().base().listed();
        state.sources.push(show::Source {
            run: show::run_name(run),
            server: source.server.name.clone(),
            roots: mounts.map(|root| root.mount.path.clone()).collect(),
            templates: source.templates.iter().map(show::offered).collect(),
            recorded: source.record.is_some(),
        });
    }
}

impl Kept {
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
