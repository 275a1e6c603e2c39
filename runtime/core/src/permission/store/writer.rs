//! Writes the file of the grant store, without async code. It tracks the wanted content and the grants that wait for
//! the audit.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::StoredGrant;
use super::format::{Contents, encode};
use crate::audit::AuditError;
use crate::id::GrantId;

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

/// The wanted content of the file.
#[derive(Debug, Default)]
struct Wanted {
    contents: Contents,
    /// Grants to store once they are audited.
    waiting: BTreeMap<GrantId, StoredGrant>,
    /// Whether the file may differ from `contents`.
    is_dirty: bool,
    /// Whether the last write failed.
    is_failing: bool,
}

impl Wanted {
    fn remove(&mut self, id: GrantId) -> bool {
        let waited = self.waiting.remove(&id).is_some();
        let stored = self.contents.grants.remove(&id).is_some();
        self.is_dirty |= stored;
        waited || stored
    }
}

/// Replaces the content of the file.
pub(super) type Replace = Box<dyn FnMut(&[u8]) -> io::Result<()> + Send>;

/// Replaces the file as a whole.
///
/// Grants are removed at once, and added once they are audited. Methods that write block, and only one of them runs at
/// a time.
pub(super) struct Writer {
    wanted: Mutex<Wanted>,
    /// `None` once the file is closed.
    replace: Mutex<Option<Replace>>,
}

impl Writer {
    pub(super) fn new(contents: Contents, replace: Replace) -> Self {
        let wanted = Wanted {
            contents,
            ..Wanted::default()
        };
        Self {
            wanted: Mutex::new(wanted),
            replace: Mutex::new(Some(replace)),
        }
    }

    /// Announces a grant, which [`Self::store`] stores.
    pub(super) fn add(&self, grant: StoredGrant) {
        let mut wanted = self.wanted.lock();
        wanted.contents.next = wanted.contents.next.max(grant.id.0 + 1);
        wanted.waiting.insert(grant.id, grant);
    }

    /// Removes a grant from what the next write stores. Returns whether there is one.
    pub(super) fn remove(&self, id: GrantId) -> bool {
        self.wanted.lock().remove(id)
    }

    /// When a grant was given.
    pub(super) fn given_at_ms(&self, id: GrantId) -> Option<u64> {
        let wanted = self.wanted.lock();
        let grant = wanted.waiting.get(&id).or(wanted.contents.grants.get(&id));
        grant.map(|grant| grant.given_at_ms)
    }

    /// Writes the file if its content changed.
    pub(super) fn write(&self) -> Result<(), GrantWriteError> {
        self.write_by(&mut self.replace.lock())
    }

    /// Stores the added grants that were not removed meanwhile. If they are not audited or cannot be stored, they are
    /// removed. This also applies to grants that were to be narrowed.
    pub(super) fn store(
        &self,
        grants: &[StoredGrant],
        audited: Result<(), AuditError>,
    ) -> Result<(), GrantWriteError> {
        let mut replace = self.replace.lock();
        let mut wanted = self.wanted.lock();
        for grant in grants {
            match wanted.waiting.get(&grant.id) {
                Some(waiting) if waiting == grant => {}
                // A narrower version waits: until it is stored, none is.
                Some(_) => {
                    wanted.is_dirty |= wanted.contents.grants.remove(&grant.id).is_some();
                    continue;
                }
                None => continue,
            }
            wanted.remove(grant.id);
            if audited.is_ok() {
                wanted.contents.grants.insert(grant.id, grant.clone());
                wanted.is_dirty = true;
            }
        }
        drop(wanted);
        // A failed removal is more severe, so it is reported first.
        let written = self.write_by(&mut replace);
        let stored = written.and(audited.map_err(GrantWriteError::Record));
        if stored.is_err() {
            let mut wanted = self.wanted.lock();
            for grant in grants {
                wanted.remove(grant.id);
            }
        }
        stored
    }

    /// Whether the last write failed.
    pub(super) fn is_failing(&self) -> bool {
        self.wanted.lock().is_failing
    }

    /// Tries a failed write again, unless another one is in progress.
    pub(super) fn retry(&self) {
        if let Some(mut replace) = self.replace.try_lock() {
            // It was reported to the caller of the change.
            let _ = self.write_by(&mut replace);
        }
    }

    /// Writes what changed and closes the file.
    pub(super) fn close(&self) -> Result<(), GrantWriteError> {
        let mut replace = self.replace.lock();
        if replace.is_none() {
            return Ok(());
        }
        let written = self.write_by(&mut replace);
        *replace = None;
        written
    }

    fn write_by(&self, replace: &mut Option<Replace>) -> Result<(), GrantWriteError> {
        let replace = replace.as_mut().ok_or(GrantWriteError::Closed)?;
        let mut wanted = self.wanted.lock();
        if !std::mem::take(&mut wanted.is_dirty) {
            return Ok(());
        }
        let contents = wanted.contents.clone();
        drop(wanted);
        let written = encode(&contents).and_then(|bytes| replace(&bytes));
        let mut wanted = self.wanted.lock();
        if let Err(error) = &written
            && !wanted.is_failing
        {
            tracing::error!(%error, "the grant store cannot be written");
        }
        wanted.is_failing = written.is_err();
        wanted.is_dirty |= written.is_err();
        written.map_err(|error| GrantWriteError::Write(Arc::new(error)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use std::path::Path;

    use super::super::format::decode;
    use super::*;

    fn grant(id: u64) -> StoredGrant {
        StoredGrant {
            id: GrantId(id),
            agent: "main".into(),
            pattern: "write:file:/r".parse().unwrap(),
            descendants: true,
            given_at_ms: 7,
        }
    }

    /// What is written to a disk, which may be full.
    #[derive(Clone, Debug, Default)]
    struct Disk(Arc<Mutex<(Vec<Vec<u64>>, bool)>>);

    impl Disk {
        fn replace(&self, bytes: &[u8]) -> io::Result<()> {
            let (writes, full) = &mut *self.0.lock();
            if *full {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let contents = decode(Path::new("grants"), bytes).unwrap();
            writes.push(contents.grants.keys().map(|id| id.0).collect());
            Ok(())
        }

        fn set_full(&self, full: bool) {
            self.0.lock().1 = full;
        }

        /// The contents that were written since the last call.
        fn writes(&self) -> Vec<Vec<u64>> {
            std::mem::take(&mut self.0.lock().0)
        }
    }

    fn store() -> (Writer, Disk) {
        let disk = Disk::default();
        let kept = disk.clone();
        let replace = move |bytes: &[u8]| kept.replace(bytes);
        (Writer::new(Contents::default(), Box::new(replace)), disk)
    }

    fn add(writer: &Writer, ids: &[u64]) -> Vec<StoredGrant> {
        let grants: Vec<StoredGrant> = ids.iter().map(|id| grant(*id)).collect();
        for grant in &grants {
            writer.add(grant.clone());
        }
        grants
    }

    fn remove(writer: &Writer, ids: &[u64]) -> Result<(), GrantWriteError> {
        for id in ids {
            writer.remove(GrantId(*id));
        }
        writer.write()
    }

    const NONE: [Vec<u64>; 0] = [];

    #[test]
    fn file_is_written_only_if_its_content_changed() {
        let (writer, disk) = store();
        let first = add(&writer, &[1, 2]);
        let second = add(&writer, &[3]);
        remove(&writer, &[1]).unwrap();
        remove(&writer, &[3]).unwrap();
        writer.store(&first, Ok(())).unwrap();
        writer.store(&second, Ok(())).unwrap();
        remove(&writer, &[3]).unwrap();
        assert_eq!(disk.writes(), [[2]]);
    }

    #[test]
    fn pending_removals_are_written_together() {
        let (writer, disk) = store();
        let grants = add(&writer, &[1, 2, 3]);
        writer.store(&grants, Ok(())).unwrap();
        writer.remove(GrantId(1));
        writer.remove(GrantId(2));
        writer.write().unwrap();
        writer.write().unwrap();
        assert_eq!(disk.writes(), [vec![1, 2, 3], vec![3]]);
    }

    #[test]
    fn grants_are_stored_only_after_their_audit_record() {
        let (writer, disk) = store();
        let first = add(&writer, &[1, 2]);
        assert_eq!(disk.writes(), NONE);
        writer.store(&first, Ok(())).unwrap();
        assert_eq!(disk.writes(), [[1, 2]]);
        let unaudited = add(&writer, &[3]);
        let refused = writer.store(&unaudited, Err(AuditError::Failing));
        assert!(matches!(refused, Err(GrantWriteError::Record(_))));
        assert_eq!(disk.writes(), NONE);
        let other = add(&writer, &[4]);
        writer.store(&other, Ok(())).unwrap();
        assert_eq!(disk.writes(), [[1, 2, 4]]);
    }

    #[test]
    fn narrowed_grant_that_cannot_be_audited_is_removed() {
        let (writer, disk) = store();
        let grants = add(&writer, &[1, 2]);
        writer.store(&grants, Ok(())).unwrap();
        let narrowed = add(&writer, &[2]);
        writer
            .store(&narrowed, Err(AuditError::Failing))
            .unwrap_err();
        assert_eq!(disk.writes(), [vec![1, 2], vec![1]]);
    }

    #[test]
    fn first_of_two_narrowings_is_stored_only_if_the_wide_grant_is_removed() {
        let (writer, disk) = store();
        let wide = add(&writer, &[1]);
        writer.store(&wide, Ok(())).unwrap();
        let narrower = |pattern: &str| StoredGrant {
            pattern: pattern.parse().unwrap(),
            ..grant(1)
        };
        let (first, second) = (narrower("write:file:/r/a"), narrower("write:file:/r/a/b"));
        writer.add(first.clone());
        writer.add(second.clone());
        disk.set_full(true);
        let failed = writer.store(std::slice::from_ref(&first), Ok(()));
        assert!(matches!(failed, Err(GrantWriteError::Write(_))));

        let (writer, disk) = store();
        writer.add(grant(1));
        writer.store(&wide, Ok(())).unwrap();
        writer.add(first.clone());
        writer.add(second.clone());
        writer.store(&[first], Ok(())).unwrap();
        assert_eq!(disk.writes(), [vec![1], vec![]]);
        writer.store(&[second], Ok(())).unwrap();
        assert_eq!(disk.writes(), [[1]]);
    }

    #[test]
    fn removals_do_not_wait_for_audit_records() {
        let (writer, disk) = store();
        let first = add(&writer, &[1, 2]);
        writer.store(&first, Ok(())).unwrap();
        // Given, and narrowed; the audit hangs.
        let second = add(&writer, &[3, 4]);
        let narrowed = add(&writer, &[2]);
        remove(&writer, &[1]).unwrap();
        remove(&writer, &[2, 3]).unwrap();
        assert_eq!(disk.writes(), [vec![1, 2], vec![2], vec![]]);
        writer.store(&second, Ok(())).unwrap();
        writer.store(&narrowed, Ok(())).unwrap();
        assert_eq!(disk.writes(), [[4]]);
    }

    #[test]
    fn grant_that_is_removed_during_a_write_is_removed_by_the_next() {
        let (writer, disk) = (Arc::new(store().0), Disk::default());
        let (began_tx, began) = mpsc::channel();
        let (go_on, wait) = mpsc::channel::<()>();
        let kept = disk.clone();
        *writer.replace.lock() = Some(Box::new(move |bytes: &[u8]| {
            began_tx.send(()).unwrap();
            wait.recv().unwrap();
            kept.replace(bytes)
        }));
        let grants = add(&writer, &[1, 2]);
        let blocked = Arc::clone(&writer);
        let storing = std::thread::spawn(move || blocked.store(&grants, Ok(())));
        began.recv().unwrap();
        assert!(writer.remove(GrantId(1)));
        go_on.send(()).unwrap();
        go_on.send(()).unwrap();
        storing.join().unwrap().unwrap();
        writer.write().unwrap();
        assert_eq!(disk.writes(), [vec![1, 2], vec![2]]);
    }

    #[test]
    fn full_disk_fails_grants_and_retries_removals() {
        let (writer, disk) = store();
        let first = add(&writer, &[1, 2]);
        writer.store(&first, Ok(())).unwrap();
        disk.set_full(true);
        let second = add(&writer, &[3]);
        let failed = |stored| matches!(stored, Err(GrantWriteError::Write(_)));
        assert!(failed(remove(&writer, &[1])));
        assert!(failed(writer.store(&second, Ok(()))));
        let third = add(&writer, &[4]);
        assert!(failed(writer.store(&third, Ok(()))));
        writer.retry();
        assert!(writer.is_failing());
        disk.set_full(false);
        writer.retry();
        assert!(!writer.is_failing());
        let fourth = add(&writer, &[5]);
        writer.store(&fourth, Ok(())).unwrap();
        assert_eq!(disk.writes(), [vec![1, 2], vec![2], vec![2, 5]]);
    }

    #[test]
    fn closed_store_has_what_was_removed_before_and_rejects_changes() {
        let (writer, disk) = store();
        let grants = add(&writer, &[1, 2]);
        writer.store(&grants, Ok(())).unwrap();
        writer.remove(GrantId(1));
        writer.close().unwrap();
        assert_eq!(disk.writes(), [vec![1, 2], vec![2]]);
        let late = add(&writer, &[3]);
        let refused = writer.store(&late, Ok(()));
        assert!(matches!(refused, Err(GrantWriteError::Closed)));
        assert!(matches!(
            remove(&writer, &[2]),
            Err(GrantWriteError::Closed)
        ));
        writer.close().unwrap();
        assert_eq!(disk.writes(), NONE);
    }
}
