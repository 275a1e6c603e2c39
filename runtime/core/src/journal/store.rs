//! The segments of a journal on the disk.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, fsync, openat, unlinkat};

use super::format::{Damage, End, Frame, Frames, MAGIC, Payload, Record};
use super::index::{Index, Location};
use super::{ChangeId, JournalError, JournalLimits};
use crate::private_file::{Folder, StoreFile, check_owner};

/// Name of the journal in its directory, to which the number of a segment is added.
pub(super) const NAME: &str = "changes";
/// A segment has at most this part of the bytes, of the changes and of the age of a journal.
const SEGMENTS: u64 = 8;
/// Maximum number of changes in a journal.
const MAX_CHANGES: u64 = 16_000;
/// Largest number of a record, since common JSON readers round greater numbers.
const MAX_NUMBER: u64 = 1 << 53;
/// The number of no record.
const NO_CHANGE: ChangeId = ChangeId(0);

/// One file of the journal.
#[derive(Clone, Copy, Debug)]
struct Segment {
    number: u32,
    bytes: u64,
    changes: u64,
    /// When its first and its newest change began.
    times_ms: Option<(u64, u64)>,
}

impl Segment {
    fn note(&mut self, record: &Record) {
        if let Record::Begin(begin) = record {
            self.changes += 1;
            let (first, newest) = self.times_ms.unwrap_or((begin.at_ms, 0));
            self.times_ms = Some((first, newest.max(begin.at_ms)));
        }
    }
}

/// An open journal.
#[derive(Debug)]
pub(super) struct Store {
    lock: StoreFile,
    limits: JournalLimits,
    segments: VecDeque<Segment>,
    /// The newest segment.
    file: File,
    /// The number of the next frame.
    next: u64,
    /// The number of the first frame since it was opened.
    pub(super) first: u64,
    pub(super) index: Index,
    /// Number of changes that were dropped since it was opened.
    pub(super) dropped: u64,
    /// Whether it is closed, or the end of the newest segment is unknown after a failed write.
    broken: bool,
}

/// What was found in the segments of a journal.
pub(super) struct Found {
    segments: VecDeque<Segment>,
    pub(super) index: Index,
    next: u64,
    /// Where the newest segment was cut off.
    cut_at: Option<u64>,
}

/// The name of a segment.
fn name_of(number: u32) -> OsString {
    format!("{NAME}.{number:08}").into()
}

/// The number of the segment with this name.
fn number_of(name: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(name).ok()?.strip_prefix(NAME)?;
    let digits = digits.strip_prefix('.')?;
    let plain = digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

/// The numbers of all segments, in order.
fn numbers(folder: &Folder) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in Dir::read_from(folder.directory())? {
        numbers.extend(number_of(entry?.file_name().to_bytes()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn open(folder: &Folder, number: u32, flags: OFlags) -> Result<File, JournalError> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file: File = openat(folder.directory(), name_of(number), flags, mode)
        .map_err(|errno| JournalError::open(folder, errno.into()))?
        .into();
    check_owner(&file).map_err(|fault| JournalError::of_file(folder, fault))?;
    Ok(file)
}

/// Reads all segments. The inner error is the damage of the segment with this number.
pub(super) fn read(folder: &Folder) -> Result<Result<Found, (u32, Damage)>, JournalError> {
    let failed = |error| JournalError::open(folder, error);
    let numbers = numbers(folder).map_err(failed)?;
    let mut found = Found::default();
    for (position, number) in numbers.iter().enumerate() {
        let mut bytes = Vec::new();
        let mut file = open(folder, *number, OFlags::RDONLY)?;
        file.read_to_end(&mut bytes).map_err(failed)?;
        let last = position + 1 == numbers.len();
        if let Err(damage) = found.add(*number, &bytes, (position == 0, last)) {
            return Ok(Err((*number, damage)));
        }
    }
    Ok(Ok(found))
}

impl Default for Found {
    fn default() -> Self {
        Self {
            segments: VecDeque::new(),
            index: Index::default(),
            next: 1,
            cut_at: None,
        }
    }
}

impl Found {
    fn add(
        &mut self,
        segment: u32,
        bytes: &[u8],
        (first, last): (bool, bool),
    ) -> Result<(), Damage> {
        let mut frames = Frames::of(bytes)?;
        let mut read = Segment {
            number: segment,
            bytes: bytes.len() as u64,
            changes: 0,
            times_ms: None,
        };
        let mut begun = !first;
        loop {
            let frame = match frames.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                // The writer was stopped within a record, so its change did not begin.
                Err(Damage::CutOff(at)) if last => {
                    self.cut_at = Some(at);
                    break;
                }
                Err(damage) => return Err(damage),
            };
            let Frame {
                number, at, length, ..
            } = frame;
            if begun && number != self.next {
                return Err(Damage::Order {
                    at,
                    found: number,
                    expected: self.next,
                });
            }
            if number > MAX_NUMBER {
                return Err(Damage::Header(at));
            }
            begun = true;
            self.next = number + 1;
            read.note(&frame.record);
            let location = Location {
                segment,
                at,
                length,
            };
            self.index.add(number, location, frame.record);
        }
        read.bytes = self.cut_at.unwrap_or(read.bytes);
        self.segments.push_back(read);
        Ok(())
    }
}

/// Renames all segments, so that the journal is empty. Returns the new paths.
pub(super) fn set_aside(folder: &Folder) -> io::Result<Vec<PathBuf>> {
    let numbers = numbers(folder)?.into_iter();
    let kept = numbers.map(|number| folder.set_aside(&name_of(number)));
    kept.collect()
}

impl Store {
    /// Continues what was found.
    pub(super) fn new(
        lock: StoreFile,
        limits: JournalLimits,
        found: Found,
        now_ms: u64,
    ) -> Result<Self, JournalError> {
        let folder = lock.folder();
        let failed = |error| JournalError::open(folder, error);
        let Found {
            mut segments,
            index,
            next,
            cut_at,
        } = found;
        let file = match segments.back_mut() {
            Some(last) => {
                let mut file = open(folder, last.number, OFlags::RDWR)?;
                if let Some(at) = cut_at {
                    file.set_len(at).map_err(failed)?;
                }
                file.seek(SeekFrom::End(0)).map_err(failed)?;
                if last.bytes < MAGIC.len() as u64 {
                    file.set_len(0).map_err(failed)?;
                    file.rewind().map_err(failed)?;
                    file.write_all(MAGIC).map_err(failed)?;
                    last.bytes = MAGIC.len() as u64;
                }
                file
            }
            None => {
                let (segment, file) = create(folder, 1, limits.durable)?;
                segments.push_back(segment);
                file
            }
        };
        let mut store = Self {
            lock,
            limits,
            segments,
            file,
            next,
            first: next,
            index,
            dropped: 0,
            broken: false,
        };
        if let Err(error) = store.renew(now_ms) {
            tracing::warn!(%error, "cannot drop the oldest changes of the journal");
        }
        Ok(store)
    }

    /// Drops what the limits require, also the changes of the newest segment.
    fn renew(&mut self, now_ms: u64) -> Result<(), JournalError> {
        let last = self.segments.back();
        if last.is_some_and(|last| last.changes > 0 && self.is_expired(last, now_ms)) {
            self.begin_segment()?;
            // Without a record, the numbers of changes would begin again.
            let record = Record::End {
                change: NO_CHANGE,
                end: End::NotApplied,
            };
            let payload = Payload::of(&record, &[]).ok_or(JournalError::TooLarge)?;
            self.append(record, &payload)?;
        }
        self.drop_old(now_ms);
        Ok(())
    }

    /// Releases the lock; nothing is written any more.
    pub(super) fn close(&mut self) {
        self.broken = true;
        self.lock.release();
    }

    pub(super) fn folder(&self) -> &Folder {
        self.lock.folder()
    }

    /// Appends a record. Returns its number.
    pub(super) fn append(
        &mut self,
        record: Record,
        payload: &Payload,
    ) -> Result<ChangeId, JournalError> {
        if self.broken {
            return Err(JournalError::Broken);
        }
        let frame = payload.frame(self.next);
        let length = frame.len() as u64;
        let named = self.check_name();
        let Some(last) = self.segments.back_mut() else {
            return Err(JournalError::Broken);
        };
        let written = named.and_then(|()| self.file.write_all(&frame));
        let written = written.and_then(|()| {
            if self.limits.durable {
                self.file.sync_data()
            } else {
                Ok(())
            }
        });
        if let Err(source) = written {
            // What was written of the frame is removed, so that the next one follows the last complete one.
            let cut = self.file.set_len(last.bytes);
            let end = cut.and_then(|()| self.file.seek(SeekFrom::Start(last.bytes)));
            self.broken = end.is_err();
            return Err(JournalError::Write { source });
        }
        let (number, location) = (
            self.next,
            Location {
                segment: last.number,
                at: last.bytes,
                length,
            },
        );
        last.bytes += length;
        last.note(&record);
        self.next += 1;
        self.index.add(number, location, record);
        Ok(ChangeId(number))
    }

    /// Rejects a segment that was deleted.
    fn check_name(&self) -> io::Result<()> {
        if self.file.metadata()?.nlink() == 0 {
            let deleted = "the change journal was deleted; restart the runtime";
            return Err(io::Error::new(io::ErrorKind::NotFound, deleted));
        }
        Ok(())
    }

    /// Notes a record that could not be written.
    pub(super) fn note(&mut self, record: Record) {
        let nowhere = Location {
            segment: 0,
            at: 0,
            length: 0,
        };
        self.index.add(0, nowhere, record);
    }

    /// Whether the next record needs another segment, or changes are to be dropped because of their age.
    pub(super) fn needs_rotation(&self, now_ms: u64) -> bool {
        let first = self.segments.front();
        self.is_full(now_ms)
            || self.segments.len() > 1 && first.is_some_and(|first| self.is_expired(first, now_ms))
    }

    fn is_full(&self, now_ms: u64) -> bool {
        self.segments.back().is_some_and(|last| {
            let begun = last.times_ms.map_or(now_ms, |(first, _)| first);
            last.bytes >= self.limits.bytes / SEGMENTS
                || last.changes >= MAX_CHANGES / SEGMENTS
                || now_ms.saturating_sub(begun) > self.age_ms() / SEGMENTS
        })
    }

    /// How long changes are kept.
    fn age_ms(&self) -> u64 {
        u64::try_from(self.limits.age.as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether all changes of a segment are too old. Those that have not ended are kept, since they are to be recovered.
    fn is_expired(&self, segment: &Segment, now_ms: u64) -> bool {
        let newest = segment.times_ms.map_or(0, |(_, newest)| newest);
        now_ms.saturating_sub(newest) > self.age_ms() && !self.index.is_open_in(segment.number)
    }

    /// Begins another segment if the newest one is full, and drops the oldest ones as the limits require.
    pub(super) fn rotate(&mut self, now_ms: u64) -> Result<(), JournalError> {
        if self.is_full(now_ms) {
            self.begin_segment()?;
        }
        self.drop_old(now_ms);
        Ok(())
    }

    fn begin_segment(&mut self) -> Result<(), JournalError> {
        let last = self.segments.back().filter(|_| !self.broken);
        let last = last.ok_or(JournalError::Broken)?;
        let (segment, file) = create(self.lock.folder(), last.number + 1, self.limits.durable)?;
        self.file = file;
        self.segments.push_back(segment);
        Ok(())
    }

    /// Drops the oldest segments, as the limits require.
    fn drop_old(&mut self, now_ms: u64) {
        while self.segments.len() > 1
            && let Some(first) = self.segments.front().copied()
        {
            let bytes: u64 = self.segments.iter().map(|segment| segment.bytes).sum();
            let changes: u64 = self.segments.iter().map(|segment| segment.changes).sum();
            let fits = bytes <= self.limits.bytes && changes <= MAX_CHANGES;
            if fits && !self.is_expired(&first, now_ms) {
                break;
            }
            let dir = self.lock.folder().directory();
            if unlinkat(dir, name_of(first.number), AtFlags::empty()).is_err() {
                break;
            }
            self.segments.pop_front();
            self.dropped += self.index.drop_segment(first.number);
        }
    }

    /// The bytes that undo a change; `None` if it was dropped.
    pub(super) fn opaque(&self, change: ChangeId) -> Result<Option<Vec<u8>>, JournalError> {
        let Some(Location {
            segment,
            at,
            length,
        }) = self.index.location(change)
        else {
            return Ok(None);
        };
        let folder = self.folder();
        let failed = |error| JournalError::open(folder, error);
        let mut file = open(folder, segment, OFlags::RDONLY)?;
        file.seek(SeekFrom::Start(at)).map_err(failed)?;
        let mut bytes = MAGIC.to_vec();
        file.take(length).read_to_end(&mut bytes).map_err(failed)?;
        let frame = Frames::of(&bytes).and_then(|mut frames| frames.next());
        match frame {
            Ok(Some(frame)) if frame.number == change.0 => Ok(Some(frame.opaque.to_vec())),
            Ok(_) | Err(_) => Err(JournalError::Damaged { change }),
        }
    }
}

fn create(folder: &Folder, number: u32, durable: bool) -> Result<(Segment, File), JournalError> {
    let mut file = open(folder, number, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
    let dir = folder.directory();
    let written = file.write_all(MAGIC).and_then(|()| {
        if durable {
            fsync(dir)?;
        }
        Ok(())
    });
    if let Err(source) = written {
        // An empty segment would prevent the next attempt.
        let _ = unlinkat(dir, name_of(number), AtFlags::empty());
        return Err(JournalError::Write { source });
    }
    let segment = Segment {
        number,
        bytes: MAGIC.len() as u64,
        changes: 0,
        times_ms: None,
    };
    Ok((segment, file))
}

/// The names of these files, for messages.
pub(super) fn display(paths: &[PathBuf]) -> String {
    let names = paths.iter().filter_map(|path| path.file_name());
    let names: Vec<_> = names
        .map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned())
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::super::ChangeState;
    use super::super::format::Begin;
    use super::*;
    use crate::id::{CallId, WorkerId};

    fn segment(number: u64) -> Vec<u8> {
        let end = Record::End {
            change: ChangeId(1),
            end: End::Applied,
        };
        let frame = Payload::of(&end, &[]).unwrap().frame(number);
        [MAGIC, &frame].concat()
    }

    #[test]
    fn number_without_further_ones_is_damage() {
        let read = |number| {
            let mut found = Found::default();
            found.add(1, &segment(number), (true, true))?;
            Ok(found.next)
        };
        assert_eq!(read(MAX_NUMBER), Ok(MAX_NUMBER + 1));
        let at = MAGIC.len() as u64;
        for number in [MAX_NUMBER + 1, u64::MAX] {
            assert_eq!(read(number), Err(Damage::Header(at)), "{number}");
        }
    }

    const DAY: u64 = 24 * 60 * 60 * 1_000;

    /// Opens the journal in `directory`, which keeps changes for 30 days, on this day.
    fn open_on(directory: &Path, day: u64) -> Store {
        let lock = Folder::of(&directory.join(NAME)).unwrap().locked().unwrap();
        let found = read(lock.folder()).unwrap().unwrap();
        let limits = JournalLimits {
            age: Duration::from_millis(30 * DAY),
            ..JournalLimits::default()
        };
        Store::new(lock, limits, found, day * DAY).unwrap()
    }

    /// Records a change that begins on this day.
    fn begin(store: &mut Store, day: u64) -> ChangeId {
        let record = Record::Begin(Begin {
            run: 1,
            call: CallId(1),
            worker: WorkerId(1),
            lineage: [].into(),
            agent: "main".into(),
            tool: "write_file".into(),
            intent: "".into(),
            at_ms: day * DAY,
            changes: [].into(),
            undoes: Vec::new(),
            can_be_undone: true,
        });
        let payload = Payload::of(&record, b"old content").unwrap();
        if store.needs_rotation(day * DAY) {
            store.rotate(day * DAY).unwrap();
        }
        store.append(record, &payload).unwrap()
    }

    fn change(store: &mut Store, day: u64) -> ChangeId {
        let change = begin(store, day);
        let record = Record::End {
            change,
            end: End::Applied,
        };
        let payload = Payload::of(&record, &[]).unwrap();
        store.append(record, &payload).unwrap();
        change
    }

    /// The days on which the changes that are kept began, the newest first.
    fn days(store: &Store) -> Vec<u64> {
        let entries = store.index.entries(Some(store.first), |_, _| true);
        entries.iter().map(|entry| entry.at_ms / DAY).collect()
    }

    /// The number of files that contain old content.
    fn contents(directory: &Path) -> usize {
        let folder = Folder::of(&directory.join(NAME)).unwrap();
        let numbers = numbers(&folder).unwrap().into_iter();
        let files = numbers.map(|number| {
            let mut bytes = Vec::new();
            let mut file = open(&folder, number, OFlags::RDONLY).unwrap();
            file.read_to_end(&mut bytes).unwrap();
            let mut at = bytes.windows(11);
            usize::from(at.any(|part| part == b"old content"))
        });
        files.sum()
    }

    #[test]
    fn changes_older_than_the_age_are_dropped_when_the_journal_is_opened() {
        let temp = tempfile::tempdir().unwrap();
        let last = change(&mut open_on(temp.path(), 0), 0);
        assert_eq!(days(&open_on(temp.path(), 30)), [0]);
        assert_eq!(contents(temp.path()), 1);
        assert_eq!(days(&open_on(temp.path(), 31)), [0; 0]);
        assert_eq!(contents(temp.path()), 0);
        // The numbers of dropped changes are not used again.
        let mut store = open_on(temp.path(), 31);
        assert!(change(&mut store, 31) > last);
        assert_eq!(days(&store), [31]);
    }

    #[test]
    fn interrupted_change_is_kept_beyond_the_age_until_it_has_ended() {
        let temp = tempfile::tempdir().unwrap();
        let interrupted = begin(&mut open_on(temp.path(), 0), 0);
        let mut store = open_on(temp.path(), 99);
        let entries = store.index.entries(Some(store.first), |_, _| true);
        assert_eq!(entries[0].state, ChangeState::Interrupted);
        let record = Record::End {
            change: interrupted,
            end: End::RolledBack,
        };
        let payload = Payload::of(&record, &[]).unwrap();
        store.append(record, &payload).unwrap();
        drop(store);
        assert_eq!(days(&open_on(temp.path(), 99)), [0; 0]);
        assert_eq!(contents(temp.path()), 0);
    }

    #[test]
    fn changes_older_than_the_age_are_dropped_when_the_next_one_is_recorded() {
        let temp = tempfile::tempdir().unwrap();
        let mut store = open_on(temp.path(), 0);
        change(&mut store, 0);
        change(&mut store, 30);
        assert_eq!(days(&store), [30, 0]);
        change(&mut store, 31);
        assert_eq!(days(&store), [31, 30]);
        change(&mut store, 90);
        assert_eq!(days(&store), [90]);
        assert_eq!(contents(temp.path()), 1);
    }

    #[test]
    fn change_is_kept_at_most_an_eighth_longer_than_the_age() {
        let temp = tempfile::tempdir().unwrap();
        let mut store = open_on(temp.path(), 0);
        for day in 0..200 {
            change(&mut store, day);
            let oldest = *days(&store).last().unwrap();
            assert!(
                (30..=34).contains(&(day - oldest)) || oldest == 0 && day <= 34,
                "{day}"
            );
        }
    }
}
