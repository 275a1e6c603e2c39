//! Tests of stored grants across restarts and disk failures.
#![expect(
    clippy::disallowed_methods,
    reason = "the folder of the store is made and taken away here"
)]

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bailiwick::audit::{AuditSink, Head, Record, Step};
use bailiwick::permission::{
    AuthorityError, GrantFilter, GrantHolder, GrantId, GrantStore, GrantStoreError,
    GrantWriteError, Lifetime, Narrowing, NewGrant, StoredGrant, Template,
};
use bailiwick::{
    Answer, CallError, Code, Deferred, MemoryAudit, Outcome, Policy, Scripted, Verb, VirtualPath,
    WorkerSpec,
};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::{Stage, at, stage};
use bailiwick_test_support::tools::Latch;
use bailiwick_test_support::wait;

/// Maximum duration of a revocation that does not wait.
const PATIENCE: Duration = Duration::from_secs(30);

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

/// An approver that allows `/r/src` to the agent permanently, and how often it was asked.
fn always_allow_for_agent() -> (Scripted, Arc<AtomicUsize>) {
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

/// A runtime that stores its grants in `file`, and how often its approver was asked.
async fn started(file: &Path) -> (Stage, Arc<AtomicUsize>) {
    let store = GrantStore::open(file).unwrap();
    let (approver, asked) = always_allow_for_agent();
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

/// Waits until the file contains a grant to that agent: removals do not wait, and may be written before it.
async fn holds(file: &Path, agent: &str) {
    let is_theirs = |grant: &StoredGrant| &*grant.agent == agent;
    let stored = || GrantStore::read(file).unwrap().iter().any(is_theirs);
    wait::for_files(file.parent().unwrap(), stored).await;
}

#[tokio::test]
async fn agent_grant_applies_after_restart_until_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grants");
    let (first, asked) = started(&file).await;
    posts(&first, "main").await;
    posts(&first, "main").await;
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let given = first.grants.grants().await.unwrap()[0].id;
    first.runtime.shutdown().await;

    let (second, asked) = started(&file).await;
    posts(&second, "main").await;
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    let restored = second.texts("grant_restored", "/event/pattern").await;
    assert_eq!(restored, [Some("write:file:/r/src".to_owned())]);
    let holder = second.texts("grant_restored", "/event/holder/agent").await;
    assert_eq!(holder, [Some("main".to_owned())]);
    let live = second.grants.grants().await.unwrap();
    assert_eq!((live.len(), live[0].id, live[0].used), (1, given, 1));
    posts(&second, "other").await;
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(second.grants.grants().await.unwrap().len(), 2);
    holds(&file, "other").await;
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
async fn agent_grant_is_on_disk_when_answer_returns() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grants");
    let store = GrantStore::open(&file).unwrap();
    let stage = stage(|builder| builder.approver(Deferred).grant_store(store)).await;
    let worker = stage.worker(asking()).await;
    let calling = tokio::spawn(async move { worker.call("post", at("src/x")).await });
    let question = stage.question_of(1).await;
    let answer = Answer::Allow {
        patterns: Vec::new(),
        lifetime: Lifetime::Agent,
        descendants: true,
        left_out: Vec::new(),
    };
    stage.grants.answer(question, answer).await.unwrap();
    let stored = GrantStore::read(&file).unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!(
        stored[0].pattern.pattern().to_string(),
        "write:file:/r/src/x"
    );
    assert!(stored[0].descendants);
    calling.await.unwrap().unwrap();
}

/// An audit whose sync hangs until its latch is open.
struct Hanging(MemoryAudit, Latch);

impl AuditSink for Hanging {
    fn head(&self) -> Head {
        self.0.head()
    }

    fn keep(&mut self, records: &[Record]) -> io::Result<()> {
        self.0.keep(records)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.1.wait();
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_grant_is_revoked_while_the_audit_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grants");
    let (first, _) = started(&file).await;
    let given = first.grants.grant(for_agent("write")).await.unwrap();
    let kept = first
        .grants
        .grant(for_agent("write:file:/r/other"))
        .await
        .unwrap();
    first.runtime.shutdown().await;

    let latch = Latch::default();
    let audit = MemoryAudit::new(1000);
    let store = GrantStore::open(&file).unwrap();
    let sink = Hanging(audit.clone(), latch.clone());
    let mut stage = stage(|builder| builder.audit(sink).grant_store(store)).await;
    stage.audit = audit;
    // Unreadable targets are not planned before the question, so a denied call does not wait for the audit.
    let worker = stage.worker(asking().ask("read:file")).await;
    worker.call("post", at("src/x")).await.unwrap();

    let grants = Arc::new(stage.grants);
    let granting = tokio::spawn({
        let grants = Arc::clone(&grants);
        async move { grants.grant(for_agent("write:file:/r/src/y")).await }
    });
    latch.wait_for(1).await;
    let revoked = tokio::time::timeout(PATIENCE, grants.revoke(given)).await;
    assert_eq!(revoked.unwrap().unwrap().grants, 1);
    let denied = worker.call("post", at("src/x")).await.unwrap_err();
    assert_eq!(denied.code(), Code::ScopeRequired);
    let ids = |grants: Vec<StoredGrant>| grants.iter().map(|one| one.id).collect::<Vec<_>>();
    assert_eq!(ids(GrantStore::read(&file).unwrap()), [kept]);

    assert!(!granting.is_finished());
    latch.open();
    let later = granting.await.unwrap().unwrap();
    assert_eq!(ids(GrantStore::read(&file).unwrap()), [kept, later]);
    worker.call("post", at("src/y")).await.unwrap();
    stage.runtime.flush_audit().await.unwrap();
    let lines = stage.audit.records().into_iter();
    let revoked = lines.filter(|record| matches!(&record.event().step, Step::GrantRevoked { grant, .. } if *grant == given));
    assert_eq!(revoked.count(), 1);
}

#[tokio::test]
async fn stored_grant_does_not_override_a_deny() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grants");
    let (first, _) = started(&file).await;
    first.grants.grant(for_agent("write")).await.unwrap();
    first.runtime.shutdown().await;
    let (second, asked) = started(&file).await;
    let worker = second.worker(asking().deny("write:file:/r/src/no")).await;
    let refused = worker.call("post", at("src/no")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    worker.call("post", at("src/yes")).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn unstorable_grant_is_revoked_and_failed_removal_reported() {
    let folder = tempfile::tempdir().unwrap();
    let within = folder.path().join("within");
    std::fs::create_dir(&within).unwrap();
    let (stage, asked) = started(&within.join("grants")).await;
    let stored = stage.grants.grant(for_agent("read")).await.unwrap();
    std::fs::remove_dir_all(&within).unwrap();

    let refused = stage.grants.grant(for_agent("write")).await.unwrap_err();
    assert!(
        matches!(refused, AuthorityError::Store(GrantWriteError::Write(_))),
        "{refused:?}"
    );
    let live =
        |grants: Vec<bailiwick::permission::GrantView>| grants.iter().map(|one| one.id).collect();
    let ids: Vec<GrantId> = live(stage.grants.grants().await.unwrap());
    assert_eq!(ids, [stored]);

    let refused = stage.grants.revoke(stored).await.unwrap_err();
    assert!(
        matches!(refused, AuthorityError::StillStored { revoked, .. } if revoked.grants == 1),
        "{refused:?}"
    );
    assert!(stage.grants.grants().await.unwrap().is_empty());

    // An allowed call may continue or be stopped; the next one asks again.
    for times in 1..=2 {
        match post(&stage, "main").await {
            Ok(_) => {}
            Err(error) => assert_eq!(error.code(), Code::Cancelled),
        }
        assert_eq!(asked.load(Ordering::SeqCst), times);
        wait::for_grants(&stage.grants, <[_]>::is_empty).await;
    }

    let hour = NewGrant {
        lifetime: Lifetime::For(std::time::Duration::from_secs(3600)),
        ..for_agent("write")
    };
    stage.grants.grant(hour).await.unwrap();
}

#[tokio::test]
async fn shutdown_closes_the_grant_store() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grants");
    let (stage, _) = started(&file).await;
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
    assert!(stage.grants.grants().await.unwrap().is_empty());
}

#[tokio::test]
async fn restored_grants_beyond_the_audit_capacity_are_all_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grants");
    let (first, _) = started(&file).await;
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
    assert_eq!(
        second.texts("grant_restored", "/event/pattern").await.len(),
        20
    );
}

/// The grants in the file: id, pattern, and whether descendants have it.
fn stored(file: &Path) -> Vec<(GrantId, String, bool)> {
    let grants = GrantStore::read(file).unwrap().into_iter();
    let entries = grants.map(|one| (one.id, one.pattern.to_string(), one.descendants));
    entries.collect()
}

async fn live(stage: &Stage) -> Vec<GrantId> {
    let grants = stage.grants.grants().await.unwrap().into_iter();
    grants.map(|one| one.id).collect()
}

/// Counts how often the file is replaced from now on.
struct Replacements {
    inotify: OwnedFd,
    name: OsString,
}

impl Replacements {
    fn of(file: &Path) -> Self {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        let folder = file.parent().unwrap();
        inotify::add_watch(&inotify, folder, WatchFlags::MOVED_TO).unwrap();
        let name = file.file_name().unwrap().to_owned();
        Self { inotify, name }
    }

    fn since(&self) -> usize {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut count = 0;
        loop {
            match events.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| name.to_bytes());
                    count += usize::from(name == Some(self.name.as_bytes()));
                }
                Err(error) => {
                    assert_eq!(error, rustix::io::Errno::AGAIN);
                    return count;
                }
            }
        }
    }
}

#[tokio::test]
async fn narrowed_grant_stays_narrowed_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grants");
    let (first, _) = started(&file).await;
    let wide = NewGrant {
        descendants: true,
        ..for_agent("write:file:/r/src")
    };
    let id = first.grants.grant(wide).await.unwrap();
    let change = Narrowing {
        pattern: Some("write:file:/r/src/x".parse().unwrap()),
        holder_only: true,
        ..Narrowing::default()
    };
    first.grants.narrow(id, change).await.unwrap();
    let narrowed = [(id, "write:file:/r/src/x".to_owned(), false)];
    assert_eq!(stored(&file), narrowed);
    first.runtime.shutdown().await;

    let (second, asked) = started(&file).await;
    assert_eq!(stored(&file), narrowed);
    let worker = second.worker(asking()).await;
    worker.call("post", at("src/x")).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    worker.call("post", at("src/y")).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn grant_narrowed_to_uses_or_time_is_not_restored() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grants");
    let (first, _) = started(&file).await;
    let mut given = Vec::new();
    for pattern in ["write:file:/r/a", "write:file:/r/b", "write:file:/r/c"] {
        given.push(first.grants.grant(for_agent(pattern)).await.unwrap());
    }
    let counted = Narrowing {
        uses: NonZeroU32::new(5),
        ..Narrowing::default()
    };
    first.grants.narrow(given[0], counted).await.unwrap();
    let timed = Narrowing {
        time: Some(std::time::Duration::from_secs(3600)),
        ..Narrowing::default()
    };
    first.grants.narrow(given[1], timed).await.unwrap();
    let kept = [(given[2], "write:file:/r/c".to_owned(), false)];
    assert_eq!(stored(&file), kept);
    // Until then they hold; later changes do not bring them back.
    assert_eq!(live(&first).await, given);
    let again = Narrowing {
        pattern: Some("write:file:/r/a/x".parse().unwrap()),
        ..Narrowing::default()
    };
    first.grants.narrow(given[0], again).await.unwrap();
    assert_eq!(stored(&file), kept);
    first.runtime.shutdown().await;
    let (second, _) = started(&file).await;
    assert_eq!(live(&second).await, given[2..]);
}

#[tokio::test]
async fn grant_is_revoked_if_its_narrowing_cannot_be_stored() {
    let folder = tempfile::tempdir().unwrap();
    let within = folder.path().join("within");
    std::fs::create_dir(&within).unwrap();
    let (stage, _) = started(&within.join("grants")).await;
    let grant = for_agent("write:file:/r/src");
    let id = stage.grants.grant(grant).await.unwrap();
    std::fs::remove_dir_all(&within).unwrap();
    let change = Narrowing {
        pattern: Some("write:file:/r/src/x".parse().unwrap()),
        ..Narrowing::default()
    };
    let refused = stage.grants.narrow(id, change).await.unwrap_err();
    assert!(
        matches!(refused, AuthorityError::StillStored { revoked, .. } if revoked.grants == 1),
        "{refused:?}"
    );
    assert_eq!(live(&stage).await, []);
}

#[tokio::test]
async fn grants_revoked_together_are_removed_in_one_write() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grants");
    let (first, _) = started(&file).await;
    for name in ["a", "b", "c"] {
        let grant = for_agent(&format!("write:file:/r/{name}"));
        first.grants.grant(grant).await.unwrap();
    }
    let kept = first.grants.grant(for_agent("read")).await.unwrap();
    first.runtime.shutdown().await;

    let (second, _) = started(&file).await;
    let filter = GrantFilter {
        verb: Some(Verb::Write),
        ..GrantFilter::default()
    };
    let replacements = Replacements::of(&file);
    let revoked = second.grants.revoke_where(filter).await.unwrap();
    assert_eq!((revoked.grants, replacements.since()), (3, 1));
    assert_eq!(stored(&file), [(kept, "read".to_owned(), false)]);
    second.runtime.shutdown().await;
    let (third, _) = started(&file).await;
    assert_eq!(live(&third).await, [kept]);
}

#[tokio::test]
async fn agent_template_is_stored_completely_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let within = folder.path().join("within");
    std::fs::create_dir(&within).unwrap();
    let file = within.join("grants");
    let (first, _) = started(&file).await;
    let editor = Template::built_in().swap_remove(2);
    let roots = [VirtualPath::parse("/r", None).unwrap()];
    let agent = GrantHolder::Agent("main".into());
    let apply = async |stage: &Stage| {
        let applied = stage.grants.apply(&editor, &roots, &agent, Lifetime::Agent);
        applied.await
    };
    let replacements = Replacements::of(&file);
    let applied = apply(&first).await.unwrap();
    assert_eq!((applied.len(), replacements.since()), (2, 1));
    first.runtime.shutdown().await;

    let (second, asked) = started(&file).await;
    assert_eq!(live(&second).await, applied);
    posts(&second, "main").await;
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    std::fs::remove_dir_all(&within).unwrap();
    let refused = apply(&second).await.unwrap_err();
    assert!(
        matches!(refused, AuthorityError::Store(GrantWriteError::Write(_))),
        "{refused:?}"
    );
    assert_eq!(live(&second).await, applied);
}
