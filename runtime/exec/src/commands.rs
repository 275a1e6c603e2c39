//! The tool `run_command`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bailiwick::config::Namespace;
use bailiwick::effect::ResourceChange;
use bailiwick::path::VirtualPath;
use bailiwick::scope::{ScopeError, Verb};
use bailiwick::tool::{Act, ActPermit, ActProgress, Foreseen, Prepared};
use bailiwick::{ActTool, CallError, Code, Reply, Scope, ToolSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::error::ExecError;
use crate::output::Excerpt;
use crate::process::{Exit, Helper, Process, Stdio, spawn};
use crate::programs;
use crate::spec::{Limits, Mount, SandboxSpec};
use crate::view;

/// Maximum number and total bytes of arguments and environment variables.
const MAX_ARGUMENTS: usize = 1000;
const MAX_ARGUMENT_BYTES: usize = 256 << 10;
/// Maximum length of standard input, in bytes.
const MAX_STDIN: usize = 1 << 20;
/// Maximum number of names in [`CommandOutput::created_protected`].
const MAX_CREATED: usize = 100;
/// Bytes of each output stream that are kept at its beginning, and at its end.
const KEPT_OUTPUT: usize = 16 << 10;
/// Size of `/tmp`, which is in memory.
const TEMPORARY_BYTES: u64 = 512 << 20;
/// Time limit of a command unless the call has another.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest time limit of a command.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// Runs commands of workers in sandboxes.
///
/// A command may touch what its worker may read and change without a question, and nothing else: see
/// [`Commands::system`] for the directories of the system that it can read. Add the tool with
/// [`ToolSet::actor`](bailiwick::ToolSet::actor):
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use bailiwick::{Policy, Runtime, ToolSet, WorkerSpec};
/// let tools = ToolSet::new().actor(bailiwick_exec::Commands::new());
/// let builder = Runtime::builder().root("repo", ".").allow("execute:command");
/// let (runtime, _grants) = builder.tools(tools).build().await?;
/// let policy = Policy::nothing()
///     .allow("read:file")
///     .allow("write:file:/repo/target")
///     .allow("execute:command:cargo");
/// let tester = runtime.spawn(WorkerSpec::new("tester").policy(policy)).await?;
/// let arguments = serde_json::json!({ "argv": ["cargo", "test"], "cwd": "/repo" });
/// println!("{}", tester.call("run_command", arguments).await?.text());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Commands {
    helper: Helper,
    system: Vec<PathBuf>,
    path: Vec<PathBuf>,
    env: BTreeMap<String, String>,
    limits: Limits,
    programs: BTreeMap<String, PathBuf>,
    inherit_stdio: bool,
}

impl Default for Commands {
    fn default() -> Self {
        Self::new()
    }
}

impl Commands {
    /// Creates the tool with the default system directories and limits.
    #[must_use]
    pub fn new() -> Self {
        let path: Vec<PathBuf> = programs::PATH.iter().map(PathBuf::from).collect();
        Self {
            helper: Helper::default(),
            system: programs::SYSTEM.iter().map(PathBuf::from).collect(),
            programs: programs::programs(&path),
            path,
            env: BTreeMap::new(),
            limits: Limits::default(),
            inherit_stdio: false,
        }
    }

    /// Sets the program that runs as the helper.
    #[must_use]
    pub fn helper(mut self, helper: Helper) -> Self {
        self.helper = helper;
        self
    }

    /// Adds a directory or file of the system that all commands can read, for example a toolchain.
    ///
    /// By default these are `/usr`, `/bin`, `/sbin`, `/lib`, `/lib32`, `/lib64`, and of `/etc`: `alternatives`,
    /// `ca-certificates`, `ld.so.cache`, `ld.so.conf`, `ld.so.conf.d`, `localtime` and `ssl`.
    #[must_use]
    pub fn system(mut self, path: impl Into<PathBuf>) -> Self {
        self.system.push(path.into());
        self
    }

    /// Adds a directory in which programs are looked up, before the others. It must be in a system directory. By default
    /// these are `/usr/local/bin`, `/usr/bin` and `/bin`.
    #[must_use]
    pub fn search(mut self, directory: impl Into<PathBuf>) -> Self {
        self.path.insert(0, directory.into());
        self.programs = programs::programs(&self.path);
        self
    }

    /// Sets an environment variable of all commands. They get none of the host's variables.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Sets the limits of all commands.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Connects commands to the standard streams of this process: their output is not recorded, and they have no time
    /// limit other than that of the call and of the runtime. For programs that run the command of a person.
    #[must_use]
    pub fn inherit_stdio(mut self) -> Self {
        self.inherit_stdio = true;
        self
    }

    /// The program and its scope.
    fn program(&self, name: &str, names: &Namespace) -> Result<(Program, Scope), CallError> {
        let invalid = |error: ScopeError| CallError::new(Code::InvalidArguments, error.to_string());
        let scope = |name: &str| {
            format!("execute:command:{name}")
                .parse::<Scope>()
                .map_err(invalid)
        };
        if !name.contains('/') {
            let found = self.programs.get(name).ok_or_else(|| {
                let message = format!(
                    "`{}` is not an installed program",
                    bailiwick::text::escape(name)
                );
                CallError::new(Code::NotFound, message)
            })?;
            return Ok((Program::System(found.clone()), scope(name)?));
        }
        // A program of the system by its path is the same program as by its name.
        let by_path = self
            .programs
            .iter()
            .find(|(_, path)| path.to_str() == Some(name));
        if let Some((name, path)) = by_path {
            return Ok((Program::System(path.clone()), scope(name)?));
        }
        let path = names.path(name)?;
        let scope = scope(path.as_str())?;
        Ok((Program::OfRoot(path), scope))
    }

    fn spec(&self, job: &Command, files: Vec<Mount>) -> SandboxSpec {
        let program = match &job.program {
            Program::System(path) => path.to_string_lossy().into_owned(),
            Program::OfRoot(path) => path.as_str().to_owned(),
        };
        let arguments = job.argv.iter().skip(1).cloned();
        let argv = std::iter::once(program).chain(arguments).collect();
        let mut spec = SandboxSpec::new(argv, job.cwd.as_str());
        let path: Vec<_> = self
            .path
            .iter()
            .map(|path| path.to_string_lossy())
            .collect();
        let mut env = BTreeMap::from([
            ("HOME".to_owned(), "/tmp".to_owned()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("PATH".to_owned(), path.join(":")),
            ("TMPDIR".to_owned(), "/tmp".to_owned()),
        ]);
        env.extend(self.env.clone());
        env.extend(job.env.clone());
        spec.env = env.into_iter().collect();
        // Before the others, which may be in it.
        spec.mounts.push(Mount::Temporary {
            at: "/tmp".into(),
            bytes: TEMPORARY_BYTES,
        });
        spec.mounts.extend(programs::mounts(&self.system));
        spec.mounts.extend(files);
        spec.limits = self.limits.clone();
        spec
    }
}

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
    /// Time limit in milliseconds; 120,000 if absent.
    timeout_ms: Option<u64>,
    /// Files and directories that the command must be able to read, if it may not already.
    #[serde(default)]
    reads: Vec<String>,
    /// Files and directories that the command must be able to change, if it may not already.
    #[serde(default)]
    writes: Vec<String>,
}

/// A parsed call of `run_command`.
#[derive(Debug)]
#[doc(hidden)]
pub struct Command {
    program: Program,
    argv: Vec<String>,
    cwd: VirtualPath,
    env: BTreeMap<String, String>,
    stdin: String,
    timeout: Duration,
}

#[derive(Debug)]
enum Program {
    /// A program in a system directory.
    System(PathBuf),
    /// A file in a root.
    OfRoot(VirtualPath),
}

/// Result of `run_command`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CommandOutput {
    /// The exit code, unless a signal ended the command.
    pub exit_code: Option<i32>,
    /// The signal that ended the command.
    pub signal: Option<i32>,
    /// Whether the command was ended at its time limit.
    pub timed_out: bool,
    /// The standard output: its beginning and end if it is long.
    pub stdout: String,
    /// The standard error: its beginning and end if it is long.
    pub stderr: String,
    /// Length of the whole standard output, in bytes.
    pub stdout_bytes: u64,
    /// Length of the whole standard error, in bytes.
    pub stderr_bytes: u64,
    /// Files and directories that the command created and that the worker may not change. A sandbox cannot forbid names
    /// that do not exist when the command starts. At most 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub created_protected: Vec<String>,
    /// Duration in milliseconds.
    pub duration_ms: u64,
}

impl ActTool for Commands {
    type Args = RunCommand;
    type Output = CommandOutput;
    type Job = Command;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "run_command",
            "Run a command",
            "Runs a program without a shell in a sandbox: it sees the files that you may read, can change those that you \
             may change without a question, and has no network. Returns its exit code and output.",
        )
        .scopes(&["execute:command"])
    }

    fn prepare(&self, args: RunCommand, names: &Namespace) -> Result<Prepared<Command>, CallError> {
        let invalid = |message: &str| CallError::new(Code::InvalidArguments, message);
        let name = args.argv.first().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| invalid("`argv` must begin with a program"))?;
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
        if texts().any(|text| text.contains('\0')) || args.env.keys().any(|name| name.contains('='))
        {
            return Err(invalid(
                "arguments cannot contain NUL, nor names of variables `=`",
            ));
        }
        let (program, scope) = self.program(name, names)?;
        let mut needs = vec![scope];
        if let Program::OfRoot(path) = &program {
            needs.push(Scope::file(Verb::Read, path.clone()));
        }
        for (verb, paths) in [(Verb::Read, &args.reads), (Verb::Write, &args.writes)] {
            for path in paths {
                needs.push(Scope::file(verb, names.path(path)?).beneath());
            }
        }
        let cwd = names.path(args.cwd.as_deref().unwrap_or("."))?;
        let unless_set = if self.inherit_stdio {
            Duration::MAX
        } else {
            DEFAULT_TIMEOUT
        };
        let timeout = args.timeout_ms.map(Duration::from_millis);
        let job = Command {
            program,
            argv: args.argv,
            cwd,
            env: args.env,
            stdin: args.stdin,
            timeout: timeout.map_or(unless_set, |timeout| timeout.min(MAX_TIMEOUT)),
        };
        Ok(Prepared { needs, job })
    }

    fn foresee(&self, job: &Command) -> Foreseen {
        let command = format!("run {:?} in {}", job.argv, job.cwd);
        let files = "it can change all files that the worker may change without a question";
        Foreseen::Changes(vec![ResourceChange::new(command, files)])
    }

    async fn act(
        &self,
        job: &Command,
        permit: ActPermit,
        progress: ActProgress,
    ) -> Result<Reply, CallError> {
        let read = tokio::task::spawn_blocking(move || {
            let files = view::mounts(permit.reading());
            (files, permit)
        });
        let (files, permit) = read
            .await
            .map_err(|_| internal("the roots were not read"))?;
        let files = files?;
        let spec = Self::spec(self, job, files.clone());
        let act = permit.begin()?;
        let run = Run {
            spec,
            files,
            helper: self.helper.clone(),
            streams: Streams::new(self.inherit_stdio, &job.stdin, &progress)
                .map_err(|error| io_error(&error))?,
            timeout: job.timeout,
            act,
        };
        // If this future is dropped, the task kills the command, and a revocation waits until it has.
        let (_cancel, cancelled) = oneshot::channel();
        let output = tokio::spawn(run.run(cancelled)).await;
        let output = output.map_err(|_| internal("the command was lost"))??;
        Ok(Reply::text(text(&output), output))
    }
}

/// A command that is about to run.
struct Run {
    spec: SandboxSpec,
    /// The mounts of the roots.
    files: Vec<Mount>,
    helper: Helper,
    streams: Streams,
    timeout: Duration,
    act: Act,
}

impl Run {
    /// Runs the command until it ends, its time limit passes or `cancelled` is dropped. Nothing of it runs afterwards.
    async fn run(self, cancelled: oneshot::Receiver<()>) -> Result<CommandOutput, CallError> {
        let Self {
            spec,
            files,
            helper,
            streams,
            timeout,
            act,
        } = self;
        let began = Instant::now();
        let Streams {
            stdio,
            stdout,
            stderr,
        } = streams;
        let spawned = spawn(&spec, stdio, &helper).await;
        let mut process = spawned.map_err(|error| not_started(&error))?;
        let exit = Self::wait(&mut process, timeout, cancelled).await;
        drop(process);
        // The streams end with the sandbox.
        let (stdout, stderr) = (stdout.await, stderr.await);
        let unjudged = tokio::task::spawn_blocking(move || unjudged(&files, &act)).await;
        let unjudged = unjudged.map_err(|_| internal("the roots were not read"))?;
        let exit = exit?;
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
            created_protected: unjudged?,
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
    let after = view::mounts(act.reading())?;
    let new = after.iter().filter_map(restricted);
    let new = new.filter(|at| !before.contains(at));
    let names = new.map(|at| at.to_string_lossy().into_owned());
    Ok(names.take(MAX_CREATED).collect())
}

/// The standard streams of a command, and the tasks that record its output.
struct Streams {
    stdio: Stdio,
    stdout: JoinHandle<Excerpt>,
    stderr: JoinHandle<Excerpt>,
}

impl Streams {
    fn new(inherit: bool, stdin: &str, progress: &ActProgress) -> io::Result<Self> {
        let (stdin, (stdout, stdout_end), (stderr, stderr_end)) = if inherit {
            let stdin = io::stdin().as_fd().try_clone_to_owned()?;
            (stdin, unrecorded(io::stdout())?, unrecorded(io::stderr())?)
        } else {
            let stdin = input(stdin)?;
            (stdin, stream(progress.clone())?, stream(progress.clone())?)
        };
        let stdio = Stdio {
            stdin,
            stdout: stdout_end,
            stderr: stderr_end,
        };
        Ok(Self {
            stdio,
            stdout,
            stderr,
        })
    }
}

/// A stream of this process, of which nothing is recorded.
fn unrecorded(stream: impl AsFd) -> io::Result<(JoinHandle<Excerpt>, OwnedFd)> {
    let stream = stream.as_fd().try_clone_to_owned()?;
    Ok((tokio::spawn(async { Excerpt::new(0) }), stream))
}

/// Reads a stream of the command until its end.
fn stream(progress: ActProgress) -> io::Result<(JoinHandle<Excerpt>, OwnedFd)> {
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
fn input(text: &str) -> io::Result<OwnedFd> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = std::fs::File::from(rustix::fs::memfd_create("stdin", flags)?);
    file.write_all(text.as_bytes())?;
    io::Seek::rewind(&mut file)?;
    Ok(file.into())
}

/// The result as text.
fn text(output: &CommandOutput) -> String {
    let end = match (output.timed_out, output.exit_code, output.signal) {
        (true, ..) => "It was ended at its time limit.".to_owned(),
        (false, Some(code), _) => format!("Exit code {code}."),
        (false, None, Some(signal)) => format!("It was ended by signal {signal}."),
        (false, None, None) => "It ended.".to_owned(),
    };
    let mut text = end;
    for (name, stream) in [("Output", &output.stdout), ("Errors", &output.stderr)] {
        if !stream.is_empty() {
            text.push_str("\n\n");
            text.push_str(name);
            text.push_str(":\n");
            text.push_str(stream);
        }
    }
    if !output.created_protected.is_empty() {
        text.push_str("\n\nIt created names that you may not change: ");
        text.push_str(&output.created_protected.join(", "));
    }
    text
}

fn internal(message: &str) -> CallError {
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
    let failed = CallError::new(Code::Io, message);
    match error {
        ExecError::Setup { stage, .. } => failed.with("stage", stage.name()),
        _ => failed,
    }
}
