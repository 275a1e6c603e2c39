//! The cost of running `/bin/true` with `run_command`, compared with starting it without a sandbox, with bubblewrap and with
//! `srt`, the sandbox runtime of Anthropic.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bailiwick::{Policy, Runtime, Worker, WorkerSpec};
use bailiwick_benches::{Benchmark, Target, current_thread, run_task};
use bailiwick_exec::{CommandOutput, Commands};
use serde_json::json;

const BATCH: u32 = 20;
/// The time between two commands of an agent, at least.
const PAUSE: Duration = Duration::from_millis(50);
const PROGRAM: &str = "/bin/true";
/// The same directories, namespaces and temporary directory as the sandbox of `run_command`. bubblewrap has no Landlock
/// rules and no seccomp filter, unless a caller passes one.
const BUBBLEWRAP: &[&str] = &[
    "--unshare-all",
    "--die-with-parent",
    "--new-session",
    "--clearenv",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
];

/// No network, and no changes outside the current directory.
const SRT: &str = r#"{
    "network": { "allowedDomains": [], "deniedDomains": [] },
    "filesystem": { "denyRead": [], "allowWrite": ["."], "denyWrite": [] }
}"#;

fn main() {
    // The sandbox starts this program again.
    bailiwick_exec::init();
    let root = tempfile::tempdir().unwrap();
    let tokio = current_thread().unwrap();
    let (runtime, worker) = tokio.block_on(async {
        let builder = Runtime::builder().root("r", root.path());
        let tools = Commands::new().tools();
        let builder = builder.allow("execute:command").tools(tools);
        let (runtime, _) = builder.build().await.unwrap();
        let policy = Policy::new();
        let spec = WorkerSpec::new("bench").policy(policy);
        let worker = runtime.spawn(spec).await.unwrap();
        (runtime, worker)
    });
    let run = |mode: &'static str| {
        let (worker, tokio) = (worker.clone(), &tokio);
        move |n: u32| run_task(tokio, run_commands(worker.clone(), mode, n))
    };
    back_to_back(root.path(), run("live"), run("overlay"));
    after_a_pause(root.path(), run("live"), run("overlay"));
    tokio.block_on(runtime.shutdown());
}

async fn run_commands(worker: Worker, mode: &'static str, n: u32) {
    for _ in 0..n {
        let arguments = json!({ "argv": ["true"], "cwd": "/r", "mode": mode });
        let outcome = worker.call("run_command", arguments).await.unwrap();
        let output = outcome.output::<CommandOutput>().unwrap();
        assert_eq!(output.exit_code, Some(0));
    }
}

/// Each command starts when the one before has ended.
fn back_to_back(dir: &Path, live: impl FnMut(u32), overlay: impl FnMut(u32)) {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../peers/node_modules/.bin/srt");
    let settings = dir.join("srt.json");
    std::fs::write(&settings, SRT).unwrap();
    let with_srt = || srt(&program, &settings, dir);
    let mut benchmark = Benchmark::new("run /bin/true", Duration::from_secs(10))
        .case("spawn without a sandbox", Target::None, BATCH, |n| {
            for _ in 0..n {
                start(&mut Command::new(PROGRAM));
            }
        })
        .case("start of a helper alone", Target::None, BATCH, |n| {
            for _ in 0..n {
                // It ends at once, since this is not a role of a helper.
                let mut helper = Command::new("/proc/self/exe");
                let ended = helper.arg0("bailiwick-exec").arg("none").output();
                assert_eq!(ended.unwrap().status.code(), Some(2));
            }
        })
        .case("run_command, live", Target::Times(2.0), BATCH, live)
        .case("run_command, overlay", Target::None, BATCH, overlay);
    if is_installed("bwrap") {
        benchmark = benchmark.case("bubblewrap", Target::None, BATCH, |n| {
            for _ in 0..n {
                start(&mut bubblewrap(dir));
            }
        });
    }
    if with_srt()
        .output()
        .is_ok_and(|output| output.status.success())
    {
        benchmark = benchmark.case("srt", Target::None, 1, |n| {
            for _ in 0..n {
                start(&mut with_srt());
            }
        });
    }
    benchmark.run();
}

/// Agents think between two commands, and the helper of the next one is ready then.
fn after_a_pause(dir: &Path, live: impl FnMut(u32), overlay: impl FnMut(u32)) {
    let pause = || std::thread::sleep(PAUSE);
    let spawn = |_| start(&mut Command::new(PROGRAM));
    let mut benchmark = Benchmark::new("run /bin/true after a pause", Duration::from_secs(10))
        .case_then("spawn without a sandbox", Target::None, 1, spawn, pause)
        .case_then("run_command, live", Target::Times(2.0), 1, live, pause)
        .case_then("run_command, overlay", Target::None, 1, overlay, pause);
    if is_installed("bwrap") {
        let bubblewrap = |_| start(&mut bubblewrap(dir));
        benchmark = benchmark.case_then("bubblewrap", Target::None, 1, bubblewrap, pause);
    }
    benchmark.run();
}

fn bubblewrap(dir: &Path) -> Command {
    let mut command = Command::new("bwrap");
    command.args(BUBBLEWRAP).arg("--bind").arg(dir);
    command.args(["/r", PROGRAM]);
    command
}

fn is_installed(program: impl AsRef<OsStr>) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null());
    command.status().is_ok()
}

/// `srt` also needs other programs, such as `socat`, and fails without them.
fn srt(program: &Path, settings: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).arg("--settings").arg(settings);
    command.arg(PROGRAM);
    command
}

/// Runs a program that must succeed, and captures its output.
fn start(command: &mut Command) {
    assert!(command.output().unwrap().status.success(), "{command:?}");
}
