//! `bailiwick run`: runs a command in a sandbox.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bailiwick::config::ConfigSources;
use bailiwick::{
    BuildError, CallError, Code, Policy, Runtime, SpawnError, ToolSet, VirtualPath, WorkerSpec,
};
use bailiwick_exec::{CommandOutput, Commands};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use serde_json::json;

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
    #[error("{error}")]
    Call { error: CallError, status: u8 },
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

/// How a command ended.
pub(crate) struct Ended {
    /// The exit status of this program.
    pub(crate) status: u8,
    /// Files and directories that the command created and may not change.
    pub(crate) created_protected: Vec<String>,
}

impl Ended {
    fn by_signal(signal: i32) -> Self {
        Self {
            status: by_signal(signal),
            created_protected: Vec::new(),
        }
    }
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
    let mut builder = Runtime::builder()
        .configured(config)
        .allow("execute:command")
        .tools(ToolSet::new().actor(options.commands.inherit_stdio()))
        .call_limit(Duration::MAX);
    if let Some(file) = &options.config {
        builder = builder.keep_out(file);
    }
    let (runtime, _grants) = builder.build().await?;
    let worker = runtime
        .spawn(WorkerSpec::new("run").policy(Policy::new()))
        .await?;
    let current = options.current_dir;
    let current = current.filter(|dir| roots.iter().any(|root| dir.starts_with(root)));
    let cwd = current.as_ref().map(VirtualPath::as_str);
    let call = worker.call("run_command", json!({ "argv": options.argv, "cwd": cwd }));
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
    let outcome = called.map_err(|error| {
        let status = not_run(&error, options.argv.first());
        RunError::Call { error, status }
    })?;
    let output = outcome.output::<CommandOutput>().ok_or(RunError::Lost)?;
    let status = match (output.exit_code, output.signal) {
        (Some(code), _) => u8::try_from(code).unwrap_or(NOT_RUN),
        (None, Some(signal)) => by_signal(signal),
        (None, None) => NOT_RUN,
    };
    Ok(Ended {
        status,
        created_protected: output.created_protected.clone(),
    })
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
