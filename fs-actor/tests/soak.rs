//! Mixed calls and faults on 1,000 workers: memory, descriptors, threads and tasks do not grow.
//!
//! By default a short form runs. `BAILIWICK_SOAK_MINUTES=30` runs it for about that long.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, makes its files itself and prints what it measured"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bailiwick::config::Namespace;
use bailiwick::journal::{Journal, JournalLimits};
use bailiwick::tool::{Interrupt, Prepared, ReadPermit};
use bailiwick::{
    Call, CallError, CallMeta, JsonLines, Policy, ReadTool, Reply, Runtime, ToolSet, ToolSpec,
    Verdict, VirtualPath, Worker, WorkerSpec,
};
use bailiwick_fs::Durability;
use bailiwick_test_support::numbers::Numbers;
use bailiwick_test_support::tools::{Latch, Panics, Said, Target, said};
use bailiwick_test_support::wait;
use serde_json::{Value, json};
use tokio::task::JoinSet;

const WORKERS: usize = 1_000;
/// Rounds of one call per worker, before the first measurement and between the two, in the short form.
const WARM_UP: usize = 2;
const ROUNDS: usize = 3;
/// Calls that hang in each round.
const HUNG: usize = 3;
/// Workers that are revoked and replaced in each round.
const REPLACED: usize = 10;

/// Hangs until the latch of the round is opened.
struct Stalls(Arc<Mutex<Latch>>);

impl ReadTool for Stalls {
    type Args = Target;
    type Output = Said;
    type Job = VirtualPath;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("stalls", "Stall", "Hangs for a while.")
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
        let job = names.path(&args.path)?;
        Ok(Prepared {
            needs: Vec::new(),
            job,
        })
    }

    fn read(&self, job: &VirtualPath, _: &ReadPermit) -> Result<Reply, Interrupt> {
        let latch = self.0.lock().unwrap().clone();
        latch.wait();
        Ok(said(job))
    }
}

/// What must not grow.
#[derive(Debug)]
struct Usage {
    resident_bytes: usize,
    descriptors: usize,
    threads: usize,
    tasks: usize,
}

impl Usage {
    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let field = |name: &str| -> usize {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let value = line.unwrap().split_whitespace().next().unwrap();
            value.parse().unwrap()
        };
        Self {
            resident_bytes: field("VmRSS:") << 10,
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
            threads: field("Threads:"),
            tasks: tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks(),
        }
    }
}

struct Soak {
    temp: tempfile::TempDir,
    runtime: Runtime,
    workers: Vec<Worker>,
    latch: Arc<Mutex<Latch>>,
    numbers: Numbers,
    /// Number of calls with each outcome.
    outcomes: BTreeMap<String, usize>,
}

impl Soak {
    async fn start() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("r");
        for folder in ["a", "b", "c/d"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("a/text"), "needle in\nsome lines\n".repeat(200)).unwrap();
        let limits = JournalLimits {
            bytes: 4 << 20,
            ..JournalLimits::default()
        };
        let latch = Arc::default();
        let audit = JsonLines::create(temp.path().join("audit.jsonl")).unwrap();
        let builder = Runtime::builder()
            .root("r", &root)
            .journal(Journal::open_with(temp.path().join("journal"), limits).unwrap())
            .audit(audit.segment_bytes(1 << 20))
            .tools(bailiwick_fs::tools())
            .tools(bailiwick_fs::undo_tools(Durability::Visible))
            .tools(
                ToolSet::new()
                    .reader(Panics)
                    .reader(Stalls(Arc::clone(&latch))),
            );
        let (runtime, _grants) = builder.build().await.unwrap();
        let mut soak = Self {
            temp,
            runtime,
            workers: Vec::new(),
            latch,
            numbers: Numbers(1),
            outcomes: BTreeMap::new(),
        };
        for _ in 0..WORKERS {
            let worker = soak.worker().await;
            soak.workers.push(worker);
        }
        soak
    }

    async fn worker(&self) -> Worker {
        let policy = Policy::new()
            .otherwise(Verdict::Allow)
            .ask("write:file:/r/c")
            .deny_glob("**/secret")
            .max_results(50);
        let spec = WorkerSpec::new("soak").policy(policy);
        self.runtime.spawn(spec).await.unwrap()
    }

    fn path(&mut self) -> String {
        let folder = ["a", "b", "c", "c/d", "e"][self.numbers.below(5)];
        let name = ["text", "x", "y", "z", "secret"][self.numbers.below(5)];
        format!("/r/{folder}/{name}")
    }

    /// A call that may succeed, be denied, be invalid or panic.
    fn call(&mut self) -> (&'static str, Value) {
        let (path, other) = (self.path(), self.path());
        let content = "line\n".repeat(self.numbers.below(500));
        let write =
            json!({"path": path, "content": content, "mode": "overwrite", "create_parents": true});
        match self.numbers.below(20) {
            0..3 => ("write_file", write),
            3..6 => ("read_file", json!({"path": path})),
            6 => (
                "edit_file",
                json!({"path": path, "edits": [{"old_text": "line", "new_text": "row", "replace_all": true}]}),
            ),
            7 => ("list_directory", json!({"path": "/r", "depth": 3})),
            8 => ("grep", json!({"path": "/r", "pattern": "needle|row"})),
            9 => ("find", json!({"path": "/r", "pattern": "**/te*"})),
            10 => (
                "move",
                json!({"from": path, "to": other, "overwrite": true}),
            ),
            11 => (
                "copy",
                json!({"from": path, "to": other, "overwrite": true}),
            ),
            12 => ("delete", json!({"path": path})),
            13 => {
                let write = json!({"tool": "write_file", "path": path, "content": content, "mode": "overwrite"});
                let delete = json!({"tool": "delete", "path": other});
                ("apply_batch", json!({"operations": [write, delete]}))
            }
            14 => ("undo", json!({})),
            15 => ("redo", json!({})),
            16 => ("panics", json!({"path": path})),
            17 => ("grep", json!({"path": "/r", "pattern": "("})),
            18 => ("no_such_tool", json!({"path": path})),
            _ => ("stat", json!({"path": other})),
        }
    }

    /// One call of each worker, at the same time, some of which are abandoned, hang or exceed their deadline, while
    /// another process removes files and some workers are revoked.
    async fn round(&mut self) {
        let latch = Latch::default();
        *self.latch.lock().unwrap() = latch.clone();
        let mut calls = JoinSet::new();
        let mut abandoned = Vec::new();
        for number in 0..WORKERS {
            let worker = self.workers[number].clone();
            let (mut tool, mut arguments) = self.call();
            let brief = number < HUNG || self.numbers.below(50) == 0;
            if number < HUNG {
                (tool, arguments) = ("stalls", json!({"path": "/r"}));
            }
            let deadline = brief.then_some(Duration::from_millis(20));
            let meta = CallMeta {
                deadline,
                ..CallMeta::default()
            };
            let call = Call::new(tool, arguments).meta(meta);
            match self.numbers.below(50) {
                0 => {
                    let caller = tokio::spawn({
                        let worker = worker.clone();
                        async move { worker.submit(call).await }
                    });
                    tokio::task::yield_now().await;
                    caller.abort();
                    abandoned.push(worker);
                }
                1 => {
                    calls.spawn(async move { worker.submit_preview(call).await.map(|_| ()) });
                }
                _ => {
                    calls.spawn(async move { worker.submit(call).await.map(|_| ()) });
                }
            }
        }
        // Another process removes files.
        let _ = fs::remove_dir_all(self.root().join("b"));
        self.replace_workers().await;
        while let Some(answer) = calls.join_next().await {
            let outcome = match answer.unwrap() {
                Ok(()) => "ok".to_owned(),
                Err(error) => error.code().to_string(),
            };
            *self.outcomes.entry(outcome).or_default() += 1;
        }
        latch.open();
        for worker in abandoned {
            if !worker.status().revoked {
                wait::for_calls(&self.runtime, &worker, 0).await;
            }
        }
        self.remove_finished_segments();
    }

    fn root(&self) -> PathBuf {
        self.temp.path().join("r")
    }

    /// Revokes some workers, half of them with a child.
    async fn replace_workers(&mut self) {
        for turn in 0..REPLACED {
            let index = HUNG + self.numbers.below(WORKERS - HUNG);
            if turn % 2 == 0 {
                let child = self.workers[index].spawn(WorkerSpec::new("child")).await;
                let _ = child.unwrap().call("stat", json!({"path": "/r/a"})).await;
            }
            self.workers[index].revoke().await;
            self.workers[index] = self.worker().await;
        }
    }

    /// The audit is kept on the disk, so a person moves finished segments away.
    fn remove_finished_segments(&self) {
        for entry in fs::read_dir(self.temp.path()).unwrap() {
            let path = entry.unwrap().path();
            if is_finished_segment(&path) {
                fs::remove_file(path).unwrap();
            }
        }
    }
}

fn is_finished_segment(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("audit.jsonl.0"))
}

/// The duration of the full form, if it was requested.
fn requested() -> Option<Duration> {
    let minutes = std::env::var("BAILIWICK_SOAK_MINUTES").ok()?;
    Some(Duration::from_secs_f64(
        minutes.parse::<f64>().unwrap() * 60.0,
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_grows_under_mixed_load_with_faults() {
    let mut soak = Soak::start().await;
    for _ in 0..WARM_UP {
        soak.round().await;
    }
    let started = Instant::now();
    let mut rounds = 0;
    let half = requested().map(|duration| duration / 2);
    while half.map_or(rounds < ROUNDS, |half| started.elapsed() < half) {
        soak.round().await;
        rounds += 1;
    }
    let before = Usage::now();
    for _ in 0..rounds {
        soak.round().await;
    }
    let after = Usage::now();
    println!("after {rounds} rounds: {before:?}");
    println!("after {} rounds: {after:?}", 2 * rounds);
    println!("outcomes: {:?}", soak.outcomes);

    let most = before.resident_bytes + before.resident_bytes / 10 + (16 << 20);
    assert!(after.resident_bytes <= most, "{before:?}, {after:?}");
    assert!(
        after.descriptors <= before.descriptors + 4,
        "{before:?}, {after:?}"
    );
    assert!(after.threads <= before.threads + 4, "{before:?}, {after:?}");
    assert!(
        after.tasks <= before.tasks + REPLACED,
        "{before:?}, {after:?}"
    );
    for outcome in [
        "ok",
        "DEADLINE",
        "INTERNAL",
        "NOT_FOUND",
        "PERMISSION_DENIED",
        "SCOPE_REQUIRED",
    ] {
        assert!(
            soak.outcomes.contains_key(outcome),
            "{outcome}: {:?}",
            soak.outcomes
        );
    }
    let path = json!({"path": "/r/a"});
    let working = soak.workers[HUNG].call("list_directory", path).await;
    assert!(working.is_ok(), "{working:?}");
}
