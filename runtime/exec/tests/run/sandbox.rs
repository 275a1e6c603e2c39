//! Runs real programs in the sandbox.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and prepares files"
)]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::Duration;

use bailiwick_exec::{ExecError, Helper, Layer, Mount, Process, SandboxSpec, Stage, Stdio, spawn};

pub(crate) fn helper() -> Helper {
    Helper::At(env!("CARGO_BIN_EXE_bailiwick-exec-helper").into())
}

pub(crate) fn host(source: impl AsRef<Path>, at: &str, writable: bool) -> Mount {
    Mount::Host {
        source: source.as_ref().to_owned(),
        at: at.into(),
        writable,
        identity: None,
    }
}

/// A shell script in a sandbox with the system's programs and `/work`.
pub(crate) fn shell(script: &str, work: &Path) -> SandboxSpec {
    let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let mut spec = SandboxSpec::new(argv, "/work");
    spec.env = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
    spec.mounts = vec![
        host("/usr", "/usr", false),
        host("/etc/ld.so.cache", "/etc/ld.so.cache", false),
    ];
    for name in ["bin", "lib", "lib64", "sbin"] {
        let path = Path::new("/").join(name);
        match fs::read_link(&path) {
            Ok(target) => spec.mounts.push(Mount::Link { at: path, target }),
            Err(_) if path.is_dir() => spec.mounts.push(host(&path, path.to_str().unwrap(), false)),
            Err(_) => {}
        }
    }
    spec.mounts.push(Mount::Temporary {
        at: "/tmp".into(),
        bytes: 16 << 20,
    });
    spec.mounts.push(host(work, "/work", true));
    spec
}

/// Starts a sandbox whose output is read from the returned pipe.
pub(crate) async fn start(spec: &SandboxSpec) -> Result<(Process, std::io::PipeReader), ExecError> {
    let (stdio, reader) = stdio();
    Ok((spawn(spec, stdio, &helper()).await?, reader))
}

/// No input, and a pipe for both outputs.
fn stdio() -> (Stdio, std::io::PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let stdio = Stdio {
        stdin: File::open("/dev/null").unwrap().into(),
        stdout: writer.try_clone().unwrap().into(),
        stderr: writer.into(),
    };
    (stdio, reader)
}

/// Runs a sandbox. Returns the exit code and the output.
pub(crate) async fn run(spec: &SandboxSpec) -> (Option<i32>, String) {
    let (mut process, mut reader) = start(spec).await.unwrap();
    let read = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    let exit = process.wait().await.unwrap();
    (exit.status.code(), read.await.unwrap())
}

#[tokio::test]
async fn program_runs_with_all_layers_and_reports_its_exit_status() {
    let work = tempfile::tempdir().unwrap();
    let spec = shell("echo hello; pwd; exit 3", work.path());
    assert_eq!(run(&spec).await, (Some(3), "hello\n/work\n".to_owned()));
    let (mut process, _reader) = start(&spec).await.unwrap();
    for layer in [
        Layer::Namespaces,
        Layer::Landlock,
        Layer::Seccomp,
        Layer::Capabilities,
        Layer::Proc,
    ] {
        assert!(process.layers().contains(&layer), "{layer:?}");
    }
    process.wait().await.unwrap();
}

#[tokio::test]
async fn writable_directory_is_changed_and_read_only_directory_is_not() {
    let (work, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(other.path().join("a"), "old").unwrap();
    let mut spec = shell(
        "echo new > made; echo new > /other/a; echo new > /other/b; cat /other/a",
        work.path(),
    );
    spec.mounts.push(host(other.path(), "/other", false));
    let (_, text) = run(&spec).await;
    assert!(text.ends_with("old"), "{text}");
    assert_eq!(
        fs::read_to_string(work.path().join("made")).unwrap(),
        "new\n"
    );
    assert_eq!(fs::read_to_string(other.path().join("a")).unwrap(), "old");
    assert!(!other.path().join("b").exists());
}

#[tokio::test]
async fn hidden_files_and_directories_are_empty_and_cannot_be_replaced() {
    let work = tempfile::tempdir().unwrap();
    fs::write(work.path().join(".env"), "secret").unwrap();
    fs::create_dir(work.path().join("keys")).unwrap();
    fs::write(work.path().join("keys/one"), "secret").unwrap();
    let script = "cat .env; ls -A keys; echo x > .env; mv .env other; rm -f .env; echo x > keys/two; mv keys other; cat *";
    let mut spec = shell(script, work.path());
    for at in ["/work/.env", "/work/keys", "/work/missing"] {
        spec.mounts.push(Mount::Hidden { at: at.into() });
    }
    let (_, text) = run(&spec).await;
    assert!(!text.contains("secret"), "{text}");
    assert_eq!(
        fs::read_to_string(work.path().join(".env")).unwrap(),
        "secret"
    );
    assert_eq!(fs::read_dir(work.path().join("keys")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 2);
}

#[tokio::test]
async fn directory_inside_a_mount_has_rights_of_its_own() {
    let work = tempfile::tempdir().unwrap();
    for name in ["src", "src/gen"] {
        fs::create_dir(work.path().join(name)).unwrap();
    }
    let mut spec = shell("touch a; touch src/b; touch src/gen/c; true", work.path());
    let Some(Mount::Host { writable, .. }) = spec.mounts.last_mut() else {
        panic!()
    };
    *writable = false;
    spec.mounts.push(Mount::Within {
        at: "/work/src".into(),
        writable: true,
    });
    spec.mounts.push(Mount::Within {
        at: "/work/src/gen".into(),
        writable: false,
    });
    run(&spec).await;
    assert!(!work.path().join("a").exists());
    assert!(work.path().join("src/b").exists());
    assert!(!work.path().join("src/gen/c").exists());
}

#[tokio::test]
async fn nothing_of_the_sandbox_runs_after_the_program_or_a_kill() {
    let work = tempfile::tempdir().unwrap();
    // The second process holds the pipe open: the output ends only when it is dead.
    let spec = shell(
        "setsid sleep 1000 & (setsid sh -c 'sleep 1000' &) ; exit 0",
        work.path(),
    );
    assert_eq!(run(&spec).await, (Some(0), String::new()));

    let (mut process, mut reader) = start(&shell(
        "setsid sleep 1000 & echo up; sleep 1000",
        work.path(),
    ))
    .await
    .unwrap();
    let mut up = [0; 3];
    reader.read_exact(&mut up).unwrap();
    process.kill().await.unwrap();
    assert_eq!(reader.read(&mut up).unwrap(), 0);

    let (process, mut reader) = start(&shell("echo up; sleep 1000", work.path()))
        .await
        .unwrap();
    reader.read_exact(&mut up).unwrap();
    drop(process);
    assert_eq!(reader.read(&mut up).unwrap(), 0);
}

#[tokio::test]
async fn signal_that_ended_the_program_is_reported() {
    let work = tempfile::tempdir().unwrap();
    let (mut process, _reader) = start(&shell("kill -SEGV $$", work.path())).await.unwrap();
    assert_eq!(process.wait().await.unwrap().status.signal(), Some(11));
}

#[tokio::test]
async fn failed_start_names_its_step_and_runs_nothing() {
    let work = tempfile::tempdir().unwrap();
    let stage = async |spec: &SandboxSpec| match start(spec).await {
        Err(ExecError::Setup { stage, .. }) => stage,
        other => panic!("{other:?}"),
    };
    let mut spec = shell("touch ran", work.path());
    "/bin/missing".clone_into(&mut spec.argv[0]);
    assert_eq!(stage(&spec).await, Stage::Program);
    let mut spec = shell("touch ran", work.path());
    spec.mounts.push(host("/missing", "/x", false));
    assert_eq!(stage(&spec).await, Stage::Mounts);
    let mut spec = shell("touch ran", work.path());
    spec.mounts.push(host(work.path(), "/a/../b", true));
    assert_eq!(stage(&spec).await, Stage::Mounts);
    let mut spec = shell("touch ran", work.path());
    let identity = Some((1, 1));
    spec.mounts.push(Mount::Host {
        source: work.path().to_owned(),
        at: "/x".into(),
        writable: true,
        identity,
    });
    assert_eq!(stage(&spec).await, Stage::Mounts);
    assert!(!work.path().join("ran").exists());
}

#[tokio::test]
async fn program_that_is_no_helper_is_reported() {
    let work = tempfile::tempdir().unwrap();
    let (stdio, _reader) = stdio();
    let spawned = spawn(
        &shell("true", work.path()),
        stdio,
        &Helper::At("/bin/true".into()),
    )
    .await;
    assert!(
        matches!(spawned, Err(ExecError::NotInitialized { .. })),
        "{spawned:?}"
    );
}

/// This process does not call `init`. A helper with its binary would run this program, here this test, again and again.
#[tokio::test]
async fn program_that_does_not_call_init_is_not_started_as_the_outer_helper() {
    if std::env::args().nth(1).is_some_and(|role| role == "outer") {
        std::future::pending::<()>().await;
    }
    let work = tempfile::tempdir().unwrap();
    let (stdio, _reader) = stdio();
    let spec = shell("true", work.path());
    let spawned = spawn(&spec, stdio, &Helper::CurrentExe);
    let spawned = tokio::time::timeout(Duration::from_secs(30), spawned).await;
    let error = spawned.expect("a helper was started").unwrap_err();
    assert!(
        matches!(error, ExecError::NotInitialized { .. }),
        "{error:?}"
    );
    let text = error.to_string();
    assert_eq!(
        text,
        "this program does not call `bailiwick_exec::init()` first in `main`"
    );
}

#[tokio::test(start_paused = true)]
async fn program_that_waits_and_is_no_helper_is_given_up() {
    let work = tempfile::tempdir().unwrap();
    let (stdio, _reader) = stdio();
    // It runs the test above, which then waits.
    let helper = Helper::At(std::env::current_exe().unwrap());
    let error = spawn(&shell("true", work.path()), stdio, &helper).await;
    let error = error.unwrap_err();
    assert!(
        matches!(error, ExecError::NotInitialized { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn fork_bomb_stops_at_the_limit_and_is_killed() {
    let work = tempfile::tempdir().unwrap();
    let mut spec = shell("b() { b & b & wait; }; b & sleep 1000", work.path());
    spec.limits.processes = Some(301);
    let (mut process, reader) = start(&spec).await.unwrap();
    let mut reader = BufReader::new(reader);
    let mut line = String::new();
    while !line.contains("fork") {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "it has ended");
    }
    // Otherwise it would wait until somebody reads what it prints.
    let rest = std::thread::spawn(move || reader.read_to_end(&mut Vec::new()).unwrap());
    process.kill().await.unwrap();
    rest.join().unwrap();
}

/// Processes that have ended do not count, even if they have no parent that waits for them.
#[tokio::test]
async fn processes_without_a_parent_are_reaped() {
    let work = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 600 ]; do (true &); i=$((i+1)); done; echo end";
    let mut spec = shell(script, work.path());
    spec.limits.processes = Some(301);
    assert_eq!(run(&spec).await, (Some(0), "end\n".to_owned()));
}

#[tokio::test]
async fn limits_hold_for_all_processes() {
    let work = tempfile::tempdir().unwrap();
    let mut spec = shell(
        "head -c 2000000 /dev/zero > big; i=0; while [ $i -lt 700 ]; do sleep 100 & i=$((i+1)); done; echo end",
        work.path(),
    );
    spec.limits.file_size = Some(1 << 20);
    spec.limits.processes = Some(301);
    let (_, text) = run(&spec).await;
    assert!(text.contains("Cannot fork"), "{text}");
    assert_eq!(
        fs::metadata(work.path().join("big")).unwrap().len(),
        1 << 20
    );
}

/// Each script attacks one part of the sandbox and must print neither `hole` nor the secret.
#[tokio::test]
async fn probes_find_no_hole() {
    let (work, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(outside.path().join("secret"), "the secret").unwrap();
    fs::write(work.path().join(".env"), "the secret").unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret"), work.path().join("link")).unwrap();
    // A descriptor that `exec` does not close.
    let leaked = File::open(outside.path().join("secret")).unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let outside = outside.path().display();
    let pid = std::process::id();
    let user = rustix::process::getuid().as_raw();
    let probes = [
        format!("test \"$(id -u)\" = {user} || echo hole"),
        "ls /dev | grep -vxE 'fd|full|null|random|shm|std(in|out|err)|u?random|zero' && echo hole".to_owned(),
        format!("cat {outside}/secret"),
        "cat link".to_owned(),
        format!("ln {outside}/secret hard; ln -s {outside} s; cat hard s/secret"),
        format!("echo x > {outside}/new && echo hole"),
        "cat .env; cp .env copy; cat copy; ln .env l; cat l; mv .env e && cat e".to_owned(),
        "cat /etc/shadow /etc/passwd && echo hole".to_owned(),
        format!("ls /proc/{pid} && echo hole; kill -0 {pid} && echo hole; cat /proc/{pid}/environ && echo hole"),
        "ls /host /new /empty /limits && echo hole".to_owned(),
        "test -e /host && echo hole; test -e /new && echo hole; ls / | grep -vxE 'bin|dev|etc|lib|lib64|proc|sbin|tmp|usr|work' && echo hole".to_owned(),
        "touch /x && echo hole; mkdir /usr/x && echo hole; touch /etc/x && echo hole; touch /dev/x && echo hole".to_owned(),
        "mount -t tmpfs none /tmp && echo hole; umount /work && echo hole; umount /work/.env && echo hole".to_owned(),
        "unshare -r true && echo hole; unshare -U true && echo hole; unshare -m true && echo hole".to_owned(),
        "nsenter -t 1 -m true && echo hole; chroot /work true && echo hole".to_owned(),
        "mknod n c 1 3 && echo hole; mknod /tmp/n b 8 0 && echo hole".to_owned(),
        "cat /proc/sys/kernel/hostname && echo hole; ls /proc/sys && echo hole; cat /proc/kcore /proc/kmsg && echo hole".to_owned(),
        "hostname evil && echo hole; test \"$(hostname)\" = sandbox || echo hole".to_owned(),
        "kill -9 1; kill -STOP 1; sleep 0.01; test -d /proc/1 || echo hole".to_owned(),
        "cat /proc/1/root/etc/shadow && echo hole; ls /proc/1/cwd/host && echo hole; ls /proc/1/fd/ && cat /proc/1/fd/3 && echo hole".to_owned(),
        "ls -l /proc/self/fd | grep -E ' ([3-9]|[0-9]{2,}) -> ' | grep -v '/proc/' && echo hole".to_owned(),
        "test \"$(env | grep -vE '^(PATH|PWD|SHLVL|_|OLDPWD)=')\" && echo hole".to_owned(),
        "grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb):' /proc/self/status | grep -v 0000000000000000 && echo hole".to_owned(),
        "grep -q 'NoNewPrivs:.1' /proc/self/status || echo hole; grep -q 'Seccomp:.2' /proc/self/status || echo hole".to_owned(),
        "true > /proc/1/mem && echo hole; cat /proc/1/maps && echo hole; cat /proc/1/environ && echo hole".to_owned(),
        "dmesg && echo hole; sysctl -w kernel.pid_max=1 && echo hole".to_owned(),
        "cp /usr/bin/id /tmp/id; chmod u+s /tmp/id; /tmp/id -u > /work/u; su -c true && echo hole".to_owned(),
    ];
    for probe in probes {
        let mut spec = shell(&format!("{{ {probe}; }} 2>/dev/null"), work.path());
        spec.mounts.push(Mount::Hidden {
            at: "/work/.env".into(),
        });
        let (_, text) = run(&spec).await;
        assert!(
            !text.contains("hole") && !text.contains("the secret"),
            "{probe}: {text}"
        );
    }
}

#[tokio::test]
async fn dropped_programs_run_inside_the_sandbox_only() {
    let (work, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(outside.path().join("secret"), "the secret").unwrap();
    let secret = outside.path().join("secret");
    let secret = secret.display();
    let script = format!(
        "cp /usr/bin/cat c; echo 'cat {secret}' > d; for run in ./c '/lib*/ld-linux*.so.? ./c'; do \
         echo inside | $run; $run {secret} || echo refused; done; sh d || echo refused"
    );
    let text = run(&shell(&script, work.path())).await.1;
    let lines = text.lines().filter(|line| !line.contains("No such file"));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines, ["inside", "refused", "inside", "refused", "refused"]);
}

#[tokio::test]
async fn memory_is_limited() {
    let work = tempfile::tempdir().unwrap();
    let script =
        "head -c 4000000000 /dev/zero | tail -c 4000000000 > /dev/null && echo hole; echo end";
    let mut spec = shell(script, work.path());
    spec.limits.memory = Some(256 << 20);
    let text = run(&spec).await.1;
    assert!(text.ends_with("end\n") && !text.contains("hole"), "{text}");
}

#[tokio::test]
async fn directory_that_the_command_deletes_and_long_arguments_do_no_harm() {
    let work = tempfile::tempdir().unwrap();
    let script = "mkdir d; cd d; rmdir ../d; ls .. > /dev/null && echo listed; cat ../../etc/shadow && echo hole";
    let text = run(&shell(script, work.path())).await.1;
    assert!(!text.contains("hole"), "{text}");
    let mut spec = shell("echo $#", work.path());
    spec.argv.extend((0..1000).map(|_| "x".repeat(100)));
    assert_eq!(run(&spec).await, (Some(0), "999\n".to_owned()));
    spec.argv.push("x".repeat(1 << 18));
    let error = start(&spec).await.unwrap_err();
    assert!(
        matches!(
            &error,
            ExecError::Setup {
                stage: Stage::Program,
                ..
            }
        ),
        "{error:?}"
    );
}

/// A kernel with the x32 ABI runs each system call under a second number, with the same architecture. Without it, these
/// calls fail with `ENOSYS`.
#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn system_calls_of_the_x32_abi_are_forbidden() {
    let work = tempfile::tempdir().unwrap();
    let script = "
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
GETPID, UNSHARE, X32 = 39, 272, 0x40000000
for number in [GETPID, GETPID | X32, UNSHARE | X32]:
    ctypes.set_errno(0)
    libc.syscall(number, 0)
    print(ctypes.get_errno())
";
    fs::write(work.path().join("probe.py"), script).unwrap();
    let spec = shell("python3 probe.py", work.path());
    let (allowed, forbidden) = (0, libc::EPERM);
    let expected = format!("{allowed}\n{forbidden}\n{forbidden}\n");
    assert_eq!(run(&spec).await, (Some(0), expected));
}
