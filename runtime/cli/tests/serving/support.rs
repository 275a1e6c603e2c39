//! A gateway over a temporary root, and a client that speaks raw lines to it.

use std::fs;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use bailiwick::{Deferred, Policy, Runtime, ToolSet, Worker, WorkerSpec};
use bailiwick_mcp::gateway::{
    Backend, BackendError, BackendFactory, FileTools, Gateway, GatewayBuilder, GatewayInfo, Trust,
};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, split,
};
use tokio::task::JoinHandle;

/// How long a message may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Opens a directory as `/r`, whatever a client configures beyond its policy keys.
struct Root {
    host: PathBuf,
    tools: fn() -> ToolSet,
    /// Questions wait for the gateway's client.
    asks: bool,
}

impl BackendFactory for Root {
    fn create(
        &self,
        configuration: Option<Value>,
    ) -> Pin<Box<dyn Future<Output = Result<Backend, BackendError>> + Send + '_>> {
        Box::pin(async move {
            let policy = Policy::parse(&configuration.unwrap_or_else(|| json!({})))?;
            let mut builder = Runtime::builder()
                .root("r", &self.host)
                .grantable("read:file")
                .grantable("write:file")
                .tools((self.tools)())
                .policy(policy.deny_glob("**/secret/**"));
            if self.asks {
                builder = builder.approver(Deferred);
            }
            let (runtime, grants) = builder.build().await?;
            let worker = runtime
                .spawn(WorkerSpec::new("client").policy(Policy::new()))
                .await?;
            Ok(Backend::new(runtime, &worker, Some(grants)))
        })
    }
}

/// A temporary directory that is served as `/r`, and what lies beside it.
pub(crate) struct World {
    temp: tempfile::TempDir,
    tools: fn() -> ToolSet,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(bailiwick_fs::tools)
    }

    pub(crate) fn with(tools: fn() -> ToolSet) -> Self {
        let temp = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("r/a.txt", "one\ntwo\nthree\n"),
            ("r/src/lib.rs", "fn main() {}\n"),
            ("r/secret/key", "hidden"),
            ("outside/f", "theirs"),
        ] {
            let path = temp.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self { temp, tools }
    }

    pub(crate) fn host(&self, path: &str) -> PathBuf {
        self.temp.path().join(path)
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.host(path)).unwrap()
    }

    pub(crate) fn gateway(&self, trust: Trust) -> GatewayBuilder {
        self.opening(trust, false)
    }

    /// A gateway that puts questions to the people behind its clients.
    pub(crate) fn asking(&self, trust: Trust) -> Gateway {
        self.opening(trust, true).ask_client().unwrap().build()
    }

    fn opening(&self, trust: Trust, asks: bool) -> GatewayBuilder {
        let about = GatewayInfo {
            name: "bailiwick-test".into(),
            title: "Bailiwick under test".into(),
            version: "0.0.0".into(),
            instructions: "Use the tools.".into(),
        };
        let files = FileTools {
            read: "read_file",
            list: "list_directory",
        };
        let root = Root {
            host: self.host("r"),
            tools: self.tools,
            asks,
        };
        Gateway::with_factory(root, trust, about)
            .files(files)
            .config_schema(json!({"type": "object"}))
    }

    /// A worker on the same root, and the runtime that keeps it.
    pub(crate) async fn worker(&self) -> (Runtime, Worker) {
        let builder = Runtime::builder().root("r", self.host("r"));
        let (runtime, _) = builder.tools(bailiwick_fs::tools()).build().await.unwrap();
        let spec = WorkerSpec::new("agent").policy(Policy::new());
        let worker = runtime.spawn(spec).await.unwrap();
        (runtime, worker)
    }

    pub(crate) fn client(&self, trust: Trust) -> Client {
        Client::of(&self.gateway(trust).build())
    }
}

/// Speaks raw lines.
pub(crate) struct Client {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    next: i64,
}

impl Client {
    pub(crate) fn of(gateway: &Gateway) -> Self {
        Self::served(gateway).0
    }

    /// A client, and the task that serves it.
    pub(crate) fn served(gateway: &Gateway) -> (Self, JoinHandle<()>) {
        let (near, far) = tokio::io::duplex(1 << 20);
        let (reader, writer) = split(far);
        let gateway = gateway.clone();
        let serving = tokio::spawn(async move { gateway.serve(reader, writer).await.unwrap() });
        let (reader, writer) = split(near);
        let client = Self {
            lines: BufReader::new(reader).lines(),
            writer,
            next: 1,
        };
        (client, serving)
    }

    /// A client of `version` that had its handshake and says `capabilities` of itself.
    pub(crate) async fn greet(&mut self, version: &str, capabilities: Value) -> Value {
        let answer = self
            .ask(
                "initialize",
                json!({
                    "protocolVersion": version, "capabilities": capabilities,
                    "clientInfo": {"name": "raw", "version": "1"},
                }),
            )
            .await;
        if answer["result"].is_object() {
            self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
                .await;
        }
        answer
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string()).await;
    }

    /// Sends a line that need be no message.
    pub(crate) async fn send_line(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.writer.write_all(line.as_bytes()).await.unwrap();
    }

    /// The next message, as it came.
    pub(crate) async fn line(&mut self) -> Option<String> {
        // A message that never comes must fail the test, not hang it.
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        line.expect("no message came").unwrap()
    }

    pub(crate) async fn next(&mut self) -> Value {
        serde_json::from_str(&self.line().await.unwrap()).unwrap()
    }

    /// The next answer; notifications are skipped.
    pub(crate) async fn answer(&mut self) -> Value {
        loop {
            let message = self.next().await;
            if message["method"].is_null() {
                return message;
            }
        }
    }

    /// Sends a request and returns the whole answer.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.next;
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        loop {
            let message = self.next().await;
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Like [`Client::ask`], where the very next message must be the answer.
    pub(crate) async fn exchange(&mut self, method: &str, params: Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": "next", "method": method, "params": params}))
            .await;
        let message = self.next().await;
        assert_eq!(message["id"], "next", "{message}");
        message
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: Value, meta: Value) -> Value {
        self.ask(
            "tools/call",
            json!({"name": tool, "arguments": arguments, "_meta": meta}),
        )
        .await
    }

    /// A stateless request.
    pub(crate) async fn modern(&mut self, method: &str, mut params: Value, meta: Value) -> Value {
        let mut all = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        });
        for (key, value) in meta.as_object().unwrap() {
            all[key] = value.clone();
        }
        params["_meta"] = all;
        self.ask(method, params).await
    }
}
