//! All checks of a connected server.

mod declared;
mod requests;

use super::log::MessageLog;
use super::report::{Check, joined};
use super::session::{Connected, Deadline};

/// Runs all checks. They change nothing if the annotations of the server's tools are correct.
pub(super) async fn all(server: &Connected, deadline: Deadline) -> Vec<Check> {
    let mut checks = vec![revision(server), lists(server)];
    checks.extend(declared::all(&server.info).await);
    checks.extend(requests::all(server, deadline).await);
    checks.push(messages(&server.log));
    checks
}

/// Checks that the server chose a known revision.
fn revision(server: &Connected) -> Check {
    const CHECK: &str = "connect";
    match server.connection.chosen(&server.info.greeting) {
        Ok(revision) => Check::pass(CHECK, &format!("revision {revision}")),
        Err(unknown) => {
            let unknown = super::report::shortened(&unknown);
            Check::fail(CHECK, &format!("unknown revision `{unknown}`"))
        }
    }
}

/// Checks that the advertised lists can be read.
fn lists(server: &Connected) -> Check {
    let info = &server.info;
    let (tools, views) = (info.tools.len(), info.apps.len());
    let passed = format!("{}, {}", counted(tools, "tool"), counted(views, "view"));
    Check::of_faults("lists", &info.unread, &passed)
}

/// Checks that all received messages were valid.
fn messages(log: &MessageLog) -> Check {
    const CHECK: &str = "wire.form";
    let faults = log.faults();
    if faults.count == 0 {
        Check::pass(CHECK, &counted(faults.messages, "message"))
    } else {
        Check::fail(CHECK, &joined(&faults.first, faults.count))
    }
}

/// Formats a count, such as `1 tool` and `2 tools`.
fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
