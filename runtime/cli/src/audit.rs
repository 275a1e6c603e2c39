//! Shows and verifies audits.

mod format;

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::cli::{HistoryCommand, VerifyCommand};
use crate::table::json_lines;
use bailiwick::audit::{
    AuditBroken, AuditFileError, AuditFileFault, BreakReason, Head, json_line, verify_file,
    wall_clock,
};
use bailiwick::config::RootConfig;
use bailiwick::effect::ContentHash;
use bailiwick::path::PathError;
use bailiwick::permission::{History, HistoryFilter, Suggestion, suggest};
use bailiwick::policy::{Authority, PolicyError};
use bailiwick::text::escape;
use bailiwick::tool::ToolName;
use bailiwick::{Config, VirtualPath};

/// Why an audit cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuditError {
    #[error("cannot list the files of the audit `{}`", .0.display())]
    List(PathBuf, #[source] io::Error),
    #[error("the audit file `{}` is missing", .0.display())]
    Missing(PathBuf),
    #[error(transparent)]
    File(#[from] AuditFileError),
    #[error("no record has the hash `{0}`: records were removed or replaced")]
    Head(ContentHash),
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
    #[error("invalid path in the audit")]
    Path(#[from] PathError),
    #[error("invalid path in the audit")]
    Policy(#[from] PolicyError),
}

/// Shows a history.
pub(crate) fn history(command: HistoryCommand) -> Result<String, AuditError> {
    let history = read_history(&command.audit)?;
    if command.suggest {
        let suggestions = suggestions(&history)?;
        return if command.json {
            Ok(json_lines(&suggestions)?)
        } else {
            Ok(format::suggestions(&suggestions))
        };
    }
    let now = wall_clock();
    let filter = HistoryFilter {
        agent: command.agent.map(Into::into),
        session: command.session.map(Into::into),
        server: command.server.map(Into::into),
        tool: command.tool.as_deref().map(ToolName::new),
        decision: command.decision,
        since: command.since.map(|when| when.to_millis(now)),
        until: command.until.map(|when| when.to_millis(now)),
    };
    Ok(match (command.report, command.json) {
        (true, true) => json_line(&history.report(&filter))?,
        (true, false) => format::report(&history.report(&filter)),
        (false, true) => history.export(&filter)?,
        (false, false) => format::entries(history.entries().filter(|entry| filter.admits(entry))),
    })
}

/// The audit file, and the numbered files of further clients: `.2`, `.3` and so on.
fn files(audit: &Path) -> Result<Vec<PathBuf>, AuditError> {
    let numbers = numbers(audit).map_err(|error| AuditError::List(audit.to_owned(), error))?;
    // Servers number files without gaps, so a missing file was removed.
    if let Some((missing, _)) = (2..).zip(&numbers).find(|(next, found)| next != *found) {
        return Err(AuditError::Missing(numbered(audit, missing)));
    }
    let further = numbers.into_iter().map(|number| numbered(audit, number));
    Ok(std::iter::once(audit.to_owned()).chain(further).collect())
}

/// The audit file of another client.
pub(crate) fn numbered(audit: &Path, number: u32) -> PathBuf {
    let mut path = audit.as_os_str().to_owned();
    path.push(format!(".{number}"));
    path.into()
}

/// The numbers of the files for further clients, from 2.
fn numbers(audit: &Path) -> io::Result<BTreeSet<u32>> {
    let Some(name) = audit.file_name() else {
        return Ok(BTreeSet::new());
    };
    let dir = audit.parent().filter(|path| !path.as_os_str().is_empty());
    let mut numbers = BTreeSet::new();
    #[expect(
        clippy::disallowed_methods,
        reason = "the path is from the command line"
    )]
    let entries = std::fs::read_dir(dir.unwrap_or(Path::new(".")))?;
    for entry in entries {
        let found = entry?.file_name();
        let rest = found.as_bytes().strip_prefix(name.as_bytes());
        let digits = rest.and_then(|rest| std::str::from_utf8(rest.strip_prefix(b".")?).ok());
        let number = digits.and_then(|digits| digits.parse().ok());
        let number = number.filter(|number: &u32| *number > 1);
        // Servers do not write leading zeros.
        numbers.extend(number.filter(|number| digits == Some(&*number.to_string())));
    }
    Ok(numbers)
}

/// Verifies the hash chain of an audit.
pub(crate) fn verify(command: &VerifyCommand) -> Result<String, AuditError> {
    let expected = command.head;
    let mut found = expected.is_none();
    let (mut head, mut records, mut count) = (Head::default(), 0, 0);
    for path in files(&command.audit)? {
        let verified = verify_file(head, &path, |hash| found |= Some(hash) == expected)?;
        head = verified.head;
        (records, count) = (records + verified.records, count + verified.files);
    }
    if let Some(expected) = expected.filter(|_| !found) {
        return Err(AuditError::Head(expected));
    }
    let verb = if records == 1 { "is" } else { "are" };
    Ok(format!(
        "{} in {} {verb} intact; the last has the hash {}",
        counted(records, "record"),
        counted(count.into(), "file"),
        head.hash
    ))
}

/// A number with its noun, such as `1 file` or `2 files`.
fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn read_history(audit: &Path) -> Result<History, AuditError> {
    let mut history = History::new();
    for path in files(audit)? {
        let Err(error) = history.read_file(&path) else {
            continue;
        };
        match error.fault() {
            // A running server may be writing the line.
            AuditFileFault::Broken(AuditBroken {
                line,
                reason: BreakReason::Torn,
            }) if error.path() == path => {
                let path = path.display().to_string();
                // Standard error may be closed.
                let _ = writeln!(
                    io::stderr(),
                    "bailiwick: {}: line {line} is incomplete, and later records are not shown",
                    escape(&path)
                );
            }
            _ => return Err(error.into()),
        }
    }
    Ok(history)
}

/// Suggests rules. Needs the whole history, since a part may lack denials.
fn suggestions(history: &History) -> Result<Vec<Suggestion>, AuditError> {
    let needs = history.entries().flat_map(|entry| entry.event.needs());
    let names: BTreeSet<&str> = needs
        .filter_map(|need| need.path()?.names().next())
        .collect();
    // The roots are not recorded. Protected names match at any depth, so top-level directories work as well.
    let mut config = Config::new();
    for name in names {
        config = config.root(RootConfig::new(VirtualPath::top().join(name)?));
    }
    Ok(suggest(history, &Authority::configured(&config)?))
}
