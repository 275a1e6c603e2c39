//! Compares responses with the files in `golden/`. `BAILIWICK_BLESS=1` updates them.
//!
//! Only what is random is replaced: the ids of artifacts, preview tokens, and the directory of the test.

use bailiwick_mcp::gateway::Trust;
use bailiwick_test_support::client::Client;
use bailiwick_test_support::workspace::Workspace;
use serde_json::Value;
use serde_json::json;
use std::path::Path;

/// Compares a line with the file of that name.
fn check(workspace: &Workspace, name: &str, line: &str) {
    let outside = workspace.path("outside");
    let line = line.replace(outside.to_str().unwrap(), "/outside");
    let line = masked(&line);
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/serving/golden/{name}.json"));
    if std::env::var_os("BAILIWICK_BLESS").is_some() {
        std::fs::write(&file, format!("{line}\n")).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(line, expected.trim_end(), "{name}");
}

/// The line with the id in each address of an artifact, such as `ui://edit_file/<32 digits>.diff`, and a preview token replaced.
fn masked(line: &str) -> String {
    const TOKEN: &str = r#""preview_token":""#;
    if let Some((before, rest)) = line.split_once(TOKEN) {
        let (token, after) = rest.split_once('"').unwrap();
        assert_eq!(token.len(), 64);
        return format!("{}{TOKEN}TOKEN\"{}", masked(before), masked(after));
    }
    let mut parts = line.split("ui://");
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        out.push_str("ui://");
        let address = part.split_once('/').and_then(|(tool, rest)| {
            let (id, rest) = rest.split_at_checked(32)?;
            let is_id = id.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_id.then(|| format!("{tool}/ID{rest}"))
        });
        out.push_str(address.as_deref().unwrap_or(part));
    }
    out
}

/// A request of either era, and the raw line that answers it.
async fn answer(client: &mut Client, era: &str, method: &str, mut params: Value) -> String {
    if era == "stateless" {
        let meta = params["_meta"].as_object().cloned().unwrap_or_default();
        let mut all = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        for (key, value) in meta {
            all[key] = value;
        }
        params["_meta"] = all;
    }
    client
        .send(&json!({"jsonrpc": "2.0", "id": "golden", "method": method, "params": params}))
        .await;
    loop {
        let line = client.receive_line().await.unwrap();
        if line.contains(r#""id":"golden""#) {
            return line;
        }
    }
}

#[tokio::test]
async fn responses_match_the_golden_files() {
    for era in ["handshake", "stateless"] {
        let workspace = Workspace::new();
        let mut client = workspace.client(Trust::Host);
        let initialized = if era == "handshake" {
            let params = json!({
                "protocolVersion": "2025-11-25", "capabilities": {"experimental": {"policy": {}}},
                "clientInfo": {"name": "raw", "version": "1"},
            });
            answer(&mut client, era, "initialize", params).await
        } else {
            answer(&mut client, era, "server/discover", json!({})).await
        };
        check(&workspace, &format!("{era}-greeting"), &initialized);
        let outside = workspace.path("outside/new");
        let outside = outside.to_str().unwrap();
        let edit = json!({
            "name": "edit_file",
            "arguments": {"path": "/r/a.txt", "edits": [{"old_text": "two", "new_text": "2"}]},
        });
        let with = |mut call: Value, meta: Value| {
            call["_meta"] = meta;
            call
        };
        let steps = [
            ("tools", "tools/list", json!({})),
            ("templates", "resources/templates/list", json!({})),
            (
                "preview",
                "tools/call",
                with(edit.clone(), json!({"preview": true})),
            ),
            ("edit", "tools/call", edit.clone()),
            (
                "read",
                "tools/call",
                json!({"name": "read_file", "arguments": {"path": "/r/a.txt"}}),
            ),
            (
                "scope-required",
                "tools/call",
                json!({"name": "write_file", "arguments": {"path": outside, "content": "x"}}),
            ),
            (
                "denied",
                "tools/call",
                json!({"name": "read_file", "arguments": {"path": "/r/secret/key"}}),
            ),
            (
                "expansion",
                "tools/call",
                with(edit, json!({"policy": {"roots": [{"path": "/etc"}]}})),
            ),
            ("unknown-tool", "tools/call", json!({"name": "none"})),
            (
                "absent-resource",
                "resources/read",
                json!({"uri": "file:///r/none"}),
            ),
        ];
        for (name, method, params) in steps {
            let line = answer(&mut client, era, method, params).await;
            check(&workspace, &format!("{era}-{name}"), &line);
        }
    }
}
