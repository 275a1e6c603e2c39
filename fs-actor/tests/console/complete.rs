//! What two clients of the program are granted and refused, as its record, its commands and a console show it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bailiwick::{Console, ConsoleRecord, ConsoleSource, Runtime};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::Page;

fn program(place: &Path) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_bailiwick-fs"));
    program.env_clear().current_dir(place);
    program
}

/// Serves one client that makes these calls, and returns their codes; `OK` for one without.
fn served(place: &Path, trust: &str, calls: &[(Value, Value)]) -> Vec<String> {
    let mut server = program(place)
        .args(["--trust", trust, "--audit", "audit.jsonl", "--log", "off"])
        .args(["--ask-scopes", "read:file", "--", "root"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = server.stdin.take().unwrap();
    let mut output = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut ask = |id: usize, method: &str, params: Value| {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(input, "{line}").unwrap();
        loop {
            let line = output.next().unwrap().unwrap();
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == id {
                return answer;
            }
        }
    };
    let client = json!({"name": trust, "version": "1"});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    ask(0, "initialize", hello);
    let codes = (1..).zip(calls).map(|(id, (arguments, meta))| {
        let params = json!({"name": "read_file", "arguments": arguments, "_meta": meta});
        let answer = ask(id, "tools/call", params);
        let error = answer.pointer("/error/data/code");
        let code = error.or_else(|| answer.pointer("/result/structuredContent/code"));
        code.and_then(Value::as_str).unwrap_or("OK").to_owned()
    });
    let codes = codes.collect();
    drop(input);
    assert!(server.wait().unwrap().success());
    codes
}

fn shown(place: &Path, arguments: &[&str]) -> String {
    let output = program(place).args(arguments).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).unwrap()
}

fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// An entry as its end, who decided, its code and the agent.
fn end(entry: &Value) -> String {
    let text = |key: &str| entry[key].as_str().unwrap_or("-").to_owned();
    [
        text("outcome"),
        text("by"),
        text("code"),
        text("agent"),
        text("origin"),
    ]
    .join(" ")
}

const ENDS: [&str; 8] = [
    "denied nobody SCOPE_REQUIRED ~host model",
    "answered host - ~host model",
    "answered host - ~host model",
    "answered host - ~host model",
    "denied rule POLICY_EXPANSION ~host model",
    "grants_ignored rule - ~agent model",
    "denied nobody SCOPE_REQUIRED ~agent model",
    "denied nobody SCOPE_REQUIRED ~agent model",
];

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
async fn brought_forged_and_missing_grants_are_shown_everywhere() {
    let temp = tempfile::tempdir().unwrap();
    let place = temp.path();
    fs::create_dir_all(place.join("root/notes")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(place.join("root/notes").join(name), name).unwrap();
    }
    let path = |name: &str| json!({"path": format!("notes/{name}")});
    let granted = |name: &str| {
        let file = place.canonicalize().unwrap().join("root/notes").join(name);
        (
            path(name),
            json!({"granted_scopes": [format!("read:file:{}", file.display())]}),
        )
    };
    let wider = json!({"policy": {"roots": [{"path": "/etc"}]}});
    let calls = [
        (path("a"), json!({})),
        granted("a"),
        granted("b"),
        granted("c"),
        (path("a"), wider),
    ];
    let codes = ["SCOPE_REQUIRED", "OK", "OK", "OK", "POLICY_EXPANSION"];
    assert_eq!(served(place, "host", &calls), codes);
    let calls = [granted("a"), (path("a"), json!({}))];
    let codes = ["SCOPE_REQUIRED", "SCOPE_REQUIRED"];
    assert_eq!(served(place, "agent", &calls), codes);

    let record = lines(&fs::read_to_string(place.join("audit.jsonl")).unwrap());
    let steps = |step: &str| {
        let steps = record.iter().map(|line| &line["event"]["step"]);
        steps.filter(|found| *found == step).count()
    };
    assert_eq!(
        ["grant_used", "ignored_grants", "denied"].map(steps),
        [3, 1, 4]
    );
    let history = lines(&shown(place, &["history", "audit.jsonl", "--json"]));
    assert_eq!(history.iter().map(end).collect::<Vec<_>>(), ENDS);
    let text = shown(place, &["history", "audit.jsonl"]);
    for part in [
        "denied by a rule",
        "granted by the host",
        "SCOPE_REQUIRED",
        "POLICY_EXPANSION",
        "grants ignored; granted_scopes read:file:",
    ] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    let report = &lines(&shown(
        place,
        &["history", "audit.jsonl", "--report", "--json"],
    ))[0];
    let calls = report["calls"].as_array().unwrap().iter();
    let counted: Vec<(u64, &str)> = calls
        .map(|tally| {
            (
                tally["calls"].as_u64().unwrap(),
                tally["outcome"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        counted,
        [
            (3, "answered"),
            (2, "denied"),
            (1, "grants_ignored"),
            (1, "denied"),
            (1, "denied")
        ]
    );
    let text = shown(place, &["history", "audit.jsonl", "--report"]);
    assert!(text.contains("Calls without a question"), "{text}");
    let suggested = shown(place, &["history", "audit.jsonl", "--suggest", "--json"]);
    let suggested = lines(&suggested);
    let pattern = suggested[0]["pattern"].as_str().unwrap();
    assert!(pattern.ends_with("/root/notes"), "{pattern}");
    assert_eq!(suggested[0]["spares"], 3);

    let (runtime, people) = Runtime::builder().build().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let console = Console::serve(listener).unwrap();
    let file = ConsoleRecord::File(place.join("audit.jsonl"));
    console.attend(ConsoleSource::new(Arc::new(people)).record(file));
    let page = Page::at(console.url());
    let all = page.post("/api/history", &json!({})).await.json();
    let entries = all["entries"].as_array().unwrap().iter().rev();
    assert_eq!(entries.map(end).collect::<Vec<_>>(), ENDS);
    runtime.shutdown().await;
}
