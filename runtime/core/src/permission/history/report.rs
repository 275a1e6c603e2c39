//! Statistics of a history for people.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::{CallOutcome, HistoryEntry, HistoryEvent, HistoryFilter};
use crate::audit::GrantedStep;
use crate::error::Code;
use crate::id::{GrantId, ToolName};
use crate::permission::{DecidedBy, Decision, GrantHolder};
use crate::scope::{Coverage, Scope};

/// Statistics of questions, calls and grants.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HistoryReport {
    /// All questions.
    pub all: Tally,
    /// Those of each agent.
    pub agents: BTreeMap<Arc<str>, Tally>,
    /// All grants that outlived their call, in the order in which they were given.
    pub grants: Vec<GrantUse>,
    /// Repeated questions, the most frequent first.
    pub repeated: Vec<RepeatedQuestion>,
    /// Calls with entries of their own by outcome, the most frequent first.
    pub calls: Vec<CallTally>,
}

impl HistoryReport {
    /// Returns the grants that were given and never used.
    pub fn unused(&self) -> impl Iterator<Item = &GrantUse> {
        self.grants.iter().filter(|grant| grant.uses == 0)
    }
}

/// Questions by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Tally {
    /// It was allowed.
    pub granted: u64,
    /// It was refused.
    pub denied: u64,
    /// Nobody answered in time.
    pub expired: u64,
    /// No call waited for the answer any more.
    pub cancelled: u64,
    /// It is open.
    pub open: u64,
}

impl Tally {
    #[doc(hidden)]
    pub fn count(&mut self, decision: Option<Decision>) {
        let count = match decision {
            Some(Decision::Granted) => &mut self.granted,
            Some(Decision::Denied) => &mut self.denied,
            Some(Decision::Expired) => &mut self.expired,
            Some(Decision::Cancelled) => &mut self.cancelled,
            None => &mut self.open,
        };
        *count += 1;
    }

    /// Returns how many questions there were.
    #[must_use]
    pub fn questions(&self) -> u64 {
        self.granted + self.denied + self.expired + self.cancelled + self.open
    }

    /// Returns the percentage of answered questions that were allowed; `None` without answers.
    #[must_use]
    pub fn approve_rate(&self) -> Option<u64> {
        (self.granted * 100).checked_div(self.granted + self.denied)
    }
}

/// A grant and how it was used.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GrantUse {
    /// The run in which it was given.
    pub run: u64,
    /// The grant.
    pub grant: GrantId,
    /// What it covers; `None` if the audit begins after it was given.
    pub pattern: Option<Coverage>,
    /// Who may use it.
    pub holder: Option<GrantHolder>,
    /// Whether the holder's descendants may use it, too.
    #[serde(skip)]
    pub(super) descendants: Option<bool>,
    /// The agent that holds it.
    pub agent: Option<Arc<str>>,
    /// The session of the worker that holds it.
    pub session: Option<Arc<str>>,
    /// When it was given, in milliseconds since 1970.
    pub given_at: Option<u64>,
    /// Who gave it; nobody if it is not recorded.
    pub by: DecidedBy,
    /// How many calls used it.
    pub uses: u64,
    /// When it was used last.
    pub used_at: Option<u64>,
    /// When it was revoked.
    pub ended_at: Option<u64>,
}

impl GrantUse {
    pub(super) fn new(run: u64, grant: GrantId) -> Self {
        Self {
            run,
            grant,
            pattern: None,
            holder: None,
            descendants: None,
            agent: None,
            session: None,
            given_at: None,
            by: DecidedBy::Nobody,
            uses: 0,
            used_at: None,
            ended_at: None,
        }
    }

    /// Whether `step` gives no more than this grant, to the same holder.
    pub(super) fn includes(&self, step: &GrantedStep) -> bool {
        let covers = |pattern: &Coverage| pattern.includes(&step.pattern);
        self.holder.as_ref() == Some(&step.holder)
            && self.pattern.as_ref().is_some_and(covers)
            && (self.descendants == Some(true) || !step.descendants)
    }

    /// Records what `step` gives, and to whom.
    pub(super) fn covers(&mut self, step: &GrantedStep) {
        self.pattern = Some(step.pattern.clone());
        self.holder = Some(step.holder.clone());
        self.descendants = Some(step.descendants);
    }

    pub(super) fn used(&mut self, at: u64) {
        self.uses += 1;
        self.used_at = Some(at);
    }
}

/// A question that was asked several times.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RepeatedQuestion {
    /// The agent that asked.
    pub agent: Arc<str>,
    /// The tool that was called.
    pub tool: Option<ToolName>,
    /// The needs that were asked for.
    pub needs: Vec<Scope>,
    /// How often it was asked, and how it ended.
    pub tally: Tally,
}

/// Calls with the same outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CallTally {
    /// The agent.
    pub agent: Arc<str>,
    /// The tool.
    pub tool: Option<ToolName>,
    /// How they ended.
    pub outcome: CallOutcome,
    /// Who or what allowed or denied them.
    pub by: DecidedBy,
    /// The code, if they were denied or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The number of calls.
    pub calls: u64,
}

fn calls<'e>(entries: impl Iterator<Item = &'e HistoryEntry>) -> Vec<CallTally> {
    let mut same: BTreeMap<_, CallTally> = BTreeMap::new();
    for entry in entries {
        let HistoryEvent::Call(call) = &entry.event else {
            continue;
        };
        let tally = CallTally {
            agent: Arc::clone(&entry.agent),
            tool: entry.tool.clone(),
            outcome: call.outcome,
            by: entry.by,
            code: call.code,
            calls: 0,
        };
        let (agent, tool) = (Arc::clone(&tally.agent), tally.tool.clone());
        let key = (agent, tool, tally.outcome, tally.by.as_str(), tally.code);
        same.entry(key).or_insert(tally).calls += 1;
    }
    let mut calls: Vec<CallTally> = same.into_values().collect();
    calls.sort_by_key(|tally| std::cmp::Reverse(tally.calls));
    calls
}

pub(super) fn report<'e>(
    entries: impl Iterator<Item = &'e HistoryEntry>,
    grants: impl Iterator<Item = &'e GrantUse>,
    filter: &HistoryFilter,
) -> HistoryReport {
    let entries: Vec<_> = entries.filter(|entry| filter.admits(entry)).collect();
    let mut report = HistoryReport {
        calls: calls(entries.iter().copied()),
        ..HistoryReport::default()
    };
    let mut same: BTreeMap<_, Tally> = BTreeMap::new();
    for entry in entries {
        let HistoryEvent::Question(question) = &entry.event else {
            continue;
        };
        report.all.count(entry.decision);
        let agent = report.agents.entry(Arc::clone(&entry.agent)).or_default();
        agent.count(entry.decision);
        let mut needs = question.needs.clone();
        needs.sort();
        let key = (Arc::clone(&entry.agent), entry.tool.clone(), needs);
        same.entry(key).or_default().count(entry.decision);
    }
    let repeated = same.into_iter().filter(|(_, tally)| tally.questions() > 1);
    report.repeated = repeated
        .map(|((agent, tool, needs), tally)| RepeatedQuestion {
            agent,
            tool,
            needs,
            tally,
        })
        .collect();
    // Stable, so that equal entries stay in the order of agents, tools and needs.
    let times = |asked: &RepeatedQuestion| std::cmp::Reverse(asked.tally.questions());
    report.repeated.sort_by_key(times);
    let admitted = grants.filter(|grant| filter.counts(grant));
    report.grants = admitted.cloned().collect();
    report
}
