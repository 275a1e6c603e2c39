//! The record of a runtime in, what it tells of permissions and whether its chain holds out.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::sync::Arc;

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
    /// The record of this number, counted from 1, does not; nothing from there on is shown.
    Broken { record: u64, reason: String },
    /// The beginning is not kept, so there is nothing to follow it from.
    Partial { records: u64 },
}

/// One page of a history.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    chain: Chain,
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

impl ConsoleRecord {
    /// Reads all of it. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn read(&self) -> io::Result<(History, Chain)> {
        let mut history = History::new();
        let chain = match self {
            Self::File(path) => {
                let reader = BufReader::new(File::open(path)?);
                chain(history.read(reader).map(|verified| verified.records))?
            }
            Self::Memory(audit) => {
                let records = audit.records();
                let whole = records.first().is_none_or(|first| first.seq() == 0);
                let count = records.len() as u64;
                if whole {
                    let lines: String = records
                        .iter()
                        .map(|record| record.line().to_owned() + "\n")
                        .collect();
                    chain(
                        history
                            .read(lines.as_bytes())
                            .map(|verified| verified.records),
                    )?
                } else {
                    let broken = records.iter().zip(1..).find_map(|(record, number)| {
                        let reason = history.add(record).err()?;
                        Some(AuditBroken {
                            line: number,
                            reason,
                        })
                    });
                    match broken {
                        None => Chain::Partial { records: count },
                        Some(broken) => chain(Err(broken))?,
                    }
                }
            }
        };
        Ok((history, chain))
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
