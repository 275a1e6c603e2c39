//! Tests of the example `test_host`.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests and their helpers panic on failure"
)]

#[path = "test_host/api.rs"]
mod api;
#[path = "../examples/test_host/app.rs"]
mod app;
#[cfg(feature = "interop")]
#[path = "test_host/others.rs"]
mod others;

use std::fs;
use std::path::Path;

use bailiwick_test_support::checks::{Checks, expected, outcomes};
use bailiwick_test_support::{invalid_server, wait};
use serde_json::{Value, json};

#[test]
fn invalid_server_process() {
    invalid_server::serve();
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Runs `check --json` with these arguments. Returns whether no check failed, and the checks.
async fn checked(arguments: &[&str]) -> (bool, Checks) {
    let mut out = Vec::new();
    let arguments = [words(&["check", "--json"]), words(arguments)].concat();
    let passed = app::run(arguments, false, &mut out).await.unwrap();
    let report: Value = serde_json::from_slice(&out).unwrap();
    let text = |check: &Value, key: &str| check[key].as_str().unwrap().to_owned();
    let checks = report["checks"].as_array().unwrap().iter().map(|check| {
        let result = (text(check, "outcome"), text(check, "detail"));
        (text(check, "check"), result)
    });
    (passed, checks.collect())
}

#[tokio::test]
async fn built_in_server_passes_every_check_in_both_revisions() {
    for (arguments, preview) in [
        (&[][..], "pass"),
        (&["--elicit"], "pass"),
        (&["--revision", "2026-07-28"], "pass"),
        // No listed tool can be previewed.
        (&["--configuration", r#"{"read_only": true}"#], "skip"),
    ] {
        let (passed, checks) = checked(arguments).await;
        let apps = outcomes(&checks)["apps"].to_owned();
        let differing = [("apps", &*apps), ("preview", preview)];
        assert_eq!(outcomes(&checks), expected("pass", &differing));
        assert!(passed, "{checks:?}");
    }
}

#[tokio::test]
async fn built_in_server_is_checked_by_default_without_a_terminal() {
    let mut out = Vec::new();
    assert!(app::run(Vec::new(), false, &mut out).await.unwrap());
    let report = String::from_utf8(out).unwrap();
    assert!(report.starts_with("pass  connect"), "{report}");
}

#[tokio::test]
async fn unknown_and_conflicting_arguments_are_rejected() {
    let is_rejected = |arguments: &[&str]| app::Options::parse(words(arguments), false).is_err();
    for arguments in [
        &["check", "--serve"][..],
        &["--json", "--serve"],
        &["check", "--port", "1"],
        &["--port", "1"],
        &["--url", "http://x/", "node", "server.js"],
        &["--url", "ftp://x/"],
        &["--url", "http://x/", "--bearer", "secret"],
        &["--bearer", "secret"],
        &["--elicit", "node", "server.js"],
        &["--revision", "1999-01-01"],
        &["--configuration", "[]"],
        &["--nonsense"],
        &["--url"],
    ] {
        assert!(is_rejected(arguments), "{arguments:?}");
    }
    for arguments in [
        &["check"][..],
        &["check", "--json"],
        &["--serve", "--port", "1"],
        &["node", "server.js", "--json"],
        &["--url", "http://x/"],
        &["--url", "http://localhost/", "--bearer", "secret"],
        &[
            "--elicit",
            "--revision",
            "2026-07-28",
            "--configuration",
            "{}",
        ],
        &["check", "--", "check"],
    ] {
        assert!(!is_rejected(arguments), "{arguments:?}");
    }
}

/// Starts a test host that serves its page, with these arguments.
async fn serving(arguments: &[&str]) -> app::TestHost {
    let arguments = [words(&["--serve"]), words(arguments)].concat();
    let options = app::Options::parse(arguments, false).unwrap();
    app::serve(options).await.unwrap()
}

#[tokio::test]
async fn server_that_ignores_end_of_input_ends_with_its_host() {
    let server = invalid_server::command("invalid_server_process");
    for stay in ["", "1"] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let file = file.to_str().unwrap();
        let script = r#"echo $$ >"$1"; export STAY="$2"; shift 2; exec "$@""#;
        let command = [&["sh", "-c", script, "sh", file, stay][..], &server].concat();
        let host = serving(&command).await;
        let state = api::Page::of(&host).ask("state", &json!({})).await;
        assert_eq!(state["status"], "ready", "{state}");
        let id = fs::read_to_string(file).unwrap();
        let id = id.trim();
        assert!(Path::new("/proc").join(id).exists());
        host.shutdown().await;
        wait::for_exit(id.parse().unwrap()).await;
    }
}
