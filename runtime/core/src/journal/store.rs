//! The segments of a journal on the disk.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags, fsync, openat, renameat_with, unlinkat};

use super::format::{Damage, Frame, Frames, MAGIC, Payload, Record};
use super::index::{Index, Location};
use super::{ChangeId, JournalError, JournalLimits};
use crate::private_file::{Folder, StoreFile, check_owner};

/// Name of the journal in its directory, to which the number of a segment is added.
pub(super) const NAME: &str = "changes";
/// A segment has at most this part of the bytes and of the changes of a journal.
const SEGMENTS: u64 = 8;
/// Maximum number of changes in a journal.
const MAX_CHANGES: u64 = 16_000;
/// Largest number of a record, since common JSON readers round greater numbers.
const MAX_NUMBER: u64 = 1 << 53;
/// Maximum number of damaged segments of one number that are kept.
const MAX_ASIDE: u32 = 100;

/// One file of the journal.
#[derive(Clone, Copy, Debug)]
struct Segment {
    number: u32,
    bytes: u64,
    changes: u64,
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
        let mut changes = 0;
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
            changes += u64::from(matches!(frame.record, Record::Begin(_)));
            let location = Location {
                segment,
                at,
                length,
            };
            self.index.add(number, location, frame.record);
        }
        let bytes = self.cut_at.unwrap_or(bytes.len() as u64);
        self.segments.push_back(Segment {
            number: segment,
            bytes,
            changes,
        });
        Ok(())
    }
}

/// Renames all segments, so that the journal is empty. Returns the new paths.
pub(super) fn set_aside(folder: &Folder) -> io::Result<Vec<PathBuf>> {
    let dir = folder.directory();
    let mut kept = Vec::new();
    for number in numbers(folder)? {
        let name = name_of(number);
        let mut attempts = (1..=MAX_ASIDE).map(|attempt| {
            let mut aside = name.clone();
            aside.push(format!(".corrupt-{attempt}"));
            let renamed = renameat_with(dir, &name, dir, &aside, RenameFlags::NOREPLACE);
            renamed.map(|()| folder.place().with_file_name(aside))
        });
        let exists = |renamed: &Result<_, rustix::io::Errno>| {
            !matches!(renamed, Err(rustix::io::Errno::EXIST))
        };
        let renamed = attempts.find(exists);
        kept.push(renamed.ok_or(io::ErrorKind::AlreadyExists)??);
    }
    fsync(dir)?;
    Ok(kept)
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
        store.drop_old(now_ms);
        Ok(store)
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
        let Some(last) = self.segments.back_mut() else {
            return Err(JournalError::Broken);
        };
        let written = self.file.write_all(&frame).and_then(|()| {
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
        last.changes += u64::from(matches!(record, Record::Begin(_)));
        self.next += 1;
        self.index.add(number, location, record);
        Ok(ChangeId(number))
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

    /// Whether the next record needs another segment.
    pub(super) fn is_full(&self) -> bool {
        self.segments.back().is_some_and(|last| {
            last.bytes >= self.limits.bytes / SEGMENTS || last.changes >= MAX_CHANGES / SEGMENTS
        })
    }

    /// Begins another segment if the newest one is full.
    pub(super) fn rotate_if_full(&mut self, now_ms: u64) -> Result<(), JournalError> {
        let Some(last) = self.segments.back().filter(|_| self.is_full()) else {
            return Ok(());
        };
        if self.broken {
            return Err(JournalError::Broken);
        }
        let (segment, file) = create(self.lock.folder(), last.number + 1, self.limits.durable)?;
        self.file = file;
        self.segments.push_back(segment);
        self.drop_old(now_ms);
        Ok(())
    }

    /// Drops the oldest segments, as the limits require.
    fn drop_old(&mut self, now_ms: u64) {
        let oldest_ms = u64::try_from(self.limits.age.as_millis()).unwrap_or(u64::MAX);
        while self.segments.len() > 1
            && let Some(first) = self.segments.front().copied()
        {
            let bytes: u64 = self.segments.iter().map(|segment| segment.bytes).sum();
            let changes: u64 = self.segments.iter().map(|segment| segment.changes).sum();
            let newest = self.index.newest_in(first.number).unwrap_or_default();
            let expired = now_ms.saturating_sub(newest) > oldest_ms;
            if bytes <= self.limits.bytes && changes <= MAX_CHANGES && !expired {
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
    };
    Ok((segment, file))
}

/// All names that a journal uses in its directory, for messages.
pub(super) fn display(paths: &[PathBuf]) -> String {
    let names = paths.iter().filter_map(|path| path.file_name());
    let names: Vec<_> = names
        .map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned())
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::format::End;
    use super::*;

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
}
