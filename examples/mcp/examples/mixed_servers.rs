//! Uses the file tools and a third-party MCP server under one policy.
//!
//! The third-party server is this program, started again with a directory as its argument. Any MCP server over stdio works,
//! such as those in an editor's `mcp.json`.
#![expect(clippy::print_stdout, reason = "examples print what happens")]

use std::error::Error;
use std::path::Path;

use bailiwick::permission::Lifetime;
use bailiwick::{Code, Policy, Runtime, Scripted, Worker, WorkerSpec};
use bailiwick_mcp::gateway::{Gateway, GatewayInfo};
use bailiwick_mcp::upstream::{ServerSpec, Upstreams};
use serde_json::{Value, json};

/// Calls a tool and prints the result.
async fn call(worker: &Worker, tool: &str, arguments: Value) -> Result<String, Code> {
    let result = worker.call(tool, arguments).await;
    match &result {
        Ok(outcome) => println!("  {tool}: {}", outcome.text().trim()),
        Err(error) => println!("  {tool}: {error}"),
    }
    result
        .map(|outcome| outcome.text())
        .map_err(|error| error.code())
}

/// Runs the third-party server, which does not know the policy.
async fn serve(dir: &Path) -> Result<(), Box<dyn Error>> {
    let builder = Runtime::builder().root("notes", dir);
    let (runtime, _grants) = builder.tools(bailiwick_fs::tools()).build().await?;
    let worker = runtime
        .spawn(WorkerSpec::new("notes").policy(Policy::inherit()))
        .await?;
    let about = GatewayInfo {
        name: "notes".to_owned(),
        title: "Notes".to_owned(),
        version: "1".to_owned(),
        instructions: String::new(),
    };
    let gateway = Gateway::worker(&worker, about).build();
    gateway
        .serve(tokio::io::stdin(), tokio::io::stdout())
        .await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(dir) = std::env::args_os().nth(1) {
        return serve(dir.as_ref()).await;
    }
    let (repo, notes) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let program = std::env::current_exe()?;
    let (program, dir) = (program.to_string_lossy(), notes.path().to_string_lossy());
    let spec = ServerSpec::stdio("notes", program).args([dir]);
    let upstreams = Upstreams::builder().server(spec).start().await?;

    // The approver allows `write_file` of this server for the session.
    let approver = Scripted::new().allow("write:mcp:notes:write_file".parse()?, Lifetime::Session);
    let builder = Runtime::builder()
        .root("repo", repo.path())
        .tools(bailiwick_fs::tools())
        .servers(&upstreams)
        .grantable("read:mcp:notes")
        .grantable("write:mcp:notes")
        .approver(approver);
    let (runtime, _grants) = builder.build().await?;
    let policy = Policy::nothing()
        .allow("read:file:/repo")
        .allow("write:file:/repo")
        .allow("write:mcp:notes:write_file");
    let worker = runtime
        .spawn(WorkerSpec::new("main").policy(policy))
        .await?;

    println!("The worker has the tools of both servers that its policy allows:");
    let tools = worker.tools();
    let names: Vec<_> = tools.iter().map(|tool| &*tool.spec.name).collect();
    println!("  {}", names.join(" "));
    assert!(names.contains(&"write_file") && names.contains(&"notes__write_file"));
    assert!(!names.contains(&"notes__delete") && !names.contains(&"notes__read_file"));

    let note = |path: &str| json!({ "path": path, "content": "remember\n" });
    call(&worker, "write_file", note("plan.md"))
        .await
        .map_err(|code| code.as_str())?;
    call(&worker, "notes__write_file", note("note.md"))
        .await
        .map_err(|code| code.as_str())?;
    assert!(repo.path().join("plan.md").try_exists()?);
    assert!(notes.path().join("note.md").try_exists()?);
    let read = call(&worker, "notes__read_file", json!({ "path": "note.md" })).await;
    assert_eq!(read, Err(Code::PermissionDenied));

    println!("A sub-agent may use one tool of the third-party server:");
    let one = Policy::nothing().allow("write:mcp:notes:write_file");
    let helper = worker.spawn(WorkerSpec::new("helper").policy(one)).await?;
    let denied = call(&helper, "write_file", note("/repo/other.md")).await;
    assert_eq!(denied, Err(Code::PermissionDenied));
    upstreams.shutdown().await;
    let stopped = call(&worker, "notes__write_file", note("late.md")).await;
    assert_eq!(stopped, Err(Code::ServerGone));
    Ok(())
}
