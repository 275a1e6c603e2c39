//! Hash chain of audit records: seals events and checks lines.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::AuditEvent;
use super::verify::BreakReason;
use crate::effect::ContentHash;
use crate::text::is_deceptive;

/// Format version of records. Records of the first version have none.
pub(super) const FORMAT: u16 = 2;

/// Head of a chain, which the next record continues. The default is an empty chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The number of the next record; the first is 0.
    pub next: u64,
    /// The hash of the last record; zeros before the first.
    pub hash: ContentHash,
}

impl Default for Head {
    fn default() -> Self {
        Self {
            next: 0,
            hash: ContentHash::from_bytes([0; 32]),
        }
    }
}

/// A sealed event: with its time and its position in the chain. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub struct Record(Arc<Sealed>);

#[derive(Clone, Debug, PartialEq)]
struct Sealed {
    seal: Seal,
    event: AuditEvent,
}

/// The parts of a record that are computed from its event and the chain.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seal {
    seq: u64,
    at: u64,
    missed: u64,
    hash: ContentHash,
    line: String,
}

impl Seal {
    /// The record of the event that was sealed.
    pub(super) fn into_record(self, event: AuditEvent) -> Record {
        Record(Arc::new(Sealed { seal: self, event }))
    }
}

impl Record {
    /// Its number in the chain.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.0.seal.seq
    }

    /// When it was written, in milliseconds since 1970.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.0.seal.at
    }

    /// Returns how many events before this one were lost because the audit was full or failing. A call whose
    /// decision or effect could not be recorded in advance was rejected; other lost events, such as the end of a call,
    /// did happen.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.0.seal.missed
    }

    /// What happened.
    #[must_use]
    pub fn event(&self) -> &AuditEvent {
        &self.0.event
    }

    /// Hash over the previous record's hash and this record.
    #[must_use]
    pub fn hash(&self) -> ContentHash {
        self.0.seal.hash
    }

    /// The head of the chain after it.
    pub(super) fn head(&self) -> Head {
        Head {
            next: self.seq() + 1,
            hash: self.hash(),
        }
    }

    /// The event, of a record that was not stored.
    pub(super) fn into_event(self) -> AuditEvent {
        Arc::unwrap_or_clone(self.0).event
    }

    /// Returns the record as one line of JSON, without line break, with deceptive characters escaped.
    #[must_use]
    pub fn line(&self) -> &str {
        &self.0.seal.line
    }
}

#[derive(Serialize)]
struct Body<'e> {
    format: u16,
    seq: u64,
    at_ms: u64,
    #[serde(skip_serializing_if = "is_zero")]
    missed: u64,
    prev: ContentHash,
    event: &'e AuditEvent,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

const HASH_PREFIX: &str = ",\"hash\":\"";
const HASH_SUFFIX: &str = "\"}";
/// Bytes from the comma before `"hash"` to the end of the line.
const SEAL_LENGTH: usize = HASH_PREFIX.len() + 64 + HASH_SUFFIX.len();

impl Head {
    /// Seals `event` as the next record and advances the head.
    pub(super) fn seal(
        &mut self,
        at: u64,
        missed: u64,
        event: &AuditEvent,
    ) -> Result<Seal, serde_json::Error> {
        let seq = self.next;
        let body = Body {
            format: FORMAT,
            seq,
            at_ms: at,
            missed,
            prev: self.hash,
            event,
        };
        let mut line = json_line(&body)?;
        let hash = record_hash(&self.hash, line.as_bytes());
        line.pop();
        line.push_str(HASH_PREFIX);
        line.push_str(hash.hex(&mut [0; 64]));
        line.push_str(HASH_SUFFIX);
        *self = Self {
            next: seq + 1,
            hash,
        };
        Ok(Seal {
            seq,
            at,
            missed,
            hash,
            line,
        })
    }

    #[cfg(test)]
    pub(super) fn record(&mut self, at: u64, missed: u64, event: AuditEvent) -> Record {
        self.seal(at, missed, &event).unwrap().into_record(event)
    }
}

/// The hash of a record whose JSON, without its own hash, is `body`.
fn record_hash(prev: &ContentHash, body: &[u8]) -> ContentHash {
    let mut hasher = Sha256::new();
    hasher.update(prev.as_bytes());
    hasher.update(body);
    ContentHash::from_bytes(hasher.finalize().into())
}

/// Position of a line in the chain.
#[derive(Debug, Deserialize)]
pub(super) struct Link {
    pub(super) seq: u64,
    pub(super) prev: ContentHash,
    pub(super) hash: ContentHash,
}

impl Link {
    /// The head of the chain after it.
    pub(super) fn head(&self) -> Head {
        Head {
            next: self.seq.saturating_add(1),
            hash: self.hash,
        }
    }
}

/// Reads a line without its line break; its hash is checked against its content.
pub(super) fn read_line(line: &[u8]) -> Result<Link, BreakReason> {
    let found: Link = serde_json::from_slice(line).map_err(BreakReason::NotARecord)?;
    let (body, seal) = line
        .len()
        .checked_sub(SEAL_LENGTH)
        .and_then(|at| line.split_at_checked(at))
        .ok_or(BreakReason::Changed)?;
    let mut sealed = body.to_vec();
    sealed.push(b'}');
    let hash = record_hash(&found.prev, &sealed);
    let expected = format!("{HASH_PREFIX}{hash}{HASH_SUFFIX}");
    if expected.as_bytes() != seal || hash != found.hash {
        return Err(BreakReason::Changed);
    }
    Ok(found)
}

/// Returns `value` as one line of JSON with deceptive characters escaped, so that it is safe to print.
///
/// ```
/// assert_eq!(bailiwick::audit::json_line(&"a\u{202e}b\n")?, r#""a\u202eb\n""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Errors
/// [`serde_json::Error`] if the value cannot be serialised.
pub fn json_line(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let mut json = Vec::with_capacity(512);
    serde_json::to_writer(&mut json, value)?;
    let json = String::from_utf8(json).map_err(serde::ser::Error::custom)?;
    // Nearly every line is of printable ASCII characters. Looking at all bytes is faster than stopping at the first other one.
    let is_printable = |byte| matches!(byte, b' '..=b'~');
    if json
        .bytes()
        .fold(true, |all, byte| all & is_printable(byte))
    {
        return Ok(json);
    }
    Ok(with_escapes(&json))
}

/// Escapes the deceptive characters of compact JSON, in which they occur only inside strings.
fn with_escapes(json: &str) -> String {
    let mut line = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if is_deceptive(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(line, "\\u{unit:04x}");
            }
        } else {
            line.push(c);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::tests::failed;

    #[test]
    fn deceptive_characters_are_escaped_and_none_is_lost() {
        let hostile: String = (0..0xa0)
            .chain([
                0xad, 0x200b, 0x200f, 0x2028, 0x202e, 0x2066, 0xfeff, 0xe0041,
            ])
            .filter_map(char::from_u32)
            .chain("é日🦀\"\\".chars())
            .collect();
        let record = Head::default().record(0, 0, failed(&hostile));
        assert!(!record.line().chars().any(is_deceptive));
        let json: serde_json::Value = serde_json::from_str(record.line()).unwrap();
        assert_eq!(json["event"]["message"], hostile);
    }

    #[test]
    fn record_line_has_event_position_and_previous_hash() {
        let mut head = Head::default();
        let first = head.record(7, 0, failed("a"));
        let second = head.record(8, 2, failed("b"));
        let json: serde_json::Value = serde_json::from_str(second.line()).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "format": 2, "seq": 1, "at_ms": 8, "missed": 2, "prev": first.hash(),
                "event": {
                    "worker": 1, "agent": "main", "call": 2, "tool": "edit_file", "origin": "model",
                    "step": "failed", "code": "NOT_FOUND", "message": "b",
                },
                "hash": second.hash(),
            })
        );
        assert_eq!(
            head,
            Head {
                next: 2,
                hash: second.hash()
            }
        );
    }
}
