//! The lines of an audit in, the head of an unbroken chain out; or the first line that breaks it.

use std::io::{self, BufRead, Read as _};

use super::chain::{Head, read_line};

/// The longest line that is read; a record is far shorter.
const MAX_LINE: u64 = 16 << 20;

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
pub fn verify(reader: impl BufRead) -> Result<Verified, AuditBroken> {
    let end = follow_all(reader)?;
    if end.torn.is_empty() {
        Ok(Verified {
            records: end.head.next,
            head: end.head,
        })
    } else {
        Err(AuditBroken {
            line: end.head.next + 1,
            reason: BreakReason::Torn,
        })
    }
}

/// Where the whole lines of an unbroken chain end.
#[derive(Debug)]
pub(super) struct End {
    pub(super) head: Head,
    /// Bytes of all whole lines.
    pub(super) intact: u64,
    /// What follows them: a line that a crash cut off.
    pub(super) torn: Vec<u8>,
}

/// Follows a chain to its last whole line.
pub(super) fn follow_all(mut reader: impl BufRead) -> Result<End, AuditBroken> {
    let (mut head, mut intact) = (Head::default(), 0);
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
        match line.strip_suffix(b"\n") {
            Some(whole) => head = follow(head, whole).map_err(broken)?,
            None if length as u64 == MAX_LINE => return Err(broken(BreakReason::TooLong)),
            None => {
                return Ok(End {
                    head,
                    intact,
                    torn: line,
                });
            }
        }
        intact += length as u64;
    }
}

/// The head after `line`, if it continues `head`.
fn follow(head: Head, line: &[u8]) -> Result<Head, BreakReason> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::tests::refused;
    use crate::cases::cases;
    use proptest::prelude::*;

    fn chain(length: u64) -> (Vec<String>, Head) {
        let mut head = Head::default();
        let lines = (0..length)
            .map(|n| head.seal(n, 0, refused(&format!("message {n}"))).unwrap())
            .map(|record| format!("{}\n", record.line()))
            .collect();
        (lines, head)
    }

    #[track_caller]
    fn check(lines: &[String], line: u64, expected: fn(&BreakReason) -> bool) {
        let broken = verify(lines.concat().as_bytes()).unwrap_err();
        assert!(
            broken.line == line && expected(&broken.reason),
            "{broken:?}"
        );
    }

    #[test]
    fn an_unbroken_chain_is_followed_to_its_head() {
        let (lines, head) = chain(5);
        let verified = verify(lines.concat().as_bytes()).unwrap();
        assert_eq!(verified, Verified { records: 5, head });
    }

    #[test]
    fn a_changed_line_breaks_the_chain() {
        let (mut lines, _) = chain(5);
        lines[2] = lines[2].replace("message 2", "message 9");
        check(&lines, 3, |reason| matches!(reason, BreakReason::Changed));
    }

    #[test]
    fn a_removed_repeated_or_moved_line_breaks_the_chain() {
        let (lines, _) = chain(5);
        let order = |reason: &BreakReason| matches!(reason, BreakReason::Order { .. });
        let mut removed = lines.clone();
        removed.remove(0);
        check(&removed, 1, order);
        let mut repeated = lines.clone();
        repeated.insert(3, lines[1].clone());
        check(&repeated, 4, order);
        let mut moved = lines;
        moved.swap(1, 2);
        check(&moved, 2, order);
    }

    #[test]
    fn a_line_sealed_onto_another_chain_is_detached() {
        let (mut lines, _) = chain(2);
        let mut other = Head::default();
        for n in 0..2 {
            other.seal(n, 0, refused("other")).unwrap();
        }
        let foreign = other.seal(2, 0, refused("foreign")).unwrap();
        lines.push(format!("{}\n", foreign.line()));
        check(&lines, 3, |reason| matches!(reason, BreakReason::Detached));
    }

    #[test]
    fn a_torn_last_line_is_told_from_a_changed_one() {
        let (mut lines, _) = chain(3);
        let half = lines[2].len() / 2;
        lines[2].truncate(half);
        check(&lines, 3, |reason| matches!(reason, BreakReason::Torn));
        lines[2].push('\n');
        check(&lines, 3, |reason| {
            matches!(reason, BreakReason::NotARecord(_))
        });
    }

    proptest! {
        #![proptest_config(cases(256))]
        #[test]
        fn no_changed_byte_goes_unseen(at in 0usize..10_000, with in any::<u8>()) {
            let (lines, _) = chain(4);
            let mut bytes = lines.concat().into_bytes();
            let at = at % bytes.len();
            prop_assume!(bytes[at] != with);
            bytes[at] = with;
            prop_assert!(verify(bytes.as_slice()).is_err());
        }

        #[test]
        fn a_cut_leaves_a_shorter_chain_or_a_break(at in 0usize..10_000) {
            let (lines, _) = chain(4);
            let bytes = lines.concat().into_bytes();
            let at = at % bytes.len();
            let whole = bytes[..at].iter().filter(|byte| **byte == b'\n').count() as u64;
            match verify(&bytes[..at]) {
                Ok(verified) => prop_assert!(verified.records == whole && whole < 4),
                Err(broken) => prop_assert!(broken.line == whole + 1 && matches!(broken.reason, BreakReason::Torn)),
            }
        }
    }
}
