//! Tests of approval by elicitation.

use crate::fuzz::cases;
use crate::program;
use bailiwick::permission::{GrantHolder, Lifetime, NewGrant};
use bailiwick::{Policy, Runtime, WorkerSpec};
use bailiwick_mcp::gateway::Trust;
use bailiwick_test_support::client::Client;
use bailiwick_test_support::workspace::Workspace;
use serde_json::{Value, json};
use std::os::unix::fs::symlink;

fn able() -> Value {
    json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}})
}

/// A call that writes the file `name` outside the root.
fn writing(workspace: &Workspace, name: &str) -> Value {
    let path = workspace.path(&format!("outside/{name}"));
    json!({"name": "write_file", "arguments": {"path": path.to_str().unwrap(), "content": "x"}})
}

async fn connected(workspace: &Workspace) -> Client {
    let mut client = Client::new(&workspace.asking_gateway(Trust::Host));
    client
        .initialize("2025-11-25", json!({"elicitation": {}}))
        .await;
    client
}

async fn send(client: &mut Client, id: &str, params: Value) {
    let request = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    client.send(&request).await;
}

async fn answer(client: &mut Client, question: &Value, action: &str, content: Value) {
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let result = json!({"action": action, "content": content});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
    client.send(&answer).await;
}

fn code(answer: &Value) -> &Value {
    &answer["result"]["structuredContent"]["code"]
}

#[tokio::test]
async fn elicitation_answer_decides_the_call() {
    for (action, decision, allowed) in [
        ("accept", "allow", true),
        ("accept", "deny", false),
        ("decline", "allow", false),
        ("cancel", "allow", false),
    ] {
        let workspace = Workspace::new();
        let mut client = connected(&workspace).await;
        send(&mut client, "c", writing(&workspace, "new")).await;
        let question = client.receive().await;
        answer(
            &mut client,
            &question,
            action,
            json!({"decision": decision}),
        )
        .await;
        let done = client.receive().await;
        assert_eq!(done["id"], "c");
        assert_eq!(done["result"]["isError"] != true, allowed, "{done}");
        assert_eq!(workspace.path("outside/new").exists(), allowed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_right_after_the_handshake_is_asked_about() {
    let workspace = Workspace::new();
    let gateway = workspace.asking_gateway(Trust::Host);
    for number in 0..cases().min(100) {
        let mut client = Client::new(&gateway);
        let initialize_params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "raw", "version": "1"},
        });
        client.request("initialize", initialize_params).await;
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let params = writing(&workspace, &format!("new-{number}"));
        let call = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params});
        client.send_line(&format!("{ready}\n{call}")).await;
        let question = client.receive().await;
        answer(
            &mut client,
            &question,
            "accept",
            json!({"decision": "deny"}),
        )
        .await;
        assert_eq!(code(&client.receive().await), "PERMISSION_DENIED");
    }
}

#[tokio::test]
async fn call_before_the_handshake_ends_is_not_asked_about() {
    let workspace = Workspace::new();
    let initialize_params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "raw", "version": "1"},
    });
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    for before_handshake in [false, true] {
        let mut client = Client::new(&workspace.asking_gateway(Trust::Host));
        if before_handshake {
            client.send(&initialized).await;
        }
        let params = initialize_params.clone();
        client.request("initialize", params).await;
        send(&mut client, "c", writing(&workspace, "new")).await;
        assert_eq!(code(&client.receive().await), "SCOPE_REQUIRED");
        client.send(&initialized).await;
        send(&mut client, "d", writing(&workspace, "new")).await;
        client.receive_request("elicitation/create").await;
    }
}

#[tokio::test]
async fn form_for_paths_outside_the_roots_requires_the_tick_beyond_this_call() {
    let workspace = Workspace::new();
    let mut client = connected(&workspace).await;
    send(&mut client, "first", writing(&workspace, "new")).await;
    let question = client.receive().await;
    let form = &question["params"]["requestedSchema"]["properties"];
    let breadths = form["breadth"]["enum"].as_array().unwrap();
    let is_outside = |text: &Value| text.as_str().unwrap().contains("outside your project");
    assert!(breadths.iter().all(is_outside), "{question}");
    assert_eq!(form["confirm"]["type"], "boolean", "{question}");
    let longer = json!({"decision": "allow", "lifetime": "session"});
    answer(&mut client, &question, "accept", longer).await;
    let refused = client.receive().await;
    assert_eq!(code(&refused), "PERMISSION_DENIED");
    assert!(
        refused.to_string().contains("\"denied_by\":\"client\""),
        "{refused}"
    );
    assert!(!workspace.path("outside/new").exists());
}

#[tokio::test]
async fn note_reaches_the_agent() {
    let workspace = Workspace::new();
    let mut client = connected(&workspace).await;
    send(&mut client, "c", writing(&workspace, "new")).await;
    let question = client.receive().await;
    let no = json!({"decision": "deny", "note": "write beneath /r"});
    answer(&mut client, &question, "accept", no).await;
    let done = client.receive().await;
    assert_eq!(code(&done), "PERMISSION_DENIED");
    assert!(done.to_string().contains("write beneath /r"), "{done}");
}

/// The messages that come before the answer to a ping.
async fn so_far(client: &mut Client) -> Vec<Value> {
    client
        .send(&json!({"jsonrpc": "2.0", "id": "ping", "method": "ping"}))
        .await;
    let mut before = Vec::new();
    loop {
        let message = client.receive().await;
        if message["id"] == "ping" {
            return before;
        }
        before.push(message);
    }
}

#[tokio::test]
async fn questions_are_sequential_and_each_call_is_approved_separately() {
    let workspace = Workspace::new();
    let mut client = connected(&workspace).await;
    for (id, name) in [("a1", "a"), ("a2", "a"), ("b", "b")] {
        send(&mut client, id, writing(&workspace, name)).await;
    }
    let first = client.receive().await;
    assert_eq!(first["method"], "elicitation/create");
    assert_eq!(so_far(&mut client).await, Vec::<Value>::new());
    answer(&mut client, &first, "accept", json!({"decision": "allow"})).await;
    let (mut questions, mut answers) = (1, 0);
    while answers < 3 {
        let message = client.receive().await;
        if message["method"] == "elicitation/create" {
            questions += 1;
            answer(
                &mut client,
                &message,
                "accept",
                json!({"decision": "allow"}),
            )
            .await;
        } else if message["id"].is_string() {
            answers += 1;
            // Both equal calls were allowed, and the second finds what the first made.
            let second = ["a1", "a2"].contains(&message["id"].as_str().unwrap());
            let expected = if second { "ALREADY_EXISTS" } else { "" };
            let code = code(&message).as_str().unwrap_or_default();
            assert!(code.is_empty() || code == expected, "{message}");
        }
    }
    assert_eq!(questions, 3);
    assert!(workspace.path("outside/a").exists() && workspace.path("outside/b").exists());
}

#[tokio::test]
async fn three_denials_do_not_stop_questions() {
    let workspace = Workspace::new();
    let mut client = connected(&workspace).await;
    for name in ["a", "b", "c", "d"] {
        send(&mut client, name, writing(&workspace, name)).await;
        let question = client.receive().await;
        assert_eq!(question["method"], "elicitation/create");
        answer(&mut client, &question, "decline", json!({})).await;
        assert_eq!(client.receive().await["id"], name);
    }
}

#[tokio::test]
async fn cancelled_form_is_not_a_denial() {
    let workspace = Workspace::new();
    let mut client = connected(&workspace).await;
    for name in ["a", "b", "c", "d"] {
        send(&mut client, name, writing(&workspace, name)).await;
        let question = client.receive().await;
        answer(&mut client, &question, "cancel", json!({})).await;
        assert_eq!(code(&client.receive().await), "SCOPE_REQUIRED");
    }
    send(&mut client, "e", writing(&workspace, "e")).await;
    let question = client.receive().await;
    let result = json!({"code": -32601, "message": "no forms"});
    let error = json!({"jsonrpc": "2.0", "id": question["id"], "error": result});
    client.send(&error).await;
    let unasked = client.receive().await;
    assert_eq!(code(&unasked), "SCOPE_REQUIRED");
    assert!(
        !unasked.to_string().contains("denied_by\":\"person"),
        "{unasked}"
    );
}

#[tokio::test]
async fn stateless_approval_applies_to_its_call_only() {
    let workspace = Workspace::new();
    let mut client = Client::new(&workspace.asking_gateway(Trust::Host));
    let state = required(&mut client, writing(&workspace, "a")).await;
    let mut wide = again(writing(&workspace, "a"), &state, "allow");
    wide["inputResponses"]["permission"]["content"]["lifetime"] = json!("session");
    let done = client.request_stateless("tools/call", wide, able()).await;
    assert_ne!(done["result"]["isError"], true, "{done}");
    required(&mut client, writing(&workspace, "a")).await;
}

#[tokio::test]
async fn client_with_an_agents_name_has_none_of_its_grants() {
    let temp = tempfile::tempdir().unwrap();
    let (runtime, grants) = Runtime::builder()
        .root("r", temp.path())
        .tools(bailiwick_fs::tools())
        .build()
        .await
        .unwrap();
    let spec = WorkerSpec::new("main").policy(Policy::new().ask("write:file"));
    let main = runtime.spawn(spec).await.unwrap();
    let agent = |path: &str| NewGrant {
        pattern: "write:file:/r".parse().unwrap(),
        holder: GrantHolder::Agent(path.into()),
        lifetime: Lifetime::Agent,
        descendants: false,
    };
    grants.grant(agent("main/tests")).await.unwrap();
    let about = bailiwick_mcp::gateway::GatewayInfo {
        name: "t".into(),
        title: "t".into(),
        version: "0".into(),
        instructions: String::new(),
    };
    let gateway = bailiwick_mcp::gateway::Gateway::worker(&main, about).build();
    let write = json!({"path": "/r/new", "content": "x"});
    for (name, expected) in [("tests", "SCOPE_REQUIRED"), ("~tests", "SCOPE_REQUIRED")] {
        let mut client = Client::new(&gateway);
        let hello = json!({
            "protocolVersion": "2025-11-25", "capabilities": {"experimental": {"configuration": {}}},
            "clientInfo": {"name": name, "version": "1"},
        });
        client.request("initialize", hello).await;
        let answer = client.call("write_file", write.clone(), json!({})).await;
        assert_eq!(code(&answer), expected, "{answer}");
    }
    grants.grant(agent("main/~tests")).await.unwrap();
    let mut client = Client::new(&gateway);
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": {"experimental": {"configuration": {}}},
        "clientInfo": {"name": "tests", "version": "1"},
    });
    client.request("initialize", hello).await;
    let answer = client.call("write_file", write, json!({})).await;
    assert_ne!(answer["result"]["isError"], true, "{answer}");
}

#[tokio::test]
async fn questions_wait_for_the_handshake() {
    let workspace = Workspace::new();
    let mut client = Client::new(&workspace.asking_gateway(Trust::Host));
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "raw", "version": "1"},
    });
    client.request("initialize", hello).await;
    let early = client
        .request("tools/call", writing(&workspace, "new"))
        .await;
    assert_eq!(code(&early), "SCOPE_REQUIRED");
    client
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        .await;
    assert_eq!(so_far(&mut client).await, Vec::<Value>::new());
    send(&mut client, "c", writing(&workspace, "new")).await;
    assert_eq!(client.receive().await["method"], "elicitation/create");
}

#[tokio::test]
async fn disconnect_cancels_the_question() {
    let workspace = Workspace::new();
    let gateway = workspace.asking_gateway(Trust::Host);
    let (mut client, serving) = Client::with_task(&gateway);
    client
        .initialize("2025-11-25", json!({"elicitation": {}}))
        .await;
    send(&mut client, "c", writing(&workspace, "new")).await;
    assert_eq!(client.receive().await["method"], "elicitation/create");
    drop(client);
    tokio::time::timeout(std::time::Duration::from_secs(3), serving)
        .await
        .expect("the server ends at once")
        .unwrap();
    assert!(!workspace.path("outside/new").exists());
}

/// A stateless call that was asked about.
async fn required(client: &mut Client, params: Value) -> Value {
    let required = client.request_stateless("tools/call", params, able()).await;
    let result = &required["result"];
    assert_eq!(result["resultType"], "input_required", "{required}");
    result["requestState"].clone()
}

/// The same call again with an answer.
fn again(mut params: Value, state: &Value, decision: &str) -> Value {
    params["requestState"] = state.clone();
    params["inputResponses"] =
        json!({"permission": {"action": "accept", "content": {"decision": decision}}});
    params
}

#[tokio::test]
async fn stateless_client_repeats_the_call_with_the_answer() {
    let workspace = Workspace::new();
    let mut client = Client::new(&workspace.asking_gateway(Trust::Host));
    let call = writing(&workspace, "new");
    let denied = required(&mut client, call.clone()).await;
    let no = client
        .request_stateless("tools/call", again(call.clone(), &denied, "deny"), able())
        .await;
    assert_eq!(no["result"]["_meta"]["denied_by"], "person", "{no}");
    assert!(!workspace.path("outside/new").exists());
    let state = required(&mut client, call.clone()).await;
    let yes = client
        .request_stateless("tools/call", again(call, &state, "allow"), able())
        .await;
    assert_ne!(yes["result"]["isError"], true, "{yes}");
    assert!(workspace.path("outside/new").exists());
}

#[tokio::test]
async fn answer_applies_once_and_only_to_its_call() {
    let workspace = Workspace::new();
    let mut client = Client::new(&workspace.asking_gateway(Trust::Host));
    let call = writing(&workspace, "new");
    let state = required(&mut client, call.clone()).await;
    let yes = || again(call.clone(), &state, "allow");
    let mut arguments = yes();
    arguments["arguments"]["content"] = json!("y");
    let mut tool = yes();
    tool["name"] = json!("edit_file");
    let mut sealed = yes();
    sealed["requestState"] = json!(format!("{}0", state.as_str().unwrap()));
    let mut unanswered = yes();
    unanswered["inputResponses"] = json!({});
    let mut meta = Vec::new();
    for extra in [
        json!({"policy": {"read_only": true}}),
        json!({"preview": true}),
        json!({"granted_scopes": ["write:file:/"]}),
    ] {
        let mut capable = able();
        capable
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        meta.push((yes(), capable));
    }
    meta.push((yes(), json!({})));
    let other = [arguments, tool, sealed, unanswered].map(|params| (params, able()));
    for (params, meta) in other.into_iter().chain(meta) {
        let refused = client.request_stateless("tools/call", params, meta).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(!workspace.path("outside/new").exists());
    }
    let done = client.request_stateless("tools/call", yes(), able()).await;
    assert_ne!(done["result"]["isError"], true, "{done}");
    std::fs::remove_file(workspace.path("outside/new")).unwrap();
    let twice = client.request_stateless("tools/call", yes(), able()).await;
    assert_eq!(twice["error"]["code"], -32602, "{twice}");
    assert!(!workspace.path("outside/new").exists());
}

#[tokio::test]
async fn answer_does_not_run_a_call_that_is_not_repeated() {
    let workspace = Workspace::new();
    let mut client = Client::new(&workspace.asking_gateway(Trust::Host));
    let path = workspace.path("outside/f");
    let append = json!({"name": "edit_file", "arguments": {
        "path": path.to_str().unwrap(),
        "edits": [{"old_text": "theirs", "new_text": "theirs theirs", "occurrence": 1}],
    }});
    let first = required(&mut client, append.clone()).await;
    let second = required(&mut client, append.clone()).await;
    let done = client
        .request_stateless("tools/call", again(append.clone(), &first, "allow"), able())
        .await;
    assert_ne!(done["result"]["isError"], true, "{done}");
    assert_eq!(workspace.read("outside/f"), "theirs theirs");
    let other = client
        .request_stateless("tools/call", again(append, &second, "deny"), able())
        .await;
    assert_eq!(code(&other), "PERMISSION_DENIED", "{other}");
    assert_eq!(workspace.read("outside/f"), "theirs theirs");
}

#[tokio::test]
async fn agents_and_clients_without_elicitation_are_not_asked() {
    let workspace = Workspace::new();
    for (trust, capabilities) in [
        (Trust::Agent, json!({"elicitation": {}})),
        (Trust::Host, json!({})),
    ] {
        let mut client = Client::new(&workspace.asking_gateway(trust));
        client.initialize("2025-11-25", capabilities).await;
        let answer = client
            .request("tools/call", writing(&workspace, "new"))
            .await;
        assert_eq!(code(&answer), "SCOPE_REQUIRED", "{answer}");
    }
}

#[tokio::test]
async fn question_for_a_client_commit_does_not_name_a_page() {
    for (decision, text) in [("allow", "x"), ("deny", "one\ntwo\nthree\n")] {
        let workspace = Workspace::new();
        let mut client = Client::new(&workspace.asking_gateway(Trust::Host));
        let mut capabilities = crate::views::showing();
        capabilities["elicitation"] = json!({});
        client.initialize("2025-11-25", capabilities).await;
        let write = json!({"path": "/r/a.txt", "content": "x", "mode": "overwrite"});
        let commit = json!({"tool": "write_file", "arguments": write});
        let commit = json!({"name": "commit_call", "arguments": commit});
        send(&mut client, "c", commit).await;
        let question = client.receive().await;
        let message = question["params"]["message"].as_str().unwrap();
        assert!(
            message.contains(
                "\nThe agent's client asks for this, for a page that it shows or for the agent.\nAgent: "
            ),
            "{message}"
        );
        assert!(message.contains("Tool: write_file\n"), "{message}");
        answer(
            &mut client,
            &question,
            "accept",
            json!({"decision": decision}),
        )
        .await;
        assert_eq!(client.receive().await["id"], "c");
        assert_eq!(workspace.read("r/a.txt"), text);
        // The model of the same worker needs no approval.
        let model =
            json!({"name": "write_file", "arguments": {"path": "/r/m.txt", "content": "x"}});
        let done = client.request("tools/call", model).await;
        assert_ne!(done["result"]["isError"], true, "{done}");
    }
}

/// Whether the files show that a call was made.
type IsDone = fn(&Workspace) -> bool;

/// Calls whose arguments name nothing that must be asked about, while what they find must be: what leads out of the root,
/// and a protected file in a directory.
fn finding(workspace: &Workspace) -> Vec<(Value, IsDone)> {
    symlink(workspace.path("outside"), workspace.path("r/out")).unwrap();
    std::fs::create_dir_all(workspace.path("r/old/.git")).unwrap();
    std::fs::write(workspace.path("r/old/.git/config"), "").unwrap();
    let write = json!({"path": "/r/out/linked", "content": "x"});
    let delete = json!({"path": "/r/old", "recursive": true});
    vec![
        (
            json!({"name": "read_file", "arguments": {"path": "/r/out/f"}}),
            |_| true,
        ),
        (
            json!({"name": "write_file", "arguments": write}),
            |workspace| workspace.path("outside/linked").exists(),
        ),
        (
            json!({"name": "delete", "arguments": delete}),
            |workspace| !workspace.path("r/old").exists(),
        ),
    ]
}

#[tokio::test]
async fn needs_found_during_a_call_are_asked_about() {
    for decision in ["allow", "deny"] {
        let workspace = Workspace::new();
        let mut client = connected(&workspace).await;
        for (call, is_done) in finding(&workspace) {
            send(&mut client, "c", call.clone()).await;
            let question = client.receive().await;
            let content = json!({"decision": decision});
            answer(&mut client, &question, "accept", content).await;
            let answer = client.receive().await;
            let done = answer["result"]["isError"] != true;
            assert_eq!(done, decision == "allow", "{call}: {answer}");
            assert!(is_done(&workspace) || !done, "{call}: {answer}");
        }
    }
}

#[tokio::test]
async fn stateless_client_is_asked_about_needs_found_during_a_call() {
    for decision in ["allow", "deny"] {
        let workspace = Workspace::new();
        let mut client = Client::new(&workspace.asking_gateway(Trust::Host));
        for (call, is_done) in finding(&workspace) {
            let state = required(&mut client, call.clone()).await;
            let params = again(call.clone(), &state, decision);
            let answer = client.request_stateless("tools/call", params, able()).await;
            let done = answer["result"]["isError"] != true;
            assert_eq!(done, decision == "allow", "{call}: {answer}");
            assert!(is_done(&workspace) || !done, "{call}: {answer}");
        }
    }
}

#[test]
fn ignored_grants_are_audited_for_each_request() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(at("root")).unwrap();
    std::fs::write(at("f"), "text").unwrap();
    let (root, audit) = (at("root"), at("audit.jsonl"));
    let options = [
        "--ask=client",
        "--grantable=read:file",
        "--audit",
        &audit,
        &root,
    ];
    let mut program = program::start(&options, &[]);
    program.initialize(&json!({"elicitation": {}}));
    let forged = json!({"granted_scopes": ["read:file"]});
    let call = json!({"name": "read_file", "arguments": {"path": at("f")}, "_meta": forged});
    let call = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": call});
    program.send(&call);
    let question = program.receive();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let no = json!({"action": "decline"});
    program.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": no}));
    assert_eq!(program.receive()["id"], "c");
    let resource = json!({"uri": format!("file://{}", at("f")), "_meta": forged});
    let refused = program.request("resources/read", &resource);
    assert!(refused["error"].is_object(), "{refused}");
    drop(program);
    let audit = std::fs::read_to_string(at("audit.jsonl")).unwrap();
    assert_eq!(audit.matches("\"ignored_grants\"").count(), 2, "{audit}");
}

#[test]
fn question_without_an_answer_ends_after_the_question_timeout() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().canonicalize().unwrap();
    let options = [
        "--ask=client",
        "--question-timeout=1",
        "--ask-scopes=write:file",
    ];
    let mut program = program::start(
        &[&options[..], &["--", root.to_str().unwrap()]].concat(),
        &[],
    );
    program.initialize(&json!({"elicitation": {}}));
    let params = json!({"name": "write_file", "arguments": {"path": "new", "content": "x"}});
    program.send(&json!({"jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": params}));
    assert_eq!(program.receive()["method"], "elicitation/create");
    let mut ended = program.receive();
    if ended["method"] == "notifications/cancelled" {
        ended = program.receive();
    }
    assert_eq!(ended["id"], "w", "{ended}");
    assert_eq!(code(&ended), "PERMISSION_DENIED", "{ended}");
    assert_eq!(ended["result"]["structuredContent"]["denied_by"], "nobody");
    assert!(!root.join("new").exists());
}

#[test]
fn denied_write_of_a_protected_file_names_the_reason() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().canonicalize().unwrap();
    let mut program = program::start(&["--ask=replay", root.to_str().unwrap()], &[]);
    program.initialize(&json!({}));
    let write = |name: &str| json!({"path": name, "content": "{}"});
    let refused = program.call("write_file", write(".mcp.json"));
    assert_eq!(refused["structuredContent"]["code"], "SCOPE_REQUIRED");
    let text = refused["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("/.mcp.json` is protected: "), "{text}");
    let written = program.call("write_file", write("plain.json"));
    assert!(written["isError"] != true, "{written}");
}

/// Where the program is not started on a terminal.
#[test]
fn client_without_elicitation_gets_the_missing_scopes() {
    for (arguments, elicits, asked) in [
        (&[][..], true, true),
        (&["--trust=host"], true, true),
        (&["--ask=auto"], false, false),
        (&["--trust=host"], false, false),
        // The person behind an agent's own client may be the agent.
        (&["--trust=agent"], true, false),
        (&["--ask=replay"], true, false),
    ] {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let options = [
            arguments,
            &["--ask-scopes=write:file", "--", root.to_str().unwrap()],
        ];
        let mut program = program::start(&options.concat(), &[]);
        program.initialize(&if elicits {
            json!({"elicitation": {}})
        } else {
            json!({})
        });
        let params = json!({"name": "write_file", "arguments": {"path": "new", "content": "x"}});
        program
            .send(&json!({"jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": params}));
        let first = program.receive();
        assert_eq!(
            first["method"] == "elicitation/create",
            asked,
            "{arguments:?} {elicits}: {first}"
        );
        if asked {
            let result = json!({"action": "accept", "content": {"decision": "allow"}});
            program.send(&json!({"jsonrpc": "2.0", "id": first["id"], "result": result}));
            let done = program.receive();
            assert_ne!(done["result"]["isError"], true, "{done}");
        } else {
            assert_eq!(code(&first), "SCOPE_REQUIRED");
        }
        assert_eq!(root.join("new").exists(), asked);
    }
}
