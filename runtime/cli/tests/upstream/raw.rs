//! A raw MCP client of a gateway.

use std::time::Duration;

use bailiwick::Worker;
use bailiwick_mcp::gateway::{Gateway, GatewayInfo};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};

/// A gateway to one worker.
pub(crate) fn gateway(worker: &Worker) -> Gateway {
    let about = GatewayInfo {
        name: "test".to_owned(),
        title: "Test".to_owned(),
        version: "1".to_owned(),
        instructions: String::new(),
    };
    Gateway::worker(worker, about).build()
}

pub(crate) struct Client {
    output: Lines<BufReader<ReadHalf<DuplexStream>>>,
    input: WriteHalf<DuplexStream>,
    /// What goes along with every request, without a handshake.
    meta: Option<Value>,
    next: u64,
}

impl Client {
    fn over(gateway: &Gateway, meta: Option<Value>) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (reader, writer) = tokio::io::split(theirs);
        let gateway = gateway.clone();
        tokio::spawn(async move { gateway.serve(reader, writer).await });
        let (output, input) = tokio::io::split(ours);
        Self {
            output: BufReader::new(output).lines(),
            input,
            meta,
            next: 0,
        }
    }

    /// One with a handshake.
    pub(crate) async fn connect(gateway: &Gateway, capabilities: Value) -> Self {
        let mut client = Self::over(gateway, None);
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "test", "version": "1"},
        });
        let id = client.send("initialize", params).await;
        client.response(id).await;
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        client.write(&ready).await;
        client
    }

    /// One without a handshake.
    pub(crate) fn stateless(gateway: &Gateway, capabilities: &Value) -> Self {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        });
        Self::over(gateway, Some(meta))
    }

    pub(crate) async fn write(&mut self, message: &Value) {
        let line = format!("{message}\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
    }

    /// Sends a request; its id.
    pub(crate) async fn send(&mut self, method: &str, mut params: Value) -> u64 {
        self.next += 1;
        if let Some(meta) = &self.meta {
            params["_meta"] = meta.clone();
        }
        let id = self.next;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        id
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> u64 {
        let params = json!({"name": tool, "arguments": arguments});
        self.send("tools/call", params).await
    }

    /// The next message.
    pub(crate) async fn receive(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(60), self.output.next_line());
        let line = line.await.unwrap().unwrap();
        serde_json::from_str(&line.unwrap()).unwrap()
    }

    /// The next request or notification of this method.
    pub(crate) async fn asked(&mut self, method: &str) -> Value {
        loop {
            let message = self.receive().await;
            assert!(
                message.get("result").is_none() && message.get("error").is_none(),
                "{message}"
            );
            if message["method"] == method {
                return message;
            }
        }
    }

    pub(crate) async fn answer(&mut self, request: &Value, result: Value) {
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        self.write(&answer).await;
    }

    /// The response to a request; it must not be asked anything meanwhile.
    pub(crate) async fn response(&mut self, id: u64) -> Value {
        loop {
            let message = self.receive().await;
            let is_request = message.get("id").is_some() && message.get("method").is_some();
            assert!(!is_request, "{message}");
            if message["id"] == id {
                return message;
            }
        }
    }

    /// The text of a call's result.
    pub(crate) async fn text(&mut self, id: u64) -> String {
        text(&self.response(id).await)
    }
}

/// The text of the result in a response.
pub(crate) fn text(response: &Value) -> String {
    let blocks = response.pointer("/result/content");
    let blocks = blocks.and_then(Value::as_array);
    let blocks = blocks.unwrap_or_else(|| panic!("no result of a call: {response}"));
    let texts = blocks.iter().filter_map(|block| block["text"].as_str());
    texts.collect::<Vec<_>>().join("\n")
}
