//! Tests with third-party servers and Chromium.

use bailiwick_cli::check::{self, Connection, Outcome, Target};
use bailiwick_test_support::checks::{Checks, expected, outcomes};
use bailiwick_test_support::temp_files::TempFiles;
use bailiwick_test_support::{npm, playwright};
use serde_json::json;

use crate::{PROGRAM, invalid_server, serving_with};

/// The path of the program of a sample server.
fn program(name: &str) -> String {
    let file = npm::sample_server(name).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Runs the checks. Returns whether none failed, and the checks.
async fn checked(program: &str, arguments: &[&str]) -> (bool, Checks) {
    let target = Target::command(program, arguments);
    let within = std::time::Duration::from_secs(120);
    let report = check::run(
        target,
        Connection::default(),
        within,
        std::future::pending(),
    )
    .await;
    let report = report.unwrap();
    let checks = report.checks().iter().map(|check| {
        let result = (check.outcome.as_str().to_owned(), check.detail.clone());
        (check.check.to_owned(), result)
    });
    (report.count(Outcome::Fail) == 0, checks.collect())
}

#[tokio::test]
async fn npm_file_server_passes() {
    let dir = tempfile::tempdir().unwrap();
    let server = program("mcp-server-filesystem");
    let (passed, checks) = checked(&server, &[dir.path().to_str().unwrap()]).await;
    assert!(passed, "{checks:?}");
    let differing = [
        ("apps", "skip"),
        ("configuration.schema", "skip"),
        ("dashdash", "skip"),
        ("policy.expansion", "skip"),
        ("preview", "skip"),
        ("tools.intents", "skip"),
        ("tools.unknown", "warn"),
    ];
    assert_eq!(outcomes(&checks), expected("pass", &differing));
}

#[tokio::test]
async fn view_of_the_official_sample_server_is_read() {
    let server = program("mcp-server-basic-vanillajs");
    let (passed, checks) = checked(&server, &["--stdio"]).await;
    assert!(passed, "{checks:?}");
    let apps = (
        "pass".to_owned(),
        "1 view, none connects to other machines".to_owned(),
    );
    assert_eq!(checks["apps"], apps);
}

/// Files that `bailiwick serve` serves: the directory `repo`, and one outside of it.
fn files() -> TempFiles {
    TempFiles::new(&[
        ("repo/README.md", "# Demo\n"),
        ("repo/src/limits.rs", "pub const RETRIES: u32 = 3;\n"),
        ("outside/todo.txt", "outside of the root\n"),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn page_works_with_real_servers_in_a_browser() {
    let samples = [
        ("view", "mcp-server-basic-vanillajs", Some("--stdio")),
        ("budget", "mcp-budget-allocator-server", Some("--stdio")),
        ("cohorts", "mcp-cohort-heatmap-server", Some("--stdio")),
        (
            "customers",
            "mcp-customer-segmentation-server",
            Some("--stdio"),
        ),
        ("system", "mcp-system-monitor-server", Some("--stdio")),
        ("everything", "mcp-server-everything", None),
    ]
    .map(|(name, server, argument)| (name, program(server), argument));
    let invalid = invalid_server();
    // The user who started the server may grant permissions, by repeating a call or by answering a form.
    // The program rejects variables that are not its own, and the server inherits the variables of the tests.
    let own = ["env", "-u", "BAILIWICK_CASES", "-u", "BAILIWICK_BLESS"];
    let options = ["serve", "--trust=host", "--grantable=write:file"];
    let serve = [&own[..], &[PROGRAM], &options].concat();
    let replay = [&serve[..], &["--ask=replay"]].concat();
    let asks = [
        &replay[..],
        &["--allow-scopes=read:file", "--ask-scopes=write:file"],
    ]
    .concat();
    let elicit = [&serve[..], &["--ask=client"]].concat();
    let stateless = Connection {
        revision: "2026-07-28".parse().unwrap(),
        ..Connection::default()
    };
    let mut hosts = Vec::new();
    for (name, command, connection) in [
        ("edit", &replay, Connection::default()),
        ("scopes", &replay, Connection::default()),
        ("asks", &asks, Connection::default()),
        ("configuration", &replay, Connection::default()),
        ("policy", &replay, Connection::default()),
        ("checks", &replay, Connection::default()),
        ("elicit", &elicit, Connection::default()),
        ("stateless", &elicit, stateless),
    ] {
        let files = files();
        let root = files.path("repo");
        let command = [&command[..], &[root.to_str().unwrap()]].concat();
        let host = serving_with(&command, connection).await;
        hosts.push((name, host, Some(files)));
    }
    for (name, server, argument) in &samples {
        let command: Vec<&str> = std::iter::once(server.as_str()).chain(*argument).collect();
        let host = serving_with(&command, Connection::default()).await;
        hosts.push((name, host, None));
    }
    let host = serving_with(&invalid, Connection::default()).await;
    hosts.push(("wrong", host, None));
    let urls = hosts.iter().map(|(name, host, _)| (*name, host.url()));
    let urls: std::collections::BTreeMap<_, _> = urls.collect();
    let urls = json!(urls).to_string();
    let done = tokio::task::spawn_blocking(move || {
        let script = ["--config", "playwright.live.config.ts", "live/test-host.ts"];
        playwright::run(&script, &[("BAILIWICK_TEST_HOSTS", urls.as_ref())]);
    });
    let done = done.await;
    for (_, host, _files) in hosts {
        host.shutdown().await;
    }
    done.unwrap();
}
