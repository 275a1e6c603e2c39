//! Kills runtimes while people grant and revoke, and checks the grant store and the audit.
//!
//! Alone in its binary, since it uses all CPU time and other tests depend on timing.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bailiwick::audit::{AuditFileFault, BreakReason, Head, verify_file};
use bailiwick::permission::{
    GrantHolder, GrantId, GrantStore, GrantStoreError, History, HistoryEvent, Lifetime, NewGrant,
};
use bailiwick::{GrantAuthority, JsonLines, Runtime};
use bailiwick_test_support::cases;

fn for_agent(pattern: &str) -> NewGrant {
    NewGrant {
        pattern: pattern.parse().unwrap(),
        holder: GrantHolder::Agent("main".into()),
        lifetime: Lifetime::Agent,
        descendants: false,
    }
}

/// The audit of all runtimes.
fn record(folder: &Path) -> PathBuf {
    folder.join("audit.jsonl")
}

/// The grants in the audit; each is recorded once.
fn recorded(audit: &Path) -> BTreeSet<(String, String)> {
    let mut history = History::new();
    if let Err(broken) = history.read_file(audit) {
        let torn = match broken.fault() {
            AuditFileFault::Broken(broken) => matches!(broken.reason, BreakReason::Torn),
            _ => false,
        };
        assert!(torn, "{broken}");
    }
    let mut granted = BTreeSet::new();
    for entry in history.entries() {
        if let HistoryEvent::Granted(step) = &entry.event {
            let grant = (step.grant.to_string(), step.pattern.to_string());
            assert!(granted.insert(grant), "{} is recorded twice", step.grant);
        }
    }
    granted
}

/// What a runtime to be killed prints before and after each operation.
fn print_line(line: &str) {
    std::io::stderr()
        .write_all(format!("{line}\n").as_bytes())
        .unwrap();
}

/// Grants and revokes in a loop; only a few grants are live at a time.
async fn grant_and_revoke(grants: &GrantAuthority, name: String, mut live: VecDeque<GrantId>) {
    for turn in 0.. {
        let pattern = format!("write:file:/r/{name}-{turn}");
        print_line(&format!("give {pattern}"));
        let id = grants.grant(for_agent(&pattern)).await.unwrap();
        print_line(&format!("given {id} {pattern}"));
        live.push_back(id);
        while live.len() > 4 {
            let id = live.pop_front().unwrap();
            print_line(&format!("take {id}"));
            grants.revoke(id).await.unwrap();
            print_line(&format!("taken {id}"));
        }
    }
}

#[tokio::test]
#[ignore = "child process of the test below"]
async fn runtime_to_be_killed() {
    let folder = std::env::var_os("BAILIWICK_KILL_GRANTS_IN").unwrap();
    let store = GrantStore::open(Path::new(&folder).join("grants")).unwrap();
    let audit = JsonLines::append(record(Path::new(&folder))).unwrap();
    // About three records per segment, so that many runtimes are killed during a rotation.
    let audit = audit.segment_bytes(1_000);
    let builder = Runtime::builder()
        .grantable("write:file")
        .grant_store(store)
        .audit(audit);
    let (runtime, grants) = builder.build().await.unwrap();
    let live: Vec<GrantId> = grants
        .grants()
        .await
        .unwrap()
        .iter()
        .map(|one| one.id)
        .collect();
    let mine = |third: usize| live.iter().skip(third).step_by(3).copied().collect();
    let life = std::process::id();
    tokio::join!(
        grant_and_revoke(&grants, format!("{life}-a"), mine(0)),
        grant_and_revoke(&grants, format!("{life}-b"), mine(1)),
        grant_and_revoke(&grants, format!("{life}-c"), mine(2)),
    );
    drop(runtime);
}

/// The acknowledged grants, and the operation in progress when the runtime was killed.
#[derive(Default)]
struct AcknowledgedGrants {
    live: BTreeMap<String, String>,
    giving: BTreeSet<String>,
    taking: BTreeSet<String>,
    ever: BTreeSet<String>,
}

impl AcknowledgedGrants {
    fn on_line(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["give", pattern] => drop(self.giving.insert((*pattern).to_owned())),
            ["given", id, pattern] => {
                assert!(self.ever.insert((*id).to_owned()), "{id} was given twice");
                assert!(self.giving.remove(*pattern));
                self.live.insert((*id).to_owned(), (*pattern).to_owned());
            }
            ["take", id] => drop(self.taking.insert((*id).to_owned())),
            ["taken", id] => {
                assert!(self.taking.remove(*id));
                assert!(self.live.remove(*id).is_some());
            }
            other => panic!("{other:?}"),
        }
    }

    /// Checks the files, and continues from there.
    fn check(&mut self, found: BTreeMap<String, String>) {
        for (id, pattern) in &self.live {
            let kept = found.get(id) == Some(pattern);
            assert!(kept || self.taking.contains(id), "{id} {pattern} is lost");
        }
        for (id, pattern) in &found {
            let known = self.live.get(id) == Some(pattern) || self.giving.contains(pattern);
            assert!(known, "{id} {pattern} has no origin");
        }
        self.ever.extend(found.keys().cloned());
        self.live = found;
        self.giving.clear();
        self.taking.clear();
    }
}

#[test]
fn killed_runtime_keeps_acknowledged_grants_and_revocations() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grants");
    let mut acknowledged = AcknowledgedGrants::default();
    for turn in 0..(cases(20_000_usize) / 100).clamp(10, 1_000) {
        let mut runtime = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "runtime_to_be_killed",
                "--nocapture",
            ])
            .env("BAILIWICK_KILL_GRANTS_IN", folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(runtime.stderr.take().unwrap()).lines();
        for line in lines.by_ref().take(1 + turn * 7 % 40) {
            acknowledged.on_line(&line.unwrap());
        }
        // Kill at another moment of the next write each time.
        for _ in 0..turn * 9_973 % 400_000 {
            std::hint::spin_loop();
        }
        assert!(matches!(
            GrantStore::open(&file),
            Err(GrantStoreError::InUse { .. })
        ));
        runtime.kill().unwrap();
        runtime.wait().unwrap();
        for line in lines {
            acknowledged.on_line(&line.unwrap());
        }
        let on_record = recorded(&record(folder.path()));
        let found = GrantStore::read(&file).unwrap();
        let found = found
            .iter()
            .map(|one| (one.id.to_string(), one.pattern.to_string()));
        let found: Vec<_> = found.collect();
        for grant in &found {
            assert!(on_record.contains(grant), "no record of {grant:?}");
        }
        acknowledged.check(found.into_iter().collect());
    }
    assert!(acknowledged.ever.len() > acknowledged.live.len());
    drop(JsonLines::append(record(folder.path())).unwrap());
    let verified = verify_file(Head::default(), record(folder.path()), |_| ()).unwrap();
    assert!(verified.files > 2, "{verified:?}");
}
