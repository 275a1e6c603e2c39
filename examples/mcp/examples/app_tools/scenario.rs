//! An agent uses the tools of a file browser page that runs in Chromium.
#![expect(clippy::print_stdout, reason = "examples print what happens")]

pub(crate) mod chromium;
pub(crate) mod page_server;
mod request_guard;
mod socket;

use std::path::Path;
use std::time::Duration;

use bailiwick::{Code, Config, MemoryAudit, Policy, Runtime, Worker, WorkerSpec};
use bailiwick_examples::BoxError;
use bailiwick_mcp::view::{DenyView, View, ViewSpec, ViewState};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use chromium::Chromium;

/// The timeout for the browser to start and show the page.
const TIMEOUT: Duration = Duration::from_secs(60);

const SOURCE: &str = "fn greet(name: &str) -> String {\n    format!(\"Hello, {name}\")\n}\n\nfn main() {\n    println!(\"{}\", greet(\"you\"));\n}\n";

/// Calls a tool of the app and prints its result.
async fn call_app(worker: &Worker, tool: &str, arguments: Value) -> Result<Value, BoxError> {
    let name = format!("app_files__{tool}");
    let outcome = worker.call(&name, arguments.clone()).await?;
    let result = outcome.structured()?;
    println!("  {name} {arguments}\n    {result}");
    Ok(result)
}

/// Waits until the page is mounted and its tools are registered.
async fn wait_for_page(view: &View, worker: &Worker) -> Result<(), BoxError> {
    let ready = async {
        let mounted = view.reached(ViewState::Mounted).await;
        while mounted && view.tools().is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
        mounted
    };
    let mounted = timeout(TIMEOUT, ready).await;
    if !mounted.map_err(|_| "the page was not mounted in time")? {
        return Err("the page closed before it was mounted".into());
    }
    println!("The file browser is open; the agent can call its tools:");
    for tool in worker.tools() {
        if tool.spec.name.starts_with(view.name()) {
            println!("  {}", tool.spec.name);
        }
    }
    Ok(())
}

/// Calls the tools of the app and checks their results.
async fn use_app(worker: &Worker) -> Result<(), BoxError> {
    println!("The agent opens and selects lines of a file, and reads the current view:");
    let opened = call_app(worker, "open-path", json!({"path": "/repo/src/main.rs"})).await?;
    assert_eq!(opened.get("lines"), Some(&json!(7)));
    call_app(worker, "select-lines", json!({"from": 1, "to": 3})).await?;
    let view = call_app(worker, "get-current-view", json!({})).await?;
    let field = |key: &str| view.get("file")?.get(key).cloned();
    assert_eq!(field("path"), Some(json!("/repo/src/main.rs")));
    assert_eq!(
        (field("from"), field("to")),
        (Some(json!(1)), Some(json!(3)))
    );
    let found = call_app(
        worker,
        "search-text",
        json!({"query": "greet", "path": "/repo"}),
    )
    .await?;
    assert!(
        found.to_string().contains("/repo/src/main.rs"),
        "the search did not find the file"
    );
    let nodes = call_app(worker, "get-visible-nodes", json!({})).await?;
    assert!(
        nodes.to_string().contains("/repo/src/main.rs"),
        "the file is not visible"
    );
    Ok(())
}

/// Runs the scenario with the browser at `chromium`.
///
/// # Errors
/// If the browser cannot be started, or a call fails.
pub(crate) async fn run(chromium: &Path) -> Result<(), BoxError> {
    let repo = tempfile::tempdir()?;
    let files = [
        ("src/main.rs", SOURCE),
        ("README.md", "# Greetings\n"),
        ("key.env", "KEY=1\n"),
    ];
    std::fs::create_dir(repo.path().join("src"))?;
    for (name, text) in files {
        std::fs::write(repo.path().join(name), text)?;
    }
    // Read-only tools of the app are allowed; its other tools need approval.
    let config = Config {
        allow: vec!["read:mcp:app_files".parse()?],
        ..Config::new()
    };
    let audit = MemoryAudit::new(4096);
    let builder = Runtime::builder()
        .root("repo", repo.path())
        .tools(bailiwick_fs::tools())
        .config(config)
        .grantable("write:mcp:app_files")
        .audit(audit.clone());
    let (runtime, _grants) = builder.build().await?;
    let policy = Policy::nothing()
        .allow("read:file:/repo")
        .allow("read:mcp:app_files")
        .deny_glob("**/*.env");
    let spec = WorkerSpec::new("guide").policy(policy);
    let worker = runtime.spawn(spec).await?;

    let (view, link) = View::open(&worker, ViewSpec::new("files"), DenyView).await?;
    let server = page_server::serve(link, bailiwick_ui::BROWSER.to_owned()).await?;
    let browser = Chromium::open(chromium, &server.url)?;
    wait_for_page(&view, &worker).await?;
    use_app(&worker).await?;

    println!("A path that the agent may not read cannot be opened in the page, either:");
    let hidden = worker
        .call("app_files__open-path", json!({"path": "/repo/key.env"}))
        .await;
    let hidden = hidden.err().map(|error| error.code());
    assert_eq!(hidden, Some(Code::ServerFailed));
    runtime.flush_audit().await?;
    let records = audit.records();
    let has_record = |words: [&str; 2]| {
        let mut lines = records.iter().map(bailiwick::audit::Record::line);
        lines.any(|line| words.iter().all(|word| line.contains(word)))
    };
    assert!(
        has_record([r#""origin":"view""#, r#""tool":"read_file""#]),
        "the page's calls are audited"
    );
    assert!(
        has_record([r#""step":"remote_call""#, "app_files__open-path"]),
        "the agent's calls are audited"
    );

    println!("After the page is closed, its tools are unknown:");
    view.close().await;
    let closed = worker.call("app_files__get-current-view", json!({})).await;
    assert_eq!(
        closed.err().map(|error| error.code()),
        Some(Code::UnknownTool)
    );
    browser.close().await
}
