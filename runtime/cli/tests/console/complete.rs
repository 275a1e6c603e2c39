//! Tests that decisions appear in the audit, the commands and the console.

use bailiwick::config::Namespace;
use bailiwick::tool::{Interrupt, Prepared, ReadPermit};
use bailiwick::{
    CallError, Config, JsonLines, Policy, ReadTool, Reply, Runtime, ToolSet, ToolSpec, WorkerSpec,
};
use bailiwick_console::{Console, ConsoleAudit, ConsoleSource};
use bailiwick_mcp::gateway::{Gateway, Rate};
use bailiwick_test_support::client::{Client, info};
use bailiwick_test_support::console::Page;
use bailiwick_test_support::server::Server;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

fn program(place: &Path) -> Command {
    let mut program = Command::new(crate::PROGRAM);
    program.env_clear().current_dir(place);
    program
}

/// Serves one client that reads with these arguments, and returns the codes; `OK` for one without.
fn served(place: &Path, trust: &str, calls: &[(Value, Value)]) -> Vec<String> {
    let calls = calls.iter();
    let calls = calls.map(|(arguments, meta)| call("read_file", arguments, meta));
    let options = ["--trust", trust, "--ask-scopes", "read:file"];
    serve(place, &options, trust, &calls.collect::<Vec<_>>())
}

/// Serves one client of that name, and returns the codes of its calls.
fn serve(place: &Path, options: &[&str], name: &str, calls: &[Value]) -> Vec<String> {
    let mut command = program(place);
    command
        .arg("serve")
        .args(options)
        .args(["--audit", "audit.jsonl", "--log", "off", "--", "root"])
        .stderr(Stdio::null());
    let mut server = Server::start(&mut command);
    server.request("initialize", hello(name));
    let codes = calls.iter();
    let codes = codes.map(|call| code(&server.request("tools/call", call)));
    let codes = codes.collect();
    assert!(server.end().0.success());
    codes
}

fn hello(name: &str) -> Value {
    let client = json!({"name": name, "version": "1"});
    json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
}

fn call(tool: &str, arguments: &Value, meta: &Value) -> Value {
    json!({"name": tool, "arguments": arguments, "_meta": meta})
}

/// The code of an answer; `OK` for one without.
fn code(answer: &Value) -> String {
    let error = answer.pointer("/error/data/code");
    let code = error.or_else(|| answer.pointer("/result/structuredContent/code"));
    code.and_then(Value::as_str).unwrap_or("OK").to_owned()
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
async fn sent_forged_and_missing_grants_are_shown_everywhere() {
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

    assert_eq!(on_console(place).await, ENDS);
}

/// The entries that a console shows of the audit here, the oldest first.
async fn on_console(place: &Path) -> Vec<String> {
    let (runtime, authority) = Runtime::builder().build().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let console = Console::serve(listener).unwrap();
    let file = ConsoleAudit::File(place.join("audit.jsonl"));
    console.add_source(ConsoleSource::new(Arc::new(authority)).audit(file));
    let page = Page::at(console.url());
    let all = page.post("/api/history", &json!({})).await.json();
    let entries = all["entries"].as_array().unwrap().iter().rev();
    let ends = entries.map(end).collect();
    runtime.shutdown().await;
    ends
}

#[tokio::test]
async fn effect_cut_off_by_a_crash_is_shown_everywhere() {
    let temp = tempfile::tempdir().unwrap();
    let place = temp.path();
    for file in ["root/kept", "root/t/a", "root/t/b"] {
        fs::create_dir_all(place.join(file).parent().unwrap()).unwrap();
        fs::write(place.join(file), file).unwrap();
    }
    let tree = json!({"path": "t", "recursive": true});
    let delete = call("delete", &tree, &json!({}));
    assert_eq!(serve(place, &[], "me", &[delete]), ["OK"]);
    let audit = place.join("audit.jsonl");
    let history = ["history", "audit.jsonl"];
    let json = |more: &[&str]| {
        let text = shown(place, &[&history, more, &["--json"]].concat());
        lines(&text)
    };
    assert_eq!(json(&[])[0]["outcome"], "applied");
    // What a killed server leaves: the last record says that the effect begins.
    let record = fs::read_to_string(&audit).unwrap();
    let records = || record.split_inclusive('\n');
    let last = records().position(|line| line.contains(r#""step":"applying""#));
    let kept: String = records().take(last.unwrap() + 1).collect();
    fs::write(&audit, kept).unwrap();
    for outcome in ["open", "failed"] {
        let entries = json(&[]);
        let shown_calls: Vec<_> = entries
            .iter()
            .map(|entry| (&entry["tool"], &entry["outcome"], &entry["begun"]))
            .collect();
        let expected = (&json!("delete"), &json!(outcome), &json!(true));
        assert_eq!(shown_calls, [expected]);
        assert_eq!(json(&["--report"])[0]["calls"][0]["outcome"], outcome);
        let text = shown(place, &history);
        let words = format!("{outcome}; started, without a recorded end");
        assert!(text.contains(&words), "{text}");
        let end = format!("{outcome} nobody - ~me model");
        assert_eq!(on_console(place).await, [end]);
        let kept = json!({"path": "kept"});
        let read = call("read_file", &kept, &json!({}));
        assert_eq!(serve(place, &[], "me", &[read]), ["OK"]);
    }
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// A tool that answers `OK`, for everybody or for pages alone.
struct Answers {
    app_only: bool,
}

impl ReadTool for Answers {
    type Args = Nothing;
    type Output = Value;
    type Job = ();

    fn spec(&self) -> ToolSpec {
        if self.app_only {
            ToolSpec::new("page_data", "Page data", "Answers its page.").app_only()
        } else {
            ToolSpec::new("answer", "Answer", "Answers.")
        }
    }

    fn prepare(&self, _: Nothing, _: &Namespace) -> Result<Prepared<()>, CallError> {
        let needs = vec!["read:thing:answer".parse().unwrap()];
        Ok(Prepared { needs, job: () })
    }

    fn read(&self, (): &(), _: &ReadPermit) -> Result<Reply, Interrupt> {
        Ok(Reply::text("yes", Value::Null))
    }
}

/// Makes calls of these tools over one connection, and returns their codes.
async fn called(gateway: &Gateway, tools: &[&str]) -> Vec<String> {
    let (mut client, serving) = Client::with_task(gateway);
    client.request("initialize", hello("me")).await;
    let mut codes = Vec::new();
    for tool in tools {
        codes.push(code(&client.call(tool, json!({}), json!({})).await));
    }
    drop(client);
    serving.await.unwrap();
    codes
}

#[tokio::test]
async fn calls_rejected_by_the_gateway_are_shown_everywhere() {
    let temp = tempfile::tempdir().unwrap();
    let place = temp.path();
    let tools = [false, true].map(|app_only| Answers { app_only });
    let tools = tools.into_iter().fold(ToolSet::new(), ToolSet::reader);
    let mut config = Config::new();
    config.allow = vec!["read:thing".parse().unwrap()];
    let (runtime, _people) = Runtime::builder()
        .config(config)
        .tools(tools)
        .audit(JsonLines::create(place.join("audit.jsonl")).unwrap())
        .build()
        .await
        .unwrap();
    let spec = WorkerSpec::new("main").policy(Policy::new());
    let worker = runtime.spawn(spec).await.unwrap();
    let rate = Rate {
        calls: 2,
        per: Duration::from_secs(3600),
    };
    let gateway = Gateway::worker(&worker, info()).rate(rate).build();
    let codes = called(&gateway, &["answer", "page_data", "answer"]).await;
    assert_eq!(codes, ["OK", "UNKNOWN_TOOL", "RATE_LIMITED"]);
    gateway.shutdown().await;
    runtime.shutdown().await;

    let record = lines(&fs::read_to_string(place.join("audit.jsonl")).unwrap());
    let denied = record.iter().map(|line| &line["event"]);
    let denied = denied.filter(|event| event["step"] == "denied");
    let of = |event: &Value| {
        let text = |key: &str| event[key].as_str().unwrap().to_owned();
        [text("tool"), text("code"), text("by")].join(" ")
    };
    assert_eq!(
        denied.map(of).collect::<Vec<_>>(),
        ["page_data UNKNOWN_TOOL rule", "answer RATE_LIMITED rule"]
    );
    let ends = [
        "denied rule UNKNOWN_TOOL main model",
        "denied rule RATE_LIMITED main model",
    ];
    let history = lines(&shown(place, &["history", "audit.jsonl", "--json"]));
    assert_eq!(history.iter().map(end).collect::<Vec<_>>(), ends);
    let text = shown(place, &["history", "audit.jsonl"]);
    let report = shown(place, &["history", "audit.jsonl", "--report"]);
    for (tool, code) in [("page_data", "UNKNOWN_TOOL"), ("answer", "RATE_LIMITED")] {
        let has_row = |text: &str| {
            let mut rows = text.lines();
            rows.any(|row| row.contains(tool) && row.contains(code))
        };
        assert!(has_row(&text) && has_row(&report), "{text}\n{report}");
    }
    assert_eq!(on_console(place).await, ends);
}
