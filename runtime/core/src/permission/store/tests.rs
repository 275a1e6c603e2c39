//! Tests of the grant store with restarts, damaged files and full disks.
#![expect(
    clippy::disallowed_methods,
    reason = "the files of a store are damaged here on purpose"
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::super::{GrantHolder, GrantView, Lifetime, Narrowing, NewGrant};
use super::handle::ReportUnstored;
use super::*;
use crate::audit::{Audit, MemoryAudit};
use crate::cases::cases;

fn new(agent: &str, pattern: &str) -> NewGrant {
    NewGrant {
        pattern: pattern.parse().unwrap(),
        holder: GrantHolder::Agent(agent.into()),
        lifetime: Lifetime::Agent,
        descendants: true,
    }
}

fn audit() -> Audit {
    Audit::start(MemoryAudit::new(10), 10).unwrap()
}

/// The runtime of these tests.
static TOKIO: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// Grants that could not be stored, and the sender to notify once they are revoked.
type Unstored = (Vec<GrantId>, oneshot::Sender<()>);

/// A handle of the store at `path` with a fixed clock, and the failures that it reports.
fn handle(path: &Path) -> (StoreHandle, Contents, mpsc::Receiver<Unstored>) {
    let (sender, unstored) = mpsc::channel();
    let store = GrantStore::open(path).unwrap();
    let report = Arc::new(move |grants, revoked| sender.send((grants, revoked)).unwrap());
    let (handle, contents) = StoreHandle::new(Some(store), &audit(), Arc::new(|| 7), report);
    (handle, contents, unstored)
}

fn save(handle: &mut StoreHandle) -> PendingSave {
    let _entered = TOKIO.enter();
    handle.save()
}

fn wait(saved: PendingSave) -> Result<(), GrantWriteError> {
    TOKIO.block_on(saved.done())
}

fn close(handle: &mut StoreHandle) -> Result<(), GrantWriteError> {
    TOKIO.block_on(async { handle.close().done().await })
}

fn ids(path: &Path) -> Vec<u64> {
    let grants = GrantStore::read(path).unwrap();
    grants.iter().map(|grant| grant.id.0).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A store with two grants, closed.
fn prepared(folder: &Path) -> PathBuf {
    let path = folder.join("grants");
    let (mut handle, ..) = handle(&path);
    for id in [1, 2] {
        handle.added(GrantId(id), &new("main", "write:file:/r"));
    }
    wait(save(&mut handle)).unwrap();
    close(&mut handle).unwrap();
    path
}

#[derive(Clone, Debug)]
enum Word {
    Give(u8),
    Take(u8),
    Save,
    Reopen,
}

fn words() -> impl Strategy<Value = Vec<Word>> {
    let word = prop_oneof![
        4 => any::<u8>().prop_map(Word::Give),
        3 => any::<u8>().prop_map(Word::Take),
        3 => Just(Word::Save),
        1 => Just(Word::Reopen),
    ];
    proptest::collection::vec(word, 0..24)
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn store_agrees_with_a_map_over_any_changes_and_restarts(words in words()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("grants");
        let (mut open, contents, mut unstored) = handle(&path);
        let (mut model, mut next) = (BTreeMap::new(), contents.next);
        for word in words {
            match word {
                Word::Give(what) => {
                    let pattern = format!("write:file:/r/{what}");
                    open.added(GrantId(next), &new("main", &pattern));
                    model.insert(next, pattern);
                    next += 1;
                }
                Word::Take(which) => {
                    let id = u64::from(which) % (next + 1);
                    open.removed(GrantId(id));
                    model.remove(&id);
                }
                Word::Save => {
                    wait(save(&mut open)).unwrap();
                    let found = GrantStore::read(&path).unwrap();
                    let found = found.iter().map(|grant| (grant.id.0, grant.pattern.to_string()));
                    prop_assert_eq!(found.collect::<BTreeMap<_, _>>(), model.clone());
                }
                Word::Reopen => {
                    wait(save(&mut open)).unwrap();
                    close(&mut open).unwrap();
                    let contents;
                    (open, contents, unstored) = handle(&path);
                    let found = contents.grants.values().map(|grant| (grant.id.0, grant.pattern.to_string()));
                    prop_assert_eq!(found.collect::<BTreeMap<_, _>>(), model.clone());
                    prop_assert!(model.keys().all(|id| *id < contents.next));
                    next = next.max(contents.next);
                }
            }
        }
        prop_assert!(unstored.try_recv().is_err());
    }
}

#[test]
fn only_permanent_agent_grants_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grants");
    let (mut handle, ..) = handle(&path);
    let hour = Lifetime::For(std::time::Duration::from_secs(3600));
    let worker = GrantHolder::Worker(crate::id::WorkerId(1));
    for (id, holder, lifetime) in [
        (1, GrantHolder::Agent("main".into()), hour),
        (2, worker.clone(), Lifetime::Agent),
        (3, worker, Lifetime::Session),
        (4, GrantHolder::Agent("main".into()), Lifetime::Agent),
    ] {
        let new = NewGrant {
            holder,
            lifetime,
            ..new("", "write")
        };
        handle.added(GrantId(id), &new);
    }
    wait(save(&mut handle)).unwrap();
    let found = GrantStore::read(&path).unwrap();
    let expected = StoredGrant {
        id: GrantId(4),
        agent: "main".into(),
        pattern: "write".parse().unwrap(),
        descendants: true,
        given_at_ms: 7,
    };
    assert_eq!(found, [expected]);
}

#[test]
fn id_of_a_revoked_grant_is_not_reused() {
    let folder = tempfile::tempdir().unwrap();
    let path = prepared(folder.path());
    let (mut first, ..) = handle(&path);
    first.removed(GrantId(2));
    wait(save(&mut first)).unwrap();
    close(&mut first).unwrap();
    let (_second, contents, _) = handle(&path);
    assert_eq!((ids(&path), contents.next), (vec![1], 3));
}

#[test]
fn store_file_is_private_and_leaves_no_other_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = prepared(folder.path());
    for name in ["grants", "grants.lock"] {
        let mode = fs::metadata(path.with_file_name(name)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    assert_eq!(names(folder.path()), ["grants", "grants.lock"]);
}

#[test]
fn second_runtime_is_rejected_and_readers_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = prepared(folder.path());
    let first = GrantStore::open(&path).unwrap();
    let second = GrantStore::open(&path).unwrap_err();
    assert!(matches!(second, GrantStoreError::InUse { .. }));
    let text = second.to_string();
    assert!(text.contains("grants") && text.contains("in use"), "{text}");
    assert_eq!(ids(&path), [1, 2]);
    drop(first);
    assert_eq!(GrantStore::open(&path).unwrap().grants().count(), 2);
}

#[test]
fn leftovers_of_a_killed_writer_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let path = prepared(folder.path());
    fs::write(path.with_file_name("grants.new"), "half").unwrap();
    let (mut open, ..) = handle(&path);
    open.removed(GrantId(1));
    wait(save(&mut open)).unwrap();
    assert_eq!(ids(&path), [2]);
    assert_eq!(names(folder.path()), ["grants", "grants.lock"]);
}

#[test]
fn damaged_file_is_moved_aside_and_the_next_start_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    let path = prepared(folder.path());
    let whole = fs::read(&path).unwrap();
    let aside = path.with_file_name("grants.corrupt");
    // A file that does not begin like a store is not changed.
    let begins = r#"{"format":"bailiwick-grants","version":1"#.len();
    // Each writes to the disk often; `format` tries every byte.
    for at in (0..whole.len()).step_by(7) {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        let cut = whole[..at].to_vec();
        for (damaged, kept) in [(flipped, at >= begins), (cut, true)] {
            fs::write(&path, &damaged).unwrap();
            let read = GrantStore::read(&path).unwrap_err();
            assert!(path.exists(), "reading moves nothing: {read}");
            let error = GrantStore::open(&path).unwrap_err();
            assert!(error.to_string().contains("grants"), "{error}");
            if kept {
                assert!(
                    matches!(&error, GrantStoreError::Damaged { kept_in: Some(kept), .. } if *kept == aside.canonicalize().unwrap()),
                    "{at}: {error:?}"
                );
                assert_eq!(fs::read(&aside).unwrap(), damaged);
                assert_eq!(GrantStore::open(&path).unwrap().grants().count(), 0);
                fs::remove_file(&aside).unwrap();
            } else {
                assert_eq!(fs::read(&path).unwrap(), damaged, "{error}");
            }
        }
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(GrantStore::open(&path).unwrap().grants().count(), 2);
}

#[test]
fn damaged_files_do_not_replace_one_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = prepared(folder.path());
    for text in ["", "{", "{\"format"] {
        fs::write(&path, text).unwrap();
        GrantStore::open(&path).unwrap_err();
    }
    let kept = ["grants.corrupt", "grants.corrupt-2", "grants.corrupt-3"];
    let texts = kept.map(|name| fs::read_to_string(folder.path().join(name)).unwrap());
    assert_eq!(texts, ["", "{", "{\"format"]);
}

#[test]
fn later_version_and_foreign_file_are_rejected_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = prepared(folder.path());
    let text = fs::read_to_string(&path).unwrap();
    let later = text.replace("\"version\":2", "\"version\":3");
    for (text, foreign) in [(later.as_str(), false), ("{\"roots\":[]}", true)] {
        fs::write(&path, text).unwrap();
        let error = GrantStore::open(&path).unwrap_err();
        match error {
            GrantStoreError::Version { version: 3, .. } if !foreign => {}
            GrantStoreError::Foreign { .. } if foreign => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    assert_eq!(names(folder.path()), ["grants", "grants.lock"]);
}

#[test]
fn older_version_is_rejected_unchanged_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = prepared(folder.path());
    let text = fs::read_to_string(&path).unwrap();
    let older = text.replace("\"version\":2", "\"version\":1");
    fs::write(&path, &older).unwrap();
    let error = GrantStore::open(&path).unwrap_err().to_string();
    assert!(error.contains("grant again"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), older);
}

#[test]
fn links_fifos_folders_and_files_writable_by_others_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = prepared(folder.path());
    let at = |name: &str| folder.path().join(name);
    let refused = |path: &Path| {
        for error in [
            GrantStore::read(path).unwrap_err(),
            GrantStore::open(path).unwrap_err(),
        ] {
            assert!(
                matches!(
                    error,
                    GrantStoreError::Open { .. } | GrantStoreError::Unsafe { .. }
                ),
                "{error:?}"
            );
        }
    };
    symlink(&path, at("link")).unwrap();
    symlink(at("nothing"), at("dangling")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), kind, mode, 0).unwrap();
    for name in ["link", "dangling", "folder", "fifo", "no/grants"] {
        refused(&at(name));
    }
    symlink(at("nothing"), at("mine.lock")).unwrap();
    assert!(matches!(
        GrantStore::open(at("mine")),
        Err(GrantStoreError::Open { .. })
    ));
    let set_mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o620);
    refused(&path);
    set_mode(0o602);
    refused(&path);
    set_mode(0o644);
    std::os::unix::fs::chown(&path, Some(1234), None).expect("these tests run as root");
    refused(&path);
    std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    assert_eq!(GrantStore::open(&path).unwrap().grants().count(), 2);
}

#[test]
fn folder_writable_by_others_is_rejected_unless_sticky() {
    let folder = tempfile::tempdir().unwrap();
    let path = prepared(folder.path());
    let set_mode = |mode| {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
    };
    let refused = |why: &str| {
        for error in [
            GrantStore::read(&path).unwrap_err(),
            GrantStore::open(&path).unwrap_err(),
        ] {
            assert!(
                matches!(&error, GrantStoreError::Unsafe { reason, .. } if reason == why),
                "{error:?}"
            );
        }
    };
    for mode in [0o720, 0o702, 0o777, 0o775] {
        set_mode(mode);
        refused("its folder can be written by other users; `chmod g-w,o-w` takes that away");
    }
    for mode in [0o1777, 0o755, 0o700] {
        set_mode(mode);
        assert_eq!(GrantStore::open(&path).unwrap().grants().count(), 2);
    }
    std::os::unix::fs::chown(folder.path(), Some(1234), None).expect("these tests run as root");
    refused("its folder belongs to another user");
}

#[test]
fn ancestor_folder_writable_by_others_is_rejected_unless_sticky() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("private");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let path = prepared(&folder);
    let linked = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(&folder, linked.path().join("link")).unwrap();
    let by_link = linked.path().join("link/grants");
    let set_mode = |folder: &Path, mode| {
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
    };
    let refused = |path: &Path, what: &Path| {
        let error = GrantStore::open(path).unwrap_err();
        let expected = format!("the folder `{}` above it can be written", what.display());
        assert!(
            matches!(&error, GrantStoreError::Unsafe { reason, .. } if reason.starts_with(&expected)),
            "{error:?}"
        );
    };
    for (others_write, sticky) in [(0o777, 0o1777), (0o775, 0o1775)] {
        set_mode(above.path(), others_write);
        refused(&path, above.path());
        refused(&by_link, above.path());
        set_mode(above.path(), sticky);
        assert_eq!(GrantStore::open(&path).unwrap().grants().count(), 2);
        set_mode(above.path(), 0o755);
        // Whoever can replace the link decides which folder is opened.
        set_mode(linked.path(), others_write);
        refused(&by_link, linked.path());
        set_mode(linked.path(), 0o755);
        assert_eq!(GrantStore::open(&by_link).unwrap().grants().count(), 2);
    }
}

#[test]
fn names_of_damaged_files_belong_to_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grants");
    let mut kept = Vec::new();
    for _ in 0..3 {
        fs::write(&path, r#"{"format":"bailiwick-grants","version":1,"#).unwrap();
        match GrantStore::open(&path).unwrap_err() {
            GrantStoreError::Damaged { kept_in, .. } => kept.extend(kept_in),
            other => panic!("{other:?}"),
        }
    }
    let places = GrantStore::open(&path).unwrap().places();
    assert_eq!(places, GrantStore::places_of(&path).unwrap());
    assert!(kept.iter().all(|file| places.contains(file)), "{kept:?}");
    assert_eq!((kept.len(), names(folder.path()).len()), (3, 5));
}

#[test]
fn closed_store_rejects_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grants");
    let (mut handle, _, unstored) = handle(&path);
    handle.added(GrantId(1), &new("main", "write"));
    // Not awaited: closing stores pending changes.
    let first = save(&mut handle);
    close(&mut handle).unwrap();
    wait(first).unwrap();
    assert_eq!(GrantStore::open(&path).unwrap().grants().count(), 1);
    handle.added(GrantId(2), &new("main", "write"));
    let late = save(&mut handle);
    let (grants, revoked) = unstored.recv().unwrap();
    assert_eq!(grants, [GrantId(2)]);
    revoked.send(()).unwrap();
    assert!(matches!(wait(late), Err(GrantWriteError::Closed)));
    handle.removed(GrantId(1));
    assert!(matches!(
        wait(save(&mut handle)),
        Err(GrantWriteError::Closed)
    ));
    close(&mut handle).unwrap();
    assert_eq!(ids(&path), [1]);
}

#[test]
fn dropping_the_handle_stores_pending_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grants");
    let (mut handle, ..) = handle(&path);
    handle.added(GrantId(1), &new("main", "write"));
    let saved = save(&mut handle);
    drop(handle);
    wait(saved).unwrap();
    assert_eq!(ids(&path), [1]);
}

#[test]
fn grants_are_removed_from_a_store_all_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = prepared(folder.path());
    let of = |ids: &[u64]| ids.iter().map(|id| GrantId(*id)).collect();
    let mut store = GrantStore::open(&path).unwrap();
    let before = fs::read(&path).unwrap();
    let unknown = store.remove(&of(&[1, 9])).unwrap_err();
    assert!(matches!(unknown, GrantEditError::NoGrant(GrantId(9))));
    assert_eq!(store.remove(&of(&[])).unwrap(), []);
    // A folder of that name makes writing fail.
    let new = folder.path().join("grants.new");
    fs::create_dir(&new).unwrap();
    let unwritten = store.remove(&of(&[2])).unwrap_err();
    assert!(matches!(unwritten, GrantEditError::Write(_)));
    assert_eq!(fs::read(&path).unwrap(), before);
    fs::remove_dir(&new).unwrap();

    let taken = store.remove(&of(&[2])).unwrap();
    assert_eq!((taken.len(), taken[0].id), (1, GrantId(2)));
    assert_eq!(ids(&path), [1]);
    assert!(store.grants().map(|grant| grant.id).eq([GrantId(1)]));
    drop(store);
    // No id is reused.
    let (_, contents, _) = handle(&path);
    assert_eq!(contents.next, 3);
}

#[test]
fn held_at_or_beneath_compares_whole_names() {
    let folder = tempfile::tempdir().unwrap();
    let grant = &GrantStore::read(prepared(folder.path())).unwrap()[0];
    assert_eq!(&*grant.agent, "main");
    assert!(grant.is_held_at_or_beneath("main"));
    for other in ["mai", "main/", "main/tests", "", "x"] {
        assert!(!grant.is_held_at_or_beneath(other), "{other}");
    }
    let beneath = StoredGrant {
        agent: "main/tests".into(),
        ..grant.clone()
    };
    assert!(beneath.is_held_at_or_beneath("main"));
}

#[test]
fn narrowed_grant_keeps_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grants");
    let time = Arc::new(AtomicU64::new(1));
    let clock = Arc::clone(&time);
    let store = GrantStore::open(&path).unwrap();
    let wall: WallClock = Arc::new(move || clock.load(Ordering::Relaxed));
    let report: ReportUnstored = Arc::new(|_, _| panic!("everything can be stored"));
    let (mut handle, _) = StoreHandle::new(
        Some(store),
        &audit(),
        Arc::clone(&wall),
        Arc::clone(&report),
    );
    handle.added(GrantId(1), &new("main", "write:file:/r"));
    let left = |pattern: &str| GrantView {
        id: GrantId(1),
        pattern: pattern.parse().unwrap(),
        holder: GrantHolder::Agent("main".into()),
        descendants: false,
        uses_left: None,
        expires_at: None,
        used: 0,
        given_at_ms: 0,
    };
    let stored = || {
        let grant = GrantStore::read(&path).unwrap().swap_remove(0);
        (grant.pattern.to_string(), grant.given_at_ms)
    };
    time.store(2, Ordering::Relaxed);
    handle.narrowed(&left("write:file:/r/a"));
    wait(save(&mut handle)).unwrap();
    assert_eq!(stored(), ("write:file:/r/a".to_owned(), 1));
    close(&mut handle).unwrap();

    let store = GrantStore::open(&path).unwrap();
    let (mut handle, _) = StoreHandle::new(Some(store), &audit(), wall, report);
    handle.narrowed(&left("write:file:/r/a/b"));
    wait(save(&mut handle)).unwrap();
    assert_eq!(stored(), ("write:file:/r/a/b".to_owned(), 1));
}

fn to(pattern: &str) -> Narrowing {
    Narrowing {
        pattern: Some(pattern.parse().unwrap()),
        ..Narrowing::default()
    }
}

fn stored(path: &Path) -> Vec<(u64, String, bool)> {
    let parts = |grant: &StoredGrant| (grant.id.0, grant.pattern.to_string(), grant.descendants);
    GrantStore::read(path).unwrap().iter().map(parts).collect()
}

#[test]
fn stored_grant_is_narrowed_on_disk_and_never_widened() {
    let folder = tempfile::tempdir().unwrap();
    let path = prepared(folder.path());
    let before = fs::read(&path).unwrap();
    let mut store = GrantStore::open(&path).unwrap();
    for wider in ["write", "*:file:/r", "read:file:/r/a", "write:file:/s"] {
        let refused = store.narrow(GrantId(1), &to(wider)).unwrap_err();
        assert!(
            matches!(refused, GrantEditError::Wider(GrantId(1))),
            "{wider}"
        );
    }
    let unknown = store.narrow(GrantId(9), &to("write:file:/r/a"));
    assert!(matches!(unknown, Err(GrantEditError::NoGrant(GrantId(9)))));
    let counted = Narrowing {
        uses: std::num::NonZeroU32::new(1),
        ..Narrowing::default()
    };
    let timed = Narrowing {
        time: Some(std::time::Duration::from_secs(1)),
        ..Narrowing::default()
    };
    for change in [counted, timed] {
        let refused = store.narrow(GrantId(1), &change).unwrap_err();
        assert!(matches!(refused, GrantEditError::NotForGood), "{change:?}");
    }
    // A folder of that name makes writing fail.
    fs::create_dir(folder.path().join("grants.new")).unwrap();
    let unwritten = store.narrow(GrantId(1), &to("write:file:/r/a"));
    assert!(matches!(unwritten, Err(GrantEditError::Write(_))));
    assert_eq!(fs::read(&path).unwrap(), before);
    fs::remove_dir(folder.path().join("grants.new")).unwrap();

    let left = store.narrow(GrantId(1), &to("write:file:/r/a")).unwrap();
    assert_eq!((left.id, left.given_at_ms), (GrantId(1), 7));
    let holder_only = Narrowing {
        holder_only: true,
        ..Narrowing::default()
    };
    store.narrow(GrantId(2), &holder_only).unwrap();
    let expected = [
        (1, "write:file:/r/a".to_owned(), true),
        (2, "write:file:/r".to_owned(), false),
    ];
    assert_eq!(stored(&path), expected);
    assert!(
        store
            .grants()
            .map(|grant| grant.descendants)
            .eq([true, false])
    );
}

#[test]
fn stored_folder_grant_is_not_narrowed_to_a_protected_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grants");
    let mut store = GrantStore::open(&path).unwrap();
    let grants = ["write:file:/r", "*:file:/r/.mcp.json", "write"].map(|one| new("main", one));
    store.add(grants).unwrap();
    for (id, protected) in [
        (1, "write:file:/r/.mcp.json"),
        (1, "write:file:/r/deep/.git/config"),
        (3, "write:file:/.mcp.json"),
    ] {
        let refused = store.narrow(GrantId(id), &to(protected)).unwrap_err();
        assert!(matches!(refused, GrantEditError::Wider(_)), "{protected}");
    }
    store
        .narrow(GrantId(2), &to("write:file:/r/.mcp.json"))
        .unwrap();
    store
        .narrow(GrantId(1), &to("write:file:/r/plain.json"))
        .unwrap();
    store.narrow(GrantId(3), &to("write:file:/")).unwrap();
}

#[test]
fn grants_are_added_to_a_store_all_or_none_and_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = prepared(folder.path());
    let mut store = GrantStore::open(&path).unwrap();
    let before = fs::read(&path).unwrap();
    let good = || new("main/tests", "read:file:/r");
    for agent in [
        "",
        "main/",
        "/main",
        "main//x",
        "a\u{202e}b",
        &"x".repeat(65),
    ] {
        let refused = store.add([good(), new(agent, "read")]).unwrap_err();
        assert!(matches!(refused, GrantEditError::NoAgent(_)), "{agent:?}");
    }
    let session = NewGrant {
        lifetime: Lifetime::Session,
        ..good()
    };
    let of_worker = NewGrant {
        holder: GrantHolder::Worker(crate::id::WorkerId(1)),
        ..good()
    };
    for wrong in [session, of_worker] {
        let refused = store.add([good(), wrong]).unwrap_err();
        assert!(matches!(refused, GrantEditError::NotForGood));
    }
    let many = (0..10_000).map(|n| new("main", &format!("read:file:/{n}")));
    assert!(matches!(store.add(many), Err(GrantEditError::TooMany)));
    assert_eq!(fs::read(&path).unwrap(), before);

    let added = store.add([good(), new("~client", "read:file:/r"), good()]);
    let ids = |grants: &[StoredGrant]| -> Vec<u64> { grants.iter().map(|one| one.id.0).collect() };
    let added = added.unwrap();
    assert_eq!(ids(&added), [3, 4]);
    assert!(added[0].given_at_ms > 7);
    assert_eq!(store.add([good()]).unwrap(), []);
    drop(store);
    let held = GrantStore::read(&path).unwrap();
    assert_eq!(ids(&held), [1, 2, 3, 4]);
    assert_eq!(held[2..], added);
    // No id is reused.
    let (_, contents, _) = handle(&path);
    assert_eq!(contents.next, 5);
}
