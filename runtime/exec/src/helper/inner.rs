//! The inner helper: process 1 of the sandbox.

use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{DumpableBehavior, WaitOptions, WaitStatus, set_dumpable_behavior, wait};

use super::confine::{self, Files};
use super::layers::Layers;
use super::{Failed, mounts, parse};
use crate::error::Stage;
use crate::message::{self, Report, Start, report};
use crate::spec::{Layer, SandboxSpec};

/// Descriptors of the program, and the socket to the host.
pub(super) struct Handles {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// Receives the description of the sandbox, the descriptors of the program, and the socket to which to report.
pub(super) fn receive(socket: &UnixStream) -> Option<(Vec<u8>, Handles, UnixStream)> {
    let (body, fds) = message::receive(socket).ok()?;
    let [stdin, stdout, stderr, reports] = <[OwnedFd; 4]>::try_from(fds).ok()?;
    let handles = Handles {
        stdin,
        stdout,
        stderr,
    };
    Some((body, handles, reports.into()))
}

pub(super) fn run(socket: UnixStream) -> i32 {
    let Some((body, handles, host)) = receive(&socket) else {
        return 2;
    };
    drop(socket);
    match start(&body, handles, &host) {
        Ok(program) => {
            exit_with_host(&host);
            let status = reap(program);
            report(&host, &Report::Exited { status });
            0
        }
        Err(failed) => failed.send(&host),
    }
}

/// Builds the sandbox around this process and starts the program. Returns its process id.
fn start(body: &[u8], handles: Handles, host: &UnixStream) -> Result<i32, Failed> {
    let Start { spec, .. } = parse(body)?;
    let mut layers = Layers::new(spec.optional.clone());
    mounts::build(&spec, &mut layers)?;
    confine(&spec, Files::Mounted, &mut layers)?;
    // The kernel does it when this process ends.
    layers.record(Layer::Cleanup, Ok(()))?;
    // The program could otherwise change this process through `/proc/1/mem`.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| Failed::at(Stage::Capabilities)(error.into()))?;
    let child = program(&spec, handles).and_then(|mut program| program.spawn());
    let child = child.map_err(Failed::at(Stage::Program))?;
    report(host, &layers.started());
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
    let mut program = Command::new(name);
    program
        .arg0(spec.arg0.as_ref().unwrap_or(name))
        .args(arguments)
        .env_clear()
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .current_dir(&spec.cwd)
        .stdin(handles.stdin)
        .stdout(handles.stdout)
        .stderr(handles.stderr);
    Ok(program)
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

/// Reaps processes until the program has ended. Returns its wait status.
fn reap(program: i32) -> i32 {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == program => {
                return WaitStatus::as_raw(status);
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return -1,
        }
    }
}
