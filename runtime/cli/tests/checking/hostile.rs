//! Tests with servers that hang, flood, exit or send invalid messages.

use bailiwick_test_support::checks::outcomes;

use crate::servers::server;
use crate::support::{Run, check};

/// Checks the server of this mode within 3 seconds.
async fn checked(mode: &'static str) -> Run {
    let server = server(mode);
    let arguments = ["--timeout", "3"];
    check(&[&arguments[..], &server].concat()).await
}

/// The server that a script is cannot be reached, for this reason.
async fn unreachable(script: &str, cause: &str) {
    let run = check(&["--timeout", "4", "sh", "-c", script]).await;
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{script}");
    assert!(
        run.stderr.starts_with("bailiwick: cannot connect: ") && run.stderr.contains(cause),
        "{script}: {}",
        run.stderr
    );
    assert!(!run.stderr.contains('\u{1b}'), "{}", run.stderr);
}

#[tokio::test]
async fn exited_server_is_reported_with_status_and_stderr() {
    for (script, cause) in [
        ("exit 3", "the server ended (exit status: 3)"),
        ("kill -9 $$", "the server ended (signal: 9 (SIGKILL))"),
        (
            "echo no licence >&2; exit 1",
            "the server ended (exit status: 1); its standard error ends with `no licence`",
        ),
        (
            r"printf '\033[31mred\n' >&2; exit 1",
            r"its standard error ends with `\u{1b}[31mred`",
        ),
        (
            "cat /dev/zero",
            "the server sent a line of more than 4194304 bytes, and was killed",
        ),
    ] {
        unreachable(script, cause).await;
    }
}

#[tokio::test]
async fn server_without_a_response_is_killed_at_the_deadline() {
    let late = "no response to `initialize` within ";
    let stderr = " s; its standard error ends with `y`";
    let notifications = r#"yes '{"jsonrpc":"2.0","method":"notifications/x"}'"#;
    let pings = r#"yes '{"jsonrpc":"2.0","id":7,"method":"ping"}'"#;
    tokio::join!(
        unreachable("sleep 600", late),
        unreachable("yes", late),
        unreachable("yes >&2", stderr),
        unreachable(notifications, late),
        unreachable(pings, late),
    );
}

#[tokio::test]
async fn server_that_closes_its_output_but_keeps_running_is_killed() {
    let run = check(&["sh", "-c", "exec >&-; sleep 600"]).await;
    assert_eq!(run.code, 2);
    let cause = "the server closed the connection, and was killed";
    assert!(run.stderr.contains(cause), "{}", run.stderr);
}

#[tokio::test]
async fn rejected_handshake_means_unreachable() {
    let run = checked("refuses").await;
    assert_eq!(run.code, 2);
    let expected =
        "bailiwick: cannot connect: `initialize` failed with -32000: \\u{1b}[31mno licence\n";
    assert_eq!(run.stderr, expected);
}

#[tokio::test]
async fn unknown_revision_fails() {
    let run = checked("future").await;
    let detail = run.report().detail("connect").to_owned();
    assert_eq!(
        (run.code, detail.as_str()),
        (1, "unknown revision `2099-01-01`")
    );
}

#[tokio::test]
async fn list_timeout_names_the_list() {
    let run = checked("silent").await;
    let report = run.report();
    assert_eq!(run.code, 1);
    assert!(
        report
            .detail("lists")
            .starts_with("no response to `tools/list` within "),
        "{}",
        run.stdout
    );
}

#[tokio::test]
async fn call_timeouts_respect_the_overall_deadline() {
    let run = checked("hangs").await;
    let report = run.report();
    assert_eq!(run.code, 1);
    assert!(
        report
            .detail("tools.unknown")
            .starts_with("no response to `tools/call` within ")
    );
    assert_eq!(
        report.detail("tools.result"),
        "hangs: the overall timeout has expired"
    );
}

#[tokio::test]
async fn notification_flood_does_not_block_responses() {
    let run = checked("flood").await;
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert_eq!(outcomes(&run.report())["methods.unknown"], "pass");
}

#[tokio::test]
async fn names_are_escaped_and_details_are_bounded() {
    let run = checked("escapes").await;
    assert_eq!(run.code, 1);
    let expected = "`\\u{1b}[31m\\u{202e}red` is not a valid name";
    assert_eq!(run.report().detail("tools.names"), expected);
    assert!(!run.stdout.contains(['\u{1b}', '\u{202e}']));

    let run = checked("long").await;
    let report = run.report();
    let detail = report.detail("tools.names");
    assert!(detail.ends_with("; and 1992 more"), "{detail}");
    assert!(detail.len() < 3_000, "{}", detail.len());
}

#[tokio::test]
async fn schema_that_is_too_costly_is_a_warning() {
    let run = checked("costly").await;
    assert_eq!(run.code, 0, "{}", run.stdout);
    let report = run.report();
    assert_eq!(outcomes(&report)["tools.schemas"], "warn");
    assert!(
        report
            .detail("tools.schemas")
            .starts_with("costly: inputSchema is not checked: ")
    );
}

#[tokio::test]
async fn required_argument_without_a_description_is_a_warning() {
    let run = checked("undescribed").await;
    assert_eq!(run.code, 0, "{}", run.stdout);
    let report = run.report();
    assert_eq!(outcomes(&report)["tools.annotations"], "warn");
    let expected = "undescribed: inputSchema requires `a` and does not describe it";
    assert_eq!(report.detail("tools.annotations"), expected);
    assert!(
        run.stdout.contains(", 1 with a warning, "),
        "{}",
        run.stdout
    );
}
