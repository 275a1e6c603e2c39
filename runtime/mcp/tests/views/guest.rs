//! Scripted guest pages, well-behaved and hostile.

use bailiwick::requests::BoxFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailiwick::Answer;
use bailiwick::{Config, Policy, RuntimeBuilder, Scripted, Worker};
use bailiwick_mcp::view::{
    View, ViewCapabilities, ViewEvent, ViewHost, ViewLimits, ViewRequest, ViewSpec, ViewState,
};
use bailiwick_mcp::view::{ViewChannel, ViewSender};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Stage, stage};

pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// One end of a view.
pub(super) struct Guest {
    link: ViewChannel,
}

impl Guest {
    pub(super) fn sender(&self) -> ViewSender {
        self.link.sender()
    }

    pub(super) async fn send(&self, message: Value) {
        assert!(
            self.sender().send(message.to_string()).await,
            "the channel is closed"
        );
    }

    pub(super) async fn notify(&self, method: &str) {
        self.send(json!({"jsonrpc": "2.0", "method": method})).await;
    }

    /// The next message to it.
    pub(super) async fn next(&mut self) -> Option<Value> {
        let text = timeout(PATIENCE, self.link.next()).await.unwrap()?;
        Some(serde_json::from_str(&text).unwrap())
    }

    /// The answer to one request; other messages are ignored.
    pub(super) async fn request(&mut self, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params});
        self.send(request).await;
        loop {
            let message = self.next().await.unwrap();
            if message.get("id") == Some(&method.into()) {
                return message;
            }
        }
    }

    /// Calls a tool of its server.
    pub(super) async fn call_tool(&mut self, name: &str, arguments: Value) -> Value {
        let params = json!({"name": name, "arguments": arguments});
        self.request("tools/call", params).await
    }

    /// Initializes, offering these tools.
    pub(super) async fn initialize(&mut self, tools: Value) -> Value {
        let info = json!({"name": "board", "version": "2"});
        let params = json!({"appInfo": info, "appCapabilities": {"tools": tools}, "protocolVersion": "2026-01-26"});
        let response = self.request("ui/initialize", params).await;
        self.notify("ui/notifications/initialized").await;
        response
    }

    /// Answers each request by `script`; unanswered requests hang. Returns all received messages once the view is closed.
    pub(super) fn respond_with(
        mut self,
        mut script: impl FnMut(&str, &Value) -> Option<Value> + Send + 'static,
    ) -> JoinHandle<Vec<Value>> {
        tokio::spawn(async move {
            let mut seen = Vec::new();
            let sender = self.sender();
            while let Some(text) = self.link.next().await {
                let message: Value = serde_json::from_str(&text).unwrap();
                let nothing = Value::Null;
                let params = message.get("params").unwrap_or(&nothing);
                let method = message.get("method").and_then(Value::as_str);
                let answer = method.and_then(|method| script(method, params));
                if let (Some(Value::Object(mut answer)), Some(id)) = (answer, message.get("id")) {
                    answer.insert("jsonrpc".into(), "2.0".into());
                    answer.insert("id".into(), id.clone());
                    sender.send(Value::Object(answer).to_string()).await;
                }
                seen.push(message);
            }
            seen
        })
    }
}

pub(super) fn tool(name: &str, reads: bool) -> Value {
    json!({"name": name, "description": format!("Does {name}."), "annotations": {"readOnlyHint": reads}})
}

/// Tools that return their arguments, and other results of `call`.
pub(super) fn offering(
    tools: Vec<Value>,
    mut call: impl FnMut(&str, &Value) -> Option<Value> + Send + 'static,
) -> impl FnMut(&str, &Value) -> Option<Value> + Send + 'static {
    move |method, params| match method {
        "tools/list" => Some(json!({"result": {"tools": tools}})),
        "tools/call" => {
            let name = params.get("name").and_then(Value::as_str);
            call(name.unwrap(), params.get("arguments").unwrap())
        }
        _ => Some(json!({"result": {}})),
    }
}

pub(super) fn echo(_: &str, arguments: &Value) -> Option<Value> {
    Some(json!({"result": text_result(&arguments.to_string())}))
}

pub(super) fn text_result(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// A host that allows or denies everything, and the messages that it received.
#[derive(Clone, Default)]
pub(super) struct Host {
    pub(super) yes: bool,
    pub(super) requests: Arc<Mutex<Vec<ViewRequest>>>,
    pub(super) events: Arc<watch::Sender<Vec<ViewEvent>>>,
    pub(super) messages: Arc<Mutex<Vec<bool>>>,
}

impl Host {
    pub(super) fn yes() -> Self {
        Self {
            yes: true,
            ..Self::default()
        }
    }
}

impl ViewHost for Host {
    fn capabilities(&self) -> ViewCapabilities {
        ViewCapabilities::ALL
    }

    fn on_request(&self, request: ViewRequest) -> BoxFuture<'_, bool> {
        self.requests.lock().unwrap().push(request);
        Box::pin(std::future::ready(self.yes))
    }

    fn on_event(&self, event: ViewEvent) {
        self.events.send_modify(|events| events.push(event));
    }

    fn on_message(&self, of_app: bool, _: &str) {
        self.messages.lock().unwrap().push(of_app);
    }
}

/// A policy that allows reading from apps and asks about everything else of theirs.
pub(super) async fn apps(configure: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Stage {
    stage(|builder| {
        let mut config = Config::new();
        config.allow = vec!["read:mcp".parse().unwrap()];
        configure(builder.config(config).grantable("write:mcp"))
    })
    .await
}

/// An approver that allows everything, and the sentences that it read.
pub(super) fn yes() -> (Scripted, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let approver = Scripted::new().rule(move |question| {
        let intent = question.request.intent.clone();
        seen.lock().unwrap().push(intent);
        Some(Answer::ONCE)
    });
    (approver, asked)
}

pub(super) async fn opened(worker: &Worker, spec: ViewSpec, host: impl ViewHost) -> (View, Guest) {
    let (view, link) = View::open(worker, spec, host).await.unwrap();
    (view, Guest { link })
}

/// A view whose guest is initialized, offering these tools.
pub(super) async fn initialized(
    worker: &Worker,
    spec: ViewSpec,
    host: impl ViewHost,
    tools: Value,
) -> (View, Guest) {
    let (view, mut guest) = opened(worker, spec, host).await;
    guest.initialize(tools).await;
    (view, guest)
}

/// Sends that the guest's tools have changed.
pub(super) async fn list_changed(sender: &ViewSender) -> bool {
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    sender.send(changed.to_string()).await
}

/// A view `files` whose guest answers its `tools/list` number `turn`, from 1, with `list(turn)`.
pub(super) async fn listing(
    worker: &Worker,
    host: &Host,
    mut list: impl FnMut(usize) -> Value + Send + 'static,
) -> (View, ViewSender) {
    let tools = json!({"listChanged": true});
    let (view, guest) = initialized(worker, quick("files"), host.clone(), tools).await;
    let sender = guest.sender();
    let mut turn = 0;
    drop(guest.respond_with(move |method, _| {
        if method != "tools/list" {
            return Some(json!({"result": text_result("")}));
        }
        turn += 1;
        Some(list(turn))
    }));
    (view, sender)
}

/// A view `files` with a scripted guest, once its tools are offered.
pub(super) async fn offered(
    worker: &Worker,
    name: &str,
    script: impl FnMut(&str, &Value) -> Option<Value> + Send + 'static,
) -> (View, JoinHandle<Vec<Value>>) {
    let host = Host::default();
    let tools = json!({"listChanged": true});
    let (view, guest) = initialized(worker, quick(name), host.clone(), tools).await;
    let guest = guest.respond_with(script);
    listed(&view, &host).await;
    (view, guest)
}

/// Waits until the guest's tools are offered.
pub(super) async fn listed(view: &View, host: &Host) {
    assert!(view.reached(ViewState::Mounted).await);
    let mut events = host.events.subscribe();
    let listed = events.wait_for(|events| events.contains(&ViewEvent::ToolsChanged));
    timeout(PATIENCE, listed).await.unwrap().unwrap();
}

/// A view with short timeouts.
pub(super) fn quick(name: &str) -> ViewSpec {
    ViewSpec::new(name).limits(ViewLimits {
        call: Duration::from_millis(400),
        pause: Duration::from_millis(100),
        teardown: Duration::from_millis(50),
        ..ViewLimits::default()
    })
}

pub(super) async fn worker(stage: &Stage) -> Worker {
    stage.worker(Policy::new()).await
}

/// A worker that may read from apps and is asked about everything else of theirs.
pub(super) async fn agent() -> (Stage, Worker) {
    let stage = apps(|builder| builder).await;
    let worker = worker(&stage).await;
    (stage, worker)
}

/// The names of the tools of apps that an agent is offered.
pub(super) fn names(worker: &Worker) -> Vec<String> {
    let tools = worker.tools().into_iter();
    let names = tools.map(|tool| tool.spec.name.into_owned());
    names.filter(|name| name.contains("app_")).collect()
}
