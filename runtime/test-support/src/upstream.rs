//! Runtimes with third-party servers.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailiwick::{
    Answer, CallError, Code, GrantAuthority, MemoryAudit, Outcome, Policy, Question, Runtime,
    RuntimeBuilder, Scripted, Worker, WorkerSpec,
};
use bailiwick_mcp::upstream::{ServerSpec, Upstreams};
use serde_json::{Value, json};

/// A server that runs `program` to serve the files of a directory.
pub fn file_server(program: &str, name: &str, folder: &Path, flags: &[&str]) -> ServerSpec {
    ServerSpec::stdio(name, program)
        .args(["serve"])
        .args(flags.iter().copied())
        .args([folder.to_str().unwrap()])
}

/// Starts the servers.
pub async fn start(specs: impl IntoIterator<Item = ServerSpec>) -> Upstreams {
    Upstreams::builder().servers(specs).start().await.unwrap()
}

/// A runtime with servers, and its audit.
#[derive(Debug)]
pub struct TestRuntime {
    /// The servers.
    pub upstreams: Upstreams,
    /// The runtime.
    pub runtime: Runtime,
    /// The grants of the runtime.
    pub grants: GrantAuthority,
    /// The audit of the runtime.
    pub audit: MemoryAudit,
}

/// A runtime in which everything of every server can be granted.
pub async fn test_runtime(
    upstreams: Upstreams,
    configure: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
) -> TestRuntime {
    let audit = MemoryAudit::new(100_000);
    let builder = Runtime::builder()
        .servers(&upstreams)
        .audit(audit.clone())
        .call_limit(Duration::from_secs(20))
        .grantable("read:mcp")
        .grantable("write:mcp")
        .grantable("execute:mcp");
    let (runtime, grants) = configure(builder).build().await.unwrap();
    TestRuntime {
        upstreams,
        runtime,
        grants,
        audit,
    }
}

impl TestRuntime {
    /// A worker with this policy.
    pub async fn worker(&self, policy: Policy) -> Worker {
        let spec = WorkerSpec::new("main").policy(policy);
        self.runtime.spawn(spec).await.unwrap()
    }

    /// The records of the audit so far.
    pub async fn lines(&self) -> Vec<Value> {
        self.runtime.flush_audit().await.unwrap();
        let records = self.audit.records().into_iter();
        records
            .map(|record| serde_json::from_str(record.line()).unwrap())
            .collect()
    }

    /// The steps of the audit so far.
    pub async fn steps(&self) -> Vec<String> {
        let lines = self.lines().await;
        let step = |line: &Value| line.pointer("/event/step")?.as_str().map(str::to_owned);
        lines.iter().filter_map(step).collect()
    }
}

/// An approver that allows everything once, and its questions.
pub fn allow_once() -> (Scripted, Arc<Mutex<Vec<Question>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let approver = Scripted::new().rule(move |question| {
        seen.lock().unwrap().push(question.clone());
        Some(Answer::ONCE)
    });
    (approver, asked)
}

/// Calls a tool of an embedded server with the action `action`.
///
/// # Errors
/// The error of the call.
pub async fn act(worker: &Worker, tool: &str, action: &str) -> Result<Outcome, CallError> {
    worker.call(tool, json!({ "do": action })).await
}

/// The code of a call that failed.
#[track_caller]
pub fn code(result: Result<Outcome, CallError>) -> Code {
    match result {
        Ok(outcome) => panic!("the call succeeded: {}", outcome.text()),
        Err(error) => error.code(),
    }
}

/// The text of a call that succeeded.
#[track_caller]
pub fn text(result: Result<Outcome, CallError>) -> String {
    result.unwrap().text()
}
