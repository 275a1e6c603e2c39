//! Tests of the servers file and the pin store.

use serde_json::json;

use super::client::{Workspace, hostile, list};

#[test]
fn invalid_entries_are_named_with_the_reason() {
    let mut asks = hostile(&["plain"]);
    asks["env"] = json!({"KEY": "${input:api-key}"});
    let servers = json!({
        "asks": asks, "old": {"type": "sse", "url": "http://127.0.0.1:1/sse"}, "off": {"command": "x", "disabled": true},
        "notes": hostile(&["plain"]),
    });
    let workspace = Workspace::new(&json!({ "servers": servers }));
    let mut client = workspace.client(&[]);
    let names = list(&mut client, "tools", "name");
    assert!(
        names.iter().all(|name| name.starts_with("notes__")),
        "{names:?}"
    );
    let stderr = client.end().1;
    let hint = "the server `asks` is not used: /servers/asks/env/KEY names the input `api-key`, which has no value; set the \
                variable `BAILIWICK_INPUT_API_KEY`";
    assert!(stderr.contains(hint), "{stderr}");
    assert!(
        stderr.contains("the server `old` is not used") && stderr.contains("HTTP+SSE"),
        "{stderr}"
    );
    assert!(!stderr.contains("`off`"), "{stderr}");
    let with = [("BAILIWICK_INPUT_API_KEY", "secret")];
    let mut client = workspace.client_with(&[], &with, &json!({}));
    let names = list(&mut client, "tools", "name");
    assert!(names.contains(&"asks__note".to_owned()), "{names:?}");
    assert!(!client.end().1.contains("secret"));
}

#[test]
fn unreadable_servers_file_is_an_error() {
    let workspace = Workspace::new(&json!({}));
    for (text, expected) in [
        ("{ // no end", "invalid JSON at line 1"),
        ("[]", "invalid JSON at line 1"),
    ] {
        workspace.write("bad.json", text);
        let ended = workspace.run(&["serve", "--servers", "bad.json"], &[]);
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}

/// A server `notes` whose tool `note` changes once the file `changes` says so.
fn with_changing_server() -> Workspace {
    let workspace = Workspace::new(&json!({}));
    workspace.write("changes", "");
    let changes = workspace.path("changes");
    let entry = hostile(&["restarts", changes.to_str().unwrap()]);
    let servers = json!({"servers": {"notes": entry}});
    workspace.write("mcp.json", &servers.to_string());
    workspace
}

/// What `servers --json` shows of the tool `notes__note`.
fn shown_note(workspace: &Workspace) -> serde_json::Value {
    let shown = workspace.run(&["servers", "mcp.json", "--json"], &[]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    let mut lines = shown
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.find(|line| line["tool"] == "notes__note").unwrap()
}

#[test]
fn changed_tool_is_withheld_until_approval() {
    let workspace = with_changing_server();
    let offered = |name: &str| {
        let names = list(&mut workspace.client(&[]), "tools", "name");
        names.iter().any(|it| it == name)
    };
    assert!(offered("notes__note"));
    workspace.write("changes", "description");
    let mut client = workspace.client(&[]);
    let names = list(&mut client, "tools", "name");
    assert!(
        !names.contains(&"notes__note".to_owned()) && names.contains(&"notes__edit".to_owned())
    );
    let stderr = client.end().1;
    assert!(
        stderr.contains("the tool `note` of the server `notes` is withheld: it changed"),
        "{stderr}"
    );
    assert!(stderr.contains("bailiwick servers"), "{stderr}");

    let line = shown_note(&workspace);
    assert_eq!(line["offered"], false);
    assert!(
        line["state"].as_str().unwrap().contains("send me the keys"),
        "{line}"
    );
    let form = line["form"].as_str().unwrap();
    let wrong = workspace.run(
        &[
            "servers",
            "mcp.json",
            "--approve",
            "notes__note@0000000000000000",
        ],
        &[],
    );
    assert_eq!(wrong.status.code(), Some(1));
    assert!(!offered("notes__note"));
    let approve = format!("notes__note@{form}");
    let approved = workspace.run(&["servers", "mcp.json", "--approve", &approve], &[]);
    assert!(approved.status.success(), "{approved:?}");
    assert!(offered("notes__note"));
}

#[test]
fn approved_tool_is_offered_at_once() {
    let workspace = with_changing_server();
    let note = "notes__note".to_owned();
    assert!(list(&mut workspace.client(&[]), "tools", "name").contains(&note));
    workspace.write("changes", "description");
    let mut client = workspace.client(&["--allow", "read:mcp:notes"]);
    assert!(!list(&mut client, "tools", "name").contains(&note));
    let call = json!({"name": note, "arguments": {}});
    let refused = client.request("tools/call", call.clone());
    assert!(refused.get("error").is_some(), "{refused}");

    let line = shown_note(&workspace);
    let approve = format!("{note}@{}", line["form"].as_str().unwrap());
    let approved = workspace.run(&["servers", "mcp.json", "--approve", &approve], &[]);
    assert!(approved.status.success(), "{approved:?}");
    while client
        .others
        .pop()
        .is_none_or(|it| it["method"] != "notifications/tools/list_changed")
    {
        let message = client.receive();
        client.others.push(message);
    }
    assert!(list(&mut client, "tools", "name").contains(&note));
    let answered = client.result("tools/call", call);
    assert_eq!(answered["isError"], false, "{answered}");
}

#[test]
fn tools_cannot_access_the_servers_file() {
    let workspace = Workspace::new(&json!({}));
    std::fs::create_dir(workspace.path("repo")).unwrap();
    workspace.write(
        "repo/servers.json",
        &json!({"servers": {"notes": hostile(&["plain"])}}).to_string(),
    );
    std::fs::rename(
        workspace.path("repo/servers.json"),
        workspace.path("repo/mcp[1].json"),
    )
    .unwrap();
    std::fs::remove_file(workspace.path("mcp.json")).unwrap();
    std::os::unix::fs::symlink("repo/mcp[1].json", workspace.path("mcp.json")).unwrap();
    let mut client = workspace.client(&["repo"]);
    let write = |name: &str| json!({"path": name, "content": "{}", "mode": "overwrite"});
    let (code, _) = client.failure("write_file", write("mcp[1].json"));
    assert_eq!(code, "PERMISSION_DENIED");
    let (code, _) = client.failure("read_file", json!({"path": "mcp[1].json"}));
    assert_eq!(code, "PERMISSION_DENIED");
    client.text("write_file", write("other.json"));
    client.text("read_file", json!({"path": "other.json"}));
    let found = client.text("grep", json!({"pattern": "notes"}));
    assert!(!found.contains("servers"), "{found}");
}

#[test]
fn tools_cannot_access_the_servers_file_through_a_symlinked_root() {
    let workspace = Workspace::new(&json!({}));
    std::fs::create_dir(workspace.path("repo")).unwrap();
    std::os::unix::fs::symlink("repo", workspace.path("link")).unwrap();
    let servers = json!({"servers": {"notes": hostile(&["plain"])}});
    workspace.write("repo/mcp.json", &servers.to_string());
    workspace.write("repo/other.json", "{}");
    std::fs::remove_file(workspace.path("mcp.json")).unwrap();
    std::os::unix::fs::symlink("link/mcp.json", workspace.path("mcp.json")).unwrap();
    for root in ["repo", "link"] {
        let mut client = workspace.client(&[root]);
        let (code, _) = client.failure("read_file", json!({"path": "mcp.json"}));
        assert_eq!(code, "PERMISSION_DENIED", "{root}");
        let write = json!({"path": "mcp.json", "content": "{}", "mode": "overwrite"});
        assert_eq!(client.failure("write_file", write).0, "PERMISSION_DENIED");
        client.text("read_file", json!({"path": "other.json"}));
    }
}

#[test]
fn tools_cannot_read_server_environments() {
    let workspace = Workspace::new(&json!({}));
    std::fs::create_dir(workspace.path("repo")).unwrap();
    workspace.write("repo/variables", "KEY=sk-1\n");
    workspace.write("repo/notes.txt", "KEY=public\n");
    let mut server = hostile(&["plain"]);
    server["envFile"] = workspace.path("repo/variables").to_str().unwrap().into();
    workspace.write(
        "mcp.json",
        &json!({"servers": {"notes": server}}).to_string(),
    );
    let mut client = workspace.client(&["repo"]);
    let (code, _) = client.failure("read_file", json!({"path": "variables"}));
    assert_eq!(code, "PERMISSION_DENIED");
    let found = client.text("grep", json!({"pattern": "KEY"}));
    assert!(
        found.contains("public") && !found.contains("sk-1"),
        "{found}"
    );
}

#[test]
fn root_that_contains_the_pin_store_is_rejected() {
    let workspace = Workspace::new(&json!({"servers": {"notes": hostile(&["plain"])}}));
    std::fs::create_dir(workspace.path("repo")).unwrap();
    for root in ["state", "state/bailiwick"] {
        std::fs::create_dir_all(workspace.path("state/bailiwick")).unwrap();
        let ended = workspace.run(&["serve", "--servers", "mcp.json", root], &[]);
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains("it contains") && stderr.contains("--pins"),
            "{stderr}"
        );
    }
    let mut other = workspace.client(&["repo"]);
    assert!(list(&mut other, "tools", "name").contains(&"read_file".to_owned()));
    let mut elsewhere = workspace.client(&["--pins", "pins", "state"]);
    assert!(list(&mut elsewhere, "tools", "name").contains(&"read_file".to_owned()));
}
