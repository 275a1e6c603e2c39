//! Tests with the program itself as a third-party server.

use crate::PROGRAM;
use bailiwick::permission::Lifetime;
use bailiwick::requests::{
    BoxFuture, Elicitation, ElicitationResponse, RequestCapabilities, ServerRequests,
};
use bailiwick::{Call, CallMeta, Code, Policy, Scripted};
use bailiwick_mcp::upstream::{ServerSpec, Upstreams};
use bailiwick_test_support::upstream::{
    TestRuntime, allow_once, code, file_server, start, test_runtime, text,
};
use serde_json::json;
use std::path::Path;

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(temp.path().join(name), text).unwrap();
    }
    temp
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// A host that approves everything and uses the program on that folder as a server.
async fn through(folder: &Path) -> TestRuntime {
    let servers = start([file_server(PROGRAM, "disk", folder, &[])]).await;
    test_runtime(servers, |builder| builder.approver(allow_once().0)).await
}

#[tokio::test]
async fn files_are_read_and_written_through_another_server() {
    let temp = folder(&[("a.txt", "one\n")]);
    let stage = through(temp.path()).await;
    let worker = stage.worker(Policy::new()).await;
    let shown = worker
        .call("disk__read_file", json!({"path": "a.txt"}))
        .await;
    assert_eq!(text(shown), "one\n");
    let write = json!({"path": "b.txt", "content": "two\n"});
    worker.call("disk__write_file", write).await.unwrap();
    assert_eq!(read(&temp.path().join("b.txt")), "two\n");
    let missing = worker
        .call("disk__read_file", json!({"path": "none"}))
        .await;
    assert_eq!(code(missing), Code::ServerFailed);
}

#[tokio::test]
async fn remote_change_is_previewed_and_applied() {
    let temp = folder(&[("a.txt", "one\n")]);
    let stage = through(temp.path()).await;
    let worker = stage.worker(Policy::new()).await;
    let write = json!({"path": "a.txt", "content": "two\n", "mode": "overwrite"});
    let preview = worker
        .preview("disk__write_file", write.clone())
        .await
        .unwrap();
    assert_eq!(read(&temp.path().join("a.txt")), "one\n");
    let tied = || {
        let meta = CallMeta {
            preview_token: Some(preview.token),
            ..CallMeta::default()
        };
        worker.submit(Call::new("disk__write_file", write.clone()).meta(meta))
    };
    std::fs::write(temp.path().join("a.txt"), "changed\n").unwrap();
    let stale = tied().await.unwrap_err();
    assert!(stale.message().contains("STALE_PREVIEW"), "{stale}");
    std::fs::write(temp.path().join("a.txt"), "one\n").unwrap();
    assert!(tied().await.is_ok());
    assert_eq!(read(&temp.path().join("a.txt")), "two\n");
}

#[tokio::test]
async fn requested_scopes_of_a_server_are_asked_and_replayed() {
    let temp = folder(&[]);
    let ask = [
        "--trust=host",
        "--ask=replay",
        "--allow-scopes=read:file",
        "--ask-scopes=write:file",
    ];
    let asking = |flags: &[&str]| file_server(PROGRAM, "disk", temp.path(), flags);
    let (approver, asked) = allow_once();
    let stage_of = |approver: Scripted, spec: ServerSpec| async move {
        test_runtime(start([spec]).await, |builder| builder.approver(approver)).await
    };
    let stage = stage_of(approver, asking(&ask)).await;
    let worker = stage.worker(Policy::new()).await;
    let write = json!({"path": "b.txt", "content": "two\n"});
    worker
        .call("disk__write_file", write.clone())
        .await
        .unwrap();
    assert_eq!(read(&temp.path().join("b.txt")), "two\n");
    let needs: Vec<String> = {
        let asked = asked.lock().unwrap();
        asked
            .iter()
            .flat_map(|it| it.request.needs.iter().map(ToString::to_string))
            .collect()
    };
    let label = stage.upstreams.label("disk").unwrap();
    assert!(
        needs
            .iter()
            .any(|need| need.starts_with(&format!("write:mcp:{label}:file:"))),
        "{needs:?}"
    );

    // A person who allows the tool and not what its server asks for.
    let only_tool = Scripted::new().allow(
        format!("write:mcp:{label}:write_file").parse().unwrap(),
        Lifetime::Once,
    );
    let stage = stage_of(only_tool, asking(&ask)).await;
    let worker = stage.worker(Policy::new()).await;
    let refused = worker
        .call("disk__write_file", json!({"path": "c.txt", "content": ""}))
        .await;
    assert_eq!(code(refused), Code::PermissionDenied);
    assert!(!temp.path().join("c.txt").try_exists().unwrap());
}

/// A host that gives the same answer to every form.
struct FixedAnswer(&'static str);

impl ServerRequests for FixedAnswer {
    fn capabilities(&self) -> RequestCapabilities {
        RequestCapabilities::ALL
    }

    fn elicit(&self, request: Elicitation) -> BoxFuture<'_, ElicitationResponse> {
        assert_eq!(request.server, "disk");
        let content = serde_json::Map::from_iter([("decision".to_owned(), self.0.into())]);
        Box::pin(std::future::ready(ElicitationResponse::Accept(content)))
    }
}

#[tokio::test]
async fn elicitation_of_a_server_reaches_the_host() {
    for (decision, expected) in [("allow", Ok(())), ("deny", Err(Code::ServerFailed))] {
        let temp = folder(&[]);
        let flags = [
            "--ask",
            "client",
            "--allow-scopes",
            "read:file",
            "--ask-scopes",
            "write:file",
        ];
        let builder =
            Upstreams::builder().server(file_server(PROGRAM, "disk", temp.path(), &flags));
        let upstreams = builder
            .requests(FixedAnswer(decision))
            .start()
            .await
            .unwrap();
        let stage = test_runtime(upstreams, |builder| builder.approver(allow_once().0)).await;
        let worker = stage.worker(Policy::new()).await;
        let write = json!({"path": "b.txt", "content": "two\n"});
        let answered = worker.call("disk__write_file", write).await;
        assert_eq!(answered.map(drop).map_err(|error| error.code()), expected);
        assert_eq!(
            temp.path().join("b.txt").try_exists().unwrap(),
            expected.is_ok()
        );
    }
}
