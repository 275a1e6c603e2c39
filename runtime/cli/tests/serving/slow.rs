//! Tests of progress and tasks with a slow tool.

use crate::views::showing;
use bailiwick::config::Namespace;
use bailiwick::effect::Cost;
use bailiwick::tool::{ActPermit, ActProgress, Interrupt, Prepared, ReadPermit, WritePermit};
use bailiwick::{CallError, Plan, ReadTool, Reply, Scope, ToolSet, ToolSpec, Verb, WriteTool};
use bailiwick_mcp::gateway::Trust;
use bailiwick_test_support::client::{Client, stateless_meta};
use bailiwick_test_support::wait;
use bailiwick_test_support::workspace::Workspace;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Works until `until` is gone.
pub(crate) struct Slow;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlowArgs {
    /// A path on the host, for the test to end the work by.
    until: std::path::PathBuf,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Worked {
    done: bool,
}

impl ReadTool for Slow {
    type Args = SlowArgs;
    type Output = Worked;
    type Job = std::path::PathBuf;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("slow", "Work slowly", "Works until a file is gone.").intent("Work slowly")
    }

    fn prepare(&self, args: SlowArgs, _: &Namespace) -> Result<Prepared<Self::Job>, CallError> {
        Ok(Prepared {
            needs: Vec::new(),
            job: args.until,
        })
    }

    fn read(&self, until: &Self::Job, permit: &ReadPermit) -> Result<Reply, Interrupt> {
        while until.exists() {
            permit.checkpoint()?;
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Ok(Reply::text("worked", Worked { done: true }))
    }
}

fn tools() -> ToolSet {
    ToolSet::new().reader(Slow)
}

#[tokio::test]
async fn progress_increases_and_ends_with_the_call() {
    let workspace = Workspace::with(tools);
    let until = workspace.path("outside/f");
    for era in ["handshake", "stateless"] {
        std::fs::write(&until, "work").unwrap();
        let mut client = workspace.client(Trust::Host);
        let mut meta = json!({"progressToken": "p"});
        if era == "handshake" {
            client.initialize("2025-11-25", json!({})).await;
        } else {
            meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        client
            .send(&json!({
                "jsonrpc": "2.0", "id": "s", "method": "tools/call",
                "params": {"name": "slow", "arguments": {"until": until}, "_meta": meta},
            }))
            .await;
        let mut last = 0.0;
        for _ in 0..2 {
            let notification = client.receive().await;
            assert_eq!(
                notification["method"], "notifications/progress",
                "{notification}"
            );
            assert_eq!(notification["params"]["progressToken"], "p");
            let progress = notification["params"]["progress"].as_f64().unwrap();
            assert!(progress > last, "{notification}");
            last = progress;
        }
        std::fs::remove_file(&until).unwrap();
        let mut done = client.receive().await;
        while done["method"] == "notifications/progress" {
            done = client.receive().await;
        }
        assert_eq!(done["result"]["structuredContent"]["done"], true, "{done}");
    }
}

/// A tool that describes its progress and works until a file is gone.
fn describing() -> ToolSet {
    let spec = ToolSpec::new("describe", "Describe work", "Works until a file is gone.");
    let needs =
        |_: &SlowArgs, names: &Namespace| Ok(vec![Scope::file(Verb::Write, names.path("x")?)]);
    ToolSet::new().act_function(
        spec,
        needs,
        |args: Arc<SlowArgs>, permit: ActPermit, progress: ActProgress| async move {
            let _act = permit.begin()?;
            progress.message("compiling\u{7} a.rs");
            progress.step();
            while args.until.exists() {
                tokio::task::yield_now().await;
            }
            Ok(Reply::text("worked", Worked { done: true }))
        },
    )
}

#[tokio::test]
async fn progress_has_the_message_of_the_tool() {
    let workspace = Workspace::with(describing);
    let until = workspace.path("outside/f");
    std::fs::write(&until, "work").unwrap();
    let mut client = workspace.client(Trust::Host);
    client.initialize("2025-11-25", json!({})).await;
    client
        .send(&json!({
            "jsonrpc": "2.0", "id": "d", "method": "tools/call", "params": {
                "name": "describe", "arguments": {"until": until}, "_meta": {"progressToken": "p"},
            },
        }))
        .await;
    let notification = client.receive().await;
    assert_eq!(
        notification["method"], "notifications/progress",
        "{notification}"
    );
    assert_eq!(notification["params"]["message"], "compiling\\u{7} a.rs");
    std::fs::remove_file(&until).unwrap();
    let done = client.receive().await;
    assert_eq!(done["result"]["structuredContent"]["done"], true, "{done}");
}

#[tokio::test]
async fn stateless_call_reports_progress_after_a_question() {
    let workspace = Workspace::with(describing);
    let until = workspace.path("outside/f");
    std::fs::write(&until, "work").unwrap();
    let mut client = Client::new(&workspace.asking_gateway(Trust::Host));
    let mut meta = stateless_meta(&json!({"elicitation": {"form": {}}}));
    meta["policy"] = json!({"ask_scopes": ["write:file"]});
    meta["progressToken"] = json!("first");
    let mut params = json!({"name": "describe", "arguments": {"until": until}, "_meta": meta});
    let required = client.request_next("tools/call", params.clone()).await;
    let result = &required["result"];
    assert_eq!(result["resultType"], "input_required", "{required}");
    params["_meta"]["progressToken"] = json!("second");
    params["requestState"] = result["requestState"].clone();
    params["inputResponses"] =
        json!({"permission": {"action": "accept", "content": {"decision": "allow"}}});
    client.start_request("tools/call", params).await;
    let notification = client.receive().await;
    assert_eq!(
        notification["params"]["progressToken"], "second",
        "{notification}"
    );
    std::fs::remove_file(&until).unwrap();
    let done = client.receive_response().await;
    assert_eq!(done["result"]["structuredContent"]["done"], true, "{done}");
}

#[tokio::test]
async fn long_read_becomes_a_task_for_clients_with_tasks() {
    let workspace = Workspace::with(tools);
    let until = workspace.path("outside/f");
    let mut client = workspace.client(Trust::Host);
    let knows = json!({"io.modelcontextprotocol/clientCapabilities": {
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    }});
    let call = json!({"name": "slow", "arguments": {"until": until}});
    let task = client
        .request_stateless("tools/call", call, knows.clone())
        .await;
    assert_eq!(task["result"]["resultType"], "task", "{task}");
    let id = json!({"taskId": task["result"]["taskId"]});
    let working = client
        .request_stateless("tasks/get", id.clone(), knows.clone())
        .await;
    assert_eq!(working["result"]["status"], "working", "{working}");
    let foreign = client
        .request_stateless("tasks/get", json!({"taskId": "none"}), knows.clone())
        .await;
    assert_eq!(foreign["error"]["code"], -32602, "{foreign}");
    std::fs::remove_file(&until).unwrap();
    let done = loop {
        let state = client
            .request_stateless("tasks/get", id.clone(), knows.clone())
            .await;
        if state["result"]["status"] != "working" {
            break state;
        }
    };
    assert_eq!(done["result"]["status"], "completed", "{done}");
    let result = &done["result"]["result"];
    assert_eq!(result["structuredContent"]["done"], true, "{done}");
    let ignorant = client.request_stateless("tasks/get", id, json!({})).await;
    assert_eq!(ignorant["error"]["code"], -32021, "{ignorant}");
}

/// Plans until its call ends. Creates files next to `until` when it begins and ends.
pub(crate) struct Plans;

impl WriteTool for Plans {
    type Args = SlowArgs;
    type Output = Worked;
    type Job = std::path::PathBuf;
    type Steps = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("plans", "Plan slowly", "Plans until a file is gone.").intent("Plan slowly")
    }

    fn prepare(&self, args: SlowArgs, _: &Namespace) -> Result<Prepared<Self::Job>, CallError> {
        Ok(Prepared {
            needs: Vec::new(),
            job: args.until,
        })
    }

    fn plan(&self, until: &Self::Job, permit: &ReadPermit) -> Result<Plan<()>, Interrupt> {
        std::fs::write(until.with_extension("began"), "").unwrap();
        while until.exists() {
            if let Err(gone) = permit.checkpoint() {
                std::fs::write(until.with_extension("ended"), "").unwrap();
                return Err(gone.into());
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Ok(Plan {
            changes: Vec::new(),
            resources: Vec::new(),
            reply: Reply::text("planned", Worked { done: true }),
            cost: Cost::default(),
            steps: (),
            inverse: None,
        })
    }

    fn apply(&self, (): (), _: WritePermit) -> Result<(), CallError> {
        Ok(())
    }
}

/// Waits until the file is there.
pub(crate) async fn there(path: &std::path::Path) {
    wait::for_files(path.parent().unwrap(), || path.exists()).await;
}

#[tokio::test]
async fn preview_for_a_view_ends_with_its_request() {
    let workspace = Workspace::with(|| ToolSet::new().writer(Plans));
    let until = workspace.path("outside/f");
    let mut client = workspace.client(Trust::Host);
    client.initialize("2025-11-25", showing()).await;
    let wanted = json!({"tool": "plans", "arguments": {"until": until}});
    client
        .send(&json!({
            "jsonrpc": "2.0", "id": "p", "method": "tools/call",
            "params": {"name": "preview_call", "arguments": wanted},
        }))
        .await;
    there(&until.with_extension("began")).await;
    client
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "p"}}))
        .await;
    there(&until.with_extension("ended")).await;
}
