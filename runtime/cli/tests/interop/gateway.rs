//! Tests with third-party servers behind the gateway, over each transport.

use bailiwick_mcp::gateway::Endpoint;
use std::collections::BTreeSet;
use std::fs;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bailiwick::{JsonLines, Policy, Runtime, WorkerSpec};
use bailiwick_mcp::gateway::GatewayInfo;
use bailiwick_mcp::upstream::{ServerSpec, ServersContext, Upstreams};
use rmcp::model::{
    CallToolRequestParams, ClientConfig, GetPromptRequestParams, ProtocolVersion,
    ReadResourceRequestParams,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::PROGRAM;
use crate::installed::package;
use crate::third_party::{NAMES, ThirdParty};

const ALLOWED: &[&str] = &[
    "read:mcp",
    "write:mcp:memory",
    "write:mcp:clock",
    "write:mcp:browser",
    "write:mcp:sheets",
    "write:mcp:shell",
    "write:mcp:duckdb",
    "write:mcp:sqlite",
    "write:mcp:calculator",
    "write:mcp:git:git_add",
    "write:mcp:files:create_directory",
];
const DENIED: &str = "write:mcp:memory:delete_entities";
/// One test at a time: each starts more programs than the machine has cores.
static ALONE: Mutex<()> = Mutex::const_new(());
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// How long the gateway may take to start or to end on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// The flags that say what is allowed and denied.
fn flags() -> Vec<&'static str> {
    let allowed = ALLOWED.iter().flat_map(|scope| ["--allow", scope]);
    allowed.chain(["--deny-scopes", DENIED]).collect()
}

type Running = RunningService<RoleClient, ClientConfig>;

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other}"),
    }
}

struct Client(Running);

impl Client {
    /// The names of the servers whose tools are listed.
    async fn servers(&self) -> Vec<String> {
        let tools = self.0.list_all_tools().await.unwrap();
        let names = tools
            .iter()
            .map(|tool| tool.name.split_once("__").unwrap().0.to_owned());
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = Some(object(arguments));
        json!(self.0.call_tool(params).await.unwrap())
    }

    /// Makes a call of the table.
    async fn make(&self, call: &Call) {
        let result = self.call(&call.tool, call.arguments.clone()).await;
        let (fails, found) = match call.expected {
            Ok(_) => (false, result["content"].to_string()),
            Err(_) => (true, result["structuredContent"]["code"].to_string()),
        };
        let (Ok(expected) | Err(expected)) = &call.expected;
        assert_eq!(result["isError"], fails, "{}: {result}", call.tool);
        assert!(found.contains(expected), "{}: {result}", call.tool);
    }
}

/// A call, and what its answer holds or the code that it fails with.
struct Call {
    tool: String,
    arguments: Value,
    expected: Result<String, String>,
}

/// Calls of tools of every server, in order. Each that is refused has one beside it that is allowed.
fn calls(servers: &ThirdParty) -> Vec<Call> {
    let at = |name: &str| servers.path(name).to_str().unwrap().to_owned();
    let (book, repository) = (at("book.xlsx"), at("repo"));
    let thought =
        json!({"thought": "x", "nextThoughtNeeded": false, "thoughtNumber": 3, "totalThoughts": 3});
    let noon = json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    let cell = json!({"fileAbsolutePath": book, "sheetName": "Tides", "newSheet": false, "range": "B1:B1", "values": [["noon"]]});
    let tide = json!({"name": "tide", "entityType": "event", "observations": ["noon"]});
    let deleted = json!({"entityName": "tide", "observations": ["noon"]});
    let table = json!([
        ["everything__get-sum", {"a": 20, "b": 22}, "The sum of 20 and 22 is 42"],
        ["files__read_text_file", {"path": at("files/a.txt")}, r"one\n"],
        ["thinking__sequentialthinking", thought, r#"\"thoughtNumber\": 3"#],
        ["clock__get-time", {}, "20"],
        ["notes__obsidian_read_note", {"vault": "work", "path": "plan.md"}, "Sow oats."],
        ["time__convert_time", noon, "T21:00:00+09:00"],
        ["fetch__fetch", {"url": servers.site}, "High water at noon."],
        ["duckdb__execute_query", {"sql": "select 6 * 7"}, "42"],
        ["calculator__calculate", {"expression": "6*7"}, "42"],
        ["shell__run_command", {"command": "echo $((6*7))"}, r"42\n"],
        ["sqlite__create_table", {"query": "create table tides (hour int)"}, "created"],
        ["sqlite__write_query", {"query": "insert into tides values (12)"}, "1"],
        ["sqlite__read_query", {"query": "select hour + 30 as h from tides"}, "42"],
        ["sheets__excel_write_to_sheet", cell, "Values wrote"],
        ["sheets__excel_read_sheet", {"fileAbsolutePath": book, "sheetName": "Tides"}, "<td>high water</td><td>noon</td>"],
        ["browser__browser_navigate", {"url": servers.site}, "Page URL"],
        ["browser__browser_snapshot", {}, "Tide table"],
        ["git__git_add", {"repo_path": repository, "files": ["new.txt"]}, "staged"],
        ["git__git_commit", {"repo_path": repository, "message": "x"}, null, "SCOPE_REQUIRED"],
        ["git__git_status", {"repo_path": repository}, "No commits yet"],
        ["files__create_directory", {"path": at("files/new")}, "created"],
        ["files__write_file", {"path": at("files/b.txt"), "content": "two\n"}, null, "SCOPE_REQUIRED"],
        ["memory__create_entities", {"entities": [tide]}, "noon"],
        ["memory__delete_entities", {"entityNames": ["tide"]}, null, "PERMISSION_DENIED"],
        ["memory__delete_observations", {"deletions": [deleted]}, "deleted"],
        ["memory__search_nodes", {"query": "tide"}, "event"],
    ]);
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let call = |row: &Value| Call {
        tool: text(&row[0]).unwrap(),
        arguments: row[1].clone(),
        expected: text(&row[2]).ok_or_else(|| text(&row[3]).unwrap()),
    };
    table.as_array().unwrap().iter().map(call).collect()
}

/// Calls tools of every server, and reads.
async fn exercise(client: &Client, servers: &ThirdParty) {
    // A busy machine starts some of them after the gateway serves.
    let listed = async {
        while client.servers().await != NAMES {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let listed = timeout(LIMIT, listed).await;
    assert!(listed.is_ok(), "{:?}", client.servers().await);
    for call in calls(servers) {
        client.make(&call).await;
    }
    assert!(servers.path("tides.db").exists() && servers.path("files/new").is_dir());
    assert!(!servers.path("files/b.txt").exists());

    let features = "mcp+everything+demo://resource/static/document/features.md";
    let resources = json!(client.0.list_all_resources().await.unwrap());
    assert!(resources.to_string().contains(features), "{resources}");
    let read = ReadResourceRequestParams::new(features);
    let read = json!(client.0.read_resource(read).await.unwrap());
    let text = read["contents"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("# Everything Server - Features"), "{read}");
    let args_prompt = "everything__args-prompt";
    let prompts = json!(client.0.list_all_prompts().await.unwrap());
    assert!(prompts.to_string().contains(args_prompt), "{prompts}");
    let mut weather = GetPromptRequestParams::new(args_prompt);
    weather.arguments = Some(object(json!({"city": "Oslo"})));
    let weather = json!(client.0.get_prompt(weather).await.unwrap());
    let text = &weather["messages"][0]["content"]["text"];
    assert_eq!(text, "What's weather in Oslo?", "{weather}");
}

/// The audit has every call that reached a server, under the names of the server and the tool.
fn audited(servers: &ThirdParty) {
    let lines = fs::read_to_string(servers.path("audit.jsonl")).unwrap();
    let records = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let sent: Vec<_> = records
        .filter(|record| record["event"]["step"] == "remote_call")
        .map(|record| {
            let event = &record["event"];
            let name = |key: &str| event[key].as_str().unwrap().to_owned();
            assert_eq!(
                name("tool"),
                format!("{}__{}", name("server"), name("tool_there"))
            );
            (name("server"), name("tool_there"))
        })
        .collect();
    let calls = calls(servers);
    let allowed = calls.iter().filter(|call| call.expected.is_ok());
    let expected = allowed.map(|call| call.tool.split_once("__").unwrap());
    let read = [
        ("everything", "resources/read"),
        ("everything", "prompts/get"),
    ];
    let names = |(server, tool): (&str, &str)| (server.to_owned(), tool.to_owned());
    let expected: Vec<_> = expected.chain(read).map(names).collect();
    assert_eq!(sent, expected);

    in_history(servers);
}

/// The history has the calls that changed something or were refused, by server.
fn in_history(servers: &ThirdParty) {
    let history = |filters: &[&str]| -> Vec<(String, String)> {
        let arguments = [&["history", "--json", "audit.jsonl"], filters].concat();
        let printed = servers.run(&arguments);
        let entries = printed
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let calls = entries.filter(|entry| entry["entry"] == "call");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        calls
            .map(|entry| (text(&entry["tool"]), text(&entry["outcome"])))
            .collect()
    };
    let entry = |tool: &str, outcome: &str| (tool.to_owned(), outcome.to_owned());
    let of_memory = [
        entry("memory__create_entities", "answered"),
        entry("memory__delete_entities", "denied"),
        entry("memory__delete_observations", "answered"),
    ];
    assert_eq!(history(&["--server", "memory"]), of_memory);
    let of_git = [
        entry("git__git_add", "answered"),
        entry("git__git_commit", "denied"),
    ];
    assert_eq!(history(&["--server", "git"]), of_git);
    let all = history(&[]);
    let changing = all.iter().map(|(tool, _)| tool.split_once("__").unwrap().0);
    let mut changing: Vec<_> = changing.collect();
    changing.sort_unstable();
    changing.dedup();
    let expected = [
        "browser",
        "calculator",
        "clock",
        "duckdb",
        "files",
        "git",
        "memory",
        "sheets",
        "shell",
        "sqlite",
    ];
    assert_eq!(changing, expected);
    assert!(
        servers.run(&["verify", "audit.jsonl"]).contains("records"),
        "the audit is not as it was written"
    );
}

/// The program wrote to standard error which entry cannot be used, and nothing unexpected.
fn has_no_other_lines(stderr: &str) {
    assert!(stderr.contains("the server `old` is not used"), "{stderr}");
    let expected = ["`old` is not used", "still starting", "serving http"];
    let unexpected = |line: &&str| !expected.iter().any(|text| line.contains(text));
    let unexpected: Vec<_> = stderr.lines().filter(unexpected).collect();
    assert_eq!(unexpected, [""; 0]);
}

fn started(command: std::process::Command) -> Child {
    let mut command = Command::from(command);
    let command = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.kill_on_drop(true).spawn().unwrap()
}

async fn over_stdio(child: &mut Child, config: ClientConfig) -> Client {
    let (reader, writer) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    let transport = AsyncRwTransport::new_client(reader, writer);
    let connected = config.serve_with_lifecycle(transport, ClientLifecycleMode::Initialize);
    Client(timeout(LIMIT, connected).await.unwrap().unwrap())
}

async fn ended(child: &mut Child) -> (ExitStatus, String) {
    let mut stderr = String::new();
    let ended = async {
        if let Some(mut pipe) = child.stderr.take() {
            pipe.read_to_string(&mut stderr).await.unwrap();
        }
        child.wait().await.unwrap()
    };
    let status = timeout(LIMIT, ended).await.unwrap();
    (status, stderr)
}

#[tokio::test]
async fn fifteen_servers_work_over_stdio_and_end_with_the_gateway() {
    let _alone = ALONE.lock().await;
    let servers = ThirdParty::new().await;
    let mut child = started(servers.gateway(&flags()));
    let client = over_stdio(&mut child, ClientConfig::default()).await;
    exercise(&client, &servers).await;
    // One more program runs for each that was started through a launcher, and the browser's.
    assert!(
        servers.processes().len() > NAMES.len(),
        "{:?}",
        servers.processes()
    );
    client.0.cancel().await.unwrap();
    let (status, stderr) = ended(&mut child).await;
    assert!(status.success(), "{stderr}");
    assert_eq!(servers.processes(), [""; 0]);
    has_no_other_lines(&stderr);
    audited(&servers);
}

#[tokio::test]
async fn fifteen_servers_work_over_http_and_end_with_the_gateway() {
    let _alone = ALONE.lock().await;
    let servers = ThirdParty::new().await;
    let arguments = [&["--http", "127.0.0.1:0"], &flags()[..]].concat();
    let mut command = servers.gateway(&arguments);
    command.env("BAILIWICK_TOKEN", TOKEN);
    let mut child = started(command);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut stderr = String::new();
    let url = loop {
        let line = timeout(LIMIT, lines.next_line()).await.unwrap().unwrap();
        let line = line.unwrap_or_else(|| panic!("the gateway ended: {stderr}"));
        stderr += &format!("{line}\n");
        if let Some((_, url)) = line.split_once("serving ") {
            break url.to_owned();
        }
    };
    let modern = || ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    };
    let connected = |config| {
        let transport = StreamableHttpClientTransport::from_config(config);
        ClientConfig::default().serve_with_lifecycle(transport, modern())
    };
    let config = StreamableHttpClientTransportConfig::with_uri(url.clone());
    assert!(
        connected(config).await.is_err(),
        "a client without the token was served"
    );
    let config = StreamableHttpClientTransportConfig::with_uri(url).auth_header(TOKEN);
    let client = Client(connected(config).await.unwrap());
    exercise(&client, &servers).await;
    client.0.cancel().await.unwrap();
    kill_process(
        Pid::from_raw(child.id().unwrap().cast_signed()).unwrap(),
        Signal::TERM,
    )
    .unwrap();
    while let Some(line) = timeout(LIMIT, lines.next_line()).await.unwrap().unwrap() {
        stderr += &format!("{line}\n");
    }
    let (status, _) = ended(&mut child).await;
    assert!(status.success(), "{stderr}");
    assert_eq!(servers.processes(), [""; 0]);
    has_no_other_lines(&stderr);
    audited(&servers);
}

/// What the placeholders of the file stand for.
struct Context<'s>(&'s ThirdParty);

impl ServersContext for Context<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        (name == "DATABASE").then(|| "tides.db".to_owned())
    }

    fn input(&self, id: &str) -> Option<String> {
        (id == "team").then(|| "harbour".to_owned())
    }

    fn workspace_folder(&self) -> Option<String> {
        Some(self.0.path("").to_str()?.trim_end_matches('/').to_owned())
    }

    fn user_home(&self) -> Option<String> {
        Some(self.0.path("home").to_str()?.to_owned())
    }

    fn env_file(&self, path: &str) -> Option<String> {
        fs::read_to_string(path).ok()
    }
}

#[tokio::test]
async fn fifteen_servers_work_over_socket_and_end_with_their_host() {
    let _alone = ALONE.lock().await;
    let servers = ThirdParty::new().await;
    let text = fs::read_to_string(servers.path("mcp.json")).unwrap();
    let file = ServerSpec::read_all(&text, &Context(&servers)).unwrap();
    let upstreams = Upstreams::builder()
        .servers(file.servers)
        .start()
        .await
        .unwrap();
    let audit = JsonLines::append(servers.path("audit.jsonl")).unwrap();
    let builder = Runtime::builder()
        .servers(&upstreams)
        .audit(audit)
        .grantable("write:mcp");
    let builder = ALLOWED
        .iter()
        .fold(builder, |builder, scope| builder.allow(scope));
    let (runtime, _grants) = builder.build().await.unwrap();
    let spec = WorkerSpec::new("main").policy(Policy::new().deny(DENIED));
    let worker = runtime.spawn(spec).await.unwrap();
    let about = GatewayInfo {
        name: "gateway".into(),
        title: "Gateway".into(),
        version: "1".into(),
        instructions: String::new(),
    };
    let endpoint = Endpoint::open(&worker, about, None).await.unwrap();
    let mut attached = std::process::Command::new(PROGRAM);
    attached
        .arg("serve")
        .arg("--attach")
        .arg(endpoint.socket())
        .env_clear();
    let mut child = started(attached);
    let client = over_stdio(&mut child, ClientConfig::default()).await;
    exercise(&client, &servers).await;
    client.0.cancel().await.unwrap();
    let (status, stderr) = ended(&mut child).await;
    assert!(status.success(), "{stderr}");
    assert!(servers.processes().len() > NAMES.len());
    runtime.flush_audit().await.unwrap();
    runtime.shutdown().await;
    upstreams.shutdown().await;
    assert_eq!(servers.processes(), [""; 0]);
    audited(&servers);
}

/// The configuration of a client that shows MCP Apps views.
fn showing() -> ClientConfig {
    let types = json!({"mimeTypes": ["text/html;profile=mcp-app"]});
    let capabilities = json!({"extensions": {"io.modelcontextprotocol/ui": types}});
    let mut config = ClientConfig::default();
    config.capabilities = serde_json::from_value(capabilities).unwrap();
    config
}

/// The page that a client finds linked to a tool.
async fn linked(client: &Client, tool: &str) -> Value {
    let tools = client.0.list_all_tools().await.unwrap();
    let tool = tools.iter().find(|it| it.name == tool).unwrap();
    json!(tool.meta)["ui"]["resourceUri"].clone()
}

#[tokio::test]
async fn views_of_servers_are_read_unchanged_by_clients_with_views() {
    let page = "ui://mcp+clock+get-time/mcp-app.html";
    let servers = ThirdParty::with(&["clock", "shell"]).await;
    let mut child = started(servers.gateway(&["--allow", "read:mcp:clock"]));
    let client = over_stdio(&mut child, showing()).await;
    assert_eq!(linked(&client, "clock__get-time").await, page);
    assert_eq!(linked(&client, "shell__run_command").await, Value::Null);
    let resources = client.0.list_all_resources().await.unwrap();
    assert!(
        resources.iter().any(|resource| resource.uri == page),
        "{resources:?}"
    );
    let read = client
        .0
        .read_resource(ReadResourceRequestParams::new(page))
        .await;
    let read = json!(read.unwrap());
    let file = package("@modelcontextprotocol/server-basic-vanillajs/dist/mcp-app.html");
    let contents = &read["contents"][0];
    assert_eq!(contents["mimeType"], "text/html;profile=mcp-app");
    assert_eq!(contents["uri"], page);
    assert!(
        contents["text"] == fs::read_to_string(file).unwrap(),
        "the page was changed"
    );
    client.0.cancel().await.unwrap();
    ended(&mut child).await;

    let mut child = started(servers.gateway(&[]));
    let client = over_stdio(&mut child, ClientConfig::default()).await;
    assert_eq!(linked(&client, "clock__get-time").await, Value::Null);
    let read = client
        .0
        .read_resource(ReadResourceRequestParams::new(page))
        .await;
    assert!(read.is_err(), "a page was read that nobody allowed");
}
