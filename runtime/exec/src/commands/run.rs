//! Runs a command and collects its output.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bailiwick::tool::{Act, ActProgress};
use bailiwick::{CallError, Code, VirtualPath};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use super::output::{CommandChanges, CommandOutput};
use crate::error::ExecError;
use crate::output::Excerpt;
use crate::overlay::{self, Store};
use crate::process::{Exit, Helper, Process, Stdio, spawn};
use crate::spec::{Mount, SandboxSpec};
use crate::view::{self, Changes};

/// Maximum number of names in [`CommandOutput::created_protected`].
const MAX_CREATED: usize = 100;
/// Bytes of each output stream that are kept at its beginning, and at its end.
const KEPT_OUTPUT: usize = 16 << 10;

/// A command that is about to run.
pub(super) struct Run {
    pub(super) spec: SandboxSpec,
    /// The mounts of the roots.
    pub(super) files: Vec<Mount>,
    /// Where the changes are kept if they are kept apart.
    pub(super) kept: Option<Store>,
    pub(super) helper: Helper,
    pub(super) stdin: OwnedFd,
    pub(super) timeout: Duration,
    pub(super) progress: ActProgress,
    pub(super) act: Act,
}

impl Run {
    /// Runs the command until it ends, its time limit passes or `cancelled` is dropped. Nothing of it runs afterwards.
    pub(super) async fn run(
        self,
        cancelled: oneshot::Receiver<()>,
    ) -> Result<CommandOutput, CallError> {
        let Self {
            spec,
            files,
            kept,
            helper,
            stdin,
            timeout,
            progress,
            act,
        } = self;
        let began = Instant::now();
        let (stdout, stdout_end) = stream(progress.clone()).map_err(|error| io_error(&error))?;
        let (stderr, stderr_end) = stream(progress).map_err(|error| io_error(&error))?;
        let stdio = Stdio {
            stdin,
            stdout: stdout_end,
            stderr: stderr_end,
        };
        let started = match &kept {
            Some(_) => overlay::start_of_changes().await,
            None => Duration::ZERO,
        };
        let spawned = spawn(&spec, stdio, &helper).await;
        let mut process = spawned.map_err(|error| not_started(&error))?;
        let directory = process.changes();
        let exit = Self::wait(&mut process, timeout, cancelled).await;
        drop(process);
        // The streams end with the sandbox.
        let (stdout, stderr) = (stdout.await, stderr.await);
        let exit = exit?;
        let after = tokio::task::spawn_blocking(move || match (kept, directory) {
            (Some(store), Some(directory)) => {
                let overlays = overlays(&files)?;
                let collected = overlay::collect(directory, &overlays, started, act.reading());
                let (kept, dropped) = collected?;
                let changes = CommandChanges::new(kept.as_ref(), dropped);
                if let Some(kept) = kept {
                    store.add(kept);
                }
                Ok((Vec::new(), Some(changes)))
            }
            _ => Ok((unjudged(&files, &act)?, None)),
        });
        let after: Result<_, CallError> = after
            .await
            .map_err(|_| internal("the roots were not read"))?;
        let (created_protected, changes) = after?;
        let status = exit.map(|exit| exit.status);
        let excerpt =
            |stream: Result<Excerpt, _>| stream.map_err(|_| internal("the output was lost"));
        let (stdout, stderr) = (excerpt(stdout)?, excerpt(stderr)?);
        Ok(CommandOutput {
            exit_code: status.and_then(|status| status.code()),
            signal: status.and_then(|status| {
                use std::os::unix::process::ExitStatusExt as _;
                status.signal()
            }),
            timed_out: exit.is_none(),
            stdout_bytes: stdout.total(),
            stderr_bytes: stderr.total(),
            stdout: stdout.text(),
            stderr: stderr.text(),
            created_protected,
            changes,
            duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Waits for the end of the command; `None` if it was killed at its time limit.
    async fn wait(
        process: &mut Process,
        timeout: Duration,
        cancelled: oneshot::Receiver<()>,
    ) -> Result<Option<Exit>, CallError> {
        let lost = |error: ExecError| internal(&error.to_string());
        let timed_out = tokio::select! {
            exit = process.wait() => return exit.map(Some).map_err(lost),
            () = tokio::time::sleep(timeout) => true,
            _ = cancelled => false,
        };
        process.kill().await.map_err(lost)?;
        if timed_out {
            Ok(None)
        } else {
            Err(CallError::new(Code::Cancelled, "the command was killed"))
        }
    }
}

/// The entries that the worker may not change, and that did not exist before the command ran.
fn unjudged(before: &[Mount], act: &Act) -> Result<Vec<String>, CallError> {
    let restricted = |mount: &Mount| match mount {
        Mount::Hidden { at }
        | Mount::Within {
            at,
            writable: false,
        } => Some(at.clone()),
        _ => None,
    };
    let before: BTreeSet<PathBuf> = before.iter().filter_map(restricted).collect();
    let after = view::mounts(act.reading(), Changes::Live)?;
    let new = after.iter().filter_map(restricted);
    let new = new.filter(|at| !before.contains(at));
    let names = new.map(|at| at.to_string_lossy().into_owned());
    Ok(names.take(MAX_CREATED).collect())
}

/// The paths of the overlays.
fn overlays(files: &[Mount]) -> Result<Vec<VirtualPath>, CallError> {
    let overlays = files.iter().filter_map(|mount| match mount {
        Mount::Overlay { at, .. } => at.to_str(),
        _ => None,
    });
    let paths = overlays.map(|at| VirtualPath::parse(at, None));
    paths
        .collect::<Result<_, _>>()
        .map_err(|error| internal(&error.to_string()))
}

/// Reads a stream of the command until its end.
fn stream(progress: ActProgress) -> io::Result<(tokio::task::JoinHandle<Excerpt>, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    let mut reader = pipe::Receiver::from_owned_fd(reader.into())?;
    let read = async move {
        let mut excerpt = Excerpt::new(KEPT_OUTPUT);
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = reader.read(&mut buffer).await {
            excerpt.push(buffer.get(..length).unwrap_or_default());
            progress.step();
        }
        excerpt
    };
    Ok((tokio::spawn(read), writer.into()))
}

/// A file in memory with the text for standard input.
pub(super) fn input(text: &str) -> io::Result<OwnedFd> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = std::fs::File::from(rustix::fs::memfd_create("stdin", flags)?);
    file.write_all(text.as_bytes())?;
    io::Seek::rewind(&mut file)?;
    Ok(file.into())
}

pub(super) fn internal(message: &str) -> CallError {
    CallError::new(Code::Internal, message)
}

fn io_error(error: &io::Error) -> CallError {
    CallError::new(Code::Io, format!("the command cannot be started: {error}"))
}

/// The sandbox did not start, so the command did not run.
fn not_started(error: &ExecError) -> CallError {
    let mut message = format!("the command was not started: {error}");
    if let Some(cause) = std::error::Error::source(error) {
        message.push_str(&format!(": {cause}"));
    }
    CallError::new(Code::Io, message)
}
