//! Changes to what is stored in, one replacement of the file for all that wait, and each told how it went, out.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::StoredGrant;
use super::format::{Contents, encode};
use crate::audit::AuditError;
use crate::id::GrantId;

/// How long the writer waits before it tries a file again that it could not write.
const RETRY: Duration = Duration::from_secs(1);

/// Why the file does not say what is granted now.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrantWriteError {
    /// It cannot be written.
    #[error("cannot write the grant store")]
    Write(#[source] Arc<io::Error>),
    /// What was granted cannot be recorded, and nothing is stored before it is.
    #[error("the grant cannot be recorded")]
    Record(#[source] AuditError),
    /// The runtime has let go of it.
    #[error("the grant store is closed")]
    Closed,
}

/// Told once how a change went.
pub(super) type Done = Box<dyn FnOnce(Result<(), GrantWriteError>) + Send>;

/// What one word of a person changes; all of it is stored, or none.
pub(super) struct Change {
    pub(super) given: Vec<StoredGrant>,
    pub(super) taken: Vec<GrantId>,
    done: Option<Done>,
}

impl Change {
    pub(super) fn new(given: Vec<StoredGrant>, taken: Vec<GrantId>, done: Done) -> Self {
        Self {
            given,
            taken,
            done: Some(done),
        }
    }

    fn told(mut self, stored: Result<(), GrantWriteError>) {
        if let Some(done) = self.done.take() {
            done(stored);
        }
    }
}

impl Drop for Change {
    /// Nobody stored it: there is no writer any more.
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done(Err(GrantWriteError::Closed));
        }
    }
}

pub(super) enum Message {
    Change(Change),
    /// Writes what is unwritten, then lets go of the file. Nothing comes after it.
    Close(Done),
}

/// The one that writes; lives on its own thread.
pub(super) struct Writer<S, R> {
    /// Returns once everything that was handed to the audit before is written.
    recorded: S,
    /// Puts bytes in the place of the file.
    replace: R,
    /// What the file is to say.
    wanted: Contents,
    /// It may say something else.
    failing: bool,
}

impl<S, R> Writer<S, R>
where
    S: FnMut() -> Result<(), AuditError>,
    R: FnMut(&[u8]) -> io::Result<()>,
{
    pub(super) fn new(contents: Contents, recorded: S, replace: R) -> Self {
        Self {
            recorded,
            replace,
            wanted: contents,
            failing: false,
        }
    }

    pub(super) fn run(mut self, receiver: &Receiver<Message>) {
        loop {
            let first = if self.failing {
                receiver.recv_timeout(RETRY)
            } else {
                receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match first {
                Ok(first) => {
                    let messages = std::iter::once(first).chain(receiver.try_iter());
                    if let Some(done) = self.take(messages) {
                        let written = self.catch_up();
                        drop(self);
                        return done(written);
                    }
                }
                // Whoever made the change that failed was told so.
                Err(RecvTimeoutError::Timeout) => drop(self.catch_up()),
                Err(RecvTimeoutError::Disconnected) => return drop(self.catch_up()),
            }
        }
    }

    /// Stores one batch, what is taken back first, and tells everyone who waits for it, but for whoever closes the store.
    fn take(&mut self, messages: impl Iterator<Item = Message>) -> Option<Done> {
        let (mut changes, mut closing) = (Vec::new(), None);
        for message in messages {
            match message {
                Message::Change(change) => changes.push(change),
                Message::Close(done) => closing = Some(done),
            }
        }
        let (giving, taking): (Vec<Change>, Vec<Change>) = changes
            .into_iter()
            .partition(|change| !change.given.is_empty());
        let taken: BTreeSet<GrantId> = giving
            .iter()
            .chain(&taking)
            .flat_map(|change| &change.taken)
            .copied()
            .collect();
        // A log that hangs keeps nobody from taking grants back: that waits for no record.
        let before = self.wanted.grants.clone();
        self.wanted.grants.retain(|id, _| !taken.contains(id));
        let lost = self.store(&before);
        for change in taking {
            change.told(lost.clone());
        }
        if !giving.is_empty() {
            self.give(giving, &taken);
        }
        closing
    }

    /// Stores what is given, unless it is taken again by now.
    fn give(&mut self, changes: Vec<Change>, taken: &BTreeSet<GrantId>) {
        // A kill between the two must not leave a grant of which no record tells.
        let recorded = (self.recorded)().map_err(GrantWriteError::Record);
        let before = self.wanted.grants.clone();
        for grant in changes.iter().flat_map(|change| &change.given) {
            self.wanted.next = self.wanted.next.max(grant.id.0 + 1);
            // Of one that was to be narrowed nothing may be left: it is taken back.
            if recorded.is_ok() && !taken.contains(&grant.id) {
                self.wanted.grants.insert(grant.id, grant.clone());
            } else {
                self.wanted.grants.remove(&grant.id);
            }
        }
        // That the store has it still is worse than that it is gone, so that is told first.
        let told = self.store(&before).and(recorded);
        for change in changes {
            if told.is_err() {
                for grant in &change.given {
                    self.wanted.grants.remove(&grant.id);
                }
            }
            change.told(told.clone());
        }
    }

    /// Writes what is other than before.
    fn store(&mut self, before: &BTreeMap<GrantId, StoredGrant>) -> Result<(), GrantWriteError> {
        if self.wanted.grants == *before {
            self.catch_up()
        } else {
            self.write()
        }
    }

    fn catch_up(&mut self) -> Result<(), GrantWriteError> {
        if self.failing { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), GrantWriteError> {
        let written = encode(&self.wanted).and_then(|bytes| (self.replace)(&bytes));
        if let Err(error) = &written
            && !self.failing
        {
            tracing::error!(%error, "the grant store cannot be written");
        }
        self.failing = written.is_err();
        written.map_err(|error| GrantWriteError::Write(Arc::new(error)))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::sync::Mutex;

    use super::super::format::decode;
    use super::*;

    fn stored(id: u64) -> StoredGrant {
        StoredGrant {
            id: GrantId(id),
            agent: "main".into(),
            pattern: "write:file:/r".parse().unwrap(),
            descendants: true,
            given_at_ms: 7,
        }
    }

    type Told = Arc<Mutex<Vec<(u64, bool)>>>;

    /// A change that tells under `name` whether it was stored.
    fn change(name: u64, given: &[u64], taken: &[u64], told: &Told) -> Message {
        let told = Arc::clone(told);
        let given = given.iter().map(|id| stored(*id)).collect();
        let taken = taken.iter().map(|id| GrantId(*id)).collect();
        let done = Box::new(move |stored: Result<(), _>| {
            told.lock().unwrap().push((name, stored.is_ok()));
        });
        Message::Change(Change::new(given, taken, done))
    }

    fn written(bytes: &[u8]) -> Vec<u64> {
        let contents = decode(bytes).unwrap();
        contents.grants.keys().map(|id| id.0).collect()
    }

    #[test]
    fn what_waits_together_is_written_together_and_each_is_told() {
        let told = Told::default();
        let mut writes = Vec::new();
        let mut writer = Writer::new(
            Contents::default(),
            || Ok(()),
            |bytes: &[u8]| {
                writes.push(written(bytes));
                Ok(())
            },
        );
        let batch = [
            change(1, &[1, 2], &[], &told),
            change(2, &[3], &[1], &told),
            change(3, &[], &[3], &told),
        ];
        assert!(writer.take(batch.into_iter()).is_none());
        // Nothing is written where nothing is other than before.
        writer.take([change(4, &[], &[3], &told)].into_iter());
        drop(writer);
        assert_eq!(writes, [vec![2]]);
        let expected = [(3, true), (1, true), (2, true), (4, true)];
        assert_eq!(*told.lock().unwrap(), expected);
    }

    #[test]
    fn nothing_is_stored_before_it_is_recorded_and_what_cannot_be_is_not_stored() {
        let told = Told::default();
        let log = RefCell::new(Vec::new());
        let well = Cell::new(true);
        let recorded = || {
            log.borrow_mut().push("record".to_owned());
            if well.get() {
                Ok(())
            } else {
                Err(AuditError::Failing)
            }
        };
        let mut writer = Writer::new(Contents::default(), recorded, |bytes: &[u8]| {
            log.borrow_mut().push(format!("store {:?}", written(bytes)));
            Ok(())
        });
        writer.take([change(1, &[1, 2], &[], &told)].into_iter());
        // To take back waits for no record: less is the safe side.
        writer.take([change(2, &[], &[1], &told)].into_iter());
        well.set(false);
        writer.take([change(3, &[3], &[], &told), change(4, &[], &[2], &told)].into_iter());
        writer.take([change(5, &[4], &[], &told)].into_iter());
        well.set(true);
        writer.take([change(6, &[5], &[], &told)].into_iter());
        // One that is narrowed is given anew; if that cannot be recorded, it goes.
        well.set(false);
        writer.take([change(7, &[5], &[], &told)].into_iter());
        drop(writer);
        let expected = [
            "record",
            "store [1, 2]",
            "store [2]",
            // A log that hangs keeps nobody from taking grants back.
            "store []",
            "record",
            "record",
            "record",
            "store [5]",
            "record",
            "store []",
        ];
        assert_eq!(*log.borrow(), expected);
        let expected = [
            (1, true),
            (2, true),
            (4, true),
            (3, false),
            (5, false),
            (6, true),
            (7, false),
        ];
        assert_eq!(*told.lock().unwrap(), expected);
    }

    #[test]
    fn on_a_full_disk_no_grant_is_given_and_what_was_taken_back_goes_as_soon_as_there_is_room() {
        let told = Told::default();
        let full = Cell::new(false);
        let disk = RefCell::new(Vec::new());
        let mut writer = Writer::new(
            Contents::default(),
            || Ok(()),
            |bytes: &[u8]| {
                if full.get() {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                *disk.borrow_mut() = written(bytes);
                Ok(())
            },
        );
        writer.take([change(1, &[1, 2], &[], &told)].into_iter());
        full.set(true);
        writer.take([change(2, &[3], &[], &told), change(3, &[], &[1], &told)].into_iter());
        assert_eq!(*disk.borrow(), [1, 2]);
        writer.take([change(4, &[4], &[], &told)].into_iter());
        full.set(false);
        writer.catch_up().unwrap();
        assert_eq!(*disk.borrow(), [2]);
        writer.take([change(5, &[5], &[], &told)].into_iter());
        assert_eq!(*disk.borrow(), [2, 5]);
        let expected = [(1, true), (3, false), (2, false), (4, false), (5, true)];
        assert_eq!(*told.lock().unwrap(), expected);
    }
}
