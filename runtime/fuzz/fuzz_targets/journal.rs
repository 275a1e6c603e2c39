//! Change journals: frames with valid checksums and any record are read or set aside, opening agrees with reading, and
//! what was opened once is the same when it is opened again.
#![no_main]

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bailiwick::journal::{Journal, JournalEntry, JournalError, JournalLimits};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest as _, Sha256};

const MAGIC: &[u8] = b"bailiwick-journal 1\n";

/// The segment of one part of an input. Its lines are records, numbered from `number` on; a line that begins with `#` and
/// digits sets the number, one that begins with `!` contains raw bytes of the file. Bytes after a tab undo the change.
fn segment(part: &[u8], number: &mut u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for line in part
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        if let Some(raw) = line.strip_prefix(b"!") {
            bytes.extend(raw);
            continue;
        }
        if let Some(digits) = line.strip_prefix(b"#") {
            let digits = std::str::from_utf8(digits).ok();
            *number = digits
                .and_then(|digits| digits.parse().ok())
                .unwrap_or(*number);
            continue;
        }
        let (record, opaque) = match line.iter().position(|byte| *byte == b'\t') {
            Some(tab) => (&line[..tab], &line[tab + 1..]),
            None => (line, &line[..0]),
        };
        let length = u32::try_from(record.len()).expect("inputs are short");
        let payload = [&length.to_le_bytes(), record, opaque].concat();
        let length = u32::try_from(payload.len()).expect("inputs are short");
        let mut frame = length.to_le_bytes().to_vec();
        frame.extend(number.to_le_bytes());
        frame.extend(Sha256::digest(&payload));
        let check = Sha256::digest(&frame);
        frame.extend(&check[..4]);
        bytes.extend(frame);
        bytes.extend(payload);
        *number = number.wrapping_add(1);
    }
    bytes
}

fn open(directory: &Path) -> Result<Journal, JournalError> {
    let limits = JournalLimits {
        bytes: u64::MAX,
        age: Duration::MAX,
        ..JournalLimits::default()
    };
    Journal::open_with(directory, limits)
}

/// The files and their contents, but not the lock.
fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(directory).expect("the directory can be read");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_segment = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("changes.0"))
    };
    let files = paths.filter(is_segment).map(|path| {
        let bytes = fs::read(&path).expect("a file");
        (path, bytes)
    });
    files.collect()
}

fuzz_target!(|input: &[u8]| {
    let directory =
        std::env::temp_dir().join(format!("bailiwick-fuzz-journal-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&directory)
        .expect("the temporary directory can be written");
    let mut number = 1;
    for (index, part) in input.split(|byte| *byte == 0xff).take(3).enumerate() {
        let name = format!("changes.{:08}", index + 1);
        fs::write(directory.join(name), segment(part, &mut number)).expect("a segment");
    }
    let before = files(&directory);
    let read = Journal::read(&directory);
    assert_eq!(files(&directory), before, "reading changed the journal");
    match (read, open(&directory)) {
        (Ok(entries), Ok(journal)) => {
            assert_eq!(journal.set_aside(), None);
            assert_eq!(journal.entries(), entries);
            assert!(serde_json::to_value(&entries).is_ok());
            again(&directory, journal, &entries);
        }
        (Err(JournalError::Corrupt { .. }), Ok(journal)) => {
            let aside = journal.set_aside().expect("a damaged journal is set aside");
            assert_eq!(aside.files.len(), before.len());
            for ((_, bytes), aside) in sorted(before).iter().zip(&aside.files) {
                assert_eq!(fs::read(aside).ok().as_ref(), Some(bytes));
            }
            assert!(journal.entries().is_empty());
            again(&directory, journal, &[]);
        }
        (Err(JournalError::Version { .. }), Err(JournalError::Version { .. })) => {
            assert_eq!(files(&directory), before);
        }
        (read, opened) => panic!("read: {read:?}, opened: {opened:?}"),
    }
});

fn sorted(mut files: Vec<(PathBuf, Vec<u8>)>) -> Vec<(PathBuf, Vec<u8>)> {
    files.sort();
    files
}

fn again(directory: &Path, journal: Journal, entries: &[JournalEntry]) {
    drop(journal);
    let journal = open(directory).expect("a journal that was opened can be opened again");
    assert_eq!(journal.set_aside(), None);
    assert_eq!(journal.entries(), entries);
}
