//! The files of an audit in, a text that tells of them out; or the first line that is not as it was written.

mod told;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use bailiwick::{
    AuditBroken, Authority, BreakReason, Config, Head, History, HistoryFilter, PathError,
    PolicyError, RootConfig, Suggestion, VirtualPath, escape, json_line, suggest, verify_after,
};

use crate::cli::{At, Look, Show};

/// Why an audit is not shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("cannot open the audit `{}`", .0.display())]
    Open(PathBuf, #[source] io::Error),
    #[error("{}", .0.display())]
    Broken(PathBuf, #[source] AuditBroken),
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
    #[error("cannot judge the paths of the audit")]
    Path(#[from] PathError),
    #[error("cannot judge the paths of the audit")]
    Policy(#[from] PolicyError),
}

/// Looks at what a person wants to see.
pub(crate) fn look(look: Look) -> Result<String, RecordError> {
    match look.at {
        At::Chain => verified(&look.audit),
        At::History {
            filter,
            since,
            show,
            json,
        } => {
            let since = since.map(|since| since.before(now()));
            let filter = HistoryFilter { since, ..filter };
            shown(&history(&look.audit)?, &filter, show, json)
        }
    }
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// The named file, and those that further runtimes of the same server wrote beside it: `.2`, `.3`, up to the first that
/// is not there.
fn files(audit: &Path) -> Result<Vec<(PathBuf, BufReader<File>)>, RecordError> {
    let mut files = Vec::new();
    for number in 1_u32.. {
        let mut place = audit.as_os_str().to_owned();
        if number > 1 {
            place.push(format!(".{number}"));
        }
        let place = PathBuf::from(place);
        match File::open(&place) {
            Ok(file) => files.push((place, BufReader::new(file))),
            Err(error) if number > 1 && error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(RecordError::Open(place, error)),
        }
    }
    Ok(files)
}

fn verified(audit: &Path) -> Result<String, RecordError> {
    let (mut head, mut records, mut count) = (Head::default(), 0, 0);
    for (place, file) in files(audit)? {
        let verified =
            verify_after(head, file).map_err(|broken| RecordError::Broken(place, broken))?;
        (head, records, count) = (verified.head, records + verified.records, count + 1);
    }
    Ok(format!(
        "{records} records in {count} files, as they were written; the last has the hash {}",
        head.hash
    ))
}

fn history(audit: &Path) -> Result<History, RecordError> {
    let mut history = History::new();
    for (place, file) in files(audit)? {
        match history.read(file) {
            Ok(_) => {}
            // A server that runs may be about to write the rest.
            Err(AuditBroken {
                line,
                reason: BreakReason::Torn,
            }) => {
                let place = place.display().to_string();
                // A closed standard error is nobody who could be told.
                let _ = writeln!(
                    io::stderr(),
                    "bailiwick-fs: {}: line {line} is torn, and nothing after it is shown",
                    escape(&place)
                );
            }
            Err(broken) => return Err(RecordError::Broken(place, broken)),
        }
    }
    Ok(history)
}

fn shown(
    history: &History,
    filter: &HistoryFilter,
    show: Show,
    json: bool,
) -> Result<String, RecordError> {
    Ok(match (show, json) {
        (Show::Entries, true) => history.export(filter)?,
        (Show::Entries, false) => {
            told::entries(history.entries().filter(|entry| filter.admits(entry)))
        }
        (Show::Report, true) => json_line(&history.report(filter))?,
        (Show::Report, false) => told::report(&history.report(filter)),
        (Show::Suggestions, true) => {
            let lines = suggestions(history)?.into_iter().map(|one| json_line(&one));
            lines.collect::<Result<Vec<_>, _>>()?.join("\n")
        }
        (Show::Suggestions, false) => told::suggestions(&suggestions(history)?),
    })
}

/// What is suggested from all of a history: a part of it does not tell what was refused.
fn suggestions(history: &History) -> Result<Vec<Suggestion>, RecordError> {
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
