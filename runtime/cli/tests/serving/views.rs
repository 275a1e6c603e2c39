//! Tests of MCP Apps views.

use bailiwick::config::Namespace;
use bailiwick::tool::{Interrupt, Prepared, ReadPermit};
use bailiwick::{CallError, ReadTool, Reply, ToolSet, ToolSpec};
use bailiwick_mcp::gateway::{FileTools, Gateway, Trust};
use bailiwick_test_support::client::{Client, info};
use bailiwick_test_support::workspace::Workspace;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const MIME: &str = "text/html;profile=mcp-app";

/// The capabilities of a client that shows views.
pub(crate) fn showing() -> Value {
    json!({"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": [MIME]}}})
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Debug, Serialize, JsonSchema)]
struct Peeked {}

/// A tool for views.
struct Peek;

impl ReadTool for Peek {
    type Args = Nothing;
    type Output = Peeked;
    type Job = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("peek", "Peek", "Answers a view.").app_only()
    }

    fn prepare(&self, _: Nothing, _: &Namespace) -> Result<Prepared<()>, CallError> {
        let (needs, job) = (Vec::new(), ());
        Ok(Prepared { needs, job })
    }

    fn read(&self, (): &(), _: &ReadPermit) -> Result<Reply, Interrupt> {
        Ok(Reply::text("peeked", Peeked {}))
    }
}

/// A tool with a page of its own.
struct Shows;

impl ReadTool for Shows {
    type Args = Nothing;
    type Output = Peeked;
    type Job = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("shows", "Show", "Shows a page.").page("ui://own/page")
    }

    fn prepare(&self, _: Nothing, _: &Namespace) -> Result<Prepared<()>, CallError> {
        Peek.prepare(Nothing {}, &Namespace::default())
    }

    fn read(&self, (): &(), permit: &ReadPermit) -> Result<Reply, Interrupt> {
        Peek.read(&(), permit)
    }
}

fn tools() -> ToolSet {
    bailiwick_fs::tools().reader(Peek)
}

/// A client of either era with `capabilities`.
struct Either {
    client: Client,
    /// Sent with each request if there was no handshake.
    capabilities: Option<Value>,
}

impl Either {
    async fn new(workspace: &Workspace, era: &str, capabilities: Value) -> Self {
        let mut client = workspace.client(Trust::Host);
        let stateless = era == "stateless";
        if !stateless {
            client.initialize("2025-11-25", capabilities.clone()).await;
        }
        let capabilities = stateless.then_some(capabilities);
        Self {
            client,
            capabilities,
        }
    }

    async fn request(&mut self, method: &str, params: Value) -> Value {
        match &self.capabilities {
            None => self.client.request(method, params).await,
            Some(capabilities) => {
                let mut meta = params.get("_meta").cloned().unwrap_or_else(|| json!({}));
                meta["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
                self.client.request_stateless(method, params, meta).await
            }
        }
    }
}

fn named<'a>(answer: &'a Value, list: &str, key: &str, name: &str) -> Option<&'a Value> {
    let mut items = answer["result"][list].as_array().unwrap().iter();
    items.find(|item| item[key] == name)
}

#[tokio::test]
async fn tools_name_views_only_for_clients_with_views() {
    let workspace = Workspace::with(tools);
    for era in ["handshake", "stateless"] {
        let mut plain = Either::new(&workspace, era, json!({})).await;
        let listed = plain.request("tools/list", json!({})).await;
        assert!(!listed.to_string().contains(r#""ui""#), "{listed}");
        assert!(named(&listed, "tools", "name", "peek").is_none());
        let refused = plain.request("tools/call", json!({"name": "peek"})).await;
        let unknown = plain.request("tools/call", json!({"name": "poke"})).await;
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
        assert_eq!(
            refused["error"].to_string().replace("peek", "poke"),
            unknown["error"].to_string()
        );

        let mut shows = Either::new(&workspace, era, showing()).await;
        let marked = shows.request("tools/list", json!({})).await;
        let ui = |name| &named(&marked, "tools", "name", name).unwrap()["_meta"]["ui"];
        assert_eq!(
            *ui("edit_file"),
            json!({"visibility": ["model"], "resourceUri": "ui://bailiwick/review"})
        );
        assert_eq!(*ui("read_file"), json!({"visibility": ["model", "app"]}));
        let browser =
            json!({"visibility": ["model", "app"], "resourceUri": "ui://bailiwick/files"});
        assert_eq!(*ui("list_roots"), browser);
        assert_eq!(*ui("list_directory"), browser);
        assert_eq!(*ui("peek"), json!({"visibility": ["app"]}));
        let peeked = shows.request("tools/call", json!({"name": "peek"})).await;
        assert_eq!(peeked["result"]["content"][0]["text"], "peeked", "{peeked}");
        let policy = json!({"_meta": {"policy": {"tools": ["read_file"]}}});
        let mut narrowed = Either::new(&workspace, "handshake", showing()).await;
        let left = narrowed.request("tools/list", policy).await;
        assert_eq!(left["result"]["tools"].as_array().unwrap().len(), 1);
        // Except for its view, each tool is the same.
        for tool in listed["result"]["tools"].as_array().unwrap() {
            let mut other = named(&marked, "tools", "name", tool["name"].as_str().unwrap())
                .unwrap()
                .clone();
            other["_meta"].as_object_mut().unwrap().remove("ui");
            assert_eq!(other, *tool);
        }
    }
}

#[tokio::test]
async fn file_browser_is_linked_only_if_files_are_served() {
    let workspace = Workspace::new();
    let (_runtime, worker) = workspace.worker().await;
    let files = FileTools {
        read: "read_file",
        list: "list_directory",
    };
    let without = Gateway::worker(&worker, info());
    let with = Gateway::worker(&worker, info()).files(files);
    for (gateway, linked) in [(without, false), (with, true)] {
        let mut client = Client::new(&gateway.build());
        client.initialize("2025-11-25", showing()).await;
        let tools = client.request("tools/list", json!({})).await;
        let pages = client.request("resources/list", json!({})).await;
        for name in ["list_roots", "list_directory"] {
            let tool = named(&tools, "tools", "name", name).unwrap();
            assert_eq!(tool["_meta"]["ui"]["resourceUri"].is_string(), linked);
        }
        let page = named(&pages, "resources", "uri", "ui://bailiwick/files");
        assert_eq!(page.is_some(), linked);
    }
}

#[tokio::test]
async fn style_sheets_are_served_as_css_to_clients_with_views() {
    let workspace = Workspace::new();
    for era in ["handshake", "stateless"] {
        let mut plain = Either::new(&workspace, era, json!({})).await;
        let mut shows = Either::new(&workspace, era, showing()).await;
        let unlisted = plain.request("resources/list", json!({})).await;
        let listed = shows.request("resources/list", json!({})).await;
        for (uri, rule) in [
            ("ui://static/tokens.css", "--surface:"),
            ("ui://static/utilities.css", ".badge{"),
        ] {
            assert!(named(&unlisted, "resources", "uri", uri).is_none());
            let sheet = named(&listed, "resources", "uri", uri).unwrap();
            assert_eq!(sheet["mimeType"], "text/css");
            let read = shows.request("resources/read", json!({"uri": uri})).await;
            let contents = &read["result"]["contents"][0];
            assert_eq!(contents["mimeType"], "text/css", "{read}");
            assert!(contents["text"].as_str().unwrap().contains(rule));
        }
        let absent = json!({"uri": "ui://static/absent.css"});
        let absent = shows.request("resources/read", absent).await;
        assert!(absent["error"].is_object(), "{absent}");
    }
}

#[tokio::test]
async fn views_are_listed_for_clients_with_views_without_origins() {
    let workspace = Workspace::new();
    let mut plain = Either::new(&workspace, "handshake", json!({})).await;
    let listed = plain.request("resources/list", json!({})).await;
    assert!(!listed.to_string().contains("ui://"), "{listed}");
    let mut shows = Either::new(&workspace, "handshake", showing()).await;
    let listed = shows.request("resources/list", json!({})).await;
    for (uri, kind) in [
        ("ui://bailiwick/review", Value::Null),
        ("ui://bailiwick/files", "application".into()),
    ] {
        let page = named(&listed, "resources", "uri", uri).unwrap();
        assert_eq!(page["mimeType"], MIME);
        assert_eq!(page["annotations"]["type"], kind);
        assert_eq!(page["annotations"]["audience"], json!(["user"]));
        assert_eq!(page["_meta"]["ui"], json!({"prefersBorder": true}));
        let read = shows.request("resources/read", json!({"uri": uri})).await;
        let contents = &read["result"]["contents"][0];
        assert_eq!(
            (&contents["uri"], &contents["mimeType"]),
            (&uri.into(), &MIME.into())
        );
        assert!(
            contents["text"]
                .as_str()
                .unwrap()
                .starts_with("<!doctype html>")
        );
        assert_eq!(contents["_meta"]["ui"], json!({"prefersBorder": true}));
    }
}

const EDIT: &str =
    r#"{"path": "/r/a.txt", "edits": [{"old_text": "two", "new_text": "2 </script><img src=x>"}]}"#;

/// The blocks of an answer that link to artifacts.
fn link_blocks(answer: &Value) -> Vec<&Value> {
    let blocks = answer["result"]["content"].as_array().unwrap().iter();
    blocks
        .filter(|block| block["type"] == "resource_link")
        .collect()
}

/// The names and addresses of an answer's artifacts, the review first.
fn artifacts(answer: &Value) -> Vec<(String, String)> {
    let blocks = link_blocks(answer);
    let metas = blocks.iter().map(|block| &block["_meta"]);
    let listed = metas
        .chain([&answer["result"]["_meta"]])
        .filter_map(|meta| meta["artifacts"].as_array());
    blocks
        .iter()
        .copied()
        .chain(listed.flatten())
        .map(|made| {
            let text = |key: &str| made[key].as_str().unwrap().to_owned();
            (text("name"), text("uri"))
        })
        .collect()
}

async fn read(client: &mut Either, uri: &str) -> Value {
    let answer = client.request("resources/read", json!({"uri": uri})).await;
    assert!(answer["result"].is_object(), "{answer}");
    let text = answer["result"]["contents"][0]["text"].as_str().unwrap();
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

#[tokio::test]
async fn review_is_linked_only_for_clients_that_show_it() {
    for (capabilities, meta, linked) in [
        (json!({}), json!({"preview": true}), 0),
        (json!({}), json!({}), 0),
        (showing(), json!({"preview": true}), 1),
        (showing(), json!({}), 1),
    ] {
        let workspace = Workspace::new();
        let mut client = Either::new(&workspace, "handshake", capabilities).await;
        let edit: Value = serde_json::from_str(EDIT).unwrap();
        let call = json!({"name": "edit_file", "arguments": edit, "_meta": meta});
        let answer = client.request("tools/call", call).await;
        let blocks = link_blocks(&answer);
        assert_eq!(blocks.len(), linked, "{answer}");
        for block in blocks {
            assert_eq!(block["annotations"]["audience"], json!(["user"]));
            assert_eq!(block["title"], "Review of edit_file");
        }
        let links = artifacts(&answer);
        assert_eq!(
            links
                .iter()
                .map(|(name, _)| name.as_str())
                .collect::<Vec<_>>(),
            ["review", "diff", "json"]
        );
        let uri = &links[0].1;
        let answer = client.request("resources/read", json!({"uri": uri})).await;
        let contents = &answer["result"]["contents"][0];
        assert_eq!(contents["mimeType"], MIME);
        assert_eq!(contents["_meta"]["ui"], json!({"prefersBorder": true}));
        let page = contents["text"].as_str().unwrap();
        assert!(
            page.starts_with("<!doctype html>") && !page.contains("<img"),
            "{page}"
        );
        let data = read(&mut client, &format!("{uri}.rows")).await;
        assert_eq!(data["uri"], *uri);
        assert_eq!(data["preview"], meta["preview"] == true);
        let rows = read(&mut client, &format!("{uri}.rows?change=0&from=2")).await;
        assert_eq!(rows["rows"][0], data["changes"][0]["rows"][2]);
        let bad = json!({"uri": format!("{uri}.rows?change=7&from=0")});
        let refused = client.request("resources/read", bad).await;
        assert!(refused["error"].is_object(), "{refused}");
    }
}

#[tokio::test]
async fn review_says_whether_its_files_have_changed() {
    let workspace = Workspace::new();
    let mut client = Either::new(&workspace, "handshake", showing()).await;
    let edit: Value = serde_json::from_str(EDIT).unwrap();
    let mut make = async |tool: &str, arguments: &Value, preview: bool| {
        let meta = if preview {
            json!({"preview": true})
        } else {
            json!({})
        };
        let call = json!({"name": tool, "arguments": arguments, "_meta": meta});
        let answer = client.request("tools/call", call).await;
        artifacts(&answer)[0].1.clone()
    };
    let create = json!({"path": "/r/new", "content": "x"});
    let previewed = make("edit_file", &edit, true).await;
    let created = make("write_file", &create, true).await;
    let state = async |client: &mut Either, uri: &str| {
        read(client, &format!("{uri}.state")).await["changes"].clone()
    };
    assert_eq!(state(&mut client, &previewed).await, json!(["same"]));
    assert_eq!(state(&mut client, &created).await, json!(["same"]));
    std::fs::write(workspace.path("r/a.txt"), "another\n").unwrap();
    std::fs::write(workspace.path("r/new"), "y").unwrap();
    assert_eq!(state(&mut client, &previewed).await, json!(["changed"]));
    assert_eq!(state(&mut client, &created).await, json!(["changed"]));
    std::fs::write(workspace.path("r/a.txt"), "one\ntwo\nthree\n").unwrap();
    let mut make = async |tool: &str, arguments: &Value| {
        let call = json!({"name": tool, "arguments": arguments});
        artifacts(&client.request("tools/call", call).await)[0]
            .1
            .clone()
    };
    let done = make("edit_file", &edit).await;
    let moved = make("move", &json!({"from": "/r/a.txt", "to": "/r/b.txt"})).await;
    assert_eq!(state(&mut client, &moved).await, json!(["same"]));
    assert_eq!(state(&mut client, &done).await, json!(["changed"]));
    let directory = json!({"name": "make_directory", "arguments": {"path": "/r/dir"}, "_meta": {"preview": true}});
    let made = artifacts(&client.request("tools/call", directory).await)[0]
        .1
        .clone();
    assert_eq!(state(&mut client, &made).await, json!(["same"]));
    let mut other = Either::new(&workspace, "handshake", showing()).await;
    let stolen = json!({"uri": format!("{previewed}.state")});
    assert!(other.request("resources/read", stolen).await["error"].is_object());
}

async fn tool(client: &mut Either, name: &str, arguments: Value) -> Value {
    let call = json!({"name": name, "arguments": arguments});
    client.request("tools/call", call).await
}

/// Neither of the tools for views reads or runs anything else.
async fn refused_to_views(client: &mut Either, uri: &str, edit: &Value) {
    for (name, arguments, code) in [
        (
            "review_rows",
            json!({"uri": "file:///r/a.txt"}),
            "NOT_FOUND",
        ),
        ("review_rows", json!({"uri": uri}), "NOT_FOUND"),
        ("review_rows", json!({}), "INVALID_ARGUMENTS"),
        (
            "preview_call",
            json!({"tool": "read_file", "arguments": {"path": "/r/a.txt"}}),
            "INVALID_ARGUMENTS",
        ),
        (
            "preview_call",
            json!({"tool": "edit_file", "arguments": edit, "preview": false}),
            "INVALID_ARGUMENTS",
        ),
        (
            "preview_call",
            json!({"tool": "write_file", "arguments": {"path": "/r/secret/key", "content": "x"}}),
            "PERMISSION_DENIED",
        ),
    ] {
        let refused = tool(client, name, arguments.clone()).await;
        let found = &refused["result"]["structuredContent"]["code"];
        assert_eq!(found, code, "{name} {arguments}: {refused}");
    }
    let unknown = tool(client, "preview_call", json!({"tool": "nothing"})).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
}

#[tokio::test]
async fn views_can_preview_and_read_reviews_without_changes() {
    let workspace = Workspace::new();
    for era in ["handshake", "stateless"] {
        let mut shows = Either::new(&workspace, era, showing()).await;
        let listed = shows.request("tools/list", json!({})).await;
        for name in ["review_rows", "preview_call"] {
            let tool = named(&listed, "tools", "name", name).unwrap();
            assert_eq!(tool["_meta"]["ui"], json!({"visibility": ["app"]}));
            assert_eq!(tool["annotations"]["readOnlyHint"], true);
        }
        let edit: Value = serde_json::from_str(EDIT).unwrap();
        let call = json!({"tool": "edit_file", "arguments": edit});
        let answer = tool(&mut shows, "preview_call", call.clone()).await;
        let review = &answer["result"]["structuredContent"]["review"];
        let uri = review.as_str().unwrap_or_else(|| panic!("{answer}"));
        assert_eq!(workspace.read("r/a.txt"), "one\ntwo\nthree\n");
        let rows = json!({"uri": format!("{uri}.rows")});
        let data = tool(&mut shows, "review_rows", rows).await;
        let data = &data["result"]["structuredContent"];
        assert_eq!((&data["uri"], &data["preview"]), (review, &json!(true)));
        let preview = &answer["result"]["structuredContent"];
        assert_eq!(preview["output"]["path"], "/r/a.txt", "{preview}");
        assert!(preview["preview_token"].is_string(), "{preview}");
        let state = json!({"uri": format!("{uri}.state")});
        let state = tool(&mut shows, "review_rows", state).await;
        assert_eq!(
            state["result"]["structuredContent"],
            json!({"changes": ["same"]})
        );

        let narrowed = json!({
            "name": "review_rows", "arguments": {"uri": format!("{uri}.rows")},
            "_meta": {"policy": {"deny": ["a.txt"]}},
        });
        let narrowed = shows.request("tools/call", narrowed).await;
        let code = &narrowed["result"]["structuredContent"]["code"];
        assert_eq!(code, "NOT_FOUND", "{narrowed}");
        refused_to_views(&mut shows, uri, &edit).await;
        assert_eq!(workspace.read("r/secret/key"), "hidden");
        let mut plain = Either::new(&workspace, era, json!({})).await;
        let listed = plain.request("tools/list", json!({})).await;
        assert!(named(&listed, "tools", "name", "review_rows").is_none());
        let refused = tool(&mut plain, "preview_call", call).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
}

/// What a view sends to have a call made: [`EDIT`], of this preview.
fn commit(token: &Value) -> Value {
    let edit: Value = serde_json::from_str(EDIT).unwrap();
    let arguments = json!({"tool": "edit_file", "arguments": edit, "preview_token": token});
    json!({"name": "commit_call", "arguments": arguments})
}

async fn previewed(client: &mut Either) -> Value {
    let edit: Value = serde_json::from_str(EDIT).unwrap();
    let call = json!({"tool": "edit_file", "arguments": edit});
    let answer = tool(client, "preview_call", call).await;
    answer["result"]["structuredContent"]["preview_token"].clone()
}

#[tokio::test]
async fn view_commit_needs_approval_even_if_the_model_does_not() {
    for era in ["handshake", "stateless"] {
        let workspace = Workspace::new();
        let mut shows = Either::new(&workspace, era, showing()).await;
        let listed = shows.request("tools/list", json!({})).await;
        let tool = named(&listed, "tools", "name", "commit_call").unwrap();
        assert_eq!(tool["_meta"]["ui"], json!({"visibility": ["app"]}));
        assert_eq!(tool["annotations"]["readOnlyHint"], false);
        let token = previewed(&mut shows).await;
        let mut call = commit(&token);
        let refused = shows.request("tools/call", call.clone()).await;
        let code = &refused["result"]["structuredContent"]["code"];
        assert_eq!(code, "SCOPE_REQUIRED", "{refused}");
        assert_eq!(workspace.read("r/a.txt"), "one\ntwo\nthree\n");
        let requested = &refused["result"]["_meta"]["requested_scopes"];
        assert_eq!(*requested, json!(["write:file:/r/a.txt"]));
        call["_meta"] = json!({"granted_scopes": requested});
        let done = shows.request("tools/call", call.clone()).await;
        assert_eq!(
            done["result"]["structuredContent"]["path"], "/r/a.txt",
            "{done}"
        );
        let changed = workspace.read("r/a.txt");
        assert_ne!(changed, "one\ntwo\nthree\n");
        // It was that preview's and no other's.
        let stale = shows.request("tools/call", call).await;
        assert_eq!(stale["result"]["isError"], true, "{stale}");
        assert_eq!(workspace.read("r/a.txt"), changed);
    }
}

#[tokio::test]
async fn view_can_commit_only_mutating_calls() {
    let workspace = Workspace::new();
    let mut shows = Either::new(&workspace, "handshake", showing()).await;
    let reads = json!({"tool": "read_file", "arguments": {"path": "/r/a.txt"}});
    let hidden = json!({"path": "/r/secret/key", "content": "x", "mode": "overwrite"});
    let edit = json!({"path": "/r/b.txt", "content": "x"});
    for (arguments, code) in [
        (reads, "INVALID_ARGUMENTS"),
        (json!({}), "INVALID_ARGUMENTS"),
        (
            json!({"tool": "write_file", "arguments": hidden}),
            "PERMISSION_DENIED",
        ),
        (
            json!({"tool": "write_file", "arguments": edit, "preview_token": "x"}),
            "INVALID_ARGUMENTS",
        ),
        (
            json!({"tool": "write_file", "arguments": edit, "confirm": false}),
            "INVALID_ARGUMENTS",
        ),
        (
            json!({"tool": "write_file", "arguments": edit}),
            "SCOPE_REQUIRED",
        ),
    ] {
        let refused = tool(&mut shows, "commit_call", arguments.clone()).await;
        let found = &refused["result"]["structuredContent"]["code"];
        assert_eq!(found, code, "{arguments}: {refused}");
    }
    for name in ["nothing", "commit_call", "preview_call"] {
        let refused = tool(&mut shows, "commit_call", json!({"tool": name})).await;
        assert_eq!(refused["error"]["code"], -32602, "{name}: {refused}");
    }
    assert!(!workspace.path("r/b.txt").exists());
    let mut plain = Either::new(&workspace, "handshake", json!({})).await;
    let edit = json!({"tool": "write_file", "arguments": {"path": "/r/b.txt", "content": "x"}});
    let refused = tool(&mut plain, "commit_call", edit).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    // An agent can declare any capabilities: its calls need approval like those of a view, and its grants are ignored.
    let mut agent = workspace.client(Trust::Agent);
    agent.initialize("2025-11-25", showing()).await;
    let mut call = commit(&Value::Null);
    call["_meta"] = json!({"granted_scopes": ["write:file:/r/a.txt"]});
    let refused = agent.request("tools/call", call).await;
    assert_eq!(
        refused["result"]["structuredContent"]["code"],
        "SCOPE_REQUIRED"
    );
    assert_eq!(workspace.read("r/a.txt"), "one\ntwo\nthree\n");
}

#[tokio::test]
async fn host_page_is_listed_read_and_named_by_its_tool() {
    let workspace = Workspace::with(|| bailiwick_fs::tools().reader(Shows));
    let page = bailiwick_mcp::gateway::AppPage {
        uri: "ui://own/page".into(),
        name: "own".into(),
        title: "Own".into(),
        description: "A page of its own".into(),
        html: "<!doctype html><title>own</title>".into(),
        application: true,
    };
    let mut taken = page.clone();
    taken.uri = "ui://bailiwick/review".into();
    let gateway = workspace
        .gateway(Trust::Host)
        .page(page)
        .page(taken)
        .build();
    let mut shows = Client::new(&gateway);
    shows.initialize("2025-11-25", showing()).await;
    let tools = shows.request("tools/list", json!({})).await;
    let ui = &named(&tools, "tools", "name", "shows").unwrap()["_meta"]["ui"];
    let expected = json!({"visibility": ["model", "app"], "resourceUri": "ui://own/page"});
    assert_eq!(*ui, expected);
    let listed = shows.request("resources/list", json!({})).await;
    let own = named(&listed, "resources", "uri", "ui://own/page").unwrap();
    assert_eq!(
        (&own["mimeType"], &own["title"]),
        (&json!(MIME), &json!("Own"))
    );
    assert_eq!(own["annotations"]["type"], "application");
    assert_eq!(own["_meta"]["ui"], json!({"prefersBorder": true}));
    let mut read = async |uri: &str| {
        let read = shows.request("resources/read", json!({"uri": uri})).await;
        read["result"]["contents"][0].clone()
    };
    let own = read("ui://own/page").await;
    assert_eq!(own["text"], "<!doctype html><title>own</title>");
    assert_eq!(
        (&own["mimeType"], &own["_meta"]["ui"]),
        (&json!(MIME), &json!({"prefersBorder": true}))
    );
    // Ours cannot be replaced.
    let ours = read("ui://bailiwick/review").await;
    assert_ne!(ours["text"], own["text"]);
    let mut plain = Client::new(&gateway);
    plain.initialize("2025-11-25", json!({})).await;
    let listed = plain.request("resources/list", json!({})).await;
    assert!(!listed.to_string().contains("ui://"), "{listed}");
}

#[tokio::test]
async fn result_size_for_models_does_not_depend_on_the_change() {
    let workspace = Workspace::new();
    let text = "before\n".repeat(5_000);
    std::fs::write(workspace.path("r/long"), &text).unwrap();
    let mut client = Either::new(&workspace, "handshake", showing()).await;
    let mut shown = async |path: &str, content: &str| {
        let write = json!({"path": path, "content": content, "mode": "overwrite"});
        let answer = tool(&mut client, "write_file", write).await;
        assert_ne!(answer["result"]["isError"], true, "{answer}");
        let blocks = answer["result"]["content"].as_array().unwrap().clone();
        assert!(!answer.to_string().contains("before"), "{answer}");
        let texts: Vec<Value> = blocks
            .into_iter()
            .filter(|block| block["type"] == "text")
            .collect();
        json!([texts, answer["result"]["structuredContent"]])
            .to_string()
            .len()
    };
    let one = shown("/r/a.txt", "one\n2\nthree\n").await;
    let many = shown("/r/long", &"after!\n".repeat(5_000)).await;
    // Numbers may have more digits.
    assert!(many.abs_diff(one) < 40, "{one} {many}");
}
