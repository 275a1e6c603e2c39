//! Tests of third-party resources and prompts.

use super::client::Workspace;
use super::client::list;
use bailiwick_test_support::server::Server;
use serde_json::Value;
use serde_json::json;
use std::path::Path;

const GUIDE: &str = "mcp+docs+doc://guide";

fn workspace() -> Workspace {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upstream/gateway/documents.py");
    let entry = json!({"command": "python3", "args": ["-I", "-S", script]});
    Workspace::new(&json!({"mcpServers": {"docs": entry}}))
}

fn read(client: &mut Server, uri: &str) -> Value {
    client.request("resources/read", json!({"uri": uri}))
}

#[test]
fn resources_and_templates_of_servers_are_listed_and_read() {
    let workspace = workspace();
    let mut client = workspace.client(&["--allow", "read:mcp:docs"]);
    assert!(list(&mut client, "resources", "uri").contains(&GUIDE.to_owned()));
    let templates = list(&mut client, "resources/templates", "uriTemplate");
    assert!(
        templates.contains(&"mcp+docs+doc://page/{number}".to_owned()),
        "{templates:?}"
    );
    for (uri, text) in [
        (GUIDE, "text of doc://guide\\u{202e}"),
        ("mcp+docs+doc://page/7", "text of doc://page/7\\u{202e}"),
        ("mcp+DOCS+doc://page/7", "text of doc://page/7\\u{202e}"),
    ] {
        let contents = &read(&mut client, uri)["result"]["contents"];
        let known = uri.replace("DOCS", "docs");
        assert_eq!(
            contents[0],
            json!({"uri": known, "mimeType": "text/plain", "text": text})
        );
    }
    for absent in [
        "mcp+docs+doc://secret",
        "mcp+other+doc://guide",
        "doc://guide",
    ] {
        let answer = read(&mut client, absent);
        assert!(answer.get("error").is_some(), "{answer}");
    }
}

#[test]
fn policy_applies_to_server_resources() {
    let workspace = workspace();
    let mut client = workspace.client(&[]);
    let error = read(&mut client, GUIDE)["error"].clone();
    assert_eq!(error["data"]["code"], "SCOPE_REQUIRED");
    let scope = error["data"]["requested_scopes"][0].as_str().unwrap();
    assert!(
        scope.starts_with("read:mcp:docs~") && scope.ends_with(":resources/read:doc%3A//guide"),
        "{scope}"
    );
    let get = json!({"name": "docs__sum_up", "arguments": {"what": "it"}});
    let error = client.request("prompts/get", get)["error"].clone();
    assert_eq!(error["data"]["code"], "SCOPE_REQUIRED");

    let denied = "read:mcp:docs:resources/read:doc%3A//guide";
    let mut client = workspace.client(&["--allow", "read:mcp:docs", "--deny-scopes", denied]);
    let uris = list(&mut client, "resources", "uri");
    assert!(!uris.contains(&GUIDE.to_owned()), "{uris:?}");
    assert_eq!(
        read(&mut client, GUIDE)["error"]["data"]["code"],
        "PERMISSION_DENIED"
    );
    let page = read(&mut client, "mcp+docs+doc://page/7");
    assert!(page["result"]["contents"][0]["text"].is_string(), "{page}");
}

#[test]
fn server_prompts_are_listed_and_expanded() {
    let workspace = workspace();
    let mut client = workspace.client(&["--allow", "read:mcp:docs"]);
    let list = client.result("prompts/list", json!({}));
    let prompts = list["prompts"].as_array().unwrap();
    let prompt = prompts
        .iter()
        .find(|it| it["name"] == "docs__sum_up")
        .unwrap();
    assert_eq!(prompt["arguments"][0]["name"], "what");
    let filled = client.result(
        "prompts/get",
        json!({"name": "docs__sum_up", "arguments": {"what": "it"}}),
    );
    let expected = json!({"role": "user", "content": {"type": "text", "text": "Sum up it"}});
    assert_eq!(filled["messages"][0], expected);
    let unknown = client.request("prompts/get", json!({"name": "docs__none"}));
    assert!(unknown.get("error").is_some(), "{unknown}");
}

#[test]
fn resource_links_in_results_can_be_read() {
    let workspace = workspace();
    let mut client = workspace.client(&["--allow", "read:mcp:docs"]);
    let result = client.call("docs__find", json!({}));
    let link = &result["content"][0];
    assert_eq!(
        (&link["type"], &link["uri"]),
        (&json!("resource_link"), &json!(GUIDE))
    );
    let uri = link["uri"].as_str().unwrap().to_owned();
    let contents = &read(&mut client, &uri)["result"]["contents"];
    assert_eq!(contents[0]["text"], "text of doc://guide\\u{202e}");
}

#[test]
fn view_is_unchanged_and_has_host_metadata() {
    let workspace = workspace();
    let mut client = workspace.client(&["--allow", "read:mcp:docs"]);
    let page = "ui://mcp+docs+page";
    let contents = &read(&mut client, page)["result"]["contents"][0];
    assert_eq!(contents["text"], "text of ui://page\u{202e}", "{contents}");
    assert_eq!(contents["uri"], page);
    let needed = json!({"ui": {"csp": {"connectDomains": ["https://example.org"]}}});
    assert_eq!(contents["_meta"], needed);
    let text = &read(&mut client, GUIDE)["result"]["contents"][0];
    assert_eq!(text.get("_meta"), None, "{text}");
}

#[test]
fn client_is_notified_of_changed_resource_and_prompt_lists() {
    let workspace = workspace();
    let mut client = workspace.client(&["--allow", "read:mcp:docs"]);
    let before = (
        list(&mut client, "resources", "uri").len(),
        list(&mut client, "prompts", "name").len(),
    );
    client.text("docs__publish", json!({}));
    let is_notified =
        |client: &Server, method: &str| client.others.iter().any(|it| it["method"] == method);
    while !(is_notified(&client, "notifications/resources/list_changed")
        && is_notified(&client, "notifications/prompts/list_changed"))
    {
        let message = client.receive();
        client.others.push(message);
    }
    let after = (
        list(&mut client, "resources", "uri"),
        list(&mut client, "prompts", "name"),
    );
    assert_eq!(
        (after.0.len(), after.1.len()),
        (before.0 + 1, before.1 + 1),
        "{after:?}"
    );
    assert!(after.0.contains(&"mcp+docs+doc://new".to_owned()));
    assert!(
        after.1.contains(&"docs__new".to_owned()) && !after.1.contains(&"docs__twin".to_owned())
    );
}

#[test]
fn request_policy_narrows_server_lists_and_reads() {
    let workspace = workspace();
    let mut client = workspace.client(&["--allow", "read:mcp:docs"]);
    let meta = json!({"policy": {"deny_scopes": ["read:mcp:docs"]}});
    let narrowed = |params: Value| {
        let mut params = params;
        params["_meta"] = meta.clone();
        params
    };
    let resources = client.result("resources/list", narrowed(json!({})));
    let prompts = client.result("prompts/list", narrowed(json!({})));
    assert!(!resources.to_string().contains("mcp+docs") && !prompts.to_string().contains("docs__"));
    let refused = client.request("resources/read", narrowed(json!({"uri": GUIDE})));
    assert!(refused.get("error").is_some(), "{refused}");
    let read = read(&mut client, GUIDE);
    assert!(read["result"]["contents"][0]["text"].is_string(), "{read}");
}

fn completed(client: &mut Server, reference: Value) -> Value {
    let params = json!({
        "ref": reference, "argument": {"name": "what", "value": "4"}, "context": {"arguments": {"a": "b"}},
    });
    client.result("completion/complete", params)["completion"].clone()
}

#[test]
fn arguments_of_prompts_and_templates_are_completed_by_their_server() {
    let workspace = workspace();
    let mut client = workspace.client(&["--allow", "read:mcp:docs"]);
    let prompt = json!({"type": "ref/prompt", "name": "docs__sum_up"});
    let values = |about: &str| json!({"values": ["41", about, "ab"], "total": 7, "hasMore": true});
    assert_eq!(completed(&mut client, prompt.clone()), values("sum up"));
    let template = json!({"type": "ref/resource", "uri": "mcp+docs+doc://page/{number}"});
    assert_eq!(
        completed(&mut client, template.clone()),
        values("doc://page/{number}")
    );
    let nothing = json!({"values": []});
    let other = json!({"type": "ref/resource", "uri": "mcp+docs+doc://other/{number}"});
    assert_eq!(completed(&mut client, other)["values"], nothing["values"]);

    // Nobody is asked while somebody types, and what is denied is not completed.
    let mut asks = workspace.client(&[]);
    let denied = "read:mcp:docs:prompts/get";
    let mut denies = workspace.client(&["--allow", "read:mcp:docs", "--deny-scopes", denied]);
    for client in [&mut asks, &mut denies] {
        let completion = completed(client, prompt.clone());
        assert_eq!(completion["values"], nothing["values"], "{completion}");
    }
    assert_eq!(completed(&mut denies, template)["total"], 7);
}

#[test]
fn subscriptions_are_offered_for_files_only() {
    let workspace = workspace();
    let mut client = workspace.client(&["--allow", "read:mcp:docs"]);
    let offered = &client.initialized["capabilities"]["resources"];
    assert_eq!(*offered, json!({"listChanged": true}));
    let refused = client.request("resources/subscribe", json!({"uri": GUIDE}));
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.contains("cannot be subscribed to"), "{why}");
    std::fs::create_dir(workspace.path("repo")).unwrap();
    std::fs::write(workspace.path("repo/a.txt"), "a").unwrap();
    let mut both = workspace.client(&["repo"]);
    let offered = &both.initialized["capabilities"]["resources"];
    assert_eq!(*offered, json!({"subscribe": true, "listChanged": true}));
    let file = workspace.path("repo/a.txt").canonicalize().unwrap();
    let uri = format!("file://{}", file.display());
    both.result("resources/subscribe", json!({ "uri": uri }));
}
