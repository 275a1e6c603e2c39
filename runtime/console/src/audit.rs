//! Incremental reader of an audit log for the console.

use std::collections::BTreeSet;
use std::io::{self, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;

use crate::request::HistoryQuery;
use bailiwick::audit::{AuditBroken, BreakReason, MemoryAudit, open_segment, without_gap};
use bailiwick::permission::{GrantUse, History, HistoryEntry, HistoryEvent, Tally};
use bailiwick::tool::ToolName;

/// Entries per page.
const PAGE_SIZE: usize = 100;

/// Location of a runtime's audit log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ConsoleAudit {
    /// In memory, with the events that it still holds.
    Memory(MemoryAudit),
    /// A file of JSON lines and the segments that were rotated before it.
    File(PathBuf),
}

/// Result of verifying the hash chain of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub(super) enum ChainStatus {
    /// Every record continues the previous one.
    Verified { records: u64 },
    /// The last line is incomplete and may still be being written; all others are verified.
    Torn { records: u64 },
    /// All newly read records continue the chain; `earlier` records were not read again.
    Continued { records: u64, earlier: u64 },
    /// Record number `record`, counted from 1, breaks the chain. It and later records are not shown.
    Broken { record: u64, reason: String },
    /// The first records are no longer kept, so the chain cannot be verified.
    Partial { records: u64 },
}

impl ChainStatus {
    /// Message for people.
    fn message(&self) -> String {
        match self {
            Self::Verified { records } => {
                format!(
                    "✓ The audit log is intact: {records} records, each continues the one before."
                )
            }
            Self::Torn { records } => format!(
                "The audit log is intact except for its last line, which may be about to be written: {records} records."
            ),
            Self::Continued { records, earlier } => {
                let new = records.saturating_sub(*earlier);
                format!(
                    "{new} new records continue the audit log. The {earlier} before them were not read again: \"Check again\" reads all {records}."
                )
            }
            Self::Broken { record, reason } => format!(
                "✗ The audit log is broken at record {record}: {reason}. Nothing from there on is shown."
            ),
            Self::Partial { records } => {
                format!(
                    "The beginning of the audit log is not kept, so it cannot be verified: {records} records."
                )
            }
        }
    }
}

/// One page of the history.
#[derive(Debug, Serialize)]
pub(super) struct HistoryPage {
    chain: ChainStatus,
    /// Message for [`Self::chain`].
    words: String,
    /// Newest first.
    entries: Vec<HistoryEntry>,
    /// Number of matching entries on all pages.
    total: usize,
    tally: Tally,
    unused: Vec<GrantUse>,
    /// Values that the page offers as filters.
    agents: BTreeSet<Arc<str>>,
    tools: BTreeSet<String>,
    sessions: BTreeSet<Arc<str>>,
    runs: BTreeSet<u64>,
}

/// State of reading an audit log incrementally.
#[derive(Debug, Default)]
pub(super) struct AuditReader {
    history: History,
    records: u64,
    /// Number of rotated segments that were read.
    finished: u32,
    /// Bytes of complete lines read from the current file.
    end: u64,
    /// Length and modification time of the current file when it was last read.
    file_stamp: Option<(u64, SystemTime)>,
    /// The next read starts from the beginning.
    must_restart: bool,
}

impl ConsoleAudit {
    /// Reads what was added since the last read, or everything if the file was rewritten or `restart` is set. Blocks.
    ///
    /// # Errors
    /// I/O errors.
    pub(super) fn read<'r>(
        &self,
        reader: &'r mut AuditReader,
        restart: bool,
    ) -> io::Result<(&'r History, ChainStatus)> {
        let chain = match self {
            Self::File(audit) => {
                if restart || reader.must_restart {
                    *reader = AuditReader::default();
                }
                reader.read_more(audit)?
            }
            Self::Memory(audit) => {
                reader.history = History::new();
                read_memory(audit, &mut reader.history)?
            }
        };
        Ok((&reader.history, chain))
    }
}

impl AuditReader {
    /// Whether the file changed other than by growing.
    fn is_rewritten(&self, (length, changed): (u64, SystemTime)) -> bool {
        let as_long = |was: (u64, SystemTime)| was.0 == length && was.1 != changed;
        length < self.end || self.file_stamp.is_some_and(as_long)
    }

    /// Reads the rest of the current file and the files that continue it.
    fn read_more(&mut self, audit: &Path) -> io::Result<ChainStatus> {
        let mut earlier = self.records;
        loop {
            let next = open_segment(audit, self.finished + 1).map_err(io::Error::other)?;
            let Some(mut next) = next else {
                // An earlier segment may be missing.
                return Ok(match without_gap(audit) {
                    Ok(()) => self.chain(earlier, true),
                    Err(error) => ChainStatus::Broken {
                        record: self.records + 1,
                        reason: bailiwick::text::escape(&error.to_string()).into_owned(),
                    },
                });
            };
            let found = next.file.metadata()?;
            let file_stamp = (found.len(), found.modified()?);
            if self.is_rewritten(file_stamp) {
                (*self, earlier) = (Self::default(), 0);
                continue;
            }
            self.file_stamp = Some(file_stamp);
            next.file.seek(SeekFrom::Start(self.end))?;
            // The records that it read before the failure would be added twice.
            self.must_restart = true;
            let end = match self.history.read_on(BufReader::new(next.file)) {
                Ok(end) if end.torn.is_empty() || !next.finished => end,
                // The path may refer to a different file now.
                Ok(_) | Err(_) if earlier > 0 => {
                    (*self, earlier) = (Self::default(), 0);
                    continue;
                }
                Ok(end) => {
                    let line = self.records + end.records + 1;
                    return broken(line, BreakReason::Torn);
                }
                Err(AuditBroken { line, reason }) => return broken(self.records + line, reason),
            };
            self.must_restart = false;
            self.records += end.records;
            if !next.finished {
                self.end += end.intact;
                return Ok(self.chain(earlier, end.torn.is_empty()));
            }
            self.finished += 1;
            (self.end, self.file_stamp) = (0, None);
        }
    }

    /// The chain status when `earlier` records were read before.
    fn chain(&self, earlier: u64, complete: bool) -> ChainStatus {
        let records = self.records;
        match (earlier, complete) {
            (0, true) => ChainStatus::Verified { records },
            (0, false) => ChainStatus::Torn { records },
            (earlier, _) => ChainStatus::Continued { records, earlier },
        }
    }
}
/// Reads an audit log in memory.
fn read_memory(audit: &MemoryAudit, history: &mut History) -> io::Result<ChainStatus> {
    let records = audit.records();
    let count = records.len() as u64;
    if records.first().is_none_or(|first| first.seq() == 0) {
        let lines: String = records
            .iter()
            .map(|record| record.line().to_owned() + "\n")
            .collect();
        return match history.read(lines.as_bytes()) {
            Ok(verified) => Ok(ChainStatus::Verified {
                records: verified.records,
            }),
            Err(AuditBroken { line, reason }) => broken(line, reason),
        };
    }
    for (record, line) in records.iter().zip(1..) {
        if let Err(reason) = history.add(record) {
            return broken(line, reason);
        }
    }
    Ok(ChainStatus::Partial { records: count })
}

fn broken(record: u64, reason: BreakReason) -> io::Result<ChainStatus> {
    match reason {
        BreakReason::Read(error) => Err(error),
        reason => Ok(ChainStatus::Broken {
            record,
            reason: bailiwick::text::escape(&reason.to_string()).into_owned(),
        }),
    }
}

/// The page of the history that `query` selects.
pub(super) fn page(history: &History, chain: ChainStatus, query: &HistoryQuery) -> HistoryPage {
    let filter = query.filter();
    let is_selected = |entry: &&HistoryEntry| {
        filter.admits(entry) && query.run.is_none_or(|run| entry.run == run)
    };
    let all: Vec<&HistoryEntry> = history.entries().filter(is_selected).collect();
    let entries = || history.entries();
    let agents = entries().map(|entry| Arc::clone(&entry.agent));
    let tools = entries().filter_map(|entry| entry.tool.as_ref());
    let tools: BTreeSet<&str> = tools.map(ToolName::as_str).collect();
    let sessions: BTreeSet<Arc<str>> = entries()
        .filter_map(|entry| entry.session.clone())
        .collect();
    let runs: BTreeSet<u64> = entries().map(|entry| entry.run).collect();
    let agents: BTreeSet<Arc<str>> = agents.filter(|agent| !agent.is_empty()).collect();
    let report = history.report(&filter);
    HistoryPage {
        words: chain.message(),
        chain,
        total: all.len(),
        tally: tally(&all),
        unused: report
            .unused()
            .filter(|grant| grant.ended_at.is_none())
            .cloned()
            .collect(),
        entries: all
            .into_iter()
            .rev()
            .skip(query.skip)
            .take(PAGE_SIZE)
            .cloned()
            .collect(),
        agents,
        sessions,
        tools: tools.into_iter().map(str::to_owned).collect(),
        runs,
    }
}

/// Counts the decisions on the questions in `entries`.
fn tally(entries: &[&HistoryEntry]) -> Tally {
    let mut tally = Tally::default();
    for entry in entries {
        if matches!(entry.event, HistoryEvent::Question(_)) {
            tally.count(entry.decision);
        }
    }
    tally
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "an audit log is a file of the host outside every root"
)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write as _;

    use super::*;
    use bailiwick::audit::JsonLines;
    use bailiwick::{Runtime, WorkerSpec};

    /// The audit lines of a runtime that had two workers.
    async fn lines(place: &std::path::Path) -> Vec<String> {
        let root = place.join("root");
        let file = place.join("source");
        fs::create_dir_all(&root).unwrap();
        let builder = Runtime::builder().root("r", &root);
        let audit = JsonLines::create(&file).unwrap();
        let (runtime, _) = builder.audit(audit).build().await.unwrap();
        for name in ["one", "two"] {
            runtime.spawn(WorkerSpec::new(name)).await.unwrap();
        }
        runtime.shutdown().await;
        let text = fs::read_to_string(&file).unwrap();
        text.lines().map(|line| format!("{line}\n")).collect()
    }

    fn add(path: &std::path::Path, text: &str) {
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[tokio::test]
    async fn read_continues_where_the_last_ended() {
        let temp = tempfile::tempdir().unwrap();
        let lines = lines(temp.path()).await;
        let [first, second, third, ..] = lines.as_slice() else {
            panic!("{lines:?}");
        };
        let path = temp.path().join("audit");
        fs::write(&path, first).unwrap();
        let record = ConsoleAudit::File(path.clone());
        let mut reader = AuditReader::default();
        let mut look = |anew| record.read(&mut reader, anew).unwrap().1;
        assert_eq!(look(false), ChainStatus::Verified { records: 1 });
        let (half, rest) = second.split_at(second.len() / 2);
        add(&path, half);
        let continued = |records, earlier| ChainStatus::Continued { records, earlier };
        assert_eq!(look(false), continued(1, 1));
        add(&path, rest);
        assert_eq!(look(false), continued(2, 1));
        assert_eq!(look(true), ChainStatus::Verified { records: 2 });
        // Records that were read before are read again only if requested.
        let other = first.replacen(r#""at_ms":1"#, r#""at_ms":2"#, 1);
        assert_ne!(other, *first);
        fs::write(&path, format!("{other}{second}{third}")).unwrap();
        let unchecked = look(false);
        assert_eq!(unchecked, continued(3, 2));
        assert!(!unchecked.message().contains("intact"));
        let verified = ChainStatus::Verified { records: 2 };
        assert!(verified.message().contains("The audit log is intact"));
        assert!(matches!(look(true), ChainStatus::Broken { record: 1, .. }));
    }

    #[tokio::test]
    async fn read_continues_in_rotated_segments() {
        let temp = tempfile::tempdir().unwrap();
        let lines = lines(temp.path()).await;
        let [first, second, third, ..] = lines.as_slice() else {
            panic!("{lines:?}");
        };
        let path = temp.path().join("audit");
        let segment = |number: u32| temp.path().join(format!("audit.{number:08}"));
        let record = ConsoleAudit::File(path.clone());
        let mut reader = AuditReader::default();
        let mut look = |anew| record.read(&mut reader, anew).unwrap().1;
        let continued = |records, earlier| ChainStatus::Continued { records, earlier };
        fs::write(&path, first).unwrap();
        assert_eq!(look(false), ChainStatus::Verified { records: 1 });
        // The log rotates after one more record, and its writer is killed before it creates the next file.
        add(&path, second);
        fs::rename(&path, segment(1)).unwrap();
        assert_eq!(look(false), continued(2, 1));
        fs::write(&path, third).unwrap();
        assert_eq!(look(false), continued(3, 2));
        assert_eq!(look(true), ChainStatus::Verified { records: 3 });
        fs::rename(&path, segment(3)).unwrap();
        let missing = look(true);
        assert!(
            matches!(&missing, ChainStatus::Broken { record: 3, reason } if reason.contains("audit.00000002")),
            "{missing:?}"
        );
        fs::rename(segment(3), &path).unwrap();
        fs::write(segment(1), first).unwrap();
        assert!(matches!(look(true), ChainStatus::Broken { record: 2, .. }));
        fs::write(segment(1), &first.as_bytes()[..first.len() - 1]).unwrap();
        assert!(matches!(look(true), ChainStatus::Broken { record: 1, .. }));
    }
}
