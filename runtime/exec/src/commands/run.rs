//! Runs a command and collects its output.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bailiwick::effect::ContentHash;
use bailiwick::tool::{Act, ActProgress, OutputStream};
use bailiwick::{CallError, Code};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};

use super::network::WorkerNetwork;
use super::output::CommandOutput;
use super::record::{Ended, Record, Started};
use crate::error::ExecError;
use crate::output::Excerpt;
use crate::process::{Exit, Helper, Process, Stdio, spawn, spawn_with_proxy};
use crate::proxy::Proxy;
use crate::spec::{Mount, SandboxSpec};
use crate::view;

/// Maximum number of names in [`CommandOutput::created_protected`].
const MAX_CREATED: usize = 100;
/// Bytes of each output stream that are kept at its beginning, and at its end.
const KEPT_OUTPUT: usize = 16 << 10;
/// The same for the artifacts that people can read.
const LONG_OUTPUT: usize = 512 << 10;
/// Maximum length of a line in a progress message, in bytes.
const MAX_LINE: usize = 1 << 10;

/// A command that is about to run.
pub(super) struct Run {
    pub(super) spec: SandboxSpec,
    /// The hash of the program.
    pub(super) program: ContentHash,
    /// The mounts of the roots.
    pub(super) files: Vec<Mount>,
    pub(super) helper: Helper,
    pub(super) stdin: OwnedFd,
    pub(super) timeout: Duration,
    pub(super) progress: ActProgress,
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
            helper,
            stdin,
            timeout,
            progress,
            act,
            private,
        } = self;
        let began = Instant::now();
        let (stdout, stdout_end) = stream(progress.clone()).map_err(|error| io_error(&error))?;
        let (stderr, stderr_end) = stream(progress).map_err(|error| io_error(&error))?;
        let stdio = Stdio {
            stdin,
            stdout: stdout_end,
            stderr: stderr_end,
        };
        let network = WorkerNetwork::new(&act, &private).map(Arc::new);
        let spawned = match &network {
            Some(network) => {
                let policy: Arc<WorkerNetwork> = Arc::clone(network);
                spawn_with_proxy(&spec, stdio, &helper, Proxy::new(policy)).await
            }
            None => spawn(&spec, stdio, &helper).await,
        };
        let mut process = spawned.map_err(|error| not_started(&error))?;
        let layers = (process.layers(), process.missing());
        let started = Started::new(&spec, &files, program, layers, network.is_some());
        let recorded = act.record(&Record::Started(started));
        let exit = match recorded {
            Ok(()) => Self::wait(&mut process, timeout, cancelled).await,
            // Without a record nothing may run.
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
        let unjudged = tokio::task::spawn_blocking(move || unjudged(&files, &after)).await;
        let unjudged = unjudged.map_err(|_| internal("the roots were not read"));
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let output = exit.and_then(|exit| {
            let denied = connections.iter().flat_map(|all| &all.denied);
            Ok(CommandOutput {
                created_protected: unjudged??,
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
    let after = view::mounts(act.reading())?;
    let new = after.iter().filter_map(restricted);
    let new = new.filter(|at| !before.contains(at));
    let names = new.map(|at| at.to_string_lossy().into_owned());
    Ok(names.take(MAX_CREATED).collect())
}

/// The beginning and the end of an output stream.
struct Output {
    /// For the reply.
    short: Excerpt,
    /// For people.
    long: Excerpt,
}

/// Reads a stream of the command until its end.
fn stream(progress: ActProgress) -> io::Result<(JoinHandle<Output>, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    let mut reader = pipe::Receiver::from_owned_fd(reader.into())?;
    let read = async move {
        let [short, long] = [KEPT_OUTPUT, LONG_OUTPUT].map(Excerpt::new);
        let mut output = Output { short, long };
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = reader.read(&mut buffer).await {
            let bytes = buffer.get(..length).unwrap_or_default();
            output.short.push(bytes);
            output.long.push(bytes);
            if let Some(line) = last_line(bytes) {
                progress.message(&line);
            }
            progress.step();
        }
        output
    };
    Ok((tokio::spawn(read), writer.into()))
}

/// The last line that is not blank, as far as it is near the end.
fn last_line(bytes: &[u8]) -> Option<String> {
    let end = bytes.len().saturating_sub(MAX_LINE);
    let text = String::from_utf8_lossy(bytes.get(end..)?);
    let mut lines = text.lines().rev().map(str::trim);
    lines.find(|line| !line.is_empty()).map(str::to_owned)
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

/// A file in memory with the text for standard input.
pub(super) fn input(text: &str) -> io::Result<OwnedFd> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = std::fs::File::from(rustix::fs::memfd_create("stdin", flags)?);
    file.write_all(text.as_bytes())?;
    io::Seek::rewind(&mut file)?;
    Ok(file.into())
}

fn lost(error: &ExecError) -> CallError {
    internal(&error.to_string())
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
