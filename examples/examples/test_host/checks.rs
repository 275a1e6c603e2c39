//! A connected server in, what is right and wrong with it out.

mod said;
mod tried;

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::session::Connected;
use super::wire::{Entry, Side, Wire};

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Pass,
    /// Allowed, and discouraged.
    Warn,
    Fail,
    /// The server has nothing that it is about.
    Skip,
}

/// One check.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) check: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) detail: String,
}

impl Check {
    fn new(check: &'static str, outcome: Outcome, detail: impl Into<String>) -> Self {
        Self {
            check,
            outcome,
            detail: detail.into(),
        }
    }

    pub(crate) fn fail(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, Outcome::Fail, detail)
    }

    /// Passes with what was looked at, or else has all that was found.
    fn found(check: &'static str, otherwise: Outcome, faults: &[String], passed: &str) -> Self {
        if faults.is_empty() {
            Self::new(check, Outcome::Pass, passed)
        } else {
            Self::new(check, otherwise, faults.join("; "))
        }
    }

    pub(crate) fn failed(&self) -> bool {
        self.outcome == Outcome::Fail
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            Outcome::Pass => "pass",
            Outcome::Warn => "warn",
            Outcome::Fail => "FAIL",
            Outcome::Skip => "skip",
        };
        let detail = bailiwick::escape(&self.detail);
        write!(f, "{outcome}  {:<20} {detail}", self.check)
    }
}

/// Every check, in the order in which people read them. None of them changes anything, if the server keeps its word.
pub(crate) async fn all(server: &Connected, wire: &Wire) -> Vec<Check> {
    let facts = &server.facts;
    let text = |pointer: &str| facts.greeting.pointer(pointer).and_then(Value::as_str);
    let version = server.connection.era.revision();
    let met = format!("revision {}", text("/protocolVersion").unwrap_or(version));
    let mut checks = vec![Check::new("connect", Outcome::Pass, met)];
    checks.extend(said::all(facts));
    checks.extend(tried::all(server).await);
    checks.push(form(&wire.entries(0)));
    checks
}

/// Whether all that the server sent is as MCP says.
fn form(entries: &[Entry]) -> Check {
    let received = entries.iter().filter(|entry| entry.side == Side::Received);
    let faults: Vec<String> = received
        .filter_map(|entry| {
            let fault = entry.fault.as_deref()?;
            Some(format!("message {}: {fault}", entry.seq))
        })
        .collect();
    let passed = format!("{} messages", entries.len());
    Check::found("wire.form", Outcome::Fail, &faults, &passed)
}
