//! The report of all checks, as text or JSON.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bailiwick::text::escape;
use serde::Serialize;
use serde_json::{Value, json};

use super::client::ServerError;
use super::connection::{Connection, Revision};
use super::log::MessageLog;
use super::session::Connected;
use super::target::Target;

/// The maximum length of quoted server text, in characters.
const MAX_TEXT: usize = 300;
/// The maximum number of faults in a detail.
const MAX_FAULTS: usize = 8;

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// No fault was found.
    Pass,
    /// Something is discouraged, or could not be checked.
    Warn,
    /// A fault was found.
    Fail,
    /// The check does not apply to the server.
    Skip,
}

impl Outcome {
    /// All outcomes, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Pass, Self::Warn, Self::Fail, Self::Skip];

    /// The name in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
            Self::Skip => "skip",
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// Its name.
    pub check: &'static str,
    /// How it ended.
    pub outcome: Outcome,
    /// Details on one line, bounded and escaped for terminals.
    pub detail: String,
}

impl Check {
    pub(super) fn new(check: &'static str, outcome: Outcome, detail: &str) -> Self {
        Self {
            check,
            outcome,
            detail: escape(detail).into_owned(),
        }
    }

    pub(super) fn pass(check: &'static str, detail: &str) -> Self {
        Self::new(check, Outcome::Pass, detail)
    }

    pub(super) fn warn(check: &'static str, detail: &str) -> Self {
        Self::new(check, Outcome::Warn, detail)
    }

    pub(super) fn fail(check: &'static str, detail: &str) -> Self {
        Self::new(check, Outcome::Fail, detail)
    }

    pub(super) fn skip(check: &'static str, detail: &str) -> Self {
        Self::new(check, Outcome::Skip, detail)
    }

    pub(super) fn unreachable(error: &ServerError) -> Self {
        Self::fail("connect", &error.to_string())
    }

    /// Passes without faults, or fails with the first ones.
    pub(super) fn of_faults(check: &'static str, faults: &[String], passed: &str) -> Self {
        Self::of_findings(check, faults, &[], passed)
    }

    /// Fails with the first faults, or has the first warnings, or passes.
    pub(super) fn of_findings(
        check: &'static str,
        faults: &[String],
        warnings: &[String],
        passed: &str,
    ) -> Self {
        match (faults, warnings) {
            ([], []) => Self::pass(check, passed),
            ([], warnings) => Self::warn(check, &joined(warnings, warnings.len())),
            (faults, _) => Self::fail(check, &joined(faults, faults.len())),
        }
    }
}

/// Joins the first of `count` faults.
pub(super) fn joined(faults: &[String], count: usize) -> String {
    let named = faults.iter().take(MAX_FAULTS).map(|fault| shortened(fault));
    let named: Vec<String> = named.collect();
    let more = count - named.len();
    let mut text = named.join("; ");
    if more > 0 {
        text += &format!("; and {more} more");
    }
    text
}

/// Truncates text from a server.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Formats a line for a terminal.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = self.outcome.as_str();
        let text = format!("{outcome}  {:<20}  {}", self.check, self.detail);
        f.write_str(text.trim_end())
    }
}

/// The report of all checks.
#[derive(Clone, Debug)]
pub struct Report {
    target: String,
    revision: Revision,
    error: Option<ServerError>,
    checks: Vec<Check>,
}

impl Report {
    /// The checks, in display order.
    #[must_use]
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// The number of checks with this outcome.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> usize {
        let checks = self.checks.iter();
        checks.filter(|check| check.outcome == outcome).count()
    }

    /// Why the server could not be reached, if so. The report has only the check `connect` then.
    #[must_use]
    pub fn unreachable(&self) -> Option<&ServerError> {
        self.error.as_ref()
    }

    /// The report as JSON: `target`, `revision`, `reached`, `counts` by outcome, and `checks`, each with `check`, `outcome` (`pass`,
    /// `warn`, `fail` or `skip`) and `detail`. Members may be added, and the text of `detail` may change.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let counts = Outcome::ALL.map(|outcome| (outcome.as_str(), self.count(outcome)));
        let counts: serde_json::Map<_, _> = counts
            .into_iter()
            .map(|(name, count)| (name.to_owned(), count.into()))
            .collect();
        json!({
            "target": self.target,
            "revision": self.revision.as_str(),
            "reached": self.error.is_none(),
            "counts": counts,
            "checks": self.checks,
        })
    }
}

/// Formats a line for each check, and a summary.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            writeln!(f, "{check}")?;
        }
        let counts = Outcome::ALL.map(|outcome| {
            let word = match outcome {
                Outcome::Pass => "passed",
                Outcome::Warn => "with a warning",
                Outcome::Fail => "failed",
                Outcome::Skip => "skipped",
            };
            (self.count(outcome), word)
        });
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<_> = counts
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        let checks = self.checks.len();
        let noun = if checks == 1 { "check" } else { "checks" };
        write!(f, "{checks} {noun}: {}", counts.join(", "))
    }
}

/// Connects to a server, runs all checks within the timeout, then closes the connection and ends the server if it was started.
///
/// Returns `None` if `stop` completes first. The checks change nothing if the annotations of the server's tools are correct.
pub async fn run(
    target: Target,
    connection: Connection,
    within: Duration,
    stop: impl Future<Output = ()>,
) -> Option<Report> {
    let started = Instant::now();
    let revision = connection.revision;
    let log = Arc::new(MessageLog::default());
    tokio::pin!(stop);
    let opened = tokio::select! {
        opened = Connected::open(&target, connection, &log, false, within) => opened,
        () = &mut stop => return None,
    };
    let (checks, error) = match opened {
        Ok(server) => {
            let left = within.saturating_sub(started.elapsed());
            let checks = tokio::select! {
                checks = server.checks(left) => Some(checks),
                () = stop => None,
            };
            server.close().await;
            (checks?, None)
        }
        Err(error) => {
            let mut check = Check::unreachable(&error);
            if let Some(line) = log.last_stderr() {
                let line = format!("; its standard error ends with `{}`", shortened(&line));
                check.detail += &escape(&line);
            }
            (vec![check], Some(error))
        }
    };
    Some(Report {
        target: escape(&shortened(&target.to_string())).into_owned(),
        revision,
        error,
        checks,
    })
}
