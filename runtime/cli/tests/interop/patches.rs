//! Tests that GNU patch can apply the diffs of calls.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use bailiwick::{Policy, Runtime, WorkerSpec};
use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::{Value, json};

/// What `patch` takes from the front of each name, run in the root: `a` or `b`.
const STRIP: &str = "-p1";

type Files = BTreeMap<String, String>;

fn put(root: &Path, files: &Files) {
    for (name, text) in files {
        let file = root.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
}

fn taken(root: &Path) -> Files {
    let mut found = Files::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap();
                found.insert(name.to_owned(), fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// Calls the tool on `before`, gives its diff to `patch` on the same files, and compares.
async fn check(before: &Files, tool: &str, arguments: Value) {
    let temp = tempfile::tempdir().unwrap();
    let (changed, patched) = (temp.path().join("changed"), temp.path().join("patched"));
    for root in [&changed, &patched] {
        fs::create_dir(root).unwrap();
        put(root, before);
    }
    let builder = Runtime::builder().root("repo", &changed);
    let (runtime, _grants) = builder.tools(bailiwick_fs::tools()).build().await.unwrap();
    let spec = WorkerSpec::new("main").policy(Policy::new());
    let worker = runtime.spawn(spec).await.unwrap();
    let outcome = worker.call(tool, arguments).await.unwrap();
    let diff = outcome
        .artifacts
        .iter()
        .find(|artifact| artifact.name == "diff");
    let diff = worker.artifact(&diff.unwrap().uri).unwrap().bytes;
    let file = temp.path().join("diff");
    fs::write(&file, &diff).unwrap();
    let patch = Command::new("patch")
        .args([STRIP, "--batch", "--binary", "--fuzz=0", "-i"])
        .arg(&file)
        .current_dir(&patched)
        .output()
        .unwrap();
    let diff = String::from_utf8(diff.to_vec()).unwrap();
    let stdout = String::from_utf8_lossy(&patch.stdout);
    assert!(patch.status.success(), "{tool}: {stdout}\n{diff}");
    let after = taken(&changed);
    assert_ne!(&after, before, "{tool}");
    assert_eq!(taken(&patched), after, "{tool}: {stdout}\n{diff}");
}

#[tokio::test]
async fn patch_has_the_same_effect_as_the_call() {
    let names = [
        "plain",
        "d/with space",
        "d/quo\"te",
        "back\\slash",
        "d/\u{e9}\u{65e5}",
    ];
    let texts = ["one\ntwo\nthree\n", "one\r\ntwo\r\nthree\r\n", "one\ntwo"];
    for (name, text) in names
        .iter()
        .flat_map(|name| texts.map(|text| (*name, text)))
    {
        let path = format!("/repo/{name}");
        let before = Files::from([
            (name.to_owned(), text.to_owned()),
            ("other".to_owned(), "stays\n".to_owned()),
        ]);
        let without = Files::from([("other".to_owned(), "stays\n".to_owned())]);
        let edit = json!({"path": path, "edits": [{"old_text": "two", "new_text": "2"}]});
        check(&before, "edit_file", edit).await;
        let more = json!({"path": path, "content": "more", "mode": "append"});
        check(&before, "write_file", more).await;
        let new = json!({"path": path, "content": text, "create_parents": true});
        check(&without, "write_file", new).await;
        check(&before, "delete", json!({"path": path})).await;
        let to = format!("{path} moved");
        check(&before, "move", json!({"from": path, "to": to})).await;
        check(&before, "copy", json!({"from": path, "to": to})).await;
    }
}

/// Replaces the content of `/repo/a`, which must differ.
async fn check_replacement(old: &str, new: &str) {
    let before = Files::from([("a".to_owned(), old.to_owned())]);
    let arguments = json!({"path": "/repo/a", "content": new, "mode": "overwrite"});
    check(&before, "write_file", arguments).await;
}

#[tokio::test]
async fn patch_applies_unusual_content() {
    let like_a_diff = "--- a/x\n+++ b/x\n@@ -1,1 +1,1 @@\n-- \n\\ No newline at end of file\n";
    for (old, new) in [
        ("1\n2", "1\n2\n"),
        ("x", "y\n\nz"),
        ("", "a\n"),
        ("a\n", ""),
        ("1\r\n2\r\n", "1\n2\r\n"),
        ("1\r2\r3", "1\r2b\r3"),
        ("\u{c}\u{b}\u{2028}\n", "\u{c}\u{b}\u{2028}x\n"),
        ("old\n", like_a_diff),
        (like_a_diff, "new\n"),
    ] {
        check_replacement(old, new).await;
    }
    for name in [" a", "-p0", "a\u{a0}b"] {
        let before = Files::from([(name.to_owned(), "1\n2\n".to_owned())]);
        let arguments =
            json!({"path": format!("/repo/{name}"), "content": "1\n3\n", "mode": "overwrite"});
        check(&before, "write_file", arguments).await;
    }
}

proptest! {
    #![proptest_config(Config::with_cases(bailiwick_test_support::cases(24)))]
    #[test]
    fn patch_recreates_any_new_text(
        old in proptest::collection::vec("[ab\r+-]{0,2}\n", 0..12),
        new in proptest::collection::vec("[ab\r+-]{0,2}\n", 1..12),
        cut in any::<(bool, bool)>(),
    ) {
        let text = |lines: Vec<String>, cut: bool| {
            let whole = lines.concat();
            if cut { whole.trim_end_matches('\n').to_owned() } else { whole }
        };
        let (old, new) = (text(old, cut.0), text(new, cut.1));
        prop_assume!(old != new && !new.is_empty());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(check_replacement(&old, &new));
    }
}
