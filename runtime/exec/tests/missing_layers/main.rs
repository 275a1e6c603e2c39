//! Sandboxes on machines that do not support all layers. A filter of system calls, or a user namespace around the test,
//! takes a layer away.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and prepares files"
)]

#[cfg(feature = "interop")]
mod python;

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use std::sync::Arc;
use std::time::Duration;

use bailiwick::config::RootConfig;
use bailiwick::worker::Budget;
use bailiwick::{Code, Policy, Runtime, ToolSet, VirtualPath, WorkerSpec};
use bailiwick_exec::{
    CommandOutput, Commands, ConnectionReport, CopyLimits, Deciding, Decision, ExecError, Helper,
    Layer, LayerState, Mount, Process, Proxy, ProxyPolicy, SandboxSpec, Stdio, Target, self_test,
    spawn, spawn_with_proxy,
};
use bailiwick_test_support::forbidden_calls::forbid;
use rustix::io::Errno;
use serde_json::json;

/// What sandboxes without namespaces do not have.
const WITHOUT_NAMESPACES: [Layer; 3] = [Layer::Namespaces, Layer::Proc, Layer::ProcessLimit];

fn helper() -> Helper {
    Helper::At(env!("CARGO_BIN_EXE_bailiwick-exec-helper").into())
}

fn host(path: &Path, writable: bool) -> Mount {
    Mount::Host {
        source: path.to_owned(),
        at: path.to_owned(),
        writable,
        identity: None,
    }
}

/// A program in a sandbox with the system's programs and the directory `work`, all at their paths on the host.
fn program(argv: &[&str], work: &Path) -> SandboxSpec {
    let argv = argv.iter().map(|&argument| argument.to_owned()).collect();
    let mut spec = SandboxSpec::new(argv, work);
    spec.env = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
    for path in ["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache"].map(Path::new) {
        match fs::read_link(path) {
            Ok(target) => spec.mounts.push(Mount::Link {
                at: path.to_owned(),
                target,
            }),
            Err(_) if path.exists() => spec.mounts.push(host(path, false)),
            Err(_) => {}
        }
    }
    spec.mounts.push(host(work, true));
    spec
}

fn shell(script: &str, work: &Path) -> SandboxSpec {
    program(&["/bin/sh", "-c", script], work)
}

/// The same sandbox, which may have no namespaces.
fn optional(mut spec: SandboxSpec) -> SandboxSpec {
    spec.optional = WITHOUT_NAMESPACES.into();
    spec
}

fn stdio() -> (Stdio, std::io::PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let stdio = Stdio {
        stdin: File::open("/dev/null").unwrap().into(),
        stdout: writer.try_clone().unwrap().into(),
        stderr: writer.into(),
    };
    (stdio, reader)
}

async fn start(spec: &SandboxSpec) -> Result<(Process, std::io::PipeReader), ExecError> {
    let (stdio, reader) = stdio();
    Ok((spawn(spec, stdio, &helper()).await?, reader))
}

/// Runs a program to its end. Returns its output.
async fn run(spec: &SandboxSpec) -> String {
    let (mut process, mut reader) = start(spec).await.unwrap();
    let read = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    process.wait().await.unwrap();
    read.await.unwrap()
}

/// Checks that a sandbox is refused. Returns the layer and the reason.
async fn refused(spec: &SandboxSpec) -> (Layer, String) {
    match start(spec).await {
        Err(ExecError::Missing { layer, reason }) => (layer, reason),
        other => panic!("{other:?}"),
    }
}

/// Runs a test on a thread on which system calls fail, as they do for the helpers that it starts.
fn without<T: Send + 'static>(
    calls: Vec<i64>,
    test: impl AsyncFnOnce() -> T + Send + 'static,
) -> T {
    let thread = std::thread::spawn(move || {
        forbid(&calls, Errno::PERM);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(test())
    });
    thread.join().unwrap()
}

fn namespaces() -> Vec<i64> {
    vec![libc::SYS_unshare]
}

fn landlock() -> Vec<i64> {
    vec![libc::SYS_landlock_create_ruleset]
}

fn seccomp() -> Vec<i64> {
    vec![libc::SYS_seccomp]
}

fn overlayfs() -> Vec<i64> {
    vec![libc::SYS_fsopen]
}

/// Runs a test of this file again, after `setup` in a user namespace of its own.
fn again_in_user_namespace(test: &str, setup: &str) {
    let script = format!("set -e; {setup}; exec \"$0\" --exact \"$1\" --nocapture");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env("IN_USER_NAMESPACE", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

fn is_in_user_namespace() -> bool {
    std::env::var_os("IN_USER_NAMESPACE").is_some()
}

fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(test)
}

/// Checks the states of the self-test, and that it refuses to run programs unless `missing` are optional.
async fn self_test_finds_missing(missing: &[Layer]) {
    let result = self_test(&helper()).await;
    for (layer, state) in &result.layers {
        let is_missing = matches!(state, LayerState::Missing(reason) if !reason.is_empty());
        let expected = missing.contains(layer);
        assert_eq!(is_missing, expected, "{layer:?}: {state:?}");
        assert!(
            expected || *state == LayerState::Enforced,
            "{layer:?}: {state:?}"
        );
    }
    let is_needed = missing.iter().any(|layer| *layer != Layer::Overlay);
    let required = result.require(&[]);
    assert_eq!(
        matches!(required, Err(ExecError::Missing { .. })),
        is_needed,
        "{required:?}"
    );
    result.require(missing).unwrap();
}

/// The layers that the self-test misses without namespaces.
fn untested_without_namespaces() -> Vec<Layer> {
    let mut missing = missing_without_namespaces();
    missing.push(Layer::Overlay);
    missing
}

/// The layers that sandboxes without namespaces do not have for this user.
fn missing_without_namespaces() -> Vec<Layer> {
    let mut missing = WITHOUT_NAMESPACES.to_vec();
    if !rustix::process::getuid().is_root() {
        missing.retain(|layer| *layer != Layer::ProcessLimit);
    }
    missing
}

#[test]
fn missing_namespaces_are_refused_unless_they_are_optional() {
    without(namespaces(), async || {
        let work = tempfile::tempdir().unwrap();
        let spec = shell(": > ran; pwd", work.path());
        let (layer, reason) = refused(&spec).await;
        assert_eq!(layer, Layer::Namespaces);
        assert!(reason.contains("Operation not permitted"), "{reason}");
        assert!(!work.path().join("ran").exists());

        let spec = optional(spec);
        let pwd = format!("{}\n", work.path().display());
        assert_eq!(run(&spec).await, pwd);
        assert!(work.path().join("ran").exists());

        let (mut process, _reader) = start(&spec).await.unwrap();
        let missing: Vec<_> = process.missing().iter().map(|(layer, _)| *layer).collect();
        assert_eq!(missing, missing_without_namespaces());
        for layer in Layer::ALL {
            // Nothing is kept apart.
            let is_absent = missing.contains(&layer) || layer == Layer::Overlay;
            assert_eq!(process.layers().contains(&layer), !is_absent, "{layer:?}");
        }
        assert!(process.missing()[0].1.contains("Operation not permitted"));
        process.wait().await.unwrap();

        self_test_finds_missing(&untested_without_namespaces()).await;
    });
}

/// Allows all connections.
struct AllowAll;

impl ProxyPolicy for AllowAll {
    fn decide<'a>(&'a self, _target: &'a Target) -> Deciding<'a> {
        Box::pin(async { Decision::Allow })
    }

    fn report(&self, _report: ConnectionReport) {}
}

#[tokio::test]
async fn proxy_needs_namespaces_even_if_they_are_optional() {
    let start = async |spec: &SandboxSpec| {
        let proxy = Proxy::new(Arc::new(AllowAll));
        spawn_with_proxy(spec, stdio().0, &helper(), proxy).await
    };
    let work = tempfile::tempdir().unwrap();
    let spec = optional(shell(": > ran", work.path()));
    start(&spec).await.unwrap().wait().await.unwrap();
    assert!(work.path().join("ran").exists());

    without(namespaces(), async move || {
        let work = tempfile::tempdir().unwrap();
        let spec = optional(shell(": > ran", work.path()));
        match start(&spec).await {
            Err(ExecError::Missing { layer, .. }) => assert_eq!(layer, Layer::Namespaces),
            other => panic!("{other:?}"),
        }
        assert!(!work.path().join("ran").exists());
    });
}

#[test]
fn user_namespaces_of_number_zero_are_missing_namespaces() {
    let test = "user_namespaces_of_number_zero_are_missing_namespaces";
    if !is_in_user_namespace() {
        let setup = "echo 0 > /proc/sys/user/max_user_namespaces";
        return again_in_user_namespace(test, setup);
    }
    block_on(async {
        let work = tempfile::tempdir().unwrap();
        let spec = shell("echo ran", work.path());
        let (layer, reason) = refused(&spec).await;
        assert_eq!(layer, Layer::Namespaces);
        assert!(reason.contains("No space left"), "{reason}");
        assert_eq!(run(&optional(spec)).await, "ran\n");
        self_test_finds_missing(&untested_without_namespaces()).await;
    });
}

#[test]
fn forbidden_mounts_are_missing_namespaces() {
    let calls = vec![libc::SYS_mount];
    without(calls, async || {
        let work = tempfile::tempdir().unwrap();
        let spec = shell("echo ran", work.path());
        assert_eq!(refused(&spec).await.0, Layer::Namespaces);
        assert_eq!(run(&optional(spec)).await, "ran\n");
    });
}

/// Each script attacks one part of the sandbox and must print neither `hole` nor the secret.
#[test]
fn probes_find_no_hole_without_namespaces() {
    without(namespaces(), async || {
        let (work, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("secret"), "the secret").unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), work.path().join("link"))
            .unwrap();
        let outside = outside.path().display();
        let pid = std::process::id();
        let probes = [
            format!("cat {outside}/secret; cat link; cat {}/../*/secret", work.path().display()),
            format!("ln {outside}/secret hard; ln -s {outside} s; cat hard s/secret"),
            format!("echo x > {outside}/new && echo hole; mkdir {outside}/new && echo hole"),
            format!("mv {outside}/secret . && echo hole; rm {outside}/secret && echo hole"),
            "ls / && echo hole; ls /tmp && echo hole; ls /dev && echo hole; ls /home /root && echo hole".to_owned(),
            "cat /etc/passwd && echo hole; cat /etc/shadow && echo hole".to_owned(),
            "ls /proc && echo hole; cat /proc/self/environ && echo hole; cat /proc/1/cmdline && echo hole".to_owned(),
            format!("kill -0 {pid} && echo hole; kill -0 1 && echo hole; kill -0 $PPID && echo hole"),
            "(: > /usr/x) && echo hole; (: > /dev/shm/x) && echo hole; (: > /tmp/x) && echo hole".to_owned(),
            "unshare -r true && echo hole; mount -t tmpfs none . && echo hole; mknod n c 1 3 && echo hole".to_owned(),
            "nsenter -t 1 -m true && echo hole; chroot . /bin/true && echo hole".to_owned(),
            "test \"$(env | grep -vE '^(PATH|PWD|SHLVL|_|OLDPWD)=')\" && echo hole".to_owned(),
            "cat /dev/null && echo x > /dev/null && head -c 1 /dev/urandom > byte && test -s byte || echo hole".to_owned(),
        ];
        for probe in probes {
            let spec = optional(shell(&format!("{{ {probe}; }} 2>/dev/null"), work.path()));
            let text = run(&spec).await;
            assert!(
                !text.contains("hole") && !text.contains("the secret"),
                "{probe}: {text}"
            );
        }
    });
}

#[test]
fn mounts_that_need_namespaces_are_refused_without_them() {
    without(namespaces(), async || {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path();
        for name in ["part", "other"] {
            fs::create_dir(work.join(name)).unwrap();
        }
        let with = |mount: Mount| {
            let mut spec = optional(shell(": > part/made && echo ran", work));
            spec.mounts.push(mount);
            spec
        };
        let part = work.join("part");
        for mount in [
            Mount::Hidden { at: part.clone() },
            Mount::Hidden {
                at: work.join("missing"),
            },
            Mount::Within {
                at: part.clone(),
                writable: false,
            },
            Mount::Host {
                source: part.clone(),
                at: "/part".into(),
                writable: true,
                identity: None,
            },
            host(&part, false),
        ] {
            let (layer, reason) = refused(&with(mount.clone())).await;
            assert_eq!(layer, Layer::Namespaces, "{mount:?}");
            assert!(reason.contains("Operation not permitted"), "{reason}");
        }
        assert!(!part.join("made").exists());
        for mount in [
            Mount::Within {
                at: part.clone(),
                writable: true,
            },
            host(&part, true),
            Mount::Temporary {
                at: "/tmp/x".into(),
                bytes: 1 << 20,
            },
        ] {
            assert_eq!(run(&with(mount.clone())).await, "ran\n", "{mount:?}");
        }
    });
}

/// A file that matches may appear while the command runs, and only a mount can hide it. Memory is measured in the `/proc` of
/// the namespaces.
#[test]
fn command_of_a_worker_with_deny_globs_or_a_budget_of_memory_needs_namespaces() {
    without(namespaces(), async || {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let mount = VirtualPath::parse(root.to_str().unwrap(), None).unwrap();
        let commands = Commands::new().helper(helper());
        let tools = ToolSet::new().actor(commands.optional(&WITHOUT_NAMESPACES));
        let builder = Runtime::builder().tools(tools).allow("execute:command");
        let builder = builder.root_with(RootConfig::new(mount), &root, true);
        let (runtime, _) = builder.build().await.unwrap();
        let free = Policy::nothing()
            .allow("read:file")
            .allow("execute:command");
        let limited = Budget {
            memory_bytes: Some(1 << 30),
            ..Budget::default()
        };
        for (policy, budget, runs) in [
            (free.clone(), Budget::default(), true),
            (free.clone(), limited, false),
            (free.deny_glob("**/.env"), Budget::default(), false),
        ] {
            let spec = WorkerSpec::new("tester").policy(policy).budget(budget);
            let worker = runtime.spawn(spec).await.unwrap();
            let arguments = json!({ "argv": ["echo", "ran"], "cwd": root });
            match worker.call("run_command", arguments).await {
                Ok(outcome) => {
                    let output = outcome.output::<CommandOutput>().unwrap();
                    assert_eq!((output.stdout.as_str(), runs), ("ran\n", true));
                }
                Err(error) => {
                    assert!(!runs, "{error}");
                    assert_eq!(error.code(), Code::Io);
                    assert!(error.message().contains("namespaces"), "{error}");
                }
            }
        }
    });
}

#[test]
fn only_the_writable_part_is_writable_without_namespaces() {
    without(namespaces(), async || {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().canonicalize().unwrap();
        fs::create_dir(work.join("part")).unwrap();
        let script = "(: > a) && echo hole; (: > part/b) && mv part/b part/c && echo moved; cat part/c && echo read";
        let mut spec = optional(shell(&format!("{{ {script}; }} 2>/dev/null"), &work));
        let Some(Mount::Host { writable, .. }) = spec.mounts.last_mut() else {
            panic!()
        };
        *writable = false;
        spec.mounts.push(Mount::Within {
            at: work.join("part"),
            writable: true,
        });
        assert_eq!(run(&spec).await, "moved\nread\n");
        // A link could lead anywhere.
        std::os::unix::fs::symlink("/dev", work.join("link")).unwrap();
        spec.mounts.push(Mount::Within {
            at: work.join("link"),
            writable: true,
        });
        assert!(matches!(start(&spec).await, Err(ExecError::Setup { .. })));
        spec.mounts.pop();
        spec.mounts.push(Mount::Host {
            source: work.join("part"),
            at: work.join("part"),
            writable: true,
            identity: Some((1, 1)),
        });
        assert!(matches!(start(&spec).await, Err(ExecError::Setup { .. })));
    });
}

#[test]
fn nothing_of_the_sandbox_runs_after_the_program_or_a_kill_without_namespaces() {
    without(namespaces(), async || {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path();
        // The other processes hold the pipe open: the output ends only when they are dead.
        let spec = shell(
            "setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &) ; exit 0",
            work,
        );
        assert_eq!(run(&optional(spec)).await, "");

        let script = "trap '' TERM HUP; setsid sleep 1000 & (sleep 1000 &) ; echo up; sleep 1000";
        let spec = optional(shell(script, work));
        let mut up = [0; 3];
        let (mut process, mut reader) = start(&spec).await.unwrap();
        reader.read_exact(&mut up).unwrap();
        process.kill().await.unwrap();
        assert_eq!(reader.read(&mut up).unwrap(), 0);

        let (process, mut reader) = start(&spec).await.unwrap();
        reader.read_exact(&mut up).unwrap();
        drop(process);
        assert_eq!(reader.read(&mut up).unwrap(), 0);
    });
}

#[test]
fn exit_and_failed_start_are_reported_without_namespaces() {
    use std::os::unix::process::ExitStatusExt as _;
    without(namespaces(), async || {
        let dir = tempfile::tempdir().unwrap();
        for (script, code, signal) in [
            ("exit 3", Some(3), None),
            ("(exit 5) & kill -SEGV $$", None, Some(11)),
        ] {
            let (mut process, _reader) = start(&optional(shell(script, dir.path()))).await.unwrap();
            let status = process.wait().await.unwrap().status;
            assert_eq!((status.code(), status.signal()), (code, signal));
        }
        let spec = optional(program(&["/bin/missing"], dir.path()));
        let failed = start(&spec).await;
        assert!(matches!(failed, Err(ExecError::Setup { .. })), "{failed:?}");
    });
}

#[test]
fn limits_hold_without_namespaces() {
    without(namespaces(), async || {
        let dir = tempfile::tempdir().unwrap();
        let script = "head -c 2000000 /dev/zero > big; i=0; while [ $i -lt 400 ]; do sleep 100 & i=$((i+1)); done; echo end";
        let mut spec = optional(shell(script, dir.path()));
        spec.limits.file_size = Some(1 << 20);
        spec.limits.processes = Some(300);
        let text = run(&spec).await;
        let big = fs::metadata(dir.path().join("big")).unwrap();
        assert_eq!(big.len(), 1 << 20);
        // Linux does not limit the processes of user 0.
        let is_limited = !rustix::process::getuid().is_root();
        assert_eq!(text.contains("Cannot fork"), is_limited, "{text}");
        // The text is `end`, unless the shell has ended because of the limit.
        assert!(is_limited || text.ends_with("end\n"), "{text}");
    });
}

#[test]
fn missing_landlock_is_refused_unless_it_is_optional_and_namespaces_exist() {
    without(landlock(), async || {
        let dir = tempfile::tempdir().unwrap();
        let mut spec = shell("echo ran", dir.path());
        assert_eq!(refused(&spec).await.0, Layer::Landlock);
        spec.optional = vec![Layer::Landlock];
        assert_eq!(run(&spec).await, "ran\n");
        self_test_finds_missing(&[Layer::Landlock]).await;
    });
    let mut calls = landlock();
    calls.extend(namespaces());
    without(calls, async || {
        let dir = tempfile::tempdir().unwrap();
        let mut spec = shell("echo ran", dir.path());
        spec.optional = Layer::ALL.into();
        assert_eq!(refused(&spec).await.0, Layer::Landlock);
        let result = self_test(&helper()).await;
        let is_missing = |state: &LayerState| matches!(state, LayerState::Missing(_));
        assert!(
            result.layers.iter().all(|(_, state)| is_missing(state)),
            "{result:?}"
        );
    });
}

/// A script whose changes of `work` are kept apart.
fn apart(script: &str, work: &Path) -> SandboxSpec {
    let mut spec = shell(script, work);
    spec.mounts.pop();
    spec.mounts.push(Mount::Overlay {
        source: work.to_owned(),
        at: work.to_owned(),
        writable: true,
        identity: None,
    });
    spec
}

#[test]
fn missing_overlayfs_is_refused_unless_it_is_optional_or_not_needed() {
    let without_attributes = vec![libc::SYS_setxattr];
    for (calls, why) in [
        (overlayfs(), "cannot be mounted"),
        (without_attributes, "extended attributes"),
    ] {
        without(calls, async move || {
            let dir = tempfile::tempdir().unwrap();
            let work = dir.path();
            fs::write(work.join("a"), "text\n").unwrap();
            let script = "echo more >> a; cat a";
            let (layer, reason) = refused(&apart(script, work)).await;
            assert_eq!(layer, Layer::Overlay);
            assert!(reason.contains(why), "{reason}");

            let mut copied = apart(script, work);
            copied.optional = vec![Layer::Overlay];
            let (mut process, _) = start(&copied).await.unwrap();
            process.wait().await.unwrap();
            let missing = &process.missing()[0];
            assert_eq!(missing.0, Layer::Overlay);
            assert!(missing.1.contains("files are copied"), "{}", missing.1);
            assert_eq!(run(&copied).await, "text\nmore\n");
            assert_eq!(fs::read_to_string(work.join("a")).unwrap(), "text\n");

            let (mut process, _) = start(&shell(script, work)).await.unwrap();
            process.wait().await.unwrap();
            assert!(process.missing().is_empty(), "{:?}", process.missing());
            assert_eq!(fs::read_to_string(work.join("a")).unwrap(), "text\nmore\n");
            self_test_finds_missing(&[Layer::Overlay]).await;
        });
    }
}

#[test]
fn directories_that_exceed_the_limits_are_not_copied() {
    without(overlayfs(), async || {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path();
        fs::create_dir(work.join("d")).unwrap();
        for name in ["a", "d/b"] {
            fs::write(work.join(name), [b'x'; 1000]).unwrap();
        }
        let spec = |change: &dyn Fn(&mut CopyLimits)| {
            let mut spec = apart(": > ran; cat d/b | wc -c", work);
            spec.optional = vec![Layer::Overlay];
            change(&mut spec.copy);
            spec
        };
        type Change = fn(&mut CopyLimits);
        let cases: [(Change, Change, &str); 3] = [
            (
                |limits| limits.entries = 3,
                |limits| limits.entries = 2,
                "2 files and directories",
            ),
            (
                |limits| limits.bytes = 2000,
                |limits| limits.bytes = 1999,
                "1999 bytes",
            ),
            (
                |limits| limits.time = Duration::from_secs(60),
                |limits| limits.time = Duration::ZERO,
                "0 seconds",
            ),
        ];
        for (allowed, exceeded, expected) in cases {
            assert_eq!(run(&spec(&allowed)).await, "1000\n", "{expected}");
            match start(&spec(&exceeded)).await {
                Err(ExecError::TooLarge { limit }) => assert_eq!(limit, expected),
                other => panic!("{other:?}"),
            }
        }
    });
}

/// The states and the preview say that files are copied, and a root that is too large is refused before anything runs.
#[test]
fn command_without_overlayfs_is_refused_if_its_files_are_too_large_to_copy() {
    without(overlayfs(), async || {
        let tested = self_test(&helper()).await;
        for (bytes, is_refused) in [(1_000, false), (999, true)] {
            let root = tempfile::tempdir().unwrap();
            fs::write(root.path().join("a"), [b'x'; 1000]).unwrap();
            let mut limits = CopyLimits::default();
            limits.bytes = bytes;
            let commands = Commands::new().helper(helper()).tested(tested.clone());
            let builder = Runtime::builder()
                .root("repo", root.path())
                .tools(commands.copy_limits(limits).tools());
            let (runtime, _) = builder.allow("execute:command").build().await.unwrap();
            let policy = Policy::nothing().allow("read:file").ask("write:file");
            let policy = policy.allow("execute:command");
            let spec = WorkerSpec::new("tester").policy(policy);
            let worker = runtime.spawn(spec).await.unwrap();
            let script = "wc -c < a; echo x > a";
            let arguments = json!({ "argv": ["sh", "-c", script], "cwd": "/repo" });
            let preview = worker.preview("run_command", arguments.clone());
            let resources = preview.await.unwrap().resources;
            let mut summaries = resources.iter().map(|change| &change.summary);
            assert!(
                summaries.any(|text| text.contains("all files are copied")),
                "{resources:?}"
            );
            let status = worker.status();
            let mut layers = status.layers.iter();
            let layer = layers.find(|layer| layer.name == "overlayfs").unwrap();
            assert!(
                matches!(&layer.state, LayerState::Missing(why) if why.contains("copied instead")),
                "{layer:?}"
            );
            match worker.call("run_command", arguments).await {
                Ok(outcome) => {
                    assert!(!is_refused);
                    let output = outcome.output::<CommandOutput>().unwrap();
                    assert_eq!(output.stdout, "1000\n");
                    assert_eq!(output.changes.as_ref().unwrap().total, 1);
                }
                Err(error) => {
                    assert!(is_refused, "{error}");
                    assert_eq!(error.code(), Code::TooLarge);
                    assert!(error.message().contains("more than 999 bytes"), "{error}");
                }
            }
            assert_eq!(fs::metadata(root.path().join("a")).unwrap().len(), 1000);
        }
    });
}

#[test]
fn missing_seccomp_is_refused_unless_it_is_optional_and_namespaces_exist() {
    without(seccomp(), async || {
        let dir = tempfile::tempdir().unwrap();
        let mut spec = shell("echo ran", dir.path());
        assert_eq!(refused(&spec).await.0, Layer::Seccomp);
        spec.optional = vec![Layer::Seccomp];
        assert_eq!(run(&spec).await, "ran\n");
        self_test_finds_missing(&[Layer::Seccomp]).await;
    });
    let mut calls = seccomp();
    calls.extend(namespaces());
    without(calls, async || {
        let dir = tempfile::tempdir().unwrap();
        let mut spec = shell("echo ran", dir.path());
        spec.optional = Layer::ALL.into();
        assert_eq!(refused(&spec).await.0, Layer::Seccomp);
    });
}

/// A container covers parts of `/proc`; Linux then forbids to mount another one.
#[test]
fn proc_that_cannot_be_mounted_is_refused_unless_it_is_optional() {
    let test = "proc_that_cannot_be_mounted_is_refused_unless_it_is_optional";
    if !is_in_user_namespace() {
        return again_in_user_namespace(test, "mount -t tmpfs none /proc/sys/fs");
    }
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let mut spec = shell("ls -A /proc; echo ran", dir.path());
        spec.limits.processes = None;
        let (layer, reason) = refused(&spec).await;
        assert_eq!(layer, Layer::Proc);
        assert!(reason.contains("cannot mount /proc"), "{reason}");
        spec.optional = vec![Layer::Proc];
        assert_eq!(run(&spec).await, "ran\n");
        // The limit of user 0 is set in a mount of `/proc`.
        spec.limits.processes = Some(512);
        assert_eq!(refused(&spec).await.0, Layer::ProcessLimit);
        self_test_finds_missing(&[Layer::Proc, Layer::ProcessLimit]).await;
    });
}

#[tokio::test]
async fn limit_of_the_host_below_that_of_the_sandbox_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = shell("ulimit -n", dir.path());
    spec.limits.open_files = Some(1 << 40);
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    assert_eq!(run(&spec).await, format!("{}\n", hard.unwrap()));
}
