//! Tests of the server's description: handshake, tools, `ai_help` and its resource.

use bailiwick_mcp::gateway::Rate;
use bailiwick_mcp::gateway::Trust;
use bailiwick_test_support::client::Client;
use bailiwick_test_support::workspace::Workspace;
use serde_json::Value;
use serde_json::json;

fn described(workspace: &Workspace) -> Client {
    let gateway = workspace
        .gateway(Trust::Host)
        .manual(bailiwick_cli::server_doc());
    Client::new(&gateway.build())
}

#[tokio::test]
async fn handshake_describes_the_server_for_raw_and_typed_clients() {
    let workspace = Workspace::new();
    let mut legacy = described(&workspace);
    let initialized = legacy.initialize("2025-11-25", json!({})).await["result"].clone();
    let mut modern = described(&workspace);
    let discovered = modern
        .request_stateless("server/discover", json!({}), json!({}))
        .await["result"]
        .clone();
    for result in [initialized, discovered] {
        assert_eq!(result["dashdash"], result["_meta"]["dashdash"]);
        assert_eq!(result["dashdash"]["specVersion"], "0.2.0", "{result}");
        assert_eq!(result["dashdash"]["identity"]["name"], "bailiwick-test");
        assert_eq!(result["dashdash"]["accessLevel"], "interact");
        assert_eq!(result["dashdash"]["rateLimit"], Rate::default().to_string());
    }
    let bare = workspace
        .client(Trust::Host)
        .initialize("2025-11-25", json!({}))
        .await;
    assert_eq!(bare["result"].get("dashdash"), None);
}

#[tokio::test]
async fn access_level_follows_the_configuration() {
    let workspace = Workspace::new();
    for (configuration, level) in [
        (json!({"read_only": true}), "read"),
        (json!({"access": "read"}), "read"),
        (json!({"tools": ["read_file"]}), "read"),
        (json!({"allow_scopes": ["read:file"]}), "read"),
        (json!({"tools": ["read_file", "delete"]}), "interact"),
    ] {
        let mut client = described(&workspace);
        let capabilities = json!({"experimental": {"configuration": configuration}});
        let answer = client.initialize("2025-11-25", capabilities).await;
        assert_eq!(
            answer["result"]["dashdash"]["accessLevel"], level,
            "{configuration}"
        );
    }
}

#[tokio::test]
async fn tool_description_names_only_offered_tools() {
    let workspace = Workspace::new();
    let mut client = described(&workspace);
    client.initialize("2025-11-25", json!({})).await;
    let mut listed = async |meta: Value| {
        let answer = client.request("tools/list", json!({"_meta": meta})).await;
        let tools = answer["result"]["tools"].as_array().unwrap().clone();
        tools
            .into_iter()
            .find(|tool| tool["name"] == "copy")
            .unwrap()
    };
    let copy = listed(json!({})).await;
    assert_eq!(copy["dashdash"]["reverseMethod"], "delete");
    assert_eq!(copy["dashdash"]["category"], copy["_meta"]["group"]);
    let priority = copy["_meta"]["priority"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&priority));
    let alone = listed(json!({"policy": {"tools": ["copy"]}})).await;
    assert_eq!(alone["dashdash"]["reversible"], false);
    assert_eq!(alone["dashdash"].get("reverseMethod"), None);
}

#[tokio::test]
async fn ai_help_has_two_formats_and_sections() {
    let workspace = Workspace::new();
    let mut legacy = described(&workspace);
    legacy.initialize("2025-11-25", json!({})).await;
    let whole = legacy.request("ai_help", json!({})).await["result"].clone();
    assert_eq!(whole["contentType"], "text/markdown", "{whole}");
    assert!(
        whole["content"]
            .as_str()
            .unwrap()
            .starts_with("---\nname: \"bailiwick-test\"\n")
    );
    assert_eq!(whole.get("resultType"), None);
    let nulls = json!({"format": null, "section": null});
    assert_eq!(legacy.request("ai_help", nulls).await["result"], whole);
    let json = legacy.request("ai_help", json!({"format": "json"})).await["result"].clone();
    assert_eq!(json["metadata"]["name"], "bailiwick-test");
    for key in [
        "whenToUse",
        "quickReference",
        "authentication",
        "rateLimits",
    ] {
        assert!(json["sections"].get(key).is_some(), "{key}");
    }
    for section in ["best-practices", "bestPractices"] {
        let part = legacy.request("ai_help", json!({"section": section})).await;
        let text = part["result"]["content"].as_str().unwrap();
        assert!(text.starts_with("## Best Practices\n"), "{text}");
    }
    let mut modern = described(&workspace);
    let answer = modern
        .request_stateless("ai_help", json!({"format": "json"}), json!({}))
        .await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
}

#[tokio::test]
async fn ai_help_rejects_unknown_sections_and_lists_known_ones() {
    let workspace = Workspace::new();
    let mut client = described(&workspace);
    client.initialize("2025-11-25", json!({})).await;
    for params in [
        json!({"format": "html"}),
        json!({"format": 1}),
        json!({"section": "none"}),
        json!({"section": ""}),
        json!({"section": ["whenToUse"]}),
    ] {
        let error = client.request("ai_help", params.clone()).await["error"].clone();
        assert_eq!(error["code"], -32602, "{params}");
    }
    let error = client.request("ai_help", json!({"section": "none"})).await["error"].clone();
    assert!(
        error["message"].as_str().unwrap().contains("when-to-use"),
        "{error}"
    );
    assert_eq!(error["data"]["known"].as_array().unwrap().len(), 10);
    let mut bare = workspace.client(Trust::Host);
    bare.initialize("2025-11-25", json!({})).await;
    assert_eq!(
        bare.request("ai_help", json!({})).await["error"]["code"],
        -32601
    );
}

#[tokio::test]
async fn help_resource_has_cache_hints() {
    let workspace = Workspace::new();
    let mut client = described(&workspace);
    client.initialize("2025-11-25", json!({})).await;
    let listed = client.request("resources/list", json!({})).await;
    let resources = listed["result"]["resources"].as_array().unwrap();
    let help = resources
        .iter()
        .find(|resource| resource["uri"] == "bailiwick://help")
        .unwrap();
    assert_eq!(help["mimeType"], "text/markdown");
    for resource in resources {
        assert_eq!(resource["dashdash"], resource["_meta"]["dashdash"]);
        assert!(
            resource["dashdash"]["resourceType"].is_string(),
            "{resource}"
        );
        assert_eq!(resource["dashdash"]["cacheDuration"], 0);
    }
    let read = client
        .request("resources/read", json!({"uri": "bailiwick://help"}))
        .await;
    let content = &read["result"]["contents"][0];
    assert_eq!(content["mimeType"], "text/markdown");
    let answer = client.request("ai_help", json!({})).await;
    assert_eq!(content["text"], answer["result"]["content"]);
    let mut bare = workspace.client(Trust::Host);
    bare.initialize("2025-11-25", json!({})).await;
    let none = bare
        .request("resources/read", json!({"uri": "bailiwick://help"}))
        .await;
    assert_eq!(none["error"]["code"], -32002);
}

#[tokio::test]
async fn descriptions_contain_no_paths_or_configuration() {
    let workspace = Workspace::new();
    let mut client = described(&workspace);
    let configuration =
        json!({"deny": ["**/canary-7f3a/**"], "allow_scopes": ["read:file:/r/canary-7f3a"]});
    let capabilities = json!({"experimental": {"configuration": configuration}});
    let mut texts = client
        .initialize("2025-11-25", capabilities)
        .await
        .to_string();
    for (method, params) in [
        ("ai_help", json!({})),
        ("ai_help", json!({"format": "json"})),
        ("tools/list", json!({})),
        ("resources/list", json!({})),
        ("resources/read", json!({"uri": "bailiwick://help"})),
    ] {
        let answer = client.request(method, params).await;
        assert!(answer["result"].is_object(), "{answer}");
        texts.push_str(&answer.to_string());
    }
    let host = workspace.path("r");
    for canary in ["canary-7f3a", host.to_str().unwrap(), "hidden"] {
        assert!(!texts.contains(canary), "{canary}");
    }
}
