//! A host that answers a server's `requested_scopes`: it asks its person and makes the call once more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bailiwick::{
    Answer, Code, Config, GrantAuthority, Lifetime, Policy, Runtime, RuntimeBuilder, Scripted,
    ServerCallError, Trust, Worker, WorkerSpec,
};
use serde_json::{Value, json};

use crate::support::World;

/// The host's side: a worker without files of its own, and how often its person was asked.
struct Host {
    runtime: Runtime,
    asked: Arc<AtomicUsize>,
}

/// A runtime whose people may grant what servers ask for.
async fn built(
    configure: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
) -> (Runtime, GrantAuthority) {
    let builder = Runtime::builder()
        .grantable("read:mcp")
        .grantable("write:mcp");
    configure(builder).build().await.unwrap()
}

impl Host {
    async fn answering(answer: impl Fn() -> Answer + Send + Sync + 'static) -> Self {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let approver = Scripted::new().rule(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            Some(answer())
        });
        let (runtime, _) = built(|builder| builder.approver(approver)).await;
        Self { runtime, asked }
    }

    async fn worker(&self, policy: Policy) -> Worker {
        let spec = WorkerSpec::new("agent").policy(policy);
        self.runtime.spawn(spec).await.unwrap()
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn allow(lifetime: Lifetime) -> Answer {
    Answer::Allow {
        patterns: Vec::new(),
        lifetime,
        descendants: false,
        left_out: Vec::new(),
    }
}

fn asking() -> Policy {
    Policy::new().ask("read:mcp").ask("write:mcp")
}

/// Sends each call on a connection of its own, as after a restart of the server, and keeps what was sent.
struct Server<'w> {
    world: &'w World,
    sent: Mutex<Vec<Value>>,
}

impl<'w> Server<'w> {
    fn new(world: &'w World) -> Self {
        Self {
            world,
            sent: Mutex::default(),
        }
    }

    async fn carry(&self, params: Value) -> Result<Value, String> {
        self.sent.lock().unwrap().push(params.clone());
        let mut client = self.world.client(Trust::Host);
        client.greet("2025-11-25", json!({})).await;
        let answer = client.ask("tools/call", params).await;
        answer
            .get("result")
            .cloned()
            .ok_or_else(|| answer["error"].to_string())
    }

    async fn call(
        &self,
        worker: &Worker,
        name: &str,
        params: Value,
    ) -> Result<Value, ServerCallError<String>> {
        let carry = |params| self.carry(params);
        worker.call_server(name, params, carry).await
    }
}

/// A call that writes the file `name` outside the server's root.
fn writing(world: &World, name: &str) -> Value {
    let path = world.host(&format!("outside/{name}"));
    json!({"name": "write_file", "arguments": {"path": path.to_str().unwrap(), "content": "x"}})
}

#[tokio::test]
async fn a_yes_makes_the_same_call_once_more_with_what_was_granted() {
    let world = World::new();
    let (host, server) = (Host::answering(|| Answer::ONCE).await, Server::new(&world));
    let worker = host.worker(asking()).await;
    let result = server.call(&worker, "disk", writing(&world, "a")).await;
    let result = result.unwrap();
    assert_ne!(result["isError"], true, "{result}");
    assert!(!result.to_string().contains("scope"), "{result}");
    assert!(world.host("outside/a").exists());
    let mut sent = server.sent.lock().unwrap().clone();
    assert_eq!(sent.len(), 2);
    let granted = sent[1]["_meta"]["granted_scopes"].take();
    let path = world.host("outside/a");
    assert_eq!(
        granted,
        json!([format!("write:file:{}", path.to_str().unwrap())])
    );
    sent[1].as_object_mut().unwrap().remove("_meta");
    assert_eq!(sent[0], sent[1]);
}

#[tokio::test]
async fn once_is_asked_again_and_a_session_is_not_but_by_another_server_or_session() {
    let world = World::new();
    let server = Server::new(&world);
    let (once, session) = (
        Host::answering(|| Answer::ONCE).await,
        Host::answering(|| allow(Lifetime::Session)).await,
    );
    let edit = |name: &str| {
        let mut params = writing(&world, name);
        params["arguments"]["mode"] = json!("overwrite");
        params
    };
    let worker = once.worker(asking()).await;
    for expected in 1..=3 {
        server.call(&worker, "disk", edit("a")).await.unwrap();
        assert_eq!(once.asked(), expected);
    }
    let worker = session.worker(asking()).await;
    for _ in 0..3 {
        server.call(&worker, "disk", edit("a")).await.unwrap();
        assert_eq!(session.asked(), 1);
    }
    server.call(&worker, "other", edit("a")).await.unwrap();
    assert_eq!(session.asked(), 2);
    server.call(&worker, "disk", edit("b")).await.unwrap();
    assert_eq!(session.asked(), 3);
    let another = session.worker(asking()).await;
    server.call(&another, "disk", edit("a")).await.unwrap();
    assert_eq!(session.asked(), 4);
}

#[tokio::test]
async fn a_no_and_a_policy_that_denies_end_the_call_after_the_first_try() {
    let world = World::new();
    let denies = Policy::new().ask("read:mcp").deny("write:mcp:disk");
    for (policy, asked) in [(asking(), 1), (denies, 0)] {
        let (host, server) = (Host::answering(|| Answer::DENY).await, Server::new(&world));
        let worker = host.worker(policy).await;
        let refused = server.call(&worker, "disk", writing(&world, "a")).await;
        let ServerCallError::Refused(error) = refused.unwrap_err() else {
            panic!("it was sent");
        };
        assert_eq!(error.code(), Code::PermissionDenied);
        assert_eq!(
            (host.asked(), server.sent.lock().unwrap().len()),
            (asked, 1)
        );
        assert!(!world.host("outside/a").exists());
    }
}

#[tokio::test]
async fn what_is_configured_is_granted_without_a_word_and_a_model_grants_nothing() {
    let world = World::new();
    let server = Server::new(&world);
    let config = Config {
        allow: vec!["write:mcp:disk".parse().unwrap()],
        ..Config::new()
    };
    let (runtime, _) = built(|builder| builder.config(config)).await;
    let spec = WorkerSpec::new("agent").policy(Policy::new());
    let worker = runtime.spawn(spec).await.unwrap();
    let call = server.call(&worker, "disk", writing(&world, "a"));
    call.await.unwrap();
    assert!(world.host("outside/a").exists());
    let host = Host::answering(|| Answer::DENY).await;
    let mut params = writing(&world, "b");
    params["_meta"] = json!({"granted_scopes": ["*"]});
    let asking = host.worker(asking()).await;
    let refused = server.call(&asking, "disk", params).await;
    assert!(matches!(refused, Err(ServerCallError::Refused(_))));
    assert!(!world.host("outside/b").exists());
}

#[tokio::test]
async fn where_nobody_can_be_asked_the_server_s_refusal_is_the_answer() {
    let world = World::new();
    let (runtime, _) = built(|builder| builder).await;
    let worker = runtime
        .spawn(WorkerSpec::new("agent").policy(asking()))
        .await
        .unwrap();
    let server = Server::new(&world);
    let result = server.call(&worker, "disk", writing(&world, "a")).await;
    let result = result.unwrap();
    assert_eq!(result["structuredContent"]["code"], "SCOPE_REQUIRED");
    assert_eq!(server.sent.lock().unwrap().len(), 1);
    let read = json!({"name": "read_file", "arguments": {"path": "a.txt"}});
    let read = server.call(&worker, "disk", read).await.unwrap();
    assert_ne!(read["isError"], true, "{read}");
    worker.revoke().await;
    let after = server.call(&worker, "disk", writing(&world, "a")).await;
    assert!(matches!(after, Err(ServerCallError::Refused(_))));
    assert_eq!(server.sent.lock().unwrap().len(), 2);
}
