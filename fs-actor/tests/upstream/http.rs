//! Servers by HTTP, and servers behind servers, in; the same order of things out.

use bailiwick::{About, Code, Endpoint, Policy, Runtime, ServerSpec, ServerState, WorkerSpec};
use serde_json::json;

use super::support::{code, hostile, stage, started, text, yes};

fn about() -> About {
    About {
        name: "inner".into(),
        title: "Inner".into(),
        version: "1".into(),
        instructions: String::new(),
    }
}

fn at(endpoint: &Endpoint) -> ServerSpec {
    let bearer = format!("Bearer {}", endpoint.token().reveal());
    ServerSpec::http("inner", endpoint.url()).header("Authorization", bearer)
}

#[tokio::test]
async fn a_server_is_reached_by_http_with_its_headers_and_refuses_without() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("a.txt"), "one\n").unwrap();
    let builder = Runtime::builder()
        .root("r", temp.path())
        .tools(bailiwick_fs::tools());
    let (runtime, _grants) = builder.build().await.unwrap();
    let inner = runtime
        .spawn(WorkerSpec::new("inner").policy(Policy::new()))
        .await
        .unwrap();
    let endpoint = inner.endpoint(about(), None).await.unwrap();
    let stage = stage(started([at(&endpoint)]).await, |builder| {
        builder.approver(yes().0)
    })
    .await;
    let worker = stage.worker(Policy::new()).await;
    let read = worker
        .call("inner__read_file", json!({"path": "a.txt"}))
        .await;
    assert_eq!(text(read), "one\n");
    let none = started([ServerSpec::http("inner", endpoint.url())]).await;
    assert_ne!(none.state("inner"), Some(ServerState::Ready));
    drop(endpoint);
    assert_eq!(
        code(
            worker
                .call("inner__read_file", json!({"path": "a.txt"}))
                .await
        ),
        Code::ServerGone
    );
}

#[tokio::test]
async fn a_gateway_serves_the_tools_of_servers_as_its_own_and_the_chain_asks_at_each_link() {
    let first = stage(started([hostile("h", "plain")]).await, |builder| {
        builder.approver(yes().0)
    })
    .await;
    let inner = first
        .worker(Policy::new().allow("read:mcp").allow("write:mcp:h:counted"))
        .await;
    let endpoint = inner.endpoint(about(), None).await.unwrap();
    let second = stage(started([at(&endpoint)]).await, |builder| {
        builder.approver(yes().0)
    })
    .await;
    let worker = second.worker(Policy::new()).await;
    let names: Vec<_> = worker
        .tools()
        .iter()
        .map(|tool| tool.spec.name.to_string())
        .collect();
    assert_eq!(names, ["inner__h__counted", "inner__h__note"]);
    let counted = worker
        .call("inner__h__counted", json!({"n": 3}))
        .await
        .unwrap();
    assert_eq!(counted.structured().unwrap(), json!({"n": 3}));
    let bad = worker
        .call("inner__h__counted", json!({"n": "3"}))
        .await
        .unwrap_err();
    assert!(bad.message().contains("SERVER_FAULT"), "{bad}");
    assert_eq!(
        code(worker.call("inner__h__edit", json!({})).await),
        Code::UnknownTool
    );
}
