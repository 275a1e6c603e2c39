//! Derives a report from facts about a machine.

mod folders;
mod people;
mod sandbox;
mod system;
#[cfg(test)]
mod tests;

use std::fmt;

use bailiwick::text::escape;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::facts::Facts;

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    /// It works.
    Ok,
    /// It works in part, or is replaced by something weaker.
    Limited,
    /// It does not work.
    Missing,
}

impl Status {
    const ALL: [Self; 3] = [Self::Ok, Self::Limited, Self::Missing];

    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    check: &'static str,
    status: Status,
    /// Whether `serve` does not work because of it.
    blocks_serve: bool,
    /// What it means.
    detail: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Check {
    fn new(
        check: &'static str,
        status: Status,
        detail: impl Into<String>,
        advice: Option<&str>,
    ) -> Self {
        Self {
            check,
            status,
            blocks_serve: false,
            detail: escape(&detail.into()).into_owned(),
            advice: advice.map(|advice| escape(advice).into_owned()),
        }
    }

    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, Status::Ok, detail, None)
    }

    fn limited(check: &'static str, detail: impl Into<String>, advice: &str) -> Self {
        Self::new(check, Status::Limited, detail, Some(advice))
    }

    fn missing(check: &'static str, detail: impl Into<String>, advice: &str) -> Self {
        Self::new(check, Status::Missing, detail, Some(advice))
    }

    /// A check without which `serve` does not work.
    fn required(check: &'static str, detail: impl Into<String>, advice: &str) -> Self {
        Self {
            blocks_serve: true,
            ..Self::missing(check, detail, advice)
        }
    }
}

/// Formats a line for a terminal.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status.as_str();
        write!(f, "{status:<7}  {:<16}  {}", self.check, self.detail)?;
        match &self.advice {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

/// The report of all checks.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    checks: Vec<Check>,
}

/// Runs all checks on the facts.
pub(super) fn report(facts: &Facts) -> Report {
    let system = system::checks(facts);
    let folders = folders::checks(facts);
    let people = people::checks(facts);
    let sandbox = sandbox::checks(&facts.sandbox);
    let checks = system.into_iter().chain(folders);
    let checks = checks.chain(people).chain(sandbox);
    Report {
        checks: checks.collect(),
    }
}

impl Report {
    /// Whether nothing that `serve` needs is missing.
    pub(crate) fn can_serve(&self) -> bool {
        !self.checks.iter().any(|check| check.blocks_serve)
    }

    /// The report as JSON: `can_serve`, `counts` by status, and `checks`, each with `check`, `status` (`ok`, `limited` or
    /// `missing`), `blocks_serve`, `detail` and, unless it is ok, `advice`. Members may be added, and the texts of `detail` and
    /// `advice` may change.
    pub(crate) fn to_json(&self) -> Value {
        let counts = self.counts();
        let counts: Map<_, _> = counts
            .map(|(status, count)| (status.to_owned(), count.into()))
            .into_iter()
            .collect();
        json!({ "can_serve": self.can_serve(), "counts": counts, "checks": self.checks })
    }

    fn counts(&self) -> [(&'static str, usize); 3] {
        Status::ALL.map(|status| {
            let checks = self.checks.iter();
            let count = checks.filter(|check| check.status == status).count();
            (status.as_str(), count)
        })
    }
}

/// Formats a line for each check, and a summary.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            writeln!(f, "{check}")?;
        }
        let counts = self
            .counts()
            .map(|(status, count)| format!("{count} {status}"));
        write!(f, "{} checks: {}", self.checks.len(), counts.join(", "))
    }
}
