//! The program of the self-test, which attacks each layer of the sandbox that it runs in.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::sched::CloneFlags;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::Pid;
use rustix::thread::{capabilities, no_new_privs};
use serde::{Deserialize, Serialize};

use super::NAME;
use crate::spec::Layer;

/// Argument of the child that is to survive the program.
const SURVIVOR: &str = "survivor";
/// Threads that are more than the self-test allows.
const THREADS: usize = 1024;
/// Processes that a private `/proc` shows at most.
const PROCESSES: usize = 16;

/// What the program attacks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Targets {
    /// The helper's path in the sandbox.
    pub(crate) helper: PathBuf,
    /// A directory that the program may change.
    pub(crate) work: PathBuf,
    /// A directory of the host outside the sandbox.
    pub(crate) outside: PathBuf,
    /// A directory whose changes are kept apart.
    pub(crate) apart: Option<PathBuf>,
    /// A file in each of them; that in `work` is hidden if there are namespaces.
    pub(crate) name: String,
    /// Content of the files.
    pub(crate) secret: String,
    /// A process of the host, if its number is too high for a process in a new namespace.
    pub(crate) process: Option<i32>,
    /// Names and identities of the host's namespaces.
    pub(crate) namespaces: Vec<(String, PathBuf)>,
}

/// An attack that got through, and the layers each of which should have stopped it.
pub(crate) type Finding = (String, Vec<Layer>);

/// All attacks that got through.
pub(crate) type Findings = Vec<Finding>;

/// Attacks the sandbox and prints the findings as JSON.
pub(super) fn run(mut arguments: std::env::ArgsOs) -> i32 {
    let argument = arguments.next().unwrap_or_default();
    if argument == SURVIVOR {
        // It stays in the sandbox without a parent, until it is killed.
        let _ = rustix::process::setsid();
        loop {
            std::thread::park();
        }
    }
    let Some(targets) = parse(&argument) else {
        return 2;
    };
    let mut findings = Vec::new();
    if start_survivor(&targets).is_err() {
        return 3;
    }
    files(&targets, &mut findings);
    processes(&targets, &mut findings);
    system_calls(&targets, &mut findings);
    threads(&mut findings);
    match serde_json::to_vec(&findings) {
        Ok(line) if std::io::stdout().write_all(&line).is_ok() => 0,
        _ => 2,
    }
}

fn parse(argument: &OsString) -> Option<Targets> {
    serde_json::from_str(argument.to_str()?).ok()
}

/// Starts a process that keeps standard output open.
fn start_survivor(targets: &Targets) -> std::io::Result<()> {
    let mut survivor = Command::new(&targets.helper);
    survivor.arg0(NAME).args([super::PROBE, SURVIVOR]);
    survivor.stdin(Stdio::null()).process_group(0).spawn()?;
    Ok(())
}

fn files(targets: &Targets, findings: &mut Findings) {
    let Targets {
        work,
        outside,
        apart,
        name,
        secret,
        ..
    } = targets;
    let mut found = |got_through: bool, what: &str, layers: &[Layer]| {
        if got_through {
            findings.push((what.to_owned(), layers.to_vec()));
        }
    };
    let both = [Layer::Namespaces, Layer::Landlock];
    let reads = |path: PathBuf| fs::read_to_string(path).is_ok_and(|text| text == *secret);
    found(reads(outside.join(name)), "read a file outside", &both);
    found(
        fs::symlink_metadata(outside.join(name)).is_ok(),
        "see a file outside",
        &[Layer::Namespaces],
    );
    found(
        fs::write(outside.join("created"), "").is_ok(),
        "create a file outside",
        &both,
    );
    let link = work.join("link");
    let linked = fs::hard_link(outside.join(name), work.join("hard")).is_ok()
        || std::os::unix::fs::symlink(outside.join(name), &link).is_ok() && reads(link);
    found(linked, "read a file outside through a link", &both);
    found(
        reads(work.join(name)),
        "read a hidden file",
        &[Layer::Namespaces],
    );
    if let Some(apart) = apart {
        // The host sees whether its file is as it was.
        let is_seen = |text: &str| fs::read_to_string(apart.join(name)).is_ok_and(|it| it == text);
        let changed = fs::write(apart.join(name), "changed").is_ok() && is_seen("changed");
        let replaced = fs::remove_file(apart.join(name)).is_ok()
            && fs::write(apart.join(name), "replaced").is_ok()
            && is_seen("replaced");
        let what = "not see its own changes that are kept apart";
        found(!changed || !replaced, what, &[Layer::Overlay]);
    }
    // Any other error means that the call reached the device.
    let ioctl = fs::File::open("/dev/null").map(rustix::termios::tcgetattr);
    let stopped = matches!(ioctl, Ok(Err(Errno::ACCESS)));
    found(!stopped, "control a device", &[Layer::Landlock]);
}

fn processes(targets: &Targets, findings: &mut Findings) {
    let mut found = |got_through: bool, what: String, layers: &[Layer]| {
        if got_through {
            findings.push((what, layers.to_vec()));
        }
    };
    let process = targets.process.and_then(Pid::from_raw);
    let signalled = process.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok());
    found(
        signalled,
        "signal a process of the host".to_owned(),
        &[Layer::Namespaces, Layer::Landlock],
    );
    for (name, identity) in &targets.namespaces {
        let shared =
            fs::read_link(format!("/proc/self/ns/{name}")).is_ok_and(|own| own == *identity);
        found(
            shared,
            format!("share the {name} namespace of the host"),
            &[Layer::Namespaces],
        );
    }
    let is_number = |name: &OsString| name.to_str().is_some_and(|it| it.parse::<u32>().is_ok());
    let listed = fs::read_dir("/proc").map_or(0, |entries| {
        let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
        names.filter(is_number).count()
    });
    let shown = listed > PROCESSES || fs::read_dir("/proc/sys").is_ok();
    found(
        shown,
        "list the processes and settings of the host".to_owned(),
        &[Layer::Proc, Layer::Landlock],
    );
}

fn system_calls(targets: &Targets, findings: &mut Findings) {
    let mut found = |got_through: bool, what: &str, layers: &[Layer]| {
        if got_through {
            findings.push((what.to_owned(), layers.to_vec()));
        }
    };
    for (family, what) in [
        (AddressFamily::INET, "create an IPv4 socket"),
        (AddressFamily::INET6, "create an IPv6 socket"),
        (AddressFamily::UNIX, "create a Unix socket"),
        (AddressFamily::NETLINK, "create a netlink socket"),
    ] {
        let created = rustix::net::socket(family, SocketType::DGRAM, None);
        found(created.is_ok(), what, &[Layer::Seccomp]);
    }
    // Without the filter, the call fails because the process does not exist.
    let nobody = nix::unistd::Pid::from_raw(i32::MAX);
    found(
        nix::sys::ptrace::attach(nobody) != Err(nix::errno::Errno::EPERM),
        "trace a process",
        &[Layer::Seccomp],
    );
    let work = targets.work.as_path();
    let mounted = rustix::mount::mount("tmpfs", work, "tmpfs", MountFlags::empty(), None);
    if mounted.is_ok() {
        let _ = rustix::mount::unmount(work, UnmountFlags::DETACH);
    }
    let both = [Layer::Seccomp, Layer::Capabilities];
    found(mounted.is_ok(), "mount a file system", &both);
    let has_any = capabilities(None)
        .is_ok_and(|sets| !(sets.effective | sets.permitted | sets.inheritable).is_empty());
    found(has_any, "have a capability", &[Layer::Capabilities]);
    found(
        no_new_privs() != Ok(true),
        "get capabilities from a program",
        &[Layer::Capabilities],
    );
    let unshared = nix::sched::unshare(CloneFlags::CLONE_NEWUSER);
    found(
        unshared.is_ok(),
        "create a user namespace",
        &[Layer::Seccomp],
    );
}

/// Starts threads, which Linux counts as processes. They end with this process.
fn threads(findings: &mut Findings) {
    let start = || {
        let thread = std::thread::Builder::new().stack_size(1 << 15);
        thread.spawn(|| {
            loop {
                std::thread::park();
            }
        })
    };
    if (0..THREADS).all(|_| start().is_ok()) {
        findings.push((
            format!("start {THREADS} threads"),
            vec![Layer::ProcessLimit],
        ));
    }
}
