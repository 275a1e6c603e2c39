//! The lines of an audit in, the head of an unbroken chain out; or the first line that breaks it.

use std::io::{self, BufRead, Read as _};

use super::chain::{Head, read_line};

/// The longest line that is read; a record is far shorter.
pub(super) const MAX_LINE: u64 = 16 << 20;

/// An unbroken chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// How many records it has.
    pub records: u64,
    /// Where it ends. Lines cut off at the end leave a shorter unbroken chain, which only a head noted
    /// elsewhere tells from the whole.
    pub head: Head,
}

/// Where a chain breaks, and why.
#[derive(Debug, thiserror::Error)]
#[error("the audit breaks at line {line}")]
pub struct AuditBroken {
    /// The line, beginning with 1.
    pub line: u64,
    /// Why.
    #[source]
    pub reason: BreakReason,
}

/// Why a chain breaks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BreakReason {
    /// The file ends within this line: the writer died, and nothing after it was written.
    #[error("the last line is torn")]
    Torn,
    /// The line is no record.
    #[error("the line is no record")]
    NotARecord(#[source] serde_json::Error),
    /// The line is longer than any record.
    #[error("the line is too long")]
    TooLong,
    /// Lines before this one were removed, or others put in, or the order changed.
    #[error("record {found} stands where record {expected} belongs")]
    Order {
        /// The number that belongs here.
        expected: u64,
        /// The number found.
        found: u64,
    },
    /// The line does not continue the one before it.
    #[error("the record does not continue the one before it")]
    Detached,
    /// The line is not what was written.
    #[error("the record was changed")]
    Changed,
    /// The lines cannot be read.
    #[error("cannot read the audit")]
    Read(#[source] io::Error),
}

/// Follows a chain from its beginning to its end.
///
/// # Errors
/// [`AuditBroken`] for a changed, removed, reordered, inserted or torn line.
///
/// ```
/// let nothing = bailiwick::verify(std::io::empty())?;
/// assert_eq!(nothing.records, 0);
/// # Ok::<(), bailiwick::AuditBroken>(())
/// ```
pub fn verify(mut reader: impl BufRead) -> Result<Verified, AuditBroken> {
    let mut head = Head::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let broken = |reason| AuditBroken {
            line: head.next + 1,
            reason,
        };
        let length = reader
            .by_ref()
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)
            .map_err(|error| broken(BreakReason::Read(error)))?;
        if length == 0 {
            return Ok(Verified {
                records: head.next,
                head,
            });
        }
        head = follow(head, &line).map_err(broken)?;
    }
}

/// The head after `line`, if it continues `head`.
fn follow(head: Head, line: &[u8]) -> Result<Head, BreakReason> {
    let Some(line) = line.strip_suffix(b"\n") else {
        return Err(if line.len() as u64 == MAX_LINE {
            BreakReason::TooLong
        } else {
            BreakReason::Torn
        });
    };
    let link = read_line(line)?;
    if link.seq != head.next {
        return Err(BreakReason::Order {
            expected: head.next,
            found: link.seq,
        });
    }
    if link.prev != head.hash {
        return Err(BreakReason::Detached);
    }
    Ok(Head {
        next: head.next + 1,
        hash: link.hash,
    })
}
