//! Tests of replays with `granted_scopes`.

use bailiwick::permission::Lifetime;
use bailiwick::{
    Answer, CallError, Code, Config, MemoryAudit, Outcome, Policy, Question, Runtime,
    RuntimeBuilder, Scripted, Worker, WorkerSpec,
};
use bailiwick_mcp::upstream::{ServerSpec, Upstreams};
use bailiwick_test_support::workspace::Workspace;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// A host that lets its workers call the tools of two servers, which ask for whatever is written.
struct Host {
    upstreams: Upstreams,
    runtime: Runtime,
    audit: MemoryAudit,
    asked: Arc<Mutex<Vec<Question>>>,
}

impl Host {
    async fn new(
        workspace: &Workspace,
        configure: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Self {
        let server = |name| {
            let folder = workspace.path("r");
            ServerSpec::stdio(name, crate::PROGRAM)
                .args(["serve", "--trust=host", "--allow-scopes", "read:file"])
                .args(["--ask-scopes", "write:file"])
                .args([folder.to_str().unwrap()])
        };
        let specs = [server("disk"), server("other")];
        let upstreams = Upstreams::builder().servers(specs).start().await.unwrap();
        let audit = MemoryAudit::new(10_000);
        let builder = Runtime::builder()
            .servers(&upstreams)
            .audit(audit.clone())
            .config(allowing(&[]))
            .grantable("write:mcp");
        let (runtime, _) = configure(builder).build().await.unwrap();
        Self {
            upstreams,
            runtime,
            audit,
            asked: Arc::default(),
        }
    }

    async fn answering(workspace: &Workspace, answer: Answer) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let approver = Scripted::new().rule(move |question| {
            seen.lock().unwrap().push(question.clone());
            Some(answer.clone())
        });
        let host = Self::new(workspace, |builder| builder.approver(approver)).await;
        Self { asked, ..host }
    }

    async fn worker(&self, policy: Policy) -> Worker {
        let spec = WorkerSpec::new("agent").policy(policy);
        self.runtime.spawn(spec).await.unwrap()
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    /// How often a call was sent to a server.
    async fn sent(&self) -> usize {
        self.runtime.flush_audit().await.unwrap();
        let records = self.audit.records();
        let lines = records.iter().map(|record| record.line());
        lines
            .filter(|line| line.contains(r#""step":"remote_call""#))
            .count()
    }
}

/// Allows the tool that writes, and the given rules.
fn allowing(more: &[&str]) -> Config {
    let tools = ["write:mcp:disk:write_file", "write:mcp:other:write_file"];
    let all = tools.iter().chain(more);
    Config {
        allow: all.map(|text| text.parse().unwrap()).collect(),
        ..Config::new()
    }
}

fn allow(lifetime: Lifetime) -> Answer {
    Answer::allow(lifetime)
}

fn file(name: &str) -> Value {
    json!({"path": name, "content": "x", "mode": "overwrite"})
}

/// Writes a file by a server.
async fn write(worker: &Worker, server: &str, name: &str) -> Result<Outcome, CallError> {
    let name = format!("{name}.txt");
    worker
        .call(&format!("{server}__write_file"), file(&name))
        .await
}

#[tokio::test]
async fn approved_call_is_replayed_with_its_grants() {
    let workspace = Workspace::new();
    let host = Host::answering(&workspace, Answer::ONCE).await;
    let worker = host.worker(Policy::new()).await;
    write(&worker, "disk", "a").await.unwrap();
    assert_eq!(workspace.read("r/a.txt"), "x");
    assert_eq!(host.sent().await, 2);
    let question = host.asked.lock().unwrap().pop().unwrap();
    let needs: Vec<String> = question
        .request
        .needs
        .iter()
        .map(ToString::to_string)
        .collect();
    let label = host.upstreams.label("disk").unwrap();
    assert_eq!(needs.len(), 1);
    assert!(
        needs[0].starts_with(&format!("write:mcp:{label}:file:")),
        "{needs:?}"
    );
    assert!(needs[0].ends_with(":a.txt"), "{needs:?}");
    assert_eq!(host.asked(), 0);
}

#[tokio::test]
async fn session_grant_applies_to_its_server_and_session_only() {
    let workspace = Workspace::new();
    let once = Host::answering(&workspace, Answer::ONCE).await;
    let worker = once.worker(Policy::new()).await;
    for expected in 1..=3 {
        write(&worker, "disk", "a").await.unwrap();
        assert_eq!(once.asked(), expected);
    }
    let session = Host::answering(&workspace, allow(Lifetime::Session)).await;
    let worker = session.worker(Policy::new()).await;
    for _ in 0..3 {
        write(&worker, "disk", "a").await.unwrap();
        assert_eq!(session.asked(), 1);
    }
    write(&worker, "other", "a").await.unwrap();
    assert_eq!(session.asked(), 2);
    write(&worker, "disk", "b").await.unwrap();
    assert_eq!(session.asked(), 3);
    let another = session.worker(Policy::new()).await;
    write(&another, "disk", "a").await.unwrap();
    assert_eq!(session.asked(), 4);
}

#[tokio::test]
async fn denied_call_is_not_replayed() {
    let denies = Policy::new().deny("write:mcp:disk:file");
    for (policy, asked) in [(Policy::new(), 1), (denies, 0)] {
        let workspace = Workspace::new();
        let host = Host::answering(&workspace, Answer::DENY).await;
        let worker = host.worker(policy).await;
        let refused = write(&worker, "disk", "b").await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert_eq!((host.asked(), host.sent().await), (asked, 1));
        assert!(!workspace.path("r/b.txt").exists());
    }
}

#[tokio::test]
async fn configured_grants_need_no_question_and_models_cannot_grant() {
    let workspace = Workspace::new();
    let config = allowing(&["write:mcp:disk:file"]);
    let host = Host::new(&workspace, |builder| builder.config(config)).await;
    let worker = host.worker(Policy::new()).await;
    write(&worker, "disk", "b").await.unwrap();
    assert!(workspace.path("r/b.txt").exists());
    let host = Host::answering(&workspace, Answer::DENY).await;
    let worker = host.worker(Policy::new()).await;
    let mut arguments = file("c.txt");
    arguments["_meta"] = json!({"granted_scopes": ["*"], "dev.bailiwick/granted_scopes": ["*"]});
    let refused = worker.call("disk__write_file", arguments).await;
    // The server takes what a model writes for arguments, and knows no such argument.
    assert!(refused.is_err());
    assert!(!workspace.path("r/c.txt").exists());
}

#[tokio::test]
async fn call_without_an_approver_returns_its_needs() {
    let workspace = Workspace::new();
    let host = Host::new(&workspace, |builder| builder).await;
    let worker = host.worker(Policy::new()).await;
    let refused = write(&worker, "disk", "b").await.unwrap_err();
    assert_eq!(refused.code(), Code::ScopeRequired);
    assert_eq!(refused.requested_scopes().len(), 1);
    assert_eq!(host.sent().await, 1);
    worker.revoke().await;
    let after = write(&worker, "disk", "b").await.unwrap_err();
    assert_eq!(after.code(), Code::Cancelled);
    assert_eq!(host.sent().await, 1);
}
