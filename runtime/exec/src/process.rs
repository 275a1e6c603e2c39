//! Starts a sandbox and waits for it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::error::{ExecError, Stage};
use crate::helper::{NAME, OUTER, SELF};
use crate::message::{self, Report, Start};
use crate::proxy::{Proxy, ProxyTask};
use crate::spec::{Layer, Network, SandboxSpec};

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
    proxy: Option<ProxyTask>,
    changes: Option<OwnedFd>,
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
    let stdio = Arc::new(stdio);
    let why = match start(spec, &stdio, helper, true, None).await {
        Err(ExecError::Missing {
            layer: Layer::Namespaces,
            reason,
        }) if spec.optional.contains(&Layer::Namespaces) => reason,
        started => return started,
    };
    match start(spec, &stdio, helper, false, None).await {
        Ok(mut process) => {
            process.missing.insert(0, (Layer::Namespaces, why));
            Ok(process)
        }
        Err(ExecError::Missing { layer, reason }) => Err(ExecError::Missing {
            layer,
            reason: format!("{reason}; namespaces cannot be created: {why}"),
        }),
        Err(error) => Err(error),
    }
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
    let spec = SandboxSpec {
        network: Network::Proxy,
        ..spec.clone()
    };
    start(&spec, &Arc::new(stdio), helper, true, Some(proxy)).await
}

/// Starts the helper. Returns the socket to it.
async fn launch(helper: &Helper) -> Result<(Process, UnixStream), ExecError> {
    let program = helper.program();
    let name = || program.to_string_lossy().into_owned();
    let (ours, theirs) = UnixStream::pair()?;
    let child = Command::new(&program)
        .arg0(NAME)
        .arg(OUTER)
        .env_clear()
        .stdin(OwnedFd::from(theirs))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| ExecError::Helper {
            program: name(),
            source,
        })?;
    let sender = ours.try_clone()?;
    ours.set_nonblocking(true)?;
    let reports = BufReader::new(tokio::net::UnixStream::from_std(ours)?).lines();
    let mut process = Process {
        helper: child,
        reports,
        layers: Vec::new(),
        missing: Vec::new(),
        proxy: None,
        changes: None,
    };
    match process.report().await? {
        Some(Report::Ready) => {}
        _ => return Err(ExecError::NotInitialized { program: name() }),
    }
    Ok((process, sender))
}

async fn start(
    spec: &SandboxSpec,
    stdio: &Arc<Stdio>,
    helper: &Helper,
    namespaces: bool,
    proxy: Option<Proxy>,
) -> Result<Process, ExecError> {
    let has_overlay = spec.has_overlay();
    let spec = spec.clone();
    let body = serde_json::to_vec(&Start { spec, namespaces }).map_err(io::Error::other)?;
    let (mut process, sender) = launch(helper).await?;
    let (from_helper, to_host) = if proxy.is_some() || has_overlay {
        let (ours, theirs) = UnixStream::pair()?;
        (Some(ours), Some(theirs))
    } else {
        (None, None)
    };
    // The helper reads the message at once.
    sender.set_nonblocking(false)?;
    let stdio = Arc::clone(stdio);
    let send = move || {
        let Stdio {
            stdin,
            stdout,
            stderr,
        } = &*stdio;
        let mut fds = vec![stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
        fds.extend(to_host.as_ref().map(|socket| socket.as_fd()));
        message::send(&sender, &body, &fds)
    };
    let sent = tokio::task::spawn_blocking(send).await;
    sent.map_err(|_| ExecError::Lost)??;
    match process.report().await? {
        Some(Report::Started { layers, missing }) => {
            process.layers = layers;
            process.missing = missing;
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
            Ok(process)
        }
        Some(Report::Failed { stage, message }) => Err(ExecError::Setup { stage, message }),
        Some(Report::Missing { layer, reason }) => Err(ExecError::Missing { layer, reason }),
        _ => Err(ExecError::Lost),
    }
}

impl Process {
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
    /// numbers 0 and 0, and a replaced directory has the attribute `user.overlay.opaque`.
    pub fn changes(&mut self) -> Option<OwnedFd> {
        self.changes.take()
    }

    /// Waits until the program has ended and nothing runs in the sandbox any more.
    ///
    /// # Errors
    /// [`ExecError::Lost`] if the sandbox was killed.
    pub async fn wait(&mut self) -> Result<Exit, ExecError> {
        use std::os::unix::process::ExitStatusExt as _;
        let report = self.report().await;
        self.ended().await?;
        match report? {
            Some(Report::Exited { status }) => Ok(Exit {
                status: ExitStatus::from_raw(status),
            }),
            _ => Err(ExecError::Lost),
        }
    }

    /// Kills everything in the sandbox, and waits until nothing runs any more.
    ///
    /// # Errors
    /// I/O errors.
    pub async fn kill(&mut self) -> Result<(), ExecError> {
        let socket = self.reports.get_ref().get_ref();
        rustix::net::shutdown(socket, rustix::net::Shutdown::Both).map_err(io::Error::from)?;
        self.ended().await
    }

    /// Waits until nothing runs any more, and closes the connections of the proxy.
    async fn ended(&mut self) -> Result<(), ExecError> {
        self.helper.wait().await?;
        if let Some(proxy) = self.proxy.take() {
            proxy.stop().await;
        }
        Ok(())
    }

    /// The next report; `None` if the helper has closed its socket.
    async fn report(&mut self) -> Result<Option<Report>, ExecError> {
        let line = self.reports.next_line().await?;
        let parse = |line: String| serde_json::from_str(&line).map_err(io::Error::other);
        Ok(line.map(parse).transpose()?)
    }
}
