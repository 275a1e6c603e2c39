//! What the audit records about a command.

use bailiwick::effect::ContentHash;
use serde::Serialize;

use super::changed::ChangedFiles;
use super::network::Connections;
use super::output::{CommandChanges, CommandOutput};
use crate::spec::{Layer, Mount, SandboxSpec};

/// Maximum number and total bytes of arguments that are recorded, and of names of environment variables.
const MAX_WORDS: usize = 100;
const MAX_WORD_BYTES: usize = 16 << 10;

/// Details of the effect of a command.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Record<'r> {
    /// The command is started once this is recorded.
    Started(Started<'r>),
    /// Nothing of the command runs any more.
    Ended(Ended<'r>),
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
            argv: first(spec.argv.iter()),
            arguments: spec.argv.len(),
            program_sha256,
            cwd: spec.cwd.to_string_lossy().into_owned(),
            environment: first(spec.env.iter().map(|(name, _)| name)),
            writable: first(writable.iter()),
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

#[derive(Debug, Default, Serialize)]
pub(super) struct Ended<'r> {
    exit_code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
    /// Whether the call has no result, because it was cancelled, its authority was revoked, or it failed.
    without_result: bool,
    duration_ms: u64,
    stdout_bytes: u64,
    stderr_bytes: u64,
    created_protected: &'r [String],
    /// What it changed, if the changes are kept apart.
    changes: Option<&'r CommandChanges>,
    /// What it changed in the roots.
    changed_files: Option<&'r ChangedFiles>,
    connections: Option<&'r Connections>,
}

impl<'r> Ended<'r> {
    pub(super) fn new(
        output: Option<&'r CommandOutput>,
        changed_files: Option<&'r ChangedFiles>,
        duration_ms: u64,
        connections: Option<&'r Connections>,
    ) -> Self {
        let ended = Self {
            without_result: output.is_none(),
            duration_ms,
            changed_files,
            connections,
            ..Self::default()
        };
        match output {
            None => ended,
            Some(output) => Self {
                exit_code: output.exit_code,
                signal: output.signal,
                timed_out: output.timed_out,
                stdout_bytes: output.stdout_bytes,
                stderr_bytes: output.stderr_bytes,
                created_protected: &output.created_protected,
                changes: output.changes.as_ref(),
                ..ended
            },
        }
    }
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
