//! The tool `run_command` and its settings.

mod network;
mod output;
mod preview;
mod program;
mod record;
mod run;
mod tool;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::error::ExecError;
use crate::process::Helper;
use crate::programs;
use crate::self_test::SelfTest;
use crate::spec::{Layer, Limits, Mount, SandboxSpec};
use program::{Hashed, Programs};
use tool::Command;

pub use output::CommandOutput;

/// Size of `/tmp`, which is in memory.
const TEMPORARY_BYTES: u64 = 512 << 20;
/// Number of commands that run at the same time by default.
const DEFAULT_CONCURRENT: u32 = 4;

/// Runs commands of workers in sandboxes.
///
/// A command may touch what its worker may read and change without a question, and nothing else: see
/// [`Commands::system`] for the directories of the system that it can read.
///
/// It has no network unless the policy of the worker allows a scope of `execute:network`, such as
/// `execute:network:crates.io` or `execute:network:crates.io:443`. Then a [`Proxy`](crate::Proxy) makes its connections to
/// the allowed hosts. Names are in lower case and do not cover other names below them, and a rule for a name does not
/// apply to the addresses of its host. The proxy does not connect to IPv6 addresses that a program names itself, and to
/// addresses that are not public, see [`Commands::private_address`].
///
/// The audit records each command: its arguments, the hash of its program, its directory, what it can change, the layers
/// of its sandbox, its end and its connections. A program that was replaced since its preview, or since it was hashed, is
/// not started. The last check is immediately before the start; a change by another process after it is not noticed.
///
/// A long output is cut in the reply; up to 1 MiB of each stream is an artifact of the call. A command ends before the time
/// limit of its call (`RuntimeBuilder::call_limit`, 30 seconds by default), so that its output is not lost. Budgets count
/// calls of the tool, but not what commands change or print; [`Commands::limits`] has the limits of their processes.
///
/// Add the tool with [`ToolSet::actor`](bailiwick::ToolSet::actor):
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
    programs: Programs,
    private: Vec<SocketAddr>,
    max_concurrent: u32,
    optional: Vec<Layer>,
    tested: Option<SelfTest>,
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
            programs: Programs::new(&path),
            path,
            env: BTreeMap::new(),
            limits: Limits::default(),
            private: Vec::new(),
            max_concurrent: DEFAULT_CONCURRENT,
            optional: Vec::new(),
            tested: None,
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
        self.programs = Programs::new(&self.path);
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

    /// Sets the layers of the sandbox that may be missing if this machine does not support them; see
    /// [`SandboxSpec::optional`]. By default all are required, and a command is refused if one is missing.
    /// A command of a worker that may connect to hosts always needs [`Layer::Namespaces`].
    #[must_use]
    pub fn optional(mut self, layers: &[Layer]) -> Self {
        self.optional = layers.to_vec();
        self
    }

    /// Sets the result of the [`self_test`](crate::self_test). Previews then name the layers of the sandbox, and if a layer
    /// is broken or a required one missing, commands are refused before anybody is asked about them.
    #[must_use]
    pub fn tested(mut self, result: SelfTest) -> Self {
        self.tested = Some(result);
        self
    }

    /// Checks that the layers that the self-test found suffice.
    fn require_layers(&self) -> Result<(), ExecError> {
        let tested = self.tested.as_ref();
        tested.map_or(Ok(()), |tested| tested.require(&self.optional))
    }

    /// Allows connections to this address although it is not public, if the policy allows the host that is there: for
    /// example a package registry in a private network.
    #[must_use]
    pub fn private_address(mut self, address: SocketAddr) -> Self {
        self.private.push(address);
        self
    }

    /// Sets how many commands run at the same time in a runtime, by default 4. Further ones wait, for as long as a call
    /// may take; see [`ToolSpec::max_concurrent_calls`](bailiwick::ToolSpec::max_concurrent_calls).
    #[must_use]
    pub fn max_concurrent(mut self, commands: u32) -> Self {
        self.max_concurrent = commands;
        self
    }

    /// The sandbox of a command.
    fn spec(&self, job: &Command, program: Hashed, files: Vec<Mount>) -> SandboxSpec {
        let arguments = job.argv.iter().skip(1).cloned();
        let argv = std::iter::once(job.program.path())
            .chain(arguments)
            .collect();
        let mut spec = SandboxSpec::new(argv, job.cwd.as_str());
        spec.program = Some(program.identity);
        spec.optional = self.optional.clone();
        spec.env = self.variables(job).into_iter().collect();
        spec.mounts = programs::mounts(&self.system);
        spec.mounts.push(Mount::Temporary {
            at: "/tmp".into(),
            bytes: TEMPORARY_BYTES,
        });
        spec.mounts.extend(files);
        spec.limits = self.limits.clone();
        spec
    }

    /// The environment of a command.
    fn variables(&self, job: &Command) -> BTreeMap<String, String> {
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
        env
    }
}
