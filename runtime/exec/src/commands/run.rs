//! Runs a command and collects its output.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bailiwick::effect::ContentHash;
use bailiwick::path::PathError;
use bailiwick::tool::{Act, MemoryUse, OutputStream, PathsLocked, ProcessReservation};
use bailiwick::worker::Usage;
use bailiwick::{CallError, Code, VirtualPath};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};

use super::changed::ChangedFiles;
use super::network::{Connections, WorkerNetwork};
use super::output::{CommandChanges, CommandOutput};
use super::record::{Ended, Record, Started};
use super::streams::{Output, Streams};
use crate::clock;
use crate::error::ExecError;
use crate::launcher::Launcher;
use crate::overlay::{self, Directories, Identity, Store};
use crate::process::{Exit, Process, UsageMeter, prepare};
use crate::proxy::Proxy;
use crate::spec::{Layer, Mount, SandboxSpec};
use crate::view;

/// What is charged before the start.
const FIRST: Usage = Usage {
    cpu_ms: 1,
    wall_ms: 1,
    output_bytes: 0,
};
/// How often a running command is charged.
const CHARGE_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of names in [`CommandOutput::created_protected`].
const MAX_CREATED: usize = 100;

/// A command that is about to run.
pub(super) struct Run {
    pub(super) spec: SandboxSpec,
    /// The hash of the program.
    pub(super) program: ContentHash,
    /// The mounts of the roots.
    pub(super) files: Vec<Mount>,
    /// Set if the changes are kept apart.
    pub(super) apart: Option<Apart>,
    pub(super) launcher: Launcher,
    /// Whether further commands are likely.
    pub(super) launch_ahead: bool,
    pub(super) streams: Streams,
    pub(super) timeout: Duration,
    pub(super) act: Arc<Act>,
    /// What it holds as long as it runs: the processes that it may have and, if its changes are live, the paths that it must
    /// not change or see.
    pub(super) held: (Option<ProcessReservation>, PathsLocked),
    /// Its memory, if a budget limits it.
    pub(super) memory: Option<MemoryUse>,
    /// Addresses that it may connect to although they are not public.
    pub(super) private: Vec<SocketAddr>,
}

impl Run {
    /// Runs the command until it ends, its time limit passes or `cancelled` is dropped. Nothing of it runs afterwards.
    pub(super) async fn run(
        self,
        mut cancelled: oneshot::Receiver<()>,
    ) -> Result<CommandOutput, CallError> {
        let Self {
            spec,
            program,
            files,
            apart,
            launcher,
            launch_ahead,
            streams,
            timeout,
            act,
            held: _held,
            memory,
            private,
        } = self;
        let began = Instant::now();
        let Streams {
            stdio,
            stdout,
            stderr,
        } = streams;
        let network = WorkerNetwork::new(&act, &private).map(Arc::new);
        let proxy = network.clone().map(|policy| Proxy::new(policy));
        // Files may be copied for it.
        let prepared = tokio::select! {
            prepared = prepare(&spec, stdio, &launcher, proxy) => prepared.map_err(|error| not_started(&error))?,
            _ = &mut cancelled => return Err(killed()),
        };
        let started = Started::new(&spec, &files, program, prepared.layers(), network.is_some());
        begin(&act, started)?;
        let recording = match &apart {
            Some(apart) => Some(apart.record(&act).await),
            None => None,
        };
        let live = apart.is_none().then(clock::coarse);
        let process = prepared.start().await;
        let mut process = process.map_err(|error| failed_start(&act, &error, began))?;
        if launch_ahead && process.layers().contains(&Layer::Namespaces) {
            tokio::task::spawn_blocking(move || launcher.launch_ahead());
        }
        let apart = apart.zip(process.changes());
        let mut bill = Bill::new(&act, process.meter(), memory);
        let timeout = timeout.saturating_sub(began.elapsed());
        let exit = Self::wait(&mut process, timeout, cancelled, &mut bill).await;
        // What exceeds a budget at the end is charged, and the next command is refused.
        let _ = bill.charge();
        if let (Some((apart, _)), Some(recording)) = (&apart, recording) {
            apart.directories.end();
            // Directories that are not recorded are judged by their times.
            let _ = recording.await;
        }
        drop(process);
        // The streams end with the sandbox.
        let streams = [stdout.await, stderr.await];
        let connections = network.map(|network| network.connections());
        let after = Arc::clone(&act);
        // Nobody would learn of the changes of a command without a result.
        let changed = changed(files, live, apart.filter(|_| exit.is_ok()), after).await;
        let connections = connections.as_ref();
        let output = exit.clone();
        let output = output.and_then(|exit| ended(&act, exit, streams, &changed, connections));
        let duration_ms = milliseconds(began.elapsed());
        let output = output.map(|output| CommandOutput {
            duration_ms,
            ..output
        });
        let (exit, known) = (exit.ok(), output.as_ref().ok());
        let ended = Ended::new(exit, known, &changed, duration_ms, connections);
        // The command has run, so a full audit does not fail the call.
        let _ = ended.record(&act);
        output
    }

    /// Waits for the end of the command; `None` if it was killed at its time limit.
    async fn wait(
        process: &mut Process,
        timeout: Duration,
        cancelled: oneshot::Receiver<()>,
        bill: &mut Bill,
    ) -> Result<Option<Exit>, CallError> {
        let ended = tokio::select! {
            exit = process.wait() => return exit.map(Some).map_err(|error| lost(&error)),
            () = tokio::time::sleep(timeout) => Ok(None),
            _ = cancelled => Err(killed()),
            error = bill.exceeded() => Err(error),
        };
        process.kill().await.map_err(|error| lost(&error))?;
        ended
    }
}

/// Begins the effect of a command, and records its start.
fn begin(act: &Act, started: Started<'_>) -> Result<(), CallError> {
    // A spent budget is noticed before the start.
    act.charge(FIRST)?;
    act.begin()?;
    // Without a record, the program is not started.
    act.record(&Record::Started(started))
        .inspect_err(|_| act.undo_begin())
}

/// Records the end of a command whose program was not started, as far as is known.
fn failed_start(act: &Act, error: &ExecError, began: Instant) -> CallError {
    // Otherwise, the helper has not said whether it was.
    if matches!(error, ExecError::Setup { .. } | ExecError::Missing { .. }) {
        act.undo_begin();
    }
    let duration_ms = milliseconds(began.elapsed());
    // A full audit does not hide the error.
    let _ = Ended::new(None, None, &Changed::default(), duration_ms, None).record(act);
    not_started(error)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What a command has taken, as far as it was charged.
struct Bill {
    act: Arc<Act>,
    meter: UsageMeter,
    memory: Option<MemoryUse>,
    began: Instant,
    charged: Usage,
}

impl Bill {
    fn new(act: &Arc<Act>, meter: UsageMeter, memory: Option<MemoryUse>) -> Self {
        Self {
            act: Arc::clone(act),
            meter,
            memory,
            began: Instant::now(),
            charged: FIRST,
        }
    }

    /// Charges what was not charged yet.
    fn charge(&mut self) -> Result<(), CallError> {
        let cpu_ms = milliseconds(self.meter.cpu_time());
        let wall_ms = milliseconds(self.began.elapsed());
        let more = Usage {
            cpu_ms: cpu_ms.saturating_sub(self.charged.cpu_ms),
            wall_ms: wall_ms.saturating_sub(self.charged.wall_ms),
            ..Usage::default()
        };
        self.charged.cpu_ms += more.cpu_ms;
        self.charged.wall_ms += more.wall_ms;
        let memory = self.memory.as_mut();
        let memory = memory.map_or(Ok(()), |memory| memory.set(self.meter.memory()));
        self.act.charge(more)?;
        Ok(memory?)
    }

    /// Charges the command while it runs, until that exceeds a budget.
    async fn exceeded(&mut self) -> CallError {
        loop {
            tokio::time::sleep(CHARGE_EVERY).await;
            if let Err(error) = self.charge() {
                return error;
            }
        }
    }
}

/// What a command changed.
#[derive(Default)]
pub(super) struct Changed {
    /// The entries that the worker may not change, and that did not exist before the command ran.
    pub(super) protected: Vec<String>,
    /// The files in the roots, in the mode `live`.
    pub(super) live: Option<ChangedFiles>,
    /// The changes that are kept apart.
    pub(super) apart: Option<CommandChanges>,
    /// Why not all changes are known.
    incomplete: Option<String>,
}

impl Changed {
    /// Nothing is known for this reason.
    fn unknown(reason: &str) -> Self {
        Self {
            incomplete: Some(reason.to_owned()),
            ..Self::default()
        }
    }
}

/// What the command changed, in the roots if `live` is the time of its start. An error does not hide how it ended.
async fn changed(
    before: Vec<Mount>,
    live: Option<Duration>,
    apart: Option<(Apart, OwnedFd)>,
    act: Arc<Act>,
) -> Changed {
    let changed = tokio::task::spawn_blocking(move || match (live, apart) {
        (Some(began), _) => changed_roots(&before, began, &act)
            .unwrap_or_else(|error| Changed::unknown(error.message())),
        (None, Some((apart, directory))) => apart.changed(directory, &act),
        (None, None) => Changed::default(),
    });
    let changed = changed.await;
    changed.unwrap_or_else(|_| Changed::unknown("the roots were not read"))
}

/// The path of a mount that hides an entry, or makes one read only in a directory that is not.
fn restricted(mount: &Mount) -> Option<&Path> {
    match mount {
        Mount::Hidden { at }
        | Mount::Within {
            at,
            writable: false,
        } => Some(at),
        _ => None,
    }
}

/// The paths that a command with these mounts must not change or see. Another file that was renamed to such a path would have
/// no mount.
pub(super) fn restricted_paths(mounts: &[Mount]) -> Vec<VirtualPath> {
    let paths = mounts.iter().filter_map(restricted);
    let paths = paths.filter_map(|at| VirtualPath::parse(at.to_str()?, None).ok());
    paths.collect()
}

fn changed_roots(before: &[Mount], began: Duration, act: &Act) -> Result<Changed, CallError> {
    let before: BTreeSet<&Path> = before.iter().filter_map(restricted).collect();
    let (after, changed) = view::files_and_changes(act.reading(), &before, began)?;
    let new = after.iter().filter_map(restricted);
    let new = new.filter(|at| !before.contains(at));
    let names = new.map(|at| at.to_string_lossy().into_owned());
    Ok(Changed {
        protected: names.take(MAX_CREATED).collect(),
        live: Some(ChangedFiles::new(&changed, act.reading())),
        apart: None,
        incomplete: changed.incomplete(),
    })
}

/// Changes that are kept apart.
pub(super) struct Apart {
    store: Store,
    directories: Arc<Directories>,
    /// The paths of the overlays, with the directories that they show.
    overlays: Vec<(VirtualPath, Identity)>,
}

impl Apart {
    pub(super) fn begin(store: &Store, files: &[Mount]) -> Result<Self, CallError> {
        Ok(Self {
            store: store.clone(),
            directories: Directories::new(clock::now()),
            overlays: overlays(files)?,
        })
    }

    /// Records the directories of the overlays while the command runs, which can start then.
    async fn record(&self, act: &Arc<Act>) -> JoinHandle<()> {
        overlay::start_of_changes(self.directories.began()).await;
        let (act, directories) = (Arc::clone(act), Arc::clone(&self.directories));
        let paths: Vec<VirtualPath> = self.overlays.iter().map(|(path, _)| path.clone()).collect();
        tokio::task::spawn_blocking(move || {
            for path in paths {
                directories.record(&path, act.reading());
            }
        })
    }

    /// Keeps the changes in `directory`, or none if they cannot be read, and describes them.
    fn changed(&self, directory: OwnedFd, act: &Act) -> Changed {
        match self.keep(directory, act) {
            Ok(changes) => Changed {
                apart: Some(changes),
                ..Changed::default()
            },
            Err(error) => Changed {
                apart: Some(CommandChanges::new(None, overlay::unread(&self.overlays))),
                ..Changed::unknown(error.message())
            },
        }
    }

    /// Keeps the changes in `directory`, and describes them.
    fn keep(&self, directory: OwnedFd, act: &Act) -> Result<CommandChanges, CallError> {
        let collected =
            overlay::collect(directory, &self.overlays, &self.directories, act.reading());
        let (kept, mut dropped) = collected?;
        let changes = CommandChanges::new(kept.as_ref(), dropped.clone());
        match kept.map_or(Ok(()), |kept| self.store.add(kept)) {
            Ok(()) => Ok(changes),
            Err(why) => {
                dropped.insert(0, overlay::no_room(&self.overlays, why));
                Ok(CommandChanges::new(None, dropped))
            }
        }
    }
}

impl Drop for Apart {
    /// Ends the recording also if the command does not start: the recording keeps the call in progress.
    fn drop(&mut self) {
        self.directories.end();
    }
}

/// The paths of the overlays, with the directories that they show.
fn overlays(files: &[Mount]) -> Result<Vec<(VirtualPath, Identity)>, CallError> {
    let overlays = files.iter().filter_map(|mount| match mount {
        Mount::Overlay { at, identity, .. } => Some((at.to_str()?, (*identity)?)),
        _ => None,
    });
    let paths = overlays.map(|(at, identity)| Ok((VirtualPath::parse(at, None)?, identity)));
    let paths: Result<_, PathError> = paths.collect();
    paths.map_err(|error| internal(&error.to_string()))
}

/// The result of a command; `exit` is `None` if it was killed at its time limit.
fn ended(
    act: &Act,
    exit: Option<Exit>,
    streams: [Result<Output, JoinError>; 2],
    changed: &Changed,
    connections: Option<&Connections>,
) -> Result<CommandOutput, CallError> {
    let denied = connections.iter().flat_map(|all| &all.denied);
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
        created_protected: changed.protected.clone(),
        incomplete: changed.incomplete.clone(),
        changes: changed.apart.clone(),
        denied_hosts: denied.cloned().collect(),
        duration_ms: 0,
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

fn killed() -> CallError {
    CallError::new(Code::Cancelled, "the command was killed")
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
    match error {
        ExecError::TooLarge { limit } => {
            CallError::new(Code::TooLarge, message).with("limit", limit.as_str())
        }
        ExecError::Setup { stage, .. } => {
            CallError::new(Code::Io, message).with("stage", stage.name())
        }
        _ => CallError::new(Code::Io, message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recording_of_directories_ends_when_the_command_does_not_start() {
        let apart = Apart::begin(&Store::default(), &[]).unwrap();
        let directories = Arc::clone(&apart.directories);
        assert!(!directories.has_ended());
        drop(apart);
        assert!(directories.has_ended());
    }
}
