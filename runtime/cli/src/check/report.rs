//! What the checks of a server came to, as text and as JSON.

use std::fmt;
use std::time::{Duration, Instant};

use bailiwick::escape;
use serde::Serialize;
use serde_json::{Value, json};

use super::client::ServerError;
use super::connection::{Connection, Revision};
use super::session::{Session, State};
use super::target::Target;

/// The longest text of a server that is repeated, in characters.
const MAX_TEXT: usize = 300;
/// How many faults a detail names.
const MAX_FAULTS: usize = 8;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The server is as it should be.
    Pass,
    /// Something is allowed and discouraged, or could not be checked.
    Warn,
    /// Something is wrong.
    Fail,
    /// The server does not have what is checked.
    Skip,
}

impl Outcome {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Pass, Self::Warn, Self::Fail, Self::Skip];

    /// As reports have it.
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

/// One check. Its detail is text on one line, bounded and escaped for terminals.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// Its name.
    pub check: &'static str,
    /// How it ended.
    pub outcome: Outcome,
    /// What was found.
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

    /// Passes with what was checked, or names the first faults.
    pub(super) fn of_faults(check: &'static str, faults: &[String], passed: &str) -> Self {
        if faults.is_empty() {
            Self::pass(check, passed)
        } else {
            Self::fail(check, &joined(faults, faults.len()))
        }
    }
}

/// The first faults of `count`.
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

/// The start of a text that a server sent.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// One line, as it is shown on a terminal.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = self.outcome.as_str();
        let text = format!("{outcome}  {:<20}  {}", self.check, self.detail);
        f.write_str(text.trim_end())
    }
}

/// What all checks of a server came to.
#[derive(Clone, Debug)]
pub struct Report {
    target: String,
    revision: Revision,
    error: Option<ServerError>,
    checks: Vec<Check>,
}

impl Report {
    /// The checks, in the order in which people read them.
    #[must_use]
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// How many checks ended that way.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> usize {
        let checks = self.checks.iter();
        checks.filter(|check| check.outcome == outcome).count()
    }

    /// Why the server could not be reached, if it could not. Only `connect` was checked then.
    #[must_use]
    pub fn unreachable(&self) -> Option<&ServerError> {
        self.error.as_ref()
    }

    /// The report for programs: `target`, `revision`, `reached`, `counts` by outcome, and `checks`, each with `check`,
    /// `outcome` (`pass`, `warn`, `fail` or `skip`) and `detail`. Members may be added; what `detail` says may change.
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

/// A line for each check, and one that counts them.
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

/// Connects to a server, makes every check and ends the connection, and the server if it was started for it. All checks
/// together end `within` that time, and the connection a few seconds later.
///
/// If `stop` completes first, the connection is closed and `None` is returned. No check changes anything on a server
/// whose tools do what they say.
pub async fn run(
    target: Target,
    connection: Connection,
    within: Duration,
    stop: impl Future<Output = ()>,
) -> Option<Report> {
    let started = Instant::now();
    let revision = connection.revision;
    let session = Session::new(target);
    let checked = async {
        match session.connect(connection, within).await {
            State::Failed(error) => {
                let mut check = Check::unreachable(&error);
                if let Some(line) = session.last_stderr() {
                    let line = format!("; its standard error ends with `{}`", shortened(&line));
                    check.detail += &escape(&line);
                }
                (vec![check], Some(error))
            }
            _ => {
                let left = within.saturating_sub(started.elapsed());
                (session.checks(left).await, None)
            }
        }
    };
    let checked = tokio::select! {
        checked = checked => Some(checked),
        () = stop => None,
    };
    session.close().await;
    let (checks, error) = checked?;
    Some(Report {
        target: escape(&shortened(&session.target().to_string())).into_owned(),
        revision,
        error,
        checks,
    })
}
