//! Attacks without namespaces that need Python.

use std::process::Command;

use crate::{namespaces, optional, program, run, without};

const PYTHON: &str = "/usr/bin/python3";

#[test]
fn sockets_and_other_users_are_forbidden_without_namespaces() {
    let script = "
import os, socket
for call in [
    socket.socket,
    lambda: socket.socket(socket.AF_UNIX),
    lambda: os.setuid(65533),
]:
    try:
        call()
        print('hole')
    except PermissionError: pass
print('end')";
    without(namespaces(), async move || {
        let dir = tempfile::tempdir().unwrap();
        let spec = program(&[PYTHON, "-c", script], dir.path());
        assert_eq!(run(&optional(spec)).await, "end\n");
    });
}

/// Landlock does not confine these calls, so the filter forbids them. Outside the sandbox they succeed.
#[test]
fn calls_that_reach_the_host_are_forbidden_without_namespaces() {
    let script = r#"
import ctypes, os, resource, sys
outside, pid = sys.argv[1], int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result == -1: raise OSError(ctypes.get_errno(), "")
def queue(): check(libc.mq_open(b"/bailiwick-test", os.O_CREAT | os.O_RDWR, 0o600, None)); libc.mq_unlink(b"/bailiwick-test")
def with_own():
    with open("own", "w") as own: os.fchmod(own.fileno(), 0o777)
for name, call in {
    "chmod": lambda: os.chmod(outside, 0o777),
    "fchmod": with_own,
    "chown": lambda: os.chown(outside, os.getuid(), os.getgid()),
    "lchown": lambda: os.lchown(outside, os.getuid(), os.getgid()),
    "setxattr": lambda: os.setxattr(outside, "user.x", b"x"),
    "removexattr": lambda: (os.setxattr(outside, "user.x", b"x"), os.removexattr(outside, "user.x")),
    "utime": lambda: os.utime(outside, (1, 1)),
    "shmget": lambda: check(libc.shmget(0, 4096, 0o1600)),
    "semget": lambda: check(libc.semget(0, 1, 0o1600)),
    "msgget": lambda: check(libc.msgget(0, 0o1600)),
    "mq_open": queue,
    "prlimit": lambda: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)),
    "setpriority": lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
    "setpriority_user": lambda: os.setpriority(os.PRIO_USER, 0, 19),
    "sched_setaffinity": lambda: os.sched_setaffinity(pid, {0}),
    "sched_setscheduler": lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)),
}.items():
    try:
        call()
        print(name, end=" ")
    except OSError as error:
        if error.errno != 1: print(name, error, end=" ")
resource.prlimit(0, resource.RLIMIT_CORE, (0, 0))
os.setpriority(os.PRIO_PROCESS, 0, 19)
os.sched_setaffinity(0, {0})
print("end")
"#;
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let outside = outside.path().to_str().unwrap();
    let mut victim = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = victim.id().to_string();
    // Without a sandbox, but in an IPC namespace, which is removed with its contents. All processes of the user are
    // left alone.
    let alone = script.replace("    \"setpriority_user\"", "    #");
    let output = Command::new("unshare")
        .args(["--user", "--map-current-user", "--ipc", PYTHON, "-c"])
        .args([&alone, outside, &pid])
        .current_dir(dir.path())
        .output();
    let spec = program(&[PYTHON, "-c", script, outside, &pid], dir.path());
    let confined = without(namespaces(), async move || run(&optional(spec)).await);
    victim.kill().unwrap();
    victim.wait().unwrap();
    let free = "chmod fchmod chown lchown setxattr removexattr utime shmget semget msgget mq_open prlimit setpriority \
        sched_setaffinity sched_setscheduler end\n";
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, free, "{output:?}");
    assert_eq!(confined, "end\n");
}

#[test]
fn chain_of_processes_ends_with_the_program_without_namespaces() {
    // Each process ends as soon as it has started the next one.
    let chain = "import os
os.setsid() if os.fork() == 0 else os._exit(0)
os.write(1, b'up\\n')
while True:
    if os.fork(): os._exit(0)";
    without(namespaces(), async move || {
        let dir = tempfile::tempdir().unwrap();
        let spec = program(&[PYTHON, "-c", chain], dir.path());
        let text = run(&optional(spec)).await;
        assert!(text.is_empty() || text == "up\n", "{text}");
    });
}
