//! A program that serves MCP over stdio, and a raw JSON-RPC client of it.

use std::borrow::Borrow;
use std::fmt::Display;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use serde_json::{Value, json};

/// A running server and its client. The client answers `roots/list`.
#[derive(Debug)]
pub struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    next_id: u64,
    roots: Vec<String>,
    /// The result of `initialize`.
    pub initialized: Value,
    /// Messages received while the client waited for a response.
    pub others: Vec<Value>,
}

impl Server {
    /// Starts the server. Standard error is as configured in `command`.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
            next_id: 0,
            roots: Vec::new(),
            initialized: Value::Null,
            others: Vec::new(),
        }
    }

    /// The process of the server.
    pub fn process(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sets the roots of the client.
    pub fn set_roots(&mut self, roots: &[&Path]) {
        let uri = |path: &&Path| format!("file://{}", path.to_str().unwrap());
        self.roots = roots.iter().map(uri).collect();
    }

    /// The roots of the client as `roots/list` returns them.
    pub fn roots(&self) -> Value {
        self.roots.iter().map(|uri| json!({"uri": uri})).collect()
    }

    /// Initializes the session with the protocol version 2025-11-25, and returns the response.
    pub fn initialize(&mut self, capabilities: &Value) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": {"name": "raw", "version": "1"},
        });
        let response = self.request("initialize", params);
        // The server ends after an error.
        if response.get("error").is_none() {
            self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        }
        self.initialized = response["result"].clone();
        response
    }

    /// Sends a line.
    pub fn send(&mut self, message: &impl Display) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    /// The next message; `None` if the server closed its output.
    pub fn try_receive(&mut self) -> Option<Value> {
        let line = self.output.next()?.unwrap();
        Some(serde_json::from_str(&line).unwrap())
    }

    /// The next message other than `roots/list`, which is answered.
    #[track_caller]
    pub fn receive(&mut self) -> Value {
        loop {
            let Some(message) = self.try_receive() else {
                panic!("the server ended: {}", self.stop().1);
            };
            if message["method"] != "roots/list" {
                return message;
            }
            let result = json!({"roots": self.roots()});
            self.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
        }
    }

    /// Sends a request and returns the response.
    #[track_caller]
    pub fn request(&mut self, method: &str, params: impl Borrow<Value>) -> Value {
        self.next_id += 1;
        let (id, params) = (self.next_id, params.borrow());
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let message = self.receive();
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.others.push(message);
        }
    }

    /// Sends a request and returns its result.
    #[track_caller]
    pub fn result(&mut self, method: &str, params: impl Borrow<Value>) -> Value {
        let mut response = self.request(method, params);
        assert!(response.get("error").is_none(), "{method}: {response}");
        response["result"].take()
    }

    /// Calls a tool and returns the result.
    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: impl Borrow<Value>) -> Value {
        let params = json!({"name": tool, "arguments": arguments.borrow()});
        self.result("tools/call", params)
    }

    /// The text of a call that succeeds.
    #[track_caller]
    pub fn text(&mut self, tool: &str, arguments: impl Borrow<Value>) -> String {
        let result = self.call(tool, arguments);
        assert_ne!(result["isError"], true, "{tool}: {result}");
        text(&result)
    }

    /// The code and the text of a call that fails.
    #[track_caller]
    pub fn failure(&mut self, tool: &str, arguments: impl Borrow<Value>) -> (String, String) {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{tool}: {result}");
        let code = result["structuredContent"]["code"].as_str().unwrap();
        (code.to_owned(), text(&result))
    }

    /// Closes the input of the server.
    pub fn close_input(&mut self) {
        drop(self.input.take());
    }

    /// Disconnects and waits until the server ends. Returns its status and what it wrote to standard error, if that is piped.
    pub fn end(mut self) -> (ExitStatus, String) {
        self.stop()
    }

    fn stop(&mut self) -> (ExitStatus, String) {
        self.close_input();
        // A server whose output is full does not end.
        self.output.by_ref().for_each(drop);
        let mut stderr = String::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            pipe.read_to_string(&mut stderr).unwrap();
        }
        (self.child.wait().unwrap(), stderr)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // It may have ended already.
            let _ = self.child.kill();
        }
        self.stop();
    }
}

/// The text of the result of a call.
#[track_caller]
pub fn text(result: &Value) -> String {
    let blocks = result["content"].as_array();
    let blocks = blocks.unwrap_or_else(|| panic!("not the result of a call: {result}"));
    let texts = blocks.iter().filter_map(|block| block["text"].as_str());
    texts.collect::<Vec<_>>().join("\n")
}
