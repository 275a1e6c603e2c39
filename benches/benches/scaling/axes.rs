//! The axes: what grows, and the operations that are measured.

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;

use bailiwick::config::RootConfig;
use bailiwick::permission::{AskLimits, Deciding, GrantAuthority, GrantHolder, Lifetime, NewGrant};
use bailiwick::policy::Authority;
use bailiwick::scope::Coverage;
use bailiwick::tool::ToolName;
use bailiwick::{
    Answer, Approver, Config, Origin, Policy, Question, Runtime, Scope, Verb, Verdict, VirtualPath,
    Worker, WorkerSpec,
};
use bailiwick_benches::{NOOP, Noop, NoopArgs, brief, build_runtime, multi_thread, run_task};
use bailiwick_exec::Commands;
use serde_json::{Value, json};

use crate::Axis;

/// Measures all operations of an axis.
type Measure = fn() -> Axis;

/// The axes by their names.
pub(crate) const ALL: [(&str, Measure); 8] = [
    ("workers", workers),
    ("globs", globs),
    ("layers", layers),
    ("grants", grants),
    ("questions", questions),
    ("tree", tree),
    ("command", command),
    ("file", file),
];

/// Powers of ten up to `max`.
fn powers(max: usize) -> impl Iterator<Item = usize> {
    let max = if brief() { 10 } else { max };
    std::iter::successors(Some(1), |size| Some(size * 10)).take_while(move |size| *size <= max)
}

fn path(text: &str) -> VirtualPath {
    VirtualPath::parse(text, None).unwrap()
}

fn workers() -> Axis {
    let mut axis = Axis::new("workers", "Live workers", "workers");
    for size in powers(100_000) {
        let tokio = multi_thread().unwrap();
        let root = tempfile::tempdir().unwrap();
        let (runtime, spec) = tokio.block_on(build_runtime(root.path(), 65_536)).unwrap();
        let workers = spawn(&tokio, &runtime, size, |_| spec.clone());
        // The first call of each starts its actor.
        call_each(&tokio, &runtime, workers.clone());
        let mut turn = workers.iter().cycle();
        axis.measure("call a tool, workers in turn", size, |times| {
            let own: Vec<Worker> = turn.by_ref().take(times as usize).cloned().collect();
            call_each(&tokio, &runtime, own);
        });
        axis.measure("spawn and revoke a worker", size, |times| {
            let (runtime, spec) = (runtime.clone(), spec.clone());
            run_task(&tokio, async move {
                for n in 0..times {
                    let worker = runtime.spawn(spec.clone()).await.unwrap();
                    worker.revoke().await;
                    if n % 1_000 == 0 {
                        runtime.flush_audit().await.unwrap();
                    }
                }
                runtime.flush_audit().await.unwrap();
            });
        });
    }
    axis
}

/// Spawns `count` workers.
fn spawn(
    tokio: &tokio::runtime::Runtime,
    runtime: &Runtime,
    count: usize,
    spec: impl Fn(usize) -> WorkerSpec,
) -> Vec<Worker> {
    tokio.block_on(async {
        let mut workers = Vec::with_capacity(count);
        for n in 0..count {
            workers.push(runtime.spawn(spec(n)).await.unwrap());
            if n % 1_000 == 0 {
                runtime.flush_audit().await.unwrap();
            }
        }
        runtime.flush_audit().await.unwrap();
        workers
    })
}

/// Calls the tool that does nothing once for each of `workers`, and writes the audit log.
fn call_each(tokio: &tokio::runtime::Runtime, runtime: &Runtime, workers: Vec<Worker>) {
    let (noop, runtime) = (ToolName::new(NOOP), runtime.clone());
    run_task(tokio, async move {
        for (n, worker) in workers.iter().enumerate() {
            worker.call_typed(&noop, NoopArgs {}).await.unwrap();
            if n % 1_000 == 0 {
                runtime.flush_audit().await.unwrap();
            }
        }
        runtime.flush_audit().await.unwrap();
    });
}

fn host() -> Authority {
    let config = Config::new().root(RootConfig::new(path("/r")));
    Authority::configured(&config).unwrap()
}

fn policy(globs: impl Iterator<Item = String>) -> Policy {
    let open = Policy::new().allow("read:file:/r").ask("write:file:/r");
    globs.fold(open, |policy, glob| policy.deny_glob(&glob))
}

/// Typical globs: names, directories and extensions.
fn glob(owner: usize, n: usize) -> String {
    match n % 3 {
        0 => format!("**/.secret-{owner}-{n}"),
        1 => format!("private-{owner}-{n}/**"),
        _ => format!("**/*.key-{owner}-{n}"),
    }
}

fn narrowed(authority: &Authority, policy: &Policy) -> Authority {
    let layer = authority.admit(policy, Origin::Human).unwrap();
    authority.narrow(&layer)
}

fn judged(need: &Scope, authority: &Authority, grants: &[Coverage], times: u32) {
    for _ in 0..times {
        let verdict = authority.judge(black_box(need), grants);
        assert_eq!(verdict, Verdict::Allow);
    }
}

fn globs() -> Axis {
    let mut axis = Axis::new("globs", "Globs of one policy", "globs");
    let need = Scope::file(Verb::Read, path("/r/src/policy/narrow.rs"));
    let host = host();
    let mut fresh = 0;
    for size in powers(1_000) {
        let authority = narrowed(&host, &policy((0..size).map(|n| glob(0, n))));
        axis.measure("judge a need", size, |times| {
            judged(&need, &authority, &[], times);
        });
        axis.measure("narrow by a new policy", size, |times| {
            for _ in 0..times {
                fresh += 1;
                narrowed(&host, &policy((0..size).map(|n| glob(fresh, n))));
            }
        });
    }
    axis
}

fn layers() -> Axis {
    let mut axis = Axis::new(
        "layers",
        "Policies of 20 globs below each other",
        "policies",
    );
    let need = Scope::file(Verb::Read, path("/r/src/policy/narrow.rs"));
    let one = |layer| policy((0..20).map(|n| glob(layer, n)));
    let mut authority = host();
    let mut count = 0;
    for size in [1, 2, 4, 8, 16, 32, 64] {
        while count < size {
            authority = narrowed(&authority, &one(count));
            count += 1;
        }
        axis.measure("judge a need", size, |times| {
            judged(&need, &authority, &[], times);
        });
        let known = one(0);
        axis.measure("narrow by a known policy", size, |times| {
            for _ in 0..times {
                black_box(narrowed(&authority, &known));
            }
        });
    }
    axis
}

fn grants() -> Axis {
    let mut axis = Axis::new("grants", "Grants of one worker", "grants");
    let covering = |n: usize| -> Coverage { format!("read:file:/r/src/{n}").parse().unwrap() };
    let asks = || Policy::new().ask("read:file:/r");
    let authority = narrowed(&host(), &asks());
    for size in powers(1_000) {
        let mut held: Vec<Coverage> = (1..size).map(covering).collect();
        held.push("read:file:/r/src/main.rs".parse().unwrap());
        let need = Scope::file(Verb::Read, path("/r/src/main.rs"));
        axis.measure("judge a need, by the last one", size, |times| {
            judged(&need, &authority, &held, times);
        });
        let tokio = multi_thread().unwrap();
        let root = tempfile::tempdir().unwrap();
        let (runtime, grants, worker) = tokio.block_on(async {
            let (runtime, grants) = asking(root.path()).await;
            let worker = runtime.spawn(WorkerSpec::new("bench").policy(asks())).await;
            (runtime, grants, worker.unwrap())
        });
        tokio.block_on(async {
            for pattern in held {
                grants.grant(grant(&worker, pattern)).await.unwrap();
            }
        });
        axis.measure("call a tool, by the last one", size, |times| {
            call_each(&tokio, &runtime, vec![worker.clone(); times as usize]);
        });
        axis.measure("grant and revoke one more", size, |times| {
            tokio.block_on(async {
                for _ in 0..times {
                    let one = grant(&worker, covering(0));
                    let id = grants.grant(one).await.unwrap();
                    grants.revoke(id).await.unwrap();
                }
                runtime.flush_audit().await.unwrap();
            });
        });
    }
    axis
}

fn grant(worker: &Worker, pattern: Coverage) -> NewGrant {
    NewGrant {
        pattern,
        holder: GrantHolder::Worker(worker.id()),
        lifetime: Lifetime::Session,
        descendants: false,
    }
}

/// Answers questions of workers with the name `asks` and leaves those of others open.
struct AnswersSome;

impl Approver for AnswersSome {
    fn is_person(&self, _: &Answer) -> bool {
        false
    }

    fn decide<'q>(&'q self, question: &'q Question) -> Deciding<'q> {
        if question.request.agent_path == ["asks"] {
            Box::pin(std::future::ready(Answer::ONCE))
        } else {
            Box::pin(std::future::pending())
        }
    }
}

/// A runtime whose workers may have any number of questions.
async fn asking(root: &Path) -> (Runtime, GrantAuthority) {
    let limits = AskLimits {
        per_minute: usize::MAX,
        open_per_worker: 16,
        open: usize::MAX,
        waiting_per_question: 16,
    };
    let builder = Runtime::builder()
        .root("r", root)
        .tools(bailiwick_fs::tools().reader(Noop::default()))
        .approver(AnswersSome)
        .asks(limits, std::time::Duration::from_secs(3_600))
        .audit_capacity(65_536);
    builder.build().await.unwrap()
}

fn questions() -> Axis {
    let mut axis = Axis::new("questions", "Open questions", "questions");
    for size in powers(10_000) {
        let tokio = multi_thread().unwrap();
        let root = tempfile::tempdir().unwrap();
        let (runtime, grants) = tokio.block_on(asking(root.path()));
        let asking =
            |name: String| WorkerSpec::new(name).policy(Policy::new().ask("read:file:/r/src"));
        let waiting = spawn(&tokio, &runtime, size, |n| asking(format!("waits-{n}")));
        let [asks, calls] = tokio.block_on(async {
            let calls = WorkerSpec::new("calls").policy(Policy::inherit());
            let asks = runtime.spawn(asking("asks".into())).await.unwrap();
            [asks, runtime.spawn(calls).await.unwrap()]
        });
        for worker in &waiting {
            let worker = worker.clone();
            tokio.spawn(async move { worker.call(NOOP, json!({})).await });
        }
        tokio.block_on(async {
            let mut changes = grants.changes();
            while grants.questions().await.unwrap().len() < size {
                changes.next().await.unwrap();
            }
        });
        axis.measure("call a tool without a question", size, |times| {
            call_each(&tokio, &runtime, vec![calls.clone(); times as usize]);
        });
        axis.measure("ask one more and answer it", size, |times| {
            call_each(&tokio, &runtime, vec![asks.clone(); times as usize]);
        });
        axis.measure("list all", size, |times| {
            for _ in 0..times {
                let all = tokio.block_on(grants.questions()).unwrap();
                assert_eq!(all.len(), size);
            }
        });
        tokio.block_on(runtime.shutdown());
    }
    axis
}

/// A worker with the file tools, which may do everything in `root`.
fn file_worker(tokio: &tokio::runtime::Runtime, root: &Path) -> (Runtime, Worker) {
    tokio.block_on(async {
        let builder = Runtime::builder().root("r", root);
        let (runtime, _) = builder.tools(bailiwick_fs::tools()).build().await.unwrap();
        let policy = Policy::inherit().deny_glob("**/.env");
        let spec = WorkerSpec::new("bench").policy(policy);
        let worker = runtime.spawn(spec).await.unwrap();
        (runtime, worker)
    })
}

fn call(
    tokio: &tokio::runtime::Runtime,
    worker: &Worker,
    tool: &'static str,
    arguments: &Value,
    times: u32,
) {
    let (worker, arguments) = (worker.clone(), arguments.clone());
    run_task(tokio, async move {
        for _ in 0..times {
            worker.call(tool, arguments.clone()).await.unwrap();
        }
    });
}

/// Creates the files of a tree from `count` on.
fn grow(root: &Path, count: &mut usize, size: usize) {
    while *count < size {
        let directory = root.join(format!("part{}/dir{}", *count / 400, *count / 20));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(format!("{count}.txt")), "a line of a text\n").unwrap();
        *count += 1;
    }
}

fn tree() -> Axis {
    let mut axis = Axis::new("tree", "Files in a tree, 20 in each directory", "files");
    let tokio = multi_thread().unwrap();
    let root = tempfile::tempdir().unwrap();
    let mut count = 0;
    for size in powers(100_000).filter(|size| *size >= 10) {
        grow(root.path(), &mut count, size);
        let (_runtime, worker) = file_worker(&tokio, root.path());
        let find = json!({ "path": "/r", "pattern": "*-match.txt" });
        axis.measure("find", size, |times| {
            call(&tokio, &worker, "find", &find, times);
        });
        let grep = json!({ "path": "/r", "pattern": "needle" });
        axis.measure("grep", size, |times| {
            call(&tokio, &worker, "grep", &grep, times);
        });
        let read = json!({ "path": "/r/part0/dir0/0.txt" });
        axis.measure("read_file", size, |times| {
            call(&tokio, &worker, "read_file", &read, times);
        });
    }
    axis
}

fn command() -> Axis {
    let title = "Files in a tree, 20 in each directory: run_command of /bin/true";
    let mut axis = Axis::new("command", title, "files");
    let tokio = multi_thread().unwrap();
    let root = tempfile::tempdir().unwrap();
    let mut count = 0;
    for size in powers(100_000).filter(|size| *size >= 10) {
        grow(root.path(), &mut count, size);
        for (curve, mode, policy) in [
            ("overlay", "overlay", Policy::inherit()),
            (
                "overlay, with a rule about names",
                "overlay",
                Policy::inherit().deny_glob("**/.env"),
            ),
            ("live", "live", Policy::inherit()),
        ] {
            let (runtime, worker) = tokio.block_on(async {
                let builder = Runtime::builder().root("r", root.path());
                let builder = builder
                    .allow("execute:command")
                    .tools(Commands::new().tools());
                let (runtime, _) = builder.build().await.unwrap();
                let spec = WorkerSpec::new("bench").policy(policy);
                let worker = runtime.spawn(spec).await.unwrap();
                (runtime, worker)
            });
            let arguments = json!({ "argv": ["true"], "cwd": "/r", "mode": mode });
            axis.measure(curve, size, |times| {
                call(&tokio, &worker, "run_command", &arguments, times);
            });
            tokio.block_on(runtime.shutdown());
        }
    }
    axis
}

fn file() -> Axis {
    let mut axis = Axis::new("file", "Size of a file, lines of 64 bytes", "bytes");
    let tokio = multi_thread().unwrap();
    let root = tempfile::tempdir().unwrap();
    let (_runtime, worker) = file_worker(&tokio, root.path());
    let largest = if brief() { 1 << 12 } else { 1 << 22 };
    let sizes = std::iter::successors(Some(1 << 10), |size| Some(size * 4));
    for size in sizes.take_while(|size| *size <= largest) {
        std::fs::write(root.path().join("f.txt"), text(size)).unwrap();
        let read = json!({ "path": "/r/f.txt", "limit": 1_000_000, "max_bytes": size });
        axis.measure("read_file, all of it", size, |times| {
            call(&tokio, &worker, "read_file", &read, times);
        });
        let edits = json!([{ "old_text": "line 7 ", "new_text": "line VII " }]);
        let edit = json!({ "path": "/r/f.txt", "edits": edits });
        axis.measure("preview of edit_file, one line", size, |times| {
            let (worker, edit) = (worker.clone(), edit.clone());
            run_task(&tokio, async move {
                for _ in 0..times {
                    worker.preview("edit_file", edit.clone()).await.unwrap();
                }
            });
        });
        let write = json!({ "path": "/r/w.txt", "content": text(size), "mode": "overwrite" });
        axis.measure("write_file, all of it", size, |times| {
            call(&tokio, &worker, "write_file", &write, times);
        });
    }
    axis
}

fn text(size: usize) -> String {
    let mut text = String::new();
    for line in 0..size / 64 {
        let start = text.len();
        write!(text, "line {line} ").unwrap();
        text.push_str(&"=".repeat(63 - (text.len() - start)));
        text.push('\n');
    }
    text
}
