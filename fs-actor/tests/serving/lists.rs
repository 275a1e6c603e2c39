//! Lists: tools, resources, prompts and completions, each only of what the client may see.

use bailiwick::Trust;
use serde_json::{Value, json};

use crate::support::World;

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
async fn tools_carry_their_extensions_where_raw_and_typed_clients_look() {
    let world = World::new();
    let mut client = world.client(Trust::Host);
    client.greet("2025-11-25", json!({})).await;
    let answer = client.ask("tools/list", json!({})).await;
    let tools = answer["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 12);
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
        assert!(annotations["scopes"].is_array(), "{tool}");
        let mutates = annotations["readOnlyHint"] == false;
        assert_eq!(annotations.get("preview").is_some(), mutates, "{tool}");
        assert_eq!(
            (&tool["inputSchema"]["type"], &tool["outputSchema"]["type"]),
            (&json!("object"), &json!("object"))
        );
    }
    let narrowed = client
        .ask(
            "tools/list",
            json!({"_meta": {"policy": {"tools": ["read_file"]}}}),
        )
        .await;
    assert_eq!(names(&narrowed, "tools", "name"), ["read_file"]);
    let bad = client.ask("tools/list", json!({"cursor": "x"})).await;
    assert_eq!(bad["error"]["code"], -32602);
}

#[tokio::test]
async fn files_are_read_as_resources_and_the_hidden_cannot_be_told_from_the_absent() {
    let world = World::new();
    std::fs::write(world.host("r/bytes"), b"a\0b").unwrap();
    for version in ["2025-06-18", "modern"] {
        let mut client = world.client(Trust::Host);
        if version != "modern" {
            client.greet(version, json!({})).await;
        }
        let mut read = async |uri: &str| {
            let params = json!({"uri": uri});
            if version == "modern" {
                client.modern("resources/read", params, json!({})).await
            } else {
                client.ask("resources/read", params).await
            }
        };
        let text = read("file:///r/a.txt").await;
        assert_eq!(
            text["result"]["contents"][0]["text"], "one\ntwo\nthree\n",
            "{text}"
        );
        let bytes = read("file:///r/bytes").await;
        assert_eq!(bytes["result"]["contents"][0]["blob"], "YQBi", "{bytes}");
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
async fn artifacts_are_listed_for_whoever_made_them() {
    let world = World::new();
    let gateway = world.gateway(Trust::Host).build();
    let mut one = crate::support::Client::of(&gateway);
    let mut other = crate::support::Client::of(&gateway);
    one.greet("2025-11-25", json!({})).await;
    other.greet("2025-11-25", json!({})).await;
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
        let page = one.ask("resources/list", params).await;
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
    let theirs = other.ask("resources/list", json!({})).await;
    assert_eq!(names(&theirs, "resources", "uri"), ["file:///r"]);
    let stolen = other.ask("resources/read", json!({"uri": seen[0]})).await;
    assert!(stolen["error"].is_object(), "{stolen}");
}

#[tokio::test]
async fn completions_name_what_is_there_and_nothing_denied() {
    let world = World::new();
    let mut client = world.client(Trust::Host);
    client.greet("2025-11-25", json!({})).await;
    let mut complete = async |value: &str| {
        let params = json!({
            "ref": {"type": "ref/resource", "uri": "file:///{+path}"},
            "argument": {"name": "path", "value": value},
        });
        client.ask("completion/complete", params).await["result"]["completion"]["values"].clone()
    };
    assert_eq!(complete("r/s").await, json!(["r/src"]));
    assert_eq!(complete("r/secret/").await, json!([]));
    assert_eq!(complete("r/a").await, json!(["r/a.txt"]));
}

#[tokio::test]
async fn prompts_are_listed_and_need_their_arguments() {
    let world = World::new();
    let mut client = world.client(Trust::Host);
    client.greet("2025-11-25", json!({})).await;
    let listed = client.ask("prompts/list", json!({})).await;
    assert_eq!(names(&listed, "prompts", "name"), ["review-changes"]);
    let got = client
        .ask(
            "prompts/get",
            json!({"name": "review-changes", "arguments": {"path": "/r"}}),
        )
        .await;
    assert_eq!(got["result"]["messages"][0]["role"], "user", "{got}");
    let missing = client
        .ask("prompts/get", json!({"name": "review-changes"}))
        .await;
    assert_eq!(missing["error"]["code"], -32602);
}

#[tokio::test]
async fn what_is_absent_forbidden_or_beneath_a_file_is_one_answer() {
    let world = World::new();
    let mut client = world.client(Trust::Host);
    client.greet("2025-11-25", json!({})).await;
    let mut read = async |uri: &str| client.ask("resources/read", json!({"uri": uri})).await;
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
