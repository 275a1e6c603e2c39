//! Tests of the files that runtimes open.

use std::error::Error as _;

use bailiwick_fs::{Durability, WriteFileOutput};
use serde_json::json;

use super::*;
use crate::cli::{Invocation, parse};

fn opener(folder: &std::path::Path) -> RuntimeOpener {
    opener_with("--grants", folder.join("grants"))
}

/// An opener with one file.
fn opener_with(flag: &str, file: PathBuf) -> RuntimeOpener {
    let arguments = [
        "bailiwick".into(),
        "serve".into(),
        "--trust=host".into(),
        flag.into(),
        file.into(),
    ];
    let Invocation::Serve(options) = parse(arguments, [], None).unwrap() else {
        panic!("expected `serve`");
    };
    let effective = options.sources.effective().unwrap();
    RuntimeOpener {
        options: Arc::new(*options),
        files: Arc::default(),
        console: None,
        servers: None,
        secrets: Vec::new(),
        preview_key: None,
        journal: None,
        effective,
    }
}

#[tokio::test]
async fn durability_option_applies_to_writes() {
    let folder = tempfile::tempdir().unwrap();
    for (flag, expected) in [
        (None, Durability::Ordered),
        (Some("--durability=durable"), Durability::Durable),
    ] {
        let arguments = ["bailiwick".into(), "serve".into(), folder.path().into()];
        let arguments = arguments.into_iter().chain(flag.map(Into::into));
        let Invocation::Serve(options) = parse(arguments, [], None).unwrap() else {
            panic!("expected `serve`");
        };
        let effective = options.sources.effective().unwrap();
        let (runtime, _grants) = runtime_builder(&options, effective, None)
            .with_tools(&options)
            .build()
            .await
            .unwrap();
        let worker = runtime.spawn(WorkerSpec::new("w").policy(Policy::new()));
        let path = format!("{expected:?}");
        let write = json!({"path": path, "content": "x"});
        let made = worker.await.unwrap().call("write_file", write).await;
        let made = made.unwrap();
        let written = made.output::<WriteFileOutput>().unwrap();
        assert_eq!(written.durability.get(), Some(expected));
    }
}

#[tokio::test]
async fn concurrent_clients_get_separate_audit_files() {
    let folder = tempfile::tempdir().unwrap();
    let opener = opener_with("--audit", folder.path().join("audit"));
    let configuration = || Some(json!({ "read_only": true }));
    let (first, second, third) = tokio::join!(
        opener.open_runtime(configuration()),
        opener.open_runtime(configuration()),
        opener.open_runtime(configuration()),
    );
    drop((first.unwrap(), second.unwrap(), third.unwrap()));
    let there =
        ["audit", "audit.2", "audit.3", "audit.4"].map(|name| folder.path().join(name).is_file());
    assert_eq!(there, [true, true, true, false]);
}

#[tokio::test]
async fn second_client_is_served_without_the_grant_store() {
    let folder = tempfile::tempdir().unwrap();
    let opener = opener(folder.path());
    let configuration = || Some(json!({ "read_only": true }));
    let first = opener.open_runtime(configuration()).await.unwrap();
    let in_use = GrantStore::open(folder.path().join("grants")).unwrap_err();
    assert!(matches!(in_use, GrantStoreError::InUse { .. }));
    let second = opener.open_runtime(configuration()).await.unwrap();
    let holding = json!({ "roots": [{ "path": folder.path() }] });
    let refused = opener.open_runtime(Some(holding)).await.unwrap_err();
    let BackendError::Build(error) = &refused else {
        panic!("{refused:?}")
    };
    assert!(error.data("initialize").is_some(), "{error:?}");
    drop((first, second));
}

#[tokio::test]
async fn error_for_a_grant_store_in_use_omits_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let opener = opener(folder.path());
    let theirs = GrantStore::open(folder.path().join("grants")).unwrap();
    let refused = opener.open_runtime(None).await.unwrap_err();
    assert!(matches!(refused, BackendError::Grants(_)), "{refused:?}");
    assert_eq!(refused.to_string(), "the grants cannot be stored");
    assert!(refused.source().is_none());
    drop(theirs);
    opener.open_runtime(None).await.unwrap();
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the files are made here")]
async fn client_cannot_configure_a_root_that_contains_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    let (inner, other) = (folder.path().join("inner"), folder.path().join("other"));
    std::fs::create_dir(&inner).unwrap();
    std::fs::create_dir(&other).unwrap();
    let secret = inner.join("bailiwick-1.token");
    std::fs::write(&secret, "secret").unwrap();
    let opener = RuntimeOpener {
        secrets: vec![secret],
        ..opener_with("--audit", folder.path().join("audit"))
    };
    let configured = |root: &std::path::Path| Some(json!({ "roots": [{ "path": root }] }));
    let refused = opener.open_runtime(configured(&inner)).await.unwrap_err();
    let BackendError::Build(error) = &refused else {
        panic!("{refused:?}")
    };
    assert!(error.data("initialize").is_some(), "{error:?}");
    opener.open_runtime(configured(&other)).await.unwrap();
}
