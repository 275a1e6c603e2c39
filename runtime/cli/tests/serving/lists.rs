//! Tests of lists: tools, resources, prompts and completions.

use bailiwick::config::Namespace;
use bailiwick::tool::{Interrupt, Prepared, ReadPermit};
use bailiwick::{CallError, ReadTool, Reply, ToolSet, ToolSpec};
use bailiwick_mcp::gateway::Trust;
use bailiwick_test_support::client::Client;
use bailiwick_test_support::workspace::Workspace;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

fn names<'a>(answer: &'a Value, list: &str, key: &str) -> Vec<&'a str> {
    let items = answer["result"][list]
        .as_array()
        .unwrap_or_else(|| panic!("{answer}"));
    items
        .iter()
        .map(|item| item[key].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn tools_have_extensions_for_raw_and_typed_clients() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Host);
    client.initialize("2025-11-25", json!({})).await;
    let answer = client.request("tools/list", json!({})).await;
    let tools = answer["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 13);
    for tool in tools {
        let annotations = &tool["annotations"];
        for key in [
            "readOnlyHint",
            "destructiveHint",
            "idempotentHint",
            "openWorldHint",
        ] {
            assert!(annotations[key].is_boolean(), "{key}: {tool}");
        }
        assert_eq!(
            annotations["intentTemplate"],
            tool["_meta"]["intentTemplate"]
        );
        assert!(annotations["intentTemplate"].is_string(), "{tool}");
        assert_eq!(
            tool["_meta"]["scopes"].is_array(),
            tool["name"] != "list_roots",
            "{tool}"
        );
        assert!(tool["_meta"]["dashdash"].is_null(), "{tool}");
        let mutates = annotations["readOnlyHint"] == false;
        assert_eq!(annotations.get("preview").is_some(), mutates, "{tool}");
        assert_eq!(
            (&tool["inputSchema"]["type"], &tool["outputSchema"]["type"]),
            (&json!("object"), &json!("object"))
        );
    }
    let narrowed = client
        .request(
            "tools/list",
            json!({"_meta": {"policy": {"tools": ["read_file"]}}}),
        )
        .await;
    assert_eq!(names(&narrowed, "tools", "name"), ["read_file"]);
    let bad = client.request("tools/list", json!({"cursor": "x"})).await;
    assert_eq!(bad["error"]["code"], -32602);
}

/// Keywords that converters of model providers drop or refuse, and lists of types, wherever a schema stands.
fn not_plain(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(node) => {
            for (key, inner) in node {
                if let ("properties" | "$defs", Value::Object(members)) = (key.as_str(), inner) {
                    members.values().for_each(|inner| not_plain(inner, found));
                    continue;
                }
                let refused = [
                    "$ref", "$schema", "$defs", "oneOf", "anyOf", "allOf", "const", "title",
                ];
                if refused.contains(&key.as_str()) || key == "type" && inner.is_array() {
                    found.push(format!("{key}: {inner}"));
                }
                not_plain(inner, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| not_plain(item, found)),
        _ => {}
    }
}

async fn listed(workspace: &Workspace) -> Value {
    let mut client = workspace.client(Trust::Host);
    client.initialize("2025-11-25", json!({})).await;
    client.request("tools/list", json!({})).await
}

#[tokio::test]
async fn model_sees_at_most_8_kb_of_the_list_of_tools() {
    let answer = listed(&Workspace::new()).await;
    let tools = answer["result"]["tools"].as_array().unwrap();
    let shown = tools.iter().map(|tool| {
        let [name, description, schema] =
            ["name", "description", "inputSchema"].map(|key| &tool[key]);
        json!({"name": name, "description": description, "inputSchema": schema})
    });
    let bytes = Value::from_iter(shown).to_string().len();
    assert!((4_000..=8_000).contains(&bytes), "{bytes}");
}

#[tokio::test]
async fn listed_schemas_are_plain() {
    let answer = listed(&Workspace::new()).await;
    for tool in answer["result"]["tools"].as_array().unwrap() {
        let mut found = Vec::new();
        not_plain(&tool["inputSchema"], &mut found);
        not_plain(&tool["outputSchema"], &mut found);
        assert_eq!(found, [""; 0], "{}", tool["name"]);
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool}");
    }
}

/// A tool of a host whose arguments nest without end.
struct Draw;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Shape {
    Dot,
    Group { shapes: Vec<Shape> },
}

impl Shape {
    fn dots(&self) -> usize {
        match self {
            Self::Dot => 1,
            Self::Group { shapes } => shapes.iter().map(Self::dots).sum(),
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Drawing {
    shape: Shape,
}

impl ReadTool for Draw {
    type Args = Drawing;
    type Output = Value;
    type Job = Shape;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("draw", "Draw", "Draws a shape.")
    }

    fn prepare(&self, args: Drawing, _: &Namespace) -> Result<Prepared<Shape>, CallError> {
        let (needs, job) = (Vec::new(), args.shape);
        Ok(Prepared { needs, job })
    }

    fn read(&self, shape: &Shape, _: &ReadPermit) -> Result<Reply, Interrupt> {
        let dots = shape.dots();
        Ok(Reply::text(format!("{dots} dots"), json!({"dots": dots})))
    }
}

#[tokio::test]
async fn own_tool_keeps_the_schema_of_its_types() {
    let workspace = Workspace::with(|| ToolSet::new().reader(Draw));
    let answer = listed(&workspace).await;
    let tool = &answer["result"]["tools"][0];
    assert_eq!(
        tool.get("outputSchema"),
        None,
        "nothing is known of its output"
    );
    let schema = tool["inputSchema"].to_string();
    assert!(
        schema.contains("$ref") && schema.contains("oneOf"),
        "{schema}"
    );
    let mut client = workspace.client(Trust::Host);
    client.initialize("2025-11-25", json!({})).await;
    let shape = json!({"kind": "group", "shapes": [{"kind": "dot"}]});
    let drawn = client
        .call("draw", json!({"shape": shape}), json!({}))
        .await;
    assert_eq!(drawn["result"]["structuredContent"]["dots"], 1, "{drawn}");
}

#[tokio::test]
async fn fully_denied_tools_are_not_listed() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Host);
    client.initialize("2025-11-25", json!({})).await;
    let policy = json!({"policy": {"read_only": true}});
    let narrowed = client.request("tools/list", json!({"_meta": policy})).await;
    let reading = [
        "find",
        "grep",
        "list_directory",
        "list_roots",
        "read_file",
        "stat",
    ];
    assert_eq!(names(&narrowed, "tools", "name"), reading);
    let denied = client
        .call("delete", json!({"path": "/r/a.txt"}), policy)
        .await;
    assert_eq!(
        denied["result"]["structuredContent"]["code"], "PERMISSION_DENIED",
        "{denied}"
    );
    let all = client.request("tools/list", json!({})).await;
    assert!(names(&all, "tools", "name").contains(&"delete"), "{all}");
}

/// The most bytes of the whole list of tools, extension data and output schemas included.
const MAX_LISTED: usize = 20_000;

#[tokio::test]
async fn list_of_tools_has_at_most_20_kb() {
    let answer = listed(&Workspace::new()).await.to_string();
    assert!(answer.len() <= MAX_LISTED, "{}", answer.len());
}

#[tokio::test]
async fn denied_file_resources_look_missing() {
    let workspace = Workspace::new();
    std::fs::write(workspace.path("r/bytes"), b"a\0b").unwrap();
    std::fs::write(workspace.path("r/latin"), b"caf\xe9").unwrap();
    std::fs::write(workspace.path("r/long"), "x\n".repeat(5_000)).unwrap();
    for version in ["2025-06-18", "modern"] {
        let mut client = workspace.client(Trust::Host);
        if version != "modern" {
            client.initialize(version, json!({})).await;
        }
        let mut read = async |uri: &str| {
            let params = json!({"uri": uri});
            if version == "modern" {
                client
                    .request_stateless("resources/read", params, json!({}))
                    .await
            } else {
                client.request("resources/read", params).await
            }
        };
        let text = read("file:///r/a.txt").await;
        assert_eq!(
            text["result"]["contents"][0]["text"], "one\ntwo\nthree\n",
            "{text}"
        );
        let bytes = read("file:///r/bytes").await;
        assert_eq!(bytes["result"]["contents"][0]["blob"], "YQBi", "{bytes}");
        let latin = read("file:///r/latin").await;
        assert_eq!(
            latin["result"]["contents"][0]["blob"], "Y2Fm6Q==",
            "{latin}"
        );
        let long = read("file:///r/long").await;
        let text = long["result"]["contents"][0]["text"].as_str().unwrap();
        assert_eq!(text.len(), 10_000);
        let listing = read("file:///r").await;
        assert_eq!(
            listing["result"]["contents"][0]["mimeType"], "inode/directory",
            "{listing}"
        );
        let mut absent = read("file:///r/none").await;
        let mut hidden = read("file:///r/secret/key").await;
        for error in [&mut absent, &mut hidden] {
            assert_eq!(
                error["error"]["data"]["uri"]
                    .take()
                    .as_str()
                    .map(|uri| uri.starts_with("file:///r")),
                Some(true)
            );
            error["id"].take();
        }
        assert_eq!(absent, hidden);
        let expected = if version == "modern" { -32602 } else { -32002 };
        assert_eq!(absent["error"]["code"], expected);
        for bad in ["ui://edit_file/0123", "https://x/", "file://other/r/a.txt"] {
            assert_eq!(read(bad).await["error"]["code"], expected, "{bad}");
        }
    }
}

#[tokio::test]
async fn artifacts_are_listed_for_their_creator() {
    let workspace = Workspace::new();
    let gateway = workspace.gateway(Trust::Host).build();
    let mut one = Client::new(&gateway);
    let mut other = Client::new(&gateway);
    one.initialize("2025-11-25", json!({})).await;
    other.initialize("2025-11-25", json!({})).await;
    for name in 0..60 {
        one.call(
            "write_file",
            json!({"path": format!("/r/{name}"), "content": "x"}),
            json!({}),
        )
        .await;
    }
    let (mut seen, mut cursor) = (Vec::new(), json!(null));
    loop {
        let params = if cursor.is_null() {
            json!({})
        } else {
            json!({"cursor": cursor})
        };
        let page = one.request("resources/list", params).await;
        seen.extend(
            names(&page, "resources", "uri")
                .iter()
                .map(ToString::to_string),
        );
        cursor = page["result"]["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    seen.retain(|uri| uri.starts_with("ui://"));
    assert!(seen.len() >= 60, "{}", seen.len());
    let theirs = other.request("resources/list", json!({})).await;
    assert_eq!(names(&theirs, "resources", "uri"), ["file:///r"]);
    let stolen = other
        .request("resources/read", json!({"uri": seen[0]}))
        .await;
    assert!(stolen["error"].is_object(), "{stolen}");
}

#[tokio::test]
async fn completions_have_existing_and_no_denied_paths() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Host);
    client.initialize("2025-11-25", json!({})).await;
    let mut complete = async |value: &str| {
        let params = json!({
            "ref": {"type": "ref/resource", "uri": "file:///{+path}"},
            "argument": {"name": "path", "value": value},
        });
        client.request("completion/complete", params).await["result"]["completion"]["values"]
            .clone()
    };
    assert_eq!(complete("r/s").await, json!(["r/src"]));
    assert_eq!(complete("r/secret/").await, json!([]));
    assert_eq!(complete("r/a").await, json!(["r/a.txt"]));
}

#[tokio::test]
async fn prompts_are_listed_and_need_their_arguments() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Host);
    client.initialize("2025-11-25", json!({})).await;
    let listed = client.request("prompts/list", json!({})).await;
    assert_eq!(names(&listed, "prompts", "name"), ["review-changes"]);
    let got = client
        .request(
            "prompts/get",
            json!({"name": "review-changes", "arguments": {"path": "/r"}}),
        )
        .await;
    assert_eq!(got["result"]["messages"][0]["role"], "user", "{got}");
    let missing = client
        .request("prompts/get", json!({"name": "review-changes"}))
        .await;
    assert_eq!(missing["error"]["code"], -32602);
}

#[tokio::test]
async fn absent_denied_and_invalid_resources_get_the_same_error() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Host);
    client.initialize("2025-11-25", json!({})).await;
    let mut read = async |uri: &str| client.request("resources/read", json!({"uri": uri})).await;
    let mut answers = Vec::new();
    for uri in [
        "file:///r/none",
        "file:///r/secret/key",
        "file:///r/a.txt/x",
        "file:///r/none/x",
        "file:///etc/passwd/x",
    ] {
        answers.push(read(uri).await["error"].to_string().replace(uri, "URI"));
    }
    assert!(answers[0].contains("-32002"), "{answers:?}");
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "{answers:?}"
    );
    let there = read("file:///r/a.txt").await;
    assert_eq!(there["result"]["contents"][0]["text"], "one\ntwo\nthree\n");
}

#[tokio::test]
async fn narrowed_connection_lists_its_directory() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Agent);
    let configuration = json!({"experimental": {"configuration": {"roots": [{"path": "/r/src"}]}}});
    let initialized = client.initialize("2025-11-25", configuration).await;
    let instructions = initialized["result"]["instructions"].as_str().unwrap();
    assert!(
        instructions
            .contains("Open to you: `/r/src` (read and write); relative paths begin in `/r/src`."),
        "{instructions}"
    );
    let listed = client.request("resources/list", json!({})).await;
    let files = names(&listed, "resources", "uri");
    let files = files.into_iter().filter(|uri| uri.starts_with("file:"));
    assert_eq!(files.collect::<Vec<_>>(), ["file:///r/src"]);
    let read = client
        .request("resources/read", json!({"uri": "file:///r/src"}))
        .await;
    let text = read["result"]["contents"][0]["text"].as_str().unwrap();
    assert!(text.contains("lib.rs"), "{text}");
}

#[tokio::test]
async fn connection_to_a_whole_root_lists_the_root() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Agent);
    let initialized = client.initialize("2025-11-25", json!({})).await;
    let instructions = initialized["result"]["instructions"].as_str().unwrap();
    assert!(
        instructions.contains("Open to you: `/r` ("),
        "{instructions}"
    );
    let listed = client.request("resources/list", json!({})).await;
    assert!(names(&listed, "resources", "uri").contains(&"file:///r"));
}
