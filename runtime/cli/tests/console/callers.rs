//! Tests of the console's authorization.

use bailiwick_console::Console;
use bailiwick_console::ConsoleError;
use bailiwick_test_support::console::ConsoleServer;
use bailiwick_test_support::http::send;
use serde_json::json;
use tokio::net::TcpListener;

#[tokio::test]
async fn requests_require_the_secret() {
    let stage = ConsoleServer::new().await;
    let host = format!("Host: {}", stage.address);
    let right = format!("Authorization: Bearer {}", stage.token);
    let wrong = format!("Authorization: Bearer {}", "0".repeat(64));
    for path in [
        "/api/state",
        "/api/events/0",
        "/api/review/a-1",
        "/api/call/a-1",
        "/api/agent/a-1",
        "/api/nothing",
    ] {
        let get = format!("GET {path} HTTP/1.1");
        for lines in [vec![&*get, &host], vec![&get, &host, &wrong]] {
            let reply = send(&stage.address, &lines, "").await;
            // Unknown paths are not distinguished from existing ones.
            assert!(
                matches!(reply.status, 401 | 404) && reply.body.len() < 64,
                "{path}: {reply:?}"
            );
            assert!(
                path == "/api/nothing" || reply.status == 401,
                "{path}: {reply:?}"
            );
        }
    }
    for (path, body) in [
        ("/api/revoke-where", r#"{"all":true}"#),
        ("/api/activity", "{}"),
        ("/api/pause", r#"{"worker":"a-1","paused":true}"#),
        ("/api/stop-worker", r#"{"worker":"a-1"}"#),
    ] {
        let post = format!("POST {path} HTTP/1.1");
        let reply = send(&stage.address, &[&post, &host], body).await;
        assert_eq!(reply.status, 401, "{path}");
    }
    let reply = send(
        &stage.address,
        &["GET /api/state HTTP/1.1", &host, &right],
        "",
    )
    .await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json()["questions"], json!([]));
}

#[tokio::test]
async fn other_origins_and_hosts_are_rejected() {
    let stage = ConsoleServer::new().await;
    let own = format!("Host: {}", stage.address);
    let right = format!("Authorization: Bearer {}", stage.token);
    let port = stage.address.rsplit_once(':').unwrap().1;
    let (page, state) = ("GET / HTTP/1.1", "GET /api/state HTTP/1.1");
    let activity = "GET /activity HTTP/1.1";
    let mine = format!("Origin: http://localhost:{port}");
    for (lines, status) in [
        (vec![page, &own], 200),
        (vec![page, "Host: evil.example"], 403),
        (vec![activity, &own], 200),
        (vec![activity, "Host: evil.example"], 403),
        (vec![state, &own, &right, &mine], 200),
        (vec![state, "Host: evil.example", &right], 403),
        (
            vec![state, &own, &right, "Origin: http://evil.example"],
            403,
        ),
        (vec![state, &own, &right, "Origin: null"], 403),
        (vec![state, &own, &own, &right], 400),
    ] {
        let reply = send(&stage.address, &lines, "").await;
        assert_eq!(reply.status, status, "{lines:?}");
    }
}

#[tokio::test]
async fn pages_have_no_data_and_cannot_be_framed_or_cached() {
    let stage = ConsoleServer::new().await;
    let host = format!("Host: {}", stage.address);
    for path in ["/", "/activity", "/permissions"] {
        let get = format!("GET {path} HTTP/1.1");
        let page = send(&stage.address, &[&get, &host], "").await;
        assert!(page.body.contains("<!doctype html>") && !page.body.contains(&stage.token));
        assert!(page.body.contains("default-src 'none'"));
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        for (name, value) in [
            ("x-frame-options", "deny"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
            ("cross-origin-resource-policy", "same-origin"),
            ("set-cookie", ""),
        ] {
            let header = page.header(name).unwrap_or_default();
            assert!(header.eq_ignore_ascii_case(value), "{name}: {header}");
        }
    }
    let state = stage.get("/api/state").await;
    assert_eq!(state.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn unexpected_requests_are_rejected() {
    let stage = ConsoleServer::new().await;
    for (path, body, status, code) in [
        ("/api/revoke-where", r#"{"verb":"write"}"#, 200, None),
        (
            "/api/revoke-where",
            r#"{"verb":"write","x":1}"#,
            400,
            Some("MALFORMED"),
        ),
        (
            "/api/revoke-where",
            r#"{"verb":"write","verb":"read"}"#,
            400,
            Some("MALFORMED"),
        ),
        ("/api/revoke-where", "{", 400, Some("MALFORMED")),
        ("/api/revoke-where", "{}", 400, Some("NOTHING_NAMED")),
        ("/api/history", "{}", 200, None),
        (
            "/api/history",
            r#"{"agnet":"main"}"#,
            400,
            Some("MALFORMED"),
        ),
        (
            "/api/narrow",
            r#"{"grant":"x","uses":1}"#,
            404,
            Some("NO_GRANT"),
        ),
        (
            "/api/grant",
            r#"{"run":"x","pattern":"write:file:/repo","holder":{"agent":"main"},"lifetime":"agent"}"#,
            404,
            Some("NO_RUN"),
        ),
    ] {
        let reply = stage.post_text(path, body).await;
        assert_eq!(reply.status, status, "{path} {body}: {reply:?}");
        if let Some(code) = code {
            assert_eq!(reply.code(), code, "{body}");
        }
    }
    let long = format!(r#"{{"agent":"{}"}}"#, "a".repeat(300 << 10));
    assert_eq!(stage.post_text("/api/history", &long).await.status, 413);
    let host = format!("Host: {}", stage.address);
    let right = format!("Authorization: Bearer {}", stage.token);
    let plain = [
        "POST /api/history HTTP/1.1",
        &host,
        &right,
        "Content-Type: text/plain",
    ];
    assert_eq!(send(&stage.address, &plain, "{}").await.status, 415);
}

#[tokio::test]
async fn only_loopback_addresses_are_served() {
    let everywhere = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let refused = Console::serve(everywhere).unwrap_err();
    assert!(matches!(refused, ConsoleError::NotLoopback(_)));
    let here = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let console = Console::serve(here).unwrap();
    assert!(!format!("{console:?}").contains("Token(\""));
    console.shutdown().await;
}
