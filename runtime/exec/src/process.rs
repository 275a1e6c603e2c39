//! Starts a sandbox and waits for it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Interest, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::error::{ExecError, Stage};
use crate::helper::{NAME, OUTER, OUTER_ON_HOST, SELF};
use crate::launcher::Launcher;
use crate::message::{self, Report};
use crate::proxy::{Proxy, ProxyTask};
use crate::spec::{Layer, Network, SandboxSpec};

/// Time limit for a helper to say that it is one, which takes milliseconds.
const MAX_READY: Duration = Duration::from_secs(30);

/// The program that runs as the helper.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Helper {
    /// The binary of this process, which calls [`init`](crate::init) first in `main`.
    #[default]
    CurrentExe,
    /// Another binary that calls [`init`](crate::init) first in `main`.
    At(PathBuf),
}

impl Helper {
    pub(crate) fn program(&self) -> OsString {
        match self {
            Self::CurrentExe => SELF.into(),
            Self::At(path) => path.into(),
        }
    }

    /// Its name for people.
    fn name(&self) -> String {
        match self {
            Self::CurrentExe => "this program".to_owned(),
            Self::At(path) => format!("`{}`", path.display()),
        }
    }
}

/// The standard streams of the program.
#[derive(Debug)]
#[expect(
    clippy::exhaustive_structs,
    reason = "a process has exactly these standard streams"
)]
pub struct Stdio {
    /// Standard input.
    pub stdin: OwnedFd,
    /// Standard output.
    pub stdout: OwnedFd,
    /// Standard error.
    pub stderr: OwnedFd,
}

/// A running sandbox. Dropping it kills everything in it.
#[derive(Debug)]
pub struct Process {
    helper: Child,
    reports: Lines<BufReader<tokio::net::UnixStream>>,
    layers: Vec<Layer>,
    missing: Vec<(Layer, String)>,
    /// The wait status of the program, once it has ended.
    status: Option<i32>,
    meter: UsageMeter,
    proxy: Option<ProxyTask>,
    changes: Option<OwnedFd>,
}

/// What a sandbox uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsageMeter(Arc<Used>);

#[derive(Debug, Default)]
struct Used {
    cpu_micros: AtomicU64,
    memory: AtomicU64,
}

impl UsageMeter {
    /// The CPU time so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        Duration::from_micros(self.0.cpu_micros.load(Ordering::Relaxed))
    }

    /// The memory of all processes, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.0.memory.load(Ordering::Relaxed)
    }

    fn set(&self, cpu: Duration, memory: u64) {
        let micros = u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX);
        self.0.cpu_micros.fetch_max(micros, Ordering::Relaxed);
        self.0.memory.store(memory, Ordering::Relaxed);
    }
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exit {
    /// Its exit status.
    pub status: ExitStatus,
}

/// Starts a program in a sandbox. Returns when the program runs.
///
/// If this machine allows no namespaces, and `spec` does not need them ([`SandboxSpec::optional`]), the program runs on
/// the files of the host, confined by Landlock and seccomp.
///
/// # Errors
/// [`ExecError`]; nothing runs then.
pub async fn spawn(
    spec: &SandboxSpec,
    stdio: Stdio,
    helper: &Helper,
) -> Result<Process, ExecError> {
    if spec.network == Network::Proxy {
        return Err(ExecError::Setup {
            stage: Stage::Network,
            message: "no proxy was given; call `spawn_with_proxy`".to_owned(),
        });
    }
    let launcher = Launcher::new(helper.clone());
    prepare(spec, stdio, &launcher, None).await?.start().await
}

/// Starts a program in a sandbox, with [`Network::Proxy`] whatever `spec` says, and makes its connections. Returns when
/// the program runs. This needs [`Layer::Namespaces`].
///
/// # Errors
/// [`ExecError`]; nothing runs then.
pub async fn spawn_with_proxy(
    spec: &SandboxSpec,
    stdio: Stdio,
    helper: &Helper,
    proxy: Proxy,
) -> Result<Process, ExecError> {
    let launcher = Launcher::new(helper.clone());
    let prepared = prepare(spec, stdio, &launcher, Some(proxy)).await?;
    prepared.start().await
}

/// A sandbox whose program was not started yet. Dropping it kills everything in it.
#[derive(Debug)]
pub(crate) struct Prepared(Process);

impl Prepared {
    /// The layers of the sandbox, and the optional ones that are missing, and why.
    pub(crate) fn layers(&self) -> (&[Layer], &[(Layer, String)]) {
        (&self.0.layers, &self.0.missing)
    }

    /// Starts the program.
    ///
    /// # Errors
    /// [`ExecError`]; nothing runs then.
    pub(crate) async fn start(self) -> Result<Process, ExecError> {
        let mut process = self.0;
        process.socket_mut().write_all(&[message::GO]).await?;
        match process.report().await? {
            Some(Report::Started) => Ok(process),
            report => Err(failure(report)),
        }
    }
}

/// Builds the sandbox of a program, with a network if there is a `proxy`.
pub(crate) async fn prepare(
    spec: &SandboxSpec,
    stdio: Stdio,
    launcher: &Launcher,
    proxy: Option<Proxy>,
) -> Result<Prepared, ExecError> {
    let spec = SandboxSpec {
        network: match proxy {
            Some(_) => Network::Proxy,
            None => Network::None,
        },
        ..spec.clone()
    };
    let needs_namespaces = proxy.is_some() || !spec.optional.contains(&Layer::Namespaces);
    let why = match Box::pin(build(&spec, &stdio, launcher, OUTER, proxy)).await {
        Err(ExecError::Missing {
            layer: Layer::Namespaces,
            reason,
        }) if !needs_namespaces => reason,
        built => return built,
    };
    match Box::pin(build(&spec, &stdio, launcher, OUTER_ON_HOST, None)).await {
        Ok(mut built) => {
            built.0.missing.insert(0, (Layer::Namespaces, why));
            Ok(built)
        }
        Err(ExecError::Missing { layer, reason }) => Err(ExecError::Missing {
            layer,
            reason: format!("{reason}; namespaces cannot be created: {why}"),
        }),
        Err(error) => Err(error),
    }
}

/// Starts the helper in a role. Needs a tokio runtime, and blocks until the process is started.
pub(crate) fn launch(helper: &Helper, role: &str) -> Result<Process, ExecError> {
    if *helper == Helper::CurrentExe && !crate::helper::is_initialized() {
        return Err(ExecError::NotInitialized {
            program: helper.name(),
        });
    }
    let program = helper.program();
    let (ours, theirs) = UnixStream::pair()?;
    let child = Command::new(&program)
        .arg0(NAME)
        .arg(role)
        .env_clear()
        .stdin(OwnedFd::from(theirs))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| ExecError::Helper {
            program: helper.name(),
            source,
        })?;
    ours.set_nonblocking(true)?;
    let reports = BufReader::new(tokio::net::UnixStream::from_std(ours)?).lines();
    Ok(Process {
        helper: child,
        reports,
        layers: Vec::new(),
        missing: Vec::new(),
        status: None,
        meter: UsageMeter::default(),
        proxy: None,
        changes: None,
    })
}

async fn build(
    spec: &SandboxSpec,
    stdio: &Stdio,
    launcher: &Launcher,
    role: &str,
    proxy: Option<Proxy>,
) -> Result<Prepared, ExecError> {
    let has_overlay = spec.has_overlay();
    let body = serde_json::to_vec(spec).map_err(io::Error::other)?;
    let mut process = launcher.launch(role).await?;
    let (from_helper, to_host) = if proxy.is_some() || has_overlay {
        let (ours, theirs) = UnixStream::pair()?;
        (Some(ours), Some(theirs))
    } else {
        (None, None)
    };
    let Stdio {
        stdin,
        stdout,
        stderr,
    } = stdio;
    let mut fds = vec![stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    fds.extend(to_host.as_ref().map(|socket| socket.as_fd()));
    process.send(&body, &fds).await?;
    drop(to_host);
    match process.report().await? {
        Some(Report::Built { layers, missing }) => {
            process.layers = layers;
            process.missing = missing;
        }
        report => return Err(failure(report)),
    }
    let mut received = match from_helper {
        Some(socket) => {
            // The helper has sent them before its report.
            socket.set_nonblocking(true)?;
            message::receive(&socket)?.1
        }
        None => Vec::new(),
    };
    if has_overlay {
        process.changes = Some(received.pop().ok_or(ExecError::Lost)?);
    }
    if let Some(proxy) = proxy {
        let listener = received.pop().ok_or(ExecError::Lost)?;
        let listener = std::net::TcpListener::from(listener);
        listener.set_nonblocking(true)?;
        process.proxy = Some(proxy.serve(TcpListener::from_std(listener)?));
    }
    Ok(Prepared(process))
}

/// Why the helper did not do what it was asked for.
fn failure(report: Option<Report>) -> ExecError {
    match report {
        Some(Report::Failed { stage, message }) => ExecError::Setup { stage, message },
        Some(Report::Missing { layer, reason }) => ExecError::Missing { layer, reason },
        Some(Report::TooLarge { limit }) => ExecError::TooLarge { limit },
        _ => ExecError::Lost,
    }
}

impl Process {
    /// Waits until the helper waits for the description of a sandbox.
    pub(crate) async fn ready(mut self, helper: &Helper) -> Result<Self, ExecError> {
        let report = tokio::time::timeout(MAX_READY, self.report()).await;
        match report.unwrap_or(Ok(None))? {
            Some(Report::Ready) => Ok(self),
            report @ Some(Report::Failed { .. } | Report::Missing { .. }) => Err(failure(report)),
            _ => Err(ExecError::NotInitialized {
                program: helper.name(),
            }),
        }
    }

    /// Whether the helper runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.helper.try_wait(), Ok(None))
    }

    /// The layers of the sandbox.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The optional layers that are missing, and why.
    #[must_use]
    pub fn missing(&self) -> &[(Layer, String)] {
        &self.missing
    }

    /// Takes the directory with the changes in overlays, `None` if there are none. It is in memory and exists as long as
    /// the descriptor.
    ///
    /// The changes of overlay N of the mounts, counted from 0, are in `N/upper`, as overlayfs writes them with the option
    /// [`userxattr`](https://docs.kernel.org/filesystems/overlayfs.html): a deleted entry is a character device with the
    /// numbers 0 and 0, and a replaced directory has the attribute `user.overlay.opaque`. Without [`Layer::Overlay`],
    /// `N/upper` is the changed copy, and the file `N/copied` exists.
    pub fn changes(&mut self) -> Option<OwnedFd> {
        self.changes.take()
    }

    /// Waits until the program has ended and nothing runs in the sandbox any more.
    ///
    /// # Errors
    /// [`ExecError::Lost`] if the sandbox was killed.
    pub async fn wait(&mut self) -> Result<Exit, ExecError> {
        use std::os::unix::process::ExitStatusExt as _;
        self.ended().await?;
        let status = self.status.ok_or(ExecError::Lost)?;
        Ok(Exit {
            status: ExitStatus::from_raw(status),
        })
    }

    /// Kills everything in the sandbox, and waits until nothing runs any more.
    ///
    /// # Errors
    /// I/O errors.
    pub async fn kill(&mut self) -> Result<(), ExecError> {
        let socket = self.reports.get_ref().get_ref();
        rustix::net::shutdown(socket, rustix::net::Shutdown::Write).map_err(io::Error::from)?;
        self.ended().await
    }

    /// The CPU time that all processes of the sandbox took so far, as the helper reported it last: every 100 milliseconds if
    /// there are namespaces and a private `/proc`, and when nothing runs any more.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        self.meter.cpu_time()
    }

    /// The meter of what the sandbox uses.
    pub(crate) fn meter(&self) -> UsageMeter {
        self.meter.clone()
    }

    /// Waits until nothing runs any more, and closes the connections of the proxy.
    async fn ended(&mut self) -> Result<(), ExecError> {
        loop {
            match self.report().await? {
                // Only the helpers are left, which end by themselves.
                Some(Report::Exited { status }) => {
                    self.status = Some(status);
                    break;
                }
                Some(Report::Used { cpu, memory }) => self.meter.set(cpu, memory),
                Some(_) => {}
                // The last helper closes the socket when it ends.
                None => {
                    self.helper.wait().await?;
                    break;
                }
            }
        }
        if let Some(proxy) = self.proxy.take() {
            proxy.stop().await;
        }
        Ok(())
    }

    /// The next report; `None` if the helper has closed its socket.
    async fn report(&mut self) -> Result<Option<Report>, ExecError> {
        let line = match self.reports.next_line().await {
            Ok(line) => line,
            // The helper was killed before it read everything.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => None,
            Err(error) => return Err(error.into()),
        };
        let parse = |line: String| serde_json::from_str(&line).map_err(io::Error::other);
        Ok(line.map(parse).transpose()?)
    }

    /// Sends a message with descriptors to the helper.
    async fn send(&mut self, body: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let socket = self.socket_mut();
        let send = || message::send_head(&*socket, body.len(), fds);
        socket.async_io(Interest::WRITABLE, send).await?;
        self.socket_mut().write_all(body).await
    }

    fn socket_mut(&mut self) -> &mut tokio::net::UnixStream {
        self.reports.get_mut().get_mut()
    }
}
