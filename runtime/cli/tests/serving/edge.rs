//! Tests of the HTTP server with hostile clients.

use crate::http::{ACCEPT, JSON, Served, about, initialize, request, served, stateless};
use bailiwick_mcp::gateway::{Endpoint, Http, Token, Trust};
use bailiwick_test_support::client::Client;
use bailiwick_test_support::http::Response;
use bailiwick_test_support::wait;
use bailiwick_test_support::workspace::Workspace;
use rmcp::ServerHandler;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a server on a busy machine may take for what is bounded to far less.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends what is given and nothing more; what comes until the server hangs up.
async fn begun(address: SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let reading = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer));
    // A server that hangs up on bytes it did not read resets the connection.
    let _ = reading.await.expect("the server hangs up");
    String::from_utf8(answer).unwrap()
}

async fn under(server: &Served, lines: &[(&str, &str)], token: Option<&str>) -> Response {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let mut all = vec![JSON, ACCEPT];
    all.extend(lines);
    all.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
    server.post(&all, &initialize()).await
}

/// Who is refused by what a request calls the server, and that who is not is served.
async fn judges_hosts(server: &Served, token: Option<&str>) {
    let own = server.host();
    let port = server.address.port();
    for host in [&own, &format!("LOCALHOST:{port}")] {
        let reply = under(server, &[("Host", host)], token).await;
        assert_eq!(reply.status, 200, "{host}: {reply:?}");
    }
    let none: [&[(&str, &str)]; 3] = [
        &[],
        &[("Host", &own), ("Host", &own)],
        &[("Host", &own), ("Host", "evil.example")],
    ];
    for lines in none {
        let reply = under(server, lines, token).await;
        assert_eq!(reply.status, 400, "{lines:?}: {reply:?}");
        assert_eq!(reply.body, "exactly one Host is required");
    }
    for host in [
        format!("me@{own}"),
        format!("{own}, {own}"),
        format!("127.0.0.1:0{port}"),
        format!("localhost.:{port}"),
        format!("127.1:{port}"),
        format!("http://{own}"),
        "127.0.0.1".to_owned(),
        "localhost".to_owned(),
        String::new(),
    ] {
        let reply = under(server, &[("Host", &host)], token).await;
        assert_eq!(reply.status, 403, "{host}: {reply:?}");
        assert_eq!(
            reply.body,
            "this Host is not served; the server can allow it (`--allow-host`)"
        );
    }
}

/// The same by the page that a request comes from.
async fn judges_origins(server: &Served, token: Option<&str>) {
    let own = server.host();
    let page = format!("http://{own}");
    let right = under(server, &[("Host", &own), ("Origin", &page)], token).await;
    assert_eq!(right.status, 200, "{right:?}");
    for origin in [
        format!("http://me@{own}"),
        format!("http://me:secret@{own}"),
        format!("{page}/"),
        format!("{page}#x"),
        format!("{page} http://evil.example"),
        format!("{page}, http://evil.example"),
        format!("https://{own}"),
        "http://127.0.0.1".to_owned(),
        "null".to_owned(),
        String::new(),
    ] {
        let reply = under(server, &[("Host", &own), ("Origin", &origin)], token).await;
        assert_eq!(reply.status, 403, "{origin}: {reply:?}");
        assert_eq!(
            reply.body,
            "this Origin is not served; the server can allow it (`--allow-origin`)"
        );
    }
    for second in [page.as_str(), "http://evil.example"] {
        let lines = [
            ("Host", own.as_str()),
            ("Origin", &page),
            ("Origin", second),
        ];
        let reply = under(server, &lines, token).await;
        assert_eq!(reply.status, 403, "{second}: {reply:?}");
    }
}

#[tokio::test]
async fn host_and_origin_are_compared_exactly() {
    let workspace = Workspace::new();
    let server = served(&workspace, Http::without_token()).await;
    judges_hosts(&server, None).await;
    judges_origins(&server, None).await;
}

#[tokio::test]
async fn endpoint_compares_host_and_origin_exactly() {
    let workspace = Workspace::new();
    let (_runtime, worker) = workspace.worker().await;
    let endpoint = Endpoint::open(&worker, about(), None).await.unwrap();
    let server = Served::at(&endpoint);
    let token = Some(endpoint.token().reveal());
    judges_hosts(&server, token).await;
    judges_origins(&server, token).await;
}

#[tokio::test]
async fn request_target_must_not_name_another_host() {
    let workspace = Workspace::new();
    let server = served(&workspace, Http::without_token()).await;
    let own = server.host();
    let body = initialize().to_string();
    for (target, status) in [(own.as_str(), 200), ("evil.example", 403)] {
        let text = format!(
            "POST http://{target}/mcp HTTP/1.0\r\nHost: {own}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let reply = Response::parse(&begun(server.address, &text).await).unwrap();
        assert_eq!(reply.status, status, "{target}: {reply:?}");
    }
}

#[tokio::test]
async fn handshake_beyond_the_session_limit_gets_503() {
    let workspace = Workspace::new();
    let server = served(&workspace, Http::without_token().max_sessions(2)).await;
    let ((first, _), (second, _)) = (server.open_session().await, server.open_session().await);
    let refused = server.right(&[], &initialize()).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert!(refused.body.contains("sessions are taken"), "{refused:?}");
    let listed = server.ask(&second, "tools/list", json!({})).await;
    assert!(listed["result"].is_object(), "{listed}");
    let without = stateless(&server, None, "tools/list", json!({})).await;
    assert_eq!(without.status, 200, "{without:?}");
    let host = server.host();
    let headers = [("Host", host.as_str()), ("Mcp-Session-Id", first.as_str())];
    let deleted = request(server.address, "DELETE", &headers, "").await;
    assert_eq!(deleted.status, 204, "{deleted:?}");
    let (third, _) = server.open_session().await;
    assert!(![first, second].contains(&third));
}

#[tokio::test]
async fn idle_session_ends_and_frees_its_slot() {
    let workspace = Workspace::new();
    let http = Http::without_token()
        .idle(Duration::from_secs(1))
        .max_sessions(1);
    let server = served(&workspace, http).await;
    let (session, _) = server.open_session().await;
    let host = server.host();
    let headers = [
        ("Host", host.as_str()),
        ("Accept", "text/event-stream"),
        ("Mcp-Session-Id", session.as_str()),
    ];
    let listening = request(server.address, "GET", &headers, "");
    let reply = tokio::time::timeout(PATIENCE, listening).await;
    let reply = reply.expect("the stream of an idle session ends");
    assert_eq!(reply.status, 200, "{reply:?}");
    wait::until_idle().await;
    let again = server.right(&[], &initialize()).await;
    assert_eq!(again.status, 200, "{again:?}");
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let gone = server.right(&[("Mcp-Session-Id", &session)], &list).await;
    assert_eq!(gone.status, 404, "{gone:?}");
}

/// A connection on which one request was answered, and that is kept.
async fn kept(server: &Served, token: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let body = initialize().to_string();
    let text = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAuthorization: Bearer {token}\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        server.host(),
        body.len()
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).await.unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200");
    stream
}

#[tokio::test]
async fn connection_beyond_the_limit_gets_503() {
    let workspace = Workspace::new();
    let token = Token::random().unwrap();
    let http = Http::new(token.clone()).max_connections(2);
    let server = served(&workspace, http).await;
    let held = [
        kept(&server, token.reveal()).await,
        kept(&server, token.reveal()).await,
    ];
    let bearer = format!("Bearer {}", token.reveal());
    let carries = [("Authorization", bearer.as_str())];
    let refused = server.right(&carries, &initialize()).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert!(
        refused.body.contains("connections are taken"),
        "{refused:?}"
    );
    drop(held);
    wait::until_idle().await;
    let served = server.right(&carries, &initialize()).await;
    assert_eq!(served.status, 200, "{served:?}");
}

#[tokio::test]
async fn incomplete_requests_do_not_block_authorised_clients() {
    let workspace = Workspace::new();
    let token = Token::random().unwrap();
    let server = served(&workspace, Http::new(token.clone())).await;
    let mut first = kept(&server, token.reveal()).await;
    let mut heads = Vec::new();
    for _ in 0..600 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        // One that had to make room already is reset.
        let _ = stream.write_all(b"POST /mcp HTTP/1.1\r\nHost").await;
        heads.push(stream);
    }
    let answer = under(&server, &[("Host", &server.host())], Some(token.reveal())).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    // The client that was there before is kept.
    first
        .write_all(b"GET /mcp HTTP/1.1\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let reading = tokio::time::timeout(PATIENCE, first.read_to_end(&mut rest));
    reading.await.unwrap().unwrap();
    let rest = String::from_utf8_lossy(&rest);
    assert!(rest.contains("exactly one Host is required"), "{rest}");
}

#[tokio::test]
async fn cors_allows_only_configured_origins() {
    let workspace = Workspace::new();
    let token = Token::random().unwrap();
    let origin = "https://app.example";
    let server = served(&workspace, Http::new(token.clone()).origin(origin)).await;
    let own = server.host();
    let preflight = async |origin: &str, host: &str| {
        let lines = [
            ("Host", host),
            ("Origin", origin),
            ("Access-Control-Request-Method", "POST"),
            (
                "Access-Control-Request-Headers",
                "authorization,content-type,mcp-protocol-version,mcp-param-x,x-other",
            ),
        ];
        request(server.address, "OPTIONS", &lines, "").await
    };
    let allowed = preflight(origin, &own).await;
    assert_eq!(allowed.status, 204, "{allowed:?}");
    let header = |reply: &Response, name: &str| reply.header(name).unwrap_or_default().to_owned();
    assert_eq!(header(&allowed, "access-control-allow-origin"), origin);
    assert_eq!(
        header(&allowed, "access-control-allow-headers"),
        "authorization, content-type, mcp-protocol-version, mcp-param-x"
    );
    assert!(header(&allowed, "access-control-allow-methods").contains("POST"));
    for (origin, host) in [
        ("https://evil.example", own.as_str()),
        (origin, "evil.example"),
    ] {
        let refused = preflight(origin, host).await;
        assert_eq!(refused.status, 403, "{refused:?}");
        assert!(refused.header("access-control-allow-origin").is_none());
    }
    let page = [("Host", own.as_str()), ("Origin", origin)];
    let answered = under(&server, &page, Some(token.reveal())).await;
    assert_eq!(answered.status, 200, "{answered:?}");
    assert_eq!(header(&answered, "access-control-allow-origin"), origin);
    assert!(header(&answered, "access-control-expose-headers").contains("mcp-session-id"));
    // A preflight is no way around the token, and a page learns that it lacks one.
    let without = under(&server, &page, None).await;
    assert_eq!(without.status, 401, "{without:?}");
    assert_eq!(header(&without, "access-control-allow-origin"), origin);
    let foreign = [("Host", own.as_str()), ("Origin", "https://evil.example")];
    let refused = under(&server, &foreign, Some(token.reveal())).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(refused.header("access-control-allow-origin").is_none());
}

#[tokio::test]
async fn invalid_message_is_rejected_with_its_id() {
    let workspace = Workspace::new();
    let server = served(&workspace, Http::without_token()).await;
    let many = format!("[{}]", vec!["1"; 60_000].join(","));
    for (body, code) in [
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"a":"\ud800"}}"#.to_owned(),
            -32700,
        ),
        (
            r#"{"jsonrpc":"1.0","id":7,"method":"tools/list"}"#.to_owned(),
            -32600,
        ),
        (
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{{"a":{many}}}}}"#),
            -32600,
        ),
    ] {
        let reply = post_body(&server, &[], &body).await;
        assert_eq!(reply.status, 400, "{reply:?}");
        let answer: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!(7), &json!(code))
        );
    }
}

#[tokio::test]
async fn experimental_capabilities_may_be_plain_true_over_http() {
    let workspace = Workspace::new();
    let server = served(&workspace, Http::without_token()).await;
    let mut initialize_request = initialize();
    initialize_request["params"]["capabilities"] = json!({"experimental": {"policy": true}});
    let response = server.right(&[], &initialize_request).await;
    assert_eq!(response.status, 200, "{response:?}");
    assert!(response.message()["result"].is_object(), "{response:?}");
    initialize_request["params"]["capabilities"] = json!({"experimental": {"configuration": true}});
    let refused = server.right(&[], &initialize_request).await;
    let answer: Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(answer["id"], 1);
    assert_eq!(
        answer["error"]["data"]["field"],
        "/capabilities/experimental/configuration"
    );
}

#[tokio::test]
async fn slow_request_is_disconnected() {
    let workspace = Workspace::new();
    let http = Http::without_token().read_timeout(Duration::from_secs(1));
    let server = served(&workspace, http).await;
    let own = server.host();
    assert_eq!(begun(server.address, "").await, "");
    let head = begun(server.address, "POST /mcp HTTP/1.1\r\nHost").await;
    assert!(head.is_empty(), "{head}");
    for length in ["Content-Length: 100", "Transfer-Encoding: chunked"] {
        let text = format!(
            "POST /mcp HTTP/1.1\r\nHost: {own}\r\nContent-Type: application/json\r\n{length}\r\n\r\n5\r\n"
        );
        let reply = Response::parse(&begun(server.address, &text).await).unwrap();
        assert_eq!(reply.status, 408, "{reply:?}");
    }
    let whole = server.right(&[], &initialize()).await;
    assert_eq!(whole.status, 200, "{whole:?}");
}

#[tokio::test]
async fn single_tool_description_matches_the_list() {
    let workspace = Workspace::new();
    let gateway = workspace.gateway(Trust::Agent).build();
    let mut client = Client::new(&gateway);
    // Opens what is shared.
    let listed = client
        .request_stateless("tools/list", json!({}), json!({}))
        .await;
    let listed = listed["result"]["tools"].as_array().unwrap();
    assert!(listed.len() > 5, "{listed:?}");
    for tool in listed {
        let name = tool["name"].as_str().unwrap();
        let mut one = json!(gateway.get_tool(name).unwrap());
        // On the wire it stands beside `_meta`.
        let dashdash = one["_meta"].as_object_mut().unwrap().remove("dashdash");
        assert_eq!(dashdash.as_ref(), tool.get("dashdash"), "{name}");
        for part in [
            "name",
            "description",
            "inputSchema",
            "outputSchema",
            "_meta",
        ] {
            assert_eq!(one[part], tool[part], "{name}/{part}");
        }
    }
    assert!(gateway.get_tool("none").is_none());
}

/// Posts a body as it is, with valid headers and `lines`.
async fn post_body(server: &Served, lines: &[(&str, &str)], body: &str) -> Response {
    let host = server.host();
    let mut all = vec![("Host", host.as_str()), JSON, ACCEPT];
    all.extend(lines);
    request(server.address, "POST", &all, body).await
}

/// A call of `write_file`, with `more` in the message before its parameters.
fn writing(arguments: &str, more: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call",{more}"params":{{"name":"write_file","arguments":{{"content":"x",{arguments}}}}}}}"#
    )
}

#[tokio::test]
async fn duplicate_json_key_is_rejected_as_over_stdio() {
    let workspace = Workspace::new();
    let server = served(&workspace, Http::without_token()).await;
    let (session, _) = server.open_session().await;
    let within = [("Mcp-Session-Id", session.as_str())];
    let path = r#""path":"/r/new""#;
    let other = r#""p\u0061th":"/r/b.txt""#;
    for (body, key) in [
        (writing(&format!("{path},{path}"), ""), "path"),
        (writing(&format!("{other},{path}"), ""), "path"),
        (writing(path, r#""params":{},"#), "params"),
        (
            writing(&format!(r#"{path},"x":{{"\u202e":1,"\u202e":2}}"#), ""),
            "\\u{202e}",
        ),
    ] {
        for lines in [&within[..], &[]] {
            let reply = post_body(&server, lines, &body).await;
            assert_eq!(reply.status, 400, "{reply:?}");
            assert_eq!(reply.header("content-type"), Some("application/json"));
            let answer: Value = serde_json::from_str(&reply.body).unwrap();
            let message = format!("duplicate key `{key}` in an object");
            let error = json!({ "code": -32602, "message": message });
            assert_eq!((&answer["id"], &answer["error"]), (&json!(7), &error));
        }
    }
    // What cannot be a number hides no key behind it.
    let hidden = writing(&format!("{other},{path}"), r#""x":1e999,"#);
    let reply = post_body(&server, &within, &hidden).await;
    assert!((400..500).contains(&reply.status), "{reply:?}");
    assert!(!workspace.path("r/new").exists());
    // The same key may stand in several objects, and the session goes on.
    let twin = writing(path, r#""_meta":{"path":1,"name":2},"#);
    let reply = post_body(&server, &within, &twin).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.message()["result"]["isError"], false, "{reply:?}");
    assert!(workspace.path("r/new").exists());
}
