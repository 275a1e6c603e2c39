//! History of questions, decisions, grants and revocations, read from an audit.

mod builder;
mod call;
mod denial;
mod report;

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::{DecidedBy, Decision, Lifetime, RevokeCause, is_at_or_beneath};
use crate::audit::{
    AuditBroken, AuditFileError, BreakReason, GrantedStep, Head, NarrowedStep, Record,
    SignedInStep, Verified, follow, follow_file, json_line, past,
};
use crate::audit::{End, walk};
use crate::call::Origin;
use crate::effect::{ExcludedChange, Op};
use crate::id::{GrantId, QuestionId, ToolName, WorkerId};
use crate::scope::{Coverage, Scope, ScopePattern};

use builder::HistoryBuilder;
pub use call::{CallOutcome, PastCall};
pub use denial::Denial;
use denial::Exported;
pub use report::{CallTally, GrantUse, HistoryReport, RepeatedQuestion, Tally};

/// Questions, grants and calls of an audit, in the order in which they were recorded.
///
/// ```
/// use bailiwick::permission::{Decision, GrantHolder, History, HistoryFilter, Lifetime, NewGrant};
/// use bailiwick::{MemoryAudit, Runtime};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let audit = MemoryAudit::new(100);
/// let builder = Runtime::builder().grantable("read:file").audit(audit.clone());
/// let (runtime, people) = builder.build().await?;
/// let grant = NewGrant {
///     pattern: "read:file:/repo".parse()?,
///     holder: GrantHolder::Agent("main".into()),
///     lifetime: Lifetime::Agent,
///     descendants: false,
/// };
/// people.grant(grant).await?;
/// runtime.shutdown().await;
///
/// let mut history = History::new();
/// for record in audit.records() {
///     history.add(&record).map_err(|error| error.to_string())?;
/// }
/// let granted = HistoryFilter { decision: Some(Decision::Granted), ..HistoryFilter::default() };
/// let entries: Vec<_> = history.entries().filter(|entry| granted.admits(entry)).collect();
/// assert_eq!(entries.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct History {
    builder: HistoryBuilder,
    head: Head,
}

/// Entry of a history.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HistoryEntry {
    /// The run of the runtime, from 1: ids of workers, questions and grants are unique in a run only.
    pub run: u64,
    /// When it was recorded, in milliseconds since 1970.
    pub at: u64,
    /// The agent, by its path; empty if the audit does not name it.
    pub agent: Arc<str>,
    /// The worker, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerId>,
    /// The session of that worker; `None` if it is not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Arc<str>>,
    /// The tool that was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolName>,
    /// Who caused it; `None` in records of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The decision; `None` for open questions, calls that failed without a grant, and narrowed grants.
    pub decision: Option<Decision>,
    /// Who decided.
    pub by: DecidedBy,
    /// The event.
    #[serde(flatten)]
    pub event: HistoryEvent,
}

/// Event of a history entry.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
#[non_exhaustive]
pub enum HistoryEvent {
    /// A question with its answer.
    Question(Box<PastQuestion>),
    /// A call that was denied or failed, used grants or changed something, unless the entry of a question covers it.
    /// Calls that only read and that the policy allows have no entry.
    Call(Box<PastCall>),
    /// A grant that was given without a question.
    Granted(Box<GrantedStep>),
    /// A restored grant without a record that it was given: a person added it to the store, or the record is missing or
    /// says that the grant was revoked.
    Unrecorded(Box<GrantedStep>),
    /// A grant that was narrowed.
    Narrowed {
        /// The change.
        #[serde(flatten)]
        step: Box<NarrowedStep>,
        /// What it covered before; `None` if it is not recorded.
        #[serde(skip_serializing_if = "Option::is_none")]
        held: Option<Coverage>,
    },
    /// A revoked grant.
    Revoked {
        /// The grant.
        grant: GrantId,
        /// What it covered; `None` if it is not recorded.
        #[serde(skip_serializing_if = "Option::is_none")]
        held: Option<Coverage>,
        /// The cause; `None` in records of older versions.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<RevokeCause>,
    },
    /// A decision about signing in to a server, or about further scopes for it.
    SignedIn(Box<SignedInStep>),
}

impl HistoryEvent {
    /// Returns the needs, if it is about a call.
    #[must_use]
    pub fn needs(&self) -> &[Scope] {
        match self {
            Self::Question(question) => &question.needs,
            Self::Call(call) => &call.needs,
            Self::Granted(_)
            | Self::Unrecorded(_)
            | Self::Narrowed { .. }
            | Self::Revoked { .. }
            | Self::SignedIn(_) => &[],
        }
    }

    /// Returns what the grant covers or covered, if it is about one.
    fn pattern(&self) -> Option<&Coverage> {
        match self {
            Self::Question(_) | Self::Call(_) | Self::SignedIn(_) => None,
            Self::Granted(step) | Self::Unrecorded(step) => Some(&step.pattern),
            Self::Narrowed { held, .. } | Self::Revoked { held, .. } => held.as_ref(),
        }
    }
}

/// A question with its answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PastQuestion {
    /// The id of the question in the run.
    pub question: QuestionId,
    /// What was asked for.
    pub needs: Vec<Scope>,
    /// When it ended, in milliseconds since 1970; `None` if it is open or the run ended first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// What was allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<Coverage>,
    /// How long it was allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Lifetime>,
    /// The person's note to a denial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The changes and hunks that were excluded; empty if all or none of the change was allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<ExcludedChange>,
    /// The grants of the answer, including those shared with earlier answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<GrantId>,
    /// The operations in the plans of the allowed calls, each once; empty if there were none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Op>,
    /// How many of the allowed calls applied their change.
    #[serde(skip_serializing_if = "is_zero")]
    pub applied: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Selects entries that match all fields that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryFilter {
    /// Of this agent or a descendant.
    pub agent: Option<Arc<str>>,
    /// Of a worker in this session. Permanent grants of agents belong to none.
    pub session: Option<Arc<str>>,
    /// Of the tools of this MCP server, by the name that the host gave it.
    pub server: Option<Arc<str>>,
    /// Of a call of this tool.
    pub tool: Option<ToolName>,
    /// With this decision.
    pub decision: Option<Decision>,
    /// Recorded then or later, in milliseconds since 1970.
    pub since: Option<u64>,
    /// Recorded before then.
    pub until: Option<u64>,
}

impl HistoryFilter {
    /// Returns whether the entry matches.
    #[must_use]
    pub fn admits(&self, entry: &HistoryEntry) -> bool {
        let Self {
            agent,
            session,
            server,
            tool,
            decision,
            since,
            until,
        } = self;
        agent
            .as_ref()
            .is_none_or(|agent| is_at_or_beneath(&entry.agent, agent))
            && is_same(session.as_ref(), entry.session.as_ref())
            && server
                .as_ref()
                .is_none_or(|server| is_of_server(&entry.event, server))
            && tool
                .as_ref()
                .is_none_or(|tool| entry.tool.as_ref() == Some(tool))
            && decision.is_none_or(|decision| entry.decision == Some(decision))
            && since.is_none_or(|since| since <= entry.at)
            && until.is_none_or(|until| entry.at < until)
    }

    /// Whether a grant matches; grants have neither tool nor decision.
    fn counts(&self, grant: &GrantUse) -> bool {
        let at = grant.given_at.unwrap_or_default();
        let held = grant.agent.as_deref().unwrap_or_default();
        let agent = self.agent.as_deref();
        let pattern = grant.pattern.as_ref();
        agent.is_none_or(|agent| is_at_or_beneath(held, agent))
            && is_same(self.session.as_ref(), grant.session.as_ref())
            && self.server.as_ref().is_none_or(|server| {
                pattern.is_some_and(|one| all_of(server, |all| all.covers_pattern(one.pattern())))
            })
            && self.since.is_none_or(|since| since <= at)
            && self.until.is_none_or(|until| at < until)
    }
}

fn is_same(wanted: Option<&Arc<str>>, is: Option<&Arc<str>>) -> bool {
    wanted.is_none() || wanted == is
}

/// Whether `holds` for everything that the tools of `server` can need.
fn all_of(server: &str, holds: impl FnOnce(&ScopePattern) -> bool) -> bool {
    // A text with several segments would be another pattern.
    let plain = !server.is_empty() && !server.contains([':', '*']);
    let all = format!("*:mcp:{server}").parse();
    plain && all.is_ok_and(|all| holds(&all))
}

fn is_of_server(event: &HistoryEvent, server: &str) -> bool {
    if let HistoryEvent::SignedIn(step) = event {
        return &*step.server == server;
    }
    all_of(server, |all| {
        let pattern = event.pattern();
        pattern.is_some_and(|pattern| all.covers_pattern(pattern.pattern()))
            || event.needs().iter().any(|need| all.covers(need))
    })
}

impl History {
    /// Creates an empty history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a record in memory.
    ///
    /// # Errors
    /// [`BreakReason::NotARecord`] if a step about permissions has missing members.
    pub fn add(&mut self, record: &Record) -> Result<(), BreakReason> {
        self.builder.take(&past(record.line().as_bytes())?);
        Ok(())
    }

    /// Adds a file of an audit, which continues the previous one or begins a new chain.
    ///
    /// # Errors
    /// [`AuditBroken`], as from [`verify_after`](crate::audit::verify_after); the records before the break are added. A
    /// torn last line is a break, too: the writer was killed, or is still writing the line.
    pub fn read(&mut self, reader: impl BufRead) -> Result<Verified, AuditBroken> {
        let verified = follow(self.head, reader, self.builder.records())?;
        self.head = verified.head;
        Ok(verified)
    }

    /// Adds an audit file and all segments that were finished before it, as [`read`](Self::read) adds a single file.
    ///
    /// # Errors
    /// [`AuditFileError`], as from [`verify_file`](crate::audit::verify_file); the records before the break are added.
    pub fn read_file(&mut self, audit: impl AsRef<Path>) -> Result<Verified, AuditFileError> {
        let verified = follow_file(self.head, audit.as_ref(), self.builder.records())?;
        self.head = verified.head;
        Ok(verified)
    }

    /// Adds the complete new lines of a file whose beginning this history contains. After an error, the next call may
    /// add some records again.
    ///
    /// # Errors
    /// [`AuditBroken`], as from [`Self::read`], except for a torn last line.
    #[doc(hidden)]
    pub fn read_on(&mut self, reader: impl BufRead) -> Result<End, AuditBroken> {
        let end = walk(self.head, reader, self.builder.records())?;
        self.head = end.head;
        Ok(end)
    }

    /// Returns the entries.
    pub fn entries(&self) -> impl Iterator<Item = &HistoryEntry> {
        self.builder.entries()
    }

    /// Returns the entries that match `filter` as JSON lines. Denied entries have their [`Denial`] as `denial`.
    ///
    /// # Errors
    /// [`serde_json::Error`] if an entry cannot be serialised.
    pub fn export(&self, filter: &HistoryFilter) -> Result<String, serde_json::Error> {
        let entries = self.entries().filter(|entry| filter.admits(entry));
        let lines = entries.map(|entry| Ok(json_line(&Exported::from(entry))? + "\n"));
        lines.collect()
    }

    /// Returns statistics of the entries that match `filter`.
    #[must_use]
    pub fn report(&self, filter: &HistoryFilter) -> HistoryReport {
        report::report(self.entries(), self.builder.grants(), filter)
    }
}

#[cfg(test)]
pub(crate) mod tests;
