//! Tests of the program's command line, output and exit status.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes the directories that are served"
)]

use std::fmt::Display;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use bailiwick_test_support::server::Server;
use bailiwick_test_support::temp_files::{self, TempFiles};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_bailiwick");

/// Sends a line, and returns the next message.
#[track_caller]
fn ask(server: &mut Server, line: &impl Display) -> Value {
    server.send(line);
    server.receive()
}

/// Ends the input, and returns how the server ended, which sends nothing more.
fn end(mut server: Server) -> ExitStatus {
    server.close_input();
    assert_eq!(server.try_receive(), None);
    server.end().0
}

/// The handshake of a client called `me`.
fn initialize(capabilities: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": capabilities,
        "clientInfo": {"name": "me", "version": "1"},
    }})
}

struct Workspace {
    files: TempFiles,
}

impl Workspace {
    fn new() -> Self {
        let files = TempFiles::new(&[]);
        files.create_dir("root");
        Self { files }
    }

    fn path(&self) -> &Path {
        self.files.dir()
    }

    fn file(&self, name: &str, text: &str) {
        self.files.write(name, text);
    }

    /// `bailiwick COMMAND` here, without variables.
    fn command(&self, command: &str) -> Command {
        self.files.command(PROGRAM, &[command])
    }

    /// `bailiwick serve` here, with these arguments and without variables.
    fn program(&self, arguments: &[&str]) -> Command {
        let mut program = self.command("serve");
        program.args(arguments);
        program
    }

    /// Starts the program here as a server over stdio, whose standard error is not read.
    fn client(&self, arguments: &[&str]) -> Server {
        Server::start(self.program(arguments).stderr(Stdio::null()))
    }

    /// Runs `bailiwick serve` here, with these variables alone.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut program = self.program(arguments);
        program.envs(variables.iter().copied()).output().unwrap()
    }

    #[track_caller]
    fn refused(&self, arguments: &[&str], variables: &[(&str, &str)], expected: &[&str]) {
        self.fails(2, arguments, variables, expected);
    }

    #[track_caller]
    fn fails(&self, code: i32, arguments: &[&str], variables: &[(&str, &str)], expected: &[&str]) {
        temp_files::assert_fails(self.run(arguments, variables), code, expected);
    }

    /// The address is served and printed on standard error only.
    #[track_caller]
    fn listens(&self, address: &str) {
        let mut server = self
            .program(&["--http", address])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(server.stderr.take().unwrap()).lines();
        let mut lines = lines.map(Result::unwrap);
        assert!(lines.any(|line| line.contains("serving http://127.0.0.1:")));
        server.kill().unwrap();
        let output = server.wait_with_output().unwrap();
        assert!(output.stdout.is_empty());
    }

    /// The options are good: the server ends because nobody speaks to it.
    #[track_caller]
    fn accepted(&self, arguments: &[&str], variables: &[(&str, &str)]) {
        let output = self.run(arguments, variables);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn printed_schema_matches_the_library() {
    let workspace = Workspace::new();
    // The schema is printed even if other configuration is invalid.
    let output = workspace.run(&["--print-config-schema"], &[("BAILIWICK_READ_ONLY", "?")]);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
    let mut printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    // What the program adds for its own configuration file.
    let properties = printed["properties"].as_object_mut().unwrap();
    let durability = properties.remove("durability").unwrap();
    assert_eq!(durability["enum"], json!(["visible", "ordered", "durable"]));
    assert_eq!(printed, bailiwick::config::config_schema());
}

#[test]
fn help_and_version_are_printed() {
    let workspace = Workspace::new();
    for (flag, part) in [
        ("--help", "Usage"),
        ("--version", env!("CARGO_PKG_VERSION")),
    ] {
        let output = workspace.command(flag).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(String::from_utf8(output.stdout).unwrap().contains(part));
    }
}

#[test]
fn invalid_flag_is_named_with_the_reason() {
    let workspace = Workspace::new();
    let refused =
        |arguments: &[&str], expected: &[&str]| workspace.refused(arguments, &[], expected);
    refused(&["--read-only=yes"], &["--read-only must be true or false"]);
    refused(
        &["--read-max-bytes", "1k"],
        &["--read-max-bytes must be a whole number"],
    );
    refused(
        &["--max-calls=1", "--max-calls=2"],
        &["--max-calls", "multiple times"],
    );
    refused(
        &["--access", "all"],
        &["--access must", "read, interact, full"],
    );
    refused(
        &["--deny", "/etc"],
        &["--deny (item 1)", "relative to each root"],
    );
    refused(
        &["--allow-scopes", "fly"],
        &["--allow-scopes (item 1)", "not a verb"],
    );
    refused(&["--budget", "5"], &["--budget must be an object"]);
    refused(
        &["--budget-calls", "x"],
        &["--budget-calls must be a whole number"],
    );
    refused(
        &["--budget", r#"{"calls":"x"}"#],
        &["--budget (calls) must"],
    );
    refused(&["--nonsense"], &["--nonsense"]);
    refused(&["--nonsense\u{1b}[2J\nx"], &["--nonsense"]);
    refused(&["--config"], &["--config"]);
    refused(&["--trust", "me"], &["--trust", "me"]);
    refused(&["--log", "loud"], &["--log", "loud"]);
    refused(
        &["--tools", "grep,reed_file"],
        &[
            "--tools (item 2)",
            "`reed_file`",
            "did you mean `read_file`",
        ],
    );
    refused(
        &["--tools", "x"],
        &[
            "--tools (item 1)",
            "there are apply_batch, apply_changes, copy,",
        ],
    );
    for tools in ["grep,read_file", "undo,redo", "run_command"] {
        workspace.accepted(&["--tools", tools], &[]);
    }
    workspace.accepted(
        &[
            "--read-only",
            "--read-max-bytes=0",
            "--deny=**/.env",
            "root",
        ],
        &[],
    );
}

#[test]
fn attach_rejects_flags_without_effect() {
    let workspace = Workspace::new();
    for more in [
        &["--http", "127.0.0.1:0"] as &[&str],
        &["root"],
        &["--roots", "root"],
        &["--read-only"],
        &["--audit", "audit"],
        &["--grants", "grants"],
        &["--question-timeout", "60"],
    ] {
        let arguments = [&["--attach", "socket"], more].concat();
        workspace.refused(&arguments, &[], &["--attach", "cannot be used with"]);
    }
    // Alone it is understood, and finds no socket.
    let output = workspace.run(&["--attach", "socket", "--log", "error"], &[]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn ai_help_shows_the_rate_limit() {
    let workspace = Workspace::new();
    for (arguments, rate) in [
        (
            &["--ai-help", "--section", "rate-limits"] as &[&str],
            "1000/second",
        ),
        (
            &["--ai-help", "--section", "rate-limits", "--rate", "5/hour"],
            "5/hour",
        ),
    ] {
        let stdout = String::from_utf8(workspace.run(arguments, &[]).stdout).unwrap();
        assert!(stdout.contains(&format!("**Default:** {rate}")), "{stdout}");
    }
}

#[test]
fn only_loopback_addresses_are_accepted() {
    let workspace = Workspace::new();
    for address in [
        "0.0.0.0:80",
        "[::]:80",
        "192.168.0.1:80",
        "[::ffff:10.0.0.1]:80",
    ] {
        workspace.refused(
            &["--http", address],
            &[],
            &["--http", "must be a loopback address"],
        );
    }
    for address in ["localhost:80", "127.0.0.1", "80", ":80"] {
        workspace.refused(&["--http", address], &[], &["--http", "127.0.0.1:8080"]);
    }
    workspace.listens("127.0.0.1:0");
}

#[test]
fn open_errors_name_the_file_and_reason() {
    let workspace = Workspace::new();
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let listen = format!("bailiwick: cannot listen on `{address}`: ");
    workspace.fails(1, &["--http", &address], &[], &[&listen, "in use"]);
    drop(taken);
    workspace.listens(&address);
    workspace.fails(
        1,
        &["--attach", "none.sock"],
        &[],
        &["cannot connect to the socket `none.sock`: ", "No such file"],
    );
    workspace.refused(
        &["root", "--audit=none/audit"],
        &[],
        &[
            "the audit file `none/audit` cannot be opened: ",
            "No such file",
        ],
    );
}

/// A server on a free port, where it is, and what its clients send as bearer.
fn http_server(workspace: &Workspace, arguments: &[&str]) -> (Child, SocketAddr, String) {
    let mut server = workspace
        .program(&["--http", "127.0.0.1:0"])
        .args(arguments)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    let mut after = |start: &str| {
        let found = lines.find_map(|line| Some(line.split_once(start)?.1.to_owned()));
        found.unwrap()
    };
    let token = after("bearer token in: ");
    let token = std::fs::read_to_string(token).unwrap();
    let address = after("serving http://");
    let address = address.strip_suffix("/mcp").unwrap().parse().unwrap();
    (server, address, token)
}

/// A server that waits for the rest of a request; the connection keeps it waiting.
fn kept_waiting(workspace: &Workspace) -> (Child, SocketAddr, TcpStream) {
    let (server, address, token) = http_server(workspace, &["root"]);
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
    )
    .unwrap();
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).unwrap();
    assert!(line.contains("100"), "{line}");
    (server, address, stream)
}

/// A connection whose only request was answered.
fn answered(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    reader.into_inner()
}

fn send(server: &Child, signal: Signal) {
    kill_process(Pid::from_child(server), signal).unwrap();
}

#[test]
fn first_signal_shuts_down_and_second_exits_at_once() {
    let workspace = Workspace::new();
    for (first, second, code) in [
        (Signal::TERM, Signal::INT, 130),
        (Signal::INT, Signal::TERM, 143),
    ] {
        let (mut server, address, _stream) = kept_waiting(&workspace);
        let mut idle = answered(address);
        send(&server, first);
        // The server has handled the signal once it closes a connection without a request.
        assert_eq!(idle.read_to_end(&mut Vec::new()).unwrap(), 0);
        send(&server, second);
        assert_eq!(server.wait().unwrap().code(), Some(code));
    }
    let (mut server, _, stream) = kept_waiting(&workspace);
    send(&server, Signal::TERM);
    drop(stream);
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

#[test]
fn signal_ends_a_stdio_server_and_open_requests_are_answered() {
    let workspace = Workspace::new();
    for signal in [Signal::TERM, Signal::INT] {
        let mut client = workspace.client(&["root"]);
        let listen = json!({
            "jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen",
            "params": {"notifications": {"toolsListChanged": true}, "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            }},
        });
        let acknowledgement = ask(&mut client, &listen);
        assert!(
            acknowledgement.to_string().contains("acknowledged"),
            "{acknowledgement}"
        );
        send(client.process(), signal);
        let answer = client.receive();
        assert_eq!(answer["id"], "l", "{answer}");
        // Its input is still open.
        assert!(client.try_receive().is_none());
        assert_eq!(client.process().wait().unwrap().code(), Some(0));
    }
}

#[test]
fn bearer_token_file_is_private_and_removed_at_exit() {
    let workspace = Workspace::new();
    let folder = workspace.path().join("run");
    std::fs::create_dir(&folder).unwrap();
    let mut server = workspace
        .program(&["--http", "127.0.0.1:0", "root"])
        .env("XDG_RUNTIME_DIR", &folder)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let (_, file) = line.split_once("bearer token in: ").unwrap();
    let file = Path::new(file);
    assert_eq!(file.parent(), Some(folder.as_path()));
    let mode = std::fs::metadata(file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = std::fs::read_to_string(file).unwrap();
    assert!(token.len() == 64 && !line.contains(&token), "{line}");
    let serving = lines.next().unwrap().unwrap();
    assert!(
        serving.contains("serving http://") && !serving.contains(&token),
        "{serving}"
    );
    send(&server, Signal::TERM);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert!(!file.exists());
}

#[test]
fn roots_that_contain_the_secrets_directory_are_rejected() {
    let workspace = Workspace::new();
    let run = workspace.path().join("root/run");
    std::fs::create_dir(&run).unwrap();
    let variable = [("XDG_RUNTIME_DIR", run.to_str().unwrap())];
    let expected = ["it contains", "XDG_RUNTIME_DIR"];
    for root in ["root", "root/run"] {
        for secret in [&["--ask", "page"][..], &["--http", "127.0.0.1:0"]] {
            workspace.refused(&[secret, &[root]].concat(), &variable, &expected);
        }
    }
    assert_eq!(std::fs::read_dir(&run).unwrap().count(), 0);
    // Without a file for a secret there is nothing to hold.
    let mut client = workspace.program(&["root"]);
    let ended = client.envs(variable).stdin(Stdio::null()).status().unwrap();
    assert!(ended.success());
}

#[test]
fn unknown_resources_of_scopes_are_rejected() {
    let workspace = Workspace::new();
    for (scope, expected) in [
        ("write:fiel", "did you mean `file`?"),
        ("execute:comands", "did you mean `command`?"),
    ] {
        workspace.refused(
            &["--deny-scopes", scope, "root"],
            &[],
            &["--deny-scopes (item 1)", "unknown resource", expected],
        );
        workspace.refused(
            &["root"],
            &[("BAILIWICK_DENY_SCOPES", scope)],
            &["BAILIWICK_DENY_SCOPES", expected],
        );
    }
    workspace.accepted(&["--deny-scopes", "write:file", "root"], &[]);
}

#[test]
fn toolchain_that_contains_a_file_of_the_server_is_rejected() {
    let workspace = Workspace::new();
    workspace.file("tools/servers.json", r#"{"mcpServers":{}}"#);
    workspace.file("tools/config.json", "{}");
    workspace.file("servers.json", r#"{"mcpServers":{}}"#);
    for (flag, file) in [
        ("--config", "tools/config.json"),
        ("--audit", "tools/audit"),
        ("--journal", "tools/journal"),
        ("--servers", "tools/servers.json"),
    ] {
        let arguments = ["--exec", "--toolchain", "tools", flag, file, "root"];
        let pins = ["--pins", "pins"];
        let pins = if flag == "--servers" { &pins[..] } else { &[] };
        workspace.refused(
            &[pins, &arguments].concat(),
            &[],
            &["--toolchain", "it contains", file],
        );
    }
    let pins = ["--servers", "servers.json", "--pins", "tools/pins"];
    let arguments = ["--exec", "--toolchain", "tools", "root"];
    workspace.refused(&[&pins[..], &arguments].concat(), &[], &["tools/pins"]);
    assert!(!workspace.path().join("tools/audit").exists());
}

#[test]
fn refused_start_creates_no_files() {
    let workspace = Workspace::new();
    workspace.file("servers.json", r#"{"mcpServers":{}}"#);
    let servers = ["--servers", "servers.json"];
    let entries = |dir: &str| {
        let entries = std::fs::read_dir(workspace.path().join(dir)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = entries(".");
    for (flag, more) in [
        ("--audit", &[][..]),
        ("--grants", &["--trust", "host"]),
        ("--journal", &[]),
        ("--pins", &servers),
    ] {
        let in_root = [more, &[flag, "root/new", "root"]].concat();
        workspace.refused(
            &in_root,
            &[],
            &["ROOT or --roots (item 1, path)", "it contains", flag],
        );
        workspace.refused(&[more, &[flag, "new", "none"]].concat(), &[], &["none"]);
        assert_eq!(entries("root").len(), 0, "{flag}");
        assert_eq!(entries("."), before, "{flag}");
    }
    workspace.accepted(&["--audit", "new", "root"], &[]);
    assert_eq!(entries(".").len(), before.len() + 1);
}

#[test]
fn invalid_and_unknown_variables_are_named() {
    let workspace = Workspace::new();
    workspace.refused(
        &[],
        &[("BAILIWICK_MAX_CALLS", "many")],
        &["BAILIWICK_MAX_CALLS must be a whole number"],
    );
    workspace.refused(
        &[],
        &[("BAILIWICK_REED_ONLY", "true")],
        &["unknown variable", "BAILIWICK_REED_ONLY"],
    );
    workspace.refused(
        &[],
        &[("BAILIWICK_ROOTS", "")],
        &["BAILIWICK_ROOTS (item 1, path)", "empty"],
    );
    workspace.accepted(&[], &[("BAILIWICK_READ_ONLY", "1"), ("BAILIWICKED", "?")]);
}

#[test]
fn invalid_configuration_file_is_named_with_the_reason() {
    let workspace = Workspace::new();
    let refused = |text: &str, expected: &[&str]| {
        workspace.file("config.json", text);
        workspace.refused(&["--config", "config.json"], &[], expected);
    };
    workspace.refused(
        &["--config", "none.json"],
        &[],
        &["none.json", "cannot read"],
    );
    workspace.refused(&["--config", "root"], &[], &["`root`", "cannot read"]);
    refused("{", &["config.json", "invalid JSON"]);
    refused("[]", &["(file)", "must be an object"]);
    refused(
        r#"{"red_only":true}"#,
        &["(file)", "/red_only", "unknown key"],
    );
    refused(
        r#"{"roots":[{"path":"root"}]}"#,
        &["/roots/0/path", "relative"],
    );
    refused(&" ".repeat((1 << 20) + 1), &["config.json", "larger"]);
    workspace.file("config.json", r#"{"read_only":true}"#);
    workspace.accepted(&["--config", "config.json"], &[]);
}

#[test]
fn duplicate_keys_are_rejected_in_every_source() {
    let workspace = Workspace::new();
    let root = workspace.path().canonicalize().unwrap().join("root");
    let root = |more: &str| json!({"path": root}).to_string().replace("}", more);
    let duplicate = root(r#","deny":["k/**"],"deny":[]}"#);
    for arguments in [[&*duplicate].as_slice(), &["--roots", &duplicate]] {
        workspace.refused(
            arguments,
            &[],
            &["ROOT or --roots cannot be read: duplicate key `deny`"],
        );
    }
    workspace.accepted(&[&root(r#","deny":["k/**"]}"#)], &[]);
    let budget = r#"{"calls":1,"calls":100}"#;
    workspace.refused(
        &["--budget", budget],
        &[],
        &["--budget cannot be read: duplicate key `calls`"],
    );
    workspace.accepted(&["--budget", r#"{"calls":1}"#], &[]);
    let roots = |more: &str| format!("[{}]", root(more));
    let duplicate = roots(r#","access":"read","access":"full"}"#);
    workspace.refused(
        &[],
        &[("BAILIWICK_ROOTS", &duplicate)],
        &["BAILIWICK_ROOTS cannot be read: duplicate key `access`"],
    );
    let once = roots(r#","access":"read"}"#);
    workspace.accepted(&[], &[("BAILIWICK_ROOTS", &once)]);
    workspace.file("config.json", r#"{"read_only":true,"read_only":false}"#);
    workspace.refused(&["--config", "config.json"], &[], &["config.json"]);
    let servers = r#"{"mcpServers":{"a":{"command":"false","command":"true"}}}"#;
    workspace.file("servers.json", servers);
    let arguments = ["--servers", "servers.json", "--pins", "pins"];
    workspace.refused(&arguments, &[], &["duplicate key `command`"]);
    workspace.file("servers.json", r#"{"mcpServers":{}}"#);
    workspace.accepted(&arguments, &[]);
}

#[test]
fn invalid_root_is_named_with_the_reason() {
    let workspace = Workspace::new();
    workspace.file("plain", "");
    workspace.file("root/config.json", "{}");
    let refused = |roots: &[&str], field: &str, reason: &str| {
        workspace.refused(roots, &[], &[field, reason]);
    };
    refused(
        &["root", "none"],
        "ROOT or --roots (item 2, path)",
        "No such file",
    );
    refused(
        &["plain"],
        "ROOT or --roots (item 1, path)",
        "Not a directory",
    );
    refused(
        &["/"],
        "ROOT or --roots (item 1, path)",
        "top of the file system",
    );
    refused(&["/proc"], "ROOT or --roots (item 1, path)", "kernel");
    refused(
        &["root", "root"],
        "ROOT or --roots (item 2, path)",
        "other names",
    );
    refused(
        &["root", "--config=root/config.json"],
        "ROOT or --roots (item 1, path)",
        "keep that elsewhere",
    );
    refused(
        &["root", "--audit=root/audit"],
        "ROOT or --roots (item 1, path)",
        "use another file with --audit",
    );
    workspace.accepted(&["root", "--audit=audit"], &[]);
    std::fs::create_dir(workspace.path().join("root/deep")).unwrap();
    for within in ["--grants=root/grants", "--grants=root/deep/grants"] {
        refused(
            &["--trust=host", "root", within],
            "ROOT or --roots (item 1, path)",
            "use another file with --grants",
        );
    }
    workspace.accepted(&["--trust=host", "root", "--grants=grants"], &[]);
}

#[test]
fn invalid_grant_store_is_named_with_the_reason() {
    let workspace = Workspace::new();
    let refused = |file: &str, reason: &str| {
        let grants = format!("--grants={file}");
        workspace.refused(&["--trust=host", "root", &grants], &[], &[file, reason]);
    };
    refused("none/grants", "No such file");
    workspace.file("other.json", "{}");
    refused("other.json", "is not a grant store");
    workspace.file("later", r#"{"format":"bailiwick-grants","version":3}"#);
    refused("later", "version 3");
    workspace.file("damaged", r#"{"format":"bailiwick-grants","version":2,"#);
    refused("damaged", "damaged.corrupt");
    // What was damaged is out of the way.
    workspace.accepted(&["--trust=host", "root", "--grants=damaged"], &[]);
    let used = bailiwick::permission::GrantStore::open(workspace.path().join("used")).unwrap();
    refused("used", "in use");
    drop(used);
    workspace.accepted(&["--trust=host", "root", "--grants=used"], &[]);
    // Agents are known by the names that clients give themselves.
    for trust in ["--trust=agent", "--trust=client"] {
        let untrusted = ["root", "--grants=used", trust];
        workspace.refused(&untrusted, &[], &["--grants", "--trust host"]);
    }
    let untrusted = ["root", "--grants=used"];
    workspace.refused(&untrusted, &[], &["--grants", "--trust host"]);
}

#[test]
fn broken_audit_is_rejected_with_file_and_line() {
    let workspace = Workspace::new();
    one_reading_is_recorded(&workspace, &json!({}));
    let log = std::fs::read_to_string(workspace.path().join("audit.jsonl")).unwrap();
    let lines: Vec<&str> = log.split_inclusive('\n').collect();
    workspace.file("audit.jsonl", &[lines[0], &lines[2..].concat()].concat());
    let arguments = ["root", "--audit", "audit.jsonl"];
    workspace.refused(
        &arguments,
        &[],
        &["`audit.jsonl` is damaged", "line 2", "found record 2"],
    );
    workspace.refused(
        &["root", "--audit", "none/audit"],
        &[],
        &["`none/audit` cannot be opened"],
    );
    workspace.file("audit.jsonl", &log);
    workspace.accepted(&arguments, &[]);
}

#[test]
fn rejected_handshake_prints_one_line() {
    let workspace = Workspace::new();
    let end_with = |configuration: &Value| {
        let mut server = workspace
            .program(&["--trust=host", "root"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let hello = initialize(&json!({"experimental": {"configuration": configuration}}));
        writeln!(server.stdin.take().unwrap(), "{hello}").unwrap();
        let output = server.wait_with_output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert_eq!(end_with(&json!({})), (Some(0), String::new()));
    assert_eq!(
        end_with(&json!({"max_calls": "x"})),
        (
            Some(1),
            "bailiwick: the handshake was refused: configuration (initialize): /max_calls must be a whole number, 0 or more\n"
                .to_owned()
        )
    );
}

#[test]
fn calls_are_audited_and_stdout_has_only_messages() {
    for capabilities in [
        json!({}),
        json!({"experimental": {"configuration": {"read_only": true}}}),
    ] {
        one_reading_is_recorded(&Workspace::new(), &capabilities);
    }
}

fn one_reading_is_recorded(workspace: &Workspace, capabilities: &Value) {
    workspace.file("root/a.txt", "hello");
    let mut client = workspace.client(&["--audit", "audit.jsonl", "--log", "trace", "root"]);
    ask(&mut client, &initialize(capabilities));
    let read = ask(
        &mut client,
        &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "read_file", "arguments": {"path": "a.txt"},
        }}),
    );
    assert_eq!(read["result"]["content"][0]["text"], "hello", "{read}");
    assert!(end(client).success());
    ended(workspace);
    let others = std::fs::read_dir(workspace.path()).unwrap().count();
    assert_eq!(others, 2, "the root and the one log");
}

#[test]
fn full_audit_file_fails_calls_but_not_the_server() {
    let workspace = Workspace::new();
    workspace.file("root/a.txt", "hello");
    let mut limited = Command::new("/bin/sh");
    limited
        .env_clear()
        .args(["-c", "ulimit -f 16; exec \"$0\" \"$@\""])
        .arg(PROGRAM)
        .arg("serve")
        .args(["--audit", "audit.jsonl", "root"])
        .current_dir(workspace.path());
    let mut client = Server::start(limited.stderr(Stdio::piped()));
    let mut codes = (0..1000).map(|_| {
        let answer = ask(&mut client, &STATELESS);
        let code = answer.pointer("/result/structuredContent/code");
        code.and_then(Value::as_str).map(str::to_owned)
    });
    assert_eq!(codes.next(), Some(None));
    let refused = codes.find(Option::is_some).flatten();
    assert_eq!(refused.as_deref(), Some("IO"));
    assert_eq!(codes.next().flatten().as_deref(), Some("IO"));
    let (status, stderr) = client.end();
    assert_eq!(status.signal(), None);
    for message in [
        "calls are rejected until their records can be written",
        "the last records of the audit are lost",
    ] {
        assert_eq!(stderr.matches(message).count(), 1, "{stderr}");
    }
    assert!(stderr.contains("File too large"), "{stderr}");
}

#[test]
fn audit_is_rotated_at_the_configured_size() {
    let rotated = |bytes: &[&str]| {
        let workspace = Workspace::new();
        workspace.file("root/a.txt", "hello");
        let audit = ["--audit", "audit.jsonl", "root"];
        // The second server continues the last segment of the first.
        for _ in 0..2 {
            let mut client = workspace.client(&[&audit[..], bytes].concat());
            for _ in 0..10 {
                let answer = ask(&mut client, &STATELESS);
                assert_eq!(answer["result"]["content"][0]["text"], "hello", "{answer}");
            }
            assert!(end(client).success());
        }
        let verified = workspace
            .command("verify")
            .arg("audit.jsonl")
            .output()
            .unwrap();
        let verified = String::from_utf8(verified.stdout).unwrap();
        assert!(verified.contains("are intact"), "{verified}");
        let history = workspace
            .command("history")
            .arg("audit.jsonl")
            .output()
            .unwrap();
        assert_eq!(history.status.code(), Some(0));
        let entries = std::fs::read_dir(workspace.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let segments = names
            .filter(|name| name.starts_with("audit.jsonl.0"))
            .count();
        let files = match segments {
            0 => " in 1 file ".to_owned(),
            more => format!(" in {} files ", more + 1),
        };
        assert!(verified.contains(&files), "{verified}");
        segments
    };
    assert!(rotated(&["--audit-segment-bytes", "2000"]) > 3);
    for whole in [&["--audit-segment-bytes=0"][..], &[]] {
        assert_eq!(rotated(whole), 0);
    }
    let workspace = Workspace::new();
    let refused = |arguments: &[&str], part: &str| workspace.refused(arguments, &[], &[part]);
    refused(&["root", "--audit-segment-bytes=2000"], "--audit");
    refused(
        &["root", "--audit=a", "--audit-segment-bytes=x"],
        "audit-segment-bytes",
    );
}

/// That the audit is intact, has the reading, and ends with the end of the last of its workers.
#[track_caller]
fn ended(workspace: &Workspace) {
    let log = std::fs::read_to_string(workspace.path().join("audit.jsonl")).unwrap();
    bailiwick::audit::verify(log.as_bytes()).unwrap();
    assert!(log.contains("read_file"), "{log}");
    let steps: Vec<String> = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| line["event"]["step"].as_str().unwrap().to_owned())
        .collect();
    let count = |step: &str| steps.iter().filter(|one| *one == step).count();
    assert_eq!(count("spawned"), count("worker_stopped"), "{log}");
    assert_eq!(steps.last().unwrap(), "worker_stopped", "{log}");
}

const STATELESS: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","arguments":{"path":"a.txt"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"me","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#;

#[test]
fn shutdown_of_the_shared_stateless_worker_is_audited() {
    let workspace = Workspace::new();
    workspace.file("root/a.txt", "hello");
    let mut client = workspace.client(&["--audit", "audit.jsonl", "root"]);
    let answer = ask(&mut client, &STATELESS);
    assert_eq!(answer["result"]["content"][0]["text"], "hello", "{answer}");
    assert!(end(client).success());
    ended(&workspace);
}

#[test]
fn shutdown_of_the_shared_stateless_worker_is_audited_over_http() {
    let workspace = Workspace::new();
    workspace.file("root/a.txt", "hello");
    let (mut server, address, token) = http_server(&workspace, &["--audit", "audit.jsonl", "root"]);
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /mcp HTTP/1.0\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: read_file\r\n\
         Content-Length: {}\r\n\r\n{STATELESS}",
        STATELESS.len()
    )
    .unwrap();
    let answer = std::io::read_to_string(stream).unwrap();
    assert!(answer.contains("hello"), "{answer}");
    send(&server, Signal::TERM);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    ended(&workspace);
}

/// The result of a write outside the root by the client `me`, from a server with these arguments.
fn writing_outside(workspace: &Workspace, arguments: &[&str]) -> Value {
    let mut client = workspace.client(arguments);
    ask(&mut client, &initialize(&json!({})));
    let path = workspace.path().canonicalize().unwrap().join("outside/new");
    let call = json!({"name": "write_file", "arguments": {"path": path, "content": "x"}});
    let answer = ask(
        &mut client,
        &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}),
    );
    assert!(end(client).success());
    answer
}

#[tokio::test]
async fn permanent_grant_applies_after_restart() {
    let workspace = Workspace::new();
    std::fs::create_dir(workspace.path().join("outside")).unwrap();
    let outside = workspace.path().canonicalize().unwrap().join("outside");
    let store = bailiwick::permission::GrantStore::open(workspace.path().join("grants")).unwrap();
    let builder = bailiwick::Runtime::builder()
        .grantable("write:file")
        .grant_store(store);
    let (runtime, grants) = builder.build().await.unwrap();
    let grant = bailiwick::permission::NewGrant {
        pattern: format!("write:file:{}", outside.display()).parse().unwrap(),
        holder: bailiwick::permission::GrantHolder::Agent("~me".into()),
        lifetime: bailiwick::permission::Lifetime::Agent,
        descendants: false,
    };
    grants.grant(grant).await.unwrap();
    runtime.shutdown().await;
    let denied = writing_outside(&workspace, &["root"]);
    assert_eq!(
        denied["result"]["structuredContent"]["code"], "PERMISSION_DENIED",
        "{denied}"
    );
    let host = ["--trust=host", "--grantable=write:file"];
    let asked = writing_outside(&workspace, &[host[0], host[1], "root"]);
    assert_eq!(
        asked["result"]["structuredContent"]["code"], "SCOPE_REQUIRED",
        "{asked}"
    );
    let done = writing_outside(&workspace, &[host[0], host[1], "--grants=grants", "root"]);
    assert_ne!(done["result"]["isError"], true, "{done}");
    let written = std::fs::read_to_string(outside.join("new"));
    assert_eq!(written.unwrap(), "x");
}

/// The resident memory of a process, in bytes.
fn resident(process: &Child) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", process.id())).unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// A policy with that many globs that are costly to compile, unlike any of another `seed`.
fn costly_policy(seed: u32, globs: usize) -> Value {
    let glob = |index| format!("{seed:04}{index:04}{}", "*?".repeat(46));
    json!({ "deny": (0..globs).map(glob).collect::<Vec<_>>() })
}

fn request(id: u32, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// The next responses.
fn responses(server: &mut Server, count: u32) -> Vec<Value> {
    let messages = std::iter::from_fn(|| server.try_receive());
    let responses = messages.filter(|message| message.get("id").is_some());
    responses.take(count as usize).collect()
}

#[test]
fn largest_client_policies_do_not_retain_memory() {
    const LARGEST: usize = 79;
    const CALLS: u32 = 60;
    let workspace = Workspace::new();
    let mut server = workspace.client(&["root"]);
    server.initialize(&json!({}));
    let call =
        |policy| json!({ "name": "list_roots", "arguments": {}, "_meta": { "policy": policy } });
    let first = server.result("tools/call", call(costly_policy(0, LARGEST)));
    assert_eq!(first["isError"], json!(false));
    let before = resident(server.process());
    for seed in 1..=CALLS {
        let params = call(costly_policy(seed, LARGEST));
        server.send(&request(seed, "tools/call", &params));
    }
    for answer in responses(&mut server, CALLS) {
        assert_eq!(answer["result"]["isError"], json!(false), "{answer}");
    }
    for seed in 1..=CALLS {
        let policy = costly_policy(CALLS + seed, LARGEST);
        let params = json!({ "_meta": { "policy": policy } });
        server.send(&request(seed, "tools/list", &params));
    }
    for answer in responses(&mut server, CALLS) {
        assert!(answer["result"]["tools"].is_array(), "{answer}");
    }
    let grown = resident(server.process()).saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more than before");
    // One glob more is refused, and so is a list that is far too long.
    for globs in [LARGEST + 1, 5_000] {
        let refused = server.request("tools/call", call(costly_policy(0, globs)));
        let refused = &refused["error"];
        assert_eq!(refused["code"], -32602, "{refused}");
        assert_eq!(refused["data"]["kind"], "policy_invalid");
        assert_eq!(refused["data"]["field"], "/deny");
    }
}

/// The ways of clients to start the program that a document shows, as command lines.
fn client_commands(document: &str) -> Vec<Vec<String>> {
    let words = |value: &Value| -> Vec<String> {
        let words = value.as_array().unwrap().iter();
        words
            .map(|word| word.as_str().unwrap().to_owned())
            .collect()
    };
    let mut commands = Vec::new();
    for block in document.split("\n```").skip(1).step_by(2) {
        let (language, text) = block.split_once('\n').unwrap();
        let server = match language {
            "sh" => {
                let added = text.lines().filter_map(|line| line.split_once(" -- "));
                let added = added.map(|(_, command)| command.split(' ').map(ToOwned::to_owned));
                commands.extend(added.map(Iterator::collect::<Vec<_>>));
                continue;
            }
            "json" => {
                let snippet: Value = serde_json::from_str(text).unwrap();
                let servers = snippet.as_object().unwrap().values().next().unwrap();
                servers["files"].clone()
            }
            "toml" => {
                let snippet: toml_edit::DocumentMut = text.parse().unwrap();
                let server = &snippet["mcp_servers"]["files"];
                let arguments = server["args"].as_array().unwrap().iter();
                let arguments: Vec<_> = arguments.map(toml_edit::Value::as_str).collect();
                json!({"command": server["command"].as_str(), "args": arguments})
            }
            other => panic!("unknown language `{other}`"),
        };
        commands.push(match &server["command"] {
            Value::String(program) => [vec![program.clone()], words(&server["args"])].concat(),
            command => words(command),
        });
    }
    commands
}

#[test]
fn client_configurations_of_the_guide_start_the_program() {
    let guide = include_str!("../../mcp/src/guide/clients.md");
    let section = guide.split("\n## Add it to a client\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let commands = client_commands(section);
    assert_eq!(commands.len(), 6);
    for command in commands {
        let [program, serve, arguments @ ..] = command.as_slice() else {
            panic!("too short a command: {command:?}");
        };
        assert_eq!([program, serve], ["bailiwick", "serve"]);
        let workspace = Workspace::new();
        let root = |word: &String| word.replace("/path/to/project", "root");
        let arguments: Vec<_> = arguments.iter().map(root).collect();
        assert!(arguments.contains(&"root".to_owned()), "{command:?}");
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let mut client = workspace.client(&arguments);
        let answer = ask(&mut client, &initialize(&json!({})));
        assert!(answer["result"]["serverInfo"].is_object(), "{answer}");
        assert!(end(client).success(), "{command:?}");
    }
}

#[test]
fn help_shows_examples() {
    let workspace = Workspace::new();
    for flag in ["-h", "--help"] {
        for mut command in [workspace.command(flag), workspace.program(&[flag])] {
            let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
            assert!(
                text.contains("\nExamples:\n  bailiwick serve ./my-repo "),
                "{text}"
            );
        }
    }
}

#[test]
fn missing_or_unknown_command_is_rejected() {
    let workspace = Workspace::new();
    let output = |mut command: Command| command.output().unwrap();
    for (refused, part) in [
        (output(Command::new(PROGRAM)), "missing command"),
        (output(workspace.command("./root")), "./root"),
        (output(workspace.command("--read-only")), "--read-only"),
    ] {
        let stderr = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.starts_with("bailiwick: ") && stderr.contains(part),
            "{stderr}"
        );
        assert!(refused.stdout.is_empty());
    }
}

#[test]
fn print_flags_need_no_command() {
    let workspace = Workspace::new();
    for flag in [
        "--print-config-schema",
        "--ai-help",
        "--skill",
        "--registry-entry",
    ] {
        let alone = workspace.command(flag).output().unwrap();
        assert!(
            alone.status.success() && !alone.stdout.is_empty(),
            "{alone:?}"
        );
        assert_eq!(alone.stdout, workspace.run(&[flag], &[]).stdout);
    }
}
