//! Format of the journal: segments of checksummed frames, each with one record.
//!
//! A segment begins with [`MAGIC`]. A frame is a header, the record as JSON and opaque bytes. The header has a checksum of
//! its own, so a frame that was cut off by a crash can be told from one whose length was changed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{ChangeId, JournalChange};
use crate::id::{CallId, WorkerId};

/// The first bytes of a segment, with the version of the format.
pub(super) const MAGIC: &[u8] = b"bailiwick-journal 1\n";
/// What the first line of every version begins with.
pub(super) const ANY_VERSION: &[u8] = b"bailiwick-journal ";

/// Length, number and hash of the payload, and the first bytes of their hash.
const HEADER: usize = 4 + 8 + 32 + 4;
/// Maximum size of a payload in bytes.
pub(super) const MAX_PAYLOAD: usize = 1 << 30;

/// One record of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "record")]
pub(super) enum Record {
    /// A call is about to change something. The number of its frame identifies the change.
    Begin(Begin),
    /// A change has ended.
    End { change: ChangeId, end: End },
}

/// A change that is about to begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begin {
    /// The runtime that made it, as a random number.
    pub(super) run: u64,
    pub(super) call: CallId,
    pub(super) worker: WorkerId,
    /// The ancestors of the worker, from the nearest to the outermost.
    pub(super) lineage: Arc<[WorkerId]>,
    pub(super) agent: Arc<str>,
    pub(super) tool: Arc<str>,
    pub(super) intent: Arc<str>,
    /// In milliseconds since 1970.
    pub(super) at_ms: u64,
    pub(super) changes: Arc<[JournalChange]>,
    /// The changes that this one undoes.
    pub(super) undoes: Vec<ChangeId>,
    /// Whether the frame has the bytes that undo it.
    pub(super) can_be_undone: bool,
}

/// How a change ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "as")]
pub(super) enum End {
    /// It was made completely.
    Applied,
    /// Nothing was changed.
    NotApplied,
    /// A part of it was made.
    Failed,
    /// It was taken back.
    RolledBack,
    /// A part of it remains, since others changed these files.
    Conflict { paths: Vec<String> },
}

/// Why a segment cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Damage {
    #[error("it does not begin with `bailiwick-journal`")]
    Foreign,
    #[error("format version `{0}` is not supported")]
    Version(String),
    #[error("the header of the record at byte {0} is damaged")]
    Header(u64),
    #[error("the record at byte {0} is damaged")]
    Payload(u64),
    #[error("the record at byte {at} is number {found}, expected {expected}")]
    Order { at: u64, found: u64, expected: u64 },
    #[error("the record at byte {0} is cut off")]
    CutOff(u64),
}

/// A frame without its number, which the writer adds.
#[derive(Debug)]
pub(super) struct Payload {
    bytes: Vec<u8>,
    hash: [u8; 32],
}

impl Payload {
    /// The record with opaque bytes; `None` if that is too large.
    pub(super) fn of(record: &Record, opaque: &[u8]) -> Option<Self> {
        let json = serde_json::to_vec(record).ok()?;
        let length = u32::try_from(json.len()).ok()?;
        let bytes = [&length.to_le_bytes(), json.as_slice(), opaque].concat();
        let hash = Sha256::digest(&bytes).into();
        (bytes.len() <= MAX_PAYLOAD).then_some(Self { bytes, hash })
    }

    /// The frame with this number.
    pub(super) fn frame(&self, number: u64) -> Vec<u8> {
        // The payload is bounded by `MAX_PAYLOAD`.
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let mut frame = Vec::with_capacity(HEADER + self.bytes.len());
        frame.extend_from_slice(&length.to_le_bytes());
        frame.extend_from_slice(&number.to_le_bytes());
        frame.extend_from_slice(&self.hash);
        let check = header_check(&frame);
        frame.extend_from_slice(&check);
        frame.extend_from_slice(&self.bytes);
        frame
    }
}

fn header_check(header: &[u8]) -> [u8; 4] {
    let hash: [u8; 32] = Sha256::digest(header).into();
    let [a, b, c, d, ..] = hash;
    [a, b, c, d]
}

/// One frame of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame<'s> {
    pub(super) number: u64,
    /// Where it begins in the segment.
    pub(super) at: u64,
    pub(super) length: u64,
    pub(super) record: Record,
    pub(super) opaque: &'s [u8],
}

/// The frames of a segment, in order.
#[derive(Debug)]
pub(super) struct Frames<'s> {
    segment: &'s [u8],
    at: usize,
}

impl<'s> Frames<'s> {
    /// # Errors
    /// [`Damage::Foreign`] or [`Damage::Version`]. An empty segment has no frames.
    pub(super) fn of(segment: &'s [u8]) -> Result<Self, Damage> {
        let at = MAGIC.len().min(segment.len());
        if segment.starts_with(MAGIC) || MAGIC.starts_with(segment) {
            return Ok(Self { segment, at });
        }
        let Some(version) = segment.strip_prefix(ANY_VERSION) else {
            return Err(Damage::Foreign);
        };
        let version = version.split(|byte| *byte == b'\n').next();
        let version = version.unwrap_or_default().iter().take(16);
        let version: String = version.map(|byte| char::from(*byte)).collect();
        Err(Damage::Version(crate::text::escape(&version).into()))
    }

    /// Reads one frame; `None` at the end. [`Damage::CutOff`] means that the segment ends within a frame.
    pub(super) fn next(&mut self) -> Result<Option<Frame<'s>>, Damage> {
        let at = self.at as u64;
        let rest = self.segment.get(self.at..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let Some((header, rest)) = rest.split_at_checked(HEADER) else {
            return Err(Damage::CutOff(at));
        };
        let header_of = |from: usize, to: usize| header.get(from..to).unwrap_or_default();
        let (checked, check) = (header_of(0, HEADER - 4), header_of(HEADER - 4, HEADER));
        let length = u32::from_le_bytes(header_of(0, 4).try_into().unwrap_or_default());
        let number = u64::from_le_bytes(header_of(4, 12).try_into().unwrap_or_default());
        if header_check(checked) != check || length as usize > MAX_PAYLOAD {
            return Err(Damage::Header(at));
        }
        let Some(payload) = rest.get(..length as usize) else {
            return Err(Damage::CutOff(at));
        };
        let hash: [u8; 32] = Sha256::digest(payload).into();
        if hash != header_of(12, 44) {
            return Err(Damage::Payload(at));
        }
        let (record, opaque) = parse(payload).ok_or(Damage::Payload(at))?;
        let length = HEADER + payload.len();
        self.at += length;
        Ok(Some(Frame {
            number,
            at,
            length: length as u64,
            record,
            opaque,
        }))
    }
}

fn parse(payload: &[u8]) -> Option<(Record, &[u8])> {
    let (length, rest) = payload.split_at_checked(4)?;
    let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
    let (json, opaque) = rest.split_at_checked(length)?;
    Some((serde_json::from_slice(json).ok()?, opaque))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::cases;
    use proptest::prelude::*;

    fn records() -> impl Strategy<Value = Vec<(Record, Vec<u8>)>> {
        let end = prop_oneof![
            Just(End::Applied),
            Just(End::NotApplied),
            Just(End::Failed),
            Just(End::RolledBack),
            Just(End::Conflict {
                paths: vec!["/r/a".to_owned()]
            }),
        ];
        let change = any::<u64>().prop_map(ChangeId);
        let begin = (any::<u64>(), any::<u64>(), ".{0,20}", any::<bool>());
        let record = prop_oneof![
            begin.prop_map(|(run, call, agent, can_be_undone)| Record::Begin(Begin {
                run,
                call: CallId(call),
                worker: WorkerId(7),
                lineage: [WorkerId(1)].into(),
                agent: agent.into(),
                tool: "write_file".into(),
                intent: "Write a file".into(),
                at_ms: 5,
                changes: Vec::new().into(),
                undoes: vec![ChangeId(3)],
                can_be_undone,
            })),
            (change, end).prop_map(|(change, end)| Record::End { change, end }),
        ];
        let opaque = proptest::collection::vec(any::<u8>(), 0..50);
        proptest::collection::vec((record, opaque), 0..6)
    }

    fn segment(records: &[(Record, Vec<u8>)]) -> Vec<u8> {
        let mut segment = MAGIC.to_vec();
        for (number, (record, opaque)) in (1..).zip(records) {
            segment.extend(Payload::of(record, opaque).unwrap().frame(number));
        }
        segment
    }

    fn read(segment: &[u8]) -> Result<Vec<(Record, Vec<u8>)>, Damage> {
        let mut frames = Frames::of(segment)?;
        let mut found = Vec::new();
        while let Some(frame) = frames.next()? {
            assert_eq!(frame.number, found.len() as u64 + 1);
            found.push((frame.record, frame.opaque.to_vec()));
        }
        Ok(found)
    }

    proptest! {
        #![proptest_config(cases(256))]

        #[test]
        fn records_are_read_as_written(records in records()) {
            prop_assert_eq!(read(&segment(&records)), Ok(records));
        }

        #[test]
        fn any_changed_byte_of_a_journal_is_detected(
            records in records(),
            at in any::<proptest::sample::Index>(),
            flip in 1..=u8::MAX,
        ) {
            let mut segment = segment(&records);
            let at = at.index(segment.len());
            segment[at] ^= flip;
            let damage = read(&segment).unwrap_err();
            prop_assert!(!matches!(damage, Damage::CutOff(_)), "{damage}");
        }

        #[test]
        fn journal_cut_at_any_byte_keeps_the_records_before(
            records in records(),
            at in any::<proptest::sample::Index>(),
        ) {
            let whole = segment(&records);
            let cut = &whole[..at.index(whole.len() + 1)];
            let mut frames = Frames::of(cut).unwrap();
            let mut found = Vec::new();
            let end = loop {
                match frames.next() {
                    Ok(Some(frame)) => found.push(frame.record),
                    Ok(None) => break None,
                    Err(damage) => break Some(damage),
                }
            };
            let expected: Vec<&Record> = records.iter().map(|(record, _)| record).collect();
            prop_assert_eq!(found.iter().collect::<Vec<_>>(), &expected[..found.len()]);
            prop_assert!(matches!(end, None | Some(Damage::CutOff(_))));
        }
    }

    #[test]
    fn other_versions_and_files_are_not_read() {
        let version = Frames::of(b"bailiwick-journal 9\nx").unwrap_err();
        assert_eq!(version, Damage::Version("9".to_owned()));
        assert_eq!(Frames::of(b"text\n").unwrap_err(), Damage::Foreign);
        assert!(Frames::of(b"").unwrap().next().unwrap().is_none());
    }
}
