//! What the audit records about a command.

use std::os::unix::process::ExitStatusExt as _;

use bailiwick::effect::ContentHash;
use bailiwick::tool::Act;
use bailiwick::{CallError, Code};
use serde::Serialize;

use super::changed::ChangedFiles;
use super::network::Connections;
use super::output::{CommandChanges, CommandOutput};
use super::run::Changed;
use crate::process::Exit;
use crate::spec::{Layer, Mount, SandboxSpec};

/// Maximum number and total bytes of the words that [`first`] returns.
const MAX_WORDS: usize = 100;
const MAX_WORD_BYTES: usize = 16 << 10;
/// Maximum sizes of lists in a record, as JSON in bytes. A record has at most 64 KiB in all, see [`Act::record`].
const MAX_ARGUMENT_BYTES: usize = 24 << 10;
const MAX_NAME_BYTES: usize = 12 << 10;
const MAX_ENDED_BYTES: usize = 8 << 10;

/// Details of the effect of a command.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Record<'r> {
    /// The command is started once this is recorded.
    Started(Started<'r>),
    /// Nothing of the command runs any more.
    Ended(&'r Ended),
}

#[derive(Debug, Serialize)]
pub(super) struct Started<'r> {
    /// The first arguments.
    argv: Vec<String>,
    /// The number of arguments.
    arguments: usize,
    program_sha256: ContentHash,
    cwd: String,
    /// The first names of environment variables.
    environment: Vec<String>,
    /// The first files and directories of the roots that it can change.
    writable: Vec<String>,
    /// Whether its changes are kept apart.
    overlay: bool,
    layers: &'r [Layer],
    missing: &'r [(Layer, String)],
    /// Whether it can connect to allowed hosts.
    network: bool,
}

impl<'r> Started<'r> {
    pub(super) fn new(
        spec: &SandboxSpec,
        files: &[Mount],
        program_sha256: ContentHash,
        (layers, missing): (&'r [Layer], &'r [(Layer, String)]),
        network: bool,
    ) -> Self {
        let writable: Vec<String> = files.iter().filter_map(writable).collect();
        Self {
            argv: fitting(&spec.argv, MAX_ARGUMENT_BYTES),
            arguments: spec.argv.len(),
            program_sha256,
            cwd: spec.cwd.to_string_lossy().into_owned(),
            environment: fitting(spec.env.iter().map(|(name, _)| name), MAX_NAME_BYTES),
            writable: fitting(&writable, MAX_NAME_BYTES),
            overlay: spec.has_overlay(),
            layers,
            missing,
            network,
        }
    }
}

fn writable(mount: &Mount) -> Option<String> {
    match mount {
        Mount::Host {
            at, writable: true, ..
        }
        | Mount::Overlay {
            at, writable: true, ..
        }
        | Mount::Within { at, writable: true } => Some(at.to_string_lossy().into_owned()),
        _ => None,
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Ended {
    exit_code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
    /// Whether the call has no result, because it was cancelled, its authority was revoked, or it failed.
    without_result: bool,
    duration_ms: u64,
    stdout_bytes: u64,
    stderr_bytes: u64,
    /// The first names that it created and that the worker may not change.
    created_protected: Vec<String>,
    /// The number of these names, at most 100.
    created_protected_total: usize,
    /// What it changed, if the changes are kept apart.
    changes: Option<CommandChanges>,
    /// What it changed in the roots.
    changed_files: Option<ChangedFiles>,
    connections: Option<Connections>,
}

impl Ended {
    /// The end of a command that ended with `exit`: `Some(None)` at its time limit, `None` if it was killed for another reason.
    pub(super) fn new(
        exit: Option<Option<Exit>>,
        output: Option<&CommandOutput>,
        changed: &Changed,
        duration_ms: u64,
        connections: Option<&Connections>,
    ) -> Self {
        let status = exit.flatten().map(|exit| exit.status);
        Self {
            exit_code: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
            timed_out: exit == Some(None),
            without_result: output.is_none(),
            duration_ms,
            stdout_bytes: output.map_or(0, |output| output.stdout_bytes),
            stderr_bytes: output.map_or(0, |output| output.stderr_bytes),
            created_protected: fitting(&changed.protected, MAX_ENDED_BYTES),
            created_protected_total: changed.protected.len(),
            changes: changed.apart.as_ref().map(first_changes),
            changed_files: changed.live.clone(),
            connections: connections.map(|all| all.first(MAX_ENDED_BYTES)),
        }
    }

    /// Records the end of a command, without its lists if they do not fit.
    ///
    /// # Errors
    /// Those of [`Act::record`].
    pub(super) fn record(mut self, act: &Act) -> Result<(), CallError> {
        let record = Record::Ended(&self);
        match act.record(&record) {
            Err(error) if error.code() == Code::TooLarge => {}
            recorded => return recorded,
        }
        self.created_protected.clear();
        self.changes = self.changes.map(|changes| CommandChanges {
            files: Vec::new(),
            dropped: Vec::new(),
            ..changes
        });
        self.changed_files = self.changed_files.map(ChangedFiles::without_list);
        self.connections = self.connections.map(|all| all.first(0));
        act.record(&Record::Ended(&self))
    }
}

/// The first changes, with the number of all.
fn first_changes(changes: &CommandChanges) -> CommandChanges {
    CommandChanges {
        files: fitting(&changes.files, MAX_ENDED_BYTES),
        dropped: fitting(&changes.dropped, MAX_ENDED_BYTES),
        ..changes.clone()
    }
}

/// The first of `items` that fit into this many bytes as JSON.
pub(super) fn fitting<'i, T: Clone + Serialize + 'i>(
    items: impl IntoIterator<Item = &'i T>,
    bytes: usize,
) -> Vec<T> {
    let mut left = bytes;
    let fitting = items.into_iter().take(MAX_WORDS).map_while(|item| {
        let comma = 1;
        let length = serde_json::to_vec(item).ok()?.len() + comma;
        left = left.checked_sub(length)?;
        Some(item.clone())
    });
    fitting.collect()
}

/// The first of `words`, as far as they fit.
pub(super) fn first<'w>(words: impl Iterator<Item = &'w String>) -> Vec<String> {
    let mut left = MAX_WORD_BYTES;
    let fitting = words.take(MAX_WORDS).map_while(|word| {
        left = left.checked_sub(word.len())?;
        Some(word.clone())
    });
    fitting.collect()
}
