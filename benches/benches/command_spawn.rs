//! The cost of running `/bin/true` with `run_command`, compared with starting it without a sandbox.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::process::{Command, Stdio};
use std::time::Duration;

use bailiwick::{Policy, Runtime, ToolSet, WorkerSpec};
use bailiwick_benches::{Benchmark, Target, current_thread, run_task};
use bailiwick_exec::{CommandOutput, Commands};
use serde_json::json;

const BATCH: u32 = 20;
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

fn main() {
    // The sandbox starts this program again.
    bailiwick_exec::init();
    let root = tempfile::tempdir().unwrap();
    let tokio = current_thread().unwrap();
    let (runtime, worker) = tokio.block_on(async {
        let builder = Runtime::builder().root("r", root.path());
        let tools = ToolSet::new().actor(Commands::new());
        let builder = builder.allow("execute:command").tools(tools);
        let (runtime, _) = builder.build().await.unwrap();
        let policy = Policy::new();
        let spec = WorkerSpec::new("bench").policy(policy);
        let worker = runtime.spawn(spec).await.unwrap();
        (runtime, worker)
    });
    let mut benchmark = Benchmark::new("run /bin/true", Duration::from_secs(10))
        .case("spawn without a sandbox", Target::None, BATCH, |n| {
            for _ in 0..n {
                start(&mut Command::new(PROGRAM));
            }
        })
        .case("run_command", Target::None, BATCH, |n| {
            let worker = worker.clone();
            run_task(&tokio, async move {
                for _ in 0..n {
                    let arguments = json!({ "argv": ["true"], "cwd": "/r" });
                    let outcome = worker.call("run_command", arguments).await.unwrap();
                    let output = outcome.output::<CommandOutput>().unwrap();
                    assert_eq!(output.exit_code, Some(0));
                }
            });
        });
    if Command::new("bwrap")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok()
    {
        let dir = root.path().to_str().unwrap();
        benchmark = benchmark.case("bubblewrap", Target::None, BATCH, move |n| {
            for _ in 0..n {
                let mut command = Command::new("bwrap");
                command
                    .args(BUBBLEWRAP)
                    .args(["--bind", dir, "/r", PROGRAM]);
                start(&mut command);
            }
        });
    }
    benchmark.run();
    tokio.block_on(runtime.shutdown());
}

/// Runs a program that must succeed, and captures its output.
fn start(command: &mut Command) {
    assert!(command.output().unwrap().status.success(), "{command:?}");
}
