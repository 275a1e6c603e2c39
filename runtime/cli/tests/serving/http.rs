//! Tests of the HTTP transport with raw requests.

use crate::eras::configured;
use bailiwick_mcp::gateway::{Endpoint, Gateway, GatewayInfo, Http, HttpError, Token, Trust};
use bailiwick_test_support::client::Client;
use bailiwick_test_support::http::{Response, send};
use bailiwick_test_support::server::Server;
use bailiwick_test_support::wait;
use bailiwick_test_support::workspace::Workspace;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::Command;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const JSON: (&str, &str) = ("Content-Type", "application/json");
pub(crate) const ACCEPT: (&str, &str) = ("Accept", "application/json, text/event-stream");

/// A gateway on a free loopback port; it closes when this goes.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    _stop: DropGuard,
}

impl Served {
    pub(crate) async fn of(gateway: &Gateway, http: Http) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (gateway, stop) = (gateway.clone(), CancellationToken::new());
        let child = stop.clone();
        let stopped = child.cancelled_owned();
        tokio::spawn(async move { gateway.serve_http(listener, http, stopped).await });
        Self {
            address,
            _stop: stop.drop_guard(),
        }
    }

    /// One that somebody else stops.
    pub(crate) fn reached(address: SocketAddr) -> Self {
        Self {
            address,
            _stop: CancellationToken::new().drop_guard(),
        }
    }

    pub(crate) fn at(endpoint: &Endpoint) -> Self {
        let address = endpoint.url().strip_prefix("http://").unwrap();
        Self::reached(address.strip_suffix("/mcp").unwrap().parse().unwrap())
    }

    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    pub(crate) async fn post(&self, headers: &[(&str, &str)], body: &Value) -> Response {
        request(self.address, "POST", headers, &body.to_string()).await
    }

    /// A request of a client that does everything right, with `headers` besides.
    pub(crate) async fn right(&self, headers: &[(&str, &str)], body: &Value) -> Response {
        let host = self.host();
        let mut all = vec![("Host", host.as_str()), JSON, ACCEPT];
        all.extend(headers);
        self.post(&all, body).await
    }

    /// A handshake; the session's name and the answer.
    pub(crate) async fn open_session(&self) -> (String, Value) {
        let reply = self.right(&[], &initialize()).await;
        let session = reply.header("mcp-session-id").unwrap().to_owned();
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let accepted = self.right(&[("Mcp-Session-Id", &session)], &ready).await;
        assert_eq!(accepted.status, 202);
        (session, reply.message())
    }

    pub(crate) async fn ask(&self, session: &str, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let reply = self.right(&[("Mcp-Session-Id", session)], &request).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.message()
    }
}

/// Speaks HTTP/1.0, so that the answer ends where the connection does.
pub(crate) async fn request(
    address: SocketAddr,
    method: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    request_at(address, method, "/mcp", headers, body).await
}

async fn request_at(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    let headers = headers.iter();
    let headers = headers.map(|(name, value)| format!("{name}: {value}"));
    let head: Vec<_> = std::iter::once(format!("{method} {path} HTTP/1.0"))
        .chain(headers)
        .collect();
    let head: Vec<_> = head.iter().map(String::as_str).collect();
    send(address, &head, body).await
}

pub(crate) fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    }})
}

/// A stateless request and the headers it needs.
fn modern(method: &str, mut params: Value) -> (Value, [(&'static str, String); 3]) {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let name = params["name"].as_str().unwrap_or("none").to_owned();
    let headers = [
        ("MCP-Protocol-Version", "2026-07-28".to_owned()),
        ("Mcp-Method", method.to_owned()),
        ("Mcp-Name", name),
    ];
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    (request, headers)
}

pub(crate) async fn stateless(
    served: &Served,
    token: Option<&str>,
    method: &str,
    params: Value,
) -> Response {
    let (request, headers) = modern(method, params);
    let bearer = token.map(|token| format!("Bearer {token}"));
    let mut all: Vec<(&str, &str)> = headers.iter().map(|(k, v)| (*k, v.as_str())).collect();
    if !method.ends_with("/call") {
        all.pop();
    }
    all.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
    served.right(&all, &request).await
}

#[tokio::test]
async fn configuration_of_a_stateless_request_over_http_denies_its_write() {
    let workspace = Workspace::new();
    let server = served(&workspace, Http::without_token()).await;
    let write = json!({"name": "write_file", "arguments": {"path": "/r/new", "content": "x"}});
    let (request, headers) = modern("tools/call", write);
    let headers: Vec<(&str, &str)> = headers.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let mut restricted = request.clone();
    let meta = configured(&json!({"read_only": true}));
    for (key, value) in meta.as_object().unwrap() {
        restricted["params"]["_meta"][key] = value.clone();
    }
    let denied = server.right(&headers, &restricted).await.message();
    let code = &denied["result"]["structuredContent"]["code"];
    assert_eq!(code, "PERMISSION_DENIED", "{denied}");
    assert!(!workspace.path("r/new").exists());
    let done = server.right(&headers, &request).await.message();
    assert_eq!(done["result"]["isError"], false, "{done}");
    assert_eq!(workspace.read("r/new"), "x");
}

pub(crate) async fn served(workspace: &Workspace, http: Http) -> Served {
    Served::of(&workspace.gateway(Trust::Agent).build(), http).await
}

#[tokio::test]
async fn other_origins_are_rejected() {
    let workspace = Workspace::new();
    let server = served(
        &workspace,
        Http::without_token().origin("http://localhost:5173"),
    )
    .await;
    let port = server.address.port();
    for own in [
        format!("http://127.0.0.1:{port}"),
        format!("http://localhost:{port}"),
        "http://localhost:5173".to_owned(),
    ] {
        let reply = server.right(&[("Origin", &own)], &initialize()).await;
        assert_eq!(reply.status, 200, "{own}: {reply:?}");
    }
    for foreign in [
        "http://evil.example",
        "http://127.0.0.1",
        "http://localhost:1",
        "https://localhost:5173",
        "null",
        &format!("http://127.0.0.1:{port}.evil.example"),
    ] {
        let reply = server.right(&[("Origin", foreign)], &initialize()).await;
        assert_eq!(reply.status, 403, "{foreign}: {reply:?}");
    }
}

#[tokio::test]
async fn other_hosts_are_rejected() {
    let workspace = Workspace::new();
    let server = served(&workspace, Http::without_token()).await;
    let port = server.address.port();
    for own in ["127.0.0.1", "localhost", "[::1]"] {
        let host = format!("{own}:{port}");
        let reply = server
            .post(&[("Host", &host), JSON, ACCEPT], &initialize())
            .await;
        assert_eq!(reply.status, 200, "{host}: {reply:?}");
    }
    for foreign in [
        "evil.example",
        &format!("evil.example:{port}"),
        "127.0.0.1:1",
    ] {
        let reply = server
            .post(&[("Host", foreign), JSON, ACCEPT], &initialize())
            .await;
        assert_eq!(reply.status, 403, "{foreign}: {reply:?}");
    }
}

#[tokio::test]
async fn allowed_hosts_are_compared_exactly() {
    let workspace = Workspace::new();
    let http = Http::without_token()
        .host("mcp.example")
        .host("localhost:9");
    let server = served(&workspace, http).await;
    let own = server.host();
    for host in ["mcp.example", "MCP.example", "localhost:9", &own] {
        let reply = server
            .post(&[("Host", host), JSON, ACCEPT], &initialize())
            .await;
        assert_eq!(reply.status, 200, "{host}: {reply:?}");
    }
    let origin = [("Host", "mcp.example"), ("Origin", "http://mcp.example")];
    let reply = server
        .post(&[origin[0], origin[1], JSON, ACCEPT], &initialize())
        .await;
    assert_eq!(reply.status, 403, "{reply:?}");
    for host in [
        "mcp.example:80",
        "x.mcp.example",
        "localhost",
        "localhost:99",
    ] {
        let reply = server
            .post(&[("Host", host), JSON, ACCEPT], &initialize())
            .await;
        assert_eq!(reply.status, 403, "{host}: {reply:?}");
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_not_found_without_a_token() {
    let workspace = Workspace::new();
    let server = served(&workspace, Http::new(Token::random().unwrap())).await;
    let host = server.host();
    let host = [("Host", host.as_str())];
    for (method, path, status) in [
        ("GET", "/.well-known/oauth-protected-resource", 404),
        ("GET", "/.well-known/oauth-protected-resource/mcp", 404),
        ("GET", "/.well-known/oauth-authorization-server", 404),
        ("GET", "/.well-known/openid-configuration", 404),
        ("POST", "/register", 404),
        ("OPTIONS", "/mcp", 404),
        ("GET", "/mcp", 401),
        ("POST", "/mcp", 401),
        ("DELETE", "/mcp", 401),
    ] {
        let reply = request_at(server.address, method, path, &host, "").await;
        assert_eq!(reply.status, status, "{method} {path}: {reply:?}");
        let asks = reply.header("www-authenticate");
        assert_eq!(asks.is_some(), status == 401, "{reply:?}");
    }
    let foreign = [("Host", "evil.example")];
    let path = "/.well-known/oauth-protected-resource";
    let reply = request_at(server.address, "GET", path, &foreign, "").await;
    assert_eq!(reply.status, 403, "{reply:?}");
}

#[tokio::test]
async fn rejected_bodies_get_json_rpc_errors() {
    let workspace = Workspace::new();
    let server = served(&workspace, Http::without_token().max_body(10_000)).await;
    let host = server.host();
    let host = ("Host", host.as_str());
    let text = ("Content-Type", "text/plain");
    let typed = ("Content-Type", "application/json; charset=utf-8");
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    let long = format!(r#"{{"id":7,"method":"{}"}}"#, "x".repeat(12_000));
    for (kind, body, status, code, id) in [
        (text, list, 415, -32600, json!(null)),
        (JSON, "", 400, -32700, json!(null)),
        (JSON, "{", 400, -32700, json!(null)),
        (typed, "not json", 400, -32700, json!(null)),
        (JSON, r#"{"jsonrpc":"2.0","id":7}"#, 400, -32600, json!(7)),
        (
            JSON,
            r#"{"jsonrpc":"2.0","id":7,"method":3}"#,
            400,
            -32600,
            json!(7),
        ),
        (
            JSON,
            r#"{"jsonrpc":"2.0","id":7,"method":"m","params":3}"#,
            400,
            -32600,
            json!(7),
        ),
        (JSON, "7", 400, -32600, json!(null)),
        (JSON, "[]", 400, -32600, json!(null)),
        (JSON, &long, 413, -32600, json!(null)),
    ] {
        let reply = request(server.address, "POST", &[host, kind, ACCEPT], body).await;
        assert_eq!(reply.status, status, "{body}: {reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/json"));
        let answer: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(answer["error"]["code"], code, "{body}: {answer}");
        assert_eq!(answer["id"], id, "{body}: {answer}");
    }
    let headers = [host, typed, ACCEPT];
    let right = request(server.address, "POST", &headers, &initialize().to_string()).await;
    assert_eq!(right.status, 200, "{right:?}");
}

#[tokio::test]
async fn large_message_is_answered_in_both_eras() {
    let workspace = Workspace::new();
    let server = served(&workspace, Http::without_token()).await;
    let (session, _) = server.open_session().await;
    let write = |path: &str| {
        let arguments = json!({"path": path, "content": "x".repeat(300_000)});
        json!({"name": "write_file", "arguments": arguments})
    };
    let written = server.ask(&session, "tools/call", write("/r/one")).await;
    assert_eq!(written["result"]["isError"], false, "{written}");
    let written = stateless(&server, None, "tools/call", write("/r/two")).await;
    assert_eq!(written.message()["result"]["isError"], false);
    assert_eq!(
        workspace.read("r/one").len() + workspace.read("r/two").len(),
        600_000
    );
}

#[tokio::test]
async fn requests_require_the_bearer_token() {
    let workspace = Workspace::new();
    let token = Token::random().unwrap();
    let server = served(&workspace, Http::new(token.clone())).await;
    let right = format!("Bearer {}", token.reveal());
    let reply = server
        .right(&[("Authorization", &right)], &initialize())
        .await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let other = format!("Bearer {}", Token::random().unwrap().reveal());
    for wrong in [
        None,
        Some("Bearer"),
        Some("Basic eDp5"),
        Some(other.as_str()),
    ] {
        let headers: Vec<_> = wrong
            .map(|wrong| ("Authorization", wrong))
            .into_iter()
            .collect();
        let reply = server.right(&headers, &initialize()).await;
        assert_eq!(reply.status, 401, "{wrong:?}: {reply:?}");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        assert!(!reply.body.contains(token.reveal()));
    }
}

#[tokio::test]
async fn session_id_does_not_replace_the_token() {
    let workspace = Workspace::new();
    let token = Token::random().unwrap();
    let server = served(&workspace, Http::new(token.clone())).await;
    let right = format!("Bearer {}", token.reveal());
    let reply = server
        .right(&[("Authorization", &right)], &initialize())
        .await;
    let session = reply.header("mcp-session-id").unwrap();
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let bare = server.right(&[("Mcp-Session-Id", session)], &list).await;
    assert_eq!(bare.status, 401, "{bare:?}");
    let with = [
        ("Mcp-Session-Id", session),
        ("Authorization", right.as_str()),
    ];
    assert_eq!(server.right(&with, &list).await.status, 200);
}

#[tokio::test]
async fn oversized_body_is_rejected() {
    let workspace = Workspace::new();
    let server = served(&workspace, Http::without_token().max_body(10_000)).await;
    let (session, _) = server.open_session().await;
    let call = |bytes: usize| {
        let arguments = json!({"path": "/r/big", "content": "x".repeat(bytes)});
        let params = json!({"name": "write_file", "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params})
    };
    let long = server
        .right(&[("Mcp-Session-Id", &session)], &call(20_000))
        .await;
    assert_eq!(long.status, 413, "{long:?}");
    assert!(!workspace.path("r/big").exists());
    let short = server
        .right(&[("Mcp-Session-Id", &session)], &call(5_000))
        .await;
    assert_eq!(short.status, 200, "{short:?}");
    assert_eq!(workspace.read("r/big").len(), 5_000);
}

#[tokio::test]
async fn accept_content_type_and_revision_headers_are_checked() {
    let workspace = Workspace::new();
    let server = served(&workspace, Http::without_token()).await;
    let host = server.host();
    let host = ("Host", host.as_str());
    let deaf = server.post(&[host, JSON], &initialize()).await;
    assert_eq!(deaf.status, 406, "{deaf:?}");
    let text = ("Content-Type", "text/plain");
    let untyped = server.post(&[host, text, ACCEPT], &initialize()).await;
    assert_eq!(untyped.status, 415, "{untyped:?}");
    let (session, _) = server.open_session().await;
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    for (version, status) in [("2025-11-25", 200), ("1999-01-01", 400), ("x", 400)] {
        let headers = [
            ("Mcp-Session-Id", session.as_str()),
            ("MCP-Protocol-Version", version),
        ];
        let reply = server.right(&headers, &list).await;
        assert_eq!(reply.status, status, "{version}: {reply:?}");
    }
}

#[tokio::test]
async fn deleted_and_unknown_sessions_are_not_found() {
    let workspace = Workspace::new();
    let server = served(&workspace, Http::without_token()).await;
    let (session, _) = server.open_session().await;
    let host = server.host();
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let own = [("Mcp-Session-Id", session.as_str())];
    assert_eq!(server.right(&own, &list).await.status, 200);
    let headers = [("Host", host.as_str()), own[0]];
    let deleted = request(server.address, "DELETE", &headers, "").await;
    assert_eq!(deleted.status, 204, "{deleted:?}");
    assert_eq!(server.right(&own, &list).await.status, 404);
    let again = request(server.address, "DELETE", &headers, "").await;
    assert_eq!(again.status, 404, "{again:?}");
    let unknown = [("Mcp-Session-Id", "00000000-0000-0000-0000-000000000000")];
    assert_eq!(server.right(&unknown, &list).await.status, 404);
}

#[tokio::test]
async fn lists_are_the_same_over_stdio_and_http() {
    let workspace = Workspace::new();
    let gateway = workspace.gateway(Trust::Agent).build();
    let server = Served::of(&gateway, Http::without_token()).await;
    let (session, over_http) = server.open_session().await;
    let mut lines = Client::new(&gateway);
    let over_stdio = lines.initialize("2025-11-25", json!({})).await;
    assert_eq!(over_http["result"], over_stdio["result"]);
    assert!(over_http["result"]["capabilities"]["configSchema"].is_object());
    for method in [
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
    ] {
        let there = server.ask(&session, method, json!({})).await;
        let here = lines.request(method, json!({})).await;
        assert_eq!(there["result"], here["result"], "{method}");
    }
    for method in ["server/discover", "tools/list", "resources/list"] {
        let there = stateless(&server, None, method, json!({})).await;
        assert_eq!(there.status, 200, "{there:?}");
        let mut other = Client::new(&gateway);
        let here = other.request_stateless(method, json!({}), json!({})).await;
        assert_eq!(there.message()["result"], here["result"], "{method}");
    }
    let tools = server.ask(&session, "tools/list", json!({})).await;
    assert!(tools["result"]["tools"][0]["_meta"]["scopes"].is_array());
}

#[tokio::test]
async fn only_loopback_listeners_are_served() {
    let workspace = Workspace::new();
    let gateway = workspace.gateway(Trust::Agent).build();
    let open = TcpListener::bind(("0.0.0.0", 0)).await.unwrap();
    let refused = gateway
        .serve_http(open, Http::without_token(), std::future::pending())
        .await;
    assert!(
        matches!(refused, Err(HttpError::NotLoopback(_))),
        "{refused:?}"
    );
    let (session, _) = served(&workspace, Http::without_token())
        .await
        .open_session()
        .await;
    assert!(!session.is_empty());
}

#[tokio::test]
async fn each_session_has_its_own_worker() {
    let workspace = Workspace::new();
    let server = served(&workspace, Http::without_token()).await;
    let ((one, _), (other, _)) = (server.open_session().await, server.open_session().await);
    let arguments = json!({"path": "/r/new", "content": "x"});
    let write = json!({"name": "write_file", "arguments": arguments});
    let written = server.ask(&one, "tools/call", write).await;
    assert_ne!(written["result"]["isError"], true, "{written}");
    let uris = async |session: &str| -> Vec<String> {
        let list = server.ask(session, "resources/list", json!({})).await;
        let resources = list["result"]["resources"].as_array().unwrap();
        let uris = resources
            .iter()
            .map(|one| one["uri"].as_str().unwrap().to_owned());
        uris.filter(|uri| uri.starts_with("ui://")).collect()
    };
    let made = uris(&one).await;
    assert!(!made.is_empty());
    assert_eq!(uris(&other).await, Vec::<String>::new());
    let own = server
        .ask(&one, "resources/read", json!({"uri": made[0]}))
        .await;
    assert!(own["result"].is_object(), "{own}");
    let stolen = server
        .ask(&other, "resources/read", json!({"uri": made[0]}))
        .await;
    assert!(stolen["error"].is_object(), "{stolen}");
}

pub(crate) fn about() -> GatewayInfo {
    GatewayInfo {
        name: "bailiwick-test".into(),
        title: "Bailiwick under test".into(),
        version: "0.0.0".into(),
        instructions: "Use the tools.".into(),
    }
}

#[tokio::test]
async fn endpoint_serves_its_worker_until_revocation() {
    let workspace = Workspace::new();
    let (_runtime, worker) = workspace.worker().await;
    let endpoint = Endpoint::open(&worker, about(), None).await.unwrap();
    let server = Served::at(&endpoint);
    let address = server.address;
    let token = endpoint.token().reveal().to_owned();
    let read = json!({"name": "read_file", "arguments": {"path": "/r/a.txt"}});
    let bare = stateless(&server, None, "tools/call", read.clone()).await;
    assert_eq!(bare.status, 401, "{bare:?}");
    let reply = stateless(&server, Some(&token), "tools/call", read).await;
    let text = &reply.message()["result"]["content"][0]["text"];
    assert_eq!(text, "one\ntwo\nthree\n", "{reply:?}");
    UnixStream::connect(endpoint.socket()).await.unwrap();
    worker.revoke().await;
    wait::until_idle().await;
    assert!(TcpStream::connect(address).await.is_err());
    assert!(UnixStream::connect(endpoint.socket()).await.is_err());
    let socket = endpoint.socket().to_owned();
    drop(endpoint);
    assert!(!socket.exists());
}

#[tokio::test]
async fn request_after_revocation_is_rejected() {
    let workspace = Workspace::new();
    let (_runtime, worker) = workspace.worker().await;
    let gateway = Gateway::worker(&worker, about()).build();
    let server = Served::of(&gateway, Http::without_token()).await;
    let arguments = json!({"path": "/r/new", "content": "x"});
    let write = json!({"name": "write_file", "arguments": arguments});
    let before = stateless(&server, None, "tools/call", write.clone()).await;
    assert_ne!(before.message()["result"]["isError"], true, "{before:?}");
    std::fs::remove_file(workspace.path("r/new")).unwrap();
    worker.revoke().await;
    let after = stateless(&server, None, "tools/call", write).await;
    let code = &after.message()["result"]["structuredContent"]["code"];
    assert_eq!(code, "CANCELLED", "{after:?}");
    assert!(!workspace.path("r/new").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attached_sub_agent_uses_its_worker_until_revocation() {
    let workspace = Workspace::new();
    let (_runtime, worker) = workspace.worker().await;
    let endpoint = Endpoint::open(&worker, about(), None).await.unwrap();
    let mut agent = Command::new(crate::PROGRAM);
    agent
        .args(["serve", "--attach"])
        .arg(endpoint.socket())
        .env_clear();
    let mut agent = Server::start(&mut agent);
    agent.initialize(&json!({}));
    let read = json!({"name": "read_file", "arguments": {"path": "/r/a.txt"}, "_meta": {"granted_scopes": ["*"]}});
    let answer = agent.request("tools/call", read);
    assert!(answer["result"].is_object(), "{answer}");
    worker.revoke().await;
    assert!(
        agent.try_receive().is_none(),
        "the connection closes with the worker"
    );
    assert!(
        agent.process().wait().unwrap().success(),
        "and the program ends, though its input is open"
    );
}
