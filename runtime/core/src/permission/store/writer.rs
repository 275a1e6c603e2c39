//! Writer thread of the grant store: one replacement of the file for all pending changes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use super::StoredGrant;
use super::format::{Contents, encode};
use crate::audit::AuditError;
use crate::id::GrantId;

/// How long the writer waits before it retries a failed write.
const RETRY: Duration = Duration::from_secs(1);

/// Why a change was not stored.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrantWriteError {
    /// The file cannot be written.
    #[error("cannot write the grant store")]
    Write(#[source] Arc<io::Error>),
    /// The grant cannot be audited, which must happen before it is stored.
    #[error("the grant cannot be recorded")]
    Record(#[source] AuditError),
    /// The store is closed.
    #[error("the grant store is closed")]
    Closed,
}

/// Called once with the result of a change.
pub(crate) type Done = Box<dyn FnOnce(Result<(), GrantWriteError>) + Send>;

/// Change of one operation, stored as a whole or not at all.
pub(super) struct Change {
    id: u64,
    given: Vec<StoredGrant>,
    taken: Vec<GrantId>,
    done: Option<Done>,
}

impl Change {
    /// Its id, unique for one writer.
    pub(super) fn new(id: u64, given: Vec<StoredGrant>, taken: Vec<GrantId>, done: Done) -> Self {
        Self {
            id,
            given,
            taken,
            done: Some(done),
        }
    }

    fn report(mut self, stored: Result<(), GrantWriteError>) {
        if let Some(done) = self.done.take() {
            done(stored);
        }
    }
}

impl Drop for Change {
    /// The writer ended before it was stored.
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done(Err(GrantWriteError::Closed));
        }
    }
}

pub(super) enum Message {
    /// Grants to remove, and grants to store once they are audited.
    Change(Change),
    /// Whether the grants of a change are audited. Follows each change that adds grants.
    Recorded(u64, Result<(), AuditError>),
    /// Writes pending changes, then closes the file. No change follows.
    Close(Done),
}

/// Reports to the writer whether the grants of a change are audited; dropping it reports that they are not.
pub(super) struct Recorded {
    change: u64,
    writer: Option<Sender<Message>>,
}

impl Recorded {
    pub(super) fn new(change: u64, writer: Sender<Message>) -> Self {
        Self {
            change,
            writer: Some(writer),
        }
    }

    pub(super) fn report(mut self, recorded: Result<(), AuditError>) {
        self.send(recorded);
    }

    fn send(&mut self, recorded: Result<(), AuditError>) {
        if let Some(writer) = self.writer.take() {
            // A writer that has ended dropped the change, which reported the failure.
            let _ = writer.send(Message::Recorded(self.change, recorded));
        }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.send(Err(AuditError::Closed));
    }
}

/// Writer on a thread of its own.
///
/// It never waits for the audit, so that grants are removed from the file even while the audit hangs.
pub(super) struct Writer<R> {
    /// Replaces the file.
    replace: R,
    /// The wanted content of the file.
    wanted: Contents,
    /// Whether the file may differ from it.
    failing: bool,
    /// Changes whose grants are not audited yet.
    waiting: Vec<Change>,
    /// Called once the file is closed.
    closing: Option<Done>,
}

impl<R> Writer<R>
where
    R: FnMut(&[u8]) -> io::Result<()>,
{
    pub(super) fn new(contents: Contents, replace: R) -> Self {
        Self {
            replace,
            wanted: contents,
            failing: false,
            waiting: Vec::new(),
            closing: None,
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
                    self.take(std::iter::once(first).chain(receiver.try_iter()));
                    if self.waiting.is_empty()
                        && let Some(done) = self.closing.take()
                    {
                        let written = self.catch_up();
                        drop(self);
                        return done(written);
                    }
                }
                // The failure was reported to the caller of the change.
                Err(RecvTimeoutError::Timeout) => drop(self.catch_up()),
                Err(RecvTimeoutError::Disconnected) => return drop(self.catch_up()),
            }
        }
    }

    /// Stores one batch, removals first, and reports the results, except to the caller that closes the store.
    fn take(&mut self, messages: impl Iterator<Item = Message>) {
        let (mut taking, mut taken) = (Vec::new(), BTreeSet::new());
        let mut recorded = BTreeMap::new();
        for message in messages {
            match message {
                Message::Change(change) => {
                    taken.extend(change.taken.iter().copied());
                    if change.given.is_empty() {
                        taking.push(change);
                    } else {
                        self.waiting.push(change);
                    }
                }
                Message::Recorded(change, outcome) => drop(recorded.insert(change, outcome)),
                Message::Close(done) => self.closing = Some(done),
            }
        }
        let before = self.wanted.grants.clone();
        for grant in self.waiting.iter().flat_map(|change| &change.given) {
            self.wanted.next = self.wanted.next.max(grant.id.0 + 1);
        }
        self.wanted.grants.retain(|id, _| !taken.contains(id));
        for change in &mut self.waiting {
            change.given.retain(|grant| !taken.contains(&grant.id));
        }
        let stored = self.store(&before);
        for change in taking {
            change.report(stored.clone());
        }
        if !recorded.is_empty() {
            self.give(&recorded);
        }
    }

    /// Stores the grants of changes that are audited, and fails those that cannot be.
    fn give(&mut self, recorded: &BTreeMap<u64, Result<(), AuditError>>) {
        let waiting = std::mem::take(&mut self.waiting);
        let (ready, waiting): (Vec<Change>, Vec<Change>) = waiting
            .into_iter()
            .partition(|change| recorded.contains_key(&change.id));
        self.waiting = waiting;
        let outcome = |change: &Change| match recorded.get(&change.id) {
            Some(Err(error)) => Err(GrantWriteError::Record(error.clone())),
            Some(Ok(())) | None => Ok(()),
        };
        let before = self.wanted.grants.clone();
        for change in &ready {
            for grant in &change.given {
                // A grant that was to be narrowed is removed.
                if outcome(change).is_ok() {
                    self.wanted.grants.insert(grant.id, grant.clone());
                } else {
                    self.wanted.grants.remove(&grant.id);
                }
            }
        }
        // A failed removal is more severe, so it is reported first.
        let stored = self.store(&before);
        for change in ready {
            let results = stored.clone().and(outcome(&change));
            if results.is_err() {
                for grant in &change.given {
                    self.wanted.grants.remove(&grant.id);
                }
            }
            change.report(results);
        }
    }

    /// Writes the file if its content changed.
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

    type Results = Arc<Mutex<Vec<(u64, bool)>>>;

    /// A change that reports its result under `name`.
    fn change(name: u64, given: &[u64], taken: &[u64], results: &Results) -> Message {
        let results = Arc::clone(results);
        let given = given.iter().map(|id| stored(*id)).collect();
        let taken = taken.iter().map(|id| GrantId(*id)).collect();
        let done = Box::new(move |stored: Result<(), _>| {
            results.lock().unwrap().push((name, stored.is_ok()));
        });
        Message::Change(Change::new(name, given, taken, done))
    }

    fn recorded(name: u64) -> Message {
        Message::Recorded(name, Ok(()))
    }

    fn unrecorded(name: u64) -> Message {
        Message::Recorded(name, Err(AuditError::Failing))
    }

    fn written(bytes: &[u8]) -> Vec<u64> {
        let contents = decode(bytes).unwrap();
        contents.grants.keys().map(|id| id.0).collect()
    }

    #[test]
    fn pending_changes_are_written_together_and_each_is_reported() {
        let results = Results::default();
        let mut writes = Vec::new();
        let mut writer = Writer::new(Contents::default(), |bytes: &[u8]| {
            writes.push(written(bytes));
            Ok(())
        });
        let batch = [
            change(1, &[1, 2], &[], &results),
            change(2, &[3], &[1], &results),
            change(3, &[], &[3], &results),
            recorded(1),
            recorded(2),
        ];
        writer.take(batch.into_iter());
        // Nothing is written if nothing changed.
        writer.take([change(4, &[], &[3], &results)].into_iter());
        drop(writer);
        assert_eq!(writes, [vec![2]]);
        let expected = [(3, true), (1, true), (2, true), (4, true)];
        assert_eq!(*results.lock().unwrap(), expected);
    }

    #[test]
    fn grants_are_stored_only_after_their_audit_record() {
        let results = Results::default();
        let log = RefCell::new(Vec::new());
        let mut writer = Writer::new(Contents::default(), |bytes: &[u8]| {
            log.borrow_mut().push(written(bytes));
            Ok(())
        });
        let mut take = |messages: Vec<Message>| {
            writer.take(messages.into_iter());
            log.take()
        };
        let none: [Vec<u64>; 0] = [];
        assert_eq!(take(vec![change(1, &[1, 2], &[], &results)]), none);
        assert_eq!(take(vec![recorded(1)]), [[1, 2]]);
        assert_eq!(take(vec![change(2, &[3], &[], &results)]), none);
        assert_eq!(take(vec![unrecorded(2)]), none);
        // A narrowed grant is stored anew; if that cannot be audited, it is removed.
        assert_eq!(take(vec![change(3, &[2], &[], &results)]), none);
        assert_eq!(take(vec![unrecorded(3)]), [[1]]);
        assert_eq!(
            take(vec![change(4, &[4], &[], &results), recorded(4)]),
            [[1, 4]]
        );
        let expected = [(1, true), (2, false), (3, false), (4, true)];
        assert_eq!(*results.lock().unwrap(), expected);
    }

    #[test]
    fn removals_do_not_wait_for_audit_records() {
        let results = Results::default();
        let log = RefCell::new(Vec::new());
        let mut writer = Writer::new(Contents::default(), |bytes: &[u8]| {
            log.borrow_mut().push(written(bytes));
            Ok(())
        });
        let mut take = |messages: Vec<Message>| {
            writer.take(messages.into_iter());
            log.take()
        };
        let none: [Vec<u64>; 0] = [];
        take(vec![change(1, &[1, 2], &[], &results), recorded(1)]);
        // Given, and narrowed; the audit hangs.
        assert_eq!(
            take(vec![
                change(2, &[3, 4], &[], &results),
                change(3, &[2], &[], &results)
            ]),
            none
        );
        assert_eq!(take(vec![change(4, &[], &[1], &results)]), [[2]]);
        assert_eq!(take(vec![change(5, &[], &[2, 3], &results)]), [[0; 0]]);
        assert_eq!(*results.lock().unwrap(), [(1, true), (4, true), (5, true)]);
        assert_eq!(take(vec![recorded(2)]), [[4]]);
        assert_eq!(take(vec![recorded(3)]), none);
        assert_eq!(results.lock().unwrap()[3..], [(2, true), (3, true)]);
    }

    #[test]
    fn store_is_closed_once_what_waits_is_recorded_or_never_will_be() {
        let results = Results::default();
        let disk = Arc::new(Mutex::new(Vec::new()));
        let (sender, receiver) = std::sync::mpsc::channel();
        let kept = Arc::clone(&disk);
        let writer = Writer::new(Contents::default(), move |bytes: &[u8]| {
            *kept.lock().unwrap() = written(bytes);
            Ok(())
        });
        let thread = std::thread::spawn(move || writer.run(&receiver));
        for id in [1, 2] {
            sender.send(change(id, &[id], &[], &results)).unwrap();
        }
        let (closed, outcome) = std::sync::mpsc::sync_channel(1);
        let done = Box::new(move |result: Result<(), _>| closed.send(result.is_ok()).unwrap());
        sender.send(Message::Close(done)).unwrap();
        Recorded::new(1, sender.clone()).report(Ok(()));
        assert!(outcome.try_recv().is_err());
        drop(Recorded::new(2, sender));
        assert!(outcome.recv().unwrap());
        thread.join().unwrap();
        assert_eq!(*results.lock().unwrap(), [(1, true), (2, false)]);
        assert_eq!(*disk.lock().unwrap(), [1]);
    }

    #[test]
    fn full_disk_fails_grants_and_retries_removals() {
        let results = Results::default();
        let full = Cell::new(false);
        let disk = RefCell::new(Vec::new());
        let mut writer = Writer::new(Contents::default(), |bytes: &[u8]| {
            if full.get() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *disk.borrow_mut() = written(bytes);
            Ok(())
        });
        writer.take([change(1, &[1, 2], &[], &results), recorded(1)].into_iter());
        full.set(true);
        let messages = [
            change(2, &[3], &[], &results),
            change(3, &[], &[1], &results),
            recorded(2),
        ];
        writer.take(messages.into_iter());
        assert_eq!(*disk.borrow(), [1, 2]);
        writer.take([change(4, &[4], &[], &results), recorded(4)].into_iter());
        full.set(false);
        writer.catch_up().unwrap();
        assert_eq!(*disk.borrow(), [2]);
        writer.take([change(5, &[5], &[], &results), recorded(5)].into_iter());
        assert_eq!(*disk.borrow(), [2, 5]);
        let expected = [(1, true), (3, false), (2, false), (4, false), (5, true)];
        assert_eq!(*results.lock().unwrap(), expected);
    }
}
