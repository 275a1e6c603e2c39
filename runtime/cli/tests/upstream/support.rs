//! Helpers for runtimes and servers.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailiwick::{
    Answer, CallError, Code, GrantAuthority, MemoryAudit, Outcome, Policy, Question, Runtime,
    RuntimeBuilder, Scripted, Worker, WorkerSpec,
};
use bailiwick_mcp::upstream::{ServerSpec, Upstreams};
use serde_json::{Value, json};

/// Returns once `is` holds, which it does soon or the test fails.
pub(crate) async fn until(mut is: impl FnMut() -> bool) {
    let waited = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(60), waited).await;
    assert!(in_time.is_ok(), "it never came to it");
}

/// Our own program, serving a folder.
pub(crate) fn files(name: &str, folder: &Path, flags: &[&str]) -> ServerSpec {
    ServerSpec::stdio(name, env!("CARGO_BIN_EXE_bailiwick"))
        .args(["serve"])
        .args(flags.iter().copied())
        .args([folder.to_str().unwrap()])
}

pub(crate) async fn started(specs: impl IntoIterator<Item = ServerSpec>) -> Upstreams {
    Upstreams::builder().servers(specs).start().await.unwrap()
}

/// A runtime over some servers, and its audit.
pub(crate) struct Stage {
    pub(crate) upstreams: Upstreams,
    pub(crate) runtime: Runtime,
    pub(crate) grants: GrantAuthority,
    pub(crate) audit: MemoryAudit,
}

/// People may grant everything of every server.
pub(crate) async fn stage(
    upstreams: Upstreams,
    configure: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
) -> Stage {
    let audit = MemoryAudit::new(100_000);
    let builder = Runtime::builder()
        .servers(&upstreams)
        .audit(audit.clone())
        .call_limit(Duration::from_secs(20))
        .grantable("read:mcp")
        .grantable("write:mcp")
        .grantable("execute:mcp");
    let (runtime, grants) = configure(builder).build().await.unwrap();
    Stage {
        upstreams,
        runtime,
        grants,
        audit,
    }
}

impl Stage {
    pub(crate) async fn worker(&self, policy: Policy) -> Worker {
        let spec = WorkerSpec::new("main").policy(policy);
        self.runtime.spawn(spec).await.unwrap()
    }

    /// The audit so far.
    pub(crate) async fn lines(&self) -> Vec<Value> {
        self.runtime.flush_audit().await.unwrap();
        let records = self.audit.records().into_iter();
        records
            .map(|record| serde_json::from_str(record.line()).unwrap())
            .collect()
    }

    /// The steps of the audit so far.
    pub(crate) async fn steps(&self) -> Vec<String> {
        let lines = self.lines().await;
        let step = |line: &Value| line.pointer("/event/step")?.as_str().map(str::to_owned);
        lines.iter().filter_map(step).collect()
    }
}

/// A person who allows everything once, and what they were asked.
pub(crate) fn yes() -> (Scripted, Arc<Mutex<Vec<Question>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let approver = Scripted::new().rule(move |question| {
        seen.lock().unwrap().push(question.clone());
        Some(Answer::ONCE)
    });
    (approver, asked)
}

/// Makes the server do `kind`.
pub(crate) async fn does(worker: &Worker, tool: &str, kind: &str) -> Result<Outcome, CallError> {
    worker.call(tool, json!({ "do": kind })).await
}

#[track_caller]
pub(crate) fn code(answered: Result<Outcome, CallError>) -> Code {
    match answered {
        Ok(outcome) => panic!("it was answered: {}", outcome.text()),
        Err(error) => error.code(),
    }
}

pub(crate) fn text(answered: Result<Outcome, CallError>) -> String {
    answered.unwrap().text()
}
