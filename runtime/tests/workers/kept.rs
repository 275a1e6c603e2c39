//! Grants to agents, restarts and lost disks in, exactly the grants that people were told of out.
#![expect(
    clippy::disallowed_methods,
    reason = "the folder of the store is made and taken away here"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bailiwick::{
    Answer, AuthorityError, CallError, Code, Deferred, GrantHolder, GrantId, GrantStore,
    GrantStoreError, GrantWriteError, Lifetime, NewGrant, Outcome, Policy, Scripted, WorkerSpec,
};

use super::{Stage, at, stage};

fn asking() -> Policy {
    Policy::new().allow("read:file").ask("write:file:/r/src")
}

fn for_agent(pattern: &str) -> NewGrant {
    NewGrant {
        pattern: pattern.parse().unwrap(),
        holder: GrantHolder::Agent("main".into()),
        lifetime: Lifetime::Agent,
        descendants: false,
    }
}

/// An approver that allows `/r/src` to the agent for good, and how often it was asked.
fn for_good() -> (Scripted, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let approver = Scripted::new().rule(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Some(Answer::Allow {
            patterns: vec!["write:file:/r/src".parse().unwrap()],
            lifetime: Lifetime::Agent,
            descendants: false,
            left_out: Vec::new(),
        })
    });
    (approver, asked)
}

/// A runtime that keeps its grants in `file`, and how often its approver was asked.
async fn began(file: &Path) -> (Stage, Arc<AtomicUsize>) {
    let store = GrantStore::open(file).unwrap();
    let (approver, asked) = for_good();
    let stage = stage(|builder| builder.approver(approver).grant_store(store)).await;
    (stage, asked)
}

async fn post(stage: &Stage, agent: &str) -> Result<Outcome, CallError> {
    let spec = WorkerSpec::new(agent).policy(asking());
    let worker = stage.runtime.spawn(spec).await.unwrap();
    worker.call("post", at("src/x")).await
}

async fn posts(stage: &Stage, agent: &str) {
    post(stage, agent).await.unwrap();
}

#[tokio::test]
async fn a_grant_to_an_agent_holds_after_a_restart_until_it_is_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grants");
    let (first, asked) = began(&file).await;
    posts(&first, "main").await;
    posts(&first, "main").await;
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let given = first.grants.grants().await[0].id;
    first.runtime.shutdown().await;

    let (second, asked) = began(&file).await;
    posts(&second, "main").await;
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    let restored = second.texts("restored", "/event/pattern").await;
    assert_eq!(restored, [Some("write:file:/r/src".to_owned())]);
    let holder = second.texts("restored", "/event/holder/agent").await;
    assert_eq!(holder, [Some("main".to_owned())]);
    let live = second.grants.grants().await;
    assert_eq!((live.len(), live[0].id, live[0].used), (1, given, 1));
    posts(&second, "other").await;
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(second.grants.grants().await.len(), 2);
    second.grants.revoke(given).await.unwrap();
    let left = GrantStore::read(&file).unwrap();
    assert_eq!(
        (left.len(), &*left[0].agent, left[0].given_at_ms > 0),
        (1, "other", true)
    );
    posts(&second, "main").await;
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    second.runtime.shutdown().await;

    let left = GrantStore::read(&file).unwrap();
    assert!(left.iter().all(|grant| grant.id != given), "{left:?}");
    assert_eq!(left.len(), 2);
}

#[tokio::test]
async fn a_yes_for_an_agent_is_on_the_disk_when_it_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grants");
    let store = GrantStore::open(&file).unwrap();
    let stage = stage(|builder| builder.approver(Deferred).grant_store(store)).await;
    let worker = stage.worker(asking()).await;
    let calling = tokio::spawn(async move { worker.call("post", at("src/x")).await });
    let question = loop {
        if let [question] = stage.grants.questions().await.as_slice() {
            break question.id;
        }
        tokio::task::yield_now().await;
    };
    let answer = Answer::Allow {
        patterns: Vec::new(),
        lifetime: Lifetime::Agent,
        descendants: true,
        left_out: Vec::new(),
    };
    stage.grants.answer(question, answer).await.unwrap();
    let stored = GrantStore::read(&file).unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].pattern.to_string(), "write:file:/r/src/x");
    assert!(stored[0].descendants);
    calling.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_deny_holds_against_a_grant_that_was_stored() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grants");
    let (first, _) = began(&file).await;
    first.grants.grant(for_agent("write")).await.unwrap();
    first.runtime.shutdown().await;
    let (second, asked) = began(&file).await;
    let worker = second.worker(asking().deny("write:file:/r/src/no")).await;
    let refused = worker.call("post", at("src/no")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    worker.call("post", at("src/yes")).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn what_cannot_be_stored_is_taken_back_and_what_cannot_be_removed_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let within = folder.path().join("within");
    std::fs::create_dir(&within).unwrap();
    let (stage, asked) = began(&within.join("grants")).await;
    let stored = stage.grants.grant(for_agent("read")).await.unwrap();
    std::fs::remove_dir_all(&within).unwrap();

    let refused = stage.grants.grant(for_agent("write")).await.unwrap_err();
    assert!(
        matches!(refused, AuthorityError::Store(GrantWriteError::Write(_))),
        "{refused:?}"
    );
    let live = |grants: Vec<bailiwick::GrantView>| grants.iter().map(|one| one.id).collect();
    let ids: Vec<GrantId> = live(stage.grants.grants().await);
    assert_eq!(ids, [stored]);

    let told = stage.grants.revoke(stored).await.unwrap_err();
    assert!(
        matches!(told, AuthorityError::StillStored { revoked, .. } if revoked.grants == 1),
        "{told:?}"
    );
    assert!(stage.grants.grants().await.is_empty());

    // A call that its approver allowed may go on, or be stopped; the next one asks again.
    for times in 1..=2 {
        match post(&stage, "main").await {
            Ok(_) => {}
            Err(error) => assert_eq!(error.code(), Code::Cancelled),
        }
        assert_eq!(asked.load(Ordering::SeqCst), times);
        while !stage.grants.grants().await.is_empty() {
            tokio::task::yield_now().await;
        }
    }

    let hour = NewGrant {
        lifetime: Lifetime::For(std::time::Duration::from_secs(3600)),
        ..for_agent("write")
    };
    stage.grants.grant(hour).await.unwrap();
}

#[tokio::test]
async fn a_runtime_that_is_shut_down_lets_go_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grants");
    let (stage, _) = began(&file).await;
    let stored = stage.grants.grant(for_agent("read")).await.unwrap();
    assert!(matches!(
        GrantStore::open(&file),
        Err(GrantStoreError::InUse { .. })
    ));
    stage.runtime.shutdown().await;
    assert_eq!(GrantStore::open(&file).unwrap().grants().count(), 1);
    let late = stage.grants.grant(for_agent("write")).await;
    assert!(matches!(
        late,
        Err(AuthorityError::Store(GrantWriteError::Closed))
    ));
    let late = stage.grants.revoke(stored).await;
    assert!(matches!(late, Err(AuthorityError::StillStored { .. })));
    assert!(stage.grants.grants().await.is_empty());
}

#[tokio::test]
async fn more_stored_grants_than_the_audit_takes_at_once_are_all_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grants");
    let (first, _) = began(&file).await;
    let giving = (0..20).map(|n| {
        let grant = for_agent(&format!("write:file:/r/{n}"));
        first.grants.grant(grant)
    });
    for given in giving {
        given.await.unwrap();
    }
    first.runtime.shutdown().await;
    let store = GrantStore::open(&file).unwrap();
    let second = stage(|builder| builder.grant_store(store).audit_capacity(3)).await;
    assert_eq!(second.texts("restored", "/event/pattern").await.len(), 20);
}
