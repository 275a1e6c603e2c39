//! Clients that show views and clients that do not in, what each of them is told of views out.

use bailiwick::{
    CallError, Halt, Namespace, Prepared, ReadPermit, ReadTool, Reply, ToolSet, ToolSpec, Trust,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{Client, World};

const MIME: &str = "text/html;profile=mcp-app";

/// What a client says of itself that shows views.
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

    fn read(&self, (): &(), _: &ReadPermit) -> Result<Reply, Halt> {
        Ok(Reply::text("peeked", Peeked {}))
    }
}

fn tools() -> ToolSet {
    bailiwick_fs::tools().reader(Peek)
}

/// A client of either era that says `capabilities` of itself.
struct Either {
    client: Client,
    /// What it says with each request, if it had no handshake.
    capabilities: Option<Value>,
}

impl Either {
    async fn new(world: &World, era: &str, capabilities: Value) -> Self {
        let mut client = world.client(Trust::Host);
        let stateless = era == "stateless";
        if !stateless {
            client.greet("2025-11-25", capabilities.clone()).await;
        }
        let capabilities = stateless.then_some(capabilities);
        Self {
            client,
            capabilities,
        }
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        match &self.capabilities {
            None => self.client.ask(method, params).await,
            Some(capabilities) => {
                let meta = json!({"io.modelcontextprotocol/clientCapabilities": capabilities});
                self.client.modern(method, params, meta).await
            }
        }
    }
}

fn named<'a>(answer: &'a Value, list: &str, key: &str, name: &str) -> Option<&'a Value> {
    let mut items = answer["result"][list].as_array().unwrap().iter();
    items.find(|item| item[key] == name)
}

#[tokio::test]
async fn tools_speak_of_views_to_clients_that_show_them_alone() {
    let world = World::with(tools);
    for era in ["handshake", "stateless"] {
        let mut plain = Either::new(&world, era, json!({})).await;
        let told = plain.ask("tools/list", json!({})).await;
        assert!(!told.to_string().contains(r#""ui""#), "{told}");
        assert!(named(&told, "tools", "name", "peek").is_none());
        let refused = plain.ask("tools/call", json!({"name": "peek"})).await;
        let unknown = plain.ask("tools/call", json!({"name": "poke"})).await;
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
        assert_eq!(
            refused["error"].to_string().replace("peek", "poke"),
            unknown["error"].to_string()
        );

        let mut shows = Either::new(&world, era, showing()).await;
        let marked = shows.ask("tools/list", json!({})).await;
        let ui = |name| &named(&marked, "tools", "name", name).unwrap()["_meta"]["ui"];
        assert_eq!(
            *ui("edit_file"),
            json!({"visibility": ["model"], "resourceUri": "ui://bailiwick/review"})
        );
        assert_eq!(*ui("read_file"), json!({"visibility": ["model", "app"]}));
        assert_eq!(*ui("peek"), json!({"visibility": ["app"]}));
        let peeked = shows.ask("tools/call", json!({"name": "peek"})).await;
        assert_eq!(peeked["result"]["content"][0]["text"], "peeked", "{peeked}");
        let policy = json!({"_meta": {"policy": {"tools": ["read_file"]}}});
        let mut narrowed = Either::new(&world, "handshake", showing()).await;
        let left = narrowed.ask("tools/list", policy).await;
        assert_eq!(left["result"]["tools"].as_array().unwrap().len(), 1);
        // But for what it says of views, each tool is the same.
        for tool in told["result"]["tools"].as_array().unwrap() {
            let mut other = named(&marked, "tools", "name", tool["name"].as_str().unwrap())
                .unwrap()
                .clone();
            other["_meta"].as_object_mut().unwrap().remove("ui");
            assert_eq!(other, *tool);
        }
    }
}

#[tokio::test]
async fn pages_are_listed_for_clients_that_show_views_and_name_no_origin() {
    let world = World::new();
    let mut plain = Either::new(&world, "handshake", json!({})).await;
    let told = plain.ask("resources/list", json!({})).await;
    assert!(!told.to_string().contains("ui://"), "{told}");
    let mut shows = Either::new(&world, "handshake", showing()).await;
    let listed = shows.ask("resources/list", json!({})).await;
    for (uri, kind) in [
        ("ui://bailiwick/review", Value::Null),
        ("ui://bailiwick/files", "application".into()),
    ] {
        let page = named(&listed, "resources", "uri", uri).unwrap();
        assert_eq!(page["mimeType"], MIME);
        assert_eq!(page["annotations"]["type"], kind);
        assert_eq!(page["annotations"]["audience"], json!(["user"]));
        assert_eq!(page["_meta"]["ui"], json!({"prefersBorder": true}));
        let read = shows.ask("resources/read", json!({"uri": uri})).await;
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
