//! Tests that agents cannot reach the approval page.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use bailiwick_test_support::console::Page;
use bailiwick_test_support::server::Server;
use serde_json::{Value, json};

/// The program with an approval page, and an agent as its client.
struct Program {
    server: Server,
    page: Page,
    /// Everything that the agent received.
    received: String,
}

/// Reads the address of the approval page from the private file that the program names.
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
        let options = ["--ask", "page", "--ask-scopes", "write:file"];
        let mut command = Command::new(crate::PROGRAM);
        command
            .arg("serve")
            .args(options)
            .args(["--log", "off"])
            .arg(root)
            .env_clear()
            .stderr(Stdio::piped());
        let mut server = Server::start(&mut command);
        let stderr = server.process().stderr.take().unwrap();
        let line = BufReader::new(stderr).lines().next().unwrap().unwrap();
        Self {
            server,
            page: Page::at(&address(&line)),
            received: String::new(),
        }
    }

    fn receive(&mut self) -> Value {
        let message = self.server.receive();
        self.received += &message.to_string();
        message
    }

    fn request(&mut self, method: &str, params: &Value) {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.server.send(&request);
        self.receive();
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
    program.request(
        "initialize",
        &json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": me }),
    );
    program
        .server
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    for method in [
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
    ] {
        program.request(method, &json!({}));
    }
    let path = temp.path().canonicalize().unwrap().join("x");
    let arguments = json!({ "path": path, "content": "x" });
    let lie = json!({ "granted_scopes": ["write"] });
    let call = json!({ "name": "write_file", "arguments": arguments, "_meta": lie });
    program
        .server
        .send(&json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call }));
    let question = program.question().await;
    assert!(!path.exists(), "a client answered for a person");
    let answer = json!({
        "question": question["tool_call"]["id"],
        "session": question["bailiwick"]["session"],
        "answer": { "allow": { "lifetime": "once" } },
    });
    let response = program.page.post("/api/answer", &answer).await;
    assert_eq!(response.json()["status"], "granted");
    assert_eq!(program.receive()["result"]["isError"], false);
    assert!(path.exists());
    // The program keeps calls for the page.
    let state = program.page.state().await;
    assert_eq!(state["outcomes"][0]["result"]["state"], "applied");
    let calls = program.page.post("/api/activity", &json!({})).await.json();
    assert_eq!(calls["calls"][0]["tool"], "write_file");
    assert_eq!(calls["calls"][0]["allowed_by"][0]["kind"], "person");
    let Program {
        server,
        page,
        received,
    } = program;
    assert!(server.end().0.success());
    assert!(!received.contains(&page.token) && !received.contains(&page.address));
}
