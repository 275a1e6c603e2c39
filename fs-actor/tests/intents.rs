//! Intent sentences of the file tools.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use bailiwick::intent::IntentTemplate;
use bailiwick::tool::ToolInfo;
use bailiwick::{Policy, Runtime, WorkerSpec};
use serde_json::{Value, json};

async fn tools() -> BTreeMap<String, ToolInfo> {
    let folder = tempfile::tempdir().unwrap();
    let builder = Runtime::builder().root("r", folder.path());
    let (runtime, _) = builder.tools(bailiwick_fs::tools()).build().await.unwrap();
    let policy = Policy::new().allow("read:file").allow("write:file");
    let worker = runtime.spawn(WorkerSpec::new("w").policy(policy)).await;
    let tools = worker.unwrap().tools();
    tools
        .into_iter()
        .map(|tool| (tool.spec.name.to_string(), tool))
        .collect()
}

#[tokio::test]
async fn every_tool_has_an_intent_for_its_arguments() {
    let tools = tools().await;
    assert_eq!(tools.len(), bailiwick_fs::tools().names().count());
    for (name, tool) in tools {
        assert_ne!(tool.spec.intent, "", "{name}");
        let template = IntentTemplate::parse(&tool.spec.intent).unwrap();
        assert_eq!(template.lint(&tool.input_schema), [], "{name}: {template}");
    }
}

#[tokio::test]
async fn intent_names_the_target_of_the_call() {
    let tools = tools().await;
    let check = |name: &str, arguments: Value, sentence: &str| {
        let template = IntentTemplate::parse(&tools[name].spec.intent).unwrap();
        assert_eq!(template.render(&arguments), sentence);
    };
    check("read_file", json!({ "paths": ["a", "b"] }), "Read a, b");
    check(
        "read_file",
        json!({ "path": "a", "offset": 7 }),
        "Read a from line 7",
    );
    check(
        "grep",
        json!({ "pattern": "fn", "glob": "*.rs" }),
        "Search for fn with glob *.rs",
    );
    check(
        "write_file",
        json!({ "path": "a", "content": "x" }),
        "Write a",
    );
    check(
        "write_file",
        json!({ "path": "a", "content": "x", "mode": "append" }),
        "Write a",
    );
    check("move", json!({ "from": "a", "to": "b" }), "Move a to b");
    check("list_directory", json!({}), "List the directory");
}
