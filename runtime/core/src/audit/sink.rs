//! Sinks that store sealed records: in memory, or in a file of JSON lines that is rotated.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::chain::{Head, Record};
use super::segments::{self, MAX_SEGMENTS, READ_AT_ONCE};
use super::verify::{AuditBroken, BreakReason, walk};

/// Stores audit records. Implemented by [`MemoryAudit`], [`JsonLines`] and hosts with their own storage.
///
/// It is called on a thread of its own and may block, except as [`keeps_on_any_thread`](Self::keeps_on_any_thread) says.
/// [`keep`](Self::keep) must store all records or none, and stored records must survive a crash of this process if the sink
/// is persistent.
pub trait AuditSink: Send + 'static {
    /// Returns the head of the chain, which the next record continues.
    fn head(&self) -> Head;

    /// Returns the file that it writes, if any: roots that contain it are rejected.
    fn place(&self) -> Option<&Path> {
        None
    }

    /// Stores `records`, all or none.
    ///
    /// # Errors
    /// The I/O error. The runtime rejects calls until a later write succeeds.
    fn keep(&mut self, records: &[Record]) -> io::Result<()>;

    /// Returns whether [`keep`](Self::keep) stores these records without opening or renaming a file and without a long
    /// wait. Then a call that waits for its record may run it on its own thread, which Landlock may confine to the roots.
    /// By default it runs on the thread of the audit. With no records, this asks whether other threads may ever store any.
    fn keeps_on_any_thread(&self, records: &[Record]) -> bool {
        let _ = records;
        false
    }

    /// Makes stored records survive a power failure, if the sink supports it. It is called before a grant is stored and when
    /// the audit is flushed, not for each record.
    ///
    /// # Errors
    /// The I/O error. Grants that wait for it are not stored.
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AuditSink for Box<dyn AuditSink> {
    fn head(&self) -> Head {
        (**self).head()
    }

    fn place(&self) -> Option<&Path> {
        (**self).place()
    }

    fn keep(&mut self, records: &[Record]) -> io::Result<()> {
        (**self).keep(records)
    }

    fn keeps_on_any_thread(&self, records: &[Record]) -> bool {
        (**self).keeps_on_any_thread(records)
    }

    fn sync(&mut self) -> io::Result<()> {
        (**self).sync()
    }
}

/// Stores the latest records in memory; clones share them.
#[derive(Clone, Debug)]
pub struct MemoryAudit {
    ring: Arc<Mutex<Ring>>,
}

#[derive(Debug)]
struct Ring {
    records: VecDeque<Record>,
    capacity: usize,
    head: Head,
}

impl MemoryAudit {
    /// Creates a sink for at most `capacity` records; older ones are dropped.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let ring = Ring {
            records: VecDeque::new(),
            capacity,
            head: Head::default(),
        };
        Self {
            ring: Arc::new(Mutex::new(ring)),
        }
    }

    /// Returns the stored records, the oldest first.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.ring.lock().records.iter().cloned().collect()
    }
}

impl AuditSink for MemoryAudit {
    fn head(&self) -> Head {
        self.ring.lock().head
    }

    fn keep(&mut self, records: &[Record]) -> io::Result<()> {
        let mut ring = self.ring.lock();
        for record in records {
            if ring.records.len() >= ring.capacity {
                ring.records.pop_front();
            }
            if ring.capacity > 0 {
                ring.records.push_back(record.clone());
            }
            ring.head = record.head();
        }
        Ok(())
    }

    fn keeps_on_any_thread(&self, _: &[Record]) -> bool {
        true
    }
}

/// Why a file cannot store the audit.
pub struct AuditFileError {
    path: PathBuf,
    fault: AuditFileFault,
    /// What the caller can do.
    advice: Option<&'static str>,
}

/// Like `Display`, since `main` prints this form.
impl fmt::Debug for AuditFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for AuditFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the audit file `{}` ", self.path.display())?;
        crate::error::write_chain(&self.fault, f)?;
        self.advice.map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

/// `Display` includes the causes, so `source` returns `None`.
impl Error for AuditFileError {}

impl AuditFileError {
    pub(super) fn of(path: &Path) -> impl Fn(AuditFileFault) -> Self {
        move |fault| Self {
            path: path.to_owned(),
            fault,
            advice: None,
        }
    }

    /// Adds what the caller of [`JsonLines::create`] or [`JsonLines::append`] can do.
    fn with_advice(mut self) -> Self {
        self.advice = match &self.fault {
            AuditFileFault::Open(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Some("continue an existing file with `JsonLines::append`")
            }
            AuditFileFault::Broken(_) | AuditFileFault::LastRecord(_) => {
                Some("leave it unchanged, and use another file")
            }
            _ => None,
        };
        self
    }

    /// Returns the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is wrong with it.
    #[must_use]
    pub fn fault(&self) -> &AuditFileFault {
        &self.fault
    }
}

/// What is wrong with an audit file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditFileFault {
    /// It cannot be opened: it exists already, is a link, or the system refuses.
    #[error("cannot be opened")]
    Open(#[source] io::Error),
    /// It is not a regular file.
    #[error("is not a regular file")]
    NotRegular,
    /// Another process has it open for writing.
    #[error("is in use by another process")]
    InUse,
    /// Its records are not an unbroken chain.
    #[error("is damaged")]
    Broken(#[source] AuditBroken),
    /// It is a finished segment whose last record is damaged, so nothing can continue it.
    #[error("has a damaged last record")]
    LastRecord(#[source] BreakReason),
    /// It is a finished segment that is missing, although another file continues it.
    #[error("is missing, or the first records of the file after it are")]
    Missing,
    /// Its folder cannot be listed.
    #[error("is in a folder that cannot be listed")]
    List(#[source] io::Error),
    /// A torn last line could not be moved.
    #[error("has a torn last line that cannot be set aside")]
    SetAside(#[source] io::Error),
}

/// An incomplete last line after a crash. It is moved to another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornLine {
    /// Its length in bytes.
    pub bytes: usize,
    /// The file to which they were moved.
    pub kept_in: PathBuf,
}

/// Stores records as JSON lines in a file that only its owner may read.
///
/// A record survives a crash of the process once it was written, and a power failure once it was synced. Records are
/// synced before a grant is stored and when the audit is flushed. Only one process can write to a file.
///
/// A file that would grow beyond [`segment_bytes`](Self::segment_bytes) is rotated: it is synced and renamed, so that
/// `audit.jsonl` becomes `audit.jsonl.00000001`, and the next records go to a new `audit.jsonl` whose first record continues
/// the last one of that segment. Segments are never deleted. If you archive segments, leave the last one, or the file
/// cannot be continued. If a file cannot be renamed, it is logged and records are still appended.
#[derive(Debug)]
pub struct JsonLines {
    file: File,
    real_path: PathBuf,
    /// Size of a segment.
    segment_bytes: u64,
    /// The number of the last finished segment.
    finished: u32,
    /// Whether the file was renamed to a finished segment, and there is no next file yet.
    pub(super) renamed: bool,
    /// The length at which the file is rotated.
    full_at: u64,
    /// Length of the intact records.
    length: u64,
    /// Whether a write failed and may have left a partial line.
    unclean: bool,
    /// Whether something was written since the last sync.
    unsynced: bool,
    /// Whether the folder was also synced.
    named: bool,
    head: Head,
    torn: Option<TornLine>,
}

impl JsonLines {
    /// Default size of a segment.
    pub const SEGMENT_BYTES: u64 = 64 << 20;

    /// Creates a file with a new chain.
    ///
    /// # Errors
    /// [`AuditFileFault::Open`] if `path` exists already, or a segment of an audit of that name;
    /// [`append`](Self::append) continues an existing file.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, AuditFileError> {
        Self::create_at(path.as_ref()).map_err(AuditFileError::with_advice)
    }

    fn create_at(path: &Path) -> Result<Self, AuditFileError> {
        let fault = AuditFileError::of(path);
        if segments::last_finished(path)? > 0 {
            let exists = io::ErrorKind::AlreadyExists.into();
            return Err(fault(AuditFileFault::Open(exists)));
        }
        Self::open(path, OpenOptions::new().create_new(true)).map_err(fault)
    }

    /// Opens a file and continues its chain, or creates one.
    ///
    /// The chain in the file is verified first, as [`verify`](super::verify) does. Of earlier segments, only the last
    /// record is read, which the file must continue; [`verify_file`](super::verify_file) verifies all segments. A torn
    /// last line is moved to another file in the same folder, which [`torn`](Self::torn) names.
    ///
    /// # Errors
    /// [`AuditFileError`] if it cannot be opened, is in use, or does not continue an unbroken chain. The file is then
    /// left unchanged.
    pub fn append(path: impl AsRef<Path>) -> Result<Self, AuditFileError> {
        Self::append_to(path.as_ref()).map_err(AuditFileError::with_advice)
    }

    fn append_to(path: &Path) -> Result<Self, AuditFileError> {
        let fault = AuditFileError::of(path);
        let mut this = Self::open(path, OpenOptions::new().create(true)).map_err(&fault)?;
        this.finished = segments::last_finished(path)?;
        let before = segments::head_after(path, this.finished)?;
        let reader = BufReader::with_capacity(READ_AT_ONCE, &this.file);
        let end = walk(before, reader, |_, _| Ok(()))
            .map_err(|broken| segments::broken_after(path, this.finished, broken))?;
        (this.head, this.length) = (end.head, end.intact);
        if !end.torn.is_empty() {
            let torn = this.cut_off(path, &end.torn);
            this.torn = Some(torn.map_err(AuditFileFault::SetAside).map_err(&fault)?);
        }
        Ok(this)
    }

    /// Moves the bytes after the intact records to another file.
    fn cut_off(&self, path: &Path, torn: &[u8]) -> io::Result<TornLine> {
        let torn = set_aside(path, self.head, torn)?;
        self.file.set_len(self.length)?;
        Ok(torn)
    }

    /// Rotates the file before it would grow beyond `bytes`; 0 means never. The default is
    /// [`SEGMENT_BYTES`](Self::SEGMENT_BYTES). Records that are written together are not split, so a segment can be
    /// longer.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = match bytes {
            0 => u64::MAX,
            bytes => bytes,
        };
        self.full_at = self.segment_bytes;
        self
    }

    /// Returns the torn last line that [`append`](Self::append) found, if any.
    #[must_use]
    pub fn torn(&self) -> Option<&TornLine> {
        self.torn.as_ref()
    }

    /// Opens and locks a file whose records are not read yet.
    fn open(path: &Path, options: &mut OpenOptions) -> Result<Self, AuditFileFault> {
        let file = open(path, options).map_err(AuditFileFault::Open)?;
        let real_path = path.canonicalize().map_err(AuditFileFault::Open)?;
        if !file.metadata().map_err(AuditFileFault::Open)?.is_file() {
            return Err(AuditFileFault::NotRegular);
        }
        file.try_lock().map_err(AuditFileFault::of_lock)?;
        // Its writer may have rotated it since it was opened.
        if !is_at(&file, &real_path).map_err(AuditFileFault::Open)? {
            return Err(AuditFileFault::InUse);
        }
        Ok(Self {
            file,
            real_path,
            segment_bytes: Self::SEGMENT_BYTES,
            finished: 0,
            renamed: false,
            full_at: Self::SEGMENT_BYTES,
            length: 0,
            unclean: false,
            unsynced: true,
            named: false,
            head: Head::default(),
            torn: None,
        })
    }

    /// Finishes the segment and begins the next. A kill or failure between two steps loses no record: the last segment
    /// may have no next file, or an empty one.
    fn rotate(&mut self) -> io::Result<()> {
        if !self.renamed {
            if !is_at(&self.file, &self.real_path)? {
                return Err(changed());
            }
            // A finished segment must be complete after a power failure.
            self.file.sync_data()?;
            let finished = segments::segment(&self.real_path, self.finished + 1);
            if let Err(error) = rename(&self.real_path, &finished) {
                tracing::warn!(%error, "the audit file cannot be rotated and keeps growing");
                self.full_at = self.length.saturating_add(self.segment_bytes);
                return Ok(());
            }
            self.renamed = true;
        }
        let file = open(&self.real_path, OpenOptions::new().create(true))?;
        file.try_lock()?;
        if file.metadata()?.len() > 0 {
            return Err(changed());
        }
        self.file = file;
        self.finished += 1;
        self.renamed = false;
        self.full_at = self.segment_bytes;
        self.length = 0;
        self.named = false;
        Ok(())
    }

    /// Whether `bytes` more belong in the next segment.
    fn is_full(&self, bytes: usize) -> bool {
        let length = self.length.saturating_add(bytes as u64);
        let too_long = self.length > 0 && length > self.full_at;
        self.renamed || too_long && self.finished < MAX_SEGMENTS
    }
}

/// Length of the lines of `records`, with their line breaks.
fn lines_length(records: &[Record]) -> usize {
    records.iter().map(|record| record.line().len() + 1).sum()
}

/// The error if another process wrote to the file.
fn changed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the audit file was changed by someone else",
    )
}

/// Renames a file to an unused name.
#[expect(clippy::disallowed_methods, reason = "the audit is outside all roots")]
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(to) {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => std::fs::rename(from, to),
        Err(error) => Err(error),
    }
}

/// Whether `path` is the name of the open `file`.
#[expect(clippy::disallowed_methods, reason = "the audit is outside all roots")]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (opened, named) = (file.metadata()?, std::fs::symlink_metadata(path)?);
    Ok((opened.dev(), opened.ino()) == (named.dev(), named.ino()))
}

impl AuditSink for JsonLines {
    fn head(&self) -> Head {
        self.head
    }

    fn place(&self) -> Option<&Path> {
        Some(&self.real_path)
    }

    fn keep(&mut self, records: &[Record]) -> io::Result<()> {
        let Some(last) = records.last() else {
            return Ok(());
        };
        let mut bytes = Vec::with_capacity(lines_length(records));
        for record in records {
            bytes.extend_from_slice(record.line().as_bytes());
            bytes.push(b'\n');
        }
        let metadata = self.file.metadata()?;
        if metadata.nlink() == 0 {
            let deleted = "the audit file was deleted; restart the runtime";
            return Err(io::Error::new(io::ErrorKind::NotFound, deleted));
        }
        if self.unclean {
            self.file.set_len(self.length)?;
            self.unclean = false;
        } else if metadata.len() != self.length {
            return Err(changed());
        }
        if self.is_full(bytes.len()) {
            self.rotate()?;
        }
        self.unclean = true;
        self.unsynced = true;
        self.file.write_all(&bytes)?;
        self.unclean = false;
        self.length += bytes.len() as u64;
        self.head = last.head();
        Ok(())
    }

    fn keeps_on_any_thread(&self, records: &[Record]) -> bool {
        !self.is_full(lines_length(records))
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.unsynced {
            self.file.sync_data()?;
            self.unsynced = false;
        }
        if !self.named {
            sync_folder(&self.real_path)?;
            self.named = true;
        }
        Ok(())
    }
}

/// Syncs the folder of a file, without which a new file may be lost in a power failure.
fn sync_folder(file: &Path) -> io::Result<()> {
    let folder = file.parent().ok_or(io::ErrorKind::NotADirectory)?;
    File::open(folder)?.sync_all()
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Non-blocking: a FIFO must be refused, not waited for.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let flags = flags.bits().cast_signed();
    let options = options.read(true).append(true).mode(0o600);
    options.custom_flags(flags).open(path)
}

/// Moves a torn line to a new file named after the record that it would have been.
fn set_aside(path: &Path, head: Head, torn: &[u8]) -> io::Result<TornLine> {
    for attempt in 0..1000 {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".torn-{}-{attempt}", head.next));
        let kept_in = PathBuf::from(name);
        match open(&kept_in, OpenOptions::new().create_new(true)) {
            Ok(mut file) => {
                file.write_all(torn)?;
                return Ok(TornLine {
                    bytes: torn.len(),
                    kept_in,
                });
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "the files of an audit are damaged here on purpose"
)]
mod tests {
    use super::super::verify::verify;
    use super::*;
    use crate::audit::tests::failed as event;

    fn write(sink: &mut JsonLines, messages: &[&str]) {
        let mut head = sink.head();
        let records: Vec<Record> = messages
            .iter()
            .map(|message| head.record(0, 0, event(message)))
            .collect();
        sink.keep(&records).unwrap();
        assert_eq!(sink.head(), head);
    }

    #[track_caller]
    fn refused(opened: Result<JsonLines, AuditFileError>, expected: fn(&AuditFileFault) -> bool) {
        let error = opened.unwrap_err();
        assert!(expected(error.fault()), "{error}");
    }

    fn records_in(path: &Path) -> u64 {
        let file = io::BufReader::new(File::open(path).unwrap());
        verify(file).unwrap().records
    }

    #[test]
    fn appended_file_continues_the_chain() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        write(&mut JsonLines::create(&path).unwrap(), &["a", "b"]);
        let mut again = JsonLines::append(&path).unwrap();
        assert_eq!(again.torn(), None);
        write(&mut again, &["c"]);
        assert_eq!(records_in(&path), 3);
    }

    #[test]
    fn nothing_is_recorded_in_a_deleted_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut sink = JsonLines::create(&path).unwrap();
        write(&mut sink, &["a"]);
        std::fs::remove_file(&path).unwrap();
        let record = sink.head().record(0, 0, event("b"));
        let error = sink.keep(&[record]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn existing_file_is_not_created_and_a_missing_one_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        write(&mut JsonLines::append(&path).unwrap(), &["a"]);
        refused(JsonLines::create(&path), |fault| {
            matches!(fault, AuditFileFault::Open(_))
        });
        assert_eq!(records_in(&path), 1);
    }

    #[cfg(unix)]
    #[test]
    fn audit_file_is_readable_only_by_its_owner() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        JsonLines::create(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_fifos_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link, fifo) = (
            dir.path().join("target"),
            dir.path().join("link"),
            dir.path().join("fifo"),
        );
        std::fs::write(&target, "").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        refused(JsonLines::append(&link), |fault| {
            matches!(fault, AuditFileFault::Open(_))
        });
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
        refused(JsonLines::append(&fifo), |fault| {
            matches!(fault, AuditFileFault::NotRegular)
        });
        assert!(JsonLines::append(&target).is_ok());
    }

    #[test]
    fn two_writers_do_not_share_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let first = JsonLines::create(&path).unwrap();
        refused(JsonLines::append(&path), |fault| {
            matches!(fault, AuditFileFault::InUse)
        });
        drop(first);
        assert!(JsonLines::append(&path).is_ok());
    }

    #[test]
    fn broken_chain_is_not_continued_and_its_file_and_line_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().join("whole");
        write(&mut JsonLines::create(&whole).unwrap(), &["a", "b", "c"]);
        let text = std::fs::read_to_string(&whole).unwrap();
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let broken = [
            (1, text.replace("\"a\"", "\"x\"")),
            (2, text.replace("\"b\"", "\"x\"")),
            (3, text.replace("\"c\"", "\"x\"")),
            (2, [lines[0], lines[2]].concat()),
            (4, format!("{text}forged\n")),
        ];
        for (line, text) in broken {
            let path = dir.path().join("broken");
            std::fs::write(&path, &text).unwrap();
            let error = JsonLines::append(&path).unwrap_err();
            assert_eq!(error.path(), path);
            assert!(
                error.to_string().contains(path.to_str().unwrap()),
                "{error}"
            );
            let cause = format!("is damaged: the audit breaks at line {line}: ");
            assert!(error.to_string().contains(&cause), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(JsonLines::append(&whole).unwrap().head().next, 3);
    }

    #[test]
    fn crash_at_any_byte_loses_no_complete_record() {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().join("whole");
        write(&mut JsonLines::create(&whole).unwrap(), &["a", "b", "c"]);
        let bytes = std::fs::read(&whole).unwrap();
        for (number, end) in (0..bytes.len()).step_by(7).enumerate() {
            let path = dir.path().join(format!("cut-{number}"));
            let (kept, _) = bytes.split_at(end);
            std::fs::write(&path, kept).unwrap();
            let intact = kept
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
            let mut sink = JsonLines::append(&path).unwrap();
            let torn = sink
                .torn()
                .map(|torn| std::fs::read(&torn.kept_in).unwrap());
            assert_eq!(torn.unwrap_or_default(), kept[intact..]);
            write(&mut sink, &["after"]);
            let lines = kept.iter().filter(|byte| **byte == b'\n').count() as u64;
            assert_eq!(records_in(&path), lines + 1);
        }
    }

    #[test]
    fn failed_write_is_cut_off_before_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut sink = JsonLines::create(&path).unwrap();
        write(&mut sink, &["a"]);
        sink.file.write_all(b"{\"seq\":1,\"at").unwrap();
        sink.unclean = true;
        write(&mut sink, &["b"]);
        assert_eq!(records_in(&path), 2);
    }

    #[test]
    fn sync_covers_records_and_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = JsonLines::create(dir.path().join("audit.jsonl")).unwrap();
        let due = |sink: &JsonLines| (sink.unsynced, !sink.named);
        write(&mut sink, &["a"]);
        assert_eq!(due(&sink), (true, true));
        sink.sync().unwrap();
        assert_eq!(due(&sink), (false, false));
        write(&mut sink, &["b"]);
        assert_eq!(due(&sink), (true, false));
        let mut gone = JsonLines::create(dir.path().join("gone.jsonl")).unwrap();
        dir.close().unwrap();
        assert!(gone.sync().is_err(), "the file has no folder");
        assert_eq!(due(&gone), (false, true));
    }

    #[test]
    fn foreign_write_stops_the_audit_and_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut sink = JsonLines::create(&path).unwrap();
        write(&mut sink, &["a"]);
        let mut other = OpenOptions::new().append(true).open(&path).unwrap();
        other.write_all(b"forged\n").unwrap();
        let record = sink.head().record(0, 0, event("b"));
        assert!(sink.keep(&[record]).is_err());
        assert!(
            std::fs::read_to_string(&path)
                .unwrap()
                .ends_with("forged\n")
        );
    }

    #[test]
    fn memory_audit_drops_old_records_and_keeps_the_head() {
        let mut ring = MemoryAudit::new(2);
        let mut head = Head::default();
        for _ in 0..5 {
            let record = head.record(0, 0, event("x"));
            ring.keep(&[record]).unwrap();
        }
        let kept: Vec<u64> = ring.records().iter().map(Record::seq).collect();
        assert_eq!((kept, ring.head()), (vec![3, 4], head));
    }

    #[test]
    fn errors_have_their_cause_and_advice_for_the_caller() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        std::fs::write(&path, "no record\n").unwrap();
        let text = |result: Result<JsonLines, AuditFileError>| result.unwrap_err().to_string();
        let exists = text(JsonLines::create(&path));
        assert!(exists.contains("cannot be opened: File exists"), "{exists}");
        assert!(exists.ends_with("with `JsonLines::append`"), "{exists}");
        let damaged = text(JsonLines::append(&path));
        assert!(
            damaged.ends_with("; leave it unchanged, and use another file"),
            "{damaged}"
        );
        let verified = crate::audit::verify_file(Head::default(), &path, |_| {});
        let damaged = verified.unwrap_err().to_string();
        assert!(
            damaged
                .contains("is damaged: the audit breaks at line 1: the line is not a valid record"),
            "{damaged}"
        );
        assert!(!damaged.contains("another file"), "{damaged}");
    }
}
