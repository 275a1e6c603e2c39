//! A host that uses a server of the suite.

use bailiwick::requests::{
    BoxFuture, Elicitation, ElicitationKind, ElicitationResponse, RequestCapabilities,
    ServerRequests, SignIn, SignInAnswer,
};
use std::time::Duration;

use bailiwick::{Answer, Policy, Runtime, Scripted, WorkerSpec};
use bailiwick_mcp::upstream::{OAuth, ServerSpec, ServerState, Upstreams};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What the suite's authorization servers know a host by.
const LANDING: &str = "http://localhost:3000/callback";
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";

/// How long a server is tried that lets nobody in; the suite waits for 30 seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Says yes to every form and signs in wherever it is asked to.
struct Host;

impl ServerRequests for Host {
    fn capabilities(&self) -> RequestCapabilities {
        RequestCapabilities::ALL
    }

    fn elicit(&self, request: Elicitation) -> BoxFuture<'_, ElicitationResponse> {
        let ElicitationKind::Form(form) = request.kind else {
            return Box::pin(std::future::ready(ElicitationResponse::Decline));
        };
        let values = filled(&form, |field| field.get("default").cloned());
        Box::pin(std::future::ready(ElicitationResponse::Accept(values)))
    }

    fn sign_in(&self, request: SignIn) -> BoxFuture<'_, SignInAnswer> {
        Box::pin(async move {
            let address = redirected(&request.url).await;
            address.map_or(SignInAnswer::Unavailable, SignInAnswer::Completed)
        })
    }
}

/// Where a browser is redirected that opens an address.
async fn redirected(url: &str) -> Option<String> {
    let rest = url.strip_prefix("http://")?;
    let (host, path) = rest.split_once('/')?;
    let mut server = TcpStream::connect(host).await.ok()?;
    let asked = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    server.write_all(asked.as_bytes()).await.ok()?;
    let mut head = String::new();
    server.read_to_string(&mut head).await.ok()?;
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let location = lines.find(|(name, _)| name.eq_ignore_ascii_case("location"));
    location.map(|(_, location)| location.to_owned())
}

/// Values for the fields of a flat schema.
fn filled(schema: &Value, value: impl Fn(&Value) -> Option<Value>) -> Map<String, Value> {
    let fields = schema["properties"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let filled = fields
        .into_iter()
        .filter_map(|(name, field)| Some((name, value(&field)?)));
    filled.collect()
}

/// Anything that fits what a tool wants.
fn arguments(schema: &Value) -> Value {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let any = |field: &Value| match field["type"].as_str() {
        Some("number" | "integer") => Some(json!(1)),
        Some("boolean") => Some(json!(true)),
        Some("array") => Some(json!([])),
        Some("object") => Some(json!({})),
        _ => Some(json!("text")),
    };
    let mut all = filled(schema, any);
    all.retain(|name, _| required.iter().any(|required| required == name));
    all.into()
}

/// Connects, signs in on request, and calls the tools that the suite names, or each tool once.
pub(crate) async fn run(url: &str) {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").ok();
    let context: Value = context
        .and_then(|context| serde_json::from_str(&context).ok())
        .unwrap_or_default();
    let mut oauth = OAuth::new(LANDING).client_id_metadata_url(DOCUMENT);
    if let Some(id) = context["client_id"].as_str() {
        let secret = context["client_secret"].as_str().map(ToOwned::to_owned);
        oauth = oauth.preregistered_client("suite", id, secret);
    }
    let builder = Upstreams::builder().server(ServerSpec::http("suite", url));
    let upstreams = builder.oauth(oauth).requests(Host).start().await.unwrap();
    let ready = upstreams.reached("suite", ServerState::Ready);
    let ready = tokio::time::timeout(PATIENCE, ready);
    let ready = tokio::select! {
        ready = ready => ready == Ok(true),
        _ = upstreams.reached("suite", ServerState::GivenUp) => false,
    };
    if ready {
        call(&upstreams, &context).await;
    }
    upstreams.shutdown().await;
}

async fn call(upstreams: &Upstreams, context: &Value) {
    let builder = Runtime::builder().servers(upstreams);
    let builder = builder.grantable("read:mcp").grantable("write:mcp");
    let yes = Scripted::new().rule(|_| Some(Answer::ONCE));
    let (runtime, _grants) = builder.approver(yes).build().await.unwrap();
    let worker = WorkerSpec::new("suite").policy(Policy::new());
    let worker = runtime.spawn(worker).await.unwrap();
    let calls = context["toolCalls"].as_array().cloned();
    let calls = calls.unwrap_or_else(|| {
        let tools = worker.tools();
        let each = tools.iter().map(|tool| {
            let name = tool.spec.name.strip_prefix("suite__");
            json!({"name": name, "arguments": arguments(&tool.input_schema)})
        });
        each.collect()
    });
    for call in calls {
        let name = format!("suite__{}", call["name"].as_str().unwrap());
        let answer = worker.call(&name, call["arguments"].clone()).await;
        let text = answer.map(|outcome| outcome.text());
        // The suite shows it where a scenario fails.
        let _ = tokio::io::stderr()
            .write_all(format!("{name}: {text:?}\n").as_bytes())
            .await;
    }
    runtime.shutdown().await;
}
