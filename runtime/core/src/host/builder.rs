//! Builder of a runtime; reports every fault that it finds.

mod check;
mod grants;
mod servers;
mod threads;

use parking_lot::Mutex;

use super::roots::ConfiguredRoot;
use super::{Runtime, RuntimeInner};
use crate::activity::KeepCalls;
use crate::artifact::{ArtifactStore, DEFAULT_BYTES, DEFAULT_COUNT};
use crate::audit::{Audit, AuditError, AuditSink, DEFAULT_CAPACITY, MemoryAudit};
use crate::config::{Config, ConfigError, RootConfig};
use crate::error::write_chain;
use crate::journal::Journal;
use crate::path::{PathError, VirtualPath};
use crate::permission::{Approver, AskLimits, Broker, DenyAll, GrantAuthority, GrantStore};
use crate::pipeline::PreviewKey;
use crate::policy::{Policy, PolicyError};
use crate::root::{Root, RootError};
use crate::scope::{ScopeError, ScopePattern};
use crate::supervisor::{Core, LastDirectory};
use crate::tool::{RegistryError, RemoteServers, RemoteTools, ToolSet, Tools};
use crate::worker::{
    Actors, Admission, ConfineFiles, Deadlines, PathLocks, Pool, ToolSlots, recover,
};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Why a runtime was not built: every fault that [`RuntimeBuilder::build`] found.
///
/// Its text has one line for each fault, with the causes.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use bailiwick::{BuildFault, Runtime};
/// let built = Runtime::builder().root("repo", "/no/such/directory").allow("fly:file").build().await;
/// let error = built.unwrap_err();
/// assert_eq!(error.to_string().lines().count(), 2);
/// assert!(matches!(error.faults(), [BuildFault::Pattern(_), BuildFault::Root(_)]));
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct BuildError(Vec<BuildFault>);

impl BuildError {
    /// Returns the faults, of which there is at least one.
    #[must_use]
    pub fn faults(&self) -> &[BuildFault] {
        &self.0
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write_chain(fault, f)?;
        }
        Ok(())
    }
}

/// Like `Display`, since `main` prints this form.
impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `Display` includes the causes, so `source` returns `None`.
impl std::error::Error for BuildError {}

impl From<BuildFault> for BuildError {
    fn from(fault: BuildFault) -> Self {
        Self(vec![fault])
    }
}

impl From<ConfigError> for BuildError {
    fn from(error: ConfigError) -> Self {
        BuildFault::from(error).into()
    }
}

/// One reason why a runtime was not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildFault {
    /// The name of a root is a path.
    #[error(
        "the root name `{0}` is a path; give a name without `/`, under which workers see the directory"
    )]
    RootName(String),
    /// The name of a root is not valid in a path.
    #[error("`{0}` cannot be a root name")]
    Mount(String, #[source] PathError),
    /// A pattern to allow or to make grantable is invalid.
    #[error(transparent)]
    Pattern(#[from] ScopeError),
    /// A directory cannot be a root.
    #[error(transparent)]
    Root(#[from] RootError),
    /// A file to keep out of all roots does not exist.
    #[error("cannot find `{}`, which must be kept out of every root", crate::text::escape(&path.to_string_lossy()))]
    KeptOut {
        /// The path, as the host specified it.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A root of [`RuntimeBuilder::configured`] cannot be served.
    #[error("invalid {field}")]
    Configured {
        /// The JSON pointer of its path.
        field: String,
        /// The reason.
        source: RootError,
    },
    /// [`RuntimeBuilder::config`] has a root, which it does not open.
    #[error(
        "the configuration has the root `{0}`, which `RuntimeBuilder::config` does not open: use `RuntimeBuilder::configured` \
         or `RuntimeBuilder::root`"
    )]
    Unopened(VirtualPath),
    /// A configuration source is invalid.
    #[error(transparent)]
    Source(#[from] ConfigError),
    /// The configuration contradicts itself.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The tools are invalid.
    #[error(transparent)]
    Tools(#[from] RegistryError),
    /// The operating system has no random bytes.
    #[error("cannot get random bytes from the operating system")]
    Random(#[source] std::io::Error),
    /// The I/O threads cannot be confined to the roots, as [`RuntimeBuilder::confine_files`] requires.
    #[error("cannot confine the I/O threads to the roots with Landlock: {0}")]
    Confinement(String),
    /// The thread that writes the audit log did not start.
    #[error("the audit did not start")]
    Audit(#[source] std::io::Error),
    /// The restored grants cannot be audited, so they are not restored.
    #[error("the stored grants cannot be recorded")]
    Restored(#[source] AuditError),
    /// Decisions of people about signing in to servers cannot be audited.
    #[error("decisions about signing in to servers cannot be recorded in the audit")]
    SignedIn(#[source] AuditError),
    /// `build` was called outside a tokio runtime.
    #[error("`build` must be called within a tokio runtime, such as under `#[tokio::main]`")]
    NoTokio,
    /// An actor of the runtime did not start.
    #[error("an actor of the runtime did not start")]
    Start(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Builder of a [`Runtime`]; [`RuntimeBuilder::build`] checks everything.
pub struct RuntimeBuilder {
    roots: Vec<ConfiguredRoot>,
    /// The mounts of [`RuntimeBuilder::configured`], in the order of its roots.
    configured: Vec<VirtualPath>,
    config: Config,
    kept_out: Vec<PathBuf>,
    /// Grant stores of other runtimes.
    other_stores: Vec<PathBuf>,
    policies: Vec<Policy>,
    grantable: Vec<ScopePattern>,
    allowed: Vec<ScopePattern>,
    tools: ToolSet,
    /// Tools of third-party servers.
    remote: Arc<RemoteTools>,
    changes: Option<tokio::sync::watch::Receiver<()>>,
    approver: Option<Arc<dyn Approver>>,
    sink: Box<dyn AuditSink>,
    /// The default sink, unless another one was set.
    memory: Option<MemoryAudit>,
    audit_capacity: usize,
    store: Option<GrantStore>,
    journal: Option<Journal>,
    asks: AskLimits,
    question_timeout: Duration,
    artifacts: (usize, usize),
    keep_calls: Option<KeepCalls>,
    admission: Admission,
    call_limit: Duration,
    max_depth: usize,
    confine_files: ConfineFiles,
    io_threads: usize,
    tool_threads: usize,
    preview_key: Option<PreviewKey>,
    /// Faults in the arguments of its methods.
    faults: Vec<BuildFault>,
    servers: Option<Arc<dyn RemoteServers>>,
}

impl fmt::Debug for RuntimeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeBuilder")
            .field("roots", &self.roots)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl RuntimeBuilder {
    pub(super) fn new() -> Self {
        let memory = MemoryAudit::new(4096);
        Self {
            roots: Vec::new(),
            configured: Vec::new(),
            config: Config::new(),
            kept_out: Vec::new(),
            other_stores: Vec::new(),
            policies: Vec::new(),
            grantable: Vec::new(),
            allowed: Vec::new(),
            tools: ToolSet::new(),
            remote: Arc::default(),
            changes: None,
            approver: None,
            sink: Box::new(memory.clone()),
            memory: Some(memory),
            audit_capacity: DEFAULT_CAPACITY,
            store: None,
            journal: None,
            asks: AskLimits::default(),
            question_timeout: Duration::from_secs(600),
            artifacts: (DEFAULT_COUNT, DEFAULT_BYTES),
            keep_calls: None,
            admission: Admission::default(),
            call_limit: Duration::from_secs(30),
            max_depth: 8,
            confine_files: ConfineFiles::default(),
            io_threads: 8,
            tool_threads: 8,
            preview_key: None,
            faults: Vec::new(),
            servers: None,
        }
    }

    /// Adds the directory `host` as the root `/name`, for reading and writing. Relative paths are relative to the first
    /// root.
    ///
    /// The runtime uses ambient authority only to open roots and granted paths outside them; the audit log, the grant store
    /// and the journal open their own files.
    #[must_use]
    pub fn root(self, name: &str, host: impl AsRef<Path>) -> Self {
        self.mounted(name, host.as_ref(), RootConfig::new)
    }

    /// Like [`RuntimeBuilder::root`], for reading only.
    #[must_use]
    pub fn root_read_only(self, name: &str, host: impl AsRef<Path>) -> Self {
        self.mounted(name, host.as_ref(), RootConfig::read_only)
    }

    /// Adds the directory `host` as configured by `root`. File systems mounted inside it belong to the root only if
    /// `cross_mounts` is set.
    #[must_use]
    pub fn root_with(
        mut self,
        root: RootConfig,
        host: impl AsRef<Path>,
        cross_mounts: bool,
    ) -> Self {
        self.roots.push(ConfiguredRoot {
            config: root,
            host: host.as_ref().to_path_buf(),
            cross_mounts,
        });
        self
    }

    /// Rejects all roots and grants that contain the file or directory `host`, such as a policy file or a key. The
    /// audit log, the grant store, the journal and the pin store of the servers are always kept out.
    #[must_use]
    pub fn keep_out(mut self, host: impl AsRef<Path>) -> Self {
        self.kept_out.push(host.as_ref().to_path_buf());
        self
    }

    /// Like [`RuntimeBuilder::keep_out`], for the grant store of another runtime and the files that it creates beside it,
    /// which need not exist yet.
    #[must_use]
    pub fn keep_out_grants(mut self, file: impl AsRef<Path>) -> Self {
        self.other_stores.push(file.as_ref().to_path_buf());
        self
    }

    /// All files and directories that no root and no grant may contain. Faults are added to `faults`.
    fn kept_out(&self, faults: &mut Vec<BuildFault>) -> Vec<PathBuf> {
        let named = self.kept_out.iter().map(PathBuf::as_path);
        let named = named.chain(self.sink.place());
        let named = named.map(|host| (host, Root::places_of(host).map(Vec::from)));
        let stores = self.other_stores.iter();
        let stores = stores.map(|file| (&**file, GrantStore::places_of(file)));
        let mut paths: Vec<PathBuf> = Vec::new();
        for (host, found) in named.chain(stores) {
            match found {
                Ok(found) => paths.extend(found),
                Err(source) => faults.push(BuildFault::KeptOut {
                    path: host.to_path_buf(),
                    source,
                }),
            }
        }
        paths.extend(self.store.iter().flat_map(GrantStore::places));
        paths.extend(self.journal.iter().flat_map(Journal::places));
        paths.extend(self.servers.iter().flat_map(|servers| servers.kept_out()));
        paths
    }

    fn mounted(mut self, name: &str, host: &Path, root: fn(VirtualPath) -> RootConfig) -> Self {
        let mount = match VirtualPath::top().join(name) {
            Ok(mount) => mount,
            Err(source) => {
                let shown = crate::text::escape(name).into();
                self.faults.push(if name.contains('/') {
                    BuildFault::RootName(shown)
                } else {
                    BuildFault::Mount(shown, source)
                });
                return self;
            }
        };
        let config = RootConfig {
            default: self.roots.is_empty(),
            ..root(mount)
        };
        self.root_with(config, host, false)
    }

    /// Sets the configuration, which has no roots. The other methods add to it, in any order.
    /// [`RuntimeBuilder::configured`] takes a configuration with roots.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Like [`RuntimeBuilder::config`], and opens each root at its own host path: the root `/home/me/repo` is the directory
    /// that `/home/me/repo` resolves to when the runtime is built.
    #[must_use]
    pub fn configured(mut self, mut config: Config) -> Self {
        for root in std::mem::take(&mut config.roots) {
            let host = PathBuf::from(root.mount.as_str());
            self.configured.push(root.mount.clone());
            self = self.root_with(root, host, false);
        }
        self.config(config)
    }

    /// Adds a policy for all workers.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Lets people grant the scopes that `pattern` covers, which are outside the roots.
    #[must_use]
    pub fn grantable(mut self, pattern: &str) -> Self {
        let pattern = self.pattern(pattern);
        self.grantable.extend(pattern);
        self
    }

    /// Allows scopes of resources other than files, such as `read:mcp:notes`. Without this, they are denied, or require
    /// approval if they are grantable. Access to files is configured by roots.
    ///
    /// A pattern that names the resource `network`, such as `read:network` or `execute:network:api.example.com`, also sets
    /// the configuration key `network` to true, which is false by default, unless the configuration sets it to false. The
    /// pattern `*` does not.
    ///
    /// ```
    /// use bailiwick::Runtime;
    /// let builder = Runtime::builder().allow("execute:network:api.example.com");
    /// # let _ = builder;
    /// ```
    #[must_use]
    pub fn allow(mut self, pattern: &str) -> Self {
        let pattern = self.pattern(pattern);
        self.allowed.extend(pattern);
        self
    }

    /// Parses a pattern; `None` with a fault if it is invalid.
    fn pattern(&mut self, text: &str) -> Option<ScopePattern> {
        let parsed = text.parse();
        parsed
            .map_err(|error: ScopeError| self.faults.push(error.into()))
            .ok()
    }

    /// Adds tools.
    #[must_use]
    pub fn tools(mut self, tools: ToolSet) -> Self {
        self.tools = self.tools.and(tools);
        self
    }

    /// Sets the approver. Without one, calls that require approval are refused with `SCOPE_REQUIRED`.
    #[must_use]
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Sets the audit sink. By default the last 4,096 records are kept in memory; [`Runtime::audit_records`] returns them.
    #[must_use]
    pub fn audit(mut self, sink: impl AuditSink) -> Self {
        (self.sink, self.memory) = (Box::new(sink), None);
        self
    }

    /// Sets the change journal, so that the changes of file tools can be undone with the tool `undo`
    /// (`bailiwick_fs::undo_tools`). By default there is none, and nothing can be undone. No root and no grant may contain its
    /// directory.
    ///
    /// [`RuntimeBuilder::build`] checks the changes that a crash interrupted, which needs the tool `undo`: it keeps complete ones
    /// and rolls back the others. [`Runtime::recovered`] returns them.
    #[must_use]
    pub fn journal(mut self, journal: Journal) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Sets how many audit messages, each with one or more events, may wait to be written. Further calls are rejected with
    /// `BUSY`.
    #[must_use]
    pub fn audit_capacity(mut self, messages: usize) -> Self {
        self.audit_capacity = messages;
        self
    }

    /// Sets the limits of questions and how long a question waits for an answer (10 minutes by default). The limits also
    /// apply if the approver is a program: by default, the eleventh question of a worker in a minute fails with
    /// `RATE_LIMITED`.
    #[must_use]
    pub fn asks(mut self, limits: AskLimits, timeout: Duration) -> Self {
        (self.asks, self.question_timeout) = (limits, timeout);
        self
    }

    /// Sets the maximum number of calls whose artifacts are stored, and their maximum total size (256 calls and 64 MiB
    /// by default; 0 is unlimited).
    #[must_use]
    pub fn artifacts(mut self, calls: usize, bytes: usize) -> Self {
        self.artifacts = (calls, bytes);
        self
    }

    /// Keeps recent calls of all workers in memory, for people who watch the runtime: see [`Runtime::recent_calls`]. By
    /// default none are kept.
    #[must_use]
    pub fn keep_calls(mut self, keep: KeepCalls) -> Self {
        self.keep_calls = Some(keep);
        self
    }

    /// Sets the limits on the calls in flight of one worker.
    #[must_use]
    pub fn admission(mut self, bounds: Admission) -> Self {
        self.admission = bounds;
        self
    }

    /// Sets the time limit of calls, without the time spent waiting for people (30 seconds by default).
    #[must_use]
    pub fn call_limit(mut self, limit: Duration) -> Self {
        self.call_limit = limit;
        self
    }

    /// Sets the maximum delegation depth (8 by default).
    #[must_use]
    pub fn max_depth(mut self, depth: usize) -> Self {
        self.max_depth = depth;
        self
    }

    /// Sets the key of preview tokens, which must be random and secret.
    ///
    /// Runtimes with the same key accept each other's tokens if worker, tool, arguments and the state of the files are equal,
    /// so a later process can apply a preview. By default each runtime has a random key.
    #[must_use]
    pub fn preview_key(mut self, key: [u8; 32]) -> Self {
        self.preview_key = Some(key.into());
        self
    }

    /// Sets whether Landlock confines the I/O threads, which run file tools: they can then open nothing outside the roots,
    /// change nothing in roots that are read-only, and run no programs, even if a check of a path is wrong. The rules are
    /// tested when the runtime is built and on each thread. By default this is done if the kernel can do it.
    ///
    /// Small reads that run without an I/O thread are not confined, and calls that a person granted files outside the
    /// roots run on other I/O threads. A program or thread that a file tool starts is confined, too.
    #[must_use]
    pub fn confine_files(mut self, confine: ConfineFiles) -> Self {
        self.confine_files = confine;
        self
    }

    /// Sets the number of I/O threads (8 by default; up to twice as many while some are blocked).
    #[must_use]
    pub fn io_threads(mut self, threads: usize) -> Self {
        self.io_threads = threads.max(1);
        self
    }

    /// Sets the number of threads for tools that are not file tools (8 by default; up to twice as many while some are
    /// blocked). File tools, such as those of `bailiwick-fs`, run on the I/O threads; see [`ToolSet::for_files`].
    #[must_use]
    pub fn tool_threads(mut self, threads: usize) -> Self {
        self.tool_threads = threads.max(1);
        self
    }

    /// Opens the roots, starts the supervisors and returns the only [`GrantAuthority`].
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`BuildError`] with all faults that were found.
    pub async fn build(mut self) -> Result<(Runtime, GrantAuthority), BuildError> {
        let checked = self.checked()?;
        let (config, roots) = (&checked.config, &checked.roots);
        let confinement = threads::confinement(self.confine_files, config, roots)?;
        let audit = Audit::start(self.sink, self.audit_capacity).map_err(BuildFault::Audit)?;
        if let Some(keep) = self.keep_calls {
            audit.monitor().keep_calls(keep);
        }
        grants::audit_restored(&audit, self.store.as_ref()).await?;
        if let Some(servers) = &self.servers {
            let recorded = servers.attach(&audit).await;
            recorded.map_err(BuildFault::SignedIn)?;
        }
        let asks = self.approver.is_some();
        let approver = self.approver.unwrap_or_else(|| Arc::new(DenyAll));
        let broker = grants::broker_config(self.asks, self.question_timeout, self.store)?;
        let broker = Broker::start(broker, audit.clone(), approver).await;
        let broker = broker.map_err(|error| BuildFault::Start(error.into()))?;
        let marks = self.remote.marks();
        let journal = self.journal.as_ref().map(Journal::for_runtime);
        let size = |threads| threads::io(threads, self.admission.jobs);
        let core = Arc::new(Core {
            tool_slots: ToolSlots::of(&self.tools),
            tools: Tools::new(self.tools, self.remote),
            changes: self.changes,
            names: config.namespace().without(checked.unavailable),
            authority: checked.authority,
            roots: Arc::new(checked.roots),
            kept_out: checked.kept_out,
            audit,
            broker,
            journal: journal.as_ref().map(Journal::downgrade),
            asks,
            artifacts: ArtifactStore::new(self.artifacts.0, self.artifacts.1),
            admission: self.admission,
            call_limit: self.call_limit,
            max_depth: self.max_depth,
            io: Pool::confined("io", size(self.io_threads), &confinement),
            io_outside: Pool::new("io-outside", size(self.io_threads)),
            confinement,
            tool_pool: Pool::new("tools", size(self.tool_threads)),
            cpu: Pool::new("cpu", threads::cpu()),
            deadlines: Deadlines::default(),
            preview_key: PreviewKey::or_random(self.preview_key)
                .map_err(|error| BuildFault::Random(std::io::Error::other(error)))?,
            path_locks: PathLocks::default(),
            calls: 0.into(),
            workers: 0.into(),
            registry: dashmap::DashMap::default(),
            actors: Actors::new(tokio::runtime::Handle::current()),
            last_directory: LastDirectory::default(),
            tree: parking_lot::Mutex::default(),
            supervisors: OnceLock::new(),
        });
        threads::supervise(&core).await?;
        let (broker, authority) = (core.broker.clone(), core.authority.clone());
        let grants = GrantAuthority::new(broker, authority, marks, Arc::downgrade(&core));
        let inner = Arc::new(RuntimeInner {
            recovered: recover(&core).await,
            core,
            memory: self.memory,
            journal_lock: Mutex::new(journal),
            _servers: self.servers,
        });
        Ok((Runtime { inner }, grants))
    }
}
