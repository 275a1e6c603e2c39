//! The tool `run_command` and its settings.

mod changed;
mod network;
mod output;
mod preview;
mod program;
mod record;
mod run;
mod streams;
mod tool;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use bailiwick::ToolSet;
use bailiwick::worker::{LayerState, LayerStatus};

use crate::error::ExecError;
use crate::launcher::Launcher;
use crate::overlay::{ApplyChanges, Store};
use crate::process::Helper;
use crate::programs;
use crate::self_test::SelfTest;
use crate::spec::{CopyLimits, Layer, Limits, Mount, SandboxSpec};
use program::{Hashed, Programs};
use tool::Command;

pub use output::{ChangedFile, CommandChanges, CommandOutput};

/// Size of `/tmp`, which is in memory.
const TEMPORARY_BYTES: u64 = 512 << 20;
/// Number of commands that run at the same time by default.
const DEFAULT_CONCURRENT: u32 = 4;

/// The names of the tools of [`Commands::tools`], sorted: for
/// [`ConfigSources::tools`](bailiwick::config::ConfigSources::tools), without making the tools.
///
/// ```
/// use bailiwick_exec::{Commands, TOOL_NAMES};
/// assert!(Commands::new().tools().names().eq(TOOL_NAMES));
/// ```
pub const TOOL_NAMES: [&str; 2] = ["apply_changes", "run_command"];

/// Runs commands of workers in sandboxes.
///
/// A command can read what its worker may read without a question, and change what its worker may change without one. If
/// changes would need an answer, they are kept apart until a call of `apply_changes` applies them: see [`Commands::tools`].
/// It can touch nothing else, except the directories of the system that it can read: see [`Commands::system`].
///
/// It has no network unless the policy of the worker allows a scope of `execute:network`, such as
/// `execute:network:crates.io` or `execute:network:crates.io:443`. Then a [`Proxy`](crate::Proxy) makes its connections to
/// the allowed hosts. Names are in lower case and do not cover other names below them, and a rule for a name does not
/// apply to the addresses of its host. The proxy does not connect to IPv6 addresses that a program names itself, and to
/// addresses that are not public, see [`Commands::private_address`].
///
/// The audit records each command: its arguments, the hash of its program, its directory, what it can change, the layers
/// of its sandbox, its end, its connections and the files that it changed: in the mode `live`, those that changed while it ran,
/// without deleted ones, with the hashes of the first 100 up to 16 MiB. The program is started once its start is recorded. A program that was
/// replaced since its preview, or since it was hashed, is not started. The last check is immediately before the start; a
/// change by another process after it is not noticed. If changes are kept apart, a program in a root is compared by its size
/// and its times.
///
/// In the mode `live`, directories above a path with rules of its own cannot be renamed or moved, and files cannot be renamed
/// out of them. In a repository of any name, the configuration and hooks that exist are read-only, unless a person allowed
/// the call to change them. No command can set the set-user-ID or the set-group-ID bit. `git commit` needs the mode
/// `overlay`, or `.git` in `writes`: nothing can be created in `.git` otherwise, since files such as `.git/commondir` make
/// Git run other programs.
///
/// While a command runs, the helper of the next one is started. It has the limits and the restrictions that this
/// process has then, but it is not used if this process has other users, groups or capabilities. A host that restricts
/// itself in other ways does so before it runs commands.
///
/// A long output is cut in the reply; up to 1 MiB of each stream is an artifact of the call. A command ends before the time
/// limit of its call (`RuntimeBuilder::call_limit`, 30 seconds by default), so that its output is not lost. The budgets of a
/// worker count the CPU time, duration, output, processes and memory of its commands, but not what they change in the mode
/// `live`; a command that exceeds a budget is killed. A budget of memory needs [`Layer::Namespaces`] and [`Layer::Proc`].
/// [`Commands::limits`] has the limits of single commands.
///
/// Add the tools to a runtime. A sandbox starts the program again as its helper, so [`init`](crate::init) comes first in
/// `main`, before tokio starts its threads:
///
/// ```no_run
/// use bailiwick::{Policy, Runtime, WorkerSpec};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     bailiwick_exec::init();
///     tokio::runtime::Runtime::new()?.block_on(run())
/// }
///
/// async fn run() -> Result<(), Box<dyn std::error::Error>> {
///     let tools = bailiwick_exec::Commands::new().tools();
///     let builder = Runtime::builder().root("repo", ".").allow("execute:command");
///     let (runtime, _grants) = builder.tools(tools).build().await?;
///     let policy = Policy::nothing()
///         .allow("read:file")
///         .allow("write:file:/repo/target")
///         .allow("execute:command:cargo");
///     let tester = runtime.spawn(WorkerSpec::new("tester").policy(policy)).await?;
///     let arguments = serde_json::json!({ "argv": ["cargo", "test"], "cwd": "/repo" });
///     println!("{}", tester.call("run_command", arguments).await?.text());
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Commands {
    launcher: Launcher,
    system: Vec<PathBuf>,
    env: BTreeMap<String, String>,
    limits: Limits,
    copy: CopyLimits,
    programs: Programs,
    private: Vec<SocketAddr>,
    max_concurrent: u32,
    optional: Vec<Layer>,
    tested: Option<SelfTest>,
    inherit_stdio: bool,
    /// Changes that are kept apart, if there is a tool that applies them.
    kept: Option<Store>,
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
        Self {
            launcher: Launcher::default(),
            system: programs::SYSTEM.iter().map(PathBuf::from).collect(),
            programs: Programs::new(programs::PATH.iter().map(PathBuf::from).collect()),
            env: BTreeMap::new(),
            limits: Limits::default(),
            copy: CopyLimits::default(),
            kept: None,
            private: Vec::new(),
            max_concurrent: DEFAULT_CONCURRENT,
            optional: Vec::new(),
            tested: None,
            inherit_stdio: false,
        }
    }

    /// Returns the tools `run_command` and `apply_changes`, which applies the changes of commands that were kept apart.
    ///
    /// A command in the mode `overlay` runs on a view of the roots: it can change what its worker may change at all, with
    /// or without a question, and nothing changes in the roots. The reply lists the changes. A call of `apply_changes`
    /// applies them, or some of them: the policy judges every file, a person sees all diffs in one question, and what
    /// somebody else has changed since the command started is not overwritten. New symbolic links, changed permissions of
    /// directories, set-id and sticky bits, and extended attributes are not applied; the reply names them. A hard link becomes
    /// a copy. Both names of a moved file are applied, or none.
    ///
    /// The changes of the last 16 commands of each worker are kept in memory, with at most 256 MiB for each worker and 1 GiB
    /// in all. Changes of another worker are dropped for them only if they are older than an hour; otherwise the new ones are
    /// not kept, which the reply says. Only the worker that ran the command, and its ancestors, can apply them. They are
    /// dropped once the worker has ended, at the latest when room is needed. The view needs overlayfs and Linux 6.6 or newer.
    /// Otherwise the command works on a copy of the files in memory, see [`Commands::copy_limits`]. Roots on network file
    /// systems (NFS, SMB, Ceph) are refused in this mode, since their times come from another clock.
    #[must_use]
    pub fn tools(mut self) -> ToolSet {
        let store = Store::default();
        self.kept = Some(store.clone());
        let layers = self.layers();
        let tools = ToolSet::new().actor(self).writer(ApplyChanges::new(store));
        tools.layers(layers)
    }

    /// The layers of the sandbox, for [`Status::layers`](bailiwick::worker::Status::layers).
    fn layers(&self) -> Vec<LayerStatus> {
        match &self.tested {
            Some(tested) => tested.statuses().collect(),
            None => {
                let layers = Layer::ALL.into_iter();
                let untested = |layer: Layer| {
                    LayerStatus::new("commands", layer.to_string(), LayerState::NotTested)
                };
                layers.map(untested).collect()
            }
        }
    }

    /// Sets the program that runs as the helper.
    #[must_use]
    pub fn helper(mut self, helper: Helper) -> Self {
        self.launcher = Launcher::new(helper);
        self
    }

    /// Adds a directory or file of the system that all commands can read, for example a toolchain. What it contains of a
    /// root, or what a root contains of it, can be read only if the policy allows it.
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
        self.programs.path.insert(0, directory.into());
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

    /// Sets the limits of copies of the roots, which are made where overlayfs is missing, for commands in the mode `overlay`. A
    /// copy is in memory as long as the command runs, and its changes afterwards. Roots that exceed the limits, by default
    /// 50,000 files and directories, 256 MiB and 10 seconds, are refused with `TOO_LARGE`.
    #[must_use]
    pub fn copy_limits(mut self, limits: CopyLimits) -> Self {
        self.copy = limits;
        self
    }

    /// Connects commands to the standard streams of this process: their output is not recorded, and they have no time
    /// limit other than that of the call and of the runtime. For programs that run the command of a person.
    #[must_use]
    pub fn inherit_stdio(mut self) -> Self {
        self.inherit_stdio = true;
        self
    }

    /// Sets the layers of the sandbox that may be missing if this machine does not support them; see
    /// [`SandboxSpec::optional`]. By default all are required, and a command is refused if one is missing.
    /// A command of a worker that may connect to hosts, or to whose files globs apply such as those of `Policy::deny_glob`,
    /// always needs [`Layer::Namespaces`].
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

    /// Checks that commands run on this machine, as far as [`Commands::tested`] says: no layer is broken, and no required
    /// one missing.
    ///
    /// # Errors
    /// [`ExecError::Broken`] or [`ExecError::Missing`].
    pub fn require_layers(&self) -> Result<(), ExecError> {
        let tested = self.tested.as_ref();
        tested.map_or(Ok(()), |tested| tested.require(&self.optional))
    }

    /// Returns the layers that commands run without, and why, according to [`Commands::tested`]. Without
    /// [`Layer::Overlay`], the files are copied instead.
    pub fn missing_layers(&self) -> impl Iterator<Item = (Layer, &str)> {
        let layers = self.tested.iter().flat_map(|tested| &tested.layers);
        layers.filter_map(|(layer, state)| match state {
            LayerState::Missing(reason) => Some((*layer, reason.as_str())),
            _ => None,
        })
    }

    /// Whether the self-test found that overlayfs is missing.
    fn copies_files(&self) -> bool {
        self.missing_layers()
            .any(|(layer, _)| layer == Layer::Overlay)
    }

    /// Whether every command that starts has all layers of the sandbox, as far as is known.
    fn is_sandboxed(&self) -> bool {
        let enforced = |tested: &SelfTest| tested.require(&[]).is_ok();
        self.optional.is_empty() || self.tested.as_ref().is_some_and(enforced)
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
        // Without overlayfs, the files are copied.
        spec.optional = self.optional.clone();
        spec.optional.push(Layer::Overlay);
        spec.copy = self.copy.clone();
        spec.env = self.variables(job).into_iter().collect();
        // Before the others, which may be in it.
        spec.mounts.push(Mount::Temporary {
            at: "/tmp".into(),
            bytes: TEMPORARY_BYTES,
        });
        let is_hidden = |system: &Mount| {
            let mut files = files.iter();
            files.any(|file| match (file, system) {
                (Mount::Hidden { at }, Mount::Host { at: inner, .. }) => inner.starts_with(at),
                _ => false,
            })
        };
        // Nothing is left of a directory that is hidden, so no rule can name it.
        let system = programs::mounts(&self.system).into_iter();
        let system: Vec<Mount> = system.filter(|system| !is_hidden(system)).collect();
        spec.mounts.extend(system);
        spec.mounts.extend(files);
        spec.limits = self.limits.clone();
        spec
    }

    /// The environment of a command.
    fn variables(&self, job: &Command) -> BTreeMap<String, String> {
        let path: Vec<_> = self
            .programs
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
