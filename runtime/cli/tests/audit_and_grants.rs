//! Tests of the commands `history`, `verify`, `grants` and `templates`.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes the directories that are worked in"
)]

use std::path::{Path, PathBuf};
use std::process::Output;

use bailiwick::permission::{
    GrantFilter, GrantHolder, GrantStore, Lifetime, Narrowing, NewGrant, Template,
};
use bailiwick::{
    Answer, JsonLines, Policy, Question, Runtime, Scripted, VirtualPath, Worker, WorkerSpec,
};
use bailiwick_test_support::temp_files::{self, TempFiles};
use bailiwick_test_support::wait;
use serde_json::{Value, json};

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_bailiwick");

struct Workspace {
    files: TempFiles,
}

/// Waits until the run before has released the file, if there was one.
async fn released(file: PathBuf) {
    if file.exists() {
        let waiting = tokio::task::spawn_blocking(move || wait::for_lock(&file));
        waiting.await.unwrap();
    }
}

async fn appended(path: &Path) -> JsonLines {
    released(path.to_owned()).await;
    JsonLines::append(path).unwrap()
}

/// The host's rule: everything is allowed but what is called `secret`.
fn answer(question: &Question) -> Option<Answer> {
    let secret = question.request.needs[0].to_string().contains("secret");
    Some(if secret {
        Answer::deny(Some("keep out\u{1b}[2J".to_owned()))
    } else {
        Answer::ONCE
    })
}

async fn write(worker: &Worker, path: &str) -> bool {
    let arguments = json!({ "path": path, "content": "x", "mode": "overwrite" });
    worker.call("write_file", arguments).await.is_ok()
}

impl Workspace {
    fn new() -> Self {
        let files = TempFiles::new(&[]);
        files.create_dir("repo/src");
        Self { files }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path(name)
    }

    /// A runtime that records in `audit.jsonl`, in which one worker writes each of these.
    async fn run(&self, audit: &str, writes: &[(&str, bool)]) {
        self.run_in(appended(&self.path(audit)).await, writes).await;
    }

    async fn run_in(&self, sink: JsonLines, writes: &[(&str, bool)]) {
        let (runtime, authority) = Runtime::builder()
            .root("repo", self.path("repo"))
            .tools(bailiwick_fs::tools())
            .approver(Scripted::new().rule(answer))
            .audit(sink)
            .build()
            .await
            .unwrap();
        let policy = Policy::new()
            .allow("read:file:/repo")
            .ask("write:file:/repo")
            .deny("write:file:/repo/locked");
        let spec = WorkerSpec::new("tests").policy(policy);
        let worker = runtime.spawn(spec).await.unwrap();
        for (path, allowed) in writes {
            assert_eq!(write(&worker, path).await, *allowed, "{path}");
        }
        let grant = NewGrant {
            pattern: "write:file:/repo/granted".parse().unwrap(),
            holder: GrantHolder::Worker(worker.id()),
            lifetime: Lifetime::Session,
            descendants: false,
        };
        let grant = authority.grant(grant).await.unwrap();
        assert!(write(&worker, "/repo/granted").await);
        authority.revoke(grant).await.unwrap();
        runtime.shutdown().await;
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.files.command(PROGRAM, arguments).output().unwrap()
    }

    #[track_caller]
    fn stdout(&self, arguments: &[&str]) -> String {
        temp_files::stdout(self.output(arguments))
    }

    #[track_caller]
    fn refused(&self, arguments: &[&str], code: i32, parts: &[&str]) {
        temp_files::assert_fails(self.output(arguments), code, parts);
    }

    fn lines(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.stdout(arguments);
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    }
}

const WRITES: [(&str, bool); 6] = [
    ("/repo/src/a", true),
    ("/repo/src/b", true),
    ("/repo/secret", false),
    ("/repo/src/\u{202e}c", true),
    ("/repo/src/a", true),
    ("/repo/locked", false),
];

/// A workspace where a runtime ran, and another after it.
async fn lived() -> Workspace {
    let workspace = Workspace::new();
    workspace.run("audit.jsonl", &WRITES).await;
    workspace
        .run("audit.jsonl", &[("/repo/secret", false)])
        .await;
    workspace
}

fn field<'l>(lines: &'l [Value], key: &str) -> Vec<&'l Value> {
    lines.iter().map(|line| &line[key]).collect()
}

#[tokio::test]
async fn history_has_each_decision_of_each_run_once() {
    let workspace = lived().await;
    let lines = workspace.lines(&["history", "audit.jsonl", "--json"]);
    let kinds = [
        "question", "question", "question", "question", "question", "call", "granted", "call",
        "revoked", "question", "granted", "call", "revoked",
    ];
    assert_eq!(field(&lines, "entry"), kinds);
    assert_eq!(
        field(&lines, "run"),
        [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2]
    );
    assert_eq!(lines[2]["decision"], "denied");
    assert_eq!(
        (&lines[2]["by"], &lines[5]["by"]),
        (&json!("host"), &json!("rule"))
    );
    assert_eq!(
        (&lines[7]["by"], &lines[7]["outcome"], &lines[7]["grants"]),
        (&json!("person"), &json!("applied"), &json!([1]))
    );
    assert_eq!(
        (&lines[8]["by"], &lines[8]["cause"]),
        (&json!("person"), &json!("person"))
    );
    assert_eq!(lines[3]["needs"], json!(["write:file:/repo/src/\u{202e}c"]));
    assert_eq!(
        (&lines[3]["lifetime"], &lines[3]["changes"]),
        (&json!("once"), &json!(["create"]))
    );
    assert_eq!(
        (&lines[3]["agent"], &lines[3]["tool"]),
        (&json!("tests"), &json!("write_file"))
    );
    let denied = workspace.lines(&["history", "audit.jsonl", "--json", "--decision", "denied"]);
    assert_eq!(field(&denied, "run"), [1, 1, 2]);
    let narrow = [
        "--tool=write_file",
        "--agent=tests",
        "--since=1d",
        "--until=0s",
    ];
    let arguments = [&["history", "audit.jsonl", "--json"], &narrow[..]].concat();
    assert_eq!(workspace.lines(&arguments).len(), 9);
    assert_eq!(denied[1]["denial"]["code"], "PERMISSION_DENIED");
    let hint = denied[1]["denial"]["hint"].as_str().unwrap();
    assert!(hint.starts_with("change the rule"), "{hint}");
    let session = lines[0]["session"].as_str().unwrap();
    let of_session = ["--session", session, "--json"];
    let arguments = [&["history", "audit.jsonl"], &of_session[..]].concat();
    assert_eq!(workspace.lines(&arguments), lines);
    for none in [
        "--tool=delete",
        "--agent=test",
        "--since=0s",
        "--until=1d",
        "--session=other",
        "--server=git",
    ] {
        assert_eq!(
            workspace.stdout(&["history", "audit.jsonl", "--json", none]),
            "\n",
            "{none}"
        );
    }
}

#[tokio::test]
async fn history_is_printed_as_escaped_columns() {
    let workspace = lived().await;
    for arguments in [
        &["history", "audit.jsonl"][..],
        &["history", "audit.jsonl", "--json"],
        &["history", "audit.jsonl", "--report"],
        &["history", "audit.jsonl", "--report", "--json"],
        &["history", "audit.jsonl", "--suggest"],
    ] {
        let text = workspace.stdout(arguments);
        let acts = |line: &str| line.chars().any(bailiwick::text::is_deceptive);
        assert!(!text.lines().any(acts), "{text}");
    }
    let text = workspace.stdout(&["history", "audit.jsonl"]);
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows.len(), 14, "{text}");
    let at = rows[0].find("ABOUT").unwrap();
    assert!(rows[3].contains("denied by the host"), "{text}");
    assert_eq!(
        rows[3].get(at..),
        Some("q3 write:file:/repo/secret; note: keep out\\u{1b}[2J")
    );
    // A hint has a workspace that nothing an agent names can reach.
    let hint = rows[0].find("TO ALLOW IT").unwrap();
    assert_eq!(
        rows[3].get(hint..at).map(str::trim_end),
        Some("let the host ask a person, or grant it beforehand")
    );
    assert_eq!(rows[1].get(hint..at).map(str::trim_end), Some("-"));
    assert!(
        rows[4].contains("write:file:/repo/src/\\u{202e}c"),
        "{text}"
    );
    assert!(rows[6].contains("denied by a rule"), "{text}");
}

#[tokio::test]
async fn report_counts_and_rules_are_suggested_without_denials() {
    let workspace = lived().await;
    let report = &workspace.lines(&["history", "audit.jsonl", "--report", "--json"])[0];
    assert_eq!(
        report["all"],
        json!({ "granted": 4, "denied": 2, "expired": 0, "cancelled": 0, "open": 0 })
    );
    let uses = report["grants"].as_array().unwrap();
    assert_eq!(field(uses, "uses"), [1, 1]);
    let repeated = report["repeated"].as_array().unwrap();
    let needs: Vec<&Value> = repeated.iter().map(|asked| &asked["needs"][0]).collect();
    assert_eq!(needs, ["write:file:/repo/secret", "write:file:/repo/src/a"]);
    let text = workspace.stdout(&["history", "audit.jsonl", "--report"]);
    assert!(text.contains("66%"), "{text}");
    let suggested = workspace.lines(&["history", "audit.jsonl", "--suggest", "--json"]);
    assert_eq!(
        suggested,
        [json!({
            "agent": "tests",
            "pattern": "write:file:/repo/src",
            "reach": "beneath",
            "operations": ["create", "change"],
            "lifetime": "session",
            "spares": 3,
        })]
    );
    let text = workspace.stdout(&["history", "audit.jsonl", "--suggest"]);
    assert!(
        text.ends_with(
            "for the session  write:file:/repo/src (only create or change, and everything in it)\n"
        ),
        "{text}"
    );
    workspace
        .run("audit.jsonl", &[("/repo/src/secret", false)])
        .await;
    let none = workspace.stdout(&["history", "audit.jsonl", "--suggest"]);
    assert!(none.starts_with("No suggestions"), "{none}");
}

#[tokio::test]
async fn verify_checks_all_files_and_names_the_changed_line() {
    let workspace = lived().await;
    workspace.run("audit.jsonl.2", &WRITES[..1]).await;
    let first = std::fs::read_to_string(workspace.path("audit.jsonl")).unwrap();
    let second = std::fs::read_to_string(workspace.path("audit.jsonl.2")).unwrap();
    let records = first.lines().count() + second.lines().count();
    let text = workspace.stdout(&["verify", "audit.jsonl"]);
    assert!(
        text.starts_with(&format!("{records} records in 2 files ")),
        "{text}"
    );
    let history = workspace.lines(&["history", "audit.jsonl", "--json"]);
    assert_eq!(history.last().unwrap()["run"], 3);
    // A hash that was noted is found, also when records were added since.
    for noted in [first.lines().last(), second.lines().last()] {
        let line: Value = serde_json::from_str(noted.unwrap()).unwrap();
        let hash = line["hash"].as_str().unwrap();
        assert_eq!(
            workspace.stdout(&["verify", "audit.jsonl", "--head", hash]),
            text
        );
    }
    let none = "0".repeat(64);
    let with_none = ["verify", "audit.jsonl", "--head", &none];
    workspace.refused(&with_none, 1, &["no record has the hash", &none, "removed"]);
    workspace.refused(&["verify", "audit.jsonl", "--head", "x"], 2, &["--head"]);

    let put = |text: &str| std::fs::write(workspace.path("audit.jsonl.2"), text).unwrap();
    put(&second.replacen("write_file", "read_file", 1));
    let parts = ["audit.jsonl.2", "line ", "was changed"];
    workspace.refused(&["verify", "audit.jsonl"], 1, &parts);
    workspace.refused(&["history", "audit.jsonl"], 1, &parts);

    // A line that is cut off is the trace of a crash, or is being written.
    put(second.get(..second.len() - 9).unwrap());
    let torn = format!("line {}", second.lines().count());
    workspace.refused(
        &["verify", "audit.jsonl"],
        1,
        &["audit.jsonl.2", &torn, "torn"],
    );
    let output = workspace.output(&["history", "audit.jsonl"]);
    assert_eq!(output.status.code(), Some(0));
    let warned = String::from_utf8(output.stderr).unwrap();
    assert!(
        warned.contains(&torn) && warned.lines().count() == 1,
        "{warned}"
    );
    assert!(String::from_utf8(output.stdout).unwrap().lines().count() > 12);
}

#[tokio::test]
async fn rotated_audit_is_shown_and_verified_as_a_whole() {
    let workspace = Workspace::new();
    for run in [&WRITES[..], &WRITES[..3]] {
        let sink = appended(&workspace.path("audit.jsonl")).await;
        workspace.run_in(sink.segment_bytes(4_000), run).await;
    }
    workspace.run("audit.jsonl.2", &WRITES[..1]).await;
    let segment = |number: u32| workspace.path(&format!("audit.jsonl.{number:08}"));
    let finished = (1..).take_while(|number| segment(*number).exists()).count();
    assert!(finished > 2, "{finished}");

    // The same records in one file are shown alike.
    let mut joined = Vec::new();
    for number in 1..=finished {
        joined.extend(std::fs::read(segment(u32::try_from(number).unwrap())).unwrap());
    }
    joined.extend(std::fs::read(workspace.path("audit.jsonl")).unwrap());
    std::fs::write(workspace.path("one"), joined).unwrap();
    std::fs::copy(workspace.path("audit.jsonl.2"), workspace.path("one.2")).unwrap();
    for more in [
        &[][..],
        &["--json"],
        &["--report"],
        &["--suggest"],
        &["--decision", "denied", "--json"],
    ] {
        let of = |audit: &str| workspace.stdout(&[&["history", audit][..], more].concat());
        assert_eq!(of("audit.jsonl"), of("one"), "{more:?}");
    }
    let verified = workspace.stdout(&["verify", "audit.jsonl"]);
    let files = format!(" records in {} files ", finished + 2);
    assert!(verified.contains(&files), "{verified}");
    let one = workspace.stdout(&["verify", "one"]);
    assert_eq!(
        one.replace(" in 2 files ", " in "),
        verified.replace(&files, " records in ")
    );

    // A hash of any segment is found.
    let first = std::fs::read_to_string(segment(1)).unwrap();
    let noted: Value = serde_json::from_str(first.lines().last().unwrap()).unwrap();
    let noted = noted["hash"].as_str().unwrap();
    let with_head = ["verify", "audit.jsonl", "--head", noted];
    assert_eq!(workspace.stdout(&with_head), verified);

    let commands = [&["verify", "audit.jsonl"][..], &["history", "audit.jsonl"]];
    for number in [1, 2, u32::try_from(finished).unwrap()] {
        let name = format!("audit.jsonl.{number:08}");
        let whole = std::fs::read_to_string(segment(number)).unwrap();
        std::fs::remove_file(segment(number)).unwrap();
        for command in commands {
            workspace.refused(command, 1, &[&name, "is missing"]);
        }
        std::fs::write(segment(number), whole.replacen("write", "wrote", 1)).unwrap();
        for command in commands {
            workspace.refused(command, 1, &[&name, "was changed"]);
        }
        std::fs::write(segment(number), whole).unwrap();
    }
    let swap = |one: u32, other: u32| {
        std::fs::rename(segment(one), workspace.path("swap")).unwrap();
        std::fs::rename(segment(other), segment(one)).unwrap();
        std::fs::rename(workspace.path("swap"), segment(other)).unwrap();
    };
    swap(1, 2);
    for command in commands {
        workspace.refused(
            command,
            1,
            &["audit.jsonl.00000001", "line 1", "expected record 0"],
        );
    }
    swap(1, 2);
    assert_eq!(workspace.stdout(commands[0]), verified);
}

#[tokio::test]
async fn missing_audit_file_is_an_error() {
    let workspace = Workspace::new();
    let files = ["audit.jsonl", "audit.jsonl.2", "audit.jsonl.3"];
    for audit in files {
        workspace.run(audit, &WRITES[..1]).await;
    }
    let commands = [&["verify", "audit.jsonl"][..], &["history", "audit.jsonl"]];
    let whole = workspace.stdout(commands[0]);
    assert!(whole.contains(" in 3 files "), "{whole}");
    let second = std::fs::read(workspace.path(files[1])).unwrap();
    std::fs::remove_file(workspace.path(files[1])).unwrap();
    for command in commands {
        workspace.refused(command, 1, &["missing", "`audit.jsonl.2`"]);
    }
    std::fs::write(workspace.path(files[1]), second).unwrap();
    // Names that no server gives are none of the record.
    for other in ["audit.jsonl.05", "audit.jsonl.1", "audit.jsonl.9.bak"] {
        std::fs::write(workspace.path(other), "no record").unwrap();
    }
    assert_eq!(workspace.stdout(commands[0]), whole);
    workspace.stdout(commands[1]);
}

#[tokio::test]
async fn unreadable_files_are_named_with_the_reason() {
    let workspace = lived().await;
    for command in ["history", "verify"] {
        workspace.refused(&[command, "none"], 1, &["`none`", "No such file"]);
        workspace.refused(&[command, "repo"], 1, &["repo"]);
        workspace.refused(&[command], 2, &["AUDIT"]);
        workspace.refused(&[command, "audit.jsonl", "more"], 2, &["more"]);
        workspace.refused(&[command, "--nonsense", "audit.jsonl"], 2, &["--nonsense"]);
    }
    let refused = |flag: &str, part: &str| {
        workspace.refused(&["history", "audit.jsonl", flag], 2, &[part]);
    };
    refused("--decision=perhaps", "perhaps");
    refused("--since=yesterday", "2026-11-22");
    for other in ["--report", "--agent=tests", "--decision=granted"] {
        let (flag, _) = other.split_once('=').unwrap_or((other, ""));
        workspace.refused(&["history", "audit.jsonl", "--suggest", other], 2, &[flag]);
    }
}

#[tokio::test]
async fn narrowed_and_revoked_grants_apply_to_the_next_call() {
    let workspace = Workspace::new();
    let sink = appended(&workspace.path("audit.jsonl")).await;
    let builder = Runtime::builder().root("repo", workspace.path("repo"));
    let builder = builder.tools(bailiwick_fs::tools()).audit(sink);
    let (runtime, authority) = builder.build().await.unwrap();
    let spec = WorkerSpec::new("tests").policy(Policy::new().ask("write:file:/repo"));
    let worker = runtime.spawn(spec).await.unwrap();
    let me = GrantHolder::Worker(worker.id());
    let roots = [VirtualPath::parse("/repo", None).unwrap()];
    let editor = Template::built_in().swap_remove(2);
    assert!(!write(&worker, "/repo/a").await);
    let applied = authority
        .apply(&editor, &roots, &me, Lifetime::Session)
        .await;
    let [reading, writing] = applied.unwrap()[..] else {
        panic!("the template has two rules");
    };
    assert!(write(&worker, "/repo/a").await);
    let change = Narrowing {
        pattern: Some("write:file:/repo/src".parse().unwrap()),
        ..Narrowing::default()
    };
    authority.narrow(writing, change).await.unwrap();
    assert!(!write(&worker, "/repo/b").await);
    assert!(write(&worker, "/repo/src/b").await);
    let filter = GrantFilter {
        worker: Some(worker.id()),
        ..GrantFilter::default()
    };
    let meant: Vec<_> = authority.grants_where(&filter).await.unwrap();
    assert_eq!(
        meant.iter().map(|grant| grant.id).collect::<Vec<_>>(),
        [reading, writing]
    );
    assert_eq!(authority.revoke_where(filter).await.unwrap().grants, 2);
    assert!(!write(&worker, "/repo/src/c").await);
    runtime.shutdown().await;
    let lines = workspace.lines(&["history", "audit.jsonl", "--json"]);
    let kinds = [
        "call", "granted", "granted", "call", "narrowed", "call", "call", "revoked", "revoked",
        "call",
    ];
    assert_eq!(field(&lines, "entry"), kinds);
    assert_eq!(
        lines[4]["change"],
        json!({ "pattern": "write:file:/repo/src" })
    );
    let text = workspace.stdout(&["history", "audit.jsonl"]);
    assert!(text.contains("to write:file:/repo/src"), "{text}");
}

/// The directories that the options name are served: the server ends because nobody speaks to it.
#[test]
fn directory_with_the_name_of_a_command_is_served() {
    let workspace = Workspace::new();
    for name in [
        "history",
        "verify",
        "grants",
        "templates",
        "doctor",
        "help",
        "serve",
    ] {
        std::fs::create_dir(workspace.path(name)).unwrap();
        let output = workspace.output(&["serve", name]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        assert!(output.stdout.is_empty());
    }
    for (name, file) in [
        ("history", "AUDIT"),
        ("verify", "AUDIT"),
        ("grants", "FILE"),
    ] {
        workspace.refused(&[name], 2, &[file]);
    }
    let help = workspace.stdout(&["--help"]);
    for name in [
        "serve",
        "check",
        "servers",
        "history",
        "verify",
        "grants",
        "templates",
        "doctor",
    ] {
        assert!(help.contains(&format!("\n  {name} ")), "{help}");
    }
}

impl Workspace {
    /// A runtime that keeps its grants in the file `grants`, in which each of these agents was granted writing.
    async fn granting(&self, agents: &[&str]) -> Runtime {
        released(self.path("grants.lock")).await;
        let store = GrantStore::open(self.path("grants")).unwrap();
        let builder = Runtime::builder().root("repo", self.path("repo"));
        let (runtime, authority) = builder.grant_store(store).build().await.unwrap();
        for agent in agents {
            let grant = NewGrant {
                pattern: "write:file:/repo/src".parse().unwrap(),
                holder: GrantHolder::Agent((*agent).into()),
                lifetime: Lifetime::Agent,
                descendants: *agent == "tests",
            };
            authority.grant(grant).await.unwrap();
        }
        runtime
    }

    fn stored(&self) -> Vec<String> {
        let grants = GrantStore::read(self.path("grants")).unwrap();
        grants.iter().map(|grant| grant.id.to_string()).collect()
    }
}

#[tokio::test]
async fn permanent_grants_are_shown_while_a_server_uses_them() {
    let workspace = Workspace::new();
    let agents = ["tests", "tests/unit", "tester", "\u{202e}me"];
    let runtime = workspace.granting(&agents).await;
    let lines = workspace.lines(&["grants", "grants", "--json"]);
    assert_eq!(field(&lines, "id"), [1, 2, 3, 4]);
    assert_eq!(field(&lines, "agent"), agents);
    assert_eq!(field(&lines, "pattern"), ["write:file:/repo/src"; 4]);
    assert_eq!(
        field(&lines, "descendants"),
        [true, false, false, false]
            .map(Value::from)
            .iter()
            .collect::<Vec<_>>()
    );
    let text = workspace.stdout(&["grants", "grants"]);
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows.len(), 5, "{text}");
    assert!(rows[0].starts_with("GRANT"), "{text}");
    assert!(
        rows[1].starts_with("g1") && rows[1].ends_with("write:file:/repo/src"),
        "{text}"
    );
    assert!(rows[4].contains("\\u{202e}me"), "{text}");
    let of = |agent: &str| workspace.stdout(&["grants", "grants", "--json", "--agent", agent]);
    assert_eq!(of("tests").lines().count(), 2);
    assert_eq!(of("tests/unit").lines().count(), 1);
    assert_eq!(of("test"), "\n");
    let none = workspace.stdout(&["grants", "grants", "--agent", "test"]);
    assert_eq!(none, "No grants.\n");
    runtime.shutdown().await;
}

#[tokio::test]
async fn grants_are_revoked_in_an_unused_store() {
    let workspace = Workspace::new();
    let agents = ["tests", "tests/unit", "tester", "main", "main"];
    let runtime = workspace.granting(&agents).await;
    let in_use = ["`", "grants`", "is in use", "stop the server"];
    workspace.refused(&["grants", "grants", "--revoke", "g3"], 1, &in_use);
    let of_tests = ["grants", "grants", "--revoke-all", "--agent", "tests"];
    workspace.refused(&of_tests, 1, &in_use);
    assert_eq!(workspace.stored(), ["g1", "g2", "g3", "g4", "g5"]);
    runtime.shutdown().await;

    let bytes = std::fs::read(workspace.path("grants")).unwrap();
    let unknown = ["grants", "grants", "--revoke", "g3", "g9"];
    workspace.refused(&unknown, 1, &["grants`", "unknown grant g9"]);
    let of_nobody = ["grants", "grants", "--revoke-all", "--agent", "test\u{1b}"];
    workspace.refused(&of_nobody, 1, &["has no grants of `test\\u{1b}`"]);
    assert_eq!(std::fs::read(workspace.path("grants")).unwrap(), bytes);

    let text = workspace.stdout(&["grants", "grants", "--revoke", "g3", "5"]);
    assert!(text.starts_with("Revoked\nGRANT"), "{text}");
    assert!(text.contains("\ng3 ") && text.contains("\ng5 "), "{text}");
    assert_eq!(workspace.stored(), ["g1", "g2", "g4"]);
    let taken = workspace.lines(&[&of_tests[..], &["--json"]].concat());
    assert_eq!(field(&taken, "agent"), ["tests", "tests/unit"]);
    assert_eq!(workspace.stored(), ["g4"]);
    let again = ["grants", "grants", "--revoke", "g3"];
    workspace.refused(&again, 1, &["unknown grant g3"]);

    // What is left holds, and no number is given twice.
    let runtime = workspace.granting(&["main"]).await;
    runtime.shutdown().await;
    assert_eq!(workspace.stored(), ["g4", "g6"]);
}

#[tokio::test]
async fn invalid_grant_store_is_named_and_left_unchanged() {
    let workspace = Workspace::new();
    let revoke = ["--revoke", "g1"];
    let all = ["--revoke-all", "--agent", "main"];
    let narrow = ["--narrow", "g1", "--holder-only"];
    let apply = ["--apply", "read-only", "--agent", "main", "--root", "/repo"];
    for command in [&[][..], &revoke, &all, &narrow, &apply] {
        let refused = |file: &str, parts: &[&str]| {
            workspace.refused(&[&["grants", file], command].concat(), 1, parts);
        };
        if command != apply {
            refused("none", &["`none`", "not found"]);
        }
        refused("repo", &["repo`"]);
        std::fs::write(workspace.path("other"), "some other file\n").unwrap();
        refused("other", &["other` is not a grant store"]);
        let damaged = r#"{"format":"bailiwick-grants","version":2,"next":1}"#;
        std::fs::write(workspace.path("damaged"), damaged).unwrap();
        refused("damaged", &["damaged` is damaged"]);
    }
    let entries = std::fs::read_dir(workspace.files.dir()).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["damaged", "other", "repo"]);
    // A template may be the first thing that a store holds.
    workspace.stdout(&[&["grants", "none"][..], &apply].concat());
    assert!(workspace.stdout(&["grants", "none"]).contains("/repo"));
    for (arguments, part) in [
        (&["grants", "--revoke", "g1"][..], "FILE"),
        (&["grants", "grants", "--revoke", "main"], "such as g3"),
        (&["grants", "grants", "--revoke"], "--revoke"),
        (&["grants", "grants", "--revoke-all"], "--agent"),
        (
            &["grants", "grants", "--revoke", "g1", "--agent", "main"],
            "--agent",
        ),
        (
            &[
                "grants",
                "grants",
                "--revoke",
                "g1",
                "--revoke-all",
                "--agent",
                "main",
            ],
            "--revoke",
        ),
    ] {
        workspace.refused(arguments, 2, &[part]);
    }
}

impl Workspace {
    fn templated(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn held(&self) -> Vec<(String, bool)> {
        let grants = GrantStore::read(self.path("grants")).unwrap();
        let held = grants
            .iter()
            .map(|grant| (grant.pattern.to_string(), grant.descendants));
        held.collect()
    }
}

const DOCS: &str = r#"{"name":"docs","about":"Writes the docs","allows":["write:file:{root}/docs"],
    "covers":["write:file:{root}/docs/x"],"refuses":["write:file:{root}/src"]}"#;

#[tokio::test]
async fn stored_grant_can_only_be_narrowed() {
    let workspace = Workspace::new();
    let runtime = workspace.granting(&["tests", "main"]).await;
    let narrow = ["grants", "grants", "--narrow", "g1"];
    let with = |more: &[&'static str]| [&narrow[..], more].concat();
    let down = with(&["--to", "write:file:/repo/src/a"]);
    workspace.refused(&down, 1, &["is in use", "stop the server"]);
    runtime.shutdown().await;
    for wider in ["write:file:/repo", "write:file:/repo/src/.mcp.json"] {
        let text = ["g1 can only be narrowed", "cannot change", "grants`"];
        workspace.refused(&with(&["--to", wider]), 1, &text);
    }
    workspace.refused(
        &["grants", "grants", "--narrow", "g7", "--holder-only"],
        1,
        &["unknown grant g7"],
    );
    let both = [
        ("write:file:/repo/src".to_owned(), true),
        ("write:file:/repo/src".to_owned(), false),
    ];
    assert_eq!(workspace.held(), both);
    let text = workspace.stdout(&down);
    assert!(text.starts_with("Narrowed\nGRANT"), "{text}");
    assert!(
        text.trim_end().ends_with("write:file:/repo/src/a"),
        "{text}"
    );
    let left = workspace.lines(&with(&["--holder-only", "--json"]));
    assert_eq!(left[0]["descendants"], false);
    assert_eq!(
        workspace.held()[0],
        ("write:file:/repo/src/a".to_owned(), false)
    );
    for (arguments, part) in [
        (&narrow[..], "--to"),
        (&["grants", "grants", "--to", "read"], "--narrow"),
        (&["grants", "grants", "--holder-only"], "--narrow"),
        (&with(&["--to", "fly"]), "--to"),
        (&with(&["--to", "read", "--revoke", "g1"]), "--narrow"),
        (&with(&["--to", "read", "--agent", "main"]), "--agent"),
    ] {
        workspace.refused(arguments, 2, &[part]);
    }
}

/// The arguments that apply `template` to `main/tests`.
fn apply(template: &'static str, more: &[&'static str]) -> Vec<&'static str> {
    let store = ["grants", "grants", "--apply", template];
    [&store[..], &["--agent", "main/tests"], more].concat()
}

const OWN: [&str; 4] = ["--root", "/repo", "--template-file", "docs.json"];

#[tokio::test]
async fn applied_template_adds_permanent_grants() {
    let workspace = Workspace::new();
    workspace.granting(&[]).await.shutdown().await;
    let editor = apply("editor", &["--root", "/repo", "/docs"]);
    let text = workspace.stdout(&editor);
    assert!(text.starts_with("Granted\nGRANT"), "{text}");
    assert_eq!(text.matches(" main/tests ").count(), 4, "{text}");
    assert_eq!(
        workspace.stdout(&editor),
        "Nothing to do: already granted.\n"
    );
    workspace.templated("docs.json", DOCS);
    let added = workspace.lines(&[&apply("docs", &OWN)[..], &["--json"]].concat());
    assert_eq!(field(&added, "pattern"), ["write:file:/repo/docs"]);
    assert_eq!(field(&added, "agent"), ["main/tests"]);
    // A runtime takes up what was added, and numbers go on.
    let runtime = workspace.granting(&["main"]).await;
    runtime.shutdown().await;
    assert_eq!(workspace.stored(), ["g1", "g2", "g3", "g4", "g5", "g6"]);
}

#[tokio::test]
async fn invalid_template_adds_nothing() {
    let workspace = Workspace::new();
    workspace.granting(&[]).await.shutdown().await;
    workspace.templated("docs.json", DOCS);
    let root = ["--root", "/repo"];
    let no_agent = ["--apply", "editor", "--agent", "main/", "--root", "/r"];
    for (arguments, parts) in [
        (
            apply("docs", &root),
            ["unknown template `docs`", "read-only, reviewer"],
        ),
        (apply("editor", &[]), ["needs a directory", "`editor`"]),
        (
            apply("editor", &OWN),
            ["another template, `docs`", "docs.json"],
        ),
        (
            apply("docs", &["--template-file", "none"]),
            ["`none`", "No such file"],
        ),
        (
            [&["grants", "grants"], &no_agent[..]].concat(),
            ["`main/` is not an agent path", "grants`"],
        ),
    ] {
        workspace.refused(&arguments, 1, &parts);
    }
    for (arguments, part) in [
        (&["grants", "grants", "--apply", "editor"][..], "--agent"),
        (&["grants", "grants", "--root", "/r"], "--apply"),
        (&["grants", "grants", "--template-file", "x"], "--apply"),
        (&apply("editor", &["--root", "repo"]), "relative"),
        (
            &apply("editor", &["--root", "/r", "--revoke", "g1"]),
            "--revoke",
        ),
    ] {
        workspace.refused(arguments, 2, &[part]);
    }
    assert_eq!(workspace.held(), []);
    workspace.stdout(&apply("docs", &OWN));
    assert_eq!(workspace.held().len(), 1);
}

#[test]
fn templates_are_shown_and_template_files_are_checked() {
    let workspace = Workspace::new();
    let text = workspace.stdout(&["templates"]);
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows.len(), 6, "{text}");
    assert!(rows[0].starts_with("TEMPLATE"), "{text}");
    let reviewer = "reviewer   read:file:{root} write:file:{root}/reviews";
    assert!(rows[2].starts_with(reviewer), "{text}");
    let lines = workspace.lines(&["templates", "--json"]);
    let names = ["read-only", "reviewer", "editor", "builder", "scratch"];
    assert_eq!(field(&lines, "name"), names);
    // What is printed is a template again.
    workspace.templated("again.json", &lines[1].to_string());
    assert_eq!(
        workspace.lines(&["templates", "again.json", "--json"]),
        lines[1..2]
    );

    workspace.templated("docs.json", DOCS);
    let text = workspace.stdout(&["templates", "docs.json"]);
    assert!(
        text.contains("write:file:{root}/docs  Writes the docs"),
        "{text}"
    );
    for (from, to, part) in [
        ("/docs/x\"", "/src/x\"", "does not cover its example"),
        ("{root}/src\"", "{root}/docs/y\"", "which it must not cover"),
        ("\"docs\"", "\"\"", "has no `name`"),
        (
            "write:file:{root}/docs\"",
            "fly:file:{root}\"",
            "`fly:file:/example` in the template",
        ),
        (
            "\"about\"",
            "\"descendants\"",
            "unknown field `descendants`",
        ),
        ("{\"name\"", "[", "cannot be read"),
    ] {
        assert!(DOCS.contains(from), "{from}");
        workspace.templated("wrong.json", &DOCS.replacen(from, to, 1));
        workspace.refused(&["templates", "wrong.json"], 1, &["wrong.json`", part]);
    }
    workspace.templated("large.json", &" ".repeat((64 << 10) + 1));
    workspace.refused(&["templates", "large.json"], 1, &["larger than 65536"]);
    workspace.refused(&["templates", "none"], 1, &["`none`", "No such file"]);
    workspace.refused(&["templates", "repo"], 1, &["repo`"]);
}
