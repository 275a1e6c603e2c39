//! Questions to the person behind a client, in both eras.

use bailiwick::Trust;
use serde_json::{Value, json};

use crate::support::{Client, World};

fn asking(world: &World, trust: Trust) -> Client {
    Client::of(&world.gateway(trust).ask_client().unwrap().build())
}

fn write(world: &World) -> Value {
    let path = world.host("outside/new");
    json!({"name": "write_file", "arguments": {"path": path.to_str().unwrap(), "content": "x"}})
}

#[tokio::test]
async fn a_client_with_a_handshake_is_asked_and_its_answer_decides() {
    for (action, decision, allowed) in [
        ("accept", "allow", true),
        ("accept", "deny", false),
        ("decline", "allow", false),
        ("cancel", "allow", false),
    ] {
        let world = World::new();
        let mut client = asking(&world, Trust::Host);
        client.greet("2025-11-25", json!({"elicitation": {}})).await;
        client.send(&json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": write(&world)})).await;
        let question = client.next().await;
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let schema = &question["params"]["requestedSchema"];
        assert_eq!(
            schema["properties"]["decision"]["enum"],
            json!(["allow", "deny"]),
            "{question}"
        );
        let answer = json!({"action": action, "content": {"decision": decision}});
        client
            .send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}))
            .await;
        let done = client.next().await;
        assert_eq!(done["id"], "c");
        assert_eq!(done["result"]["isError"] != true, allowed, "{done}");
        assert_eq!(world.host("outside/new").exists(), allowed);
    }
}

#[tokio::test]
async fn a_stateless_client_sends_the_call_again_with_the_answer() {
    let world = World::new();
    let mut client = asking(&world, Trust::Host);
    let able = json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}});
    let required = client
        .modern("tools/call", write(&world), able.clone())
        .await;
    assert_eq!(
        required["result"]["resultType"], "input_required",
        "{required}"
    );
    let state = required["result"]["requestState"].clone();
    let again = |decision: &str, change: &dyn Fn(&mut Value)| {
        let mut params = write(&world);
        params["requestState"] = state.clone();
        params["inputResponses"] =
            json!({"permission": {"action": "accept", "content": {"decision": decision}}});
        change(&mut params);
        params
    };
    let tampered = again("allow", &|params| {
        params["arguments"]["content"] = json!("y")
    });
    let refused = client.modern("tools/call", tampered, able.clone()).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let denied = client
        .modern("tools/call", again("deny", &|_| {}), able.clone())
        .await;
    assert_eq!(denied["result"]["_meta"]["denied_by"], "person", "{denied}");
    assert!(!world.host("outside/new").exists());
    let done = client
        .modern("tools/call", again("allow", &|_| {}), able)
        .await;
    assert_ne!(done["result"]["isError"], true, "{done}");
    assert!(world.host("outside/new").exists());
}

#[tokio::test]
async fn nobody_is_asked_through_an_agents_own_client_or_one_that_cannot_ask() {
    let world = World::new();
    for (trust, capabilities) in [
        (Trust::Agent, json!({"elicitation": {}})),
        (Trust::Host, json!({})),
    ] {
        let mut client = asking(&world, trust);
        client.greet("2025-11-25", capabilities).await;
        let answer = client.ask("tools/call", write(&world)).await;
        assert_eq!(
            answer["result"]["structuredContent"]["code"], "SCOPE_REQUIRED",
            "{answer}"
        );
    }
}
