//! `run_command` with a network, which the policy of its worker judges. Uses curl.

use std::net::SocketAddr;

use bailiwick::audit::MemoryAudit;
use bailiwick::permission::{GrantAuthority, Scripted};
use bailiwick::{Answer, Code, Policy, Runtime, ToolSet};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::commands::{commands, records, run, worker};
use crate::network::server;
use crate::standing_grants::grant;

struct Stage {
    runtime: Runtime,
    grants: GrantAuthority,
    audit: MemoryAudit,
    server: SocketAddr,
    _root: tempfile::TempDir,
}

/// A runtime whose commands may be allowed the network, and a server at a loopback address that they may connect to.
async fn stage() -> Stage {
    stage_at(server("server").await).await
}

async fn stage_at(server: SocketAddr) -> Stage {
    let root = tempfile::tempdir().unwrap();
    let audit = MemoryAudit::new(1000);
    let tools = ToolSet::new().actor(commands().private_address(server));
    // A person allows everything that mentions the address.
    let approver = Scripted::new().rule(|question| {
        let needs = question.request.needs.iter();
        let mut network = needs.filter(|need| need.resource().as_str() == "network");
        Some(if network.next().is_some() {
            Answer::ONCE
        } else {
            Answer::DENY
        })
    });
    let builder = Runtime::builder().root("repo", root.path()).tools(tools);
    let builder = builder.allow("execute:command").allow("execute:network");
    let builder = builder.audit(audit.clone()).approver(approver);
    let (runtime, grants) = builder.build().await.unwrap();
    Stage {
        runtime,
        grants,
        audit,
        server,
        _root: root,
    }
}

fn may_execute() -> Policy {
    Policy::nothing()
        .allow("read:file")
        .allow("execute:command")
}

/// Arguments that fetch a page.
fn curl(server: SocketAddr) -> Value {
    let url = format!("http://{server}/");
    json!({ "argv": ["curl", "-sS", "--max-time", "20", url], "cwd": "/repo" })
}

#[tokio::test]
async fn command_connects_to_a_host_that_the_policy_allows() {
    let stage = stage().await;
    let policy = may_execute().allow("execute:network:127.0.0.1");
    let worker = worker(&stage.runtime, policy).await;
    let output = run(&worker, curl(stage.server)).await.unwrap();
    assert!(
        output.stdout.starts_with("server answers GET / "),
        "{output:?}"
    );
    assert!(output.denied_hosts.is_empty());
}

#[tokio::test]
async fn host_that_the_policy_does_not_allow_is_denied_named_and_audited() {
    let stage = stage().await;
    let other = format!("execute:network:127.0.0.1:{}", 1);
    let policy = may_execute().allow(&other);
    let worker = worker(&stage.runtime, policy).await;
    let output = run(&worker, curl(stage.server)).await.unwrap();
    assert!(!output.stdout.contains("server answers"), "{output:?}");
    assert_eq!(output.denied_hosts, [stage.server.to_string()]);
    let ended = &records(&stage.runtime, &stage.audit).await[1]["ended"];
    assert_eq!(
        ended["connections"]["denied"],
        json!([stage.server.to_string()])
    );
}

#[tokio::test]
async fn address_that_is_not_public_is_denied_unless_the_host_names_it() {
    let stage = stage().await;
    let policy = may_execute().allow("execute:network");
    let worker = worker(&stage.runtime, policy).await;
    let other = server("other").await;
    let output = run(&worker, curl(other)).await.unwrap();
    assert!(!output.stdout.contains("other answers"), "{output:?}");
    assert_eq!(output.denied_hosts, [other.to_string()]);
    let output = run(&worker, curl(stage.server)).await.unwrap();
    assert!(output.stdout.contains("server answers"), "{output:?}");
}

#[tokio::test]
async fn command_has_no_proxy_if_the_policy_denies_the_network() {
    let stage = stage().await;
    let script = "echo \"[$http_proxy]\"";
    let arguments = json!({ "argv": ["sh", "-c", script], "cwd": "/repo" });
    let without = worker(&stage.runtime, may_execute()).await;
    assert_eq!(
        run(&without, arguments.clone()).await.unwrap().stdout,
        "[]\n"
    );
    let policy = may_execute().allow("execute:network:a.example");
    let with = worker(&stage.runtime, policy).await;
    let output = run(&with, arguments).await.unwrap();
    assert_eq!(output.stdout, "[http://127.0.0.1:3128]\n");
}

#[tokio::test]
async fn declared_host_is_asked_about_before_the_command_starts() {
    let stage = stage().await;
    let policy = may_execute().ask("execute:network");
    let worker = worker(&stage.runtime, policy).await;
    let mut arguments = curl(stage.server);
    // Undeclared, it is denied while the command runs.
    let output = run(&worker, arguments.clone()).await.unwrap();
    assert_eq!(output.denied_hosts, [stage.server.to_string()]);
    arguments["network"] = json!(["127.0.0.1"]);
    let output = run(&worker, arguments.clone()).await.unwrap();
    assert!(output.stdout.contains("server answers"), "{output:?}");
    arguments["network"] = json!([stage.server.to_string()]);
    let output = run(&worker, arguments).await.unwrap();
    assert!(output.stdout.contains("server answers"), "{output:?}");
}

#[tokio::test]
async fn command_reaches_of_all_granted_hosts_those_that_it_declares() {
    let stage = stage().await;
    let grant = grant("execute:network");
    stage.grants.grant(grant).await.unwrap();
    let policy = may_execute().ask("execute:network");
    let worker = worker(&stage.runtime, policy).await;
    let mut arguments = curl(stage.server);
    arguments["network"] = json!(["a.example"]);
    let output = run(&worker, arguments.clone()).await.unwrap();
    assert_eq!(output.denied_hosts, [stage.server.to_string()]);
    arguments["network"] = json!(["127.0.0.1"]);
    let output = run(&worker, arguments).await.unwrap();
    assert!(output.stdout.contains("server answers"), "{output:?}");
}

#[tokio::test]
async fn declared_host_that_the_policy_denies_fails_the_call() {
    let stage = stage().await;
    let worker = worker(&stage.runtime, may_execute()).await;
    let mut arguments = curl(stage.server);
    arguments["network"] = json!(["127.0.0.1"]);
    let denied = run(&worker, arguments.clone()).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    arguments["network"] = json!(["http://127.0.0.1"]);
    let invalid = run(&worker, arguments).await.unwrap_err();
    assert_eq!(invalid.code(), Code::InvalidArguments);
}

#[tokio::test]
async fn revocation_closes_the_connections_of_a_command() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = listener.local_addr().unwrap();
    let stage = stage_at(silent).await;
    let policy = may_execute().allow("execute:network");
    let worker = worker(&stage.runtime, policy).await;
    let call = {
        let worker = worker.clone();
        tokio::spawn(async move { run(&worker, curl(silent)).await })
    };
    let (mut connection, _) = listener.accept().await.unwrap();
    worker.revoke().await;
    // It ends, whether it was closed or reset.
    let _ = connection.read_to_end(&mut Vec::new()).await;
    assert_eq!(call.await.unwrap().unwrap_err().code(), Code::Cancelled);
}
