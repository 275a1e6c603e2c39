//! What a person configures in, a runtime or the reason why it would not be safe out.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "the directories to be served are made here"
)]

use bailiwick::{
    BuildError, JsonLines, RootConfig, RootError, Runtime, RuntimeBuilder, VirtualPath,
};

#[track_caller]
fn refused(result: Result<(Runtime, bailiwick::GrantAuthority), BuildError>, expected: &str) {
    match result {
        Err(BuildError::Root(RootError::Unsafe { reason, .. })) => {
            assert!(reason.contains(expected), "{reason}")
        }
        other => panic!("{other:?}"),
    }
}

fn mounted(builder: RuntimeBuilder, mount: &str, host: &std::path::Path) -> RuntimeBuilder {
    builder.root_with(
        RootConfig::new(VirtualPath::parse(mount, None).unwrap()),
        host,
        false,
    )
}

#[tokio::test]
async fn two_names_for_the_same_files_are_refused_and_a_root_within_a_root_is_not() {
    let world = tempfile::tempdir().unwrap();
    let inner = world.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let twice = Runtime::builder()
        .root("a", world.path())
        .root("b", world.path())
        .build()
        .await;
    refused(twice, "other names");
    let nested = Runtime::builder()
        .root("a", world.path())
        .root("b", &inner)
        .build()
        .await;
    refused(nested, "other names");
    let before = Runtime::builder()
        .root("b", &inner)
        .root("a", world.path())
        .build()
        .await;
    refused(before, "other names");
    let within = mounted(
        mounted(Runtime::builder(), "/a", world.path()),
        "/a/inner",
        &inner,
    );
    assert!(within.build().await.is_ok());
}

#[tokio::test]
async fn a_root_that_holds_the_audit_log_is_refused_and_one_beside_it_is_not() {
    let world = tempfile::tempdir().unwrap();
    let root = world.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let within = JsonLines::create(root.join("audit.jsonl")).unwrap();
    refused(
        Runtime::builder()
            .root("r", &root)
            .audit(within)
            .build()
            .await,
        "audit log",
    );
    let beside = JsonLines::create(world.path().join("audit.jsonl")).unwrap();
    assert!(
        Runtime::builder()
            .root("r", &root)
            .audit(beside)
            .build()
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn the_whole_machine_and_the_kernels_files_are_refused() {
    for host in ["/", "/proc", "/sys", "/proc/self"] {
        let built = Runtime::builder().root("r", host).build().await;
        assert!(matches!(built, Err(BuildError::Root(_))), "{host}");
    }
}

#[tokio::test]
async fn names_and_patterns_that_are_none_are_refused_by_name() {
    let world = tempfile::tempdir().unwrap();
    let bad = Runtime::builder().root("a/b", world.path()).build().await;
    assert!(matches!(bad, Err(BuildError::Mount(..))));
    let bad = Runtime::builder()
        .root("a", world.path())
        .grantable("fly:file")
        .build()
        .await;
    assert!(matches!(bad, Err(BuildError::Grantable(_))));
    let absent = Runtime::builder()
        .root("a", world.path().join("absent"))
        .build()
        .await;
    assert!(matches!(
        absent,
        Err(BuildError::Root(RootError::Open { .. }))
    ));
}
