//! Checks of the kernel and its limits.

use rustix::io::Errno;

use super::super::facts::{Confinement, Facts, Inotify, SystemCalls, Tried};
use super::Check;

/// The number of open files that is enough for all connections of an HTTP server and its calls.
const OPEN_FILES: u64 = 1024;
/// The number of files that a server watches.
const WATCHES: u64 = 64;

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![kernel(facts)];
    match &facts.temporary.probed {
        Ok(calls) => checks.extend(system_calls(calls, facts)),
        Err(errno) => checks.push(Check::limited(
            "temporary folder",
            format!(
                "`{}`: no directory can be created there ({errno}), so system calls were not checked, and endpoints of workers \
                 do not open",
                facts.temporary.path.display()
            ),
            "set TMPDIR to a directory that you can write",
        )),
    }
    checks.push(open_files(facts.open_files));
    checks
}

fn kernel(facts: &Facts) -> Check {
    let release = facts.kernel.as_deref().unwrap_or("of an unknown version");
    let on = format!("Linux {release} on {}", facts.architecture);
    match facts.architecture {
        "x86_64" => Check::ok("kernel", on),
        _ => Check::limited(
            "kernel",
            format!("{on}, on which bailiwick is not tested"),
            "use x86-64, or run the tests of the repository on this machine first",
        ),
    }
}

fn system_calls(calls: &SystemCalls, facts: &Facts) -> [Check; 5] {
    [
        openat2(calls.openat2),
        reopen(calls.reopen),
        mount_id(calls.mount_id),
        watch(calls.watch, facts.inotify),
        Check::ok(
            "temporary folder",
            format!(
                "sockets of workers' endpoints are created in `{}`",
                facts.temporary.path.display()
            ),
        ),
    ]
}

fn openat2(openat2: Confinement) -> Check {
    let name = "openat2";
    match openat2 {
        Confinement::Enforced => Check::ok(name, "the kernel keeps paths beneath their root"),
        Confinement::Failed(Errno::NOSYS | Errno::PERM) => Check::limited(
            name,
            "the kernel does not offer it, so paths are resolved name by name, which is slower, and grants outside the roots \
             do not work",
            "use Linux 5.6 or newer, and allow openat2 in the seccomp profile of a container",
        ),
        Confinement::Failed(errno) => Check::required(
            name,
            format!("it fails ({errno}), so no file can be opened"),
            "use another kernel or container runtime",
        ),
        Confinement::NotEnforced => Check::required(
            name,
            "this kernel opens paths outside of the directory, so roots do not confine",
            "use another kernel or container runtime",
        ),
    }
}

fn reopen(reopen: Tried) -> Check {
    let name = "procfs";
    match reopen {
        Ok(()) => Check::ok(
            name,
            "/proc/self/fd works: a file that was checked is the file that is opened",
        ),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Check::limited(
            name,
            "/proc/self/fd is not available: files are opened again by name and compared, which fails if another program \
             replaces them, and no file is watched",
            "mount procfs at /proc",
        ),
        Err(errno) => Check::required(
            name,
            format!("/proc/self/fd cannot be used ({errno}), so no file can be read"),
            "let this process open /proc/self/fd",
        ),
    }
}

fn mount_id(mount_id: Tried) -> Check {
    let name = "statx";
    match mount_id {
        Ok(()) => Check::ok(name, "mounts inside a root are recognised by their id"),
        Err(_) => Check::limited(
            name,
            "it reports no mount ids, so a bind mount inside a root may count as part of the root",
            "use Linux 5.8 or newer, or configure no root with bind mounts",
        ),
    }
}

fn watch(watch: Tried, limits: Inotify) -> Check {
    let name = "inotify";
    let few = limits.watches.is_some_and(|watches| watches < WATCHES);
    let limit = |limit: Option<u64>| limit.map_or("unknown".to_owned(), |it| it.to_string());
    let bounds = format!(
        "limits per user: watches {}, instances {}",
        limit(limits.watches),
        limit(limits.instances)
    );
    match watch {
        Ok(()) if !few => Check::ok(name, format!("changes of files are noticed ({bounds})")),
        Ok(()) | Err(_) => Check::limited(
            name,
            format!(
                "not all files can be watched ({bounds}), so clients are not told of all changes, and tools that `bailiwick \
                 servers` approves may be offered only after a restart"
            ),
            "raise fs.inotify.max_user_watches and fs.inotify.max_user_instances with sysctl, and mount procfs at /proc",
        ),
    }
}

fn open_files(limit: Option<u64>) -> Check {
    let name = "open files";
    match limit {
        None => Check::ok(name, "no limit"),
        Some(limit) if limit >= OPEN_FILES => Check::ok(name, format!("up to {limit}")),
        Some(limit) => Check::limited(
            name,
            format!("only up to {limit}, so calls and connections fail under load"),
            &format!("run `ulimit -n {OPEN_FILES}` before the server starts"),
        ),
    }
}
