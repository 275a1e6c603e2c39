//! Formats a history as columns.

use bailiwick::Code;
use bailiwick::audit::{GrantedStep, SignedInStep};
use bailiwick::permission::{
    CallOutcome, DecidedBy, Decision, GrantHolder, GrantUse, HistoryEntry, HistoryEvent,
    HistoryReport, Lifetime, PastCall, RevokeCause, Suggestion, Tally,
};
use bailiwick::text::listed;

use crate::cli::format_time;
use crate::table::{or_dash, table};

/// One line per entry. Text that agents can choose comes last.
pub(super) fn entries<'e>(entries: impl Iterator<Item = &'e HistoryEntry>) -> String {
    table(
        [
            "TIME",
            "RUN",
            "AGENT",
            "TOOL",
            "DECISION",
            "TO ALLOW IT",
            "ABOUT",
        ],
        entries.map(|entry| {
            let tool = entry.tool.as_ref().map_or("-", |tool| tool.as_str());
            [
                format_time(entry.at),
                entry.run.to_string(),
                or_dash(&entry.agent),
                tool.to_owned(),
                format_decision(entry),
                or_dash(entry.denial().map_or("", |denial| denial.hint)),
                describe_event(&entry.event),
            ]
        }),
    )
}

fn format_decision(entry: &HistoryEntry) -> String {
    let decision = match (&entry.event, entry.decision) {
        (HistoryEvent::Narrowed { .. }, _) => "narrowed",
        (HistoryEvent::Revoked { .. }, _) => "revoked",
        (HistoryEvent::Call(call), None) => call.outcome.as_str(),
        (_, decision) => decision.map_or("open", decision_name),
    };
    match entry.by {
        DecidedBy::Person => format!("{decision} by a person"),
        DecidedBy::Host => format!("{decision} by the host"),
        DecidedBy::Client => format!("{decision} by the client"),
        DecidedBy::Rule => format!("{decision} by a rule"),
        _ => decision.to_owned(),
    }
}

fn decision_name(decision: Decision) -> &'static str {
    match decision {
        Decision::Granted => "granted",
        Decision::Denied => "denied",
        Decision::Expired => "expired",
        Decision::Cancelled => "cancelled",
    }
}

fn describe_event(event: &HistoryEvent) -> String {
    match event {
        HistoryEvent::Question(question) => {
            let mut text = format!("{} {}", question.question, listed(&question.needs, " "));
            if let Some(lifetime) = question.lifetime {
                text += &format!(
                    "; allowed {}, {}",
                    listed(&question.patterns, " "),
                    format_lifetime(lifetime)
                );
            }
            if !question.left_out.is_empty() {
                text += ", partially";
            }
            if let Some(note) = &question.note {
                text += &format!("; note: {note}");
            }
            text
        }
        HistoryEvent::Call(call) => describe_call(call),
        HistoryEvent::Granted(step) => describe_grant(step),
        HistoryEvent::Unrecorded(step) => {
            format!("{}; granted without a record", describe_grant(step))
        }
        HistoryEvent::Narrowed { step, .. } => {
            let change = &step.change;
            let mut text = step.grant.to_string();
            if let Some(pattern) = &change.pattern {
                text += &format!(" to {pattern}");
            }
            if let Some(uses) = change.uses {
                text += &format!(", {}", format_lifetime(Lifetime::Uses(uses)));
            }
            if let Some(time) = change.time {
                text += &format!(", {}", format_lifetime(Lifetime::For(time)));
            }
            if change.holder_only {
                text += ", without sub-agents";
            }
            text
        }
        HistoryEvent::Revoked { grant, cause, .. } => cause.map_or_else(
            || grant.to_string(),
            |cause| format!("{grant}{}", revoke_reason(cause)),
        ),
        HistoryEvent::SignedIn(step) => describe_sign_in(step),
        _ => String::new(),
    }
}

/// The needs of a call, its result, and the grants that it used.
fn describe_call(call: &PastCall) -> String {
    let mut parts = vec![listed(&call.needs, " ")];
    if call.outcome != CallOutcome::Denied {
        parts.push(call.outcome.as_str().replace('_', " "));
    }
    parts.push(listed(&call.grants, " "));
    if !call.brought.is_empty() {
        parts.push(format!("granted_scopes {}", listed(&call.brought, " ")));
    }
    if let (Some(removed), _) | (None, Some(removed)) = (call.removed, call.done) {
        parts.push(format!("after {removed} steps"));
    } else if call.begun && call.code.is_none() {
        parts.push("started, without a recorded end".to_owned());
    } else if call.begun {
        parts.push("after the effect started".to_owned());
    }
    parts.extend(call.code.map(|code| code.to_string()));
    parts.extend(call.message.as_deref().map(str::to_owned));
    parts.extend(call.rule.as_deref().map(str::to_owned));
    parts.retain(|part| !part.is_empty());
    parts.join("; ")
}

fn describe_sign_in(step: &SignedInStep) -> String {
    let (server, issuer) = (&step.server, &step.issuer);
    let mut text = format!("signed in to the server {server} at {issuer}");
    if !step.scopes.is_empty() {
        text += &format!(", for {}", step.scopes.join(" "));
    }
    if let Some(tool) = &step.tool_there {
        text += &format!("; requested by its tool {tool}");
    }
    text
}

fn describe_grant(step: &GrantedStep) -> String {
    format!(
        "{} {} to {}, {}",
        step.grant,
        step.pattern,
        format_holder(&step.holder),
        format_lifetime(step.lifetime)
    )
}

/// Why the host revoked a grant.
fn revoke_reason(cause: RevokeCause) -> &'static str {
    match cause {
        RevokeCause::WorkerEnded => "; its worker ended",
        RevokeCause::SessionEnded => "; its session ended",
        RevokeCause::NotStored => "; it could not be stored",
        _ => "",
    }
}

fn format_lifetime(lifetime: Lifetime) -> String {
    match lifetime {
        Lifetime::Once => "once".to_owned(),
        Lifetime::Waiting(calls) => format!("for {calls} waiting calls"),
        Lifetime::Uses(uses) => format!("for {uses} uses"),
        Lifetime::For(time) => format!("for {} s", time.as_secs()),
        Lifetime::Session => "for the session".to_owned(),
        Lifetime::Agent => "for the agent".to_owned(),
    }
}

fn format_holder(holder: &GrantHolder) -> String {
    match holder {
        GrantHolder::Worker(worker) => worker.to_string(),
        GrantHolder::Session { session, worker } => format!("{worker} in {session}"),
        GrantHolder::Agent(agent) => agent.to_string(),
    }
}

/// Four tables: questions, grants, repeated questions, and calls without a question.
pub(super) fn report(report: &HistoryReport) -> String {
    let all = std::iter::once(tally_row("all agents", report.all));
    let agents = report.agents.iter();
    let rates = table(
        [
            "AGENT",
            "ASKED",
            "GRANTED",
            "DENIED",
            "EXPIRED",
            "CANCELLED",
            "OPEN",
            "YES",
        ],
        all.chain(agents.map(|(agent, of)| tally_row(agent, *of))),
    );
    let grants = table(
        ["RUN", "GRANT", "USES", "STATE", "BY", "HOLDER", "PATTERN"],
        report.grants.iter().map(|grant| {
            [
                grant.run.to_string(),
                grant.grant.to_string(),
                grant.uses.to_string(),
                grant_state(grant).to_owned(),
                grant.by.as_str().to_owned(),
                grant
                    .holder
                    .as_ref()
                    .map_or_else(|| "-".to_owned(), format_holder),
                grant
                    .pattern
                    .as_ref()
                    .map_or_else(|| "-".to_owned(), ToString::to_string),
            ]
        }),
    );
    let (repeated, calls) = (repeated_table(report), calls_table(report));
    format!(
        "Questions\n{rates}\nGrants\n{grants}\nAsked more than once\n{repeated}\nCalls without a question\n{calls}"
    )
}

fn repeated_table(report: &HistoryReport) -> String {
    table(
        ["TIMES", "GRANTED", "DENIED", "AGENT", "TOOL", "NEEDS"],
        report.repeated.iter().map(|asked| {
            [
                asked.tally.questions().to_string(),
                asked.tally.granted.to_string(),
                asked.tally.denied.to_string(),
                or_dash(&asked.agent),
                asked
                    .tool
                    .as_ref()
                    .map_or("-", |tool| tool.as_str())
                    .to_owned(),
                listed(&asked.needs, " "),
            ]
        }),
    )
}

fn calls_table(report: &HistoryReport) -> String {
    table(
        ["CALLS", "OUTCOME", "BY", "CODE", "AGENT", "TOOL"],
        report.calls.iter().map(|tally| {
            let tool = tally.tool.as_ref().map_or("-", |tool| tool.as_str());
            [
                tally.calls.to_string(),
                tally.outcome.as_str().replace('_', " "),
                tally.by.as_str().to_owned(),
                tally.code.map_or("-", Code::as_str).to_owned(),
                or_dash(&tally.agent),
                tool.to_owned(),
            ]
        }),
    )
}

fn tally_row(agent: &str, of: Tally) -> [String; 8] {
    let rate = of.approve_rate();
    [
        or_dash(agent),
        of.questions().to_string(),
        of.granted.to_string(),
        of.denied.to_string(),
        of.expired.to_string(),
        of.cancelled.to_string(),
        of.open.to_string(),
        rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate}%")),
    ]
}

fn grant_state(grant: &GrantUse) -> &'static str {
    match (grant.ended_at, grant.uses) {
        (Some(_), 0) => "revoked, never used",
        (Some(_), _) => "revoked",
        (None, 0) => "never used",
        (None, _) => "used",
    }
}

/// One line per rule, with the number of questions it would have avoided.
pub(super) fn suggestions(suggestions: &[Suggestion]) -> String {
    if suggestions.is_empty() {
        return "No suggestions: no rule would have avoided repeated questions.".to_owned();
    }
    table(
        ["SPARES", "AGENT", "HOLDS", "RULE"],
        suggestions.iter().map(|one| {
            [
                one.spares.to_string(),
                or_dash(&one.agent),
                format_lifetime(one.lifetime),
                one.pattern.to_string(),
            ]
        }),
    )
}
