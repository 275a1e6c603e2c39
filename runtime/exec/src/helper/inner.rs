//! The inner helper: process 1 of the sandbox.

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, WaitStatus, kill_process_group,
    set_dumpable_behavior, wait,
};

use super::confine::{self, Files};
use super::layers::Layers;
use super::{Failed, mounts, network, parse, report_cpu_time_of_children};
use crate::error::Stage;
use crate::message::{self, Report, report};
use crate::proxy;
use crate::spec::{FileIdentity, Layer, Network, SandboxSpec};

/// How often the CPU time and the memory are reported.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// Descriptors of the program, and the socket to the host.
pub(super) struct Handles {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    /// Where the host waits for descriptors of the sandbox, if it needs some.
    to_host: Option<UnixStream>,
}

/// Receives the description of the sandbox and the descriptors of the program.
pub(super) fn receive(socket: &UnixStream) -> io::Result<(Vec<u8>, Handles)> {
    let (body, mut fds) = message::receive(socket)?;
    let to_host = (fds.len() > 3).then(|| fds.pop()).flatten();
    let [stdin, stdout, stderr] =
        <[OwnedFd; 3]>::try_from(fds).map_err(|_| io::ErrorKind::InvalidData)?;
    let handles = Handles {
        stdin,
        stdout,
        stderr,
        to_host: to_host.map(UnixStream::from),
    };
    Ok((body, handles))
}

pub(super) fn run(host: &UnixStream) -> i32 {
    match start(host) {
        Ok(program) => {
            exit_with_host(host);
            report_usage(host);
            let status = reap(program);
            kill_all();
            report_cpu_time_of_children(host);
            report(host, &Report::Exited { status });
            0
        }
        Err(failed) => failed.send(host),
    }
}

/// Builds the sandbox around this process and starts the program. Returns its process id.
fn start(host: &UnixStream) -> Result<i32, Failed> {
    report(host, &Report::Ready);
    let (body, handles) = receive(host).map_err(Failed::at(Stage::Description))?;
    let mut spec = parse(&body)?;
    mounts::enter()?;
    let mut layers = Layers::new(spec.optional.clone());
    let mounts::Built {
        changes,
        copied,
        detaching,
    } = mounts::build(&spec, &mut layers, host)?;
    if copied {
        spec.program = spec.program.map(FileIdentity::in_copy);
    }
    if let Some(to_host) = &handles.to_host {
        let listener = match spec.network {
            Network::Proxy => Some(network::listen().map_err(Failed::at(Stage::Network))?),
            Network::None => None,
        };
        let fds = [listener.as_ref(), changes.as_ref()];
        let fds: Vec<_> = fds.into_iter().flatten().map(OwnedFd::as_fd).collect();
        message::send(to_host, &[], &fds).map_err(Failed::at(Stage::Descriptors))?;
    }
    drop(changes);
    confine(&spec, Files::Mounted, &mut layers)?;
    // The kernel does it when this process ends.
    layers.record(Layer::Cleanup, Ok(()))?;
    // The program could otherwise change this process through `/proc/1/mem`.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| Failed::at(Stage::Capabilities)(error.into()))?;
    report(host, &layers.built());
    message::wait_for_go(host).map_err(Failed::at(Stage::Program))?;
    detaching.wait().map_err(Failed::at(Stage::Mounts))?;
    let child = program(&spec, handles).and_then(|mut program| program.spawn());
    let child = child.map_err(Failed::at(Stage::Program))?;
    report(host, &Report::Started);
    Ok(child.id().cast_signed())
}

/// Confines this process, and with it the program.
pub(super) fn confine(spec: &SandboxSpec, files: Files, layers: &mut Layers) -> Result<(), Failed> {
    confine::limit(&spec.limits).map_err(Failed::at(Stage::Limits))?;
    let dropped = confine::drop_capabilities().map_err(|error| error.to_string());
    layers.record(Layer::Capabilities, dropped)?;
    match confine::landlock_rules() {
        Ok(rules) => {
            let enforced = confine::landlock(rules, spec, files);
            enforced.map_err(Failed::at(Stage::Landlock))?;
            layers.record(Layer::Landlock, Ok(()))?;
        }
        Err(reason) => layers.record(Layer::Landlock, Err(reason))?,
    }
    layers.record(Layer::Seccomp, confine::seccomp(spec.network, files))
}

/// The program, ready to start.
pub(super) fn program(spec: &SandboxSpec, handles: Handles) -> io::Result<Command> {
    let Some((name, arguments)) = spec.argv.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "argv is empty"));
    };
    check_directory(&spec.cwd).map_err(|error| {
        let cwd = spec.cwd.display();
        io::Error::new(error.kind(), format!("its directory `{cwd}`: {error}"))
    })?;
    if let Some(expected) = spec.program {
        check_program(name, expected)?;
    }
    let mut program = Command::new(name);
    program
        .arg0(spec.arg0.as_ref().unwrap_or(name))
        .args(arguments)
        .env_clear()
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .envs(proxy_variables(spec.network))
        .current_dir(&spec.cwd)
        .stdin(handles.stdin)
        .stdout(handles.stdout)
        .stderr(handles.stderr);
    Ok(program)
}

/// Checks that the program can be started in this directory.
fn check_directory(path: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())?;
    Ok(())
}

/// Checks that the program is the file that the host has hashed.
fn check_program(path: &str, expected: FileIdentity) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = rustix::fs::open(path, flags, Mode::empty())?;
    if expected.is(&FileIdentity::of(&found.into())?) {
        Ok(())
    } else {
        Err(io::Error::other(
            "it was replaced since the host checked it",
        ))
    }
}

/// Environment variables that make programs use the proxy.
fn proxy_variables(network: Network) -> impl Iterator<Item = (&'static str, &'static str)> {
    let names: &[&str] = match network {
        Network::None => &[],
        Network::Proxy => &proxy::VARIABLES,
    };
    names.iter().map(|name| (*name, proxy::URL))
}

/// Exits, and with it all processes of the sandbox, when the host closes its socket or dies.
fn exit_with_host(host: &UnixStream) {
    if let Ok(mut host) = host.try_clone() {
        std::thread::spawn(move || {
            let _ = host.read(&mut [0]);
            std::process::exit(1);
        });
    }
}

/// Reports the CPU time and the memory of all processes while they run.
fn report_usage(host: &UnixStream) {
    let Ok(host) = host.try_clone() else {
        return;
    };
    let watch = move || {
        loop {
            std::thread::sleep(REPORT_EVERY);
            let Some(used) = usage() else { return };
            report(&host, &used);
        }
    };
    // Without the thread, only the time is reported, at the end.
    let _ = std::thread::Builder::new().spawn(watch);
}

/// The CPU time of all processes in `/proc` and of those that they have waited for, and the memory of all; `None` without a
/// `/proc`.
fn usage() -> Option<Report> {
    let (mut ticks, mut pages): (u64, u64) = (0, 0);
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name of the program, in parentheses, can contain anything. The times are the fields 14 to 17, the resident pages
        // the field 24.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        for (field, value) in (3..).zip(fields.split_whitespace()) {
            let value = || value.parse::<u64>().unwrap_or_default();
            match field {
                14..=17 => ticks += value(),
                24 => pages += value(),
                _ => {}
            }
        }
    }
    let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
    let page = u64::try_from(rustix::param::page_size()).unwrap_or_default();
    Some(Report::Used {
        cpu: Duration::from_millis(ticks.saturating_mul(1000) / ticks_per_second),
        memory: pages.saturating_mul(page),
    })
}

/// Reaps processes until the program has ended. Returns its wait status.
fn reap(program: i32) -> i32 {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == program => {
                return WaitStatus::as_raw(status);
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return -1,
        }
    }
}

/// Kills all other processes of the sandbox, and waits until they have ended. The kernel would do so when this process ends,
/// but after it has taken down the mounts.
fn kill_all() {
    // As the target of a signal, group 1 means all processes that this one can see.
    let _ = kill_process_group(Pid::INIT, Signal::KILL);
    while !matches!(wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn replaced_or_changed_program_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let name = path.to_str().unwrap();
        std::fs::write(&path, "first").unwrap();
        let hashed = FileIdentity::of(&File::open(&path).unwrap()).unwrap();
        check_program(name, hashed).unwrap();
        let other = folder.path().join("other");
        std::fs::write(&other, "other").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert!(check_program(name, hashed).is_err());
        let hashed = FileIdentity::of(&File::open(&path).unwrap()).unwrap();
        std::fs::write(&path, "longer than before").unwrap();
        assert!(check_program(name, hashed).is_err());
    }
}
