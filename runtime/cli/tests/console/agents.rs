//! Tests that agents cannot reach the approval page.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::support::Page;

/// The program, asking on a page, and an agent's end of its standard streams.
struct Program {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    page: Page,
    /// Everything that the agent was answered.
    received: String,
}

/// The address of the page that the program says it asks on: it stands in a file that only this user can read.
fn address(line: &str) -> String {
    assert!(!line.contains("http:"), "{line}");
    let (_, file) = line.split_once("approval page in: ").unwrap();
    let mode = std::fs::metadata(file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{file}");
    let text = std::fs::read_to_string(file).unwrap();
    let (_, link) = text.split_once("href=\"").unwrap();
    link.split_once('"').unwrap().0.to_owned()
}

impl Program {
    fn start(root: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bailiwick"))
            .args([
                "serve",
                "--ask",
                "page",
                "--ask-scopes",
                "write:file",
                "--log",
                "off",
            ])
            .arg(root)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = stderr.next().unwrap().unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
            page: Page::at(&address(&line)),
            received: String::new(),
        }
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    fn receive(&mut self) -> Value {
        let line = self.output.next().unwrap().unwrap();
        self.received += &line;
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }));
        self.receive()
    }

    /// The question that the page shows, as soon as there is one.
    async fn question(&self) -> Value {
        loop {
            let state = self.page.state().await;
            if let Some(question) = state["questions"].get(0) {
                return question.clone();
            }
            let path = format!("/api/events/{}", state["version"]);
            self.page.get(&path).await;
        }
    }
}

#[tokio::test]
async fn agent_cannot_learn_the_page_address_or_answer_questions() {
    let temp = tempfile::tempdir().unwrap();
    let mut program = Program::start(temp.path());
    let me = json!({ "name": "c", "version": "1" });
    program.ask(
        "initialize",
        &json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": me }),
    );
    program.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    for method in [
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
    ] {
        program.ask(method, &json!({}));
    }
    let path = temp.path().canonicalize().unwrap().join("x");
    let arguments = json!({ "path": path, "content": "x" });
    let lie = json!({ "granted_scopes": ["write"] });
    let call = json!({ "name": "write_file", "arguments": arguments, "_meta": lie });
    program.send(&json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call }));
    let question = program.question().await;
    assert!(!path.exists(), "a client's word was taken for a person's");
    let answer = json!({
        "question": question["tool_call"]["id"],
        "session": question["bailiwick"]["session"],
        "answer": { "allow": { "lifetime": "once" } },
    });
    let reply = program.page.post("/api/answer", &answer).await;
    assert_eq!(reply.json()["status"], "granted");
    assert_eq!(program.receive()["result"]["isError"], false);
    assert!(path.exists());
    let Program {
        mut child,
        input,
        page,
        received,
        ..
    } = program;
    drop(input);
    assert!(child.wait().unwrap().success());
    assert!(!received.contains(&page.token) && !received.contains(&page.address));
}
