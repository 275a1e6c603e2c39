//! The inner helper: process 1 of the sandbox.

use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

use rustix::process::{DumpableBehavior, WaitOptions, WaitStatus, set_dumpable_behavior, wait};

use super::{Failed, confine, mounts, network, parse};
use crate::error::Stage;
use crate::message::{self, Report, report};
use crate::proxy;
use crate::spec::{Layer, Network, SandboxSpec};

/// Descriptors of the program, and the socket to the host.
struct Handles {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    /// Where the host waits for the socket of the proxy, if there is one.
    proxy: Option<UnixStream>,
}

pub(super) fn run(socket: UnixStream) -> i32 {
    let Ok((spec, fds)) = message::receive(&socket) else {
        return 2;
    };
    drop(socket);
    let mut fds = fds;
    let Some(host) = fds.pop().map(UnixStream::from) else {
        return 2;
    };
    let proxy = fds.drain(fds.len().min(3)..).next().map(UnixStream::from);
    let Ok([stdin, stdout, stderr]) = <[OwnedFd; 3]>::try_from(fds) else {
        return 2;
    };
    let handles = Handles {
        stdin,
        stdout,
        stderr,
        proxy,
    };
    match start(&spec, handles, &host) {
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
fn start(spec: &[u8], handles: Handles, host: &UnixStream) -> Result<i32, Failed> {
    let spec = parse(spec)?;
    let mut layers = mounts::build(&spec).map_err(Failed::at(Stage::Mounts))?;
    if let Some(proxy) = &handles.proxy {
        network::listen(proxy).map_err(Failed::at(Stage::Network))?;
    }
    confine::limit(&spec.limits).map_err(Failed::at(Stage::Limits))?;
    confine::drop_capabilities().map_err(Failed::at(Stage::Capabilities))?;
    confine::landlock(&spec).map_err(Failed::at(Stage::Landlock))?;
    confine::seccomp(spec.network).map_err(Failed::at(Stage::Seccomp))?;
    layers.extend([Layer::Landlock, Layer::Seccomp, Layer::Capabilities]);
    // The program could otherwise change this process through `/proc/1/mem`.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| Failed::at(Stage::Capabilities)(error.into()))?;
    let program = program(&spec, handles).map_err(Failed::at(Stage::Program))?;
    report(host, &Report::Started { layers });
    Ok(program)
}

/// Starts the program.
fn program(spec: &SandboxSpec, handles: Handles) -> io::Result<i32> {
    let Some((name, arguments)) = spec.argv.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "argv is empty"));
    };
    let child = Command::new(name)
        .args(arguments)
        .env_clear()
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .envs(proxy_variables(spec.network))
        .current_dir(&spec.cwd)
        .stdin(handles.stdin)
        .stdout(handles.stdout)
        .stderr(handles.stderr)
        .spawn()?;
    Ok(child.id().cast_signed())
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
