//! Runs a command and collects its output.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bailiwick::effect::ContentHash;
use bailiwick::tool::{Act, OutputStream};
use bailiwick::{CallError, Code, VirtualPath};
use tokio::sync::oneshot;
use tokio::task::JoinError;

use super::network::WorkerNetwork;
use super::output::{CommandChanges, CommandOutput};
use super::record::{Ended, Record, Started};
use super::streams::{Output, Streams};
use crate::error::ExecError;
use crate::overlay::{self, Store};
use crate::process::{Exit, Helper, Process, spawn, spawn_with_proxy};
use crate::proxy::Proxy;
use crate::spec::{Mount, SandboxSpec};
use crate::view::{self, Changes, Files};

/// Maximum number of names in [`CommandOutput::created_protected`].
const MAX_CREATED: usize = 100;

/// A command that is about to run.
pub(super) struct Run {
    pub(super) spec: SandboxSpec,
    /// The hash of the program.
    pub(super) program: ContentHash,
    /// The mounts of the roots.
    pub(super) files: Files,
    /// Set if the changes are kept apart.
    pub(super) apart: Option<Apart>,
    pub(super) helper: Helper,
    pub(super) streams: Streams,
    pub(super) timeout: Duration,
    pub(super) act: Arc<Act>,
    /// Addresses that it may connect to although they are not public.
    pub(super) private: Vec<SocketAddr>,
}

impl Run {
    /// Runs the command until it ends, its time limit passes or `cancelled` is dropped. Nothing of it runs afterwards.
    pub(super) async fn run(
        self,
        cancelled: oneshot::Receiver<()>,
    ) -> Result<CommandOutput, CallError> {
        let Self {
            spec,
            program,
            files,
            apart,
            helper,
            streams,
            timeout,
            act,
            private,
        } = self;
        let began = Instant::now();
        let Streams {
            stdio,
            stdout,
            stderr,
        } = streams;
        let network = WorkerNetwork::new(&act, &private).map(Arc::new);
        let spawned = match &network {
            Some(network) => {
                let policy: Arc<WorkerNetwork> = Arc::clone(network);
                spawn_with_proxy(&spec, stdio, &helper, Proxy::new(policy)).await
            }
            None => spawn(&spec, stdio, &helper).await,
        };
        let mut process = spawned.map_err(|error| not_started(&error))?;
        let apart = apart.zip(process.changes());
        let layers = (process.layers(), process.missing());
        let started = Started::new(&spec, &files.mounts, program, layers, network.is_some());
        let recorded = act.record(&Record::Started(started));
        let exit = match recorded {
            Ok(()) => Self::wait(&mut process, timeout, cancelled).await,
            // Without a record it may not go on.
            Err(error) => process
                .kill()
                .await
                .map_err(|error| lost(&error))
                .and(Err(error)),
        };
        drop(process);
        // The streams end with the sandbox.
        let streams = [stdout.await, stderr.await];
        let connections = network.map(|network| network.connections());
        let after = Arc::clone(&act);
        // Nobody would learn of the changes of a command without a result.
        let apart = apart.filter(|_| exit.is_ok());
        let changed = tokio::task::spawn_blocking(move || match apart {
            Some((apart, directory)) => apart.keep(directory, &files, &after),
            None => Ok((unjudged(&files.mounts, &after)?, None)),
        });
        let changed = changed
            .await
            .map_err(|_| internal("the roots were not read"));
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let output = exit.and_then(|exit| {
            let (created_protected, changes) = changed??;
            let denied = connections.iter().flat_map(|all| &all.denied);
            Ok(CommandOutput {
                created_protected,
                changes,
                denied_hosts: denied.cloned().collect(),
                duration_ms,
                ..ended(&act, exit, streams)?
            })
        });
        let ended = Ended::new(output.as_ref().ok(), duration_ms, connections.as_ref());
        // The command has run, so a full audit does not fail the call.
        let _ = act.record(&Record::Ended(ended));
        output
    }

    /// Waits for the end of the command; `None` if it was killed at its time limit.
    async fn wait(
        process: &mut Process,
        timeout: Duration,
        cancelled: oneshot::Receiver<()>,
    ) -> Result<Option<Exit>, CallError> {
        let timed_out = tokio::select! {
            exit = process.wait() => return exit.map(Some).map_err(|error| lost(&error)),
            () = tokio::time::sleep(timeout) => true,
            _ = cancelled => false,
        };
        process.kill().await.map_err(|error| lost(&error))?;
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
    let after = view::files(act.reading(), Changes::Live)?;
    let new = after.mounts.iter().filter_map(restricted);
    let new = new.filter(|at| !before.contains(at));
    let names = new.map(|at| at.to_string_lossy().into_owned());
    Ok(names.take(MAX_CREATED).collect())
}

/// Changes that are kept apart.
pub(super) struct Apart {
    store: Store,
    /// When the command started, since 1970.
    began: Duration,
}

impl Apart {
    pub(super) async fn begin(store: &Store) -> Self {
        Self {
            store: store.clone(),
            began: overlay::start_of_changes().await,
        }
    }

    /// Keeps the changes in `directory`, and describes them.
    fn keep(
        self,
        directory: OwnedFd,
        files: &Files,
        act: &Act,
    ) -> Result<(Vec<String>, Option<CommandChanges>), CallError> {
        let overlays = overlays(&files.mounts)?;
        let collected =
            overlay::collect(directory, &overlays, &files.seen, self.began, act.reading());
        let (kept, dropped) = collected?;
        let changes = CommandChanges::new(kept.as_ref(), dropped);
        if let Some(kept) = kept {
            self.store.add(kept);
        }
        Ok((Vec::new(), Some(changes)))
    }
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

/// The status and the output of a command; `exit` is `None` if it was killed at its time limit.
fn ended(
    act: &Act,
    exit: Option<Exit>,
    streams: [Result<Output, JoinError>; 2],
) -> Result<CommandOutput, CallError> {
    let status = exit.map(|exit| exit.status);
    let [stdout, stderr] = streams;
    let (stdout, stdout_bytes) = kept(act, OutputStream::Stdout, stdout)?;
    let (stderr, stderr_bytes) = kept(act, OutputStream::Stderr, stderr)?;
    Ok(CommandOutput {
        exit_code: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
        timed_out: exit.is_none(),
        stdout,
        stderr,
        stdout_bytes,
        stderr_bytes,
        ..CommandOutput::default()
    })
}

/// The text of a stream for the reply and its length. If it is not whole, a longer part is kept for people.
fn kept(
    act: &Act,
    name: OutputStream,
    stream: Result<Output, JoinError>,
) -> Result<(String, u64), CallError> {
    let Output { short, long } = stream.map_err(|_| internal("the output was lost"))?;
    let total = short.total();
    if !short.is_whole() {
        act.keep_output(name, long.text());
    }
    Ok((short.text(), total))
}

fn lost(error: &ExecError) -> CallError {
    internal(&error.to_string())
}

pub(super) fn internal(message: &str) -> CallError {
    CallError::new(Code::Internal, message)
}

pub(super) fn io_error(error: &io::Error) -> CallError {
    CallError::new(Code::Io, format!("the command cannot be started: {error}"))
}

/// The sandbox did not start, so the command did not run.
fn not_started(error: &ExecError) -> CallError {
    let mut message = format!("the command was not started: {error}");
    if let Some(cause) = std::error::Error::source(error) {
        message.push_str(&format!(": {cause}"));
    }
    let failed = CallError::new(Code::Io, message);
    match error {
        ExecError::Setup { stage, .. } => failed.with("stage", stage.name()),
        _ => failed,
    }
}
