//! `bailiwick run`: runs a command in a sandbox.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use bailiwick::config::ConfigSources;
use bailiwick::permission::Terminal;
use bailiwick::{
    BuildError, CallError, Code, Policy, Runtime, SpawnError, Verdict, VirtualPath, Worker,
    WorkerSpec,
};
use bailiwick_exec::{CommandChanges, CommandOutput, Commands, ExecError};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::json;

use crate::sandbox;
use crate::signals::StopSignals;

/// Exit status if the command was not run.
pub(crate) const NOT_RUN: u8 = 125;
/// Exit status if the program cannot be run or is denied.
const NOT_EXECUTABLE: u8 = 126;
/// Exit status if there is no such program.
const NO_PROGRAM: u8 = 127;

/// What to run.
#[derive(Debug)]
pub(crate) struct RunOptions {
    /// The configuration.
    pub(crate) sources: ConfigSources,
    /// The configuration file.
    pub(crate) config: Option<PathBuf>,
    /// The tool that runs it.
    pub(crate) commands: Commands,
    /// Whether layers of its sandbox may be missing.
    pub(crate) has_optional_layers: bool,
    /// Whether its changes are kept apart until a person applies them.
    pub(crate) overlay: bool,
    /// The program and its arguments.
    pub(crate) argv: Vec<String>,
    /// The working directory, if a root contains it.
    pub(crate) current_dir: Option<VirtualPath>,
}

/// Why a command did not run to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// The configuration is invalid.
    #[error(transparent)]
    Input(#[from] BuildError),
    /// The policy is invalid.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The command was denied or not started.
    #[error("{error}{}", advice(error, *status))]
    Call { error: CallError, status: u8 },
    /// The sandbox does not work on this machine.
    #[error(transparent)]
    Sandbox(#[from] ExecError),
    /// Signals cannot be waited for.
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
    /// The tool returned no result.
    #[error("the result of the command was lost")]
    Lost,
}

impl RunError {
    /// The exit status of this program.
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::Call { status, .. } => *status,
            _ => NOT_RUN,
        }
    }
}

/// What to do if the command was not started for a reason that is neither in the call nor in the configuration.
fn advice(error: &CallError, status: u8) -> &'static str {
    if status == NOT_RUN && error.code() == Code::Io {
        "; `bailiwick doctor` reports what this machine lacks"
    } else {
        ""
    }
}

/// How a command ended.
pub(crate) struct Ended {
    /// The exit status of this program.
    pub(crate) status: u8,
    /// What the person should know.
    pub(crate) notes: Vec<String>,
}

impl Ended {
    fn by_signal(signal: i32) -> Self {
        Self {
            status: by_signal(signal),
            notes: Vec::new(),
        }
    }
}

/// What a person should know of the result.
fn notes_about(output: &CommandOutput) -> Vec<String> {
    let mut notes = Vec::new();
    if !output.created_protected.is_empty() {
        let names = output.created_protected.join(", ");
        notes.push(format!("the command created protected files: {names}"));
    }
    if let Some(why) = &output.incomplete {
        notes.push(format!("the changed files are not known completely: {why}"));
    }
    notes
}

/// Runs the command with the rights of a worker that has the configuration.
pub(crate) async fn run(options: RunOptions) -> Result<Ended, RunError> {
    let mut signals = StopSignals::new().map_err(RunError::Signals)?;
    let config = options
        .sources
        .effective()
        .map_err(BuildError::from)?
        .config;
    let roots: Vec<VirtualPath> = config.roots.iter().map(|root| root.mount.clone()).collect();
    let mut commands = options.commands.inherit_stdio();
    if options.has_optional_layers {
        commands = sandbox::tested(commands).await?;
    }
    let mut builder = Runtime::builder()
        .configured(config)
        .allow("execute:command")
        .tools(commands.tools())
        .call_limit(Duration::MAX);
    if let Some(file) = &options.config {
        builder = builder.keep_out(file);
    }
    let (mut policy, mut terminal) = (Policy::new(), None);
    if options.overlay {
        policy = policy.ask("write:file").otherwise(Verdict::Allow);
        if let Ok(approver) = Terminal::tty() {
            builder = builder.approver(approver.once());
            terminal = TerminalState::save();
        }
    }
    let (runtime, _grants) = builder.build().await?;
    let worker = runtime.spawn(WorkerSpec::new("run").policy(policy)).await?;
    let current = options.current_dir;
    let current = current.filter(|dir| roots.iter().any(|root| dir.starts_with(root)));
    let cwd = current.as_ref().map(VirtualPath::as_str);
    let mode = if options.overlay { "overlay" } else { "live" };
    let arguments = json!({ "argv": options.argv, "cwd": cwd, "mode": mode });
    let call = async {
        let outcome = worker.call("run_command", arguments).await?;
        let output = outcome.output::<CommandOutput>().cloned();
        let mut notes = Vec::new();
        if let Some(changes) = output.as_ref().and_then(|output| output.changes.as_ref()) {
            notes = apply(&worker, changes, terminal.as_ref()).await;
        }
        Ok((output, notes))
    };
    let called = tokio::select! {
        called = call => Ok(called),
        signal = signals.next() => Err(signal),
    };
    // If a signal has arrived, this waits until the command is killed.
    runtime.shutdown().await;
    let called = match called {
        Ok(called) => called,
        Err(signal) => return Ok(Ended::by_signal(signal.as_raw_value())),
    };
    let (output, mut notes) = called.map_err(|error| {
        let status = not_run(&error, options.argv.first());
        RunError::Call { error, status }
    })?;
    let output = output.ok_or(RunError::Lost)?;
    notes.extend(notes_about(&output));
    let status = match (output.exit_code, output.signal) {
        (Some(code), _) => u8::try_from(code).unwrap_or(NOT_RUN),
        (None, Some(signal)) => by_signal(signal),
        (None, None) => NOT_RUN,
    };
    Ok(Ended { status, notes })
}

/// The settings of the controlling terminal before a command, which can change them.
struct TerminalState {
    terminal: File,
    settings: Termios,
}

impl TerminalState {
    /// Leaves the alternate screen, and resets colours, character sets and scroll region.
    const RESET: &[u8] = b"\x1b[?1049l\x1b[!p\x1b[0m\x1b]104\x07\r\n";

    fn save() -> Option<Self> {
        let mut open = OpenOptions::new();
        let terminal = open.read(true).write(true).open("/dev/tty").ok()?;
        let settings = tcgetattr(&terminal).ok()?;
        Some(Self { terminal, settings })
    }

    const ABOUT_CHANGES: &str =
        "The command has ended. The changes that you do not allow now are discarded.\r\n";

    /// Announces the question about the changes. What a person sees next must not depend on the command.
    fn restore(&self) -> io::Result<()> {
        tcsetattr(&self.terminal, OptionalActions::Flush, &self.settings)?;
        let mut terminal = &self.terminal;
        terminal.write_all(Self::RESET)?;
        terminal.write_all(Self::ABOUT_CHANGES.as_bytes())
    }
}

/// Applies changes that were kept apart if the person allows it, who is asked on the terminal. Returns what became of the
/// changes.
async fn apply(
    worker: &Worker,
    changes: &CommandChanges,
    terminal: Option<&TerminalState>,
) -> Vec<String> {
    let dropped = changes.dropped.iter();
    let mut notes: Vec<String> = dropped
        .map(|dropped| format!("not applied: {}: {}", dropped.path, dropped.reason))
        .collect();
    let more = changes.dropped_total - changes.dropped.len();
    if more > 0 {
        notes.push(format!("not applied: {more} more"));
    }
    let Some(id) = &changes.id else {
        return notes;
    };
    let asks = terminal.is_some_and(|terminal| terminal.restore().is_ok());
    let applied = if asks {
        let call = worker.call("apply_changes", json!({ "id": id })).await;
        call.map_err(|error| error.to_string())
    } else {
        Err("there is no terminal on which to ask whether to apply the changes".to_owned())
    };
    match applied {
        Ok(outcome) => notes.push(format!("applied: {}", outcome.text())),
        Err(reason) => {
            let files = changes.files.iter();
            notes.extend(files.map(|file| format!("not applied: {} {}", file.change, file.path)));
            let more = changes.total - changes.files.len();
            if more > 0 {
                notes.push(format!("not applied: {more} more"));
            }
            notes.push(reason);
        }
    }
    notes
}

fn by_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(NOT_RUN)
}

fn is_missing(path: &str) -> bool {
    access(path, Access::EXISTS) == Err(Errno::NOENT)
}

/// The exit status if the command was not run.
fn not_run(error: &CallError, program: Option<&String>) -> u8 {
    let at_program = error
        .details()
        .get("stage")
        .is_some_and(|it| it == "program");
    match error.code() {
        Code::NotFound => NO_PROGRAM,
        Code::PermissionDenied | Code::ScopeRequired => NOT_EXECUTABLE,
        _ if at_program && program.is_some_and(|path| is_missing(path)) => NO_PROGRAM,
        _ if at_program => NOT_EXECUTABLE,
        _ => NOT_RUN,
    }
}
