//! `bailiwick serve`: serves the file tools and third-party servers.

mod approval;
mod preview_key;
mod secret;
mod stdio;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use approval::ApprovalRoutes;
use preview_key::PreviewKey;
use secret::SecretFile;
use serde_json::Value;
use tokio::net::{TcpListener, UnixStream};
use tokio::signal::unix::signal;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

pub(crate) use secret::dir as secrets_dir;

use crate::audit;
use crate::cli::{Ask, Options};
use crate::paths;
use crate::sandbox;
use crate::servers::{self, START_TIMEOUT, ServerSetupError, Servers, ServersFile};
use crate::signals::{self, StopSignals};
use bailiwick::activity::KeepCalls;
use bailiwick::audit::AuditFileError;
use bailiwick::config::{ConfigSchema, ConfigSource, Effective, RootConfig};
use bailiwick::journal::{Journal, JournalError};
use bailiwick::permission::{AskLimits, GrantStore, GrantStoreError};
use bailiwick::{
    BuildError, Config, Deferred, JsonLines, MemoryAudit, Policy, Runtime, RuntimeBuilder,
    WorkerSpec,
};
use bailiwick_console::{Console, ConsoleAudit, ConsoleError};
use bailiwick_exec::ExecError;
use bailiwick_mcp::gateway::{
    Backend, BackendError, BackendFactory, FileTools, Gateway, GatewayBuilder, GatewayInfo, Http,
    HttpError, ServeError as StreamError, Token, Trust,
};

/// The number of audit records kept in memory without an audit file.
const MEMORY_AUDIT_RECORDS: usize = 4096;

/// The time limit of calls if commands can be run.
const COMMAND_LIMIT: Duration = Duration::from_secs(600);

/// Why the server failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The configuration is invalid.
    #[error(transparent)]
    Input(#[from] BuildError),
    /// The audit file cannot be opened.
    #[error(transparent)]
    Audit(#[from] AuditFileError),
    /// The grant store cannot be opened.
    #[error(transparent)]
    Grants(#[from] GrantStoreError),
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Third-party servers cannot be started.
    #[error(transparent)]
    Servers(#[from] ServerSetupError),
    /// The sandbox of commands does not work on this machine.
    #[error("cannot offer `run_command` (--exec); `bailiwick doctor` reports what is missing")]
    Sandbox(#[from] ExecError),
    /// The connection failed.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The address cannot be bound.
    #[error("cannot listen on `{address}`")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    /// The HTTP server failed.
    #[error("cannot serve HTTP")]
    Http(#[from] HttpError),
    /// A root contains a file that no worker may access.
    #[error("invalid {place}: `{}` cannot be a root: it contains `{}`; {remedy}", .root.display(), .path.display())]
    RootHolds {
        /// Where the root is configured.
        place: String,
        root: PathBuf,
        path: PathBuf,
        remedy: &'static str,
    },
    /// The file for a secret cannot be written.
    #[error("cannot write the file for a secret")]
    Secret(#[source] io::Error),
    /// The approval page cannot be served.
    #[error("cannot serve the approval page")]
    Console(#[from] ConsoleError),
    /// Signals cannot be waited for.
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
    /// The socket to attach to cannot be reached.
    #[error("cannot connect to the socket `{}`", .socket.display())]
    Attach { socket: PathBuf, source: io::Error },
    /// The socket or a standard stream failed.
    #[error("the connection failed")]
    Relay(#[source] io::Error),
    /// The system has no random numbers.
    #[error("cannot generate random numbers")]
    Random(#[source] io::Error),
}

/// Opens a runtime for each client that configures one.
struct RuntimeOpener {
    options: Arc<Options>,
    /// Locked while files are opened, so that no two runtimes choose the same audit file.
    files: Arc<Mutex<RuntimeFiles>>,
    /// The approval page, if there is one.
    console: Option<Arc<Console>>,
    /// Third-party servers whose tools are offered, too.
    servers: Option<Servers>,
    /// Files with secrets, which workers must not access.
    secrets: Vec<PathBuf>,
    /// The key of preview tokens that other processes accept.
    preview_key: Option<PreviewKey>,
    /// The journal, which all runtimes use.
    journal: Option<Journal>,
    /// The configuration of the server, without that of a client.
    effective: Effective,
}

/// Scopes of third-party servers that are grantable unless the configuration sets `grantable`.
const SERVER_SCOPES: [&str; 3] = ["read:mcp", "write:mcp", "execute:mcp"];

/// The files that the runtimes have opened.
#[derive(Debug, Default)]
struct RuntimeFiles {
    /// The number of opened audit files, one per runtime.
    opened: u32,
    /// Whether a runtime has opened the grant store.
    store_opened: bool,
}

impl RuntimeFiles {
    /// Adds the next audit file and, if it is not in use, the grant store. Blocks to read the audit file.
    fn open(
        &mut self,
        options: &Options,
        mut builder: RuntimeBuilder,
    ) -> Result<(RuntimeBuilder, ConsoleAudit), BackendError> {
        let record;
        if let Some(file) = self.audit(options) {
            record = ConsoleAudit::File(file.clone());
            let audit = JsonLines::append(file).map_err(|error| {
                tracing::error!(%error, "cannot write the audit file");
                BackendError::Audit(error)
            })?;
            // A file that cannot be opened is an error, and is not replaced by the next one.
            self.opened += 1;
            builder = builder.audit(audit.segment_bytes(options.flags.audit_segment_bytes));
        } else {
            let audit = MemoryAudit::new(MEMORY_AUDIT_RECORDS);
            record = ConsoleAudit::Memory(audit.clone());
            builder = builder.audit(audit);
        }
        Ok((self.with_grant_store(options, builder)?, record))
    }

    /// The audit file of the next runtime: the configured path, then that path with a number.
    fn audit(&self, options: &Options) -> Option<PathBuf> {
        let file = options.flags.audit.as_ref()?;
        Some(match self.opened {
            0 => file.clone(),
            opened => audit::numbered(file, opened + 1),
        })
    }

    /// Adds the grant store, or keeps grants in memory while another runtime of this process uses the store.
    fn with_grant_store(
        &mut self,
        options: &Options,
        builder: RuntimeBuilder,
    ) -> Result<RuntimeBuilder, BackendError> {
        let Some(file) = &options.flags.grants else {
            return Ok(builder);
        };
        match GrantStore::open(file) {
            Ok(store) => {
                self.store_opened = true;
                Ok(builder.grant_store(store))
            }
            Err(GrantStoreError::InUse { .. }) if self.store_opened => {
                tracing::warn!(
                    "the grant store is used by another client's runtime; grants of this client are not stored"
                );
                Ok(builder.keep_out_grants(file))
            }
            Err(error) => {
                tracing::error!(%error, "cannot open the grant store");
                Err(BackendError::Grants(error))
            }
        }
    }
}

impl RuntimeOpener {
    /// Adds the audit and the grant store of the next runtime.
    async fn open_files(
        &self,
        builder: RuntimeBuilder,
    ) -> Result<(RuntimeBuilder, ConsoleAudit), BackendError> {
        let mut files = Arc::clone(&self.files).lock_owned().await;
        let options = Arc::clone(&self.options);
        if options.flags.audit.is_none() && options.flags.grants.is_none() {
            // No file is opened, so nothing blocks.
            return files.open(&options, builder);
        }
        let opening = tokio::task::spawn_blocking(move || files.open(&options, builder));
        opening.await.map_err(|_| BackendError::Stopped)?
    }

    async fn open_runtime(&self, configuration: Option<Value>) -> Result<Backend, BackendError> {
        let effective = match configuration {
            None => self.effective.clone(),
            Some(configuration) => with_initialize(&self.options, &self.effective, configuration)?,
        };
        let builder = runtime_builder(&self.options, effective, self.servers.as_ref());
        let mut builder = builder.with_tools(&self.options);
        // Files that were removed cannot be accessed.
        for secret in self.secrets.iter().flat_map(|file| file.canonicalize()) {
            builder = builder.keep_out(secret);
        }
        if let Some(journal) = &self.journal {
            builder = builder.journal(journal.clone());
        }
        if self.console.is_some() {
            builder = builder.keep_calls(KeepCalls::default());
        }
        if let Some(key) = &self.preview_key {
            builder = builder.preview_key(key.bytes).keep_out(&key.file);
        }
        let (builder, record) = self.open_files(builder).await?;
        let (runtime, grants) = builder.build().await?;
        let spec = WorkerSpec::new("client").policy(Policy::new());
        let worker = runtime.spawn(spec).await?;
        let grants = Arc::new(grants);
        if let Some(console) = &self.console {
            console.add_source(approval::source(&runtime, Arc::clone(&grants), record));
        }
        let served = Backend::new(runtime, &worker, None);
        Ok(if ApprovalRoutes::of(&self.options).grants {
            served.shared_grants(grants)
        } else {
            served
        })
    }
}

impl BackendFactory for RuntimeOpener {
    fn create(
        &self,
        configuration: Option<Value>,
    ) -> Pin<Box<dyn Future<Output = Result<Backend, BackendError>> + Send + '_>> {
        Box::pin(self.open_runtime(configuration))
    }
}

/// A builder without the tools of this program.
struct Configured {
    builder: RuntimeBuilder,
    has_files: bool,
}

impl Configured {
    /// Adds the tools.
    fn with_tools(self, options: &Options) -> RuntimeBuilder {
        let Self { builder, has_files } = self;
        if !has_files {
            return builder;
        }
        let mut builder = builder.tools(bailiwick_fs::tools_with(options.durability));
        if options.flags.journal.is_some() {
            builder = builder.tools(bailiwick_fs::undo_tools(options.durability));
        }
        match &options.commands {
            Some(commands) => builder
                .tools(commands.clone().tools())
                .call_limit(COMMAND_LIMIT),
            None => builder,
        }
    }
}

/// Logs the notes on a configuration as warnings.
fn log_notes<'n>(notes: impl Iterator<Item = &'n String>) {
    for note in notes {
        tracing::warn!("{note}");
    }
}

/// The configuration of the server together with that of a client of trust `Host`, or of one that names the roots and
/// otherwise can only narrow.
fn with_initialize(
    options: &Options,
    known: &Effective,
    configuration: Value,
) -> Result<Effective, BuildError> {
    let sources = options.sources.clone();
    let sources = match options.trust {
        Trust::Host => sources.with(ConfigSource::Initialize, configuration)?,
        Trust::Client | Trust::Agent => {
            sources.with_narrowing(ConfigSource::Initialize, configuration)?
        }
    };
    let effective = sources.effective()?;
    // The notes on the other sources were logged when the server started.
    let notes = effective.notes().iter();
    log_notes(notes.filter(|note| !known.notes().contains(note)));
    Ok(effective)
}

/// Configures a runtime.
fn runtime_builder(
    options: &Options,
    effective: Effective,
    servers: Option<&Servers>,
) -> Configured {
    let no_grantable = effective.origin("grantable").is_none();
    let has_files = has_files(options, &effective.config);
    let roots = effective.config.roots.iter();
    let roots: Vec<PathBuf> = roots.map(|root| root.mount.as_str().into()).collect();
    let mut builder = Runtime::builder().configured(effective.config);
    if let Some(servers) = servers {
        builder = servers.add_to(builder, &roots);
    }
    if no_grantable && options.commands.is_some() {
        builder = builder.grantable("execute:command");
    }
    if no_grantable && options.servers.is_some() {
        builder = SERVER_SCOPES
            .iter()
            .fold(builder, |builder, pattern| builder.grantable(pattern));
    }
    if options.flags.ask != Ask::Replay {
        // Stateless clients share a worker, and an unanswered question of one must not block the others.
        let limits = AskLimits {
            open_per_worker: 10,
            ..AskLimits::default()
        };
        let timeout = Duration::from_secs(options.flags.question_timeout);
        builder = builder.approver(Deferred).asks(limits, timeout);
    }
    if let Some(file) = &options.flags.config {
        builder = builder.keep_out(file);
    }
    Configured { builder, has_files }
}

/// Serves until the client disconnects or a signal stops the server.
pub(crate) async fn run(mut options: Options) -> Result<(), ServeError> {
    // With a handler, exceeding the file size limit is a write error and does not kill the process.
    let _handled = signal(signals::file_size_exceeded()).map_err(ServeError::Signals)?;
    if let Some(socket) = &options.flags.attach {
        return attach(socket).await;
    }
    let effective = options.sources.effective().map_err(BuildError::from)?;
    log_notes(effective.notes().iter());
    check_roots(&options, &effective)?;
    let servers = options.servers.as_ref().map(ServersFile::read);
    let servers = servers.transpose()?;
    let journal = preflight(&options, &effective).await?;
    if let Some(commands) = options.commands.take() {
        options.commands = Some(sandbox::tested(commands).await?);
    }
    let options = Arc::new(options);
    let routes = ApprovalRoutes::of(&options);
    let (console, address) = if routes.page {
        let (console, address) = approval::page().await?;
        (Some(console), address)
    } else {
        (None, None)
    };
    let listener = match options.flags.http {
        Some(address) => Some(HttpListener::new(address, &options).await?),
        None => None,
    };
    let token = listener.as_ref().and_then(|it| it.token_file.as_ref());
    let secrets = address.iter().chain(token).map(SecretFile::path);
    let secrets = secrets.map(Path::to_owned).collect();
    let servers = match servers {
        Some(servers) => Some(servers.start(START_TIMEOUT).await?),
        None => None,
    };
    let config = &effective.config;
    let has_files = has_files(&options, config);
    let mut about = match &servers {
        None => about(),
        Some(servers) => about_with_servers(servers, has_files),
    };
    if has_files && options.commands.is_some() {
        about.instructions += " `run_command` runs programs on these files in a sandbox.";
    }
    let opener = RuntimeOpener {
        options: Arc::clone(&options),
        files: Arc::default(),
        console,
        servers: servers.clone(),
        secrets,
        preview_key: preview_key(&options, config),
        journal,
        effective: effective.clone(),
    };
    let gateway = Gateway::with_factory(opener, options.trust, about);
    let gateway = approval::ask_client(gateway, options.flags.ask, routes)?;
    let gateway = with_options(gateway, &options, config).build();
    let served = match listener {
        None => {
            let stop = stop_on_signals()?;
            let (input, output) = stdio::streams();
            let serving = gateway.serve_until(input, output, stop.cancelled());
            serving.await.map_err(ServeError::from)
        }
        Some(listener) => listener.serve(&gateway, &options).await,
    };
    gateway.shutdown().await;
    if let Some(servers) = &servers {
        servers.shutdown().await;
    }
    served
}

/// Applies the options to the gateway.
fn with_options(gateway: GatewayBuilder, options: &Options, config: &Config) -> GatewayBuilder {
    let has_files = has_files(options, config);
    let mut gateway = gateway
        .config_schema(&ConfigSchema)
        .rate(options.flags.rate)
        .refusal_hints(approval::refusal_hints(options));
    if has_files {
        gateway = gateway
            .files(FileTools {
                read: "read_file",
                list: "list_directory",
            })
            .manual(if options.commands.is_some() {
                bailiwick_cli::server_doc_with_commands()
            } else {
                bailiwick_cli::server_doc()
            });
    }
    if has_files && options.flags.http.is_none() && config.roots.is_empty() {
        gateway = gateway.client_roots();
    }
    gateway
}

/// The shared key of preview tokens. It is needed if previews are required, since each call of a stdio client may use a new
/// process.
fn preview_key(options: &Options, config: &Config) -> Option<PreviewKey> {
    let required = config.to_json().get("require_preview") == Some(&Value::Bool(true));
    if !required || options.flags.http.is_some() {
        return None;
    }
    let key = preview_key::load();
    key.inspect_err(|error| {
        tracing::warn!(%error, "preview tokens are valid in this process only, because the key cannot be stored");
    })
    .ok()
}

/// Prints warnings about third-party servers, and adds them to the instructions for models.
fn about_with_servers(servers: &Servers, has_files: bool) -> GatewayInfo {
    for line in servers.warnings() {
        print_message(&line);
    }
    let mut about = about();
    let of_servers = servers.instructions();
    about.instructions = if has_files {
        format!("{} {of_servers}", about.instructions)
    } else {
        of_servers
    };
    about
}

/// Whether the file tools are offered to clients with this configuration.
fn has_files(options: &Options, config: &Config) -> bool {
    options.servers.is_none() || !config.roots.is_empty()
}

/// Rejects roots that cannot be opened, or that contain a file of the server. No file is created yet.
fn check_roots(options: &Options, effective: &Effective) -> Result<(), ServeError> {
    let configured = runtime_builder(options, effective.clone(), None);
    configured.builder.check()?;
    let flags = &options.flags;
    let mut files = Vec::new();
    let chosen = [
        (&flags.audit, "use another file with --audit"),
        (&flags.grants, "use another file with --grants"),
        (&flags.journal, "use another directory with --journal"),
    ];
    for (file, remedy) in chosen {
        files.extend(file.clone().map(|file| (file, remedy)));
    }
    if let Some(servers) = &options.servers {
        let pins = servers::pins_file(servers)?;
        files.push((pins, "use another file with --pins"));
    }
    let writes_secret =
        flags.ask == Ask::Page || flags.http.is_some() && configured_token(options).is_none();
    if writes_secret && secret::uses_file() {
        let remedy = "it is the directory for files with secrets; set XDG_RUNTIME_DIR to a directory outside the roots";
        files.push((secret::dir(), remedy));
    }
    for (file, remedy) in files {
        reject_roots_holding(options, &effective.config, &file, remedy)?;
    }
    Ok(())
}

/// Checks that the audit file and the grant store can be opened. Opens the journal, and rolls back incomplete changes that
/// a crash interrupted.
async fn preflight(
    options: &Options,
    effective: &Effective,
) -> Result<Option<Journal>, ServeError> {
    let mut configured = runtime_builder(options, effective.clone(), None);
    if let Some(file) = &options.flags.audit {
        // The first runtime opens it again.
        drop(JsonLines::append(file)?);
        configured.builder = configured.builder.keep_out(file);
    }
    if let Some(file) = &options.flags.grants {
        configured.builder = configured.builder.grant_store(GrantStore::open(file)?);
    }
    let journal = options.flags.journal.as_ref().map(Journal::open);
    let journal = journal.transpose()?;
    if let Some(journal) = &journal {
        // It may contain calls that need the tools to be rolled back.
        let builder = configured.with_tools(options).journal(journal.clone());
        let (runtime, _grants) = builder.build().await?;
        for recovered in runtime.recovered() {
            tracing::warn!("{recovered}");
        }
        runtime.shutdown().await;
    } else if options.flags.audit.is_some() || options.flags.grants.is_some() {
        // Without these files, it was checked before.
        configured.builder.check()?;
    }
    Ok(journal)
}

/// Rejects roots that are or contain `path`, which need not exist.
fn reject_roots_holding(
    options: &Options,
    config: &Config,
    path: &Path,
    remedy: &'static str,
) -> Result<(), ServeError> {
    let mut roots = config.roots.iter().enumerate();
    let holds = |root: &RootConfig| paths::holds(Path::new(root.mount.as_str()), path);
    match roots.find(|(_, root)| holds(root)) {
        None => Ok(()),
        Some((index, root)) => Err(ServeError::RootHolds {
            place: options.sources.place(&format!("/roots/{index}/path")),
            root: root.mount.as_str().into(),
            path: paths::real(path),
            remedy,
        }),
    }
}

fn about() -> GatewayInfo {
    GatewayInfo {
        name: "bailiwick".into(),
        title: "Bailiwick files".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        instructions: "Reads, searches and changes files in the directories that `list_roots` names. Other files are not \
                       accessible."
            .into(),
    }
}

/// A listening address, and the token that clients must send.
struct HttpListener {
    listener: TcpListener,
    address: SocketAddr,
    token: Token,
    token_file: Option<SecretFile>,
}

impl HttpListener {
    async fn new(address: SocketAddr, options: &Options) -> Result<Self, ServeError> {
        let bound = TcpListener::bind(address).await;
        let bound = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (at, listener) = bound.map_err(|source| ServeError::Listen { address, source })?;
        let (token, token_file) = match configured_token(options) {
            Some(token) => (token, None),
            None => {
                let token = Token::random().map_err(ServeError::Random)?;
                let secret = token.reveal();
                let file = secret::deliver("bearer token", secret, "token", secret);
                let file = file.map_err(ServeError::Secret)?;
                (token, file)
            }
        };
        Ok(Self {
            listener,
            address: at,
            token,
            token_file,
        })
    }

    async fn serve(self, gateway: &Gateway, options: &Options) -> Result<(), ServeError> {
        // Signals must be handled before the address is printed.
        let stop = stop_on_signals()?;
        print_message(&format!("serving http://{}/mcp", self.address));
        let (hosts, origins) = (&options.flags.allow_host, &options.flags.allow_origin);
        let http = hosts.iter().fold(Http::new(self.token), Http::host);
        let http = origins.iter().fold(http, Http::origin);
        let stop = stop.cancelled_owned();
        gateway.serve_http(self.listener, http, stop).await?;
        Ok(())
    }
}

fn configured_token(options: &Options) -> Option<Token> {
    options.token.as_deref().and_then(Token::parse)
}

/// Returns a token that the first SIGINT or SIGTERM cancels. The second one exits immediately.
fn stop_on_signals() -> Result<CancellationToken, ServeError> {
    let stop = CancellationToken::new();
    let mut signals = StopSignals::new().map_err(ServeError::Signals)?;
    let cancel = stop.clone();
    tokio::spawn(async move {
        signals.next().await;
        cancel.cancel();
        // The second signal does not wait for running calls.
        let second = signals.next().await;
        std::process::exit(128 + second.as_raw_value());
    });
    Ok(stop)
}

/// Prints a line to standard error.
fn print_message(line: &str) {
    use std::io::Write as _;
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "bailiwick: {line}");
}

/// Forwards standard input and output to the socket of a worker's endpoint.
async fn attach(socket: &std::path::Path) -> Result<(), ServeError> {
    let stream = UnixStream::connect(socket).await;
    let stream = stream.map_err(|source| ServeError::Attach {
        socket: socket.to_owned(),
        source,
    })?;
    relay(stream).await.map_err(ServeError::Relay)
}

async fn relay(stream: UnixStream) -> io::Result<()> {
    let (mut from, mut to) = stream.into_split();
    let (mut input, mut output) = stdio::streams();
    let sending = async {
        tokio::io::copy(&mut input, &mut to).await?;
        tokio::io::AsyncWriteExt::shutdown(&mut to).await
    };
    let receiving = tokio::io::copy(&mut from, &mut output);
    tokio::pin!(sending, receiving);
    tokio::select! {
        received = &mut receiving => {
            received?;
        }
        sent = &mut sending => {
            sent?;
            receiving.await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
