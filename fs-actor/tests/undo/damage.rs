//! What the next start makes of a journal that is damaged.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use bailiwick::journal::{ChangeState, Journal, JournalError};

use super::{World, write};

/// The segment with the records of three changes.
struct Written {
    temp: tempfile::TempDir,
    segment: PathBuf,
    bytes: Vec<u8>,
}

impl Written {
    async fn new() -> Self {
        let world = World::new().await;
        let worker = world.worker().await;
        for content in ["a", "b", "c"] {
            write(&worker, "/r/a", content).await;
        }
        world.runtime.shutdown().await;
        let segment = world.temp.path().join("journal/changes.00000001");
        let bytes = fs::read(&segment).unwrap();
        Self {
            temp: world.temp,
            segment,
            bytes,
        }
    }

    fn directory(&self) -> PathBuf {
        self.temp.path().join("journal")
    }

    fn spoil(&self, spoiled: &[u8]) {
        fs::write(&self.segment, spoiled).unwrap();
    }
}

/// Opens a journal that must be set aside: nothing of it is used, and its bytes are kept.
#[track_caller]
fn set_aside(directory: &Path, bytes: &[u8]) -> String {
    let error = Journal::read(directory).unwrap_err();
    assert!(matches!(error, JournalError::Corrupt { .. }), "{error}");
    let journal = Journal::open(directory).unwrap();
    let found = journal.set_aside().unwrap();
    assert_eq!(fs::read(&found.files[0]).unwrap(), bytes);
    assert_eq!(journal.entries(), []);
    let kept = found.files[0].clone();
    let text = found.to_string();
    assert!(text.contains("is damaged"), "{text}");
    drop(journal);
    // The next start has a journal that is not damaged.
    let next = Journal::open(directory).unwrap();
    assert_eq!(next.set_aside(), None);
    assert!(kept.exists());
    fs::remove_file(kept).unwrap();
    text
}

#[tokio::test]
async fn undamaged_journal_has_all_changes() {
    let written = Written::new().await;
    let journal = Journal::open(written.directory()).unwrap();
    assert_eq!(journal.set_aside(), None);
    let states: Vec<_> = journal.entries().into_iter().map(|one| one.state).collect();
    assert_eq!(states, vec![ChangeState::Applied; 3]);
}

/// A crash while a record is written leaves a part of it.
#[tokio::test]
async fn journal_that_ends_within_a_record_has_the_records_before_it() {
    let written = Written::new().await;
    let mut ids = 3;
    for length in (0..written.bytes.len()).rev().step_by(7) {
        written.spoil(&written.bytes[..length]);
        let journal = Journal::open(written.directory()).unwrap();
        assert_eq!(journal.set_aside(), None, "{length}");
        let entries = journal.entries();
        assert!(entries.len() <= ids, "{length}");
        ids = entries.len();
        // The newest first.
        let states = entries.iter().map(|one| &one.state).enumerate();
        for (age, state) in states {
            let may_be_open = age == 0 && *state == ChangeState::Interrupted;
            assert!(
                may_be_open || *state == ChangeState::Applied,
                "{length}: {state:?}"
            );
        }
    }
    assert_eq!(ids, 0);
}

#[tokio::test]
async fn damaged_journal_is_set_aside_and_nothing_is_guessed() {
    let written = Written::new().await;
    let start = written
        .bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .unwrap()
        + 1;
    for at in (start..written.bytes.len()).step_by(11) {
        let mut spoiled = written.bytes.clone();
        spoiled[at] ^= 1;
        written.spoil(&spoiled);
        set_aside(&written.directory(), &spoiled);
    }
    let (first, second) = written.bytes.split_at(written.bytes.len() / 2);
    for spoiled in [
        &b"not a journal\n"[..],
        &[0; 4096],
        &[&written.bytes[..], &[0; 64]].concat(),
        &[&written.bytes[..], &written.bytes[start..]].concat(),
        &[&written.bytes[..start], second].concat(),
        &[first, &first[start..]].concat(),
    ] {
        written.spoil(spoiled);
        set_aside(&written.directory(), spoiled);
    }
}

#[tokio::test]
async fn journal_that_is_no_safe_file_or_of_another_version_is_refused_and_left() {
    let written = Written::new().await;
    let directory = written.directory();
    let mut later = written.bytes.clone();
    let version = later.iter().position(|byte| *byte == b'\n').unwrap() - 1;
    later[version] = b'2';
    written.spoil(&later);
    let error = Journal::open(&directory).unwrap_err();
    assert!(matches!(&error, JournalError::Version { version, .. } if version == "2"));
    assert_eq!(fs::read(&written.segment).unwrap(), later);

    written.spoil(&written.bytes);
    let mode = |mode| fs::set_permissions(&written.segment, fs::Permissions::from_mode(mode));
    mode(0o666).unwrap();
    let error = Journal::open(&directory).unwrap_err();
    assert!(matches!(error, JournalError::Unsafe { .. }), "{error}");
    mode(0o600).unwrap();
    assert_eq!(Journal::open(&directory).unwrap().entries().len(), 3);

    let elsewhere = written.temp.path().join("elsewhere");
    fs::rename(&written.segment, &elsewhere).unwrap();
    symlink(&elsewhere, &written.segment).unwrap();
    let error = Journal::open(&directory).unwrap_err();
    assert!(matches!(error, JournalError::Open { .. }), "{error}");
    assert_eq!(fs::read(&elsewhere).unwrap(), written.bytes);
    fs::remove_file(&written.segment).unwrap();
    fs::create_dir(&written.segment).unwrap();
    let error = Journal::open(&directory).unwrap_err();
    assert!(matches!(error, JournalError::Unsafe { .. }), "{error}");
}
