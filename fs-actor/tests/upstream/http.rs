//! Servers by HTTP, and servers behind servers, in; the same order of things out.

use bailiwick::{About, Code, Endpoint, Policy, Runtime, ServerSpec, ServerState, WorkerSpec};
use serde_json::json;

use super::support::{code, does, hostile, stage, started, text, until, yes};

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

/// A server by HTTP that fails as its calls say; it ends with its input.
struct Failing {
    process: std::process::Child,
    url: String,
}

impl Failing {
    fn start() -> Self {
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/upstream/hostile_http.py"
        );
        let mut process = std::process::Command::new("python3")
            .arg(script)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        let mut said = std::io::BufReader::new(process.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut said, &mut port).unwrap();
        let url = format!("http://127.0.0.1:{}/mcp", port.trim());
        Self { process, url }
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[tokio::test]
async fn a_request_that_fails_by_http_ends_its_own_call_and_no_other() {
    let server = Failing::start();
    let upstreams = started([ServerSpec::http("h", &server.url)]).await;
    let stage = stage(upstreams, |builder| builder.approver(yes().0)).await;
    let worker = stage.worker(Policy::new()).await;
    let waiting = worker.clone();
    let waiting = tokio::spawn(async move { does(&waiting, "h__edit", "wait").await });
    until(|| worker.status().in_flight > 0).await;
    let failed = does(&worker, "h__edit", "fail").await.unwrap_err();
    assert_eq!(failed.code(), Code::ServerGone);
    assert_eq!(failed.details()["begun"], true);
    assert_eq!(
        text(does(&worker, "h__edit", "release").await),
        "did release"
    );
    assert_eq!(text(waiting.await.unwrap()), "did wait");
    assert_eq!(stage.upstreams.state("h"), Some(ServerState::Ready));
}

#[tokio::test]
async fn a_server_by_http_that_answers_nothing_any_more_is_lost() {
    let server = Failing::start();
    let upstreams = started([ServerSpec::http("h", &server.url)]).await;
    let stage = stage(upstreams, |builder| builder.approver(yes().0)).await;
    let worker = stage.worker(Policy::new()).await;
    assert_eq!(text(does(&worker, "h__edit", "").await), "did ");
    assert_eq!(
        code(does(&worker, "h__edit", "lose").await),
        Code::ServerGone
    );
    until(|| stage.upstreams.state("h") != Some(ServerState::Ready)).await;
}
