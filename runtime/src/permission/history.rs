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
#[cfg(all(feature = "ui", feature = "http"))]
use crate::audit::{End, walk};
use crate::call::Origin;
use crate::effect::{ExcludedHunks, Op};
use crate::id::{GrantId, QuestionId, ToolName, WorkerId};
use crate::scope::{Coverage, Scope, ScopePattern};

use builder::HistoryBuilder;
pub use call::{CallOutcome, PastCall};
pub use denial::Denial;
use denial::Exported;
pub use report::{CallTally, GrantUse, HistoryReport, RepeatedQuestion, Tally};

/// What an audit says of questions, grants and calls, in the order it was recorded.
///
/// ```
/// use bailiwick::{
///     Decision, GrantHolder, History, HistoryFilter, Lifetime, MemoryAudit, NewGrant, Runtime,
/// };
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

/// One thing that was decided, or is still to be.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HistoryEntry {
    /// Which run of a runtime, beginning with 1: ids of workers, questions and grants begin anew with each.
    pub run: u64,
    /// When it was recorded, in milliseconds since 1970.
    pub at: u64,
    /// The agent, by its path; empty if the audit does not name it.
    pub agent: Arc<str>,
    /// The worker, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerId>,
    /// The session of that worker; none if the audit does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Arc<str>>,
    /// The tool that was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolName>,
    /// Who caused it; none in the record of an older version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// How it was decided; none for a question that is open, for a call that failed without a grant, and for what leaves
    /// less of a grant.
    pub decision: Option<Decision>,
    /// Who decided.
    pub by: DecidedBy,
    /// What it is.
    #[serde(flatten)]
    pub event: HistoryEvent,
}

/// What an entry of a history is about.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
#[non_exhaustive]
pub enum HistoryEvent {
    /// A question, and how it was answered.
    Question(Box<PastQuestion>),
    /// A call that was denied or failed, that used grants or that changed something, as far as no question tells of it.
    /// Calls that only read, and that the policy allows by itself, have no entry.
    Call(Box<PastCall>),
    /// A grant that was given without a question.
    Granted(Box<GrantedStep>),
    /// A grant that a run took up from its store and that no record gives: a person added it to the store by hand, or the
    /// record of it is gone, or tells that it was taken back.
    Unrecorded(Box<GrantedStep>),
    /// A grant that was narrowed.
    Narrowed {
        /// How.
        #[serde(flatten)]
        step: Box<NarrowedStep>,
        /// What it covered before; none if the record does not say.
        #[serde(skip_serializing_if = "Option::is_none")]
        held: Option<Coverage>,
    },
    /// A grant that was taken back.
    Revoked {
        /// Which.
        grant: GrantId,
        /// What it covered; none if the record does not say.
        #[serde(skip_serializing_if = "Option::is_none")]
        held: Option<Coverage>,
        /// Why; none in the record of an older version.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<RevokeCause>,
    },
    /// What a person said where a server wanted them to sign in, or to let it do more.
    SignedIn(Box<SignedInStep>),
}

impl HistoryEvent {
    /// What was needed, if it is about a call.
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

    /// What the grant covers that it is about, or did until then.
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
    /// Which question of the run.
    pub question: QuestionId,
    /// What was asked for.
    pub needs: Vec<Scope>,
    /// When it ended, in milliseconds since 1970; none if it is open, or the run ended first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// What was allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<Coverage>,
    /// For how long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Lifetime>,
    /// What the person said to a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What of the change that was shown was not to be made; empty if all of it was allowed, or nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<ExcludedHunks>,
    /// The grants that the answer left, with those that it shares with answers before it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<GrantId>,
    /// What the plans of the calls that were allowed do, each once; none if they changed nothing or made no plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Op>,
    /// How many calls that it allowed made their change.
    #[serde(skip_serializing_if = "is_zero")]
    pub applied: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Which entries are meant: those for which everything that is set holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryFilter {
    /// Of this agent, or of one beneath it.
    pub agent: Option<Arc<str>>,
    /// Of a worker in this session. A grant that an agent has for good is of none.
    pub session: Option<Arc<str>>,
    /// Of the tools of this MCP server, by the name that the host gave it.
    pub server: Option<Arc<str>>,
    /// Of a call of this tool.
    pub tool: Option<ToolName>,
    /// Decided this way.
    pub decision: Option<Decision>,
    /// Recorded then or later, in milliseconds since 1970.
    pub since: Option<u64>,
    /// Recorded before then.
    pub until: Option<u64>,
}

impl HistoryFilter {
    /// Whether the entry is meant.
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

    /// Whether a grant is counted: neither a tool nor a decision is one of a grant.
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

/// Whether `holds` of all that the tools of `server` can need.
fn all_of(server: &str, holds: impl FnOnce(&ScopePattern) -> bool) -> bool {
    // What is more than one name would be a pattern of other things.
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
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a record that is still in memory.
    ///
    /// # Errors
    /// [`BreakReason::NotARecord`] if a step of permissions lacks what it should hold.
    pub fn add(&mut self, record: &Record) -> Result<(), BreakReason> {
        self.builder.take(past(record.line().as_bytes())?);
        Ok(())
    }

    /// Adds a file of an audit, which continues the one before it or begins a chain of its own.
    ///
    /// # Errors
    /// [`AuditBroken`], as from [`verify_after`](crate::verify_after); what stands before the break is added. A torn last
    /// line is one too: the writer died, or is about to write the rest.
    pub fn read(&mut self, reader: impl BufRead) -> Result<Verified, AuditBroken> {
        let verified = follow(self.head, reader, self.builder.records())?;
        self.head = verified.head;
        Ok(verified)
    }

    /// Adds an audit file and all segments that were finished before it, as [`read`](Self::read) adds a single file.
    ///
    /// # Errors
    /// [`AuditFileError`], as from [`verify_file`](crate::verify_file); what stands before the break is added.
    pub fn read_file(&mut self, audit: impl AsRef<Path>) -> Result<Verified, AuditFileError> {
        let verified = follow_file(self.head, audit.as_ref(), self.builder.records())?;
        self.head = verified.head;
        Ok(verified)
    }

    /// Adds the whole lines that follow in a file whose beginning was added by this. After an error there may be records in
    /// it that the next call would add again.
    ///
    /// # Errors
    /// [`AuditBroken`], as from [`Self::read`], but for a torn last line.
    #[cfg(all(feature = "ui", feature = "http"))]
    pub(crate) fn read_on(&mut self, reader: impl BufRead) -> Result<End, AuditBroken> {
        let end = walk(self.head, reader, self.builder.records())?;
        self.head = end.head;
        Ok(end)
    }

    /// What was asked, decided, granted and taken back.
    pub fn entries(&self) -> impl Iterator<Item = &HistoryEntry> {
        self.builder.entries()
    }

    /// The entries that `filter` admits as JSON, one a line; what was not let through has its [`Denial`] as `denial`.
    ///
    /// # Errors
    /// What serde_json says of an entry that has no JSON.
    pub fn export(&self, filter: &HistoryFilter) -> Result<String, serde_json::Error> {
        let entries = self.entries().filter(|entry| filter.admits(entry));
        let lines = entries.map(|entry| Ok(json_line(&Exported::from(entry))? + "\n"));
        lines.collect()
    }

    /// Counts of questions and grants among the entries that `filter` admits.
    #[must_use]
    pub fn report(&self, filter: &HistoryFilter) -> HistoryReport {
        report::report(self.entries(), self.builder.grants(), filter)
    }
}

#[cfg(test)]
pub(crate) mod tests;
