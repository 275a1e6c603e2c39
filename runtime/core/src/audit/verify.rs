//! Verifies the hash chain of an audit.

use std::io::{self, BufRead, Read as _};

use super::chain::{Head, read_line};

/// Maximum length of a line; records are far shorter.
pub(super) const MAX_LINE: u64 = 16 << 20;

/// An unbroken chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// How many records it has.
    pub records: u64,
    /// How many files it has: 1, or with [`verify_file`](super::verify_file) also the segments.
    pub files: u32,
    /// Its head. A truncated file is still an unbroken chain, so truncation is detected only by comparing the head with
    /// one stored elsewhere.
    pub head: Head,
}

/// Where a chain breaks, and why.
#[derive(Debug, thiserror::Error)]
#[error("the audit breaks at line {line}")]
pub struct AuditBroken {
    /// The line number, from 1.
    pub line: u64,
    /// The reason.
    #[source]
    pub reason: BreakReason,
}

/// Why a chain breaks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BreakReason {
    /// The file ends within this line, because the writer was killed.
    #[error("the last line is torn")]
    Torn,
    /// The line is not a record.
    #[error("the line is not a valid record")]
    NotARecord(#[source] serde_json::Error),
    /// The record is one of a later version of this library.
    #[error("the record has format {found}, which this version cannot read")]
    NewerFormat {
        /// The version of its format.
        found: u16,
    },
    /// The line is too long.
    #[error("the line is too long")]
    TooLong,
    /// Lines before this one were removed, inserted or reordered.
    #[error("expected record {expected}, found record {found}")]
    Order {
        /// The expected number.
        expected: u64,
        /// The actual number.
        found: u64,
    },
    /// The line does not continue the previous one.
    #[error("the record does not match the hash of the previous record")]
    Detached,
    /// The line was changed.
    #[error("the record was changed")]
    Changed,
    /// The lines cannot be read.
    #[error("cannot read the audit")]
    Read(#[source] io::Error),
}

/// Verifies a chain from its beginning to its end.
///
/// # Errors
/// [`AuditBroken`] for a changed, removed, reordered, inserted or torn line.
///
/// ```
/// let nothing = bailiwick::audit::verify(std::io::empty())?;
/// assert_eq!(nothing.records, 0);
/// # Ok::<(), bailiwick::audit::AuditBroken>(())
/// ```
pub fn verify(reader: impl BufRead) -> Result<Verified, AuditBroken> {
    walk(Head::default(), reader, |_, _| Ok(()))?.whole()
}

/// End of the complete lines of an unbroken chain.
#[derive(Debug)]
#[doc(hidden)]
pub struct End {
    #[doc(hidden)]
    pub records: u64,
    pub(crate) head: Head,
    /// Bytes of all complete lines.
    #[doc(hidden)]
    pub intact: u64,
    /// The incomplete line after them, from a crash or a concurrent write.
    #[doc(hidden)]
    pub torn: Vec<u8>,
}

impl End {
    pub(super) fn whole(self) -> Result<Verified, AuditBroken> {
        if self.torn.is_empty() {
            return Ok(Verified {
                records: self.records,
                files: 1,
                head: self.head,
            });
        }
        Err(AuditBroken {
            line: self.records + 1,
            reason: BreakReason::Torn,
        })
    }
}

/// Verifies one of several files of an audit: it continues the chain that ended in `before`, or begins a new one.
///
/// # Errors
/// [`AuditBroken`], as from [`verify`], and for a file that neither continues the chain nor begins a new one.
///
/// ```
/// let first = bailiwick::audit::verify(std::io::empty())?;
/// let second = bailiwick::audit::verify_after(first.head, std::io::empty())?;
/// assert_eq!(second.head, first.head);
/// # Ok::<(), bailiwick::audit::AuditBroken>(())
/// ```
pub fn verify_after(before: Head, reader: impl BufRead) -> Result<Verified, AuditBroken> {
    follow(before, reader, |_, _| Ok(()))
}

/// Like [`verify_after`], and passes the number and the line of each verified record to a callback.
pub(crate) fn follow(
    before: Head,
    mut reader: impl BufRead,
    on_record: impl FnMut(u64, &[u8]) -> Result<(), BreakReason>,
) -> Result<Verified, AuditBroken> {
    let mut first = Vec::new();
    read(&mut reader, &mut first).map_err(|reason| AuditBroken { line: 1, reason })?;
    let whole = first.strip_suffix(b"\n");
    let begins = whole.is_some_and(|line| read_line(line).is_ok_and(|link| link.seq == 0));
    let head = if begins { Head::default() } else { before };
    walk(head, first.as_slice().chain(reader), on_record)?.whole()
}

/// Verifies lines that continue `head`, and passes the number and the line of each to a callback.
pub(crate) fn walk(
    mut head: Head,
    mut reader: impl BufRead,
    mut on_record: impl FnMut(u64, &[u8]) -> Result<(), BreakReason>,
) -> Result<End, AuditBroken> {
    let (mut records, mut intact) = (0, 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        let broken = |reason| AuditBroken {
            line: records + 1,
            reason,
        };
        read(&mut reader, &mut line).map_err(broken)?;
        let Some(whole) = line.strip_suffix(b"\n") else {
            if line.len() as u64 == MAX_LINE {
                return Err(broken(BreakReason::TooLong));
            }
            return Ok(End {
                records,
                head,
                intact,
                torn: line,
            });
        };
        let seq = head.next;
        head = next(head, whole).map_err(broken)?;
        on_record(seq, &line).map_err(broken)?;
        records += 1;
        intact += line.len() as u64;
    }
}

/// Reads the next line with its line break, up to the maximum length of a record.
fn read(reader: &mut impl BufRead, line: &mut Vec<u8>) -> Result<(), BreakReason> {
    reader
        .by_ref()
        .take(MAX_LINE)
        .read_until(b'\n', line)
        .map(drop)
        .map_err(BreakReason::Read)
}

/// The head after `line`, if it continues `head`.
fn next(head: Head, line: &[u8]) -> Result<Head, BreakReason> {
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
    Ok(link.head())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::tests::failed;
    use crate::cases::cases;
    use proptest::prelude::*;

    fn chain(length: u64) -> (Vec<String>, Head) {
        let mut head = Head::default();
        let lines = (0..length)
            .map(|n| head.record(n, 0, failed(&format!("message {n}"))))
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
    fn unbroken_chain_is_verified_to_its_head() {
        let (lines, head) = chain(5);
        let verified = verify(lines.concat().as_bytes()).unwrap();
        assert_eq!(
            verified,
            Verified {
                records: 5,
                files: 1,
                head
            }
        );
    }

    #[test]
    fn changed_line_breaks_the_chain() {
        let (mut lines, _) = chain(5);
        lines[2] = lines[2].replace("message 2", "message 9");
        check(&lines, 3, |reason| matches!(reason, BreakReason::Changed));
    }

    #[test]
    fn removed_repeated_or_moved_line_breaks_the_chain() {
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
    fn line_of_another_chain_is_detached() {
        let (mut lines, _) = chain(2);
        let mut other = Head::default();
        for n in 0..2 {
            other.record(n, 0, failed("other"));
        }
        let foreign = other.record(2, 0, failed("foreign"));
        lines.push(format!("{}\n", foreign.line()));
        check(&lines, 3, |reason| matches!(reason, BreakReason::Detached));
    }

    #[test]
    fn second_file_continues_the_first_or_begins_a_chain() {
        let (lines, head) = chain(5);
        let (first, second) = lines.split_at(2);
        let before = verify(first.concat().as_bytes()).unwrap().head;
        let continued = verify_after(before, second.concat().as_bytes()).unwrap();
        assert_eq!(
            continued,
            Verified {
                records: 3,
                files: 1,
                head
            }
        );
        let own = verify_after(before, lines.concat().as_bytes()).unwrap();
        assert_eq!(
            own,
            Verified {
                records: 5,
                files: 1,
                head
            }
        );
        let alone = verify_after(Head::default(), second.concat().as_bytes()).unwrap_err();
        assert!(matches!(
            (alone.line, alone.reason),
            (1, BreakReason::Order { .. })
        ));
        let gap = verify_after(before, second[1..].concat().as_bytes()).unwrap_err();
        assert!(matches!(
            (gap.line, gap.reason),
            (1, BreakReason::Order { .. })
        ));
    }

    #[test]
    fn torn_last_line_differs_from_a_changed_one() {
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
        fn any_changed_byte_breaks_the_chain(at in 0usize..10_000, with in any::<u8>()) {
            let (lines, _) = chain(4);
            let mut bytes = lines.concat().into_bytes();
            let at = at % bytes.len();
            prop_assume!(bytes[at] != with);
            bytes[at] = with;
            prop_assert!(verify(bytes.as_slice()).is_err());
        }

        #[test]
        fn truncation_leaves_a_shorter_or_broken_chain(at in 0usize..10_000) {
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
