//! Changes of commands that are kept apart, and `apply_changes`.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use bailiwick::effect::{ContentHash, Op};
use bailiwick::journal::Journal;
use bailiwick::permission::Deciding;
use bailiwick::{
    Answer, Approver, CallError, Code, MemoryAudit, Policy, Question, Runtime, ToolSet, Worker,
    WorkerSpec,
};
use bailiwick_exec::{AppliedChanges, ChangeKind, CommandChanges, CommandOutput};
use bailiwick_fs::Durability;
use rustix::mount::{MountFlags, mount, mount_bind};
use serde_json::{Value, json};

use crate::commands::{commands, run, worker};

/// What a person saw of a question: each change as its operation and path, and the number of added lines.
pub(crate) type Seen = Vec<(Op, String, usize)>;

/// Allows every question once, and keeps what it showed.
#[derive(Clone, Default)]
pub(crate) struct Allows {
    seen: Arc<Mutex<Vec<Seen>>>,
    /// The protected files of all questions.
    protected: Arc<Mutex<Vec<String>>>,
}

impl Approver for Allows {
    fn decide<'q>(&'q self, question: &'q Question) -> Deciding<'q> {
        let preview = question.request.preview.as_ref();
        let changes = preview.map(|preview| preview.changes.iter());
        let seen = changes
            .into_iter()
            .flatten()
            .map(|change| (change.op, change.path.to_string(), change.diff.added));
        self.seen.lock().unwrap().push(seen.collect());
        let protected = question.request.protected.iter();
        let protected = protected.filter_map(|(need, _)| Some(need.path()?.to_string()));
        self.protected.lock().unwrap().extend(protected);
        Box::pin(std::future::ready(Answer::ONCE))
    }

    fn is_person(&self, _: &Answer) -> bool {
        true
    }
}

impl Allows {
    /// The questions since the last call.
    pub(crate) fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

struct Stage {
    root: tempfile::TempDir,
    /// A directory outside the roots that commands can read.
    gate: tempfile::TempDir,
    person: Allows,
    runtime: Runtime,
}

impl Stage {
    /// A runtime with the files `a` and `old/b`.
    async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let gate = tempfile::tempdir().unwrap();
        let person = Allows::default();
        let builder = Runtime::builder()
            .root("repo", root.path())
            .tools(commands().system(gate.path()).tools())
            .allow("execute:command")
            .approver(person.clone());
        let runtime = builder.build().await.unwrap().0;
        fs::create_dir(root.path().join("old")).unwrap();
        for name in ["a", "old/b"] {
            fs::write(root.path().join(name), "text\n").unwrap();
        }
        Self {
            root,
            gate,
            person,
            runtime,
        }
    }

    async fn worker(&self, policy: Policy) -> Worker {
        worker(&self.runtime, policy).await
    }

    fn path(&self, name: impl AsRef<Path>) -> std::path::PathBuf {
        self.root.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }
}

/// A worker that must ask before it changes something.
pub(crate) fn asks() -> Policy {
    Policy::nothing()
        .allow("read:file")
        .ask("write:file")
        .allow("execute:command")
}

#[tokio::test]
async fn preview_says_what_a_command_changes_and_whether_that_ends_with_the_call() {
    let stage = Stage::new().await;
    let copy = "only a copy: ";
    let live = "/repo; this cannot be undone";
    let nothing = "nothing";
    let allows = || {
        let policy = Policy::nothing().allow("read:file").allow("write:file");
        policy.allow("execute:command")
    };
    let script = ["sh", "-c", "echo new > a"];
    let (kept, changed) = ("text\n", "new\n");
    for (policy, mode, writes, expected, confined, content) in [
        (asks(), None, None, copy, true, kept),
        (asks(), Some("live"), None, nothing, true, kept),
        (allows(), None, None, live, false, changed),
        (allows(), Some("overlay"), None, copy, true, kept),
        // Whoever allows this call allows the changes, too.
        (asks(), None, Some("/repo"), live, false, changed),
    ] {
        fs::write(stage.path("a"), kept).unwrap();
        let worker = stage.worker(policy).await;
        let mut arguments = json!({"argv": script, "cwd": "/repo"});
        if let Some(mode) = mode {
            arguments["mode"] = json!(mode);
        }
        if let Some(writes) = writes {
            arguments["writes"] = json!([writes]);
        }
        let preview = worker.preview("run_command", arguments.clone()).await;
        let resources = preview.unwrap().resources;
        let mut resources = resources.iter();
        let shown = resources.find(|one| one.resource == "Can change").unwrap();
        assert!(shown.summary.starts_with(expected), "{}", shown.summary);
        assert_eq!(shown.confined, confined, "{}", shown.summary);
        run(&worker, arguments).await.unwrap();
        assert_eq!(stage.text("a"), content, "{}", shown.summary);
    }
}

/// Runs a shell script in `/repo` whose changes are kept apart.
pub(crate) async fn apart(worker: &Worker, script: &str) -> CommandChanges {
    let argv = ["sh", "-c", script];
    let arguments = json!({ "argv": argv, "cwd": "/repo", "mode": "overlay" });
    run(worker, arguments).await.unwrap().changes.unwrap()
}

/// The paths of the changes that are kept, in order.
fn kept(changes: &CommandChanges) -> Vec<&str> {
    changes
        .files
        .iter()
        .map(|file| file.path.as_str())
        .collect()
}

/// The sorted paths of the changes that are dropped.
fn dropped(changes: &CommandChanges) -> Vec<&str> {
    let mut paths: Vec<_> = changes
        .dropped
        .iter()
        .map(|one| one.path.as_str())
        .collect();
    paths.sort_unstable();
    paths
}

pub(crate) async fn apply(
    worker: &Worker,
    arguments: serde_json::Value,
) -> Result<AppliedChanges, CallError> {
    let outcome = worker.call("apply_changes", arguments).await?;
    Ok(outcome.output::<AppliedChanges>().unwrap().clone())
}

#[tokio::test]
async fn changes_are_applied_after_one_question_with_all_diffs() {
    let stage = Stage::new().await;
    let worker = stage.worker(asks()).await;
    let script = "echo more >> a; rm -r old; mkdir -p new/er; echo n > new/er/n; chmod +x new/er/n";
    let changes = apart(&worker, script).await;
    let listed: Vec<_> = changes
        .files
        .iter()
        .map(|file| (file.path.as_str(), file.change))
        .collect();
    let expected = [
        ("/repo/a", ChangeKind::Changed),
        ("/repo/new", ChangeKind::DirectoryCreated),
        ("/repo/new/er", ChangeKind::DirectoryCreated),
        ("/repo/new/er/n", ChangeKind::Created),
        ("/repo/old", ChangeKind::Deleted),
    ];
    assert_eq!(listed, expected);
    assert_eq!((changes.total, changes.dropped_total), (5, 0));
    assert_eq!(stage.text("a"), "text\n");
    assert_eq!(stage.person.take(), [] as [Seen; 0]);

    let id = changes.id.unwrap();
    let preview = worker.preview("apply_changes", json!({ "id": id })).await;
    assert_eq!(preview.unwrap().changes.len(), 5);
    assert_eq!(stage.text("a"), "text\n");
    stage.person.take();

    let applied = apply(&worker, json!({ "id": id })).await.unwrap();
    let counts = (
        applied.created,
        applied.changed,
        applied.deleted,
        applied.directories,
    );
    assert_eq!(counts, (1, 1, 1, 2));
    let seen = |op, path: &str, added| (op, path.to_owned(), added);
    let expected = vec![
        seen(Op::Modify, "/repo/a", 1),
        seen(Op::MakeDirectory, "/repo/new", 0),
        seen(Op::MakeDirectory, "/repo/new/er", 0),
        seen(Op::Create, "/repo/new/er/n", 1),
        seen(Op::Delete, "/repo/old", 0),
    ];
    assert_eq!(stage.person.take(), [expected]);
    assert_eq!(stage.text("a"), "text\nmore\n");
    assert_eq!(stage.text("new/er/n"), "n\n");
    assert!(!stage.path("old").exists());
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(stage.path("new/er/n"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o111, 0o111);

    let again = apply(&worker, json!({ "id": id })).await.unwrap_err();
    assert_eq!(again.code(), Code::NotFound);
}

#[tokio::test]
async fn applied_changes_are_audited_with_hashes() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a"), "text\n").unwrap();
    let audit = MemoryAudit::new(100);
    let builder = Runtime::builder()
        .root("repo", root.path())
        .tools(commands().tools())
        .allow("execute:command")
        .audit(audit.clone())
        .approver(Allows::default());
    let runtime = builder.build().await.unwrap().0;
    let worker = worker(&runtime, asks()).await;
    let changes = apart(&worker, "echo more >> a; echo x > x").await;
    apply(&worker, json!({ "id": changes.id })).await.unwrap();
    runtime.flush_audit().await.unwrap();
    let records = audit.records();
    let events = records.iter().map(|record| {
        let line: Value = serde_json::from_str(record.line()).unwrap();
        line["event"].clone()
    });
    let events: Vec<Value> = events.collect();
    let mut ended = events.iter().map(|event| &event["details"]["ended"]);
    let ended = ended.find(|ended| ended.is_object()).unwrap();
    assert_eq!(ended["changed_files"], Value::Null);
    let listed = &ended["changes"]["files"];
    assert_eq!(listed[0]["path"], "/repo/a", "{ended}");
    assert_eq!(listed[1]["path"], "/repo/x", "{ended}");
    let hash = |text: &str| json!(ContentHash::of(text.as_bytes()).to_string());
    let applied = events
        .iter()
        .filter_map(|event| event["changes"].as_array());
    let applied = applied.flatten().map(|change| {
        let hashes = [&change["before_sha256"], &change["after_sha256"]];
        (change["path"].clone(), hashes.map(Value::clone))
    });
    let applied: Vec<_> = applied.collect();
    for expected in [
        (json!("/repo/a"), [hash("text\n"), hash("text\nmore\n")]),
        (json!("/repo/x"), [Value::Null, hash("x\n")]),
    ] {
        assert!(applied.contains(&expected), "{applied:?}");
    }
}

#[tokio::test]
async fn some_of_the_changes_are_applied() {
    let stage = Stage::new().await;
    let worker = stage.worker(asks()).await;
    let changes = apart(&worker, "echo x > x; echo y > y; mkdir d; echo z > d/z").await;
    let id = changes.id.unwrap();
    apply(
        &worker,
        json!({ "id": id, "paths": ["/repo/d", "/repo/x"] }),
    )
    .await
    .unwrap();
    assert!(stage.path("d/z").exists() && stage.path("x").exists() && !stage.path("y").exists());
    let unknown = apply(&worker, json!({ "id": id, "paths": ["/repo/a"] })).await;
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
    apply(&worker, json!({ "id": id, "paths": ["/repo/y"] }))
        .await
        .unwrap();
    assert_eq!(stage.text("y"), "y\n");
    let unknown = apply(&worker, json!({ "id": "0123" })).await;
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn changes_that_the_policy_denies_are_dropped() {
    let stage = Stage::new().await;
    let policy = asks().deny("write:file:/repo/a").deny_glob("*.env");
    let worker = stage.worker(policy).await;
    let changes = apart(
        &worker,
        "echo x > a; echo x > b; echo x > b.env; ln -s b link",
    )
    .await;
    assert_eq!(kept(&changes), ["/repo/b"]);
    assert_eq!(dropped(&changes), ["/repo/b.env", "/repo/link"]);
    apply(&worker, json!({ "id": changes.id.unwrap() }))
        .await
        .unwrap();
    assert_eq!(
        (stage.text("a"), stage.text("b")),
        ("text\n".to_owned(), "x\n".to_owned())
    );
    assert!(!stage.path("b.env").exists() && !stage.path("link").exists());
}

#[tokio::test]
async fn file_that_changed_after_the_command_began_is_not_overwritten() {
    let stage = Stage::new().await;
    let worker = stage.worker(asks()).await;
    let changes = apart(&worker, "echo mine >> a; echo x > x; rm old/b").await;
    let id = changes.id.unwrap();
    fs::write(stage.path("a"), "theirs\n").unwrap();
    let refused = apply(&worker, json!({ "id": id })).await.unwrap_err();
    assert_eq!(refused.code(), Code::Conflict);
    assert!(refused.message().contains("/repo/a"), "{refused}");
    assert!(!stage.path("x").exists());

    fs::write(stage.path("x"), "theirs\n").unwrap();
    let refused = apply(&worker, json!({ "id": id, "paths": ["/repo/x"] })).await;
    assert_eq!(refused.unwrap_err().code(), Code::Conflict);
    apply(&worker, json!({ "id": id, "paths": ["/repo/old"] }))
        .await
        .unwrap();
    assert!(!stage.path("old/b").exists());
    assert_eq!(
        (stage.text("a"), stage.text("x")),
        ("theirs\n".to_owned(), "theirs\n".to_owned())
    );
}

#[tokio::test]
async fn replaced_directory_loses_what_the_new_one_does_not_have() {
    let stage = Stage::new().await;
    let worker = stage.worker(asks()).await;
    let changes = apart(&worker, "rm -r old; mkdir old; echo c > old/c").await;
    let listed: Vec<_> = changes
        .files
        .iter()
        .map(|file| (file.path.as_str(), file.change))
        .collect();
    let expected = [
        ("/repo/old/b", ChangeKind::Deleted),
        ("/repo/old/c", ChangeKind::Created),
    ];
    assert_eq!(listed, expected);
    apply(&worker, json!({ "id": changes.id.unwrap() }))
        .await
        .unwrap();
    assert!(!stage.path("old/b").exists());
    assert_eq!(stage.text("old/c"), "c\n");
}

#[tokio::test]
async fn hook_that_a_build_plants_is_shown_in_the_question() {
    let stage = Stage::new().await;
    fs::create_dir_all(stage.path(".git/hooks")).unwrap();
    let worker = stage.worker(asks()).await;
    let changes = apart(&worker, "echo evil > .git/hooks/pre-commit; echo x > x").await;
    assert_eq!(changes.total, 2, "{changes:?}");
    apply(&worker, json!({ "id": changes.id })).await.unwrap();
    let hook = "/repo/.git/hooks/pre-commit";
    let expected = vec![
        (Op::Create, hook.to_owned(), 1),
        (Op::Create, "/repo/x".to_owned(), 1),
    ];
    assert_eq!(stage.person.take(), [expected]);
    let protected = stage.person.protected.lock().unwrap().clone();
    assert_eq!(protected, [hook]);
}

#[tokio::test]
async fn new_bare_repository_of_a_command_is_applied_after_one_question_that_names_it() {
    let stage = Stage::new().await;
    let worker = stage.worker(asks()).await;
    let apply = async |script: &str| {
        let changes = apart(&worker, script).await;
        apply(&worker, json!({ "id": changes.id })).await.unwrap();
        let protected = std::mem::take(&mut *stage.person.protected.lock().unwrap());
        (stage.person.take().len(), protected)
    };
    let new = "mkdir -p new/objects new/refs new/hooks; echo x > new/config; echo x > new/hooks/h";
    assert_eq!(apply(new).await, (1, Vec::new()));
    let bare = format!("{}; echo 'ref: x' > bare/HEAD", new.replace("new", "bare"));
    let asked = vec!["/repo/bare/refs".to_owned()];
    assert_eq!(apply(&bare).await, (1, asked));
    assert_eq!(stage.text("bare/HEAD"), "ref: x\n");
    assert!(stage.path("bare/refs").exists());
    // A file completes one that was there before.
    let asked = vec!["/repo/new/HEAD".to_owned()];
    assert_eq!(apply("echo 'ref: x' > new/HEAD").await, (1, asked));
}

#[tokio::test]
async fn symbolic_links_of_a_command_are_dropped_and_fifos_cannot_be_created() {
    let stage = Stage::new().await;
    let worker = stage.worker(asks()).await;
    let script = "mkfifo pipe; ln -s /etc/shadow link; ln -s ../.. up; echo x > x";
    let changes = apart(&worker, script).await;
    assert_eq!(dropped(&changes), ["/repo/link", "/repo/up"]);
    apply(&worker, json!({ "id": changes.id })).await.unwrap();
    let expected = vec![(Op::Create, "/repo/x".to_owned(), 1)];
    assert_eq!(stage.person.take(), [expected]);
    for name in ["link", "pipe", "up"] {
        assert!(fs::symlink_metadata(stage.path(name)).is_err(), "{name}");
    }
}

#[tokio::test]
async fn applied_changes_can_be_undone() {
    let (root, journal) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(root.path().join("old")).unwrap();
    for name in ["a", "old/b", "old/c"] {
        fs::write(root.path().join(name), "text\n").unwrap();
    }
    let builder = Runtime::builder()
        .root("repo", root.path())
        .journal(Journal::open(journal.path().join("journal")).unwrap())
        .tools(commands().tools())
        .tools(bailiwick_fs::undo_tools(Durability::Visible))
        .allow("execute:command")
        .approver(Allows::default());
    let runtime = builder.build().await.unwrap().0;
    let worker = worker(&runtime, asks()).await;
    let script =
        "echo more >> a; rm old/b; mkdir new; echo x > new/x; echo x > old/c; chmod +x old/c";
    let changes = apart(&worker, script).await;
    apply(&worker, json!({ "id": changes.id })).await.unwrap();
    assert!(!root.path().join("old/b").exists());
    assert!(root.path().join("new/x").exists());
    worker.call("undo", json!({})).await.unwrap();
    for name in ["a", "old/b", "old/c"] {
        let path = root.path().join(name);
        assert_eq!(fs::read_to_string(&path).unwrap(), "text\n", "{name}");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o111, 0, "{name}");
    }
    assert!(!root.path().join("new").exists());
}

/// Runs a script whose changes are kept apart, and does something else while it runs.
async fn meanwhile(
    stage: &Stage,
    worker: &Worker,
    script: &str,
    act: impl FnOnce(),
) -> CommandChanges {
    // The command waits for a line from a FIFO outside the roots.
    let fifo = stage.gate.path().join("gate");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let script = format!("{script}; read -r line < {}", fifo.display());
    let running = apart(worker, &script);
    let opened = async {
        // Opening the FIFO for writing waits until the command reads it.
        let open = move || fs::OpenOptions::new().write(true).open(fifo).unwrap();
        let mut gate = tokio::task::spawn_blocking(open).await.unwrap();
        act();
        gate.write_all(b"go\n").unwrap();
    };
    tokio::join!(running, opened).0
}

#[tokio::test]
async fn directory_that_others_replace_meanwhile_is_not_changed() {
    let stage = Stage::new().await;
    let worker = stage.worker(asks()).await;
    for name in ["p/d", "q/d"] {
        fs::create_dir_all(stage.path(name)).unwrap();
    }
    fs::write(stage.path("p/d/cache"), "cache").unwrap();
    fs::write(stage.path("p/f"), "old\n").unwrap();
    fs::write(stage.path("q/d/thesis"), "thesis").unwrap();
    fs::write(stage.path("q/f"), "others\n").unwrap();
    let script = "rm -r p/d; echo mine >> p/f; echo x > x";
    let changes = meanwhile(&stage, &worker, script, || {
        fs::rename(stage.path("p"), stage.path("p.old")).unwrap();
        fs::rename(stage.path("q"), stage.path("p")).unwrap();
    })
    .await;
    assert_eq!(kept(&changes), ["/repo/x"], "{changes:?}");
    apply(&worker, json!({ "id": changes.id })).await.unwrap();
    assert_eq!(
        (stage.text("p/f"), stage.text("p/d/thesis")),
        ("others\n".to_owned(), "thesis".to_owned())
    );
}

#[tokio::test]
async fn directory_that_others_replace_after_the_command_is_not_changed() {
    let stage = Stage::new().await;
    let worker = stage.worker(asks()).await;
    fs::create_dir(stage.path("other")).unwrap();
    fs::write(stage.path("other/b"), "others\n").unwrap();
    let changes = apart(&worker, "echo mine >> old/b").await;
    fs::rename(stage.path("old"), stage.path("older")).unwrap();
    fs::rename(stage.path("other"), stage.path("old")).unwrap();
    let refused = apply(&worker, json!({ "id": changes.id }))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Conflict);
    assert_eq!(stage.text("old/b"), "others\n");
}

#[tokio::test]
async fn file_that_others_delete_meanwhile_is_not_created_again() {
    let stage = Stage::new().await;
    let worker = stage.worker(asks()).await;
    let changes = meanwhile(&stage, &worker, "echo mine >> a; echo x > x", || {
        fs::remove_file(stage.path("a")).unwrap();
    })
    .await;
    assert_eq!(kept(&changes), ["/repo/x"], "{changes:?}");
    assert_eq!(changes.dropped[0].path, "/repo/a");
}

#[tokio::test]
async fn file_that_is_moved_while_others_change_its_directory_is_reported() {
    let stage = Stage::new().await;
    let worker = stage.worker(asks()).await;
    let changes = meanwhile(&stage, &worker, "ln a n; mv a old/m; echo x > x", || {
        fs::write(stage.path("y"), "theirs\n").unwrap();
    })
    .await;
    // The file has a name less than it had in the overlay, so it keeps its old one.
    assert_eq!(kept(&changes), ["/repo/x"], "{changes:?}");
    assert_eq!(dropped(&changes), ["/repo/a", "/repo/n", "/repo/old/m"]);
}

#[tokio::test]
async fn both_halves_of_a_move_are_applied_or_none() {
    // What is moved, which file others write meanwhile, and what is kept.
    for (script, written, expected) in [
        ("mv a n", None, &["/repo/a", "/repo/n", "/repo/x"] as &[_]),
        ("mv a n", Some("y"), &["/repo/x"]),
        ("mv a n", Some("a"), &["/repo/x"]),
        (
            "mv a n; echo z >> n",
            None,
            &["/repo/a", "/repo/n", "/repo/x"],
        ),
        ("mv a n; echo z >> n", Some("y"), &["/repo/x"]),
        ("mv a n.env", None, &["/repo/x"]),
        ("mv a link", None, &["/repo/x"]),
        ("mv a $(printf 'n\\377')", None, &["/repo/x"]),
        ("mkdir $(printf 'n\\377'); mv a n*/a", None, &["/repo/x"]),
        ("mv old/b n.env; rm -r old", None, &["/repo/x"]),
        (
            "mv old/b n; rm -r old",
            None,
            &["/repo/n", "/repo/old", "/repo/x"],
        ),
        ("mv a n; rm -r gone", Some("y"), &["/repo/gone", "/repo/x"]),
        ("mv a old/b", None, &["/repo/a", "/repo/old/b", "/repo/x"]),
        ("mv a old/b", Some("old/b"), &["/repo/x"]),
        (
            "echo z > a; rm old/b",
            Some("y"),
            &["/repo/a", "/repo/old/b", "/repo/x"],
        ),
    ] {
        let stage = Stage::new().await;
        std::os::unix::fs::symlink("a", stage.path("link")).unwrap();
        fs::create_dir(stage.path("gone")).unwrap();
        for name in ["a", "old/b", "gone/file"] {
            fs::write(stage.path(name), name).unwrap();
        }
        let worker = stage.worker(asks().deny("write:file:/repo/n.env")).await;
        let changes = meanwhile(&stage, &worker, &format!("{script}; echo x > x"), || {
            if let Some(name) = written {
                fs::write(stage.path(name), "theirs").unwrap();
            }
        })
        .await;
        assert_eq!(
            kept(&changes),
            expected,
            "{script} {written:?}: {changes:?}"
        );
        apply(&worker, json!({ "id": changes.id })).await.unwrap();
        let has_old_names = stage.path("a").exists() && stage.path("old/b").exists();
        assert!(has_old_names || expected.len() > 1, "{script}");
    }
}

#[tokio::test]
async fn directory_that_becomes_a_link_while_the_command_runs_or_is_applied_is_not_followed() {
    let stage = Stage::new().await;
    let worker = stage.worker(asks()).await;
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("b"), "outside\n").unwrap();
    let swap = |from: &Path| {
        fs::rename(stage.path("old"), stage.path("older")).unwrap();
        std::os::unix::fs::symlink(from, stage.path("old")).unwrap();
    };
    let back = || {
        fs::remove_file(stage.path("old")).unwrap();
        fs::rename(stage.path("older"), stage.path("old")).unwrap();
    };
    let script = "echo mine >> old/b; echo x > old/new; echo x > x";
    let changes = meanwhile(&stage, &worker, script, || swap(outside.path())).await;
    assert_eq!(kept(&changes), ["/repo/x"], "{changes:?}");
    back();
    let changes = apart(&worker, script).await;
    assert_eq!(changes.total, 3, "{changes:?}");
    swap(outside.path());
    let refused = apply(&worker, json!({ "id": changes.id })).await;
    assert_eq!(refused.unwrap_err().code(), Code::Conflict);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    assert_eq!(
        fs::read_to_string(outside.path().join("b")).unwrap(),
        "outside\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_race_of_a_directory_and_a_link_writes_outside() {
    let stage = Stage::new().await;
    let worker = stage.worker(asks()).await;
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), stage.path("link")).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let (old, link) = (stage.path("old"), stage.path("link"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                renameat_with(CWD, &old, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                for _ in 0..10 {
                    let changes = apart(&worker, "echo x > old/new; rm -f old/b").await;
                    // Either is right, depending on what the command and the call saw.
                    let _ = apply(&worker, json!({ "id": changes.id.unwrap_or_default() })).await;
                }
            });
        });
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn many_changes_are_asked_about_once_and_too_many_are_dropped_as_a_whole() {
    let stage = Stage::new().await;
    let worker = stage.worker(asks()).await;
    let many = |count| format!("rm -f a; mkdir m{count}; cd m{count}; seq {count} | xargs touch");
    let changes = apart(&worker, &many(5_100)).await;
    assert_eq!((changes.total, changes.id), (0, None));
    assert_eq!(changes.dropped_total, 1);
    assert!(changes.dropped[0].reason.contains("5,000"));
    assert_eq!(stage.text("a"), "text\n");
    let changes = apart(&worker, &many(900)).await;
    assert_eq!((changes.total, changes.dropped_total), (902, 0));
    // All of them are asked about in one question.
    stage.person.take();
    let applied = apply(&worker, json!({ "id": changes.id })).await.unwrap();
    assert_eq!((applied.created, applied.deleted), (900, 1));
    let questions = stage.person.take();
    let [question] = questions.as_slice() else {
        panic!("{} questions", questions.len());
    };
    assert_eq!(question.len(), 902);
    let changes = apart(&worker, &many(1_000)).await;
    assert_eq!((changes.total, changes.dropped_total), (1_001, 0));
    let refused = apply(&worker, json!({ "id": changes.id.unwrap() })).await;
    assert_eq!(refused.unwrap_err().code(), Code::TooLarge);
    assert_eq!(stage.person.take(), [] as [Seen; 0]);
    assert!(!stage.path("m1000").exists());
}

#[tokio::test]
async fn denied_names_are_neither_seen_nor_moved_with_their_directory() {
    let stage = Stage::new().await;
    fs::create_dir(stage.path("old/keys")).unwrap();
    for name in ["old/.env", "old/keys/k"] {
        fs::write(stage.path(name), "the secret\n").unwrap();
    }
    let policy = asks().deny_glob("*.env").deny("read:file:/repo/old/keys");
    let worker = stage.worker(policy.deny("write:file:/repo/old/keys")).await;
    let script = "cat old/.env old/keys/k; ls -A old/keys; echo new > old/.env; rm -rf old/keys; mv old moved; \
        cat moved/.env moved/keys/k; grep -r secret .; cat moved/b; true";
    let arguments = json!({ "argv": ["sh", "-c", script], "cwd": "/repo", "mode": "overlay" });
    let output = run(&worker, arguments).await.unwrap();
    assert_eq!(output.stdout, "text\n", "{output:?}");
    let changes = output.changes.unwrap();
    assert!(
        kept(&changes).iter().all(|path| !path.ends_with("/k")),
        "{changes:?}"
    );
    if let Some(id) = changes.id {
        let _ = apply(&worker, json!({ "id": id })).await;
    }
    for name in ["old/.env", "old/keys/k"] {
        assert_eq!(stage.text(name), "the secret\n", "{name}");
    }
    assert!(!stage.path("moved/.env").exists());
}

/// Runs again in a mount namespace of its own, in which it mounts files.
#[test]
fn files_that_another_file_system_covers_are_hidden() {
    const AGAIN: &str = "IN_MOUNT_NAMESPACE";
    if std::env::var_os(AGAIN).is_some() {
        let tokio = tokio::runtime::Runtime::new().unwrap();
        return tokio.block_on(check_covered_files());
    }
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "changes::files_that_another_file_system_covers_are_hidden",
        ])
        .env(AGAIN, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

async fn check_covered_files() {
    let stage = Stage::new().await;
    let other = tempfile::tempdir().unwrap();
    mount("none", other.path(), "tmpfs", MountFlags::empty(), None).unwrap();
    fs::write(other.path().join("file"), "mounted\n").unwrap();
    // Whatever the order of the directory is, one of them is not its first entry.
    for name in ["old/c", "old/d"] {
        fs::write(stage.path(name), "covered\n").unwrap();
        mount_bind(other.path().join("file"), stage.path(name)).unwrap();
    }
    for policy in [asks(), asks().deny_glob("*.env")] {
        let worker = stage.worker(policy).await;
        let script = "cat a old/b old/c old/d; true";
        let arguments = json!({ "argv": ["sh", "-c", script], "cwd": "/repo", "mode": "overlay" });
        let output = run(&worker, arguments).await.unwrap();
        let shown = (output.stdout.as_str(), output.stderr.as_str());
        // A hidden file is an empty device.
        assert_eq!(shown, ("text\ntext\n", ""));
    }
}

#[tokio::test]
async fn links_in_a_root_lead_nowhere_outside_while_changes_are_kept_apart() {
    let stage = Stage::new().await;
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "the secret\n").unwrap();
    for (name, target) in [
        ("file", outside.path().join("secret")),
        ("dir", outside.path().into()),
    ] {
        std::os::unix::fs::symlink(target, stage.path(name)).unwrap();
    }
    let worker = stage.worker(asks()).await;
    let script = "cat file dir/secret; echo x > dir/new; readlink file dir | wc -l; echo x > x";
    let arguments = json!({ "argv": ["sh", "-c", script], "cwd": "/repo", "mode": "overlay" });
    let output = run(&worker, arguments).await.unwrap();
    assert_eq!(output.stdout, "2\n", "{output:?}");
    let changes = output.changes.unwrap();
    assert_eq!(
        (kept(&changes), changes.dropped_total),
        (vec!["/repo/x"], 0)
    );
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn killed_command_keeps_its_changes_apart_and_leaves_no_file() {
    let stage = Stage::new().await;
    let worker = stage.worker(asks()).await;
    let script = "echo more >> a; echo x > x; exec sleep 1000";
    let arguments = json!({
        "argv": ["sh", "-c", script], "cwd": "/repo", "mode": "overlay", "timeout_ms": 1500,
    });
    let output = run(&worker, arguments).await.unwrap();
    assert!(output.timed_out, "{output:?}");
    assert_eq!(kept(&output.changes.unwrap()), ["/repo/a", "/repo/x"]);
    assert_eq!(stage.text("a"), "text\n");
    let mut left: Vec<_> = fs::read_dir(stage.root.path()).unwrap().collect();
    left.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
    assert_eq!(left.len(), 2, "{left:?}");
}

#[tokio::test]
async fn file_that_is_changed_in_memory_is_kept_apart() {
    let stage = Stage::new().await;
    let worker = stage.worker(asks()).await;
    let script = r#"import mmap
with open('a', 'r+b') as file, mmap.mmap(file.fileno(), 0) as memory:
    assert memory[0:4] == b'text'
    memory[0:4] = b'TEXT'"#;
    let arguments = json!({ "argv": ["python3", "-c", script], "cwd": "/repo", "mode": "overlay" });
    let output = run(&worker, arguments).await.unwrap();
    assert_eq!(output.exit_code, Some(0), "{output:?}");
    let changes = output.changes.unwrap();
    assert_eq!(kept(&changes), ["/repo/a"]);
    apply(&worker, json!({ "id": changes.id.unwrap() }))
        .await
        .unwrap();
    assert_eq!(stage.text("a"), "TEXT\n");
}

#[tokio::test]
async fn names_that_no_rule_can_judge_are_dropped_and_not_shown_as_they_are() {
    let stage = Stage::new().await;
    let worker = stage.worker(asks()).await;
    let script = r"import os
for name in [b'a\nb', b'c\x1b[2J', b'\xff', b'ok']: open(name, 'w').close()
os.mkdir(b'd\n'); open(b'd\n/inner', 'w').close()";
    let arguments = json!({ "argv": ["python3", "-c", script], "cwd": "/repo", "mode": "overlay" });
    let outcome = worker.call("run_command", arguments).await.unwrap();
    let output = outcome.output::<CommandOutput>().unwrap();
    assert_eq!(output.exit_code, Some(0), "{output:?}");
    let changes = output.changes.as_ref().unwrap();
    assert_eq!(kept(changes), ["/repo/ok"], "{changes:?}");
    assert_eq!(changes.dropped_total, 4, "{changes:?}");
    assert!(!outcome.text().contains('\x1b'));
    apply(&worker, json!({ "id": changes.id })).await.unwrap();
    assert!(stage.path("ok").exists());
}

#[tokio::test]
async fn directories_that_cannot_be_read_are_dropped_without_the_other_changes() {
    let is_root = rustix::process::getuid().is_root();
    for (script, closed) in [
        ("chmod 444 old", "/repo/old"),
        ("chmod 0 old", "/repo/old"),
        ("mkdir d; echo x > d/f; chmod 444 d", "/repo/d"),
        (
            "rm -r old; mkdir old; echo x > old/c; chmod 444 old",
            "/repo/old",
        ),
        ("mkdir d; mv a d/a; chmod 444 d", "/repo/d"),
        ("chmod 444 .", "/repo"),
        ("chmod 0 .", "/repo"),
    ] {
        let stage = Stage::new().await;
        let worker = stage.worker(asks()).await;
        let script = format!("mkdir e; echo x > e/f; {script}; echo out; exit 3");
        let arguments = json!({ "argv": ["sh", "-c", script], "cwd": "/repo", "mode": "overlay" });
        let output = run(&worker, arguments).await.unwrap();
        assert_eq!(output.exit_code, Some(3), "{script}: {output:?}");
        assert_eq!(output.stdout, "out\n", "{script}: {output:?}");
        let changes = output.changes.unwrap();
        let of_closed = changes.dropped.iter().find(|it| it.path == closed);
        let reason = of_closed
            .unwrap_or_else(|| panic!("{script}: {changes:?}"))
            .reason;
        if !is_root {
            assert_eq!(reason, "it cannot be read", "{script}");
        }
        let is_all_closed = closed == "/repo" && !is_root;
        // The old name of a moved file is not deleted without its new one.
        assert!(is_root || !kept(&changes).contains(&"/repo/a"), "{script}");
        let is_kept = kept(&changes).contains(&"/repo/e/f");
        assert_eq!(is_kept, !is_all_closed, "{script}: {changes:?}");
    }
}

#[tokio::test]
async fn changes_beneath_a_directory_that_only_the_command_can_read_are_dropped() {
    use std::os::unix::fs::PermissionsExt as _;
    let stage = Stage::new().await;
    let set = |mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(stage.path("old"), permissions).unwrap();
    };
    let worker = stage.worker(asks()).await;
    for script in [
        "chmod 755 old; echo more >> old/b; echo x > old/n; echo x > n",
        "chmod 755 old; rm -r old; echo x > n",
        "chmod 755 old; rm -r old; mkdir old; echo x > old/c; echo x > n",
    ] {
        for mode in [0, 0o444] {
            set(mode);
            let arguments =
                json!({ "argv": ["sh", "-c", script], "cwd": "/repo", "mode": "overlay" });
            let output = run(&worker, arguments).await.unwrap();
            set(0o755);
            let changes = output.changes.unwrap();
            assert!(
                kept(&changes).contains(&"/repo/n"),
                "{script} {mode:o}: {changes:?}"
            );
        }
    }
}

/// Changes a file while its question is open, and allows the question.
struct ChangesFirst(std::path::PathBuf);

impl Approver for ChangesFirst {
    fn decide<'q>(&'q self, _: &'q Question) -> Deciding<'q> {
        fs::write(&self.0, "theirs\n").unwrap();
        Box::pin(std::future::ready(Answer::ONCE))
    }

    fn is_person(&self, _: &Answer) -> bool {
        true
    }
}

#[tokio::test]
async fn file_that_changes_while_its_question_is_open_is_not_overwritten() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a");
    fs::write(&path, "text\n").unwrap();
    let builder = Runtime::builder()
        .root("repo", root.path())
        .tools(commands().tools())
        .allow("execute:command")
        .approver(ChangesFirst(path.clone()));
    let runtime = builder.build().await.unwrap().0;
    let worker = worker(&runtime, asks()).await;
    for script in [
        "echo mine >> a; echo x > b",
        "chmod 600 a; echo x > b",
        "rm a; echo x > b",
    ] {
        fs::write(&path, "text\n").unwrap();
        let changes = apart(&worker, script).await;
        assert_eq!(changes.total, 2, "{script}");
        let refused = apply(&worker, json!({ "id": changes.id })).await;
        assert_eq!(refused.unwrap_err().code(), Code::StalePreview, "{script}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs\n");
        assert!(!root.path().join("b").exists(), "{script}");
    }
}

#[tokio::test]
async fn question_says_that_a_new_file_can_be_executed() {
    let stage = Stage::new().await;
    let worker = stage.worker(asks()).await;
    let changes = apart(&worker, "echo x > tool; chmod +x tool; echo x > text").await;
    let preview = worker.preview("apply_changes", json!({ "id": changes.id }));
    let preview = preview.await.unwrap();
    let resources: Vec<_> = preview
        .resources
        .iter()
        .map(|change| change.resource.as_str())
        .collect();
    assert_eq!(resources, ["/repo/tool"]);
}

#[tokio::test]
async fn reply_counts_what_was_applied() {
    let stage = Stage::new().await;
    let worker = stage.worker(asks()).await;
    let changes = apart(&worker, "chmod +x a; echo x > x").await;
    let applied = apply(&worker, json!({ "id": changes.id })).await.unwrap();
    assert_eq!((applied.created, applied.changed), (1, 1));
}

#[tokio::test]
async fn program_in_a_root_runs_in_an_overlay() {
    use std::os::unix::fs::PermissionsExt as _;
    let stage = Stage::new().await;
    fs::write(stage.path("tool"), "#!/bin/sh\necho x > made\n").unwrap();
    fs::set_permissions(stage.path("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    let worker = stage.worker(asks()).await;
    for (mode, kept) in [("overlay", 1), ("live", 0)] {
        let arguments = json!({ "argv": ["/repo/tool"], "cwd": "/repo", "mode": mode });
        let output = run(&worker, arguments).await.unwrap();
        let total = output.changes.as_ref().map_or(0, |changes| changes.total);
        assert_eq!(total, kept, "{output:?}");
    }
    assert!(!stage.path("made").exists());
}

#[tokio::test]
async fn changes_are_kept_apart_by_default_if_they_would_ask() {
    let stage = Stage::new().await;
    let script = json!({ "argv": ["sh", "-c", "echo x > made"], "cwd": "/repo" });
    let kept_apart = async |policy: Policy, arguments| {
        let worker = stage.worker(policy).await;
        let output: CommandOutput = run(&worker, arguments).await.unwrap();
        output.changes.is_some()
    };
    let reads = Policy::nothing()
        .allow("read:file")
        .allow("execute:command");
    assert!(kept_apart(asks(), script.clone()).await);
    assert!(!kept_apart(reads.clone(), script.clone()).await);
    assert!(!stage.path("made").exists());
    let mut live = script.clone();
    live["mode"] = json!("live");
    assert!(!kept_apart(asks(), live).await);
    assert!(!stage.path("made").exists());
    assert!(!kept_apart(reads.allow("write:file"), script).await);
    assert!(stage.path("made").exists());
}

#[tokio::test]
async fn overlay_is_refused_without_a_tool_that_applies_changes() {
    let root = tempfile::tempdir().unwrap();
    let builder = Runtime::builder()
        .root("repo", root.path())
        .tools(ToolSet::new().actor(commands()))
        .allow("execute:command");
    let runtime = builder.build().await.unwrap().0;
    let worker = worker(&runtime, asks()).await;
    let arguments = json!({ "argv": ["true"], "cwd": "/repo", "mode": "overlay" });
    let refused = run(&worker, arguments).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArguments);
    let live = json!({ "argv": ["true"], "cwd": "/repo" });
    assert!(run(&worker, live).await.unwrap().changes.is_none());
}

#[tokio::test]
async fn entries_are_judged_before_the_start_only_if_a_rule_may_match_them() {
    use std::os::unix::ffi::OsStrExt as _;
    let stage = Stage::new().await;
    // No rule can judge this name, so a command is refused if entries are judged one by one.
    let name = std::ffi::OsStr::from_bytes(b"not-\xff-text");
    fs::write(stage.root.path().join(name), "x").unwrap();
    let worker = stage.worker(asks()).await;
    let changes = apart(&worker, "echo x > x").await;
    assert_eq!(changes.total, 1, "{changes:?}");
    let judged = stage.worker(asks().deny_glob("*.env")).await;
    let arguments = json!({ "argv": ["true"], "cwd": "/repo", "mode": "overlay" });
    let refused = run(&judged, arguments).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotText);
}

#[tokio::test]
async fn worker_cannot_drop_the_changes_of_another_one() {
    let stage = Stage::new().await;
    let (first, other) = (stage.worker(asks()).await, stage.worker(asks()).await);
    let kept = apart(&first, "echo x > x").await.id;
    let mut dropped = Vec::new();
    for number in 0..17 {
        dropped.push(apart(&other, &format!("echo {number} > y")).await.id);
    }
    let oldest = apply(&other, json!({ "id": dropped[0] }))
        .await
        .unwrap_err();
    assert_eq!(oldest.code(), Code::NotFound);
    apply(&first, json!({ "id": kept })).await.unwrap();
    assert_eq!(stage.text("x"), "x\n");
}

#[tokio::test]
async fn changes_are_applied_by_their_worker_and_its_ancestors_only() {
    let stage = Stage::new().await;
    let [owner, stranger] = [stage.worker(asks()).await, stage.worker(asks()).await];
    let child = |name: &str| owner.spawn(WorkerSpec::new(name).policy(asks()));
    let [first, second] = [
        child("first").await.unwrap(),
        child("second").await.unwrap(),
    ];
    let ids = [&owner, &first].map(|worker| apart(worker, "echo x > x"));
    let [of_owner, of_first] = ids;
    let (of_owner, of_first) = (of_owner.await.id, of_first.await.id);
    let unknown = apply(&owner, json!({ "id": "unknown" })).await.unwrap_err();
    for (worker, id) in [
        (&stranger, &of_owner),
        (&stranger, &of_first),
        (&first, &of_owner),
        (&second, &of_first),
    ] {
        let error = apply(worker, json!({ "id": id })).await.unwrap_err();
        assert_eq!(error.to_string(), unknown.to_string());
    }
    assert!(stage.person.take().is_empty());
    assert!(!stage.path("x").exists());
    apply(&owner, json!({ "id": of_first })).await.unwrap();
    assert_eq!(stage.text("x"), "x\n");
    fs::remove_file(stage.path("x")).unwrap();
    apply(&owner, json!({ "id": of_owner })).await.unwrap();
    assert_eq!(stage.text("x"), "x\n");
}

#[tokio::test]
async fn changes_are_dropped_when_their_worker_ends() {
    let stage = Stage::new().await;
    let parent = stage.worker(asks()).await;
    let child = |name: &str| parent.spawn(WorkerSpec::new(name).policy(asks()));
    let [ends, lives] = [child("ends").await.unwrap(), child("lives").await.unwrap()];
    let dropped = apart(&ends, "echo x > x").await.id;
    let kept = apart(&lives, "echo y > y").await.id;
    ends.revoke().await;
    let error = apply(&parent, json!({ "id": dropped })).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    apply(&parent, json!({ "id": kept })).await.unwrap();
    assert_eq!(
        (stage.path("x").exists(), stage.path("y").exists()),
        (false, true)
    );
}
