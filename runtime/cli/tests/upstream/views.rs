//! Tests of third-party views.

use crate::hostile_server::hostile;
use bailiwick::{Config, Policy, RuntimeBuilder, Worker};
use bailiwick_mcp::view::{DenyView, View, ViewChannel, ViewSpec};
use bailiwick_test_support::upstream::{TestRuntime, allow_once, start, test_runtime};
use serde_json::{Value, json};

/// Two servers of the same kind, and a worker that may use both; the person behind it, if there is one, allows what is asked.
async fn two(person: bool) -> (TestRuntime, Worker) {
    let servers = start([hostile("h", "views"), hostile("other", "views")]).await;
    let asking = |builder: RuntimeBuilder| {
        if person {
            builder.approver(allow_once().0)
        } else {
            builder
        }
    };
    let stage = test_runtime(servers, asking).await;
    let worker = stage.worker(Policy::new()).await;
    (stage, worker)
}

async fn asked(link: &mut ViewChannel, method: &str, params: Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params});
    assert!(link.sender().send(request.to_string()).await);
    serde_json::from_str(&link.next().await.unwrap()).unwrap()
}

/// A page of the server `h`.
async fn page(stage: &TestRuntime, worker: &Worker) -> (View, ViewChannel) {
    let spec = ViewSpec::new("page").of_server(&stage.upstreams, "h");
    let (view, mut link) = View::open(worker, spec, DenyView).await.unwrap();
    asked(&mut link, "ui/initialize", json!({})).await;
    let ready = json!({"jsonrpc": "2.0", "method": "ui/notifications/initialized"});
    assert!(link.sender().send(ready.to_string()).await);
    (view, link)
}

async fn called(link: &mut ViewChannel, name: &str) -> Value {
    let params = json!({"name": name, "arguments": {}});
    asked(link, "tools/call", params).await
}

#[tokio::test]
async fn tool_visibility_follows_the_server() {
    let (stage, worker) = two(true).await;
    let offered = worker.tools().into_iter();
    let offered: Vec<_> = offered.map(|tool| tool.spec.name.into_owned()).collect();
    assert!(offered.contains(&"h__for_models".to_owned()));
    assert!(!offered.contains(&"h__for_apps".to_owned()));
    let refused = worker.call("h__for_apps", json!({})).await.unwrap_err();
    assert_eq!(refused.code(), bailiwick::Code::UnknownTool);

    let (_view, mut link) = page(&stage, &worker).await;
    for name in ["for_apps", "note"] {
        let answer = called(&mut link, name).await;
        assert_eq!(
            answer["result"]["isError"],
            json!(false),
            "{name}: {answer}"
        );
    }
    for name in [
        "for_models",
        "h__for_apps",
        "other__note",
        "other",
        "no_such",
    ] {
        let answer = called(&mut link, name).await;
        assert_eq!(answer["error"]["code"], json!(-32602), "{name}: {answer}");
    }
    let lines = stage.lines().await;
    let of_views = |step: &str| {
        let of = lines.iter().map(|line| &line["event"]);
        of.filter(|event| event["step"] == step && event["origin"] == "view")
            .count()
    };
    assert_eq!((of_views("remote_call"), of_views("denied")), (2, 5));
}

#[tokio::test]
async fn mutating_server_calls_need_approval() {
    let (stage, worker) = two(false).await;
    let (_view, mut link) = page(&stage, &worker).await;
    let refused = called(&mut link, "apps_write").await;
    let code = &refused["result"]["structuredContent"]["code"];
    assert_eq!(code, "SCOPE_REQUIRED");
    let (stage, worker) = two(true).await;
    let (_view, mut link) = page(&stage, &worker).await;
    let done = called(&mut link, "apps_write").await;
    assert_eq!(done["result"]["isError"], json!(false), "{done}");
}

#[tokio::test]
async fn view_reads_follow_the_policy_and_are_audited() {
    for (policy, allowed) in [
        (Policy::new(), true),
        (Policy::new().deny("read:mcp:h"), false),
        (Policy::new().ask("read:mcp:h"), false),
    ] {
        let servers = start([hostile("h", "views")]).await;
        let stage = test_runtime(servers, |builder| {
            let mut config = Config::new();
            config.allow = vec!["read:mcp".parse().unwrap()];
            builder.config(config)
        })
        .await;
        let worker = stage.worker(policy).await;
        let (_view, mut link) = page(&stage, &worker).await;
        let read = asked(&mut link, "resources/read", json!({"uri": "x://a"})).await;
        let steps: Vec<_> = stage
            .lines()
            .await
            .into_iter()
            .map(|line| line["event"].clone())
            .filter(|event| event["tool"] == "resources/read" && event["origin"] == "view")
            .map(|event| event["step"].as_str().unwrap().to_owned())
            .collect();
        if allowed {
            assert_eq!(read["result"]["contents"][0]["text"], "x://a", "{read}");
            assert_eq!(steps, ["judged", "remote_call", "finished"]);
        } else {
            assert_eq!(read["error"]["code"], json!(-32000), "{read}");
            assert_eq!(steps, ["judged", "denied", "finished"]);
        }
    }
}
