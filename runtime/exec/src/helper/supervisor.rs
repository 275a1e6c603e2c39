//! Sandboxes without namespaces: a supervisor outside the sandbox that kills all its processes, and a process that
//! confines itself and becomes the program.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process, wait, waitid,
};

use super::confine::Files;
use super::inner::{confine, program, receive};
use super::layers::Layers;
use super::{CONFINED, Failed, parse, report_cpu_time_of_children, start_helper};
use crate::error::Stage;
use crate::message::{self, Report, report};
use crate::spec::{Layer, Mount, SandboxSpec};

/// Held while processes are reaped, or listed and killed: a number that was listed is not used again meanwhile.
static REAPING: Mutex<()> = Mutex::new(());

/// Starts the program, and kills all that it left when it ends.
pub(super) fn run(host: &UnixStream) -> i32 {
    match start(host) {
        Ok(program) => {
            kill_with_host(host);
            let status = reap_until(program);
            kill_all();
            report_cpu_time_of_children(host);
            report(host, &Report::Exited { status });
            0
        }
        Err(failed) => {
            kill_all();
            failed.send(host)
        }
    }
}

fn start(host: &UnixStream) -> Result<Pid, Failed> {
    let failed = |error: io::Error| Failed::at(Stage::Program)(error);
    report(host, &Report::Ready);
    let (body, handles) = receive(host).map_err(Failed::at(Stage::Description))?;
    // Processes whose parent ends become children of this one.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| failed(error.into()))?;
    children().map_err(|error| Failed::Missing {
        layer: Layer::Cleanup,
        reason: format!("without namespaces, it needs /proc/self/task/*/children: {error}"),
    })?;
    let fds = [
        handles.stdin.as_fd(),
        handles.stdout.as_fd(),
        handles.stderr.as_fd(),
    ];
    let (child, socket) = start_helper(CONFINED, &body, &fds).map_err(failed)?;
    drop(handles);
    let mut reports = BufReader::new(&socket).lines();
    let built = next(&mut reports)?.ok_or_else(|| failed(io::ErrorKind::UnexpectedEof.into()))?;
    report(host, &built);
    message::wait_for_go(host).map_err(failed)?;
    (&socket).write_all(&[message::GO]).map_err(failed)?;
    // The socket is closed when the program replaces the helper.
    if let Some(report) = next(&mut reports)? {
        return Err(unexpected(&report));
    }
    report(host, &Report::Started);
    Pid::from_raw(child.id().cast_signed()).ok_or_else(|| failed(Errno::SRCH.into()))
}

/// The next report of the process that confines itself; `None` if it has closed its socket.
fn next(reports: &mut impl Iterator<Item = io::Result<String>>) -> Result<Option<Report>, Failed> {
    let failed = |error: io::Error| Failed::at(Stage::Program)(error);
    let Some(line) = reports.next() else {
        return Ok(None);
    };
    let report = serde_json::from_str(&line.map_err(failed)?);
    match report.map_err(|error| failed(error.into()))? {
        built @ Report::Built { .. } => Ok(Some(built)),
        report => Err(unexpected(&report)),
    }
}

/// A failure, as the process that confines itself has reported it.
fn unexpected(report: &Report) -> Failed {
    match report.clone() {
        Report::Failed { stage, message } => Failed::Step { stage, message },
        Report::Missing { layer, reason } => Failed::Missing { layer, reason },
        Report::TooLarge { limit } => Failed::TooLarge { limit },
        _ => Failed::at(Stage::Program)(io::ErrorKind::InvalidData.into()),
    }
}

/// Confines this process and becomes the program.
pub(super) fn confined(socket: &UnixStream) -> i32 {
    become_program(socket).send(socket)
}

/// Returns only if that fails.
fn become_program(socket: &UnixStream) -> Failed {
    let prepared = || {
        let (body, handles) = receive(socket).map_err(Failed::at(Stage::Description))?;
        let spec = parse(&body)?;
        // If the supervisor is killed, at least the program ends.
        let with_parent = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        with_parent.map_err(|error| Failed::at(Stage::Program)(error.into()))?;
        let mut layers = Layers::new(without_namespaces(&spec)?);
        layers.record(Layer::Proc, Err("it needs namespaces".to_owned()))?;
        if spec.limits.processes.is_some() {
            layers.record(Layer::ProcessLimit, can_limit_processes())?;
        }
        layers.record(Layer::Cleanup, Ok(()))?;
        let spec = with_processes_of_user(spec).map_err(Failed::at(Stage::Limits))?;
        confine(&spec, Files::OfHost, &mut layers)?;
        report(socket, &layers.built());
        message::wait_for_go(socket).map_err(Failed::at(Stage::Program))?;
        program(&spec, handles).map_err(Failed::at(Stage::Program))
    };
    match prepared() {
        Ok(mut program) => Failed::at(Stage::Program)(program.process_group(0).exec()),
        Err(failed) => failed,
    }
}

/// The layers that may be missing in a sandbox without namespaces.
///
/// # Errors
/// If the sandbox needs namespaces.
fn without_namespaces(spec: &SandboxSpec) -> Result<Vec<Layer>, Failed> {
    check_mounts(spec)
        .map_err(Failed::at(Stage::Mounts))?
        .map_err(|reason| Failed::Missing {
            layer: Layer::Namespaces,
            reason,
        })?;
    let mut optional = spec.optional.clone();
    // Nothing else confines files, and nothing else the network.
    optional.retain(|layer| !matches!(layer, Layer::Landlock | Layer::Seccomp));
    Ok(optional)
}

/// Fails if Landlock cannot enforce the mounts, which allows files at their paths on the host, and takes no rights away.
fn check_mounts(spec: &SandboxSpec) -> io::Result<Result<(), String>> {
    let mut read_only = Vec::new();
    let mut writable_paths: Vec<PathBuf> = Vec::new();
    for one in &spec.mounts {
        let refused = |what: &str, path: &PathBuf| {
            Ok(Err(format!("`{}` {what} without them", path.display())))
        };
        match one {
            Mount::Hidden { at } => return refused("cannot be hidden", at),
            Mount::Overlay { at, .. } => return refused("cannot be kept unchanged", at),
            Mount::Host {
                source,
                at,
                writable,
                ..
            } if source != at && (*writable || !leads_to(at, source)) => {
                return refused("cannot be at another path than on the host", at);
            }
            Mount::Within {
                at,
                writable: false,
            } => return refused("cannot be made read-only", at),
            Mount::Host {
                at,
                writable: false,
                ..
            } => read_only.push(at),
            Mount::Host { at, .. } | Mount::Within { at, .. } => {
                writable_paths.push(fs::canonicalize(at)?);
            }
            // The program does without the first, and finds the links of the host.
            Mount::Temporary { .. } | Mount::Link { .. } => {}
        }
    }
    for at in read_only {
        let real = fs::canonicalize(at)?;
        if writable_paths.iter().any(|path| real.starts_with(path)) {
            let path = at.display();
            return Ok(Err(format!(
                "`{path}` cannot be made read-only without them"
            )));
        }
    }
    Ok(Ok(()))
}

/// Whether `at` is a path of `source` on the host: such as `/etc/localtime`, which is a link.
fn leads_to(at: &Path, source: &Path) -> bool {
    fs::canonicalize(at).is_ok_and(|found| found == source)
}

fn can_limit_processes() -> Result<(), String> {
    if rustix::process::getuid().is_root() {
        return Err("Linux does not limit user 0 without namespaces".to_owned());
    }
    Ok(())
}

/// Raises the limit of processes by the number that this user has, since Linux counts them all.
fn with_processes_of_user(mut spec: SandboxSpec) -> io::Result<SandboxSpec> {
    if let Some(most) = &mut spec.limits.processes {
        let user = rustix::process::getuid().as_raw();
        for entry in fs::read_dir("/proc")? {
            // A process may end meanwhile.
            let status = fs::read_to_string(entry?.path().join("status")).unwrap_or_default();
            let number = |name: &str| {
                let value = status.lines().find_map(|line| line.strip_prefix(name))?;
                value.split_whitespace().next()?.parse::<u64>().ok()
            };
            if number("Uid:") == Some(user.into()) {
                *most = most.saturating_add(number("Threads:").unwrap_or(0));
            }
        }
    }
    Ok(spec)
}

/// Kills all processes of the sandbox and exits when the host closes its socket or dies.
fn kill_with_host(host: &UnixStream) {
    if let Ok(mut host) = host.try_clone() {
        std::thread::spawn(move || {
            let _ = host.read(&mut [0]);
            kill_all();
            std::process::exit(1);
        });
    }
}

/// Reaps processes until the program has ended. Returns its wait status.
fn reap_until(program: Pid) -> i32 {
    loop {
        // A child that has ended is reaped below.
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return -1,
        }
        let _guard = REAPING.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == program {
                return WaitStatus::as_raw(status);
            }
        }
    }
}

/// Kills processes until none is left. Those whose parent was killed are children of this process in the next round.
fn kill_all() {
    loop {
        let guard = REAPING.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        // The kernel leaves out children that start or end meanwhile.
        let children = children().unwrap_or_default();
        for pid in &children {
            // It may have ended by itself.
            let _ = kill_process(*pid, Signal::KILL);
        }
        drop(guard);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let options = if children.is_empty() {
            options | WaitIdOptions::NOHANG
        } else {
            options
        };
        if matches!(waitid(WaitId::All, options), Err(Errno::CHILD)) {
            return;
        }
    }
}

/// The children of this process.
fn children() -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    for thread in fs::read_dir("/proc/self/task")? {
        let list = fs::read_to_string(thread?.path().join("children"))?;
        let numbers = list.split_whitespace().filter_map(|it| it.parse().ok());
        children.extend(numbers.filter_map(Pid::from_raw));
    }
    Ok(children)
}
