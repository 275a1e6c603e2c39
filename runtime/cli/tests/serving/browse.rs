//! Tests of the tools for file browser views.

use crate::views::showing;
use bailiwick::{Policy, WorkerSpec};
use bailiwick_mcp::gateway::{FileTools, Gateway, Trust};
use bailiwick_test_support::client::{Client, info};
use bailiwick_test_support::workspace::Workspace;
use serde_json::{Value, json};

async fn shows(workspace: &Workspace) -> Client {
    let mut client = workspace.client(Trust::Host);
    client.initialize("2025-11-25", showing()).await;
    client
}

async fn structured(client: &mut Client, tool: &str, arguments: Value) -> Value {
    let answer = client.call(tool, arguments, json!({})).await;
    answer["result"]["structuredContent"].clone()
}

#[tokio::test]
async fn rights_follow_policies_for_existing_and_missing_files() {
    let workspace = Workspace::new();
    let mut client = shows(&workspace).await;
    let paths = [
        "/r/a.txt",
        "/r/absent",
        "/r/secret/key",
        "/r/secret/absent",
        "/r",
        "/outside/f",
        "a.txt",
        "secret/key",
        "../outside/f",
        "",
        "../../f",
        "/r/../r/a.txt",
    ];
    let answer = structured(&mut client, "authority", json!({"paths": paths})).await;
    assert_eq!(answer["workers"], json!([answer["worker"]]));
    let rights: Vec<(&str, &str, &str)> = answer["paths"]
        .as_array()
        .unwrap()
        .iter()
        .map(|path| {
            let text = |key: &str| path[key].as_str().unwrap();
            (text("path"), text("read"), text("write"))
        })
        .collect();
    let expected = [
        ("/r/a.txt", "allow", "allow"),
        ("/r/absent", "allow", "allow"),
        ("/r/secret/key", "deny", "deny"),
        ("/r/secret/absent", "deny", "deny"),
        ("/r", "allow", "allow"),
        ("/outside/f", "ask", "ask"),
        ("a.txt", "allow", "allow"),
        ("secret/key", "deny", "deny"),
        ("../outside/f", "ask", "ask"),
        ("", "deny", "deny"),
        ("../../f", "deny", "deny"),
        ("/r/../r/a.txt", "allow", "allow"),
    ];
    assert_eq!(rights, expected);
}

#[tokio::test]
async fn folders_that_listings_leave_out_are_named_if_the_session_knows_them() {
    let workspace = Workspace::new();
    let (_runtime, worker) = workspace.worker().await;
    let policy = Policy::new()
        .allow("read:file:/r")
        .ask("read:file:/r/ask")
        .root("/r")
        .block("/r/closed")
        .root("/r/closed/open")
        .block("/r/blocked")
        .deny_glob("secret");
    let spec = WorkerSpec::new("reader").policy(policy);
    let worker = worker.spawn(spec).await.unwrap();
    let files = FileTools {
        read: "read_file",
        list: "list_directory",
    };
    let gateway = Gateway::worker(&worker, info()).files(files).build();
    let mut client = Client::new(&gateway);
    client.initialize("2025-11-25", showing()).await;
    let rights = structured(&mut client, "authority", json!({"paths": []})).await;
    assert_eq!(
        rights["unlisted"],
        json!(["/r/ask", "/r/closed", "/r/closed/open"])
    );
    // Denied names stay hidden.
    let roots = structured(&mut client, "list_roots", json!({})).await;
    let listed = structured(&mut client, "list_directory", json!({"path": "/r"})).await;
    for answer in [rights, roots, listed] {
        let answer = answer.to_string();
        assert!(
            !answer.contains("secret") && !answer.contains("blocked"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn rights_are_available_for_descendant_workers_only() {
    let workspace = Workspace::new();
    let (runtime, worker) = workspace.worker().await;
    let narrow = Policy::new().allow("read:file:/r/src");
    let child = WorkerSpec::new("reader").policy(narrow);
    let child = worker.spawn(child).await.unwrap();
    let stranger = WorkerSpec::new("stranger").policy(Policy::new());
    runtime.spawn(stranger).await.unwrap();
    let files = FileTools {
        read: "read_file",
        list: "list_directory",
    };
    let gateway = Gateway::worker(&worker, info()).files(files).build();
    let mut client = Client::new(&gateway);
    client.initialize("2025-11-25", showing()).await;
    let paths = json!(["/r/src/lib.rs", "/r/a.txt"]);
    let own = structured(&mut client, "authority", json!({"paths": paths})).await;
    let number = child.id();
    let names = json!([
        format!("agent ({})", worker.id()),
        format!("agent/reader ({number})")
    ]);
    assert_eq!(own["workers"], names);
    let asked = json!({"paths": paths, "worker": format!("agent/reader ({number})")});
    let as_child = structured(&mut client, "authority", asked.clone()).await;
    assert_eq!(
        as_child["paths"],
        json!([
            {"path": "/r/src/lib.rs", "read": "allow", "write": "deny"},
            {"path": "/r/a.txt", "read": "deny", "write": "deny"},
        ])
    );
    for name in ["stranger", "agent/reader"] {
        let other = json!({"paths": paths, "worker": name});
        assert_eq!(
            structured(&mut client, "authority", other).await["code"],
            "NOT_FOUND"
        );
    }
    // A sibling of the same name is another worker.
    let twin = WorkerSpec::new("reader").policy(Policy::new().allow("read:file:/r/a.txt"));
    let twin = worker.spawn(twin).await.unwrap();
    let as_twin = json!({"paths": ["/r/a.txt"], "worker": format!("agent/reader ({})", twin.id())});
    let as_twin = structured(&mut client, "authority", as_twin).await;
    assert_eq!(as_twin["paths"][0]["read"], "allow");
    assert_eq!(
        structured(&mut client, "authority", asked.clone()).await["paths"],
        as_child["paths"]
    );
    child.revoke().await;
    assert_eq!(
        structured(&mut client, "authority", asked).await["code"],
        "NOT_FOUND"
    );
}

#[tokio::test]
async fn browsing_tools_are_offered_only_to_clients_with_views() {
    let workspace = Workspace::new();
    let mut plain = workspace.client(Trust::Host);
    plain.initialize("2025-11-25", json!({})).await;
    let mut client = shows(&workspace).await;
    for name in ["authority", "changed_files"] {
        let listed = plain.request("tools/list", json!({})).await.to_string();
        assert!(!listed.contains(&format!(r#""name":"{name}""#)), "{listed}");
        let refused = plain.call(name, json!({"paths": []}), json!({})).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let offered = client.request("tools/list", json!({})).await;
        let mut tools = offered["result"]["tools"].as_array().unwrap().iter();
        let tool = tools.find(|tool| tool["name"] == name).unwrap();
        assert_eq!(tool["_meta"]["ui"], json!({"visibility": ["app"]}));
        assert_eq!(tool["annotations"]["readOnlyHint"], true);
    }
    let policy = json!({"policy": {"read_only": true}});
    let narrowed = client.call("authority", json!({"paths": []}), policy).await;
    assert_eq!(narrowed["error"]["code"], -32602, "{narrowed}");
    let many = json!({"paths": vec!["/r/a.txt"; 1001]});
    for wrong in [
        json!({}),
        json!({"paths": "x"}),
        json!({"paths": [], "more": 1}),
        many,
    ] {
        let refused = structured(&mut client, "authority", wrong).await;
        assert_eq!(refused["code"], "INVALID_ARGUMENTS");
    }
}

#[tokio::test]
async fn changed_files_include_applied_but_not_previewed_changes() {
    let workspace = Workspace::new();
    let mut client = shows(&workspace).await;
    let none = structured(&mut client, "changed_files", json!({})).await;
    assert_eq!(none, json!({"changes": []}));
    let edit = |old: &str, new: &str| json!({"path": "a.txt", "edits": [{"old_text": old, "new_text": new}]});
    let preview = json!({"preview": true});
    client.call("edit_file", edit("one", "ONE"), preview).await;
    let made = json!({"path": "src/new.rs", "content": "a\nb\n"});
    client.call("write_file", made, json!({})).await;
    client
        .call("edit_file", edit("two", "TWO\nand more"), json!({}))
        .await;
    client
        .call("edit_file", edit("three", "THREE"), json!({}))
        .await;
    client
        .call("make_directory", json!({"path": "empty"}), json!({}))
        .await;
    let changed = structured(&mut client, "changed_files", json!({})).await;
    let changes = changed["changes"].as_array().unwrap();
    let counts: Vec<Value> = changes
        .iter()
        .map(|one| {
            json!([
                one["path"],
                one["op"],
                one["added"],
                one["removed"],
                one["calls"]
            ])
        })
        .collect();
    assert_eq!(
        counts,
        [
            json!(["/r/a.txt", "modify", 3, 2, 2]),
            json!(["/r/src/new.rs", "create", 2, 0, 1]),
        ]
    );
    for one in changes {
        let diff = client
            .request("resources/read", json!({"uri": one["diff"]}))
            .await;
        let text = diff["result"]["contents"][0]["text"].as_str().unwrap();
        assert!(text.contains("diff --git"), "{text}");
        let review = client
            .request("resources/read", json!({"uri": one["review"]}))
            .await;
        assert_eq!(
            review["result"]["contents"][0]["mimeType"],
            "text/html;profile=mcp-app"
        );
    }
}
