//! Tests the claims of tool documentation: examples, failures, inverses, idempotence and shell commands.

use std::collections::BTreeSet;
use std::process::Command;

use bailiwick::Code;
use bailiwick::intent::IntentTemplate;
use serde_json::{Value, json};

use crate::support::{Repo, tool, tools};

/// Whether `whole` contains `part`; arrays must have equal lengths.
fn holds(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, part)| whole.get(key).is_some_and(|whole| holds(whole, part))),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len()
                && whole
                    .iter()
                    .zip(part)
                    .all(|(whole, part)| holds(whole, part))
        }
        _ => whole == part,
    }
}

#[tokio::test]
async fn every_example_has_its_documented_result() {
    for tool in tools() {
        assert!(!tool.spec.examples.is_empty(), "{}", tool.spec.name);
        for example in tool.spec.examples {
            let repo = Repo::new().await;
            let answer = repo
                .ask(
                    &tool.spec.name,
                    serde_json::from_str(example.input).unwrap(),
                )
                .await;
            let said: Value = serde_json::from_str(example.output).unwrap();
            assert!(said.as_object().is_some_and(|said| !said.is_empty()));
            assert!(
                holds(&answer, &said),
                "{}: {}: {answer}",
                tool.spec.name,
                example.description
            );
        }
    }
}

/// A call for each failure that a tool documents.
#[expect(clippy::too_many_lines, reason = "a table with one row per failure")]
fn provocations() -> Vec<(&'static str, Code, Value)> {
    let (wrong, large) = ("0".repeat(64), "x".repeat(9 << 20));
    let edit = |path: &str, old: &str| json!({"path": path, "edits": [{"old_text": old, "new_text": "x"}]});
    vec![
        ("list_directory", Code::NotFound, json!({"path": "none"})),
        (
            "list_directory",
            Code::NotDirectory,
            json!({"path": "notes.txt"}),
        ),
        ("stat", Code::NotFound, json!({"path": "none"})),
        ("read_file", Code::NotFound, json!({"path": "none"})),
        ("read_file", Code::NotRegular, json!({"path": "src"})),
        ("read_file", Code::NotText, json!({"path": "bytes"})),
        (
            "write_file",
            Code::AlreadyExists,
            json!({"path": "notes.txt", "content": ""}),
        ),
        (
            "write_file",
            Code::NotFound,
            json!({"path": "a/b", "content": ""}),
        ),
        (
            "write_file",
            Code::Conflict,
            json!({"path": "notes.txt", "content": "", "mode": "overwrite", "expected_hash": wrong}),
        ),
        ("edit_file", Code::NoMatch, edit("notes.txt", "seventeen")),
        ("edit_file", Code::AmbiguousMatch, edit("twice", "same")),
        (
            "edit_file",
            Code::Conflict,
            json!({
                "path": "notes.txt", "edits": [{"old_text": "one", "new_text": "x"}], "expected_hash": wrong,
            }),
        ),
        ("edit_file", Code::NotText, edit("bytes", "x")),
        ("edit_file", Code::NotFound, edit("none", "x")),
        (
            "make_directory",
            Code::AlreadyExists,
            json!({"path": "src"}),
        ),
        ("make_directory", Code::NotFound, json!({"path": "a/b"})),
        ("move", Code::NotFound, json!({"from": "none", "to": "x"})),
        (
            "move",
            Code::AlreadyExists,
            json!({"from": "twice", "to": "notes.txt"}),
        ),
        (
            "move",
            Code::InvalidArguments,
            json!({"from": "src", "to": "src/in"}),
        ),
        ("copy", Code::NotFound, json!({"from": "none", "to": "x"})),
        (
            "copy",
            Code::AlreadyExists,
            json!({"from": "twice", "to": "notes.txt"}),
        ),
        (
            "copy",
            Code::InvalidArguments,
            json!({"from": "src", "to": "src/in"}),
        ),
        ("delete", Code::NotFound, json!({"path": "none"})),
        ("delete", Code::InvalidArguments, json!({"path": "src"})),
        (
            "apply_batch",
            Code::InvalidArguments,
            json!({"operations": [{"tool": "delete"}]}),
        ),
        (
            "apply_batch",
            Code::NotFound,
            json!({"operations": [
                {"tool": "delete", "path": "notes.txt"}, {"tool": "copy", "from": "notes.txt", "to": "x"},
            ]}),
        ),
        (
            "apply_batch",
            Code::TooLarge,
            json!({"operations": [
                {"tool": "write_file", "path": "x", "content": large}, {"tool": "write_file", "path": "y", "content": large},
            ]}),
        ),
        ("find", Code::InvalidArguments, json!({"pattern": "[a"})),
        (
            "find",
            Code::NotFound,
            json!({"pattern": "*", "path": "none"}),
        ),
        ("grep", Code::InvalidArguments, json!({"pattern": "(a"})),
        (
            "grep",
            Code::NotFound,
            json!({"pattern": "a", "path": "none"}),
        ),
    ]
}

#[tokio::test]
async fn every_documented_failure_occurs_and_changes_nothing() {
    let tools = tools();
    let said: BTreeSet<(&str, Code)> = tools
        .iter()
        .flat_map(|tool| {
            tool.spec
                .failures
                .iter()
                .map(|failure| (&*tool.spec.name, failure.code))
        })
        .collect();
    let tried: BTreeSet<_> = provocations()
        .into_iter()
        .map(|(tool, code, _)| (tool, code))
        .collect();
    assert_eq!(said, tried);
    let repo = Repo::new().await;
    let before = repo.tree();
    for (tool, code, arguments) in provocations() {
        let error = repo.call(tool, arguments.clone()).await.unwrap_err();
        assert_eq!(error.code(), code, "{tool} {arguments}: {error}");
    }
    assert_eq!(repo.tree(), before);
}

#[tokio::test]
async fn documented_inverse_restores_the_state() {
    let reversed: &[(&str, Value, &[Value])] = &[
        (
            "move",
            json!({"from": "src", "to": "lib"}),
            &[json!({"from": "lib", "to": "src"})],
        ),
        (
            "copy",
            json!({"from": "src", "to": "lib"}),
            &[json!({"path": "lib", "recursive": true})],
        ),
        (
            "make_directory",
            json!({"path": "a/b", "create_parents": true}),
            &[json!({"path": "a/b"}), json!({"path": "a"})],
        ),
    ];
    let tools = tools();
    let said: BTreeSet<&str> = tools
        .iter()
        .filter(|tool| tool.spec.reverse.is_some())
        .map(|tool| &*tool.spec.name)
        .collect();
    assert_eq!(said, reversed.iter().map(|(tool, ..)| *tool).collect());
    for (name, arguments, back) in reversed {
        let repo = Repo::new().await;
        let before = repo.tree();
        repo.ask(name, arguments.clone()).await;
        assert_ne!(repo.tree(), before, "{name}");
        for arguments in *back {
            let reverse = tool(name).spec.reverse.unwrap();
            repo.ask(reverse.tool, arguments.clone()).await;
        }
        assert_eq!(repo.tree(), before, "{name}");
    }
}

#[tokio::test]
async fn idempotent_tools_repeat_their_result() {
    for tool in tools() {
        let idempotent = tool.spec.idempotent || !tool.mutates;
        for example in tool.spec.examples {
            let repo = Repo::new().await;
            let input: Value = serde_json::from_str(example.input).unwrap();
            let before = repo.tree();
            let first = repo.ask(&tool.spec.name, input.clone()).await;
            let once = repo.tree();
            assert_eq!(once != before, tool.mutates, "{}", tool.spec.name);
            let again = repo.call(&tool.spec.name, input).await;
            let again = again.ok().map(|outcome| outcome.structured().unwrap());
            let same = again == Some(first) && repo.tree() == once;
            assert_eq!(same, idempotent, "{}: {}", tool.spec.name, example.input);
        }
    }
}

/// Names with special meaning in a shell.
const HOSTILE: &[&str] = &[
    "plain",
    "two words",
    "-rf",
    "it's",
    "$(touch owned)",
    "`touch owned`",
    "a;touch owned",
    "{path}",
    "[x]*?",
    "\"quoted\"",
    "back\\slash",
    "#comment",
    "~",
    "&|<>",
    "\u{e9}\u{4e2d}\u{1f600}",
];

/// Arguments for each tool with a shell command, in the directory `base` with a hostile name.
fn arguments(name: &str, base: &str, hostile: &str) -> Value {
    let at = format!("{base}/{hostile}");
    match name {
        "list_directory" => json!({"path": base}),
        "stat" | "read_file" => json!({"path": format!("{base}/notes.txt")}),
        "write_file" => json!({"path": at, "content": format!("%s {hostile}\n'\n\n")}),
        "make_directory" => json!({"path": at}),
        "move" => json!({"from": format!("{base}/src"), "to": at}),
        "copy" => json!({"from": format!("{base}/src"), "to": at}),
        "delete" => json!({"path": at}),
        _ => panic!("{name} has a shell line and no arguments to try it with"),
    }
}

fn sh(line: &str, here: &std::path::Path) -> String {
    let output = Command::new("sh")
        .arg("-c")
        .arg(line)
        .current_dir(here)
        .output();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn shell_command_has_the_effect_of_its_call() {
    let tools = tools();
    let with_lines = tools
        .iter()
        .filter(|tool| !tool.spec.command_line.is_empty());
    for tool in with_lines {
        let name = &*tool.spec.name;
        let template = IntentTemplate::parse(tool.spec.command_line).unwrap();
        for hostile in HOSTILE {
            let (called, typed) = (Repo::new().await, Repo::new().await);
            if name == "delete" {
                for repo in [&called, &typed] {
                    std::fs::write(repo.host().join(hostile), "x").unwrap();
                }
            }
            called.ask(name, arguments(name, "/repo", hostile)).await;
            let base = typed.host().to_str().unwrap();
            let line = template.shell(&arguments(name, base, hostile)).unwrap();
            sh(&line, typed.host());
            assert_eq!(typed.tree(), called.tree(), "{line}");
        }
    }
}

#[tokio::test]
async fn shell_command_prints_the_result_of_its_call() {
    let repo = Repo::new().await;
    for hostile in HOSTILE {
        std::fs::write(repo.host().join(hostile), format!("in {hostile}\n")).unwrap();
    }
    let line = |name: &str, arguments: Value| {
        let line = IntentTemplate::parse(tool(name).spec.command_line).unwrap();
        sh(&line.shell(&arguments).unwrap(), repo.host())
    };
    let listed = repo.ask("list_directory", json!({"path": "/repo"})).await;
    let names: BTreeSet<&str> = listed["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect();
    let typed = line("list_directory", json!({"path": repo.host()}));
    assert_eq!(typed.lines().collect::<BTreeSet<_>>(), names);
    for hostile in HOSTILE {
        let read = repo
            .call("read_file", json!({"path": format!("/repo/{hostile}")}))
            .await;
        let typed = line("read_file", json!({"path": repo.host().join(hostile)}));
        assert_eq!(typed, read.unwrap().text());
    }
    let two = json!({"paths": [repo.host().join("-rf"), repo.host().join("two words")]});
    assert_eq!(line("read_file", two), "in -rf\nin two words\n");
    assert!(line("stat", json!({"path": repo.host().join("it's")})).contains("Size: 8"));
}
