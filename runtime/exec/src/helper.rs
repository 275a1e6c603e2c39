//! The helper processes: the host's own binary, started again, which never returns to the host's code.
#![expect(
    clippy::disallowed_methods,
    reason = "a helper runs in a process of its own and holds no roots"
)]

mod confine;
mod copy;
mod inner;
mod layers;
mod mounts;
mod network;
mod overlays;
mod probe;
mod supervisor;

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sched::CloneFlags;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use rustix::thread::{capabilities, configure_capability_in_ambient_set, set_capabilities};

use crate::error::Stage;
use crate::message::{self, Report, report};
use crate::spec::{Layer, SandboxSpec};

pub(crate) use probe::{Findings, Targets};

/// The name under which a helper is started.
pub(crate) const NAME: &str = "bailiwick-exec";
/// Argument of the outer helper.
pub(crate) const OUTER: &str = "outer";
/// Argument of the outer helper of a sandbox without namespaces.
pub(crate) const OUTER_ON_HOST: &str = "outer-on-host";
/// Argument of the inner helper.
const INNER: &str = "inner";
/// Argument of the supervisor, which replaces the inner helper where namespaces cannot be created.
const SUPERVISOR: &str = "supervisor";
/// Argument of the process that confines itself and becomes the program of the supervisor.
const CONFINED: &str = "confined";
/// Argument of the program of the self-test.
pub(crate) const PROBE: &str = "probe";
/// The binary of this process.
pub(crate) const SELF: &str = "/proc/self/exe";

/// Whether this process has called [`init`].
static IS_INITIALIZED: AtomicBool = AtomicBool::new(false);

/// Whether this process has called [`init`]. Otherwise its binary cannot be a helper: it would run `main` again.
pub(crate) fn is_initialized() -> bool {
    IS_INITIALIZED.load(Ordering::Relaxed)
}

/// Runs the helper if this process was started as one; such a process exits here. Call it first in `main`, before any
/// thread is started.
pub fn init() {
    IS_INITIALIZED.store(true, Ordering::Relaxed);
    let mut arguments = std::env::args_os();
    if arguments.next().is_none_or(|name| name != NAME) {
        return;
    }
    let role = arguments.next().unwrap_or_default();
    let run: fn(&UnixStream) -> i32 = match role.to_str() {
        Some(OUTER) => |socket| outer(socket, true),
        Some(OUTER_ON_HOST) => |socket| outer(socket, false),
        Some(INNER) => inner::run,
        Some(SUPERVISOR) => supervisor::run,
        Some(CONFINED) => supervisor::confined,
        Some(PROBE) => std::process::exit(probe::run(arguments)),
        _ => std::process::exit(2),
    };
    let code = match control() {
        Ok(socket) => run(&socket),
        Err(_) => 2,
    };
    std::process::exit(code);
}

/// Why the program was not started.
enum Failed {
    /// A step failed.
    Step { stage: Stage, message: String },
    /// A required layer is missing.
    Missing { layer: Layer, reason: String },
    /// Directories exceed this limit of copies.
    TooLarge { limit: String },
}

impl Failed {
    fn at(stage: Stage) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Step {
            stage,
            message: error.to_string(),
        }
    }

    fn send(self, socket: &UnixStream) -> i32 {
        let failed = match self {
            Self::Step { stage, message } => Report::Failed { stage, message },
            Self::Missing { layer, reason } => Report::Missing { layer, reason },
            Self::TooLarge { limit } => Report::TooLarge { limit },
        };
        report(socket, &failed);
        1
    }
}

/// The socket at standard input.
fn control() -> io::Result<UnixStream> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(UnixStream::from(socket))
}

/// The outer helper: creates the namespaces and starts the inner helper in them, or a supervisor without namespaces.
/// Both use the socket to the host.
fn outer(socket: &UnixStream, namespaces: bool) -> i32 {
    match start_inner(socket, namespaces) {
        Ok(mut inner) => {
            let _ = inner.wait();
            // If the sandbox was killed, the inner helper could not report it.
            report_cpu_time_of_children(socket);
            0
        }
        Err(failed) => failed.send(socket),
    }
}

/// Reports the CPU time of all processes of the sandbox, after they were waited for.
fn report_cpu_time_of_children(socket: &UnixStream) {
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) {
        let time = usage.user_time() + usage.system_time();
        let cpu = Duration::from_micros(time.num_microseconds().unsigned_abs());
        report(socket, &Report::Used { cpu, memory: 0 });
    }
}

fn start_inner(socket: &UnixStream, namespaces: bool) -> Result<std::process::Child, Failed> {
    close_others(&[socket.as_fd()]).map_err(Failed::at(Stage::Descriptors))?;
    // A helper may be started long before it is needed.
    std::env::set_current_dir("/").map_err(Failed::at(Stage::Descriptors))?;
    rustix::process::setsid().map_err(|error| Failed::at(Stage::Namespaces)(error.into()))?;
    if namespaces {
        unshare().map_err(|error| Failed::Missing {
            layer: Layer::Namespaces,
            reason: format!("they cannot be created: {error}"),
        })?;
    }
    let role = if namespaces { INNER } else { SUPERVISOR };
    let stdin = socket.as_fd().try_clone_to_owned();
    let started = stdin.and_then(|stdin| helper(role, stdin).spawn());
    started.map_err(Failed::at(Stage::Namespaces))
}

/// A command that starts another helper.
fn helper(role: &str, stdin: OwnedFd) -> Command {
    let mut helper = Command::new(SELF);
    helper
        .arg0(NAME)
        .arg(role)
        .env_clear()
        .stdin(stdin)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    helper
}

/// Starts another helper and sends it a message. Returns the socket that it has at standard input, too.
fn start_helper(
    role: &str,
    body: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<(std::process::Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let helper = helper(role, theirs.into()).spawn()?;
    message::send(&ours, body, fds)?;
    Ok((helper, ours))
}

/// Closes all descriptors except the standard ones and `keep`: the host may have leaked some into this process.
fn close_others(keep: &[BorrowedFd<'_>]) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    let mut open = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        if let Some(fd) = name.to_str().and_then(|name| name.parse::<i32>().ok()) {
            open.push(fd);
        }
    }
    for fd in open {
        if fd > 2 && keep.iter().all(|kept| kept.as_raw_fd() != fd) {
            // The directory that was listed is closed already.
            match nix::unistd::close(fd) {
                Ok(()) | Err(nix::errno::Errno::EBADF) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Moves this process into new namespaces, in which it has the same user and group. Its children are in a new PID
/// namespace. The inner helper creates the mount namespace.
fn unshare() -> io::Result<()> {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    nix::sched::unshare(
        CloneFlags::CLONE_NEWUSER
            | CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWCGROUP,
    )?;
    let (user, group) = (user.as_raw(), group.as_raw());
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    keep_capabilities()
}

/// Makes the inner helper keep the capabilities in the new namespaces, which `exec` removes unless the user is 0.
fn keep_capabilities() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.inheritable = sets.permitted;
    set_capabilities(None, sets)?;
    for capability in sets.permitted.iter() {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Reads the description of the sandbox.
fn parse(body: &[u8]) -> Result<SandboxSpec, Failed> {
    serde_json::from_slice(body).map_err(|error| Failed::at(Stage::Description)(error.into()))
}
