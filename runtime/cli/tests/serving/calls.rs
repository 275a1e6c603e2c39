//! Tests of calls: results, previews, policies and grants on the wire.

use crate::program;
use crate::views::showing;
use bailiwick::{MemoryAudit, Policy, Runtime, WorkerSpec};
use bailiwick_mcp::gateway::{FileTools, Gateway, Rate, Trust};
use bailiwick_test_support::client::{Client, info};
use bailiwick_test_support::temp_files::TempFiles;
use bailiwick_test_support::workspace::Workspace;
use serde_json::Value;
use serde_json::json;

async fn connected(workspace: &Workspace, trust: Trust) -> Client {
    let mut client = workspace.client(trust);
    client.initialize("2025-11-25", json!({})).await;
    client
}

fn code(answer: &Value) -> &str {
    answer["result"]["structuredContent"]["code"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
}

#[tokio::test]
async fn preview_has_the_result_of_the_call_and_changes_nothing() {
    let workspace = Workspace::new();
    let mut client = connected(&workspace, Trust::Host).await;
    let edit = json!({"path": "/r/a.txt", "edits": [{"old_text": "two", "new_text": "2"}]});
    let before = std::fs::metadata(workspace.path("r/a.txt"))
        .unwrap()
        .modified()
        .unwrap();
    let mut preview = client
        .call("edit_file", edit.clone(), json!({"preview": true}))
        .await;
    assert_eq!(preview["result"]["_meta"]["preview"], true, "{preview}");
    assert_eq!(
        std::fs::metadata(workspace.path("r/a.txt"))
            .unwrap()
            .modified()
            .unwrap(),
        before
    );
    assert_eq!(workspace.read("r/a.txt"), "one\ntwo\nthree\n");
    let token = preview["result"]["_meta"]["preview_token"].take();

    let done = client
        .call("edit_file", edit.clone(), json!({"preview_token": token}))
        .await;
    assert_eq!(workspace.read("r/a.txt"), "one\n2\nthree\n");
    assert!(done["result"]["_meta"].get("preview").is_none());
    let same = ["structuredContent", "isError"];
    for key in same {
        assert_eq!(preview["result"][key], done["result"][key], "{key}");
    }
    assert_eq!(
        preview["result"]["content"][0],
        done["result"]["content"][0]
    );

    let stale = client
        .call("edit_file", edit, json!({"preview_token": token}))
        .await;
    assert_eq!(code(&stale), "STALE_PREVIEW", "{stale}");
    assert_eq!(done["result"]["content"].as_array().unwrap().len(), 1);
    let artifacts = done["result"]["_meta"]["artifacts"].as_array().unwrap();
    assert_eq!(artifacts.len(), 3);
    for link in artifacts {
        let read = client
            .request("resources/read", json!({"uri": link["uri"]}))
            .await;
        assert_eq!(
            read["result"]["contents"][0]["mimeType"], link["mimeType"],
            "{read}"
        );
    }
}

#[tokio::test]
async fn artifacts_are_in_meta_for_calls_that_use_only_meta() {
    let write = |name: &str| json!({"path": format!("/r/{name}"), "content": "x"});
    for (trust, meta, listed) in [
        (Trust::Client, json!({}), false),
        (Trust::Agent, json!({}), false),
        (Trust::Client, json!({"other": true}), false),
        (Trust::Client, json!({"preview": false}), true),
        (Trust::Agent, json!({"preview": true}), true),
        (Trust::Host, json!({}), true),
    ] {
        let workspace = Workspace::new();
        let mut client = connected(&workspace, trust).await;
        let answer = client.call("write_file", write("new"), meta.clone()).await;
        let artifacts = answer["result"]["_meta"]["artifacts"].as_array();
        assert_eq!(artifacts.is_some(), listed, "{trust:?} {meta}: {answer}");
        // The resources name them for every client.
        let resources = client.request("resources/list", json!({})).await;
        assert!(
            resources.to_string().contains("ui://write_file/"),
            "{resources}"
        );
    }
}

#[tokio::test]
async fn call_outside_the_roots_succeeds_when_replayed_with_its_scope() {
    let workspace = Workspace::new();
    let mut client = connected(&workspace, Trust::Host).await;
    let path = workspace.path("outside/new");
    let path = path.to_str().unwrap();
    let write = json!({"path": path, "content": "x"});
    let refused = client.call("write_file", write.clone(), json!({})).await;
    assert_eq!(code(&refused), "SCOPE_REQUIRED");
    assert_eq!(refused["result"]["isError"], true);
    let scopes = refused["result"]["_meta"]["requested_scopes"].clone();
    assert_eq!(scopes, json!([format!("write:file:{path}")]));
    assert!(!workspace.path("outside/new").exists());

    let other = client
        .call(
            "write_file",
            write.clone(),
            json!({"granted_scopes": ["write:file:/elsewhere"]}),
        )
        .await;
    assert_eq!(other["result"]["_meta"]["requested_scopes"], scopes);
    let preview = client
        .call(
            "write_file",
            write.clone(),
            json!({"granted_scopes": scopes, "preview": true}),
        )
        .await;
    assert_eq!(preview["result"]["_meta"]["preview"], true, "{preview}");
    assert!(!workspace.path("outside/new").exists());
    let done = client
        .call(
            "write_file",
            write.clone(),
            json!({"granted_scopes": scopes}),
        )
        .await;
    assert_ne!(done["result"]["isError"], true, "{done}");
    assert_eq!(workspace.read("outside/new"), "x");
    let again = client
        .call(
            "write_file",
            json!({"path": path, "content": "y", "mode": "overwrite"}),
            json!({}),
        )
        .await;
    assert_eq!(code(&again), "SCOPE_REQUIRED", "nothing of a grant is kept");
}

#[tokio::test]
async fn agent_grants_are_ignored_and_denials_request_no_scopes() {
    let workspace = Workspace::new();
    let mut agent = connected(&workspace, Trust::Agent).await;
    let path = workspace.path("outside/new");
    let write = json!({"path": path.to_str().unwrap(), "content": "x"});
    let refused = agent
        .call("write_file", write, json!({"granted_scopes": ["*"]}))
        .await;
    assert_eq!(refused["result"]["isError"], true);
    assert!(!workspace.path("outside/new").exists());

    let mut host = connected(&workspace, Trust::Host).await;
    let secret = json!({"path": "/r/secret/key"});
    let denied = host
        .call("read_file", secret, json!({"granted_scopes": ["*"]}))
        .await;
    assert_eq!(denied["result"]["isError"], true);
    assert!(
        denied["result"]["_meta"].get("requested_scopes").is_none(),
        "{denied}"
    );
    assert!(!denied.to_string().contains("hidden"));
}

#[tokio::test]
async fn call_policy_narrows_and_expansion_is_rejected_up_front() {
    let workspace = Workspace::new();
    let mut client = connected(&workspace, Trust::Host).await;
    let write = json!({"path": "/r/b", "content": "x"});
    let narrowed = client
        .call(
            "write_file",
            write.clone(),
            json!({"policy": {"read_only": true}}),
        )
        .await;
    assert_eq!(code(&narrowed), "PERMISSION_DENIED");
    assert_eq!(narrowed["result"]["_meta"]["denied_by"], "policy");
    let refused = client
        .call(
            "write_file",
            write.clone(),
            json!({"policy": {"roots": [{"path": "/etc"}]}}),
        )
        .await;
    assert_eq!(refused["error"]["code"], -32602);
    let data = &refused["error"]["data"];
    assert_eq!(
        (&data["kind"], &data["field"], &data["layer"]),
        (
            &json!("policy_expansion"),
            &json!("/roots/0/path"),
            &json!("call")
        )
    );
    for (policy, kind) in [
        (json!({"nonsense": 1}), "policy_invalid"),
        (json!({"grantable": ["*"]}), "policy_scope"),
    ] {
        let refused = client
            .call("write_file", write.clone(), json!({"policy": policy}))
            .await;
        assert_eq!(refused["error"]["data"]["kind"], kind, "{refused}");
    }
    assert!(!workspace.path("r/b").exists());
    client.call("write_file", write, json!({})).await;
    assert!(
        workspace.path("r/b").exists(),
        "the policy of one call is not that of the next"
    );
}

#[tokio::test]
async fn client_errors_have_specific_messages() {
    let workspace = Workspace::new();
    let mut client = connected(&workspace, Trust::Host).await;
    let unknown = client.call("no_such_tool", json!({}), json!({})).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let malformed = client.request("tools/call", json!({"name": 7})).await;
    assert_eq!(malformed["error"]["code"], -32602, "{malformed}");
    let nothing = client.request("no/such/method", json!({})).await;
    assert_eq!(nothing["error"]["code"], -32601, "{nothing}");
    let arguments = client
        .call("read_file", json!({"pth": "a"}), json!({}))
        .await;
    assert_eq!(code(&arguments), "INVALID_ARGUMENTS", "{arguments}");
    let meta = client
        .call(
            "read_file",
            json!({"path": "a.txt"}),
            json!({"preview": "yes"}),
        )
        .await;
    assert_eq!(meta["error"]["data"]["field"], "/_meta/preview", "{meta}");
}

#[tokio::test]
async fn rate_limit_error_says_when_to_retry() {
    let workspace = Workspace::new();
    let rate = Rate {
        calls: 5,
        per: std::time::Duration::from_secs(3600),
    };
    let mut client = Client::new(&workspace.gateway(Trust::Host).rate(rate).build());
    client.initialize("2025-11-25", json!({})).await;
    for _ in 0..5 {
        let done = client
            .call("read_file", json!({"path": "a.txt"}), json!({}))
            .await;
        assert_ne!(done["result"]["isError"], true, "{done}");
    }
    let refused = client
        .call("read_file", json!({"path": "a.txt"}), json!({}))
        .await;
    assert_eq!(code(&refused), "RATE_LIMITED");
    assert!(
        refused["result"]["structuredContent"]["retryAfter"]
            .as_u64()
            .unwrap()
            > 0
    );
}

#[tokio::test]
async fn rejections_of_reads_and_view_tools_are_audited() {
    let files = TempFiles::new(&[("r/a.txt", "a")]);
    let audit = MemoryAudit::new(1000);
    let builder = Runtime::builder().root("r", files.path("r"));
    let builder = builder.tools(bailiwick_fs::tools()).audit(audit.clone());
    let (runtime, _) = builder.build().await.unwrap();
    let worker = runtime.spawn(WorkerSpec::new("agent").policy(Policy::new()));
    let worker = worker.await.unwrap();
    let tools = FileTools {
        read: "read_file",
        list: "list_directory",
    };
    let rate = Rate {
        calls: 9,
        per: std::time::Duration::from_secs(3600),
    };
    let gateway = Gateway::worker(&worker, info()).files(tools).rate(rate);
    let mut client = Client::connect(&gateway.build(), showing()).await;
    let recorded = async |tool: &str, text: &str| {
        runtime.flush_audit().await.unwrap();
        let records = audit.records();
        let lines = records.iter().map(|record| record.line());
        let tool = format!(r#""tool":"{tool}""#);
        let finished = r#""step":"finished""#;
        let found = |line: &str| line.contains(finished) || line.contains("ignored_grants");
        lines
            .filter(|line| found(line) && line.contains(&tool) && line.contains(text))
            .count()
    };
    for (name, arguments, tool, code) in [
        ("commit_call", json!({}), "commit_call", "INVALID_ARGUMENTS"),
        ("commit_call", json!({"tool": "x"}), "x", "UNKNOWN_TOOL"),
        ("preview_call", json!({"tool": "y"}), "y", "UNKNOWN_TOOL"),
        (
            "preview_call",
            json!({"tool": "grep"}),
            "grep",
            "INVALID_ARGUMENTS",
        ),
    ] {
        let arguments = json!({"name": name, "arguments": arguments});
        client.request("tools/call", arguments).await;
        assert_eq!(recorded(tool, code).await, 1, "{name} {tool}");
    }
    let write = json!({"tool": "write_file", "arguments": {"path": "/r/b", "content": "x"}});
    for forged in [json!({}), json!({"granted_scopes": ["write:file:/r"]})] {
        client.call("preview_call", write.clone(), forged).await;
    }
    assert_eq!(recorded("preview_call", "ignored_grants").await, 1);
    let read = json!({"uri": "file:///r/a.txt"});
    let mut answers = Vec::new();
    for _ in 0..4 {
        answers.push(client.request("resources/read", read.clone()).await);
    }
    let is_answered = |answer: &&Value| answer["result"].is_object();
    assert_eq!(answers.iter().filter(is_answered).count(), 3);
    assert_eq!(recorded("read_file", "RATE_LIMITED").await, 1);
    runtime.shutdown().await;
}

#[tokio::test]
async fn log_messages_respect_the_requested_level() {
    let workspace = Workspace::new();
    let mut client = connected(&workspace, Trust::Host).await;
    let read = |path: &str| json!({"name": "read_file", "arguments": {"path": path}});
    let none = client
        .request("logging/setLevel", json!({"level": "nonsense"}))
        .await;
    assert_eq!(none["error"]["code"], -32602, "{none}");
    client
        .request("logging/setLevel", json!({"level": "warning"}))
        .await;
    client
        .send(&json!({"jsonrpc": "2.0", "id": 90, "method": "tools/call", "params": read("a.txt")}))
        .await;
    assert_eq!(
        client.receive().await["id"],
        90,
        "a call that went well is no warning"
    );
    client
        .send(&json!({"jsonrpc": "2.0", "id": 91, "method": "tools/call", "params": read("none")}))
        .await;
    let notification = client.receive().await;
    assert_eq!(
        notification["method"], "notifications/message",
        "{notification}"
    );
    assert_eq!(notification["params"]["level"], "warning");
    assert_eq!(notification["params"]["data"]["code"], "NOT_FOUND");
    assert_eq!(client.receive().await["id"], 91);
}

#[tokio::test]
async fn cancelled_call_gets_no_response_and_the_next_one_does() {
    let workspace = Workspace::new();
    let mut client = Client::new(&workspace.asking_gateway(Trust::Host));
    client
        .initialize("2025-11-25", json!({"elicitation": {}}))
        .await;
    let path = workspace.path("outside/new");
    let write = json!({"name": "write_file", "arguments": {"path": path.to_str().unwrap(), "content": "x"}});
    client
        .send(&json!({"jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": write}))
        .await;
    assert_eq!(
        client.receive().await["method"],
        "elicitation/create",
        "the call is under way"
    );
    client
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w"}}))
        .await;
    let done = client
        .call("read_file", json!({"path": "a.txt"}), json!({}))
        .await;
    assert_ne!(done["result"]["isError"], true, "{done}");
    assert!(!path.exists());
}

#[tokio::test]
async fn file_that_cannot_be_opened_fails_without_requested_scopes() {
    let workspace = Workspace::new();
    let mut client = connected(&workspace, Trust::Host).await;
    let meta = json!({"granted_scopes": ["read:file"]});
    // The root has this file by another name, under which its rules would not hold.
    let path = workspace.path("r/a.txt").canonicalize().unwrap();
    let read = json!({"path": path.to_str().unwrap()});
    let refused = client.call("read_file", read, meta.clone()).await;
    assert_eq!(code(&refused), "PERMISSION_DENIED", "{refused}");
    assert!(refused["result"]["_meta"].get("requested_scopes").is_none());
    let path = workspace.path("outside/f");
    let read = json!({"path": path.to_str().unwrap()});
    let read = client.call("read_file", read, meta).await;
    assert_eq!(read["result"]["isError"], false, "{read}");
}

#[tokio::test]
async fn granted_symlink_to_a_granted_target_outside_roots_is_followed() {
    let workspace = Workspace::new();
    let mut client = connected(&workspace, Trust::Host).await;
    let link = workspace.path("link");
    std::os::unix::fs::symlink(workspace.path("outside"), &link).unwrap();
    let path = link.join("f");
    let read = json!({"path": path.to_str().unwrap()});
    let meta = |granted: &[&str]| json!({ "granted_scopes": granted });
    let whole = client
        .call("read_file", read.clone(), meta(&["read:file"]))
        .await;
    assert_eq!(whole["result"]["isError"], false, "{whole}");
    let named = format!("read:file:{}", path.display());
    let refused = client.call("read_file", read, meta(&[&named])).await;
    assert_eq!(code(&refused), "SCOPE_REQUIRED", "{refused}");
    let target = workspace.path("outside/f").canonicalize().unwrap();
    let expected = json!([named, format!("read:file:{}", target.display())]);
    assert_eq!(refused["result"]["_meta"]["requested_scopes"], expected);
}

#[tokio::test]
async fn request_policy_narrows_resources_and_completions() {
    let workspace = Workspace::new();
    let mut client = connected(&workspace, Trust::Host).await;
    let path = json!({
        "ref": {"type": "ref/resource", "uri": "file:///{+path}"},
        "argument": {"name": "path", "value": "r/"},
    });
    let file = json!({"uri": "file:///r/a.txt"});
    for (method, params, pointer, open) in [
        (
            "resources/list",
            json!({}),
            "/result/resources/0/uri",
            json!("file:///r"),
        ),
        (
            "resources/read",
            file.clone(),
            "/result/contents/0/uri",
            json!("file:///r/a.txt"),
        ),
        ("resources/subscribe", file, "/result", json!({})),
        (
            "completion/complete",
            path,
            "/result/completion/values/0",
            json!("r/a.txt"),
        ),
    ] {
        for (policy, expected) in [
            (json!({"read_only": true}), Some(&open)),
            (json!({"roots": []}), None),
        ] {
            let mut narrowed = params.clone();
            narrowed["_meta"] = json!({ "policy": policy });
            let answer = client.request(method, narrowed).await;
            assert_eq!(answer.pointer(pointer), expected, "{method}: {answer}");
        }
        let mut wrong = params;
        wrong["_meta"] = json!({"policy": {"read_only": 7}});
        let refused = client.request(method, wrong).await;
        assert_eq!(refused["error"]["code"], -32602, "{method}: {refused}");
    }
}

#[tokio::test]
async fn preview_token_is_valid_only_for_its_call_and_server() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Host);
    client.initialize("2025-11-25", json!({})).await;
    let edit =
        |text: &str| json!({"path": "/r/a.txt", "edits": [{"old_text": "two", "new_text": text}]});
    let preview = client
        .call("edit_file", edit("2"), json!({"preview": true}))
        .await;
    let token = preview["result"]["_meta"]["preview_token"].clone();
    let carrying = json!({"preview_token": token});
    let other_arguments = client.call("edit_file", edit("3"), carrying.clone()).await;
    let delete = json!({"path": "/r/a.txt"});
    let other_tool = client.call("delete", delete, carrying.clone()).await;
    let mut elsewhere = workspace.client(Trust::Host);
    elsewhere.initialize("2025-11-25", json!({})).await;
    let made_elsewhere = elsewhere
        .call("edit_file", edit("2"), carrying.clone())
        .await;
    for foreign in [other_arguments, other_tool, made_elsewhere] {
        assert_eq!(code(&foreign), "INVALID_ARGUMENTS", "{foreign}");
        let text = foreign["result"]["content"][0]["text"].as_str().unwrap();
        assert!(!text.contains("changed"), "{text}");
    }
    assert_eq!(workspace.read("r/a.txt"), "one\ntwo\nthree\n");
    std::fs::write(workspace.path("r/a.txt"), "zero\ntwo\n").unwrap();
    let changed = client.call("edit_file", edit("2"), carrying).await;
    assert_eq!(code(&changed), "STALE_PREVIEW", "{changed}");
    let again = client
        .call("edit_file", edit("2"), json!({"preview": true}))
        .await;
    let token = again["result"]["_meta"]["preview_token"].clone();
    let done = client
        .call("edit_file", edit("2"), json!({"preview_token": token}))
        .await;
    assert_eq!(done["result"]["isError"], false, "{done}");
    assert_eq!(workspace.read("r/a.txt"), "zero\n2\n");
}

#[tokio::test]
async fn oversized_resource_is_rejected_instead_of_truncated() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Host);
    client.initialize("2025-11-25", json!({})).await;
    for (bytes, whole) in [(1000, true), (4 << 20, false)] {
        let text = "0123456789 line\n".repeat(bytes / 16 + 1);
        std::fs::write(workspace.path("r/long.txt"), &text).unwrap();
        let read = client
            .request("resources/read", json!({"uri": "file:///r/long.txt"}))
            .await;
        if whole {
            assert_eq!(read["result"]["contents"][0]["text"], text, "{read}");
        } else {
            assert_eq!(read["error"]["data"]["code"], "TOO_LARGE", "{read}");
        }
    }
}

#[tokio::test]
async fn preview_and_apply_work_with_arguments_only() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Host);
    let configuration = json!({"experimental": {"configuration": {"require_preview": true}}});
    client.initialize("2025-11-25", configuration).await;
    let listed = client.request("tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    for tool in tools {
        let takes = tool["inputSchema"]["properties"]
            .get("preview_token")
            .is_some();
        assert_eq!(
            takes,
            tool["annotations"]["readOnlyHint"] == false,
            "{tool}"
        );
    }
    let mut call = json!({"name": "write_file", "arguments": {"path": "/r/new", "content": "x"}});
    let blind = client.request("tools/call", call.clone()).await;
    assert_eq!(code(&blind), "STALE_PREVIEW", "{blind}");
    call["arguments"]["preview"] = json!(true);
    let mut shown = client.request("tools/call", call.clone()).await;
    assert!(!workspace.path("r/new").exists());
    let token = shown["result"]["structuredContent"]["preview_token"].take();
    let text = shown["result"]["content"].to_string();
    assert!(text.contains(token.as_str().unwrap()), "{text}");
    call["arguments"]["preview"] = json!(false);
    call["arguments"]["preview_token"] = token;
    let made = client.request("tools/call", call).await;
    assert_eq!(
        made["result"]["structuredContent"]["done"], "created",
        "{made}"
    );
    assert_eq!(workspace.read("r/new"), "x");
}

/// Some clients start a process for each call.
#[test]
fn preview_of_one_process_is_applied_by_another() {
    let workspace = Workspace::new();
    let (root, state) = (workspace.path("r"), tempfile::tempdir().unwrap());
    let answer = |arguments: &Value, state: &std::path::Path| {
        let options = ["--require-preview", root.to_str().unwrap()];
        let variables = [("XDG_STATE_HOME", state.as_os_str())];
        let mut program = program::start_with(&options, &variables, &[]);
        program.initialize(&json!({}));
        program.call("write_file", arguments)
    };
    let mut write = json!({"path": "new", "content": "x", "preview": true});
    let shown = answer(&write, state.path());
    assert!(!root.join("new").exists());
    write["preview"] = json!(false);
    write["preview_token"] = shown["structuredContent"]["preview_token"].clone();
    let other = tempfile::tempdir().unwrap();
    let refused = answer(&write, other.path());
    assert_eq!(refused["structuredContent"]["code"], "INVALID_ARGUMENTS");
    let made = answer(&write, state.path());
    assert_eq!(made["structuredContent"]["done"], "created", "{made}");
    assert_eq!(workspace.read("r/new"), "x");
}
