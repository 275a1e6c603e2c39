//! Tests of the example `hr_dashboard`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests and their helpers panic on failure"
)]

#[path = "hr_dashboard/client.rs"]
mod client;
#[path = "hr_dashboard/page.rs"]
mod page;
#[path = "../examples/hr_dashboard/server.rs"]
mod server;

use client::{Decision, TestClient};
use serde_json::{Value, json};

fn raise() -> Value {
    json!({"department": "Sales", "percent": 10})
}

#[tokio::test]
async fn model_sees_no_page_tools_and_no_salaries() {
    let chat = TestClient::new(Decision::Deny, false).await;
    let names: Vec<String> = chat
        .tools()
        .await
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        names,
        ["raise_salaries", "show_dashboard", "update_employee"]
    );
    for name in [
        "list_employees",
        "employee_details",
        "list_raises",
        "commit_call",
    ] {
        let refused = chat.call(name, json!({})).await.unwrap_err();
        assert!(refused.contains("-32602"), "{name}: {refused}");
    }
    let shown = chat.call("show_dashboard", json!({})).await.unwrap();
    assert_eq!(shown["headcount"], 30);
    assert_eq!(shown["departments"]["Sales"]["headcount"], 7);
    assert!(!shown.to_string().contains("e-0"), "{shown}");
}

#[tokio::test]
async fn tools_declare_their_visibility_and_page() {
    let host = TestClient::new(Decision::Deny, true).await;
    let tools = host.tools().await;
    let ui = |name: &str| tools.iter().find(|(tool, _)| tool == name).unwrap().1["ui"].clone();
    let opens = json!({"visibility": ["model", "app"], "resourceUri": "ui://hr/dashboard"});
    assert_eq!(ui("show_dashboard"), opens);
    for name in [
        "list_employees",
        "employee_details",
        "list_raises",
        "preview_call",
        "commit_call",
    ] {
        assert_eq!(ui(name)["visibility"], json!(["app"]), "{name}");
    }
    for name in ["raise_salaries", "update_employee"] {
        assert_eq!(ui(name)["visibility"], json!(["model"]), "{name}");
    }
    let page = host.page("ui://hr/dashboard").await;
    assert!(page.starts_with("<!doctype html>") && page.contains("default-src 'none'"));
    let listed = host.call("list_employees", json!({})).await.unwrap();
    assert_eq!(listed["employees"].as_array().unwrap().len(), 30);
    let employee = host
        .call("employee_details", json!({"id": "e-001"}))
        .await
        .unwrap();
    assert_eq!(employee["email"], "mara.lindqvist@example.com");
}

#[tokio::test]
async fn commit_applies_the_preview_only_after_approval() {
    for (decision, changes) in [
        (Decision::Allow, true),
        (Decision::Deny, false),
        (Decision::Dismiss, false),
    ] {
        let host = TestClient::new(decision, true).await;
        let before = host.file();
        let preview = json!({"tool": "raise_salaries", "arguments": raise()});
        let preview = host.call("preview_call", preview).await.unwrap();
        assert_eq!(preview["intent"], "Raise all salaries in “Sales” by 10 %");
        assert_eq!(preview["output"]["employees"], 7);
        let rows = host.call("list_raises", raise()).await.unwrap();
        assert_eq!(rows["cost"], preview["output"]["cost"]);
        assert_eq!((host.file(), host.asked()), (before.clone(), 0));
        let commit = json!({
            "tool": "raise_salaries", "arguments": raise(), "preview_token": preview["preview_token"],
        });
        let done = host.call("commit_call", commit.clone()).await;
        assert_eq!(host.asked(), 1);
        assert_eq!(done.is_ok(), changes, "{decision:?}: {done:?}");
        assert_eq!(host.file() != before, changes);
        if !changes {
            continue;
        }
        assert_eq!(done.unwrap(), preview["output"]);
        // The preview is stale now, and the approval does not apply to other calls.
        let stale = host.call("commit_call", commit).await.unwrap_err();
        assert_eq!(stale, "STALE_PREVIEW");
        let update = json!({"id": "e-001", "salary": 99_000});
        let update = json!({"tool": "update_employee", "arguments": update});
        host.call("commit_call", update).await.unwrap();
        assert_eq!(host.asked(), 3);
        assert!(host.file().contains(r#""salary":99000"#));
    }
}

#[tokio::test]
async fn model_can_raise_salaries_with_approval_and_valid_arguments() {
    for (decision, changes) in [(Decision::Allow, true), (Decision::Deny, false)] {
        let chat = TestClient::new(decision, false).await;
        let before = chat.file();
        assert_eq!(chat.call("raise_salaries", raise()).await.is_ok(), changes);
        assert_eq!((chat.file() != before, chat.asked()), (changes, 1));
    }
    let chat = TestClient::new(Decision::Allow, false).await;
    let before = chat.file();
    for (tool, arguments, code) in [
        (
            "raise_salaries",
            json!({"percent": 26}),
            "INVALID_ARGUMENTS",
        ),
        ("raise_salaries", json!({"percent": 0}), "INVALID_ARGUMENTS"),
        (
            "raise_salaries",
            json!({"percent": 3, "department": "None"}),
            "NOT_FOUND",
        ),
        (
            "update_employee",
            json!({"id": "e-999", "salary": 1}),
            "NOT_FOUND",
        ),
        (
            "update_employee",
            json!({"id": "e-001", "title": "a\nb"}),
            "INVALID_ARGUMENTS",
        ),
    ] {
        let refused = chat.call(tool, arguments.clone()).await.unwrap_err();
        assert_eq!(refused, code, "{tool} {arguments}");
    }
    assert_eq!(chat.file(), before);
}

#[tokio::test]
async fn client_without_elicitation_gets_scope_required() {
    let host = TestClient::without_elicitation().await;
    let before = host.file();
    let commit = json!({"tool": "raise_salaries", "arguments": raise()});
    let refused = host.call("commit_call", commit).await.unwrap_err();
    assert_eq!(refused, "SCOPE_REQUIRED");
    assert_eq!(host.file(), before);
}
