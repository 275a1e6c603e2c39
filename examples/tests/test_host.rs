//! Servers of ours and of others in, what the test host finds out about them out; and a browser on its page.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

#[path = "../examples/test_host/app.rs"]
mod app;
#[path = "test_host/door.rs"]
mod door;
#[path = "test_host/page.rs"]
mod page;
#[path = "../../ui-assets/tests/support/person.rs"]
mod person;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bailiwick::{About, Gateway, Http, Policy, Runtime, Token, WorkerSpec};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What each check came to, and its detail.
type Checks = BTreeMap<String, (String, String)>;

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Runs `check --json` with these arguments; whether it would exit with 0, and its lines.
async fn checked(arguments: &[&str]) -> (bool, Checks) {
    let mut out = Vec::new();
    let arguments = [words(&["check", "--json"]), words(arguments)].concat();
    let passed = app::run(arguments, false, &mut out).await.unwrap();
    let lines = String::from_utf8(out).unwrap();
    let text = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
    let checks = lines.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        let came = (text(&line, "outcome"), text(&line, "detail"));
        (text(&line, "check"), came)
    });
    (passed, checks.collect())
}

fn outcomes(checks: &Checks) -> BTreeMap<&str, &str> {
    let outcomes = checks.iter();
    outcomes
        .map(|(check, (outcome, _))| (check.as_str(), outcome.as_str()))
        .collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node")
}

/// The program of a package that others wrote, installed if it is not there yet.
fn program(name: &str) -> String {
    person::node::install(&folder());
    let file = folder().join("node_modules/.bin").join(name);
    file.to_str().unwrap().to_owned()
}

fn wrong() -> String {
    folder().join("wrong.mjs").to_str().unwrap().to_owned()
}

const ALL: [&str; 14] = [
    "apps",
    "configuration.schema",
    "connect",
    "dashdash",
    "methods.unknown",
    "policy.expansion",
    "preview",
    "tools.annotations",
    "tools.intents",
    "tools.names",
    "tools.result",
    "tools.schemas",
    "tools.unknown",
    "wire.form",
];

/// Every check, all with the same outcome but those that are named.
fn expected<'a>(most: &'a str, but: &[(&'a str, &'a str)]) -> BTreeMap<&'a str, &'a str> {
    let mut all: BTreeMap<&str, &str> = ALL.into_iter().map(|check| (check, most)).collect();
    all.extend(but.iter().copied());
    all
}

#[tokio::test]
async fn the_own_server_passes_every_check_in_both_revisions() {
    for arguments in [
        &[][..],
        &["--elicit"],
        &["--revision", "2026-07-28"],
        &["--configuration", r#"{"read_only": true}"#],
    ] {
        let (passed, checks) = checked(arguments).await;
        let apps = outcomes(&checks)["apps"].to_owned();
        assert_eq!(outcomes(&checks), expected("pass", &[("apps", &apps)]));
        assert!(passed, "{checks:?}");
    }
}

#[tokio::test]
async fn without_a_word_and_a_terminal_the_own_server_is_checked() {
    let mut out = Vec::new();
    assert!(app::run(Vec::new(), false, &mut out).await.unwrap());
    let told = String::from_utf8(out).unwrap();
    assert!(told.starts_with("pass  connect"), "{told}");
}

#[tokio::test]
async fn a_server_that_is_wrong_in_every_way_fails_every_check() {
    let (passed, checks) = checked(&["node", &wrong()]).await;
    assert!(!passed);
    assert_eq!(outcomes(&checks), expected("fail", &[("connect", "pass")]));
    for (check, words) in [
        ("apps", "its type is not"),
        ("policy.expansion", "is not refused by an error"),
        ("preview", "answers a second preview in another way"),
        ("tools.annotations", "read-only and destructive"),
        (
            "tools.intents",
            "one group repeats for several arrays: a, b",
        ),
        ("tools.names", "`twice` is there twice"),
        ("tools.result", "is not as its schema says"),
        ("tools.schemas", "inputSchema is no schema"),
        ("wire.form", "it is no JSON"),
    ] {
        let (_, detail) = &checks[check];
        assert!(detail.contains(words), "{check}: {detail}");
    }
}

#[tokio::test]
async fn the_npm_file_server_has_nothing_that_fails() {
    let place = tempfile::tempdir().unwrap();
    let server = program("mcp-server-filesystem");
    let (passed, checks) = checked(&["--", &server, place.path().to_str().unwrap()]).await;
    assert!(passed, "{checks:?}");
    let but = [
        ("apps", "skip"),
        ("configuration.schema", "skip"),
        ("dashdash", "skip"),
        ("policy.expansion", "skip"),
        ("preview", "skip"),
        ("tools.intents", "skip"),
        ("tools.unknown", "warn"),
    ];
    assert_eq!(outcomes(&checks), expected("pass", &but));
}

#[tokio::test]
async fn a_page_of_the_official_sample_server_is_read() {
    let server = program("mcp-server-basic-vanillajs");
    let (passed, checks) = checked(&[&server, "--stdio"]).await;
    assert!(passed, "{checks:?}");
    let apps = (
        "pass".to_owned(),
        "1 pages, none reaches the network".to_owned(),
    );
    assert_eq!(checks["apps"], apps);
}

/// A worker on `place` behind HTTP on loopback; its address.
async fn over_http(place: &Path, token: Token, stop: CancellationToken) -> String {
    let builder = Runtime::builder().root("r", place);
    let (runtime, _grants) = builder.tools(bailiwick_fs::tools()).build().await.unwrap();
    let spec = WorkerSpec::new("agent").policy(Policy::new());
    let worker = runtime.spawn(spec).await.unwrap();
    let about = About {
        name: "http".into(),
        title: "Over HTTP".into(),
        version: "1".into(),
        instructions: String::new(),
    };
    let gateway = Gateway::worker(&worker, about).build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let _runtime = runtime;
        let http = Http::new(token);
        gateway.serve_http(listener, http, stop).await.unwrap();
    });
    format!("http://{address}/mcp")
}

#[tokio::test]
async fn a_server_over_http_is_checked_in_both_revisions_and_nothing_is_changed() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("notes.txt"), "one\ntwo\nthree\n").unwrap();
    let token = Token::random().unwrap();
    let stop = CancellationToken::new();
    let url = over_http(place.path(), token.clone(), stop.clone()).await;
    for revision in ["2025-11-25", "2026-07-28"] {
        let arguments = ["--url", &url, "--revision", revision];
        let with = [&arguments[..], &["--bearer", token.reveal()]].concat();
        let (passed, checks) = checked(&with).await;
        assert!(passed, "{checks:?}");
        assert_eq!(outcomes(&checks)["policy.expansion"], "pass");
        // Without the token it is a server that nobody can meet.
        let (passed, checks) = checked(&arguments).await;
        assert!(!passed);
        assert_eq!(outcomes(&checks), BTreeMap::from([("connect", "fail")]));
    }
    stop.cancel();
    let left: Vec<_> = fs::read_dir(place.path()).unwrap().collect();
    assert_eq!(left.len(), 1);
    let text = fs::read_to_string(place.path().join("notes.txt")).unwrap();
    assert_eq!(text, "one\ntwo\nthree\n");
}

#[tokio::test]
async fn arguments_that_mean_nothing_or_exclude_each_other_are_refused() {
    let refused = |arguments: &[&str]| app::Options::read(words(arguments), false).is_err();
    for arguments in [
        &["check", "--serve"][..],
        &["--json", "--serve"],
        &["check", "--port", "1"],
        &["--port", "1"],
        &["--url", "http://x/", "node", "server.js"],
        &["--url", "https://x/"],
        &["--bearer", "secret"],
        &["--elicit", "node", "server.js"],
        &["--revision", "1999-01-01"],
        &["--configuration", "[]"],
        &["--nonsense"],
        &["--url"],
    ] {
        assert!(refused(arguments), "{arguments:?}");
    }
    for arguments in [
        &["check"][..],
        &["check", "--json"],
        &["--serve", "--port", "1"],
        &["node", "server.js", "--json"],
        &["--url", "http://x/", "--bearer", "secret"],
        &[
            "--elicit",
            "--revision",
            "2026-07-28",
            "--configuration",
            "{}",
        ],
        &["check", "--", "check"],
    ] {
        assert!(!refused(arguments), "{arguments:?}");
    }
}

/// A host that serves its page for this server.
async fn serving(arguments: &[&str]) -> app::Serving {
    let arguments = [words(&["--serve"]), words(arguments)].concat();
    let options = app::Options::read(arguments, false).unwrap();
    app::serve(options).await.unwrap()
}

#[tokio::test]
async fn a_server_ends_with_its_host_even_if_it_would_rather_stay() {
    for stay in ["", "1"] {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("pid");
        let file = file.to_str().unwrap();
        let script = r#"echo $$ >"$1"; STAY="$2" exec node "$3""#;
        let host = serving(&["sh", "-c", script, "sh", file, stay, &wrong()]).await;
        let state = door::Page::of(&host).ask("state", &json!({})).await;
        assert_eq!(state["status"], "ready", "{state}");
        let id = fs::read_to_string(file).unwrap();
        let process = PathBuf::from("/proc").join(id.trim());
        assert!(process.exists());
        host.shutdown().await;
        let gone = async {
            while process.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let gone = tokio::time::timeout(Duration::from_secs(30), gone).await;
        assert!(gone.is_ok(), "{} is still there", process.display());
    }
}

#[tokio::test]
async fn what_a_server_started_ends_with_it() {
    let started = tempfile::NamedTempFile::new().unwrap();
    let place = started.path().to_str().unwrap();
    let script = r#"sleep 600 </dev/null >/dev/null 2>&1 & echo $! >"$0"; exec node "$1""#;
    checked(&["sh", "-c", script, place, &wrong()]).await;
    let pid = fs::read_to_string(started.path()).unwrap();
    let stat = format!("/proc/{}/stat", pid.trim());
    // Whoever takes over what has no parent may be slow to bury it.
    let lives = || fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
    let ended = async {
        while lives() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(60), ended).await;
    assert!(in_time.is_ok(), "it lives on");
}
