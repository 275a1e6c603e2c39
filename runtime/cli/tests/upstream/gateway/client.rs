//! An MCP client of the program over stdio.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use serde_json::{Value, json};

use crate::hostile_server::START;

/// A folder with a file of servers and somewhere to remember their tools.
pub(crate) struct Workspace {
    pub(crate) dir: tempfile::TempDir,
}

impl Workspace {
    pub(crate) fn new(servers: &Value) -> Self {
        let workspace = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        workspace.write("mcp.json", &servers.to_string());
        std::fs::create_dir(workspace.path("state")).unwrap();
        workspace
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn program(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut program = Command::new(env!("CARGO_BIN_EXE_bailiwick"));
        program
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("state"))
            .envs(variables.iter().copied())
            .current_dir(self.dir.path());
        program
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        self.program(arguments, variables).output().unwrap()
    }

    /// A connected client of the program.
    pub(crate) fn client(&self, arguments: &[&str]) -> Client {
        self.client_with(arguments, &[], json!({}))
    }

    /// A connected client of the program that has these capabilities.
    pub(crate) fn client_with(
        &self,
        arguments: &[&str],
        variables: &[(&str, &str)],
        capabilities: Value,
    ) -> Client {
        let arguments = [&["serve", "--servers", "mcp.json"], arguments].concat();
        let mut child = self
            .program(&arguments, variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut client = Client {
            input: child.stdin.take(),
            child,
            output,
            next: 0,
            greeting: Value::Null,
            others: Vec::new(),
        };
        let greeting = client.request(
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "test", "version": "1"}}),
        );
        client.greeting = greeting["result"].clone();
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }
}

/// A connected client.
pub(crate) struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: u64,
    /// What the server answered to `initialize`.
    pub(crate) greeting: Value,
    /// What came that answered no request.
    pub(crate) others: Vec<Value>,
}

impl Client {
    pub(crate) fn send(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    /// The next message; the tests run under a time limit of their own for one that never comes.
    pub(crate) fn receive(&mut self) -> Value {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).unwrap();
        assert!(read > 0, "the program ended: {}", self.stderr());
        serde_json::from_str(&line).unwrap()
    }

    /// The response to a request.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let message = self.receive();
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.others.push(message);
        }
    }

    /// The result of a request.
    #[track_caller]
    pub(crate) fn result(&mut self, method: &str, params: Value) -> Value {
        let response = self.request(method, params);
        assert!(response.get("error").is_none(), "{method}: {response}");
        response["result"].clone()
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.result("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// The text of a call that succeeded.
    #[track_caller]
    pub(crate) fn text(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_ne!(result["isError"], true, "{tool}: {result}");
        text_of(&result)
    }

    /// The code and the message of a call that failed.
    #[track_caller]
    pub(crate) fn failure(&mut self, tool: &str, arguments: Value) -> (String, String) {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{tool}: {result}");
        let code = result["structuredContent"]["code"].as_str().unwrap();
        (code.to_owned(), text_of(&result))
    }

    /// The names in a list.
    pub(crate) fn names(&mut self, what: &str, key: &str) -> Vec<String> {
        let list = self.result(&format!("{what}/list"), json!({}));
        let field = if what == "resources/templates" {
            "resourceTemplates"
        } else {
            what
        };
        let items = list[field].as_array().unwrap().iter();
        items
            .map(|item| item[key].as_str().unwrap().to_owned())
            .collect()
    }

    /// Disconnects; what the program wrote to standard error.
    pub(crate) fn end(mut self) -> String {
        self.stderr()
    }

    fn stderr(&mut self) -> String {
        drop(self.input.take());
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut text).unwrap();
        }
        self.child.wait().unwrap();
        text
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.input.take());
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn text_of(result: &Value) -> String {
    let blocks = result["content"].as_array().unwrap().iter();
    let texts = blocks.filter_map(|block| block["text"].as_str());
    texts.collect::<Vec<_>>().join("\n")
}

/// An entry for the server that does what its arguments say.
pub(crate) fn hostile(arguments: &[&str]) -> Value {
    let program = std::env::current_exe().unwrap();
    let first = ["-c", START, program.to_str().unwrap()];
    let all = [&first[..], arguments].concat();
    json!({"command": "/bin/sh", "args": all})
}
