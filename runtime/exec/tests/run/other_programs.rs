//! Programs that the machine must have: Python, Make, Git and Node.js.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::{changes, commands, sandbox};

/// Attacks that need system calls of their own. The script prints each call that succeeds.
#[tokio::test]
async fn forbidden_system_calls_fail() {
    let work = tempfile::tempdir().unwrap();
    let script = r#"
import ctypes, os, platform, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"
calls = {
    "ptrace": (101 if x86 else 117, [16, 1, 0, 0]),
    "unshare_user": (272 if x86 else 97, [0x10000000]),
    "clone_user": (56 if x86 else 220, [0x10000000 | 17, 0, 0, 0, 0]),
    "clone3": (435, [0, 0]),
    "openat2": (437, [-100, b"/work", 0, 24]),
    "create_setuid": (257 if x86 else 56, [-100, b"/work/a", 0o101, 0o4755]),
    "create_unnamed_setgid": (257 if x86 else 56, [-100, b"/work", 0o20200001, 0o2755]),
    "fchmodat2": (452, [-100, b"/work", 0o4755, 0]),
    "io_uring": (425, [8, 0]),
    "bpf": (321 if x86 else 280, [0, 0, 0]),
    "keyctl": (250 if x86 else 219, [0, -3, 0]),
    "userfaultfd": (323 if x86 else 282, [0]),
    "open_tree": (428, [-100, b"/work", 1]),
    "mount_setattr": (442, [-100, b"/work", 0, 0, 0]),
    "perf_event_open": (298 if x86 else 241, [0, 0, -1, -1, 0]),
    "open_by_handle_at": (304 if x86 else 265, [0, 0, 0]),
    "pidfd_getfd": (438, [0, 0, 0]),
    "process_vm_readv": (310 if x86 else 270, [1, 0, 0, 0, 0, 0]),
}
for name, (number, arguments) in calls.items():
    ctypes.set_errno(0)
    if libc.syscall(number, *arguments) != -1:
        if name == "clone_user":
            print(name, flush=True)
            os._exit(0)
        print(name)
    elif ctypes.get_errno() != (38 if name in ("clone3", "openat2") else 1):
        print(name, os.strerror(ctypes.get_errno()))
for family, kind in [("AF_INET", "SOCK_STREAM"), ("AF_INET", "SOCK_DGRAM"), ("AF_UNIX", "SOCK_STREAM"), ("AF_NETLINK", "SOCK_RAW"), ("AF_PACKET", "SOCK_RAW")]:
    try:
        socket.socket(getattr(socket, family), getattr(socket, kind))
        print(family, kind)
    except PermissionError:
        pass
import fcntl
try:
    fcntl.ioctl(0, 0x5412, b"x")
    print("TIOCSTI")
except OSError as error:
    if error.errno != 1: print("TIOCSTI", error)
socket.socketpair()
print("end")
"#;
    fs::write(work.path().join("probe.py"), script).unwrap();
    let spec = sandbox::shell("python3 probe.py", work.path());
    assert_eq!(
        sandbox::run(&spec).await.1,
        "end
"
    );
}

/// A lease of a file or directory blocks programs of the host that open or change it.
#[tokio::test]
async fn leases_are_refused_and_locks_are_not() {
    let work = tempfile::tempdir().unwrap();
    let script = r#"
import fcntl
file = open("file", "w+")
for name, command in [("lease", fcntl.F_SETLEASE), ("delegation", 1040)]:
    try:
        fcntl.fcntl(file, command, fcntl.F_WRLCK)
        print(name)
    except PermissionError:
        pass
fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
fcntl.fcntl(file, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
print("locked")
"#;
    fs::write(work.path().join("probe.py"), script).unwrap();
    let spec = sandbox::shell("python3 probe.py", work.path());
    assert_eq!(sandbox::run(&spec).await.1, "locked\n");
}

/// Programs that people use, with what they need in the sandbox.
#[tokio::test]
async fn builds_and_version_control_work() {
    let root = tempfile::tempdir().unwrap();
    let runtime = commands::runtime(root.path()).await;
    let worker = commands::worker(&runtime, commands::everything()).await;
    for (path, text) in [
        ("Makefile", "all: a b\n%:\n\techo $@ > $@.out\n"),
        (
            "package.json",
            r#"{"name":"x","version":"1.0.0","scripts":{"test":"node --test"}}"#,
        ),
        (
            "x.test.js",
            "require('node:test')('adds', () => require('node:assert').equal(1 + 1, 2));\n",
        ),
        (
            "test_x.py",
            "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(1, 1)\n",
        ),
    ] {
        fs::write(root.path().join(path), text).unwrap();
    }
    for (script, expected) in [
        ("make -j2 && cat a.out b.out", "a\nb\n"),
        ("python3 -m unittest 2>&1 | tail -1", "OK\n"),
        ("npm test 2>&1 | grep -c '^# pass 1$'", "1\n"),
        (
            "git init -q . 2>&1 && git -c user.name=a -c user.email=b commit -q --allow-empty -m x && git log --format=%s",
            "x\n",
        ),
    ] {
        let output = commands::shell(&worker, script).await;
        assert!(output.stdout.ends_with(expected), "{script}: {output:?}");
    }
}

const COMMIT: &str = "git add a && git -c user.name=a -c user.email=b commit -q -m second";

fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut git = std::process::Command::new("git");
    git.current_dir(directory).args(arguments);
    let output = git.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A repository with a commit of the file `a`.
fn repository() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a"), "text\n").unwrap();
    git(root.path(), &["init", "-q", "."]);
    git(root.path(), &["add", "a"]);
    let author = ["-c", "user.name=a", "-c", "user.email=b"];
    let commit = ["commit", "-q", "-m", "first"];
    git(root.path(), &[&author[..], &commit[..]].concat());
    root
}

/// Nothing can keep a command from creating `.git/commondir`, which makes Git read another configuration, but that it cannot
/// create anything in `.git`.
#[tokio::test]
async fn commit_in_the_roots_needs_an_answer_about_git_files() {
    let root = repository();
    let configure =
        |builder: bailiwick::RuntimeBuilder| builder.approver(changes::Allows::default());
    let runtime = commands::runtime_with(root.path(), commands::commands(), configure).await;
    let worker = commands::worker(&runtime, commands::everything()).await;
    fs::write(root.path().join("a"), "text\nmore\n").unwrap();
    let config = fs::read(root.path().join(".git/config")).unwrap();
    let script = format!("echo x >> .git/config; echo x > .git/hooks/pre-commit; {COMMIT}");
    let call = |writes: &[&str]| {
        let argv = ["sh", "-c", &script];
        json!({ "argv": argv, "cwd": "/repo", "writes": writes })
    };
    for (writes, log) in [(&[][..], "first\n"), (&["/repo/.git"], "second\nfirst\n")] {
        let output = commands::run(&worker, call(writes)).await.unwrap();
        let is_locked = output.stderr.contains("index.lock");
        assert_eq!(is_locked, writes.is_empty(), "{output:?}");
        assert_eq!(git(root.path(), &["log", "--format=%s"]), log);
        // They need an answer of their own.
        assert_eq!(fs::read(root.path().join(".git/config")).unwrap(), config);
        assert!(!root.path().join(".git/hooks/pre-commit").exists());
    }
    assert_eq!(git(root.path(), &["status", "--short"]), "");
}

/// Changes of `.git` need an answer, so a commit is made in the mode `overlay`.
#[tokio::test]
async fn commit_in_an_existing_repository_is_applied() {
    let root = repository();
    let git = |arguments: &[&str]| git(root.path(), arguments);
    let builder = bailiwick::Runtime::builder()
        .root("repo", root.path())
        .tools(commands::commands().tools())
        .allow("execute:command")
        .approver(changes::Allows::default());
    let runtime = builder.build().await.unwrap().0;
    let worker = commands::worker(&runtime, changes::asks()).await;
    fs::write(root.path().join("a"), "text\nmore\n").unwrap();
    let status = commands::shell(&worker, "git status --short").await;
    assert_eq!(
        (status.exit_code, status.stdout.as_str()),
        (Some(0), " M a\n")
    );
    let changes = changes::apart(&worker, COMMIT).await;
    assert_eq!(changes.dropped_total, 0, "{changes:?}");
    assert_eq!(git(&["log", "--format=%s"]), "first\n");
    let arguments = json!({ "id": changes.id });
    changes::apply(&worker, arguments).await.unwrap();
    assert_eq!(git(&["log", "--format=%s"]), "second\nfirst\n");
    assert_eq!(git(&["status", "--short"]), "");
    git(&["fsck", "--strict"]);
}

/// Code in memory is confined like the program that wrote it.
#[tokio::test]
async fn program_in_memory_is_confined() {
    let work = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    fs::write(&secret, "the secret").unwrap();
    let script = r#"
import os, sys
fd = os.memfd_create("program", 0)
os.write(fd, open("/usr/bin/cat", "rb").read())
path = f"/proc/self/fd/{fd}"
for argument in ["/work/inside", sys.argv[1]]:
    if os.fork() == 0:
        os.execv(path, ["cat", argument])
    os.wait()
"#;
    fs::write(work.path().join("inside"), "inside").unwrap();
    fs::write(work.path().join("probe.py"), script).unwrap();
    let script = format!("python3 probe.py {} 2>/dev/null", secret.display());
    let spec = sandbox::shell(&script, work.path());
    assert_eq!(sandbox::run(&spec).await.1, "inside");
}
