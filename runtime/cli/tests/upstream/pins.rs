//! Tests of tool fingerprints across restarts.

use super::hostile_server::hostile;
use bailiwick::{BuildFault, Runtime};
use bailiwick_mcp::upstream::{PinStore, PinStoreError, ServerTool, Upstreams, WithheldReason};
use std::path::Path;

/// The server that reads how it changed from the file `changes`, with its tools pinned in `pins`.
async fn connected(pins: &Path, changes: &Path) -> Upstreams {
    let spec = hostile("h", "restarts").args([changes.to_str().unwrap()]);
    let store = PinStore::open(pins).unwrap();
    let builder = Upstreams::builder().server(spec).pin_store(store);
    builder.start().await.unwrap()
}

fn tool(upstreams: &Upstreams, name: &str) -> ServerTool {
    let tools = upstreams.tools("h");
    tools.into_iter().find(|it| it.tool == name).unwrap()
}

#[tokio::test]
async fn changed_and_added_tools_need_approval_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (pins, changes) = (folder.path().join("pins"), folder.path().join("changes"));
    std::fs::write(&changes, "").unwrap();
    let upstreams = connected(&pins, &changes).await;
    for name in ["note", "edit", "lies"] {
        assert!(tool(&upstreams, name).offered.is_ok(), "{name}");
    }
    upstreams.shutdown().await;
    drop(upstreams);
    for (change, name, why) in [
        ("description", "note", WithheldReason::Changed),
        ("schema", "edit", WithheldReason::Changed),
        ("page", "lies", WithheldReason::Changed),
        ("tool", "added", WithheldReason::New),
    ] {
        std::fs::write(&changes, change).unwrap();
        let upstreams = connected(&pins, &changes).await;
        assert_eq!(tool(&upstreams, name).offered, Err(why), "{change}");
        let others = ["note", "edit", "lies", "shown"].into_iter();
        for other in others.filter(|other| *other != name) {
            assert!(tool(&upstreams, other).offered.is_ok(), "{change}: {other}");
        }
        upstreams.shutdown().await;
    }
}

#[tokio::test]
async fn approval_persists_across_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let (pins, changes) = (folder.path().join("pins"), folder.path().join("changes"));
    std::fs::write(&changes, "").unwrap();
    connected(&pins, &changes).await.shutdown().await;
    std::fs::write(&changes, "description tool").unwrap();
    for approved in [false, true] {
        let upstreams = connected(&pins, &changes).await;
        for name in ["note", "added"] {
            let tool = tool(&upstreams, name);
            assert_eq!(tool.offered.is_ok(), approved, "{name}");
            let approve = upstreams.approve("h", name, tool.fingerprint);
            assert!(approve.await.unwrap());
        }
        upstreams.shutdown().await;
    }
}

#[tokio::test]
async fn approval_fails_if_it_cannot_be_stored() {
    let folder = tempfile::tempdir().unwrap();
    let (pins, changes) = (folder.path().join("pins"), folder.path().join("changes"));
    std::fs::write(&changes, "").unwrap();
    connected(&pins, &changes).await.shutdown().await;
    std::fs::write(&changes, "tool").unwrap();
    let upstreams = connected(&pins, &changes).await;
    let added = tool(&upstreams, "added");
    // A directory stands where the new file is to be written.
    let blocked = folder.path().join("pins.new");
    std::fs::create_dir(&blocked).unwrap();
    let refused = upstreams.approve("h", "added", added.fingerprint).await;
    assert!(
        matches!(refused, Err(PinStoreError::Io { .. })),
        "{refused:?}"
    );
    assert_eq!(tool(&upstreams, "added").offered, Err(WithheldReason::New));
    std::fs::remove_dir(&blocked).unwrap();
    let approved = upstreams.approve("h", "added", added.fingerprint).await;
    assert!(approved.unwrap());
    assert!(tool(&upstreams, "added").offered.is_ok());
}

#[tokio::test]
async fn workers_cannot_access_the_pin_store() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = PinStore::open(folder.path().join("pins")).unwrap();
    let upstreams = Upstreams::builder().pin_store(store).start().await.unwrap();
    let build = |root: &Path| {
        Runtime::builder()
            .servers(&upstreams)
            .root("r", root)
            .build()
    };
    let refused = build(folder.path()).await.unwrap_err();
    assert!(
        matches!(refused.faults(), [BuildFault::Root(_)]),
        "{refused}"
    );
    assert!(build(elsewhere.path()).await.is_ok());
}
