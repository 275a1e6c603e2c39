//! Tests of the MCP revisions.

use bailiwick::{Policy, Runtime};
use bailiwick_mcp::gateway::{Backend, BackendError, BackendFactory, Gateway, GatewayInfo, Trust};
use bailiwick_test_support::client::Client;
use bailiwick_test_support::workspace::Workspace;
use serde_json::{Value, json};
use std::pin::Pin;

const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

#[tokio::test]
async fn every_revision_with_a_handshake_is_served() {
    let workspace = Workspace::new();
    for version in LEGACY {
        let mut client = workspace.client(Trust::Host);
        let answer = client.initialize(version, json!({})).await;
        assert_eq!(answer["result"]["protocolVersion"], version, "{answer}");
        let answer = client
            .call("read_file", json!({"path": "a.txt"}), json!({}))
            .await;
        assert_eq!(
            answer["result"]["content"][0]["text"], "one\ntwo\nthree\n",
            "{answer}"
        );
        assert!(answer["result"].get("resultType").is_none(), "{answer}");
        let pong = client.request("ping", json!({})).await;
        assert_eq!(pong["result"], json!({}));
    }
}

#[tokio::test]
async fn unknown_revision_is_answered_with_a_supported_one() {
    let workspace = Workspace::new();
    for asked in ["2099-01-01", "2026-07-28", "1999-01-01"] {
        let mut client = workspace.client(Trust::Host);
        let answer = client.initialize(asked, json!({})).await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{asked}");
    }
}

#[tokio::test]
async fn stateless_requests_need_a_revision() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Host);
    let discovered = client
        .request_stateless("server/discover", json!({}), json!({}))
        .await;
    let result = &discovered["result"];
    assert_eq!(result["supportedVersions"].as_array().unwrap().len(), 5);
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["configSchema"], json!({"type": "object"}));
    assert_eq!(
        result["capabilities"]["configSchema"],
        json!({"type": "object"})
    );
    let read = json!({"name": "read_file", "arguments": {"path": "a.txt"}});
    let answer = client
        .request_stateless("tools/call", read.clone(), json!({}))
        .await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    let bare = client.request("tools/call", read).await;
    assert_eq!(bare["error"]["code"], -32602, "{bare}");
    let old = json!({"io.modelcontextprotocol/protocolVersion": "1999-01-01"});
    let refused = client.request_stateless("tools/list", json!({}), old).await;
    assert_eq!(refused["error"]["code"], -32022, "{refused}");
    let ping = client.request_stateless("ping", json!({}), json!({})).await;
    assert_eq!(ping["error"]["code"], -32601, "{ping}");
}

#[tokio::test]
async fn probe_and_unexpected_notification_do_not_end_the_connection() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Host);
    client
        .request_stateless("server/discover", json!({}), json!({}))
        .await;
    client
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}))
        .await;
    let answer = client
        .request_stateless("tools/list", json!({}), json!({}))
        .await;
    assert!(answer["result"]["tools"].is_array(), "{answer}");
}

#[tokio::test]
async fn raw_client_gets_a_flag_and_typed_client_an_object() {
    let workspace = Workspace::new();
    let answer = workspace
        .client(Trust::Host)
        .initialize("2025-06-18", json!({"experimental": {"policy": {}}}))
        .await;
    assert_eq!(
        answer["result"]["capabilities"]["experimental"]["policy"],
        json!(true)
    );
    let answer = workspace
        .client(Trust::Host)
        .initialize("2025-06-18", json!({}))
        .await;
    assert_eq!(
        answer["result"]["capabilities"]["experimental"]["policy"],
        json!({"enabled": true})
    );
}

#[tokio::test]
async fn client_configuration_applies_to_that_client_only() {
    let workspace = Workspace::new();
    let gateway = workspace.gateway(Trust::Host).build();
    let mut narrow = Client::new(&gateway);
    let configuration = json!({"experimental": {"configuration": {"read_only": true}}});
    let answer = narrow.initialize("2025-11-25", configuration.clone()).await;
    assert!(answer["result"].is_object(), "{answer}");
    let mut wide = Client::new(&gateway);
    wide.initialize("2025-11-25", json!({})).await;
    let write = json!({"path": "/r/new", "content": "x"});
    let refused = narrow.call("write_file", write.clone(), json!({})).await;
    assert_eq!(
        refused["result"]["structuredContent"]["code"], "PERMISSION_DENIED",
        "{refused}"
    );
    let done = wide.call("write_file", write, json!({})).await;
    assert!(
        done["result"]
            .get("isError")
            .is_none_or(|error| error == false),
        "{done}"
    );

    let mut agent = workspace.client(Trust::Agent);
    agent.initialize("2025-11-25", configuration).await;
    let write = json!({"path": "/r/other", "content": "x"});
    let refused = agent.call("write_file", write, json!({})).await;
    assert_eq!(
        refused["result"]["structuredContent"]["code"], "PERMISSION_DENIED",
        "{refused}"
    );
    let mut greedy = workspace.client(Trust::Agent);
    let wider = json!({"experimental": {"configuration": {"roots": [{"path": "/etc"}]}}});
    let answer = greedy.initialize("2025-11-25", wider).await;
    assert_eq!(
        answer["error"]["data"]["kind"], "policy_expansion",
        "{answer}"
    );
    let mut bad = workspace.client(Trust::Host);
    let wrong = json!({"experimental": {"configuration": {"read_only": 7}}});
    let answer = bad.initialize("2025-11-25", wrong).await;
    assert_eq!(answer["error"]["data"]["field"], "/read_only", "{answer}");
    assert_eq!(
        bad.receive_line().await,
        None,
        "a failed handshake leaves no session"
    );
}

/// The `_meta` of a stateless request that is kept to `configuration`.
pub(crate) fn configured(configuration: &Value) -> Value {
    let experimental = json!({"experimental": {"configuration": configuration}});
    json!({ "io.modelcontextprotocol/clientCapabilities": experimental })
}

#[tokio::test]
async fn configuration_of_a_stateless_request_denies_its_write() {
    let workspace = Workspace::new();
    let write = json!({"name": "write_file", "arguments": {"path": "/r/new", "content": "x"}});
    for trust in [Trust::Host, Trust::Agent] {
        let mut client = workspace.client(trust);
        let closed = configured(&json!({"read_only": true}));
        let denied = client
            .request_stateless("tools/call", write.clone(), closed)
            .await;
        let code = &denied["result"]["structuredContent"]["code"];
        assert_eq!(code, "PERMISSION_DENIED", "{denied}");
        assert!(!workspace.path("r/new").exists());
        let done = client
            .request_stateless("tools/call", write.clone(), json!({}))
            .await;
        assert_eq!(done["result"]["isError"], false, "{done}");
        std::fs::remove_file(workspace.path("r/new")).unwrap();
    }
}

/// The text of `list_roots` and whether a file could be read, for requests with this `_meta`.
async fn oriented(client: &mut Client, meta: &Value, file: &str) -> (String, bool) {
    let roots = json!({"name": "list_roots", "arguments": {}});
    let answer = client
        .request_stateless("tools/call", roots, meta.clone())
        .await;
    let text = answer["result"]["content"][0]["text"].to_string();
    let read = json!({"name": "read_file", "arguments": {"path": file}});
    let read = client
        .request_stateless("tools/call", read, meta.clone())
        .await;
    (text, read["result"]["isError"] == false)
}

#[tokio::test]
async fn configuration_of_a_stateless_request_sets_its_working_directory() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Host);
    for (path, begins) in [("/r/src", "/r/src"), ("/r/src/lib.rs", "/r/src")] {
        let meta = configured(&json!({"roots": [{"path": path}]}));
        let (text, is_read) = oriented(&mut client, &meta, "lib.rs").await;
        let expected = format!("relative paths begin in `{begins}`");
        assert!(text.contains(&expected) && is_read, "{text}");
    }
}

#[tokio::test]
async fn call_policy_lists_its_directories_and_keeps_paths() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Host);
    let meta = json!({"policy": {"roots": [{"path": "/r/src"}]}});
    let (text, is_read) = oriented(&mut client, &meta, "src/lib.rs").await;
    assert!(text.contains("relative paths begin in `/r`"), "{text}");
    assert!(text.contains("/r/src") && is_read, "{text}");
    let (_, is_read) = oriented(&mut client, &meta, "a.txt").await;
    assert!(!is_read);
}

/// The addresses that `resources/list` names.
async fn uris(client: &mut Client, meta: Value) -> Vec<String> {
    let listed = client
        .request_stateless("resources/list", json!({}), meta)
        .await;
    let resources = listed["result"]["resources"].as_array();
    let resources = resources.unwrap_or_else(|| panic!("{listed}"));
    let uris = resources.iter().map(|one| one["uri"].as_str().unwrap());
    uris.map(str::to_owned).collect()
}

#[tokio::test]
async fn configuration_of_a_stateless_request_hides_denied_resources() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Agent);
    let write = json!({"name": "write_file", "arguments": {"path": "/r/new", "content": "x"}});
    let done = client
        .request_stateless("tools/call", write, json!({}))
        .await;
    assert_eq!(done["result"]["isError"], false, "{done}");
    let all = uris(&mut client, json!({})).await;
    let artifacts: Vec<_> = all.iter().filter(|uri| uri.starts_with("ui://")).collect();
    assert!(
        all.contains(&"file:///r".to_owned()) && artifacts.len() > 1,
        "{all:?}"
    );
    let open = configured(&json!({"read_only": true}));
    assert_eq!(uris(&mut client, open.clone()).await, all);
    let narrow = configured(&json!({"deny": ["new"]}));
    assert_eq!(uris(&mut client, narrow.clone()).await, ["file:///r"]);
    let closed = configured(&json!({"allow_scopes": ["write:file"]}));
    assert_eq!(uris(&mut client, closed).await, [""; 0]);
    for uri in artifacts {
        let read = json!({ "uri": uri });
        let shown = client
            .request_stateless("resources/read", read.clone(), open.clone())
            .await;
        assert!(shown["result"].is_object(), "{shown}");
        let hidden = client
            .request_stateless("resources/read", read, narrow.clone())
            .await;
        assert!(hidden["error"].is_object(), "{hidden}");
    }
}

#[tokio::test]
async fn stateless_client_may_send_its_configuration_with_every_request() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Agent);
    let path = json!({
        "ref": {"type": "ref/resource", "uri": "file:///{+path}"},
        "argument": {"name": "path", "value": "r/"},
    });
    let prompts = client
        .request_stateless("prompts/list", json!({}), json!({}))
        .await;
    let prompt = &prompts["result"]["prompts"][0];
    let mut wanted = json!({"name": prompt["name"], "arguments": {}});
    for argument in prompt["arguments"].as_array().into_iter().flatten() {
        wanted["arguments"][argument["name"].as_str().unwrap()] = json!("x");
    }
    for (method, params) in [
        ("tools/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": "file:///r/a.txt"})),
        ("prompts/list", json!({})),
        ("prompts/get", wanted),
        ("completion/complete", path.clone()),
    ] {
        let valid = configured(&json!({"read_only": true}));
        let answer = client
            .request_stateless(method, params.clone(), valid)
            .await;
        assert!(answer["result"].is_object(), "{method}: {answer}");
        let invalid = configured(&json!({"read_only": 7}));
        let answer = client.request_stateless(method, params, invalid).await;
        assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
    }
    let names = async |client: &mut Client, meta: Value| {
        let answer = client
            .request_stateless("completion/complete", path.clone(), meta)
            .await;
        answer["result"]["completion"]["values"].clone()
    };
    let all = names(&mut client, json!({})).await;
    assert_eq!(all, json!(["r/a.txt", "r/src"]));
    let fewer = names(&mut client, configured(&json!({"deny": ["a.txt"]}))).await;
    assert_eq!(fewer, json!(["r/src"]));
}

#[tokio::test]
async fn removed_methods_are_unknown_in_the_stateless_revision() {
    let workspace = Workspace::new();
    let mut modern = workspace.client(Trust::Host);
    modern
        .request_stateless("server/discover", json!({}), json!({}))
        .await;
    modern
        .request_stateless("tools/list", json!({}), json!({}))
        .await;
    let mut handshake_client = workspace.client(Trust::Host);
    handshake_client.initialize("2025-11-25", json!({})).await;
    let uri = json!({"uri": "file:///r/a.txt"});
    for (method, fitting) in [
        ("ping", json!({})),
        ("logging/setLevel", json!({"level": "info"})),
        ("resources/subscribe", uri.clone()),
        ("resources/unsubscribe", uri),
    ] {
        for params in [fitting.clone(), json!({"other": true})] {
            let gone = modern.request_stateless(method, params, json!({})).await;
            assert_eq!(gone["error"]["code"], -32601, "{method}: {gone}");
        }
        let there = handshake_client.request(method, fitting).await;
        assert!(there["result"].is_object(), "{method}: {there}");
    }
    let misfit = handshake_client
        .request("logging/setLevel", json!({}))
        .await;
    assert_eq!(misfit["error"]["code"], -32602, "{misfit}");
}

/// Opens nothing, for a reason that is the host's own.
struct Closed(std::path::PathBuf);

impl BackendFactory for Closed {
    fn create(
        &self,
        configuration: Option<Value>,
    ) -> Pin<Box<dyn Future<Output = Result<Backend, BackendError>> + Send + '_>> {
        Box::pin(async move {
            Policy::parse(&configuration.unwrap_or_else(|| json!({})))?;
            let built = Runtime::builder().root("r", &self.0).build().await;
            Err(built.unwrap_err().into())
        })
    }
}

#[tokio::test]
async fn host_errors_are_not_exposed_and_client_errors_are() {
    let workspace = Workspace::new();
    let gateway = |trust| {
        let about = GatewayInfo {
            name: "closed".into(),
            title: "Closed".into(),
            version: "0".into(),
            instructions: String::new(),
        };
        Gateway::with_factory(Closed(workspace.path("none")), trust, about).build()
    };
    let fixed = json!({
        "code": -32603,
        "message": "the server could not be opened; its operator can see why in its log",
    });
    let configuring =
        |configuration: Value| json!({"experimental": {"configuration": configuration}});
    for trust in [Trust::Host, Trust::Agent] {
        let gateway = gateway(trust);
        let mut stateless = Client::new(&gateway);
        let listed = stateless
            .request_stateless("tools/list", json!({}), json!({}))
            .await;
        assert_eq!(listed["error"], fixed, "{listed}");
        for capabilities in [json!({}), configuring(json!({"read_only": true}))] {
            let initialized = Client::new(&gateway)
                .initialize("2025-11-25", capabilities)
                .await;
            assert_eq!(initialized["error"], fixed, "{initialized}");
        }
        let wrong = configuring(json!({"read_only": 1}));
        let initialized = Client::new(&gateway).initialize("2025-11-25", wrong).await;
        assert_eq!(initialized["error"]["code"], -32602, "{initialized}");
        assert_eq!(
            initialized["error"]["data"]["field"], "/read_only",
            "{initialized}"
        );
    }
}

#[tokio::test]
async fn duplicate_policy_is_rejected() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Host);
    client.initialize("2025-11-25", json!({})).await;
    let call = |meta: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":"d","method":"tools/call","params":{{"name":"read_file","arguments":{{"path":"a.txt"}},{meta}}}}}"#
        )
    };
    for meta in [
        r#""_meta":{"policy":{"tools":[]},"policy":{}}"#,
        r#""_meta":{"policy":{"read_only":true,"read_only":false}}"#,
        r#""_meta":{"policy":{"tools":[]}},"_meta":{}"#,
    ] {
        client.send_line(&call(meta)).await;
        let answer = client.receive().await;
        assert_eq!(answer["error"]["code"], -32602, "{meta}: {answer}");
        assert_eq!(answer["id"], "d", "{meta}: {answer}");
    }
    client.send_line(&call(r#""_meta":{"policy":{}}"#)).await;
    let answer = client.receive().await;
    assert_eq!(answer["result"]["content"][0]["text"], "one\ntwo\nthree\n");
}
