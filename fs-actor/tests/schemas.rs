//! Schemas and descriptions of the tools match their results.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes its files itself"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use bailiwick::{Code, Policy, Runtime, Worker};
use bailiwick_test_support::json::with_further_member;
use bailiwick_test_support::stage::started;
use bailiwick_test_support::temp_files::tree;
use serde_json::{Value, json};

async fn worker(root: &std::path::Path) -> (Runtime, Worker) {
    let builder = Runtime::builder().root("r", root);
    started(builder.tools(bailiwick_fs::tools()), Policy::new()).await
}

/// Why `value` does not match `schema`, for the keywords that the tools use; `whole` has the definitions.
fn fault(whole: &Value, schema: &Value, value: &Value) -> Option<String> {
    if let Some(place) = schema["$ref"].as_str() {
        let meant = whole.pointer(place.trim_start_matches('#')).unwrap();
        return fault(whole, meant, value);
    }
    for several in ["anyOf", "oneOf"] {
        if let Some(one_of) = schema[several].as_array() {
            let fits = one_of.iter().any(|one| fault(whole, one, value).is_none());
            return (!fits).then(|| format!("{value} is none of {one_of:?}"));
        }
    }
    let is = |kind: &Value| match kind.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => false,
    };
    let of_kind = match &schema["type"] {
        Value::Null => true,
        Value::Array(kinds) => kinds.iter().any(is),
        kind => is(kind),
    };
    let listed = schema["enum"].as_array();
    let among = listed.is_none_or(|list| list.contains(value))
        && schema.get("const").is_none_or(|only| only == value);
    if !of_kind || !among {
        return Some(format!("{value} is not as {schema} says"));
    }
    if let Some(fields) = value.as_object() {
        let required = schema["required"].as_array().into_iter().flatten();
        let mut names = required.filter_map(Value::as_str);
        if let Some(name) = names.find(|name| !fields.contains_key(*name)) {
            return Some(format!("{name} is missing"));
        }
        return fields.iter().find_map(|(name, value)| {
            let Some(schema) = schema["properties"].get(name) else {
                return Some(format!("{name} is not described"));
            };
            fault(whole, schema, value).map(|why| format!("{name}: {why}"))
        });
    }
    let mut items = value.as_array().into_iter().flatten();
    items.find_map(|item| fault(whole, &schema["items"], item))
}

/// A call of each tool, and further calls for optional parts of results.
fn calls() -> Vec<(&'static str, Value)> {
    vec![
        ("list_roots", json!({})),
        ("list_directory", json!({"path": "/r"})),
        (
            "list_directory",
            json!({"path": "/r", "depth": 9, "limit": 1}),
        ),
        ("stat", json!({"path": "/r/f"})),
        ("read_file", json!({"path": "/r/f"})),
        ("read_file", json!({"path": "/r/f", "limit": 1})),
        (
            "read_file",
            json!({"paths": ["/r/f", "/r/none", "/r/image.png"]}),
        ),
        ("read_file", json!({"path": "/r/bytes", "binary": true})),
        ("find", json!({"path": "/r", "pattern": "*"})),
        ("find", json!({"path": "/r", "pattern": "*", "limit": 1})),
        ("find", json!({"path": "/r", "pattern": "none"})),
        ("grep", json!({"path": "/r", "pattern": "o"})),
        ("grep", json!({"path": "/r", "pattern": "o", "limit": 1})),
        (
            "grep",
            json!({"path": "/r", "pattern": "o", "mode": "count"}),
        ),
        (
            "grep",
            json!({"path": "/r", "pattern": "o", "mode": "files"}),
        ),
        (
            "write_file",
            json!({"path": "/r/new", "content": "one\ntwo\n"}),
        ),
        (
            "write_file",
            json!({"path": "/r/new", "content": "... rest unchanged", "mode": "overwrite"}),
        ),
        (
            "edit_file",
            json!({"path": "/r/f", "edits": [{"old_text": "one", "new_text": "1"}]}),
        ),
        (
            "make_directory",
            json!({"path": "/r/a/b", "create_parents": true}),
        ),
        (
            "make_directory",
            json!({"path": "/r/a/b", "create_parents": true}),
        ),
        ("copy", json!({"from": "/r/d", "to": "/r/copy"})),
        ("move", json!({"from": "/r/copy", "to": "/r/moved"})),
        ("delete", json!({"path": "/r/moved", "recursive": true})),
        (
            "apply_batch",
            json!({"operations": [
                {"tool": "write_file", "path": "/r/f", "content": "one\n", "mode": "overwrite"},
                {"tool": "edit_file", "path": "/r/f", "edits": [{"old_text": "one", "new_text": "two"}]},
                {"tool": "copy", "from": "/r/f", "to": "/r/x/g", "create_parents": true},
                {"tool": "make_directory", "path": "/r/d", "create_parents": true},
                {"tool": "delete", "path": "/r/image.png"},
            ]}),
        ),
    ]
}

#[tokio::test]
async fn results_and_previews_match_the_output_schema() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir_all(temp.path().join("d/e")).unwrap();
    fs::write(temp.path().join("f"), "one\ntwo\n").unwrap();
    fs::write(temp.path().join("d/e/f"), "one").unwrap();
    fs::write(temp.path().join("bytes"), [0, 255]).unwrap();
    fs::write(temp.path().join("image.png"), b"\x89PNG\r\n\x1a\n").unwrap();
    let (_runtime, worker) = worker(temp.path()).await;
    let tools = worker.tools();
    let schemas: BTreeMap<_, _> = tools
        .iter()
        .map(|tool| {
            let schemas = (&tool.input_schema, &tool.output_schema);
            (tool.spec.name.clone().into_owned(), (tool.mutates, schemas))
        })
        .collect();
    let mut called = BTreeSet::new();
    for (name, arguments) in calls() {
        let (mutates, (input, output)) = schemas[name];
        called.insert(name);
        let fits = |schema: &Value, value: &Value| {
            let found = fault(schema, schema, value);
            assert_eq!(found, None, "{name} {arguments}: {value}");
        };
        fits(input, &arguments);
        let typo = json!({"no such argument": 1});
        assert!(fault(input, input, &typo).is_some(), "{name}");
        let previewed = if mutates {
            let preview = worker.preview(name, arguments.clone()).await.unwrap();
            let told = preview.reply.output.to_json().unwrap();
            fits(output, &told);
            Some(told)
        } else {
            None
        };
        let outcome = worker.call(name, arguments.clone()).await.unwrap();
        let told = outcome.structured().unwrap();
        fits(output, &told);
        assert!(
            previewed.is_none_or(|previewed| previewed == told),
            "{name}"
        );
        let nothing = json!({});
        assert!(fault(output, output, &nothing).is_some(), "{name}");
    }
    let all: BTreeSet<_> = schemas.keys().map(String::as_str).collect();
    assert_eq!(called, all);
}

#[tokio::test]
async fn unknown_argument_at_any_depth_is_rejected_and_changes_nothing() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir_all(temp.path().join("d/e")).unwrap();
    fs::write(temp.path().join("f"), "one\ntwo\n").unwrap();
    let (_runtime, worker) = worker(temp.path()).await;
    let before = tree(temp.path());
    let mut nested = 0;
    for (name, arguments) in calls() {
        for arguments in with_further_member(&arguments, "unknown") {
            nested += usize::from(arguments.get("unknown").is_none());
            let error = worker.call(name, arguments.clone()).await.unwrap_err();
            assert_eq!(error.code(), Code::InvalidArguments, "{name} {arguments}");
        }
    }
    assert_eq!(nested, 7);
    assert_eq!(tree(temp.path()), before);
}

/// Some clients make a model fill in every argument.
#[tokio::test]
async fn empty_text_counts_as_absent_for_every_optional_argument() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("f"), "one\ntwo\n").unwrap();
    let (_runtime, worker) = worker(temp.path()).await;
    let base = [
        ("list_directory", json!({})),
        ("read_file", json!({"path": "/r/f"})),
        ("read_file", json!({"paths": ["/r/f"]})),
        ("find", json!({"pattern": "*"})),
        ("grep", json!({"pattern": "o"})),
        ("stat", json!({"path": "/r/f"})),
        ("write_file", json!({"path": "/r/new", "content": ""})),
        (
            "edit_file",
            json!({"path": "/r/f", "edits": [{"old_text": "one", "new_text": ""}]}),
        ),
        (
            "edit_file",
            json!({"path": "/r/f", "patch": "@@ -1,2 +1,1 @@\n-one\n two\n"}),
        ),
    ];
    let tools = worker.tools();
    let mut filled = BTreeSet::new();
    for (name, plain) in base {
        let tool = tools.iter().find(|tool| tool.spec.name == name).unwrap();
        let mut full = plain.clone();
        for (argument, schema) in tool.input_schema["properties"].as_object().unwrap() {
            if schema["type"] == "string" && full.get(argument).is_none() {
                full[argument] = json!("");
                filled.insert(format!("{name} {argument}"));
            }
        }
        let answer = async |arguments: Value| {
            if tool.mutates {
                let preview = worker.preview(name, arguments).await.unwrap();
                return (preview.reply.structured().unwrap(), preview.diff());
            }
            let outcome = worker.call(name, arguments).await.unwrap();
            (outcome.structured().unwrap(), String::new())
        };
        assert_eq!(
            answer(full.clone()).await,
            answer(plain).await,
            "{name} {full}"
        );
    }
    assert_eq!(filled.len(), 15, "{filled:?}");
}

#[tokio::test]
async fn every_tool_fits_the_formats_of_model_providers() {
    let temp = tempfile::tempdir().unwrap();
    let (_runtime, worker) = worker(temp.path()).await;
    for tool in worker.tools() {
        let name = &tool.spec.name;
        let members = |schema: &Value| -> BTreeSet<String> {
            let members = schema["properties"].as_object().into_iter().flatten();
            members.map(|(name, _)| name.clone()).collect()
        };
        let own = members(&tool.input_schema);
        let strict = tool.openai(true);
        assert_eq!(strict["function"]["strict"], true, "{name}");
        assert_eq!(members(&strict["function"]["parameters"]), own, "{name}");
        assert_eq!(members(&tool.anthropic()["input_schema"]), own, "{name}");
        assert_eq!(members(&tool.gemini()["parameters"]), own, "{name}");
    }
}

#[tokio::test]
async fn every_tool_and_argument_is_described() {
    let temp = tempfile::tempdir().unwrap();
    let (_runtime, worker) = worker(temp.path()).await;
    for tool in worker.tools() {
        let name = tool.spec.name;
        assert!(!tool.spec.title.is_empty(), "{name}");
        assert!(tool.spec.description.ends_with('.'), "{name}");
        assert!(!tool.spec.intent.is_empty(), "{name}");
        assert_eq!(tool.spec.scopes.is_empty(), name == "list_roots", "{name}");
        assert_eq!(
            tool.spec.scopes.contains(&"write:file".into()),
            tool.mutates,
            "{name}"
        );
        assert!(!tool.spec.destructive || tool.mutates, "{name}");
        assert_eq!(tool.input_schema["additionalProperties"], false, "{name}");
        for schema in [&tool.input_schema, &tool.output_schema] {
            assert!(!schema.to_string().contains("durability"), "{name}");
            let properties = schema["properties"].as_object().into_iter().flatten();
            for (field, schema) in properties {
                let described = schema["description"].as_str();
                assert!(
                    described.is_some_and(|text| !text.is_empty()),
                    "{name} {field}"
                );
            }
        }
    }
}
