//! Tests of a worker's own authority and of its descendants.

use bailiwick::{
    Code, Policy, Reply, ToolSet, ToolSpec, Verb, Verdict, VirtualPath, Worker, WorkerSpec,
};

use super::{at, stage};
use bailiwick_test_support::tools::Target;

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

#[tokio::test]
async fn writes_of_a_child_of_a_read_only_parent_are_denied_and_not_offered() {
    let spec = ToolSpec::new("store", "Store", "Stores a note.").scopes(&["write:file"]);
    let needs = |_: &Target, _: &_| Ok(Vec::new());
    let act = |_, _, _| async { Ok(Reply::text("stored", ())) };
    let tools = ToolSet::new().act_function(spec, needs, act);
    let stage = stage(|builder| builder.tools(tools)).await;
    let parent = stage.worker(Policy::inherit().read_only(true)).await;
    let policy = Policy::nothing().allow("read:file").allow("write:file:/r");
    let child = parent.spawn(WorkerSpec::new("child").policy(policy)).await;
    let child = child.unwrap();
    assert_eq!(verdicts(&child, "/r/x"), (Verdict::Allow, Verdict::Deny));
    let offers = |worker: &Worker| worker.tools().iter().any(|tool| tool.spec.name == "store");
    assert!(offers(&stage.open().await) && !offers(&child));
    let refused = child.call("post", at("x")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn working_directory_that_does_not_exist_is_not_an_error() {
    let stage = stage(|builder| builder).await;
    let parent = stage.open().await;
    let spec = WorkerSpec::new("child").policy(Policy::inherit());
    let child = parent.spawn(spec.cwd("/r/absent")).await.unwrap();
    assert_eq!(child.cwd().unwrap().as_str(), "/r/absent");
}
