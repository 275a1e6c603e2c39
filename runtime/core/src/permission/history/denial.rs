//! Denials: code, reason and remedy of a call that was not allowed.
//!
//! Remedies are for people only. Agents only learn the code and who denied the call.

use std::borrow::Cow;

use serde::Serialize;

use super::{CallOutcome, HistoryEntry, HistoryEvent, PastCall};
use crate::error::Code;
use crate::permission::{DecidedBy, Decision};

/// Why a call was not allowed, for people.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Denial<'e> {
    /// The code that the agent received.
    pub code: Code,
    /// The deciding rule or person, with the note.
    pub reason: Cow<'e, str>,
    /// What a person can do to allow such calls.
    pub hint: &'static str,
}

impl HistoryEntry {
    /// Returns why it was not allowed; `None` if it was allowed, is open or was cancelled.
    #[must_use]
    pub fn denial(&self) -> Option<Denial<'_>> {
        let (reason, hint) = match (&self.event, self.decision?) {
            (HistoryEvent::Call(call), Decision::Denied) => return Some(of_call(call, self.by)),
            (HistoryEvent::Question(question), Decision::Denied) => {
                let note = question.note.as_deref();
                match self.by {
                    DecidedBy::Host => (
                        with_note("the host refused it", note),
                        "let the host ask a person, or grant it beforehand",
                    ),
                    DecidedBy::Client => (
                        with_note("the client sent no usable answer", note),
                        "answer when it is asked again, or grant it beforehand",
                    ),
                    DecidedBy::Person | DecidedBy::Rule | DecidedBy::Nobody => (
                        with_note("a person refused it", note),
                        "say yes when it is asked again, or grant it beforehand; after \"for the rest of the session\", have it asked again",
                    ),
                }
            }
            (HistoryEvent::SignedIn(_), Decision::Denied) => match self.by {
                DecidedBy::Person => (
                    with_note("a person declined to sign in", None),
                    "have the server tried again, and sign in when it is asked",
                ),
                DecidedBy::Nobody => (
                    with_note("nobody could be asked to sign in, or nobody did", None),
                    "let the host ask a person to sign in, and have the server tried again",
                ),
                DecidedBy::Host | DecidedBy::Client | DecidedBy::Rule => (
                    with_note("the browser brought no answer to what was asked", None),
                    "have the server tried again",
                ),
            },
            // Agents received no code for questions that were open when the run ended.
            (HistoryEvent::Question(question), Decision::Expired)
                if question.ended_at.is_some() =>
            {
                (
                    with_note("nobody answered in time", None),
                    "answer in time or allow more of it, or grant it beforehand",
                )
            }
            _ => return None,
        };
        Some(Denial {
            code: Code::PermissionDenied,
            reason,
            hint,
        })
    }
}

/// Why a call without a question was denied.
fn of_call(call: &PastCall, by: DecidedBy) -> Denial<'_> {
    let code = call.code.unwrap_or(Code::PermissionDenied);
    let (what, hint) = match (code, by) {
        (_, _) if call.outcome == CallOutcome::GrantsIgnored => (
            "a client of an agent cannot grant anything",
            "grant it yourself if the agent is to have it",
        ),
        (Code::ScopeRequired, _) => (
            "nobody was asked",
            "grant it beforehand, or let the host ask a person",
        ),
        (Code::PolicyExpansion | Code::PolicyInvalid, _) => (
            "its policy is invalid, or requests more than its issuer has",
            "correct the policy that comes with it",
        ),
        (Code::Budget, _) => (
            "a budget is spent",
            "start another worker, or one with a larger budget",
        ),
        (Code::RateLimited, _) => (
            "calls or questions came too fast",
            "raise the limit if the agent should work faster",
        ),
        (Code::UnknownTool, _) => (
            "there is no such tool for it",
            "allow the tool in its policy, if there is one of that name",
        ),
        (_, DecidedBy::Rule) if call.rule.is_some() => (
            "a rule of the policy denies it",
            "change the rule, or give the task to an agent that may; no answer and no grant overrides it",
        ),
        (_, DecidedBy::Host) => (
            "the host refused it",
            "let the host ask a person, or grant it beforehand",
        ),
        _ => (
            "it is not allowed",
            "grant it beforehand, or have it asked again if a person refused it for the rest of a session",
        ),
    };
    let more = call
        .rule
        .as_deref()
        .filter(|_| code == Code::PermissionDenied);
    Denial {
        code,
        reason: with_note(what, more.or(call.message.as_deref())),
        hint,
    }
}

fn with_note(what: &'static str, more: Option<&str>) -> Cow<'static, str> {
    more.map_or(what.into(), |more| format!("{what}: {more}").into())
}

/// An entry as it is exported.
#[derive(Serialize)]
pub(super) struct Exported<'e> {
    #[serde(flatten)]
    entry: &'e HistoryEntry,
    #[serde(skip_serializing_if = "Option::is_none")]
    denial: Option<Denial<'e>>,
}

impl<'e> From<&'e HistoryEntry> for Exported<'e> {
    fn from(entry: &'e HistoryEntry) -> Self {
        Self {
            entry,
            denial: entry.denial(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Log;
    use super::*;

    const NEED: &[&str] = &["write:file:/r/a/x"];

    #[track_caller]
    fn none(log: &Log) {
        let entry = log.history.entries().last().unwrap();
        assert_eq!(entry.denial(), None);
        let exported = serde_json::to_value(Exported::from(entry)).unwrap();
        assert_eq!(exported.get("denial"), None);
        assert_eq!(exported["agent"], "main");
    }

    #[track_caller]
    fn check(log: &Log, reason: &str, hint: &str) {
        let entry = log.history.entries().last().unwrap();
        let denial = entry.denial().unwrap();
        assert_eq!(denial.reason, reason);
        let exported = serde_json::to_value(Exported::from(entry)).unwrap();
        assert!(denial.hint.contains(hint), "{denial:?}");
        let expected = serde_json::json!({
            "code": "PERMISSION_DENIED", "reason": reason, "hint": denial.hint,
        });
        assert_eq!(exported["denial"], expected);
        assert_eq!(exported["agent"], "main");
    }

    #[test]
    fn denied_entry_has_reason_and_remedy() {
        let mut log = Log::default();
        log.spawn(1, "main");
        log.asked("main", 1, NEED, Decision::Denied, None);
        check(&log, "a person refused it: no", "say yes when");
        log.asked_by(2, NEED, Decision::Denied, DecidedBy::Host);
        check(&log, "the host refused it: no", "let the host ask");
        log.asked("main", 3, NEED, Decision::Expired, None);
        check(&log, "nobody answered in time", "answer in time");
        log.ruled("main", "write:file:/etc/x");
        let by_rule = "a rule of the policy denies it: the layer of the agent";
        check(&log, by_rule, "no grant overrides it");
    }

    #[test]
    fn allowed_or_cancelled_entry_has_no_reason() {
        let mut log = Log::default();
        log.spawn(1, "main");
        log.asked("main", 4, NEED, Decision::Granted, None);
        none(&log);
        log.asked("main", 5, NEED, Decision::Cancelled, None);
        none(&log);
    }
}
