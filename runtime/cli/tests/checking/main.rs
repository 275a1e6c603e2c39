//! Tests of `bailiwick check`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, in its helpers too, and makes the directories that are served"
)]

mod children;
mod command_line;
mod guide;
mod hostile;
mod http;
mod servers;
mod support;
#[cfg(feature = "tls")]
mod tls;

use bailiwick_test_support::checks::{expected, outcomes};
use bailiwick_test_support::invalid_server;
use serde_json::json;

use servers::server;
use support::{Place, check};

#[test]
fn invalid_server_process() {
    invalid_server::serve();
}

#[tokio::test]
async fn own_program_passes_over_stdio_in_both_revisions() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_bailiwick");
    for revision in ["2025-11-25", "2026-07-28"] {
        let arguments = ["--revision", revision, program, "serve", place.root()];
        let run = check(&arguments).await;
        assert_eq!(run.code, 0, "{}", run.stdout);
        assert_eq!(outcomes(&run.report()), expected("pass", &[]));
    }
    // Nothing that could be previewed is listed.
    let arguments = [
        "--configuration",
        r#"{"read_only": true}"#,
        program,
        "serve",
    ];
    let run = check(&[&arguments[..], &[place.root()]].concat()).await;
    let report = run.report();
    assert_eq!(outcomes(&report), expected("pass", &[("preview", "skip")]));
    place.assert_unchanged();
}

#[tokio::test]
async fn wrong_server_fails_the_expected_checks() {
    let run = check(&invalid_server::command("invalid_server_process")).await;
    assert_eq!(run.code, 1, "{}", run.stdout);
    let report = run.report();
    let passing = [("connect", "pass"), ("lists", "pass")];
    assert_eq!(outcomes(&report), expected("fail", &passing));
    for (check, part) in [
        ("apps", "its type is not"),
        ("policy.expansion", "is not refused by an error"),
        ("preview", "a second preview differs from the first"),
        ("tools.annotations", "read-only and destructive"),
        (
            "tools.intents",
            "one group repeats for several arrays: a, b",
        ),
        ("tools.names", "`twice` is listed twice"),
        (
            "tools.result",
            "structured: the structured content does not match the output schema: `/n`: value is not of type \"integer\"",
        ),
        (
            "tools.schemas",
            "schema: inputSchema is not a valid JSON Schema: `/type`: ",
        ),
        ("wire.form", "invalid JSON"),
    ] {
        let detail = report.detail(check);
        assert!(detail.contains(part), "{check}: {detail}");
    }
}

#[tokio::test]
async fn report_has_a_line_for_each_check_and_a_summary() {
    let run = check(&server("minimal")).await;
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let expected = "\
pass  connect               revision 2025-11-25
pass  lists                 0 tools, 0 views
pass  tools.names           0 tools
pass  tools.schemas         0 tools
skip  tools.intents         no tool has an intent template
pass  tools.annotations     0 tools
skip  configuration.schema  the server has no configuration
skip  dashdash              the server has none
skip  tools.unknown         the server has no tools
pass  methods.unknown       refused with -32601
skip  tools.result          no tool is read-only and needs no arguments
skip  preview               no tool can be previewed
skip  policy.expansion      no tool is read-only
skip  apps                  the server has no views
pass  wire.form             5 messages
15 checks: 7 passed, 8 skipped
";
    assert_eq!(run.stdout, expected);
}

#[tokio::test]
async fn json_report_has_the_documented_members() {
    let target = server("minimal");
    let arguments = [&["--json"][..], &target].concat();
    let run = check(&arguments).await;
    let mut report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["target"], target.join(" "));
    let checks = report["checks"].as_array_mut().unwrap();
    assert_eq!(checks.len(), 15);
    checks.truncate(2);
    assert_eq!(
        report,
        json!({
            "target": target.join(" "),
            "revision": "2025-11-25",
            "reached": true,
            "counts": {"pass": 7, "warn": 0, "fail": 0, "skip": 8},
            "checks": [
                {"check": "connect", "outcome": "pass", "detail": "revision 2025-11-25"},
                {"check": "lists", "outcome": "pass", "detail": "0 tools, 0 views"},
            ],
        })
    );

    let run = check(&["--json", "/nowhere/server"]).await;
    assert_eq!(run.code, 2);
    let cause = "cannot start `/nowhere/server`: No such file or directory (os error 2)";
    assert_eq!(run.stderr, format!("bailiwick: cannot connect: {cause}\n"));
    let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        report,
        json!({
            "target": "/nowhere/server",
            "revision": "2025-11-25",
            "reached": false,
            "counts": {"pass": 0, "warn": 0, "fail": 1, "skip": 0},
            "checks": [{"check": "connect", "outcome": "fail", "detail": cause}],
        })
    );
}
