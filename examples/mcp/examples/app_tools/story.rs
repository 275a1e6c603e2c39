//! A browser in, an agent that drives a page in it out.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

#[path = "../test_host/callers.rs"]
mod callers;
pub(crate) mod chromium;
pub(crate) mod door;
mod socket;

use std::path::Path;
use std::time::Duration;

use bailiwick::{
    Code, Config, DenyView, MemoryAudit, Policy, Runtime, View, ViewSpec, ViewState, Worker,
    WorkerSpec,
};
use bailiwick_examples::BoxError;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use chromium::Chromium;

/// How long a browser may take to start and to show the page.
const PATIENCE: Duration = Duration::from_secs(60);

const SOURCE: &str = "fn greet(name: &str) -> String {\n    format!(\"Hello, {name}\")\n}\n\nfn main() {\n    println!(\"{}\", greet(\"you\"));\n}\n";

/// One step of the model: a tool of the app, and what it answers.
async fn step(worker: &Worker, tool: &str, arguments: Value) -> Result<Value, BoxError> {
    let name = format!("app_files__{tool}");
    let outcome = worker.call(&name, arguments.clone()).await?;
    let answer = outcome.structured()?;
    println!("  {name} {arguments}\n    {answer}");
    Ok(answer)
}

/// Waits until the page has come up and its tools are offered.
async fn shown(view: &View, worker: &Worker) -> Result<(), BoxError> {
    let up = async {
        let mounted = view.reached(ViewState::Mounted).await;
        while mounted && view.tools().is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
        mounted
    };
    let mounted = timeout(PATIENCE, up).await;
    if !mounted.map_err(|_| "the page did not come up in time")? {
        return Err("the page went before it was up".into());
    }
    println!("The person has the file browser open; the agent finds its tools beside its own:");
    for tool in worker.tools() {
        if tool.spec.name.starts_with(view.name()) {
            println!("  {}", tool.spec.name);
        }
    }
    Ok(())
}

/// What the model does with the app.
async fn drive(worker: &Worker) -> Result<(), BoxError> {
    println!("The agent shows its person a place in a file, and reads what they see:");
    let opened = step(worker, "open-path", json!({"path": "/repo/src/main.rs"})).await?;
    assert_eq!(opened.get("lines"), Some(&json!(7)));
    step(worker, "select-lines", json!({"from": 1, "to": 3})).await?;
    let view = step(worker, "get-current-view", json!({})).await?;
    let of = |key: &str| view.get("file")?.get(key).cloned();
    assert_eq!(of("path"), Some(json!("/repo/src/main.rs")));
    assert_eq!((of("from"), of("to")), (Some(json!(1)), Some(json!(3))));
    let found = step(
        worker,
        "search-text",
        json!({"query": "greet", "path": "/repo"}),
    )
    .await?;
    assert!(
        found.to_string().contains("/repo/src/main.rs"),
        "nothing was found"
    );
    let nodes = step(worker, "get-visible-nodes", json!({})).await?;
    assert!(
        nodes.to_string().contains("/repo/src/main.rs"),
        "nothing was seen"
    );
    Ok(())
}

/// Tells the story, with the browser that stands at `chromium`.
///
/// # Errors
/// If there is no browser there, or the story goes another way.
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
    // What an app says that it only shows may be used without asking; what it would change is asked about.
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
    let (runtime, _people) = builder.build().await?;
    let policy = Policy::new()
        .allow("read:file:/repo")
        .allow("read:mcp:app_files")
        .deny_glob("**/*.env");
    let spec = WorkerSpec::new("guide").policy(policy);
    let worker = runtime.spawn(spec).await?;

    let (view, link) = worker.open_view(ViewSpec::new("files"), DenyView).await?;
    let door = door::open(link, bailiwick_ui::BROWSER.to_owned()).await?;
    let browser = Chromium::open(chromium, &door.url)?;
    shown(&view, &worker).await?;
    drive(&worker).await?;

    println!("What the agent may not read, its person's page does not show it either:");
    let hidden = worker
        .call("app_files__open-path", json!({"path": "/repo/key.env"}))
        .await;
    let hidden = hidden.err().map(|error| error.code());
    assert_eq!(hidden, Some(Code::ServerFailed));
    runtime.flush_audit().await?;
    let records = audit.records();
    let seen = |words: [&str; 2]| {
        let mut lines = records.iter().map(bailiwick::Record::line);
        lines.any(|line| words.iter().all(|word| line.contains(word)))
    };
    assert!(
        seen([r#""origin":"view""#, r#""tool":"read_file""#]),
        "the page's calls are recorded"
    );
    assert!(
        seen([r#""step":"remote_call""#, "app_files__open-path"]),
        "the agent's calls are recorded"
    );

    println!("When the page is closed, its tools are gone:");
    view.close().await;
    let gone = worker.call("app_files__get-current-view", json!({})).await;
    assert_eq!(
        gone.err().map(|error| error.code()),
        Some(Code::UnknownTool)
    );
    browser.close().await
}
