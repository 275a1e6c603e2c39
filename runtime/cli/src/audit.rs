//! Shows and verifies the files of an audit.

mod format;

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use bailiwick::{
    AuditBroken, AuditFileError, AuditFileFault, Authority, BreakReason, Config, ContentHash, Head,
    History, HistoryFilter, PathError, PolicyError, RootConfig, Suggestion, VirtualPath, escape,
    json_line, suggest, verify_file,
};

use crate::cli::{AuditAction, AuditCommand, HistoryView};

/// Why an audit is not shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuditError {
    #[error("cannot list the files of the audit `{}`", .0.display())]
    List(PathBuf, #[source] io::Error),
    #[error("the audit lacks its file `{}`", .0.display())]
    Missing(PathBuf),
    #[error(transparent)]
    File(#[from] AuditFileError),
    #[error("no record has the hash `{0}`: records were cut off or replaced")]
    Head(ContentHash),
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
    #[error("cannot judge the paths of the audit")]
    Path(#[from] PathError),
    #[error("cannot judge the paths of the audit")]
    Policy(#[from] PolicyError),
}

/// Looks at what a person wants to see.
pub(crate) fn run(command: AuditCommand) -> Result<String, AuditError> {
    match command.action {
        AuditAction::Verify { head } => verify_files(&command.file, head),
        AuditAction::History {
            filter,
            since,
            until,
            view,
            json,
        } => {
            let [since, until] = [since, until].map(|when| when.map(|when| when.to_millis(now())));
            let filter = HistoryFilter {
                since,
                until,
                ..filter
            };
            format_history(&read_history(&command.file)?, &filter, view, json)
        }
    }
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// The named file, and those that further runtimes of the same server wrote beside it: `.2`, `.3` and so on.
fn files(audit: &Path) -> Result<Vec<PathBuf>, AuditError> {
    let numbers = numbers(audit).map_err(|error| AuditError::List(audit.to_owned(), error))?;
    // A server numbers without a gap, so a file that is missing was taken away.
    if let Some((missing, _)) = (2..).zip(&numbers).find(|(next, found)| next != *found) {
        return Err(AuditError::Missing(numbered(audit, missing)));
    }
    let further = numbers.into_iter().map(|number| numbered(audit, number));
    Ok(std::iter::once(audit.to_owned()).chain(further).collect())
}

fn numbered(audit: &Path, number: u32) -> PathBuf {
    let mut place = audit.as_os_str().to_owned();
    place.push(format!(".{number}"));
    place.into()
}

/// The numbers above 1 that stand behind the name of the file in its folder.
fn numbers(audit: &Path) -> io::Result<BTreeSet<u32>> {
    let Some(name) = audit.file_name() else {
        return Ok(BTreeSet::new());
    };
    let folder = audit.parent().filter(|path| !path.as_os_str().is_empty());
    let mut numbers = BTreeSet::new();
    #[expect(
        clippy::disallowed_methods,
        reason = "a person named the file; no worker is here"
    )]
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new(".")))?;
    for entry in entries {
        let found = entry?.file_name();
        let rest = found.as_bytes().strip_prefix(name.as_bytes());
        let digits = rest.and_then(|rest| std::str::from_utf8(rest.strip_prefix(b".")?).ok());
        let number = digits.and_then(|digits| digits.parse().ok());
        let number = number.filter(|number: &u32| *number > 1);
        // What is written otherwise, such as `.02`, no server wrote.
        numbers.extend(number.filter(|number| digits == Some(&*number.to_string())));
    }
    Ok(numbers)
}

fn verify_files(audit: &Path, expected: Option<ContentHash>) -> Result<String, AuditError> {
    let mut found = expected.is_none();
    let (mut head, mut records, mut count) = (Head::default(), 0, 0);
    for place in files(audit)? {
        let verified = verify_file(head, &place, |hash| found |= Some(hash) == expected)?;
        head = verified.head;
        (records, count) = (records + verified.records, count + verified.files);
    }
    if let Some(expected) = expected.filter(|_| !found) {
        return Err(AuditError::Head(expected));
    }
    Ok(format!(
        "{records} records in {count} files, as they were written; the last has the hash {}",
        head.hash
    ))
}

fn read_history(audit: &Path) -> Result<History, AuditError> {
    let mut history = History::new();
    for place in files(audit)? {
        let Err(error) = history.read_file(&place) else {
            continue;
        };
        match error.fault() {
            // A server that runs may be about to write the rest.
            AuditFileFault::Broken(AuditBroken {
                line,
                reason: BreakReason::Torn,
            }) if error.path() == place => {
                let place = place.display().to_string();
                // A closed standard error is nobody who could be told.
                let _ = writeln!(
                    io::stderr(),
                    "bailiwick: {}: line {line} is torn, and nothing after it is shown",
                    escape(&place)
                );
            }
            _ => return Err(error.into()),
        }
    }
    Ok(history)
}

fn format_history(
    history: &History,
    filter: &HistoryFilter,
    view: HistoryView,
    json: bool,
) -> Result<String, AuditError> {
    Ok(match (view, json) {
        (HistoryView::Entries, true) => history.export(filter)?,
        (HistoryView::Entries, false) => {
            format::entries(history.entries().filter(|entry| filter.admits(entry)))
        }
        (HistoryView::Report, true) => json_line(&history.report(filter))?,
        (HistoryView::Report, false) => format::report(&history.report(filter)),
        (HistoryView::Suggestions, true) => {
            let lines = suggestions(history)?.into_iter().map(|one| json_line(&one));
            lines.collect::<Result<Vec<_>, _>>()?.join("\n")
        }
        (HistoryView::Suggestions, false) => format::suggestions(&suggestions(history)?),
    })
}

/// What is suggested from all of a history: a part of it does not tell what was refused.
fn suggestions(history: &History) -> Result<Vec<Suggestion>, AuditError> {
    let needs = history.entries().flat_map(|entry| entry.event.needs());
    let names: BTreeSet<&str> = needs
        .filter_map(|need| need.path()?.names().next())
        .collect();
    // Where the roots were is not recorded; names are protected at any depth, so the tops of the paths serve as well.
    let mut config = Config::new();
    for name in names {
        config = config.root(RootConfig::new(VirtualPath::top().join(name)?));
    }
    Ok(suggest(history, &Authority::configured(&config)?))
}
