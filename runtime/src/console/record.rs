//! The record of a runtime in, what it tells of permissions and whether its chain holds out.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;

use super::wire::Past;
use crate::audit::{AuditBroken, BreakReason, MemoryAudit};
use crate::id::ToolName;
use crate::permission::{GrantUse, History, HistoryEntry, HistoryEvent, Tally};

/// How many entries a page shows at a time.
const PAGE: usize = 100;

/// Where a runtime records what it does.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ConsoleRecord {
    /// In memory, as far back as that reaches.
    Memory(MemoryAudit),
    /// In a file of JSON lines.
    File(PathBuf),
}

/// Whether a record is as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub(super) enum Chain {
    /// Every record continues the one before.
    Verified { records: u64 },
    /// All but a last line, which may be about to be written.
    Torn { records: u64 },
    /// Every record that this look read continues the one before; `earlier` ones were not read again.
    Continued { records: u64, earlier: u64 },
    /// The record of this number, counted from 1, does not; nothing from there on is shown.
    Broken { record: u64, reason: String },
    /// The beginning is not kept, so there is nothing to follow it from.
    Partial { records: u64 },
}

impl Chain {
    /// The same in words for people.
    fn words(&self) -> String {
        match self {
            Self::Verified { records } => {
                format!("✓ The record is whole: {records} records, each continues the one before.")
            }
            Self::Torn { records } => format!(
                "The record is whole but for its last line, which may be about to be written: {records} records."
            ),
            Self::Continued { records, earlier } => {
                let new = records.saturating_sub(*earlier);
                format!(
                    "{new} new records continue the record. The {earlier} before them were not read again: \"Check again\" reads all {records}."
                )
            }
            Self::Broken { record, reason } => format!(
                "✗ The record is broken at record {record}: {reason}. Nothing from there on is shown."
            ),
            Self::Partial { records } => {
                format!(
                    "The record’s beginning is not kept, so it cannot be followed: {records} records."
                )
            }
        }
    }
}

/// One page of a history.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    chain: Chain,
    /// What the chain comes to, in words.
    words: String,
    /// The latest first.
    entries: Vec<HistoryEntry>,
    /// How many there are in all.
    total: usize,
    tally: Tally,
    unused: Vec<GrantUse>,
    /// Whose entries there are, for a person to choose from.
    agents: BTreeSet<Arc<str>>,
    tools: BTreeSet<String>,
    sessions: BTreeSet<Arc<str>>,
    runs: BTreeSet<u64>,
}

/// What was read of a record so far.
#[derive(Debug, Default)]
pub(super) struct Reading {
    history: History,
    /// Bytes and records of the whole lines of a file that were read.
    end: u64,
    records: u64,
    /// How long that file was, and when it was changed.
    looks: Option<(u64, SystemTime)>,
    /// What was read is not to be read on from.
    over: bool,
}

impl ConsoleRecord {
    /// Reads what was added since `reading` was read last; all of it if that was rewritten, or `anew`. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn read<'r>(
        &self,
        reading: &'r mut Reading,
        anew: bool,
    ) -> io::Result<(&'r History, Chain)> {
        let chain = match self {
            Self::File(path) => {
                let file = File::open(path)?;
                let found = file.metadata()?;
                let looks = (found.len(), found.modified()?);
                if anew || reading.over || reading.is_rewritten(looks) {
                    *reading = Reading::default();
                }
                reading.looks = Some(looks);
                let earlier = reading.records;
                match reading.read_on(&file)? {
                    Chain::Verified { records } | Chain::Torn { records } if earlier > 0 => {
                        Chain::Continued { records, earlier }
                    }
                    // It may be another file by now.
                    Chain::Broken { .. } if reading.end > 0 => {
                        *reading = Reading::default();
                        reading.read_on(&file)?
                    }
                    chain => chain,
                }
            }
            Self::Memory(audit) => {
                reading.history = History::new();
                of_memory(audit, &mut reading.history)?
            }
        };
        Ok((&reading.history, chain))
    }
}

impl Reading {
    /// Whether a file that looks so now has changed other than by growing.
    fn is_rewritten(&self, (length, changed): (u64, SystemTime)) -> bool {
        let as_long = |was: (u64, SystemTime)| was.0 == length && was.1 != changed;
        length < self.end || self.looks.is_some_and(as_long)
    }

    fn read_on(&mut self, mut file: &File) -> io::Result<Chain> {
        file.seek(SeekFrom::Start(self.end))?;
        // What it read before it failed would be added twice.
        self.over = true;
        let end = match self.history.read_on(BufReader::new(file)) {
            Ok(end) => end,
            Err(AuditBroken { line, reason }) => {
                let line = self.records.saturating_add(line);
                return chain(Err(AuditBroken { line, reason }));
            }
        };
        self.over = false;
        self.end += end.intact;
        self.records += end.records;
        let records = self.records;
        Ok(if end.torn.is_empty() {
            Chain::Verified { records }
        } else {
            Chain::Torn { records }
        })
    }
}

/// Reads what is kept in memory.
fn of_memory(audit: &MemoryAudit, history: &mut History) -> io::Result<Chain> {
    let records = audit.records();
    let count = records.len() as u64;
    if records.first().is_none_or(|first| first.seq() == 0) {
        let lines: String = records
            .iter()
            .map(|record| record.line().to_owned() + "\n")
            .collect();
        let read = history.read(lines.as_bytes());
        return chain(read.map(|verified| verified.records));
    }
    let broken = records.iter().zip(1..).find_map(|(record, line)| {
        let reason = history.add(record).err()?;
        Some(AuditBroken { line, reason })
    });
    match broken {
        None => Ok(Chain::Partial { records: count }),
        Some(broken) => chain(Err(broken)),
    }
}

fn chain(read: Result<u64, AuditBroken>) -> io::Result<Chain> {
    let AuditBroken { line, reason } = match read {
        Ok(records) => return Ok(Chain::Verified { records }),
        Err(broken) => broken,
    };
    match reason {
        BreakReason::Torn => Ok(Chain::Torn {
            records: line.saturating_sub(1),
        }),
        BreakReason::Read(error) => Err(error),
        reason => Ok(Chain::Broken {
            record: line,
            reason: crate::escape(&reason.to_string()).into_owned(),
        }),
    }
}

/// Chooses what `past` wants to see.
pub(super) fn shown(history: &History, chain: Chain, past: &Past) -> Shown {
    let filter = past.filter();
    let meant =
        |entry: &&HistoryEntry| filter.admits(entry) && past.run.is_none_or(|run| entry.run == run);
    let all: Vec<&HistoryEntry> = history.entries().filter(meant).collect();
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
    Shown {
        words: chain.words(),
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
            .skip(past.skip)
            .take(PAGE)
            .cloned()
            .collect(),
        agents,
        sessions,
        tools: tools.into_iter().map(str::to_owned).collect(),
        runs,
    }
}

/// How the questions among `entries` ended.
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
    reason = "a record is a file of the host's, beside every root"
)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write as _;

    use super::*;
    use crate::audit::JsonLines;
    use crate::{Runtime, WorkerSpec};

    /// The lines of a runtime that had two workers.
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
    async fn a_look_reads_on_from_where_the_last_ended() {
        let temp = tempfile::tempdir().unwrap();
        let lines = lines(temp.path()).await;
        let [first, second, third, ..] = lines.as_slice() else {
            panic!("{lines:?}");
        };
        let path = temp.path().join("audit");
        fs::write(&path, first).unwrap();
        let record = ConsoleRecord::File(path.clone());
        let mut reading = Reading::default();
        let mut look = |anew| record.read(&mut reading, anew).unwrap().1;
        assert_eq!(look(false), Chain::Verified { records: 1 });
        let (half, rest) = second.split_at(second.len() / 2);
        add(&path, half);
        let continued = |records, earlier| Chain::Continued { records, earlier };
        assert_eq!(look(false), continued(1, 1));
        add(&path, rest);
        assert_eq!(look(false), continued(2, 1));
        assert_eq!(look(true), Chain::Verified { records: 2 });
        // What was read before is not read again, unless a person wants that.
        let other = first.replacen(r#""at_ms":1"#, r#""at_ms":2"#, 1);
        assert_ne!(other, *first);
        fs::write(&path, format!("{other}{second}{third}")).unwrap();
        let unchecked = look(false);
        assert_eq!(unchecked, continued(3, 2));
        assert!(!unchecked.words().contains("whole"));
        assert!(matches!(look(true), Chain::Broken { record: 1, .. }));
    }
}
