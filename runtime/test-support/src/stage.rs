//! A runtime with test tools and an audit in memory.
#![expect(
    missing_docs,
    missing_debug_implementations,
    reason = "its items are named for what the tests do with them"
)]

use crate::tools::{Board, Echo, Gather, Hangs, Latch, Panics, Peek, Post, Strays};
use crate::wait;
use bailiwick::{
    Answer, MemoryAudit, PendingCall, Policy, Question, Runtime, RuntimeBuilder, ToolSet, Worker,
    WorkerSpec,
};
use serde_json::{Value, json};

/// A runtime with one empty root `/r`, and the board, latch and audit that its tools use.
pub struct Stage {
    pub runtime: Runtime,
    pub grants: bailiwick::GrantAuthority,
    pub board: Board,
    pub latch: Latch,
    pub audit: MemoryAudit,
    _root: tempfile::TempDir,
}

pub async fn stage(configure: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Stage {
    stage_with(Board::default(), configure).await
}

pub async fn stage_with(
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

/// A runtime, and a worker of it with this policy.
pub async fn started(builder: RuntimeBuilder, policy: Policy) -> (Runtime, Worker) {
    let (runtime, _grants) = builder.build().await.unwrap();
    let spec = WorkerSpec::new("main").policy(policy);
    let worker = runtime.spawn(spec).await.unwrap();
    (runtime, worker)
}

impl Stage {
    /// A worker that may do everything in the root.
    pub async fn open(&self) -> Worker {
        self.worker(Policy::new()).await
    }

    pub async fn worker(&self, policy: Policy) -> Worker {
        self.runtime
            .spawn(WorkerSpec::new("main").policy(policy))
            .await
            .unwrap()
    }

    /// The text at `pointer` of every `step` in the audit so far.
    pub async fn texts(&self, step: &str, pointer: &str) -> Vec<Option<String>> {
        self.runtime.flush_audit().await.unwrap();
        let lines = self.audit.records().into_iter();
        let lines = lines.map(|record| serde_json::from_str::<Value>(record.line()).unwrap());
        lines
            .filter(|line| line.pointer("/event/step") == Some(&Value::from(step)))
            .map(|line| line.pointer(pointer)?.as_str().map(str::to_owned))
            .collect()
    }

    /// The steps of the audit so far, as `step` or `step CODE`.
    pub async fn steps(&self) -> Vec<String> {
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

impl Stage {
    pub async fn answer(&self, pending: &PendingCall, answer: Answer) {
        let question = pending.question().id;
        self.grants.answer(question, answer).await.unwrap();
    }

    /// The one open question, once `count` calls wait for it.
    pub async fn question_of(&self, count: usize) -> bailiwick::permission::QuestionId {
        wait::for_questions(&self.grants, |questions| match questions {
            [question] if question.waiting() == count => Some(question.id),
            _ => None,
        })
        .await
    }

    pub async fn open_questions(&self) -> Vec<String> {
        let questions = self.grants.questions().await.unwrap();
        let path = |question: &Question| question.request.agent_path.join("/");
        questions.iter().map(path).collect()
    }
}

/// The arguments of a call with a path.
pub fn at(path: &str) -> Value {
    json!({ "path": path })
}
