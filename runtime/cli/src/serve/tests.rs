//! Clients that configure and a grant store in, who of them has it out.

use std::error::Error as _;

use bailiwick_fs::{Durability, WriteFileOutput};
use serde_json::json;

use super::*;
use crate::cli::{Wanted, parse};

fn server(folder: &std::path::Path) -> Server {
    keeping("--grants", folder.join("grants"))
}

/// A server with one file.
fn keeping(flag: &str, file: PathBuf) -> Server {
    let arguments = [
        "bailiwick".into(),
        "serve".into(),
        "--trust=host".into(),
        flag.into(),
        file.into(),
    ];
    let Wanted::Server(options) = parse(arguments, [], None).unwrap() else {
        panic!("no server is wanted");
    };
    Server::new(Arc::new(*options), None, None, Vec::new(), None)
}

#[tokio::test]
async fn writes_are_as_durable_as_the_options_say() {
    let folder = tempfile::tempdir().unwrap();
    for (flag, expected) in [
        (None, Durability::Ordered),
        (Some("--durability=durable"), Durability::Durable),
    ] {
        let arguments = ["bailiwick".into(), "serve".into(), folder.path().into()];
        let arguments = arguments.into_iter().chain(flag.map(Into::into));
        let Wanted::Server(options) = parse(arguments, [], None).unwrap() else {
            panic!("no server is wanted");
        };
        let (runtime, _grants) = builder(&options, None, None)
            .unwrap()
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
async fn clients_that_come_at_once_get_audits_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let server = keeping("--audit", folder.path().join("audit"));
    let configuration = || Some(json!({ "read_only": true }));
    let (first, second, third) = tokio::join!(
        server.served(configuration()),
        server.served(configuration()),
        server.served(configuration()),
    );
    drop((first.unwrap(), second.unwrap(), third.unwrap()));
    let there =
        ["audit", "audit.2", "audit.3", "audit.4"].map(|name| folder.path().join(name).is_file());
    assert_eq!(there, [true, true, true, false]);
}

#[tokio::test]
async fn the_first_client_that_configures_has_the_store_and_the_next_is_served_without() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let configuration = || Some(json!({ "read_only": true }));
    let first = server.served(configuration()).await.unwrap();
    let in_use = GrantStore::open(folder.path().join("grants")).unwrap_err();
    assert!(matches!(in_use, GrantStoreError::InUse { .. }));
    let second = server.served(configuration()).await.unwrap();
    let holding = json!({ "roots": [{ "path": folder.path() }] });
    let refused = server.served(Some(holding)).await.unwrap_err();
    let BackendError::Build(error) = &refused else {
        panic!("{refused:?}")
    };
    assert!(error.data("initialize").is_some(), "{error:?}");
    drop((first, second));
}

#[tokio::test]
async fn while_another_process_has_the_store_nobody_is_served_and_no_path_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let theirs = GrantStore::open(folder.path().join("grants")).unwrap();
    let refused = server.served(None).await.unwrap_err();
    assert!(matches!(refused, BackendError::Grants(_)), "{refused:?}");
    assert_eq!(refused.to_string(), "the grants cannot be kept");
    assert!(refused.source().is_none());
    drop(theirs);
    server.served(None).await.unwrap();
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the files are made here")]
async fn a_client_cannot_configure_a_root_that_holds_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    let (inner, other) = (folder.path().join("inner"), folder.path().join("other"));
    std::fs::create_dir(&inner).unwrap();
    std::fs::create_dir(&other).unwrap();
    let secret = inner.join("bailiwick-1.token");
    std::fs::write(&secret, "secret").unwrap();
    let server = Server {
        secrets: vec![secret],
        ..keeping("--audit", folder.path().join("audit"))
    };
    let configured = |root: &std::path::Path| Some(json!({ "roots": [{ "path": root }] }));
    let refused = server.served(configured(&inner)).await.unwrap_err();
    let BackendError::Build(error) = &refused else {
        panic!("{refused:?}")
    };
    assert!(error.data("initialize").is_some(), "{error:?}");
    server.served(configured(&other)).await.unwrap();
}
