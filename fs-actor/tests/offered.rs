//! Which tools a policy offers.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes its files itself"
)]

use bailiwick::effect::Content;
use bailiwick::policy::{Access, WriteMode};
use bailiwick::tool::ToolInfo;
use bailiwick::{Code, Policy, Runtime, Verdict, Worker, WorkerSpec};
use serde_json::json;

const READING: [&str; 6] = [
    "find",
    "grep",
    "list_directory",
    "list_roots",
    "read_file",
    "stat",
];
const WRITING: [&str; 7] = [
    "apply_batch",
    "copy",
    "delete",
    "edit_file",
    "make_directory",
    "move",
    "write_file",
];

async fn runtime(read_only: bool) -> (tempfile::TempDir, Runtime) {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("f"), "text").unwrap();
    let builder = Runtime::builder().tools(bailiwick_fs::tools());
    let builder = if read_only {
        builder.root_read_only("r", temp.path())
    } else {
        builder.root("r", temp.path())
    };
    let (runtime, _grants) = builder.build().await.unwrap();
    (temp, runtime)
}

fn names(worker: &Worker) -> Vec<String> {
    let tools = worker.tools();
    tools
        .iter()
        .map(|tool| tool.spec.name.to_string())
        .collect()
}

async fn check(policy: Policy, expected: &[&str]) {
    let (_temp, runtime) = runtime(false).await;
    let described = format!("{policy:?}");
    let spec = WorkerSpec::new("agent").policy(policy);
    let worker = runtime.spawn(spec).await.unwrap();
    let offered = names(&worker);
    let mut expected: Vec<&str> = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(offered, expected, "{described}");
    // Tools that are not offered are denied.
    let calls = [
        ("delete", json!({"path": "/r/f"})),
        ("write_file", json!({"path": "/r/new", "content": "x"})),
        ("read_file", json!({"path": "/r/f"})),
    ];
    for (tool, arguments) in calls {
        if !expected.contains(&tool) {
            let error = worker.call(tool, arguments).await.unwrap_err();
            let denied = [Code::PermissionDenied, Code::NotFound];
            assert!(
                denied.contains(&error.code()),
                "{described} {tool}: {error}"
            );
        }
    }
}

#[tokio::test]
async fn tools_that_are_always_denied_are_not_offered() {
    let all = [&READING[..], &WRITING[..]].concat();
    check(Policy::new(), &all).await;
    check(Policy::new().ask("write:file").allow("read:file"), &all).await;
    check(
        Policy::new().allow("read:file").allow("write:file:/r/sub"),
        &all,
    )
    .await;
    check(Policy::new().read_only(true), &READING).await;
    check(Policy::new().access(Access::Read), &READING).await;
    check(Policy::new().allow("read:file"), &READING).await;
    check(Policy::new().deny("write:file"), &READING).await;
    check(Policy::new().delegate_only("write:file"), &READING).await;
    check(Policy::new().write_modes([]), &READING).await;
    let creates = Policy::new().write_modes([WriteMode::Create]);
    check(creates, &all).await;
    for glob in ["**", "*", "**/*", "*/**", "{**,x}", "**/**"] {
        check(Policy::new().immutable_glob(glob), &READING).await;
    }
    for glob in ["**/f", "x/**", "*.rs", "?"] {
        check(Policy::new().immutable_glob(glob), &all).await;
        check(Policy::new().deny_glob(glob), &all).await;
    }
    check(Policy::new().deny_glob("**"), &["list_roots"]).await;
    check(Policy::new().deny_glob("*"), &READING).await;
    let nothing = Policy::new().otherwise(Verdict::Deny);
    check(nothing, &["list_roots"]).await;
    let writes = [WRITING.as_slice(), &["list_roots"]].concat();
    check(Policy::new().allow("write:file"), &writes).await;
}

#[tokio::test]
async fn writing_tools_are_not_offered_with_read_only_roots() {
    let (_temp, runtime) = runtime(true).await;
    let worker = runtime.spawn(WorkerSpec::new("agent").policy(Policy::new()));
    assert_eq!(names(&worker.await.unwrap()), READING);
}

#[tokio::test]
async fn required_previews_are_made_by_arguments() {
    let (temp, runtime) = runtime(false).await;
    let spec = WorkerSpec::new("agent").policy(Policy::new().require_preview(true));
    let worker = runtime.spawn(spec).await.unwrap();
    let takes = |tool: &ToolInfo| tool.input_schema["properties"].get("preview").is_some();
    for tool in worker.tools() {
        assert_eq!(takes(&tool), tool.mutates, "{}", tool.spec.name);
    }
    let mut write = json!({"path": "/r/new", "content": "x"});
    let blind = worker.call("write_file", write.clone()).await.unwrap_err();
    assert_eq!(blind.code(), Code::StalePreview);
    assert!(blind.message().contains("`preview_token`"), "{blind}");

    write["preview"] = json!(true);
    let shown = worker.call("write_file", write.clone()).await.unwrap();
    assert!(shown.changes.is_empty() && !temp.path().join("new").exists());
    let told = shown.structured().unwrap();
    let token = told["preview_token"].as_str().unwrap();
    let diff = told["diff"].as_str().unwrap();
    assert!(diff.contains("\n+x\n"), "{diff}");
    // Some clients pass only the first content block to their model.
    let [Content::Text(text)] = &*shown.reply.content else {
        panic!("{shown:?}");
    };
    assert!(text.as_str().contains(token) && text.as_str().contains(diff));
    assert_eq!(
        (&told["preview"], &told["done"]),
        (&json!(true), &json!("created"))
    );

    let mut other = json!({"path": "/r/other", "content": "x", "preview_token": token});
    assert!(worker.call("write_file", other.clone()).await.is_err());
    other["preview_token"] = json!("x");
    let error = worker.call("write_file", other).await.unwrap_err();
    assert_eq!(error.details()["field"], "/preview_token");

    let made = json!({"path": "/r/new", "content": "x", "preview": false, "preview_token": token});
    let made = worker.call("write_file", made).await.unwrap();
    assert_eq!(made.changes.len(), 1);
    assert!(temp.path().join("new").exists());
}

#[tokio::test]
async fn preview_arguments_are_unknown_where_no_preview_is_required() {
    let (temp, runtime) = runtime(false).await;
    let worker = runtime.spawn(WorkerSpec::new("agent").policy(Policy::new()));
    let worker = worker.await.unwrap();
    let write = json!({"path": "/r/new", "content": "x", "preview": true});
    let error = worker.call("write_file", write).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArguments);
    assert!(!temp.path().join("new").exists());
}

#[tokio::test]
async fn delegated_writing_is_offered_to_the_child() {
    let (_temp, runtime) = runtime(false).await;
    let policy = Policy::new().allow("read:file").delegate_only("write:file");
    let lead = runtime
        .spawn(WorkerSpec::new("lead").policy(policy))
        .await
        .unwrap();
    assert_eq!(names(&lead), READING);
    let child = lead
        .spawn(WorkerSpec::new("child").policy(Policy::new()))
        .await
        .unwrap();
    assert_eq!(names(&child).len(), 13);
    assert!(child.call("delete", json!({"path": "/r/f"})).await.is_ok());
}
