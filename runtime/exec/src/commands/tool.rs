//! The arguments of `run_command`, and what a call needs.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bailiwick::config::Namespace;
use bailiwick::effect::{ContentHash, ResourceChange};
use bailiwick::path::VirtualPath;
use bailiwick::policy::Verdict;
use bailiwick::scope::Verb;
use bailiwick::tool::{ActPermit, ActProgress, Foreseen, PathsLocked, Prepared, Rights};
use bailiwick::{ActTool, CallError, Code, Reply, Scope, ToolSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::oneshot;

use super::Commands;
use super::output::{CommandOutput, text};
use super::program::Program;
use super::run::{Apart, Run, internal, io_error, restricted_paths};
use super::streams::Streams;
use super::{network, preview};
use crate::spec::{FileIdentity, Layer, Mount};
use crate::view::{self, Changes};

/// Maximum number and total bytes of arguments and environment variables.
const MAX_ARGUMENTS: usize = 1000;
const MAX_ARGUMENT_BYTES: usize = 256 << 10;
/// Maximum length of standard input, in bytes.
const MAX_STDIN: usize = 1 << 20;
/// Maximum number of names in `reads`, `writes` and `network`, each.
const MAX_DECLARED: usize = 100;
/// Time limit of a command unless the call has another.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest time limit of a command.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);
/// Time before the deadline of the call in which a command is ended and its output collected.
const END_TIME: Duration = Duration::from_secs(2);

/// Arguments of `run_command`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[doc(hidden)]
pub struct RunCommand {
    /// The program and its arguments. No shell is involved, so there are no pipes, variables or wildcards.
    argv: Vec<String>,
    /// The working directory; the default directory of the worker if absent.
    cwd: Option<String>,
    /// Environment variables to set. The command has only these and a few standard ones.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Text for standard input.
    #[serde(default)]
    stdin: String,
    /// Time limit in milliseconds; 120,000 if absent. The command ends before the time limit of the call.
    timeout_ms: Option<u64>,
    /// `live`: the command changes the files. `overlay`: its changes are kept apart until `apply_changes` applies them.
    /// The default is `overlay` if changes in `cwd` need a person's answer, else `live`.
    mode: Option<Mode>,
    /// Files and directories that the command must be able to read, if it may not already.
    #[serde(default)]
    reads: Vec<String>,
    /// Files and directories that the command must be able to change, if it may not already.
    #[serde(default)]
    writes: Vec<String>,
    /// Hosts that the command must be able to connect to, if it may not already, such as `crates.io` or `crates.io:443`.
    #[serde(default)]
    network: Vec<String>,
}

/// What happens to the changes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    Live,
    Overlay,
}

/// A parsed call of `run_command`.
#[derive(Debug)]
#[doc(hidden)]
pub struct Command {
    pub(super) program: Program,
    pub(super) argv: Vec<String>,
    pub(super) cwd: VirtualPath,
    pub(super) mode: Option<Mode>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) stdin: String,
    pub(super) timeout: Duration,
    /// The declared files and directories that it must be able to read and to change, and the declared hosts.
    pub(super) reads: Vec<String>,
    pub(super) writes: Vec<String>,
    pub(super) network: Vec<String>,
    /// The scopes that the call needs.
    pub(super) scopes: Vec<String>,
    /// Whether the working directory is in one of `writes`.
    pub(super) writes_cwd: bool,
    /// What happens to its changes, once that is decided.
    pub(super) changes: OnceLock<Changes>,
    /// The hash of the program that people see in the preview.
    pub(super) previewed: Option<ContentHash>,
}

impl ActTool for Commands {
    type Args = RunCommand;
    type Output = CommandOutput;
    type Job = Command;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "run_command",
            "Run a command",
            "Runs a program without a shell in a sandbox: it sees the files that you may read, can change those that your \
             policy lets you change without a question and those in `writes`, and reaches only hosts that you may connect \
             to, through an HTTP proxy. Returns its exit code and output.",
        )
        .scopes(&["execute:command"])
        .sentence(preview::sentence)
        .max_concurrent_calls(self.max_concurrent)
    }

    fn prepare(&self, args: RunCommand, names: &Namespace) -> Result<Prepared<Command>, CallError> {
        let invalid = |message: &str| CallError::new(Code::InvalidArguments, message);
        let name = args.argv.first().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| invalid("`argv` must begin with a program"))?;
        check_arguments(&args)?;
        if args.mode == Some(Mode::Overlay) && self.kept.is_none() {
            return Err(invalid(
                "changes cannot be kept apart here, since there is no tool that applies them",
            ));
        }
        self.require_layers()
            .map_err(|error| CallError::new(Code::Io, format!("no command is run: {error}")))?;
        let (program, scope) = self.programs.find(name, names)?;
        let mut needs = vec![scope];
        if let Program::OfRoot(path) = &program {
            needs.push(Scope::file(Verb::Read, path.clone()));
        }
        let reads = (Verb::Read, "/reads", &args.reads);
        let writes = (Verb::Write, "/writes", &args.writes);
        for (verb, field, paths) in [reads, writes] {
            for (index, path) in paths.iter().enumerate() {
                let path = names.path_argument(&format!("{field}/{index}"), path)?;
                needs.push(Scope::file(verb, path).beneath());
            }
        }
        needs.extend(network::needs(&args.network, &self.private)?);
        let cwd = names.path_argument("/cwd", args.cwd.as_deref().unwrap_or("."))?;
        let unless_set = if self.inherit_stdio {
            Duration::MAX
        } else {
            DEFAULT_TIMEOUT
        };
        let timeout = args.timeout_ms.map(Duration::from_millis);
        let previewed = self.programs.preview(&program);
        let mut writes = args.writes.iter().map(|path| names.path(path));
        let writes_cwd = writes.any(|path| path.is_ok_and(|path| cwd.starts_with(&path)));
        let job = Command {
            program,
            argv: args.argv,
            cwd,
            mode: args.mode,
            env: args.env,
            stdin: args.stdin,
            timeout: timeout.map_or(unless_set, |timeout| timeout.min(MAX_TIMEOUT)),
            reads: args.reads,
            writes: args.writes,
            network: args.network,
            scopes: needs.iter().map(Scope::to_string).collect(),
            writes_cwd,
            changes: OnceLock::new(),
            previewed,
        };
        Ok(Prepared { needs, job })
    }

    fn foresee(&self, job: &Command, rights: &Rights<'_>) -> Foreseen {
        let changes = self.changes(job, || rights.judge(Verb::Write, &job.cwd));
        let command =
            ResourceChange::new(preview::command(&job.argv), format!("run in {}", job.cwd));
        let command = command.detail(preview::details(self, job)).confined();
        let mut all = vec![command];
        all.extend(preview::rights(self, job, changes, rights));
        Foreseen::Changes(all)
    }

    async fn act(
        &self,
        job: &Command,
        permit: ActPermit,
        progress: ActProgress,
    ) -> Result<Reply, CallError> {
        let changes = self.changes(job, || permit.reading().judge(Verb::Write, &job.cwd));
        let (programs, program) = (self.programs.clone(), job.program.clone());
        let (files, locked, permit) = self.locked_view(changes, permit).await?;
        let checked = tokio::task::spawn_blocking(move || {
            let program = programs.check(&program, permit.reading());
            (program, permit)
        });
        let (program, permit) = checked
            .await
            .map_err(|_| internal("the program was not read"))?;
        let program = program?;
        if job.previewed.is_some_and(|seen| seen != program.sha256) {
            let message = "the program was replaced since it was previewed";
            return Err(CallError::new(Code::StalePreview, message));
        }
        let mut spec = Self::spec(self, job, program, files.clone());
        if changes == Changes::Apart && matches!(job.program, Program::OfRoot(_)) {
            spec.program = spec.program.map(FileIdentity::in_overlay);
        }
        if permit.reading().has_name_rules() {
            // Files that appear while the command runs can match, too.
            spec.optional.retain(|layer| *layer != Layer::Namespaces);
        }
        let left = permit.time_left().unwrap_or(Duration::MAX);
        let timeout = job.timeout.min(left.saturating_sub(END_TIME.min(left / 4)));
        let apart = match (changes, &self.kept) {
            (Changes::Apart, Some(store)) => Some(Apart::begin(store, &files)?),
            (Changes::Live | Changes::Apart, _) => None,
        };
        let act = Arc::new(permit.reserve()?);
        let memory = act.memory_use();
        if memory.is_some() {
            // Nothing else measures it.
            let measures = |layer: &Layer| matches!(layer, Layer::Namespaces | Layer::Proc);
            spec.optional.retain(|layer| !measures(layer));
        }
        let limit = spec.limits.processes.unwrap_or(u64::MAX);
        let processes = act.reserve_processes(limit)?;
        if let Some(reserved) = &processes {
            spec.limits.processes = Some(reserved.count()).filter(|count| *count < u64::MAX);
        }
        let run = Run {
            spec,
            program: program.sha256,
            files,
            apart,
            launcher: self.launcher.clone(),
            launch_ahead: !self.inherit_stdio,
            streams: Streams::new(self.inherit_stdio, &job.stdin, &progress, &act)
                .map_err(|error| io_error(&error))?,
            timeout,
            act,
            held: (processes, locked),
            memory,
            private: self.private.clone(),
        };
        // If this future is dropped, the task kills the command, and a revocation waits until it has.
        let (_cancel, cancelled) = oneshot::channel();
        let output = tokio::spawn(run.run(cancelled)).await;
        let output = output.map_err(|_| internal("the command was lost"))??;
        Ok(Reply::text(text(&output), output))
    }
}

/// The bounds of what a call names.
fn check_arguments(args: &RunCommand) -> Result<(), CallError> {
    let texts = || {
        let env = args.env.iter().flat_map(|(name, value)| [name, value]);
        args.argv.iter().chain(env)
    };
    if texts().count() > MAX_ARGUMENTS
        || texts().map(String::len).sum::<usize>() > MAX_ARGUMENT_BYTES
        || args.stdin.len() > MAX_STDIN
    {
        return Err(CallError::new(
            Code::TooLarge,
            "a command has at most 1,000 arguments and variables with 256 KiB in all, and 1 MiB of input",
        ));
    }
    if texts().any(|text| text.contains('\0')) || args.env.keys().any(|name| name.contains('=')) {
        let message = "arguments cannot contain NUL, nor names of variables `=`";
        return Err(CallError::new(Code::InvalidArguments, message));
    }
    if [&args.reads, &args.writes, &args.network]
        .iter()
        .any(|declared| declared.len() > MAX_DECLARED)
    {
        let message = "at most 100 files, directories and hosts can be declared";
        return Err(CallError::new(Code::TooLarge, message));
    }
    Ok(())
}

impl Commands {
    /// The mounts of the roots. If changes are live, what the command must not see or change is locked. If that had to wait for
    /// another call, the roots are read again.
    async fn locked_view(
        &self,
        changes: Changes,
        mut permit: ActPermit,
    ) -> Result<(Vec<Mount>, PathsLocked, ActPermit), CallError> {
        loop {
            let system = self.system.clone();
            let read = tokio::task::spawn_blocking(move || {
                let files = view::files(permit.reading(), changes, &system);
                (files, permit)
            });
            let read = read.await;
            let (files, returned) = read.map_err(|_| internal("the roots were not read"))?;
            let files = files?;
            permit = returned;
            let restricted = match changes {
                Changes::Live => restricted_paths(&files),
                Changes::Apart => Vec::new(),
            };
            let (locked, waited) = permit.lock_paths(restricted).await;
            if !waited {
                return Ok((files, locked, permit));
            }
        }
    }

    /// What happens to the changes of a command: what people saw, if they were asked. `judge` is the verdict on changes in
    /// its directory.
    fn changes(&self, job: &Command, judge: impl FnOnce() -> Verdict) -> Changes {
        *job.changes.get_or_init(|| match (job.mode, &self.kept) {
            (Some(Mode::Overlay), _) => Changes::Apart,
            (None, Some(_)) if !job.writes_cwd && judge() == Verdict::Ask => Changes::Apart,
            (Some(Mode::Live) | None, _) => Changes::Live,
        })
    }
}
