//! Tests of nested roots from all configuration sources.

use std::fs;

use bailiwick_test_support::server::Server;
use serde_json::{Value, json};

use crate::program;

/// The program after a handshake, with `configuration` if the client sends one.
fn started(arguments: &[String], configuration: Option<Value>) -> Server {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut program = program::start(&arguments, &[]);
    let mut capabilities = json!({});
    if let Some(configuration) = configuration {
        capabilities["experimental"] = json!({"configuration": configuration});
    }
    let answer = program.initialize(&capabilities);
    assert!(answer["result"].is_object(), "{answer}");
    program
}

/// Calls a tool; the code of its refusal if it is refused.
fn call(
    program: &mut Server,
    tool: &str,
    arguments: &Value,
    granted: &Value,
) -> Result<Value, String> {
    let params =
        json!({"name": tool, "arguments": arguments, "_meta": {"granted_scopes": granted}});
    let answer = program.request("tools/call", &params);
    let result = &answer["result"];
    if result["isError"] == true {
        let code = result["structuredContent"]["code"].as_str();
        return Err(code.unwrap_or_else(|| panic!("{answer}")).to_owned());
    }
    assert!(result.is_object(), "{answer}");
    Ok(result.clone())
}

/// A directory with `repo`, `repo/vendor` in it and `repo/vendor/out` in that.
fn repository() -> (tempfile::TempDir, String) {
    let temp = tempfile::tempdir().unwrap();
    let repo = temp.path().canonicalize().unwrap().join("repo");
    for folder in ["src", "vendor/lib", "vendor/out"] {
        fs::create_dir_all(repo.join(folder)).unwrap();
    }
    for file in ["src/a", "vendor/v", "vendor/lib/w", "vendor/out/.env"] {
        fs::write(repo.join(file), "old\n").unwrap();
    }
    (temp, repo.to_str().unwrap().to_owned())
}

/// Checks that each of the nested roots decides on what it holds.
fn decide(mut program: Server, repo: &str) {
    let none = json!([]);
    let write = |path: &str| json!({"path": format!("{repo}/{path}"), "content": "x"});
    let mut allowed = |tool: &str, arguments: Value| {
        let called = call(&mut program, tool, &arguments, &none);
        called.unwrap_or_else(|code| panic!("{tool} {arguments}: {code}"));
    };
    allowed("write_file", write("src/new"));
    allowed("write_file", write("vendor/out/new"));
    allowed("read_file", json!({"path": format!("{repo}/vendor/v")}));
    let copy = json!({"from": format!("{repo}/vendor/lib"), "to": format!("{repo}/src/lib")});
    allowed("copy", copy);
    let vendor = format!("{repo}/vendor");
    let refused = [
        ("write_file", write("vendor/new")),
        ("make_directory", json!({"path": format!("{vendor}/made")})),
        (
            "delete",
            json!({"path": format!("{vendor}/lib"), "recursive": true}),
        ),
        ("delete", json!({"path": repo, "recursive": true})),
        (
            "move",
            json!({"from": format!("{vendor}/lib"), "to": format!("{repo}/src/moved")}),
        ),
        (
            "move",
            json!({"from": format!("{repo}/src/a"), "to": format!("{vendor}/a")}),
        ),
        (
            "copy",
            json!({"from": format!("{repo}/src/a"), "to": format!("{vendor}/a")}),
        ),
        // What the outermost root denies is denied in every root within it.
        ("read_file", json!({"path": format!("{vendor}/out/.env")})),
    ];
    for (tool, arguments) in refused {
        for granted in [json!([]), json!(["read:file", "write:file"])] {
            let code = call(&mut program, tool, &arguments, &granted).unwrap_err();
            let expected = ["PERMISSION_DENIED", "INVALID_ARGUMENTS"];
            assert!(
                expected.contains(&code.as_str()),
                "{tool} {arguments}: {code}"
            );
        }
    }
    let vendor = std::path::Path::new(&vendor);
    assert!(vendor.join("lib/w").exists() && !vendor.join("new").exists());
    assert!(!vendor.join("a").exists() && !vendor.join("made").exists());
}

fn roots(repo: &str) -> Value {
    json!([
        {"path": repo, "deny": ["**/.env"]},
        {"path": format!("{repo}/vendor"), "access": "read"},
        {"path": format!("{repo}/vendor/out")},
    ])
}

/// Nothing can be granted in these roots.
const GRANTABLE: &str = "--grantable=read:file:/nowhere";

#[test]
fn nested_roots_on_the_command_line_apply_innermost_first() {
    let (_temp, repo) = repository();
    let mut arguments: Vec<String> = roots(&repo)
        .as_array()
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    arguments.push(GRANTABLE.to_owned());
    decide(started(&arguments, None), &repo);
}

#[test]
fn nested_roots_of_a_configuration_file_apply_innermost_first() {
    let (temp, repo) = repository();
    let file = temp.path().join("config.json");
    let configuration = json!({"roots": roots(&repo), "grantable": ["read:file:/nowhere"]});
    fs::write(&file, configuration.to_string()).unwrap();
    let arguments = ["--config".to_owned(), file.to_str().unwrap().to_owned()];
    decide(started(&arguments, None), &repo);
}

#[test]
fn nested_roots_of_the_client_apply_innermost_first() {
    let (_temp, repo) = repository();
    let arguments = [
        "--trust".to_owned(),
        "host".to_owned(),
        GRANTABLE.to_owned(),
    ];
    let configuration = json!({"roots": roots(&repo)});
    decide(started(&arguments, Some(configuration)), &repo);
}

#[test]
fn one_replay_is_enough_for_a_move_into_a_root() {
    let (temp, repo) = repository();
    let outside = temp.path().canonicalize().unwrap().join("outside");
    fs::write(&outside, "theirs").unwrap();
    let trust = [
        "--trust",
        "host",
        "--grantable",
        "read:file",
        "--grantable",
        "write:file",
    ];
    let mut arguments = trust.map(str::to_owned).to_vec();
    arguments.push(repo.clone());
    let mut program = started(&arguments, None);
    let arguments = json!({"from": outside, "to": "moved"});
    let params = json!({"name": "move", "arguments": arguments});
    let refused = program.request("tools/call", &params);
    let asked = &refused["result"]["_meta"]["requested_scopes"];
    let expected = ["read", "write"].map(|verb| format!("{verb}:file:{}", outside.display()));
    assert_eq!(*asked, json!(expected), "{refused}");
    call(&mut program, "move", &arguments, asked).unwrap();
    assert_eq!(
        fs::read_to_string(format!("{repo}/moved")).unwrap(),
        "theirs"
    );
}
