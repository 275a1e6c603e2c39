//! Names, orders and reads the files of a rotated audit.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use super::chain::{Head, read_line};
use super::sink::{AuditFileError, AuditFileFault};
use super::verify::{AuditBroken, BreakReason, MAX_LINE, Verified, follow, walk};
use crate::effect::ContentHash;

/// The highest number of a finished segment. After this segment the file is not rotated any more.
pub(super) const MAX_SEGMENTS: u32 = 9_999_999;
/// Size of the read buffer when a chain is verified.
pub(super) const READ_AT_ONCE: usize = 256 << 10;
/// Number of bytes at the end of a segment that are read first to find its last record.
const TAIL: u64 = 8 << 10;

/// The name of a finished segment of `audit`, such as `audit.jsonl.00000001`.
///
/// The first of its eight digits is `0`, so it differs from the names of the audits of further runtimes, such as
/// `audit.jsonl.2`.
pub(super) fn segment(audit: &Path, number: u32) -> PathBuf {
    let mut name = audit.as_os_str().to_owned();
    name.push(format!(".{number:08}"));
    name.into()
}

/// The number of the segment with this suffix.
fn number(suffix: &str) -> Option<u32> {
    let digits = suffix.strip_prefix(".0")?;
    let numbered = digits.len() == 7 && digits.bytes().all(|digit| digit.is_ascii_digit());
    let number = digits.parse().ok().filter(|_| numbered);
    number.filter(|number| *number > 0)
}

/// The number of the last finished segment of `audit`; 0 if there is none. Those before it may be archived elsewhere.
pub(super) fn last_finished(audit: &Path) -> Result<u32, AuditFileError> {
    let found = numbers(audit)?;
    Ok(found.last().copied().unwrap_or_default())
}

/// Checks that no segment between finished segments is missing.
#[doc(hidden)]
pub fn without_gap(audit: &Path) -> Result<(), AuditFileError> {
    let found = numbers(audit)?;
    let gap = (1..).zip(&found).find(|(next, found)| next != *found);
    gap.map_or(Ok(()), |(missing, _)| Err(missing_segment(audit, missing)))
}

fn missing_segment(audit: &Path, number: u32) -> AuditFileError {
    AuditFileError::of(&segment(audit, number))(AuditFileFault::Missing)
}

/// The numbers of the finished segments of `audit`.
fn numbers(audit: &Path) -> Result<BTreeSet<u32>, AuditFileError> {
    let fault = |error| AuditFileError::of(audit)(AuditFileFault::List(error));
    let Some(name) = audit.file_name() else {
        return Ok(BTreeSet::new());
    };
    let folder = audit.parent().filter(|path| !path.as_os_str().is_empty());
    let name = name.as_encoded_bytes();
    let mut numbers = BTreeSet::new();
    #[expect(clippy::disallowed_methods, reason = "the audit is outside all roots")]
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).map_err(fault)?;
    for entry in entries {
        let found = entry.map_err(fault)?.file_name();
        let suffix = found.as_encoded_bytes().strip_prefix(name);
        let suffix = suffix.and_then(|suffix| std::str::from_utf8(suffix).ok());
        numbers.extend(suffix.and_then(number));
    }
    Ok(numbers)
}

/// One file of an audit, opened for reading.
#[derive(Debug)]
#[doc(hidden)]
pub struct Segment {
    pub(crate) path: PathBuf,
    #[doc(hidden)]
    pub file: File,
    /// Whether it is finished and continued by the next segment.
    #[doc(hidden)]
    pub finished: bool,
}

/// Opens the segment `number` of `audit` or, if it does not exist, the current file. Both may be missing if the writer was
/// killed after it finished a segment.
#[doc(hidden)]
pub fn open_segment(audit: &Path, number: u32) -> Result<Option<Segment>, AuditFileError> {
    let path = segment(audit, number);
    let finished = || {
        let file = existing(&path)?.map(|file| Segment {
            path: path.clone(),
            file,
            finished: true,
        });
        Ok(file)
    };
    if let Some(segment) = finished()? {
        return Ok(Some(segment));
    }
    let live = File::open(audit);
    // It may have been renamed to the segment meanwhile.
    if let Some(segment) = finished()? {
        return Ok(Some(segment));
    }
    match live {
        Ok(file) => Ok(Some(Segment {
            path: audit.to_owned(),
            file,
            finished: false,
        })),
        Err(error) if number > 1 && error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(AuditFileError::of(audit)(AuditFileFault::Open(error))),
    }
}

fn existing(path: &Path) -> Result<Option<File>, AuditFileError> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(AuditFileError::of(path)(AuditFileFault::Open(error))),
    }
}

/// Describes an error of the current file of `audit` after `finished` segments. If it begins too late, a segment before it
/// is missing.
pub(super) fn broken_after(audit: &Path, finished: u32, broken: AuditBroken) -> AuditFileError {
    match broken {
        AuditBroken {
            line: 1,
            reason: BreakReason::Order { expected, found },
        } if found > expected => missing_segment(audit, finished.saturating_add(1)),
        broken => AuditFileError::of(audit)(AuditFileFault::Broken(broken)),
    }
}

/// Verifies the chain of an audit file and its finished segments, and passes the number and the line of each record to a
/// callback. The first record continues `before` or begins a new chain.
pub(crate) fn follow_file(
    before: Head,
    audit: &Path,
    mut on_record: impl FnMut(u64, &[u8]) -> Result<(), BreakReason>,
) -> Result<Verified, AuditFileError> {
    without_gap(audit)?;
    let mut all = Verified {
        records: 0,
        files: 0,
        head: before,
    };
    for number in 1.. {
        let Some(next) = open_segment(audit, number)? else {
            break;
        };
        let reader = BufReader::with_capacity(READ_AT_ONCE, next.file);
        let followed = match number {
            1 => follow(all.head, reader, &mut on_record),
            _ => walk(all.head, reader, &mut on_record).and_then(super::verify::End::whole),
        };
        let followed = followed.map_err(|broken| {
            if next.finished {
                AuditFileError::of(&next.path)(AuditFileFault::Broken(broken))
            } else {
                broken_after(audit, number - 1, broken)
            }
        })?;
        all = Verified {
            records: all.records + followed.records,
            files: number,
            head: followed.head,
        };
        if !next.finished {
            break;
        }
    }
    Ok(all)
}

/// Verifies the chain of an audit file and all its finished segments, and passes the hash of each record to a callback.
/// The first record continues the chain that ended in `before`, or begins a new one.
///
/// To check that an audit is intact, use [`Head::default`] and ignore the hashes. If you stored a hash earlier, it must
/// be among them; otherwise records were truncated or replaced since.
///
/// # Errors
/// [`AuditFileError`] names the first file that cannot be read, is missing, or has an invalid line.
///
/// ```
/// use bailiwick::audit::{Head, JsonLines, verify_file};
/// # use bailiwick::{Policy, Runtime, WorkerSpec};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let dir = tempfile::tempdir()?;
/// # let file = dir.path().join("audit");
/// let (runtime, _grants) = Runtime::builder().audit(JsonLines::create(&file)?).build().await?;
/// runtime.spawn(WorkerSpec::new("main").policy(Policy::inherit())).await?;
/// runtime.flush_audit().await?;
/// let stored = verify_file(Head::default(), &file, |_| ())?.head; // store its hash elsewhere
///
/// runtime.shutdown().await;
/// let mut found = false;
/// let verified = verify_file(Head::default(), &file, |hash| found |= hash == stored.hash)?;
/// assert!(found && verified.records > 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn verify_file(
    before: Head,
    audit: impl AsRef<Path>,
    mut on_record: impl FnMut(ContentHash),
) -> Result<Verified, AuditFileError> {
    follow_file(before, audit.as_ref(), |_, line| {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        on_record(read_line(line)?.hash);
        Ok(())
    })
}

/// The head after the last of `finished` segments, which must not be open for writing.
pub(super) fn head_after(audit: &Path, finished: u32) -> Result<Head, AuditFileError> {
    if finished == 0 {
        return Ok(Head::default());
    }
    let path = segment(audit, finished);
    let last = || {
        let mut file = File::open(&path).map_err(AuditFileFault::Open)?;
        file.try_lock().map_err(AuditFileFault::of_lock)?;
        let line = last_line(&mut file).map_err(AuditFileFault::LastRecord)?;
        read_line(&line).map_err(AuditFileFault::LastRecord)
    };
    let last = last().map_err(AuditFileError::of(&path))?;
    Ok(last.head())
}

/// Reads the last line of a file without its line break.
fn last_line(file: &mut File) -> Result<Vec<u8>, BreakReason> {
    let length = file.metadata().map_err(BreakReason::Read)?.len();
    let mut size = TAIL;
    loop {
        size = size.min(length);
        file.seek(SeekFrom::Start(length - size))
            .map_err(BreakReason::Read)?;
        let mut tail = Vec::new();
        let read = file.by_ref().take(size).read_to_end(&mut tail);
        read.map_err(BreakReason::Read)?;
        if tail.pop() != Some(b'\n') {
            return Err(BreakReason::Torn);
        }
        match tail.iter().rposition(|byte| *byte == b'\n') {
            Some(before) => return Ok(tail.split_off(before + 1)),
            None if size == length => return Ok(tail),
            None if size > MAX_LINE => return Err(BreakReason::TooLong),
            None => size = size.saturating_mul(2),
        }
    }
}

impl AuditFileFault {
    pub(super) fn of_lock(error: TryLockError) -> Self {
        match error {
            TryLockError::WouldBlock => Self::InUse,
            TryLockError::Error(error) => Self::Open(error),
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "the files of an audit are damaged here on purpose"
)]
mod tests {
    use std::fs;

    use super::super::sink::{AuditSink as _, JsonLines};
    use super::*;
    use crate::audit::tests::failed;

    /// A folder with an audit whose segments have room for two records.
    struct TestDir {
        dir: tempfile::TempDir,
        audit: PathBuf,
    }

    impl TestDir {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let audit = dir.path().join("audit.jsonl");
            Self { dir, audit }
        }

        fn open(&self) -> JsonLines {
            JsonLines::append(&self.audit).unwrap().segment_bytes(900)
        }

        /// An audit of three finished segments and a file.
        fn rotated() -> Self {
            let dir = Self::new();
            write(&mut dir.open(), 0..7);
            let names = ["", ".00000001", ".00000002", ".00000003"];
            assert_eq!(dir.names(), names.map(|end| format!("audit.jsonl{end}")));
            dir
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.dir.path()).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.collect();
            names.sort();
            names
        }

        fn segment(&self, number: u32) -> PathBuf {
            segment(&self.audit, number)
        }

        /// The messages of all records in order, if the chain is unbroken.
        fn messages(&self) -> Result<Vec<u64>, AuditFileError> {
            let mut messages = Vec::new();
            follow_file(Head::default(), &self.audit, |_, line| {
                let record: serde_json::Value = serde_json::from_slice(line).unwrap();
                let message = record["event"]["message"].as_str().unwrap();
                messages.push(message.parse().unwrap());
                Ok(())
            })?;
            Ok(messages)
        }

        #[track_caller]
        fn holds(&self, records: u64) {
            let all: Vec<u64> = (0..records).collect();
            assert_eq!(self.messages().unwrap(), all);
        }

        #[track_caller]
        fn broken(&self, path: &Path, part: &str) {
            let error = self.messages().unwrap_err();
            let message = format!("{error}: {:?}", error.fault());
            assert!(error.path() == path && message.contains(part), "{message}");
        }
    }

    fn record(sink: &JsonLines, message: u64) -> crate::audit::Record {
        let event = failed(&message.to_string());
        sink.head().record(0, 0, event)
    }

    fn write(sink: &mut JsonLines, messages: std::ops::Range<u64>) {
        for message in messages {
            let record = record(sink, message);
            sink.keep(&[record]).unwrap();
        }
    }

    #[test]
    fn rotated_audit_is_read_and_continued_as_one_chain() {
        let dir = TestDir::rotated();
        dir.holds(7);
        for number in 1..=3 {
            let length = fs::metadata(dir.segment(number)).unwrap().len();
            assert!((1..=900).contains(&length), "{length}");
        }
        write(&mut dir.open(), 7..9);
        dir.holds(9);
        let mut hashes = Vec::new();
        let all = verify_file(Head::default(), &dir.audit, |hash| hashes.push(hash)).unwrap();
        assert_eq!((all.records, all.files), (9, 5));
        assert_eq!(hashes.last(), Some(&all.head.hash));
    }

    #[test]
    fn audit_with_segments_of_any_size_grows_in_one_file() {
        let dir = TestDir::new();
        let mut sink = JsonLines::append(&dir.audit).unwrap().segment_bytes(0);
        write(&mut sink, 0..7);
        assert_eq!(dir.names(), ["audit.jsonl"]);
        dir.holds(7);
    }

    #[test]
    fn records_written_together_stay_in_one_segment() {
        let dir = TestDir::new();
        let mut sink = dir.open();
        write(&mut sink, 0..1);
        let mut head = sink.head();
        let events = (1..9).map(|message| failed(&message.to_string()));
        let records: Vec<_> = events.map(|event| head.record(0, 0, event)).collect();
        sink.keep(&records).unwrap();
        assert_eq!(dir.names(), ["audit.jsonl", "audit.jsonl.00000001"]);
        dir.holds(9);
    }

    #[test]
    fn writer_killed_while_it_rotates_is_continued() {
        // After the rename there is no file, then there is an empty one.
        for live in [None, Some("")] {
            let dir = TestDir::new();
            write(&mut dir.open(), 0..2);
            fs::rename(&dir.audit, dir.segment(1)).unwrap();
            if let Some(live) = live {
                fs::write(&dir.audit, live).unwrap();
            }
            dir.holds(2);
            let mut sink = dir.open();
            assert_eq!(sink.head().next, 2);
            write(&mut sink, 2..5);
            dir.holds(5);
        }
    }

    #[test]
    fn torn_line_after_a_rotation_is_set_aside() {
        let dir = TestDir::rotated();
        let mut text = fs::read_to_string(&dir.audit).unwrap();
        text.truncate(text.len() - 9);
        fs::write(&dir.audit, &text).unwrap();
        let mut sink = dir.open();
        assert_eq!(sink.torn().map(|torn| torn.bytes), Some(text.len()));
        write(&mut sink, 6..8);
        dir.holds(8);
    }

    #[test]
    fn rotation_that_cannot_create_the_next_file_is_completed_later() {
        let dir = TestDir::new();
        let mut sink = dir.open();
        write(&mut sink, 0..2);
        sink.renamed = true;
        fs::rename(&dir.audit, dir.segment(1)).unwrap();
        fs::create_dir(&dir.audit).unwrap();
        for _ in 0..2 {
            let next = record(&sink, 2);
            assert!(sink.keep(&[next]).is_err());
            assert_eq!(dir.names(), ["audit.jsonl", "audit.jsonl.00000001"]);
        }
        fs::remove_dir(&dir.audit).unwrap();
        write(&mut sink, 2..5);
        dir.holds(5);
        assert_eq!(dir.names().len(), 3);
    }

    #[test]
    fn file_that_cannot_be_renamed_grows_on_and_is_tried_again_later() {
        let dir = TestDir::new();
        let mut sink = dir.open();
        fs::write(dir.segment(1), "of someone else").unwrap();
        write(&mut sink, 0..4);
        assert_eq!(
            fs::read_to_string(dir.segment(1)).unwrap(),
            "of someone else"
        );
        fs::remove_file(dir.segment(1)).unwrap();
        write(&mut sink, 4..6);
        dir.holds(6);
        assert_eq!(dir.names(), ["audit.jsonl", "audit.jsonl.00000001"]);
    }

    #[test]
    fn audit_in_use_is_not_opened_while_it_rotates() {
        let dir = TestDir::new();
        let mut sink = dir.open();
        write(&mut sink, 0..2);
        sink.renamed = true;
        fs::rename(&dir.audit, dir.segment(1)).unwrap();
        let rival = JsonLines::append(&dir.audit).unwrap_err();
        assert!(matches!(rival.fault(), AuditFileFault::InUse), "{rival}");
        // Leftovers of another writer do not stop the writer.
        write(&mut sink, 2..3);
        let rival = JsonLines::append(&dir.audit).unwrap_err();
        assert!(matches!(rival.fault(), AuditFileFault::InUse), "{rival}");
        drop(sink);
        assert_eq!(dir.open().head().next, 3);
    }

    #[test]
    fn missing_segment_is_named() {
        for (gone, live) in [(1, true), (2, true), (2, false), (3, true)] {
            let dir = TestDir::rotated();
            fs::remove_file(dir.segment(gone)).unwrap();
            if !live {
                fs::remove_file(&dir.audit).unwrap();
            }
            dir.broken(&dir.segment(gone), "is missing");
        }
        let dir = TestDir::rotated();
        for number in 1..=3 {
            fs::remove_file(dir.segment(number)).unwrap();
        }
        dir.broken(&dir.segment(1), "is missing");
    }

    #[test]
    fn audit_is_continued_without_its_archived_segments_and_not_without_the_last() {
        let dir = TestDir::rotated();
        let third = fs::read(dir.segment(3)).unwrap();
        for number in 1..=3 {
            fs::remove_file(dir.segment(number)).unwrap();
        }
        let error = JsonLines::append(&dir.audit).unwrap_err();
        assert_eq!(error.path(), dir.segment(1));
        fs::write(dir.segment(3), third).unwrap();
        write(&mut dir.open(), 7..9);
        let names = ["", ".00000003", ".00000004"];
        assert_eq!(dir.names(), names.map(|end| format!("audit.jsonl{end}")));
    }

    #[test]
    fn file_of_someone_else_is_not_made_a_segment() {
        let dir = TestDir::new();
        let mut sink = dir.open();
        write(&mut sink, 0..2);
        fs::rename(&dir.audit, dir.dir.path().join("moved")).unwrap();
        for put in [None, Some("of someone else")] {
            if let Some(text) = put {
                fs::write(&dir.audit, text).unwrap();
            }
            let next = record(&sink, 2);
            assert!(sink.keep(&[next]).is_err());
        }
        assert_eq!(dir.names(), ["audit.jsonl", "moved"]);
        fs::rename(dir.dir.path().join("moved"), &dir.audit).unwrap();
        write(&mut sink, 2..3);
        dir.holds(3);
    }

    #[test]
    fn changed_reordered_or_foreign_segment_is_named() {
        let dir = TestDir::rotated();
        let second = fs::read_to_string(dir.segment(2)).unwrap();
        fs::write(dir.segment(2), second.replacen('3', "9", 1)).unwrap();
        dir.broken(&dir.segment(2), "Changed");
        fs::write(dir.segment(2), &second.as_bytes()[..second.len() - 4]).unwrap();
        dir.broken(&dir.segment(2), "Torn");
        // A segment with a new chain does not belong to this audit.
        fs::copy(dir.segment(1), dir.segment(2)).unwrap();
        dir.broken(&dir.segment(2), "Order");
        fs::write(dir.segment(2), &second).unwrap();
        dir.holds(7);
        let swap = dir.dir.path().join("swap");
        fs::rename(dir.segment(1), &swap).unwrap();
        fs::rename(dir.segment(2), dir.segment(1)).unwrap();
        fs::rename(&swap, dir.segment(2)).unwrap();
        dir.broken(&dir.segment(1), "Order");
    }

    #[test]
    fn only_the_end_of_the_last_segment_is_read_at_a_start() {
        let dir = TestDir::rotated();
        for number in [1, 2] {
            fs::write(dir.segment(number), "damaged\n").unwrap();
        }
        let third = fs::read_to_string(dir.segment(3)).unwrap();
        fs::write(dir.segment(3), third.replacen('4', "9", 1)).unwrap();
        assert_eq!(dir.open().head().next, 7);
        // Its last record is one that the file must continue.
        fs::write(dir.segment(3), &third.as_bytes()[..third.len() - 1]).unwrap();
        let error = JsonLines::append(&dir.audit).unwrap_err();
        assert!(
            matches!(error.fault(), AuditFileFault::LastRecord(BreakReason::Torn)),
            "{error}"
        );
        assert_eq!(error.path(), dir.segment(3));
    }

    #[test]
    fn last_line_is_found_however_long_it_is() {
        let dir = TestDir::new();
        for length in [0, 1, 8_190, 8_191, 8_192, 100_000] {
            for before in ["", "first\n"] {
                let line = "x".repeat(length);
                fs::write(&dir.audit, format!("{before}{line}\n")).unwrap();
                let mut file = File::open(&dir.audit).unwrap();
                assert_eq!(last_line(&mut file).unwrap(), line.as_bytes(), "{length}");
            }
        }
    }

    #[test]
    fn names_of_further_audits_are_not_those_of_segments() {
        let dir = TestDir::rotated();
        for other in [
            ".2",
            ".100000",
            ".10000001",
            ".00000000",
            ".0000004",
            ".000000004",
            ".00000004.bak",
            ".0000000x",
            "00000004",
        ] {
            fs::write(format!("{}{other}", dir.audit.display()), "other").unwrap();
        }
        assert_eq!(last_finished(&dir.audit).unwrap(), 3);
        dir.holds(7);
        let created = JsonLines::create(&dir.audit).unwrap_err();
        assert!(matches!(created.fault(), AuditFileFault::Open(_)));
        fs::remove_file(&dir.audit).unwrap();
        let created = JsonLines::create(&dir.audit).unwrap_err();
        assert!(matches!(created.fault(), AuditFileFault::Open(_)));
    }
}
