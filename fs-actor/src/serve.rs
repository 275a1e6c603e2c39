//! Options in, a server of the file tools out.

mod asking;
mod secret;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bailiwick::{
    About, AskLimits, AuditFileError, BuildError, ConfigSource, Console, ConsoleError,
    ConsoleRecord, Deferred, FileTools, Gateway, GrantStore, GrantStoreError, Http, HttpError,
    JsonLines, MemoryAudit, OpenError, Opener, Policy, Runtime, RuntimeBuilder,
    ServeError as StreamError, Served, Token, Trust, WorkerSpec, config_schema,
};
use serde_json::Value;
use tokio::net::{TcpListener, UnixStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::cli::{Ask, Options};

/// What people may be asked for where nothing else is configured: anything outside the roots.
const GRANTABLE: [&str; 2] = ["read:file", "write:file"];

/// How much of a record without a file is kept for the page, in records.
const KEPT: usize = 4096;

/// How long a question waits for a person.
const PATIENCE: Duration = Duration::from_secs(600);

/// Why a server ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// What was configured cannot be served.
    #[error(transparent)]
    Input(#[from] BuildError),
    /// The audit cannot be written.
    #[error(transparent)]
    Audit(#[from] AuditFileError),
    /// The grants cannot be kept.
    #[error(transparent)]
    Grants(#[from] GrantStoreError),
    /// A connection did not begin.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The address cannot be bound.
    #[error("cannot listen on `{address}`")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    /// The address cannot be served.
    #[error("cannot serve HTTP")]
    Http(#[from] HttpError),
    /// A secret cannot be handed to the person who started the server.
    #[error("cannot write a file for a secret")]
    Secret(#[source] io::Error),
    /// There is no page to ask on.
    #[error("cannot serve a page to ask on")]
    Console(#[from] ConsoleError),
    /// Signals cannot be waited for.
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
    /// The socket to attach to cannot be reached.
    #[error("cannot connect to the socket `{}`", .socket.display())]
    Attach { socket: PathBuf, source: io::Error },
    /// The socket or a standard stream broke off.
    #[error("the connection broke off")]
    Joined(#[source] io::Error),
    /// The system gives no random bits.
    #[error("no random bits")]
    Random(#[from] getrandom::Error),
}

/// Opens runtimes over the configured roots.
struct Server {
    options: Arc<Options>,
    /// Held while the files of one runtime are chosen and opened: two at once would choose the same audit.
    files: Arc<Mutex<Files>>,
    /// Where people are asked, if that is a page.
    console: Option<Arc<Console>>,
}

/// Which files the runtimes that were opened have.
#[derive(Debug, Default)]
struct Files {
    /// How many audits were opened; each runtime keeps one of its own.
    opened: u32,
    /// Whether one of the runtimes has had the grant store.
    kept: bool,
}

impl Files {
    /// Gives a runtime the next audit and, if it is free, the grant store. Blocks: a whole audit is read.
    fn open(
        &mut self,
        options: &Options,
        mut builder: RuntimeBuilder,
    ) -> Result<(RuntimeBuilder, ConsoleRecord), OpenError> {
        let record;
        if let Some(file) = self.audit(options) {
            record = ConsoleRecord::File(file.clone());
            let audit = JsonLines::append(file).map_err(|error| {
                tracing::error!(%error, "the audit file cannot be written");
                OpenError::Audit(error)
            })?;
            // Only a file that could be opened is done with: records never move on to another for a fault of the first.
            self.opened += 1;
            builder = builder.audit(audit);
        } else {
            let audit = MemoryAudit::new(KEPT);
            record = ConsoleRecord::Memory(audit.clone());
            builder = builder.audit(audit);
        }
        Ok((self.keeping(options, builder)?, record))
    }

    /// The file that the next runtime records in: the one that was named, then that name with a number.
    fn audit(&self, options: &Options) -> Option<PathBuf> {
        let file = options.audit.as_ref()?;
        match self.opened {
            0 => Some(file.clone()),
            n => {
                let mut numbered = file.clone().into_os_string();
                numbered.push(format!(".{}", n + 1));
                Some(numbered.into())
            }
        }
    }

    /// Gives the grant store to the runtime that is opened first; while it has it, the others keep theirs in memory.
    fn keeping(
        &mut self,
        options: &Options,
        builder: RuntimeBuilder,
    ) -> Result<RuntimeBuilder, OpenError> {
        let Some(file) = &options.grants else {
            return Ok(builder);
        };
        match GrantStore::open(file) {
            Ok(store) => {
                self.kept = true;
                Ok(builder.grant_store(store))
            }
            Err(GrantStoreError::InUse { .. }) if self.kept => {
                tracing::warn!(
                    "another client's runtime has the grant store; grants of this one end with it"
                );
                Ok(builder.keep_out_grants(file))
            }
            Err(error) => {
                tracing::error!(%error, "the grants cannot be kept");
                Err(OpenError::Grants(error))
            }
        }
    }
}

impl Server {
    fn new(options: Arc<Options>, console: Option<Arc<Console>>) -> Self {
        Self {
            options,
            files: Arc::default(),
            console,
        }
    }

    async fn served(&self, configuration: Option<Value>) -> Result<Served, OpenError> {
        let builder = builder(&self.options, configuration)?;
        let mut files = Arc::clone(&self.files).lock_owned().await;
        let options = Arc::clone(&self.options);
        let opening = tokio::task::spawn_blocking(move || files.open(&options, builder));
        let (builder, record) = opening.await.map_err(|_| OpenError::Stopped)??;
        let (runtime, grants) = builder.build().await?;
        let spec = WorkerSpec::new("client").policy(Policy::new());
        let worker = runtime.spawn(spec).await?;
        let grants = match &self.console {
            Some(console) => {
                console.attend(asking::source(grants, record));
                None
            }
            None => (self.options.trust == Trust::Host).then_some(grants),
        };
        Ok(Served::new(runtime, &worker, grants))
    }
}

impl Opener for Server {
    fn open(
        &self,
        configuration: Option<Value>,
    ) -> Pin<Box<dyn Future<Output = Result<Served, OpenError>> + Send + '_>> {
        Box::pin(self.served(configuration))
    }
}

/// Puts together a runtime; `initialize` is the configuration that a trusted client sent, if any.
fn builder(options: &Options, initialize: Option<Value>) -> Result<RuntimeBuilder, BuildError> {
    let mut sources = options.sources.clone();
    if let Some(said) = initialize {
        sources = sources.with(ConfigSource::Initialize, said)?;
    }
    let effective = sources.effective()?;
    for note in effective.notes() {
        tracing::warn!("{note}");
    }
    let grants_nothing = effective.origin("grantable").is_none();
    let mut builder = Runtime::builder()
        .configured(effective.config)
        .tools(bailiwick_fs::tools());
    if options.ask != Ask::Replay {
        // Stateless clients share a worker, and one that leaves its question must not keep the others from asking.
        let limits = AskLimits {
            open_per_worker: 10,
            ..AskLimits::default()
        };
        builder = builder.approver(Deferred).asks(limits, PATIENCE);
    }
    if grants_nothing && (options.trust == Trust::Host || options.ask == Ask::Page) {
        builder = GRANTABLE
            .iter()
            .fold(builder, |builder, pattern| builder.grantable(pattern));
    }
    Ok(match &options.config_file {
        Some(file) => builder.keep_out(file),
        None => builder,
    })
}

/// Serves until the other end is gone or a signal ends the server.
pub(crate) async fn run(options: Options) -> Result<(), ServeError> {
    // A write beyond the limit on file sizes fails then, and does not end the program.
    let too_large = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    let _handled = signal(too_large).map_err(ServeError::Signals)?;
    if let Some(socket) = &options.attach {
        return attach(socket).await;
    }
    check(&options).await?;
    let options = Arc::new(options);
    // The file with the page's address is removed when the server ends.
    let (console, _address) = match options.ask {
        Ask::Page => {
            let (console, address) = asking::page().await?;
            (Some(Arc::new(console)), address)
        }
        Ask::Replay | Ask::Client => (None, None),
    };
    let server = Server::new(Arc::clone(&options), console);
    let mut gateway = Gateway::opening(server, options.trust, about())
        .files(FileTools {
            read: "read_file",
            list: "list_directory",
        })
        .config_schema(config_schema())
        .manual(bailiwick_fs::manual())
        .rate(options.rate);
    if options.ask == Ask::Client {
        gateway = gateway.ask_client()?;
    }
    let gateway = gateway.build();
    let served = match options.http {
        None => {
            let stop = stopped_by_signals()?;
            let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
            let serving = gateway.serve_until(input, output, stop);
            serving.await.map_err(ServeError::from)
        }
        Some(address) => http(&gateway, address, options.token.as_deref()).await,
    };
    gateway.shutdown().await;
    served
}

/// Finds out before anybody connects whether the roots, the audit file and the grant store can be opened.
async fn check(options: &Options) -> Result<(), ServeError> {
    let mut builder = builder(options, None)?;
    if let Some(file) = &options.audit {
        // It is opened and let go at once: whoever is served first records in it.
        drop(JsonLines::append(file)?);
        builder = builder.keep_out(file);
    }
    if let Some(file) = &options.grants {
        builder = builder.grant_store(GrantStore::open(file)?);
    }
    let (runtime, _grants) = builder.build().await?;
    runtime.shutdown().await;
    Ok(())
}

fn about() -> About {
    About {
        name: "bailiwick-fs".into(),
        title: "Bailiwick files".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        instructions: "Reads, searches and changes files beneath the directories that `list_roots` names; everything \
                       else is out of reach. Send `_meta.preview: true` to see what a change would do."
            .into(),
    }
}

async fn http(
    gateway: &Gateway,
    address: SocketAddr,
    token: Option<&str>,
) -> Result<(), ServeError> {
    let bound = TcpListener::bind(address).await;
    let bound = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (at, listener) = bound.map_err(|source| ServeError::Listen { address, source })?;
    let (token, _file) = match token.and_then(Token::chosen) {
        Some(token) => (token, None),
        None => {
            let token = Token::random()?;
            let secret = token.reveal();
            let file = secret::hand_out("bearer token", secret, "token", secret);
            let file = file.map_err(ServeError::Secret)?;
            (token, file)
        }
    };
    // Whoever is told the address may end the server in order.
    let stop = stopped_by_signals()?;
    tell(&format!("serving http://{at}/mcp"));
    gateway.serve_http(listener, Http::new(token), stop).await?;
    Ok(())
}

/// Is cancelled by the first signal that asks the program to end; the second ends it at once.
fn stopped_by_signals() -> Result<CancellationToken, ServeError> {
    let stop = CancellationToken::new();
    let mut signals = Signals::heard().map_err(ServeError::Signals)?;
    let ended = stop.clone();
    tokio::spawn(async move {
        signals.next().await;
        ended.cancel();
        // Whoever asks again does not want to wait for what is under way.
        let again = signals.next().await;
        std::process::exit(128 + again.as_raw_value());
    });
    Ok(stop)
}

/// What asks the program to end.
struct Signals {
    interrupted: Signal,
    terminated: Signal,
}

impl Signals {
    fn heard() -> io::Result<Self> {
        Ok(Self {
            interrupted: signal(SignalKind::interrupt())?,
            terminated: signal(SignalKind::terminate())?,
        })
    }

    /// The next one that comes.
    async fn next(&mut self) -> SignalKind {
        tokio::select! {
            Some(()) = self.interrupted.recv() => SignalKind::interrupt(),
            Some(()) = self.terminated.recv() => SignalKind::terminate(),
            else => std::future::pending().await,
        }
    }
}

/// Says something to the person who started the server.
fn tell(line: &str) {
    use std::io::Write as _;
    // A closed standard error is nobody who could be told.
    let _ = writeln!(std::io::stderr(), "bailiwick-fs: {line}");
}

/// Joins standard input and output to the socket of a worker's endpoint.
async fn attach(socket: &std::path::Path) -> Result<(), ServeError> {
    let stream = UnixStream::connect(socket).await;
    let stream = stream.map_err(|source| ServeError::Attach {
        socket: socket.to_owned(),
        source,
    })?;
    joined(stream).await.map_err(ServeError::Joined)
}

async fn joined(stream: UnixStream) -> io::Result<()> {
    let (mut from, mut to) = stream.into_split();
    let sending = async {
        tokio::io::copy(&mut tokio::io::stdin(), &mut to).await?;
        tokio::io::AsyncWriteExt::shutdown(&mut to).await
    };
    let mut out = tokio::io::stdout();
    let receiving = tokio::io::copy(&mut from, &mut out);
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
