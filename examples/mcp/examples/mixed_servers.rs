//! Our own files and another MCP server in, one policy over both, and what it leaves of each out.
//!
//! The other server is this very program, started a second time with a folder: any program that speaks MCP over stdio
//! would do, such as those in an editor's `mcp.json`.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::path::Path;

use bailiwick::{
    Code, Gateway, GatewayInfo, Lifetime, Policy, Runtime, Scripted, ServerSpec, Upstreams, Worker,
    WorkerSpec,
};
use serde_json::{Value, json};

/// What a model would ask for, step by step.
async fn step(worker: &Worker, tool: &str, arguments: Value) -> Result<String, Code> {
    let ended = worker.call(tool, arguments).await;
    match &ended {
        Ok(outcome) => println!("  {tool}: {}", outcome.text().trim()),
        Err(refused) => println!("  {tool}: {refused}"),
    }
    ended
        .map(|outcome| outcome.text())
        .map_err(|refused| refused.code())
}

/// The other server: it knows nothing of the policy that it is used under.
async fn serve(folder: &Path) -> Result<(), Box<dyn Error>> {
    let builder = Runtime::builder().root("notes", folder);
    let (runtime, _people) = builder.tools(bailiwick_fs::tools()).build().await?;
    let worker = runtime
        .spawn(WorkerSpec::new("notes").policy(Policy::new()))
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
    if let Some(folder) = std::env::args_os().nth(1) {
        return serve(folder.as_ref()).await;
    }
    let (repo, notes) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let program = std::env::current_exe()?;
    let (program, folder) = (program.to_string_lossy(), notes.path().to_string_lossy());
    let spec = ServerSpec::stdio("notes", program).args([folder]);
    let upstreams = Upstreams::builder().server(spec).start().await?;

    // A person lets notes be written, of this server and as this tool is now, until the session ends.
    let people = Scripted::new().allow("write:mcp:notes:write_file".parse()?, Lifetime::Session);
    let builder = Runtime::builder()
        .root("repo", repo.path())
        .tools(bailiwick_fs::tools())
        .servers(&upstreams)
        .grantable("read:mcp:notes")
        .grantable("write:mcp:notes")
        .approver(people);
    let (runtime, _people) = builder.build().await?;
    let policy = Policy::new()
        .allow("read:file:/repo")
        .allow("write:file:/repo")
        .allow("write:mcp:notes:write_file");
    let worker = runtime
        .spawn(WorkerSpec::new("main").policy(policy))
        .await?;

    println!("The worker finds the tools of both, as far as its policy leaves them:");
    let tools = worker.tools();
    let names: Vec<_> = tools.iter().map(|tool| &*tool.spec.name).collect();
    println!("  {}", names.join(" "));
    assert!(names.contains(&"write_file") && names.contains(&"notes__write_file"));
    assert!(!names.contains(&"notes__delete") && !names.contains(&"notes__read_file"));

    let note = |path: &str| json!({ "path": path, "content": "remember\n" });
    step(&worker, "write_file", note("plan.md"))
        .await
        .map_err(|code| code.as_str())?;
    step(&worker, "notes__write_file", note("note.md"))
        .await
        .map_err(|code| code.as_str())?;
    assert!(repo.path().join("plan.md").try_exists()?);
    assert!(notes.path().join("note.md").try_exists()?);
    let read = step(&worker, "notes__read_file", json!({ "path": "note.md" })).await;
    assert_eq!(read, Err(Code::PermissionDenied));

    println!("A helper is given one tool of the other server, and nothing else:");
    let one = Policy::new().allow("write:mcp:notes:write_file");
    let helper = worker.spawn(WorkerSpec::new("helper").policy(one)).await?;
    let refused = step(&helper, "write_file", note("/repo/other.md")).await;
    assert_eq!(refused, Err(Code::PermissionDenied));
    upstreams.shutdown().await;
    let gone = step(&worker, "notes__write_file", note("late.md")).await;
    assert_eq!(gone, Err(Code::ServerGone));
    Ok(())
}
