//! A raw MCP client of a gateway in this process.

use std::time::Duration;

use bailiwick::Worker;
use bailiwick_mcp::gateway::{Gateway, GatewayInfo};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
    split,
};
use tokio::task::JoinHandle;

use crate::server;

/// How long a message may take on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What a gateway of a test calls itself.
pub fn info() -> GatewayInfo {
    GatewayInfo {
        name: "bailiwick-test".into(),
        title: "Bailiwick under test".into(),
        version: "0.0.0".into(),
        instructions: "Use the tools.".into(),
    }
}

/// A gateway to one worker.
pub fn gateway(worker: &Worker) -> Gateway {
    Gateway::worker(worker, info()).build()
}

/// The `_meta` of a request without a session.
pub fn stateless_meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    })
}

/// A client that sends and receives lines.
#[derive(Debug)]
pub struct Client {
    output: Lines<BufReader<ReadHalf<DuplexStream>>>,
    input: WriteHalf<DuplexStream>,
    /// The `_meta` of every request.
    meta: Option<Value>,
    next_id: u64,
}

impl Client {
    /// Connects to a gateway, without a session.
    pub fn new(gateway: &Gateway) -> Self {
        Self::with_task(gateway).0
    }

    /// Like [`Client::new`], with the task that serves the client.
    pub fn with_task(gateway: &Gateway) -> (Self, JoinHandle<()>) {
        let (near, far) = tokio::io::duplex(1 << 20);
        let (reader, writer) = split(far);
        let gateway = gateway.clone();
        let task = tokio::spawn(async move { gateway.serve(reader, writer).await.unwrap() });
        let (reader, writer) = split(near);
        let client = Self {
            output: BufReader::new(reader).lines(),
            input: writer,
            meta: None,
            next_id: 0,
        };
        (client, task)
    }

    /// Connects to a gateway and initializes a session.
    pub async fn connect(gateway: &Gateway, capabilities: Value) -> Self {
        let mut client = Self::new(gateway);
        client.initialize("2025-11-25", capabilities).await;
        client
    }

    /// Connects to a gateway. Every request that [`Client::start_request`] sends has the `_meta` of a client without a session.
    pub fn stateless(gateway: &Gateway, capabilities: &Value) -> Self {
        Self {
            meta: Some(stateless_meta(capabilities)),
            ..Self::new(gateway)
        }
    }

    /// Initializes a session, and returns the response.
    pub async fn initialize(&mut self, version: &str, capabilities: Value) -> Value {
        let params = json!({
            "protocolVersion": version, "capabilities": capabilities,
            "clientInfo": {"name": "raw", "version": "1"},
        });
        let response = self.request("initialize", params).await;
        if response["result"].is_object() {
            self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
                .await;
        }
        response
    }

    /// Sends a message.
    pub async fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string()).await;
    }

    /// Sends a line, which need not be a message.
    pub async fn send_line(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
    }

    /// Sends a request and returns its id.
    pub async fn start_request(&mut self, method: &str, mut params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        if let Some(meta) = &self.meta {
            params["_meta"] = meta.clone();
        }
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        id
    }

    /// Sends a call of a tool and returns its id.
    pub async fn start_call(&mut self, tool: &str, arguments: Value) -> u64 {
        let params = json!({"name": tool, "arguments": arguments});
        self.start_request("tools/call", params).await
    }

    /// Sends a request and returns the response.
    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.start_request(method, params).await;
        loop {
            let message = self.receive().await;
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Like [`Client::request`]; the response must be the next message.
    pub async fn request_next(&mut self, method: &str, params: Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": "next", "method": method, "params": params}))
            .await;
        let message = self.receive().await;
        assert_eq!(message["id"], "next", "{message}");
        message
    }

    /// Calls a tool and returns the response.
    pub async fn call(&mut self, tool: &str, arguments: Value, meta: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        self.request("tools/call", params).await
    }

    /// Sends a request without a session, with `more` in its `_meta`, and returns the response.
    pub async fn request_stateless(
        &mut self,
        method: &str,
        mut params: Value,
        more: Value,
    ) -> Value {
        let mut meta = stateless_meta(&json!({}));
        for (key, value) in more.as_object().unwrap() {
            meta[key] = value.clone();
        }
        params["_meta"] = meta;
        self.request(method, params).await
    }

    /// The next line; `None` if the gateway disconnected.
    pub async fn receive_line(&mut self) -> Option<String> {
        let line = tokio::time::timeout(TIMEOUT, self.output.next_line()).await;
        line.unwrap_or_else(|_| panic!("no message within 60 s"))
            .unwrap()
    }

    /// The next message.
    pub async fn receive(&mut self) -> Value {
        serde_json::from_str(&self.receive_line().await.unwrap()).unwrap()
    }

    /// The next response, whatever comes before it.
    pub async fn receive_response(&mut self) -> Value {
        loop {
            let message = self.receive().await;
            if message["method"].is_null() {
                return message;
            }
        }
    }

    /// The next request or notification of this method. No response may come before it.
    pub async fn receive_request(&mut self, method: &str) -> Value {
        loop {
            let message = self.receive().await;
            assert!(!message["method"].is_null(), "{message}");
            if message["method"] == method {
                return message;
            }
        }
    }

    /// Responds to a request of the gateway.
    pub async fn respond(&mut self, request: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
            .await;
    }

    /// The response to a request. No request of the gateway may come before it.
    pub async fn response(&mut self, id: u64) -> Value {
        loop {
            let message = self.receive().await;
            let is_request = message.get("id").is_some() && message.get("method").is_some();
            assert!(!is_request, "{message}");
            if message["id"] == id {
                return message;
            }
        }
    }

    /// The text of the result of a call.
    pub async fn text(&mut self, id: u64) -> String {
        server::text(&self.response(id).await["result"])
    }
}
