//! Broker's handle of the grant store: collects changes and sends them to the writer.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;

use super::super::{GrantHolder, GrantView, Lifetime, NewGrant};
use super::format::Contents;
use super::writer::{Change, Done, Message, Recorded, Writer};
use super::{GrantStore, GrantWriteError, StoredGrant};
use crate::audit::Audit;
use crate::id::GrantId;

/// Returns milliseconds since 1970.
pub(crate) type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

pub(crate) fn wall_clock() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

type Outcome = Result<(), GrantWriteError>;

/// Grants that could not be stored and must be revoked.
#[derive(Debug)]
pub(crate) struct StoreFailure {
    pub(crate) grants: Vec<GrantId>,
    error: GrantWriteError,
    reply: oneshot::Sender<Outcome>,
}

impl StoreFailure {
    /// Reports the failure, once the grants are revoked.
    pub(crate) fn report(self) {
        // The caller may be gone.
        let _ = self.reply.send(Err(self.error));
    }
}

/// Pending result of storing a change; ready at once if there is nothing to store.
#[derive(Debug, Default)]
pub(crate) struct PendingSave(Option<oneshot::Receiver<Outcome>>);

impl PendingSave {
    pub(crate) async fn done(self) -> Outcome {
        match self.0 {
            Some(outcome) => outcome.await.unwrap_or(Err(GrantWriteError::Closed)),
            None => Ok(()),
        }
    }
}

/// Handle of the store: collects the changes of one message and sends them to the writer without waiting.
pub(crate) struct StoreHandle(Option<Open>);

struct Open {
    /// Unbounded, since it holds only grants, which are bounded, and their revocations.
    writer: Option<Sender<Message>>,
    /// When each grant was given.
    stored: BTreeMap<GrantId, u64>,
    given: Vec<StoredGrant>,
    taken: Vec<GrantId>,
    wall: WallClock,
    /// Reports failures to the broker.
    report: Arc<dyn Fn(StoreFailure) + Send + Sync>,
    audit: Audit,
    /// How many changes were sent.
    changes: u64,
}

impl StoreHandle {
    /// Starts the writer of `store`, if there is one, and returns its content.
    pub(crate) fn start(
        store: Option<GrantStore>,
        audit: &Audit,
        wall: WallClock,
        report: impl Fn(StoreFailure) + Send + Sync + 'static,
    ) -> io::Result<(Self, Contents)> {
        let Some(store) = store else {
            return Ok((Self(None), Contents::default()));
        };
        let GrantStore { file, contents } = store;
        let stored = contents.clone();
        let (sender, receiver) = mpsc::channel();
        let writer = Writer::new(contents, move |bytes: &[u8]| file.replace(bytes));
        thread::Builder::new()
            .name("bailiwick-grants".to_owned())
            .spawn(move || writer.run(&receiver))?;
        let open = Open {
            writer: Some(sender),
            stored: stored
                .grants
                .values()
                .map(|grant| (grant.id, grant.given_at_ms))
                .collect(),
            given: Vec::new(),
            taken: Vec::new(),
            wall,
            report: Arc::new(report),
            audit: audit.clone(),
            changes: 0,
        };
        Ok((Self(Some(open)), stored))
    }

    /// Collects a grant; only permanent grants of agents are stored.
    pub(crate) fn added(&mut self, id: GrantId, new: &NewGrant) {
        if let (Some(open), GrantHolder::Agent(agent), Lifetime::Agent) =
            (&mut self.0, &new.holder, new.lifetime)
        {
            let given_at_ms = (open.wall)();
            open.stored.insert(id, given_at_ms);
            open.given.push(StoredGrant {
                id,
                agent: Arc::clone(agent),
                pattern: new.pattern.clone(),
                descendants: new.descendants,
                given_at_ms,
            });
        }
    }

    /// Collects a narrowed grant; it is removed if it now has a count or time limit.
    pub(crate) fn narrowed(&mut self, left: &GrantView) {
        let Some(open) = &mut self.0 else { return };
        let Some(given_at_ms) = open.stored.get(&left.id).copied() else {
            return;
        };
        match &left.holder {
            GrantHolder::Agent(agent) if left.uses_left.is_none() && left.expires_at.is_none() => {
                open.given.push(StoredGrant {
                    id: left.id,
                    agent: Arc::clone(agent),
                    pattern: left.pattern.clone(),
                    descendants: left.descendants,
                    given_at_ms,
                });
            }
            GrantHolder::Agent(_) | GrantHolder::Session { .. } | GrantHolder::Worker(_) => {
                self.removed(left.id);
            }
        }
    }

    /// Collects the removal of a grant.
    pub(crate) fn removed(&mut self, id: GrantId) {
        if let Some(open) = &mut self.0
            && open.stored.remove(&id).is_some()
        {
            open.taken.push(id);
        }
    }

    /// Sends the collected changes.
    pub(crate) fn save(&mut self) -> PendingSave {
        match &mut self.0 {
            Some(open) if !open.given.is_empty() || !open.taken.is_empty() => open.save(),
            _ => PendingSave::default(),
        }
    }

    /// Closes the file once everything is stored.
    pub(crate) fn close(&mut self) -> PendingSave {
        let Some(writer) = self.0.as_mut().and_then(|open| open.writer.take()) else {
            return PendingSave::default();
        };
        let (reply, outcome) = oneshot::channel();
        // A writer that has ended drops the reply, which reports the failure.
        let _ = writer.send(Message::Close(reply_to(reply)));
        PendingSave(Some(outcome))
    }
}

impl Open {
    fn save(&mut self) -> PendingSave {
        let given = std::mem::take(&mut self.given);
        let taken = std::mem::take(&mut self.taken);
        let (reply, outcome) = oneshot::channel();
        self.changes += 1;
        let (id, gives) = (self.changes, !given.is_empty());
        let done: Done = if given.is_empty() {
            reply_to(reply)
        } else {
            let grants = given.iter().map(|grant| grant.id).collect();
            let report = Arc::clone(&self.report);
            Box::new(move |outcome| match outcome {
                Ok(()) => reply_to(reply)(Ok(())),
                Err(error) => report(StoreFailure {
                    grants,
                    error,
                    reply,
                }),
            })
        };
        let change = Message::Change(Change::new(id, given, taken, done));
        if let Some(writer) = &self.writer {
            // A dropped change reports that it was not stored.
            let _ = writer.send(change);
            if gives {
                // A grant is stored after its audit record, so that a kill never leaves a grant without a record.
                let recorded = Recorded::new(id, writer.clone());
                self.audit.flush_then(|flushed| recorded.report(flushed));
            }
        }
        PendingSave(Some(outcome))
    }
}

fn reply_to(reply: oneshot::Sender<Outcome>) -> Done {
    Box::new(move |outcome| {
        // The caller may be gone.
        let _ = reply.send(outcome);
    })
}

impl fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoreHandle")
            .field(&self.0.is_some())
            .finish()
    }
}
