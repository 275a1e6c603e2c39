//! Tests with third-party servers.

use crate::installed::{node, package};
use bailiwick::requests::{
    BoxFuture, ElicitationResponse, RequestCapabilities, Sampling, SamplingResponse, ServerRequests,
};
use bailiwick::{Code, Policy, Verb};
use bailiwick_mcp::upstream::{ServerSpec, ServerState, ServerText, ServerTool, Upstreams};
use bailiwick_test_support::client::{Client, gateway};
use bailiwick_test_support::upstream::{allow_once, code, start, test_runtime, text};
use serde_json::{Map, json};

async fn server(name: &str, script: &'static str) -> ServerSpec {
    let installed = tokio::task::spawn_blocking(move || (node(), package(script)));
    let (node, script) = installed.await.unwrap();
    ServerSpec::stdio(name, node.to_str().unwrap()).args([script.to_str().unwrap()])
}

const FILESYSTEM: &str = "@modelcontextprotocol/server-filesystem/dist/index.js";
const EVERYTHING: &str = "@modelcontextprotocol/server-everything/dist/index.js";

#[tokio::test]
async fn policy_applies_to_a_third_party_file_server() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("a.txt"), "one\n").unwrap();
    let spec = server("disk", FILESYSTEM)
        .await
        .args([temp.path().to_str().unwrap()]);
    let stage = test_runtime(start([spec]).await, |builder| {
        builder.approver(allow_once().0)
    })
    .await;
    assert_eq!(stage.upstreams.state("disk"), Some(ServerState::Ready));
    let verb = |tool: &str| {
        let tools = stage.upstreams.tools("disk");
        let tool = tools.into_iter().find(|it| it.tool == tool).unwrap();
        tool.offered.unwrap().1
    };
    assert_eq!(
        (verb("read_text_file"), verb("write_file")),
        (Verb::Read, Verb::Write)
    );
    let at = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();

    let reader = stage.worker(Policy::new().allow("read:mcp:disk")).await;
    let read = reader
        .call("disk__read_text_file", json!({"path": at("a.txt")}))
        .await;
    assert_eq!(text(read), "one\n");
    let write = || json!({"path": at("b.txt"), "content": "two\n"});
    assert_eq!(
        code(reader.call("disk__write_file", write()).await),
        Code::PermissionDenied
    );
    assert!(!temp.path().join("b.txt").try_exists().unwrap());

    let writer = stage
        .worker(Policy::new().allow("write:mcp:disk:write_file"))
        .await;
    writer.call("disk__write_file", write()).await.unwrap();
    assert_eq!(std::fs::read_to_string(at("b.txt")).unwrap(), "two\n");
    let preview = writer
        .preview("disk__write_file", write())
        .await
        .unwrap_err();
    assert_eq!(preview.code(), Code::InvalidArguments);
}

struct Host;

impl ServerRequests for Host {
    fn capabilities(&self) -> RequestCapabilities {
        RequestCapabilities::ALL
    }

    fn elicit(&self, _: bailiwick::requests::Elicitation) -> BoxFuture<'_, ElicitationResponse> {
        Box::pin(std::future::ready(ElicitationResponse::Decline))
    }

    fn sample(&self, request: Sampling) -> BoxFuture<'_, Option<SamplingResponse>> {
        assert_eq!(request.server, "all");
        let response = SamplingResponse {
            model: "scripted".into(),
            text: "a scripted word".into(),
        };
        Box::pin(std::future::ready(Some(response)))
    }
}

#[tokio::test]
async fn everything_server_works_including_elicitation() {
    let spec = server("all", EVERYTHING).await;
    let upstreams = Upstreams::builder()
        .server(spec)
        .requests(Host)
        .start()
        .await
        .unwrap();
    let stage = test_runtime(upstreams, |builder| builder.approver(allow_once().0)).await;
    let worker = stage.worker(Policy::new()).await;
    let echoed = worker.call("all__echo", json!({"message": "hello"})).await;
    assert!(text(echoed).contains("hello"));
    let structured = worker
        .call(
            "all__get-structured-content",
            json!({"location": "New York"}),
        )
        .await;
    assert!(
        structured
            .unwrap()
            .structured()
            .unwrap()
            .get("temperature")
            .is_some()
    );
    let sampled = worker
        .call(
            "all__trigger-sampling-request",
            json!({"prompt": "Say.", "maxTokens": 9}),
        )
        .await;
    assert!(text(sampled).contains("a scripted word"));
    let image = worker.call("all__get-tiny-image", json!({})).await.unwrap();
    assert!(
        image
            .reply
            .content
            .iter()
            .any(|it| matches!(it, bailiwick::effect::Content::Image { .. }))
    );
}

#[tokio::test]
async fn gateway_client_answers_the_everything_server() {
    let spec = server("all", EVERYTHING).await;
    let builder = Upstreams::builder().server(spec).forward_requests();
    let upstreams = builder.start().await.unwrap();
    let stage = test_runtime(upstreams, |builder| builder.approver(allow_once().0)).await;
    let worker = stage.worker(Policy::new()).await;
    let gateway = gateway(&worker);
    let call = "all__trigger-elicitation-request";
    let mut client = Client::connect(&gateway, json!({"elicitation": {}})).await;
    let id = client.start_call(call, json!({})).await;
    let asked = client.receive_request("elicitation/create").await;
    let message = asked["params"]["message"].as_str().unwrap();
    assert!(
        message.contains("`all`")
            && message.ends_with("> Please provide inputs for the following fields:"),
        "{message}"
    );
    let fields = &asked["params"]["requestedSchema"]["properties"];
    assert_eq!(fields["name"]["description"], "Your full, legal name");
    let content = json!({"name": "Ada", "check": true});
    client
        .respond(&asked, json!({"action": "accept", "content": content}))
        .await;
    let answer = client.text(id).await;
    assert!(answer.contains("- Name: Ada"), "{answer}");

    let mut plain = Client::connect(&gateway, json!({})).await;
    let id = plain.start_call(call, json!({})).await;
    let refused = plain.text(id).await;
    assert!(
        refused.contains("of a client that supports it"),
        "{refused}"
    );
    // It asks for roots when it is connected, outside of every call.
    let id = plain.start_call("all__get-roots-list", json!({})).await;
    assert!(plain.text(id).await.contains("no roots are currently"));
    // Sampling is not offered to servers.
    let tools = stage.upstreams.tools("all");
    let asks_model = |tool: &ServerTool| tool.tool.contains("sampling");
    assert!(!tools.iter().any(asks_model));
}

#[tokio::test]
async fn host_reads_resources_and_prompts_of_servers() {
    let upstreams = start([server("all", EVERYTHING).await]).await;
    let resources = upstreams.resources("all").await.unwrap();
    let first = resources.first().unwrap();
    let read = upstreams.read_resource("all", &first.uri).await.unwrap();
    assert!(matches!(
        read.first(),
        Some(ServerText::Text(_) | ServerText::Bytes(_))
    ));
    let prompts = upstreams.prompts("all").await.unwrap();
    let plain = prompts
        .iter()
        .find(|prompt| prompt.arguments.is_empty())
        .unwrap();
    let messages = upstreams
        .prompt("all", &plain.name, Map::new())
        .await
        .unwrap();
    assert!(messages.iter().any(|message| !message.text.is_empty()));
    assert!(upstreams.resources("none").await.is_err());
}
