//! Tests of a worker's own authority and of its descendants.

use bailiwick::{Policy, Verb, Verdict, VirtualPath, Worker, WorkerSpec};

use super::stage;

fn verdicts(worker: &Worker, path: &str) -> (Verdict, Verdict) {
    let path = VirtualPath::parse(path, None).unwrap();
    (
        worker.judge(Verb::Read, &path),
        worker.judge(Verb::Write, &path),
    )
}

#[tokio::test]
async fn verdicts_follow_the_policies_until_revocation() {
    let stage = stage(|builder| builder).await;
    let policy = Policy::new()
        .allow("read:file")
        .ask("write:file:/r/src")
        .deny_glob("**/.env");
    let worker = stage.worker(policy).await;
    for (path, expected) in [
        ("/r/src/x", (Verdict::Allow, Verdict::Ask)),
        ("/r/x", (Verdict::Allow, Verdict::Deny)),
        ("/r/src/.env", (Verdict::Deny, Verdict::Deny)),
        ("/elsewhere/x", (Verdict::Deny, Verdict::Deny)),
    ] {
        assert_eq!(verdicts(&worker, path), expected, "{path}");
    }
    worker.revoke().await;
    assert_eq!(verdicts(&worker, "/r/x"), (Verdict::Deny, Verdict::Deny));
}

#[tokio::test]
async fn beneath_returns_only_live_descendants() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    let spec = |name| WorkerSpec::new(name).policy(Policy::new());
    let child = worker.spawn(spec("child")).await.unwrap();
    let grandchild = child.spawn(spec("grandchild")).await.unwrap();
    let _other = stage.open().await;
    let names = |worker: &Worker| -> Vec<String> {
        let beneath = worker.beneath();
        beneath.iter().map(|one| one.agent().to_owned()).collect()
    };
    assert_eq!(names(&worker), ["main/child", "main/child/grandchild"]);
    assert_eq!(names(&child), ["main/child/grandchild"]);
    assert!(names(&grandchild).is_empty());
    child.revoke().await;
    assert!(names(&worker).is_empty());
}
