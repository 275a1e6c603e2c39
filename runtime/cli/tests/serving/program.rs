//! Runs the program over stdio with a raw JSON-RPC client.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// The program with a client that answers `roots/list`.
pub(super) struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    next: u64,
    roots: Vec<String>,
}

impl Program {
    pub(super) fn start(arguments: &[&str], roots: &[&Path]) -> Self {
        Self::start_with(arguments, &[], roots)
    }

    /// Starts it with these variables alone.
    pub(super) fn start_with(
        arguments: &[&str],
        variables: &[(&str, &OsStr)],
        roots: &[&Path],
    ) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bailiwick"))
            .arg("serve")
            .args(arguments)
            .env_clear()
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut program = Self {
            input: child.stdin.take(),
            child,
            output,
            next: 0,
            roots: Vec::new(),
        };
        program.name(roots);
        program
    }

    /// Greets the program; the answer to that.
    pub(super) fn greet(&mut self, capabilities: &Value) -> Value {
        let greeting = json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": {"name": "raw", "version": "1"},
        });
        let answer = self.ask("initialize", &greeting);
        // After a refusal the program ends.
        if answer.get("error").is_none() {
            self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        }
        answer
    }

    /// Sets the roots of the client.
    pub(super) fn name(&mut self, roots: &[&Path]) {
        let uri = |path: &&Path| format!("file://{}", path.to_str().unwrap());
        self.roots = roots.iter().map(uri).collect();
    }

    pub(super) fn listed(&self) -> Value {
        self.roots.iter().map(|uri| json!({"uri": uri})).collect()
    }

    pub(super) fn send(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    /// The next message that is not `roots/list`, which is answered.
    pub(super) fn next(&mut self) -> Value {
        loop {
            let line = self.output.next().unwrap().unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["method"] != "roots/list" {
                return message;
            }
            let result = json!({"roots": self.listed()});
            self.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
        }
    }

    pub(super) fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let message = self.next();
            if message["id"] == id {
                return message;
            }
        }
    }

    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    pub(super) fn text(&mut self, tool: &str, arguments: &Value) -> String {
        let answer = self.call(tool, arguments);
        let text = answer["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.input.take());
        self.child.wait().unwrap();
    }
}
