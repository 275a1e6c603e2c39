//! Text and structured content of results are equivalent.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes its files itself"
)]

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use bailiwick::effect::Content;
use bailiwick::text::escape;
use bailiwick::{Code, Outcome, Policy, Runtime, Worker};
use bailiwick_test_support::cases;
use bailiwick_test_support::stage::started;

async fn worker(root: &Path) -> (Runtime, Worker) {
    let builder = Runtime::builder().root("r", root);
    started(builder.tools(bailiwick_fs::tools()), Policy::new()).await
}

#[expect(clippy::too_many_lines, reason = "a table with one entry per error")]
#[tokio::test(flavor = "multi_thread")]
async fn errors_about_arguments_name_the_field_and_give_an_example() {
    let temp = tempfile::tempdir().unwrap();
    tree(temp.path(), "one\n");
    let (_runtime, worker) = worker(temp.path()).await;
    let edit = json!({"old_text": "one", "new_text": "1", "occurrence": 1, "replace_all": true});
    for (tool, arguments, field, expected) in [
        (
            "read_file",
            json!({}),
            "/path",
            "expected a string, or a list of strings as `paths`",
        ),
        (
            "read_file",
            json!({"path": "a", "paths": ["b"]}),
            "/paths",
            "expected either",
        ),
        (
            "read_file",
            json!({"path": "a", "limit": -1}),
            "/limit",
            "expected an integer of at least 0, got `-1`",
        ),
        (
            "read_file",
            json!({"path": "a", "limit": 0}),
            "/limit",
            "expected an integer of at least 1, got `0`",
        ),
        (
            "read_file",
            json!({"path": "a", "offset": 0}),
            "/offset",
            "expected a line number from 1",
        ),
        (
            "edit_file",
            json!({"path": "a.txt", "edits": []}),
            "/edits",
            "expected at least one edit",
        ),
        (
            "edit_file",
            json!({"path": "a.txt", "edits": [edit], "patch": "x"}),
            "/patch",
            "expected either",
        ),
        (
            "edit_file",
            json!({"path": "a.txt", "edits": [edit]}),
            "/edits/0/occurrence",
            "expected one occurrence or all",
        ),
        (
            "grep",
            json!({"pattern": "("}),
            "/pattern",
            "expected a regular expression: unclosed group",
        ),
        (
            "grep",
            json!({"pattern": "a", "glob": "["}),
            "/glob",
            "the glob is malformed: unclosed character class",
        ),
        (
            "find",
            json!({"pattern": "["}),
            "/pattern",
            "the glob is malformed: unclosed character class",
        ),
        (
            "find",
            json!({"pattern": "*", "cursor": "!"}),
            "/cursor",
            "expected the `next_cursor`",
        ),
        (
            "delete",
            json!({"path": "d"}),
            "/recursive",
            "`/r/d` is not empty; set it to `true`",
        ),
    ] {
        let refused = worker.call(tool, arguments).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArguments, "{refused}");
        assert_eq!(refused.details()["field"], field, "{refused}");
        let message = refused.message();
        let start = format!("invalid argument `{field}`: {expected}");
        assert!(message.starts_with(&start), "{message}");
        assert!(message.contains("; for example `{\""), "{message}");
    }
    for (tool, arguments) in [
        (
            "read_file",
            json!({"path": "a.txt", "limit": 1, "offset": -1}),
        ),
        (
            "edit_file",
            json!({"path": "a.txt", "edits": [{"old_text": "one", "new_text": "1"}]}),
        ),
        (
            "grep",
            json!({"pattern": "(", "literal": true, "glob": "*.txt"}),
        ),
        ("find", json!({"pattern": "*"})),
        ("delete", json!({"path": "d", "recursive": true})),
    ] {
        let done = worker.call(tool, arguments).await;
        assert!(done.is_ok(), "{tool}: {done:?}");
    }
}

fn tree(root: &Path, text: &str) {
    fs::create_dir_all(root.join("d/e")).unwrap();
    fs::write(root.join("a.txt"), text).unwrap();
    fs::write(root.join("d/b.txt"), format!("one\n{text}two\n")).unwrap();
    fs::write(root.join("d/e/c"), "one").unwrap();
    fs::write(root.join("d/odd\u{202e}name"), "one\n").unwrap();
    fs::write(root.join("bytes"), [b'o', 0, 255]).unwrap();
}

fn path() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["/r", "/r/a.txt", "/r/d", "/r/d/b.txt", "/r/none"])
}

fn call() -> impl Strategy<Value = (&'static str, Value)> {
    let limit = prop::option::of(1_u32..5);
    let reads = (path(), -4_i64..6, limit.clone(), any::<bool>()).prop_map(
        |(path, offset, limit, numbers)| {
            let offset = if offset == 0 {
                Value::Null
            } else {
                json!(offset)
            };
            let read =
                json!({"path": path, "offset": offset, "limit": limit, "line_numbers": numbers});
            ("read_file", read)
        },
    );
    let many = Just((
        "read_file",
        json!({"paths": ["/r/a.txt", "/r/none", "/r/bytes", "/r/d/b.txt"]}),
    ));
    let lists = (path(), 1_u32..4, limit.clone()).prop_map(|(path, depth, limit)| {
        (
            "list_directory",
            json!({"path": path, "depth": depth, "limit": limit}),
        )
    });
    let finds = (
        prop::sample::select(vec!["*", "*.txt", "z*"]),
        limit.clone(),
    )
        .prop_map(|(pattern, limit)| ("find", json!({"pattern": pattern, "limit": limit})));
    let modes = prop::sample::select(vec!["content", "files", "count"]);
    let greps = (
        modes,
        prop::sample::select(vec!["o", "^$", "zz"]),
        0_u32..3,
        limit,
    )
        .prop_map(|(mode, pattern, context, limit)| {
            let search =
                json!({"pattern": pattern, "mode": mode, "context": context, "limit": limit});
            ("grep", search)
        });
    let stats = (path(), any::<bool>())
        .prop_map(|(path, hash)| ("stat", json!({"path": path, "hash": hash})));
    let modes = prop::sample::select(vec!["create", "overwrite", "append"]);
    let writes = (path(), "[a-c\n]{0,9}", modes).prop_map(|(path, content, mode)| {
        (
            "write_file",
            json!({"path": path, "content": content, "mode": mode}),
        )
    });
    let edits = (path(), any::<bool>()).prop_map(|(path, all)| {
        let edits = json!([{"old_text": "one", "new_text": "1", "replace_all": all}]);
        ("edit_file", json!({"path": path, "edits": edits}))
    });
    let others = prop::sample::select(vec![
        ("list_roots", json!({})),
        (
            "make_directory",
            json!({"path": "/r/x/y", "create_parents": true}),
        ),
        ("copy", json!({"from": "/r/d", "to": "/r/copy"})),
        ("move", json!({"from": "/r/d", "to": "/r/moved"})),
        ("delete", json!({"path": "/r/d", "recursive": true})),
    ]);
    prop_oneof![
        reads, many, lists, finds, greps, stats, writes, edits, others
    ]
}

/// The texts and counts of a value, except those that are in content blocks or text in another form: metadata of a file
/// whose text is complete, kinds of entries, and names as bytes.
fn leaves(tool: &str, key: &str, value: &Value, found: &mut Vec<String>) {
    let elsewhere: &[&str] = match tool {
        "read_file" => &[
            "path",
            "bytes",
            "lines",
            "first_line",
            "last_line",
            "hash",
            "mime",
            "bom",
            "unchanged",
        ],
        "list_directory" => &["path", "kind", "raw", "total", "bytes"],
        "find" => &["total"],
        "grep" => &["matches"],
        "stat" => &["kind"],
        "edit_file" => &["count", "strategy"],
        _ => &[],
    };
    if elsewhere.contains(&key) && !value.is_array() {
        return;
    }
    match value {
        Value::Object(members) => {
            let members = members.iter();
            members.for_each(|(key, member)| leaves(tool, key, member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| leaves(tool, key, item, found)),
        Value::String(text) => found.extend(text.lines().map(str::to_owned)),
        Value::Number(number) => found.push(number.to_string()),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Lines about missing content or where to continue.
fn is_notice(line: &str) -> bool {
    let known = [
        "nothing found",
        "(empty)",
        "no match in ",
        "no whole root",
        "== ",
        "--",
    ];
    line.is_empty() || line.starts_with('[') || known.iter().any(|start| line.starts_with(start))
}

fn texts(outcome: &Outcome) -> String {
    let texts = outcome.reply.content.iter().map(|content| match content {
        Content::Text(text) => text.as_str(),
        _ => "",
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn check(tool: &str, outcome: &Outcome) {
    let (text, value) = (texts(outcome), outcome.structured().unwrap());
    let mut found = Vec::new();
    leaves(tool, "", &value, &mut found);
    for leaf in &found {
        let told = text.contains(&*escape(leaf)) || text.contains(leaf.as_str());
        assert!(
            told,
            "{tool}: `{leaf}` of {value} is not in the text:\n{text}"
        );
    }
    for line in text.lines().filter(|line| !is_notice(line)) {
        let says = |leaf: &String| {
            !leaf.is_empty() && (line.contains(leaf.as_str()) || line.contains(&*escape(leaf)))
        };
        assert!(found.iter().any(says), "{tool}: `{line}` is not in {value}");
    }
    let digits =
        |word: &&str| word.len() >= 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let all = format!("{text} {value}");
    let hash = all.split(|c: char| !c.is_ascii_alphanumeric()).find(digits);
    assert_eq!(hash, None, "{tool}");
    assert!(!all.contains("ui://"), "{tool}: {all}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(64)) })]

    #[test]
    fn text_and_structured_content_are_equivalent(
        text in "([a-z ]{0,6}\n){0,5}", calls in prop::collection::vec(call(), 1..8),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let temp = tempfile::tempdir().unwrap();
            tree(temp.path(), &text);
            let (_runtime, worker) = worker(temp.path()).await;
            for (tool, arguments) in calls {
                // The gateway makes the text and `message` of a failed call from one error.
                if let Ok(outcome) = worker.call(tool, arguments).await {
                    check(tool, &outcome);
                }
            }
        });
    }
}

/// The text of a read is complete in the structured content.
#[tokio::test]
async fn structured_content_has_the_text_of_a_read() {
    let temp = tempfile::tempdir().unwrap();
    tree(temp.path(), "zero\n");
    let (_runtime, worker) = worker(temp.path()).await;
    let call = async |tool, arguments| {
        worker
            .call(tool, arguments)
            .await
            .unwrap()
            .structured()
            .unwrap()
    };
    let read = call("read_file", json!({"path": "/r/a.txt"})).await;
    assert_eq!(read["files"][0]["text"], "zero\n");
    let found = call(
        "grep",
        json!({"pattern": "one", "path": "/r/d/b.txt", "context": 1}),
    )
    .await;
    let expected = json!([{"path": "/r/d/b.txt", "matches": 1, "lines": ["1:one", "2-zero"]}]);
    assert_eq!(found["files"], expected);
    let short = read["files"][0]["hash"].as_str().unwrap();
    assert_eq!(short.len(), 12);
    let write =
        json!({"path": "/r/a.txt", "content": "x", "mode": "overwrite", "expected_hash": short});
    assert_eq!(
        call("write_file", write.clone()).await["done"],
        "overwritten"
    );
    assert!(
        worker.call("write_file", write).await.is_err(),
        "the file is another now"
    );
}
