//! A runtime with an approval page, and a client of its API.

use std::fs;
use std::sync::Arc;

use bailiwick::activity::KeepCalls;
use bailiwick::worker::CallProgress;
use bailiwick::{
    Call, Deferred, GrantAuthority, JsonLines, PendingCall, Policy, Runtime, Worker, WorkerSpec,
};
use bailiwick_console::{Console, ConsoleAudit, ConsoleSource};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::http::{Response, send};

/// A runtime with one root, a worker that must ask before it writes, and an approval page.
#[derive(Debug)]
pub struct ConsoleServer {
    /// The runtime.
    pub runtime: Runtime,
    /// The grants of the runtime.
    pub people: Arc<GrantAuthority>,
    /// The worker.
    pub worker: Worker,
    /// The directory with the root, `tree`, and the audit file, `audit`.
    pub temp: tempfile::TempDir,
    /// The server of the page.
    pub console: Console,
    /// The page.
    pub page: Page,
}

/// A client of the API of an approval page.
#[derive(Debug)]
pub struct Page {
    /// The address of the server.
    pub address: String,
    /// The token of the page.
    pub token: String,
}

impl std::ops::Deref for ConsoleServer {
    type Target = Page;

    fn deref(&self) -> &Page {
        &self.page
    }
}

impl ConsoleServer {
    /// Starts everything.
    pub async fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("tree")).unwrap();
        let record = temp.path().join("audit");
        let (runtime, people) = Runtime::builder()
            .root("repo", temp.path().join("tree"))
            .tools(bailiwick_fs::tools())
            .approver(Deferred)
            .keep_calls(KeepCalls::default())
            .audit(JsonLines::create(&record).unwrap())
            .build()
            .await
            .unwrap();
        let policy = Policy::new().allow("read:file").ask("write:file");
        let spec = WorkerSpec::new("main").policy(policy).session("talk");
        let worker = runtime.spawn(spec).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let console = Console::serve(listener).unwrap();
        let people = Arc::new(people);
        let source = ConsoleSource::new(Arc::clone(&people))
            .runtime(&runtime)
            .audit(ConsoleAudit::File(record));
        console.add_source(source);
        Self {
            runtime,
            people,
            worker,
            temp,
            page: Page::at(console.url()),
            console,
        }
    }

    /// Shuts the runtime down, and returns the page.
    pub async fn without_runtime(self) -> (Page, Console) {
        self.runtime.shutdown().await;
        (self.page, self.console)
    }

    /// Starts a write, which waits for approval.
    pub async fn start_write(&self, name: &str, content: &str) -> PendingCall {
        match self.worker.begin(write(name, content)).await.unwrap() {
            CallProgress::Pending(pending) => *pending,
            CallProgress::Ended(outcome) => {
                panic!("the write did not wait for approval: {outcome:?}")
            }
        }
    }

    /// The content of a file in the root.
    pub fn on_disk(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.temp.path().join("tree").join(name)).ok()
    }

    /// Answers the question of `pending` on the page.
    pub async fn answer(&self, pending: &PendingCall, answer: Value) -> Response {
        let question = pending.question().handle();
        let body = json!({ "question": question, "session": "talk", "answer": answer });
        self.post("/api/answer", &body).await
    }
}

impl Page {
    /// A client of the page with this URL.
    pub fn at(url: &str) -> Self {
        let (address, token) = url
            .strip_prefix("http://")
            .unwrap()
            .split_once("/#")
            .unwrap();
        Self {
            address: address.to_owned(),
            token: token.to_owned(),
        }
    }

    /// Sends a GET request.
    pub async fn get(&self, path: &str) -> Response {
        let lines = self.lines("GET", path);
        send(&self.address, &lines.each_ref().map(String::as_str), "").await
    }

    /// Sends a POST request with a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> Response {
        self.post_text(path, &body.to_string()).await
    }

    /// Sends a POST request.
    pub async fn post_text(&self, path: &str, body: &str) -> Response {
        let lines = self.lines("POST", path);
        send(&self.address, &lines.each_ref().map(String::as_str), body).await
    }

    fn lines(&self, method: &str, path: &str) -> [String; 4] {
        [
            format!("{method} {path} HTTP/1.1"),
            format!("Host: {}", self.address),
            format!("Authorization: Bearer {}", self.token),
            "Content-Type: application/json".to_owned(),
        ]
    }

    /// What the page shows.
    pub async fn state(&self) -> Value {
        self.get("/api/state").await.json()
    }
}

/// A call that writes a file in the root.
pub fn write(name: &str, content: &str) -> Call {
    let path = format!("/repo/{name}");
    let arguments = json!({ "path": path, "content": content, "mode": "overwrite" });
    Call::new("write_file", arguments)
}

/// Waits until `condition` holds. It is checked again at each change of the grants or questions.
pub async fn until<F: Future<Output = bool>>(people: &GrantAuthority, condition: impl Fn() -> F) {
    let mut changes = people.changes();
    while !condition().await {
        changes.next().await.unwrap();
    }
}
