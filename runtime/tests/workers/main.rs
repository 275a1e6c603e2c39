//! Tests of workers through the public interface.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod acting;
mod approval;
#[cfg(feature = "mcp")]
mod apps;
#[cfg(feature = "mcp")]
mod apps_hostile;
mod authority;
mod chat;
mod delegation;
mod faults;
#[cfg(feature = "mcp")]
mod guest;
mod history;
mod lifecycle;
mod people;
mod pools;
mod records;
mod stored_grants;
mod tools;
mod views;

use bailiwick::{MemoryAudit, Policy, Runtime, RuntimeBuilder, ToolSet, Worker, WorkerSpec};
use serde_json::{Value, json};
use tools::{Board, Echo, Gather, Hangs, Latch, Panics, Peek, Post, Strays};

/// A runtime over one empty root `/r`, its board, its latch and its audit.
struct Stage {
    runtime: Runtime,
    grants: bailiwick::GrantAuthority,
    board: Board,
    latch: Latch,
    audit: MemoryAudit,
    _root: tempfile::TempDir,
}

async fn stage(configure: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Stage {
    stage_with(Board::default(), configure).await
}

async fn stage_with(
    board: Board,
    configure: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
) -> Stage {
    let root = tempfile::tempdir().unwrap();
    let latch = Latch::default();
    let tools = ToolSet::new()
        .reader(Echo)
        .reader(Gather)
        .reader(Panics)
        .reader(Peek)
        .reader(Hangs(latch.clone()))
        .writer(Post(board.clone()))
        .writer(Strays(board.clone()));
    let audit = MemoryAudit::new(100_000);
    let builder = Runtime::builder()
        .root("r", root.path())
        .tools(tools)
        .audit(audit.clone());
    let (runtime, grants) = configure(builder).build().await.unwrap();
    Stage {
        runtime,
        grants,
        board,
        latch,
        audit,
        _root: root,
    }
}

impl Stage {
    /// A worker that may do everything in the root.
    async fn open(&self) -> Worker {
        self.worker(Policy::new()).await
    }

    async fn worker(&self, policy: Policy) -> Worker {
        self.runtime
            .spawn(WorkerSpec::new("main").policy(policy))
            .await
            .unwrap()
    }

    /// The text at `pointer` of every `step` in the audit so far.
    async fn texts(&self, step: &str, pointer: &str) -> Vec<Option<String>> {
        self.runtime.flush_audit().await.unwrap();
        let lines = self.audit.records().into_iter();
        let lines = lines.map(|record| serde_json::from_str::<Value>(record.line()).unwrap());
        lines
            .filter(|line| line.pointer("/event/step") == Some(&Value::from(step)))
            .map(|line| line.pointer(pointer)?.as_str().map(str::to_owned))
            .collect()
    }

    /// The steps of the audit so far, as `step` or `step CODE`.
    async fn steps(&self) -> Vec<String> {
        self.runtime.flush_audit().await.unwrap();
        let steps = self.audit.records().into_iter().map(|record| {
            let line: Value = serde_json::from_str(record.line()).unwrap();
            let text = |key: &str| line.pointer(key).and_then(Value::as_str);
            let step = text("/event/step").unwrap();
            text("/event/code").map_or(step.to_owned(), |code| format!("{step} {code}"))
        });
        steps.collect()
    }
}

/// How often a race is run.
fn rounds(default: u32) -> u32 {
    let asked = std::env::var("BAILIWICK_CASES").ok();
    asked.map_or(default, |rounds| rounds.parse().unwrap())
}

fn at(path: &str) -> Value {
    json!({ "path": path })
}
