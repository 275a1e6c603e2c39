//! Helpers: a runtime with a console, and a client of its API.

use std::fs;
use std::sync::Arc;

use bailiwick::worker::CallProgress;
use bailiwick::{
    Call, Deferred, GrantAuthority, JsonLines, PendingCall, Policy, Runtime, Worker, WorkerSpec,
};
use bailiwick_console::{Console, ConsoleAudit, ConsoleSource};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let read = serde_json::from_str(&self.body);
        read.unwrap_or_else(|_| panic!("{self:?} is no JSON"))
    }

    /// The stable code of a refusal.
    #[track_caller]
    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap().to_owned()
    }
}

/// Sends the lines of a head and a body to `address`, and reads until the other end closes.
pub(crate) async fn raw(address: &str, head: &[&str], body: &str) -> Reply {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = head.join("\r\n");
    let length = body.len();
    let request = format!("{head}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply {
        status,
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    }
}

/// A runtime over one tree, a worker that must ask before it writes, and a console.
pub(crate) struct Stage {
    pub(crate) runtime: Runtime,
    pub(crate) people: Arc<GrantAuthority>,
    pub(crate) worker: Worker,
    pub(crate) temp: tempfile::TempDir,
    pub(crate) console: Console,
    pub(crate) page: Page,
}

/// What a page knows of its console.
pub(crate) struct Page {
    pub(crate) address: String,
    pub(crate) token: String,
}

impl std::ops::Deref for Stage {
    type Target = Page;

    fn deref(&self) -> &Page {
        &self.page
    }
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("tree")).unwrap();
        let record = temp.path().join("audit");
        let (runtime, people) = Runtime::builder()
            .root("repo", temp.path().join("tree"))
            .tools(bailiwick_fs::tools())
            .approver(Deferred)
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
        let source = ConsoleSource::new(Arc::clone(&people)).audit(ConsoleAudit::File(record));
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

    /// The page alone, once the runtime and its workers are gone.
    pub(crate) async fn without_runtime(self) -> (Page, Console) {
        self.runtime.shutdown().await;
        (self.page, self.console)
    }

    /// A write that waits for a word.
    pub(crate) async fn asks(&self, name: &str, content: &str) -> PendingCall {
        match self.worker.begin(write(name, content)).await.unwrap() {
            CallProgress::Pending(pending) => *pending,
            CallProgress::Ended(outcome) => panic!("nobody was asked: {outcome:?}"),
        }
    }

    pub(crate) fn on_disk(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.temp.path().join("tree").join(name)).ok()
    }

    /// The answer of the page to the question of `pending`.
    pub(crate) async fn answer(&self, pending: &PendingCall, answer: Value) -> Reply {
        let question = pending.question().handle();
        let body = json!({ "question": question, "session": "talk", "answer": answer });
        self.post("/api/answer", &body).await
    }
}

impl Page {
    /// The page of this address.
    pub(crate) fn at(url: &str) -> Self {
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

    pub(crate) async fn get(&self, path: &str) -> Reply {
        let lines = self.lines("GET", path);
        raw(&self.address, &lines.each_ref().map(String::as_str), "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.post_text(path, &body.to_string()).await
    }

    pub(crate) async fn post_text(&self, path: &str, body: &str) -> Reply {
        let lines = self.lines("POST", path);
        raw(&self.address, &lines.each_ref().map(String::as_str), body).await
    }

    fn lines(&self, method: &str, path: &str) -> [String; 4] {
        [
            format!("{method} {path} HTTP/1.1"),
            format!("Host: {}", self.address),
            format!("Authorization: Bearer {}", self.token),
            "Content-Type: application/json".to_owned(),
        ]
    }

    pub(crate) async fn state(&self) -> Value {
        self.get("/api/state").await.json()
    }
}

/// A call that writes `content` into a file.
pub(crate) fn write(name: &str, content: &str) -> Call {
    let path = format!("/repo/{name}");
    let arguments = json!({ "path": path, "content": content, "mode": "overwrite" });
    Call::new("write_file", arguments)
}

/// Waits until `look` returns true. Like the page, it looks again after each notification.
pub(crate) async fn until<F: Future<Output = bool>>(people: &GrantAuthority, look: impl Fn() -> F) {
    let mut changes = people.changes();
    while !look().await {
        changes.next().await.unwrap();
    }
}
