//! A tree after all changes of a command were applied is the tree that the command left, and an undo restores the first one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use bailiwick::journal::Journal;
use bailiwick::{Runtime, Worker};
use bailiwick_exec::CommandChanges;
use bailiwick_fs::Durability;
use serde_json::json;

use crate::changes::{Allows, apply, asks};
use crate::commands::{commands, worker};

/// Lists everything in the current directory: path, kind, permissions, target of a link, and the hash of a file.
const LIST: &str = r#"find . -mindepth 1 -exec sh -c 'for f; do
    stat --printf "%n|%F|%a|" "$f"; readlink "$f" | tr -d "\n"
    if [ -f "$f" ] && [ ! -L "$f" ]; then sha256sum < "$f" || echo; else echo; fi
done' sh {} +"#;

/// Each path of a tree with its description.
type Tree = BTreeMap<String, String>;

fn tree(listing: &str) -> Tree {
    let entry = |line: &str| {
        let (path, rest) = line.split_once('|').unwrap();
        let rest = rest.replace("regular empty file", "regular file");
        (path.trim_start_matches("./").to_owned(), rest)
    };
    listing.lines().map(entry).collect()
}

struct Case {
    name: &'static str,
    script: &'static str,
    /// The paths in the question.
    applied: &'static [&'static str],
    /// The paths that are reported instead.
    dropped: &'static [&'static str],
}

const fn case(
    name: &'static str,
    script: &'static str,
    applied: &'static [&'static str],
    dropped: &'static [&'static str],
) -> Case {
    Case {
        name,
        script,
        applied,
        dropped,
    }
}

/// The root has the files `a` (text), `b` (other), `d/e`, `d/f`, the empty directory `empty`, the link `link` to `a`, and
/// `run`, which can be executed.
const CASES: &[Case] = &[
    case("nothing", "true", &[], &[]),
    case("time only", "touch a d link", &[], &[]),
    case("file mode", "chmod +x a", &["a"], &[]),
    case("file mode taken", "chmod -x run", &["run"], &[]),
    case("private file mode", "chmod 600 a", &["a"], &[]),
    case("sticky file", "chmod +t a", &[], &["a"]),
    case(
        "created with modes",
        "umask 077; echo x > n; mkdir m; echo x > m/n; echo x > o; chmod 640 o; echo x > p; chmod 755 p",
        &["m", "m/n", "n", "o", "p"],
        &[],
    ),
    case(
        "directory that its owner cannot change",
        "mkdir n; echo x > n/m; chmod 500 n",
        &["n", "n/m"],
        &["n"],
    ),
    case(
        "set-id bits",
        "chmod u+s a; chmod 2755 b; echo x > n; chmod 4755 n",
        &["n"],
        &[],
    ),
    case("moved with mode", "mv a n; chmod 600 n", &["a", "n"], &[]),
    case("link deleted", "rm link", &["link"], &[]),
    case(
        "link and files deleted",
        "rm link a; rm -r d",
        &["a", "d", "link"],
        &[],
    ),
    case("file mode and back", "chmod +x a; chmod -x a", &[], &[]),
    case("directory mode", "chmod 700 d", &[], &["d"]),
    case("mode and content", "chmod +x a; echo x >> a", &["a"], &[]),
    case("root mode", "chmod 701 .", &[], &[""]),
    case("unreadable", "chmod 000 a", &[], &["a"]),
    case("content", "echo x >> a; echo x >> run", &["a", "run"], &[]),
    case("emptied", "> a", &["a"], &[]),
    case("same length", "printf 'tExt\\n' > a", &["a"], &[]),
    case("same content", "cp a t; rm a; mv t a", &[], &[]),
    case(
        "deleted and created again",
        "cat a > t; rm a; cat t > a; rm t",
        &[],
        &[],
    ),
    case(
        "created and deleted",
        "echo x > t; rm t; mkdir n; rmdir n",
        &[],
        &[],
    ),
    case("rename", "mv a n", &["a", "n"], &[]),
    case(
        "rename into a new directory",
        "mkdir n; mv a n/a",
        &["a", "n", "n/a"],
        &[],
    ),
    case("rename over", "mv a b", &["a", "b"], &[]),
    case("rename of a program", "mv run r2", &["r2", "run"], &[]),
    case("swap", "mv a t; mv b a; mv t b", &["a", "b"], &[]),
    case(
        "directory renamed",
        "mv d n",
        &["d", "n", "n/e", "n/f"],
        &[],
    ),
    case(
        "directory renamed over",
        "mv -T d empty",
        &["d", "empty/e", "empty/f"],
        &[],
    ),
    case(
        "directory replaced",
        "rm -r d; mkdir d; echo x > d/g",
        &["d/e", "d/f", "d/g"],
        &[],
    ),
    case("directory copied", "cp -a d n", &["n", "n/e", "n/f"], &[]),
    case("directory deleted", "rm -r d empty", &["d", "empty"], &[]),
    case("empty directory", "mkdir -p n/m", &["n", "n/m"], &[]),
    case(
        "file becomes a directory",
        "rm a; mkdir a; echo x > a/x",
        &[],
        &["a"],
    ),
    case(
        "directory becomes a file",
        "rm -r d; echo x > d",
        &[],
        &["d"],
    ),
    case("link created", "ln -s a n", &[], &["n"]),
    case("link changed", "ln -sfn b link", &[], &["link"]),
    case(
        "link replaced by a file",
        "rm link; echo x > link",
        &[],
        &["link"],
    ),
    case(
        "link replaced by its target",
        "cp --remove-destination a link",
        &[],
        &["link"],
    ),
    case("file replaced by a link", "ln -sf b a", &[], &["a"]),
    case(
        "directory replaced by a link",
        "rm -r d; ln -s a d",
        &[],
        &["d"],
    ),
    case("link created again", "rm link; ln -s a link", &[], &[]),
    case("written through a link", "echo x >> link", &["a"], &[]),
    case("hard link", "ln a n", &["n"], &[]),
    case(
        "hard link and content",
        "ln a n; echo x >> n",
        &["a", "n"],
        &[],
    ),
    case("hard link and deletion", "ln a n; rm a", &["a", "n"], &[]),
    case("hard link over", "ln -f a b", &["b"], &[]),
    case(
        "hard link in a directory",
        "ln a d/n; echo x >> d/n",
        &["a", "d/n"],
        &[],
    ),
    case(
        "hard link of new files",
        "echo x > n; ln n m; mkdir o; ln n o/n",
        &["m", "n", "o", "o/n"],
        &[],
    ),
    case("hard link to a link", "ln -P link n", &[], &["n"]),
    case(
        "FIFO, socket and device",
        "mkfifo n; mknod n c 0 0; mknod n b 1 1; \
        python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"n\")'",
        &[],
        &[],
    ),
];

struct Stage {
    root: tempfile::TempDir,
    _journal: tempfile::TempDir,
    person: Allows,
    _runtime: Runtime,
    worker: Worker,
}

impl Stage {
    async fn new() -> Self {
        let (root, journal) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = |name: &str| root.path().join(name);
        for name in ["d", "empty"] {
            fs::create_dir(path(name)).unwrap();
        }
        for (name, text) in [("a", "text\n"), ("b", "other\n"), ("d/e", "e"), ("d/f", "")] {
            fs::write(path(name), text).unwrap();
        }
        fs::write(path("run"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(path("run"), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("a", path("link")).unwrap();
        let person = Allows::default();
        let builder = Runtime::builder()
            .root("repo", root.path())
            .journal(Journal::open(journal.path().join("journal")).unwrap())
            .tools(commands().tools())
            .tools(bailiwick_fs::undo_tools(Durability::Visible))
            .allow("execute:command")
            .approver(person.clone());
        let runtime = builder.build().await.unwrap().0;
        let worker = worker(&runtime, asks()).await;
        Self {
            root,
            _journal: journal,
            person,
            _runtime: runtime,
            worker,
        }
    }

    fn tree(&self) -> Tree {
        tree_of(self.root.path())
    }

    /// Runs a script in an overlay. Returns its changes and the tree that it left.
    async fn run(&self, script: &str) -> (CommandChanges, Tree) {
        let arguments = json!({
            "argv": ["sh", "-c", format!("({script}) > /dev/null 2>&1\n{LIST}")],
            "cwd": "/repo",
            "mode": "overlay",
        });
        let output = crate::commands::run(&self.worker, arguments).await.unwrap();
        (output.changes.unwrap(), tree(&output.stdout))
    }
}

fn tree_of(root: &Path) -> Tree {
    let listed = Command::new("sh")
        .args(["-c", LIST])
        .current_dir(root)
        .output();
    tree(&String::from_utf8(listed.unwrap().stdout).unwrap())
}

/// The paths without the root.
fn names<'p>(paths: impl Iterator<Item = &'p str>) -> BTreeSet<&'p str> {
    let inner = |path: &'p str| path.strip_prefix("/repo").unwrap().trim_start_matches('/');
    paths.map(inner).collect()
}

#[tokio::test]
async fn applied_changes_make_the_tree_that_the_command_left_and_undo_restores_it() {
    let mut failed = Vec::new();
    for case in CASES {
        // A case that fails has printed why.
        if tokio::spawn(check(case)).await.is_err() {
            failed.push(case.name);
        }
    }
    assert_eq!(failed, [""; 0]);
}

async fn check(case: &'static Case) {
    let (name, stage) = (case.name, Stage::new().await);
    let first = stage.tree();
    let (changes, left) = stage.run(case.script).await;
    assert_eq!(stage.tree(), first, "{name}");
    let expected = |paths: &[&'static str]| paths.iter().copied().collect::<BTreeSet<_>>();
    let listed = names(changes.files.iter().map(|file| file.path.as_str()));
    assert_eq!(listed, expected(case.applied), "{name}: {changes:?}");
    let dropped = names(changes.dropped.iter().map(|one| one.path.as_str()));
    assert_eq!(dropped, expected(case.dropped), "{name}: {changes:?}");
    // What is dropped stays as it was, except for the content of a file that was changed.
    let is_dropped = |path: &str| {
        let mut dropped = case.dropped.iter();
        dropped.any(|one| !one.is_empty() && Path::new(path).starts_with(one))
    };
    let without_dropped = |tree: &Tree| -> Tree {
        let kept = tree.iter().filter(|(path, _)| !is_dropped(path));
        kept.map(|(path, entry)| (path.clone(), entry.clone()))
            .collect()
    };
    if let Some(id) = changes.id {
        apply(&stage.worker, json!({ "id": id })).await.unwrap();
        let questions = stage.person.take();
        assert_eq!(questions.len(), 1, "{name}: {questions:?}");
        let question = questions.iter().flatten();
        let shown = names(question.map(|(_, path, _)| path.as_str()));
        assert_eq!(shown, expected(case.applied), "{name}");
        assert_eq!(
            without_dropped(&stage.tree()),
            without_dropped(&left),
            "{name}"
        );
        stage.worker.call("undo", json!({})).await.unwrap();
        assert_eq!(stage.tree(), first, "{name}: undone");
        stage.worker.call("redo", json!({})).await.unwrap();
        assert_eq!(
            without_dropped(&stage.tree()),
            without_dropped(&left),
            "{name}: redone"
        );
        stage.worker.call("undo", json!({})).await.unwrap();
    } else {
        assert_eq!(without_dropped(&first), without_dropped(&left), "{name}");
    }
    assert_eq!(stage.tree(), first, "{name}");
}

#[tokio::test]
async fn deleted_links_are_restored_with_their_targets() {
    use std::os::unix::ffi::OsStrExt as _;
    let stage = Stage::new().await;
    let target = std::ffi::OsStr::from_bytes(b"/nowhere/\xff\n");
    let inner = stage.root.path().join("d/inner");
    std::os::unix::fs::symlink(target, &inner).unwrap();
    let changes = stage.run("rm -r link d").await.0;
    let listed = names(changes.files.iter().map(|file| file.path.as_str()));
    assert_eq!(listed, BTreeSet::from(["d", "link"]));
    apply(&stage.worker, json!({ "id": changes.id }))
        .await
        .unwrap();
    assert!(!inner.parent().unwrap().exists());
    let undone = stage.worker.call("undo", json!({})).await.unwrap();
    assert_eq!(fs::read_link(&inner).unwrap(), target);
    assert_eq!(
        fs::read_link(stage.root.path().join("link")).unwrap(),
        Path::new("a")
    );
    let linked = undone.resources.iter().map(|change| &*change.summary);
    assert!(linked.clone().any(|it| it == "symbolic link to `a`"));
    // Another link at the path is not replaced, and nothing else is changed then.
    stage.worker.call("redo", json!({})).await.unwrap();
    std::os::unix::fs::symlink("b", stage.root.path().join("link")).unwrap();
    let refused = stage.worker.call("undo", json!({})).await.unwrap_err();
    assert_eq!(refused.code(), bailiwick::Code::Conflict);
    assert!(!inner.parent().unwrap().exists());
}

#[tokio::test]
async fn permissions_that_others_changed_are_not_restored() {
    let stage = Stage::new().await;
    let mode = |mode| fs::Permissions::from_mode(mode);
    let changes = stage.run("chmod 755 a").await.0;
    apply(&stage.worker, json!({ "id": changes.id }))
        .await
        .unwrap();
    fs::set_permissions(stage.root.path().join("a"), mode(0o700)).unwrap();
    let refused = stage.worker.call("undo", json!({})).await.unwrap_err();
    assert_eq!(refused.code(), bailiwick::Code::Conflict);
    fs::set_permissions(stage.root.path().join("a"), mode(0o755)).unwrap();
    stage.worker.call("undo", json!({})).await.unwrap();
}

#[tokio::test]
async fn permissions_of_a_file_with_other_links_are_not_changed() {
    let stage = Stage::new().await;
    let outside = tempfile::tempdir_in(stage.root.path().parent().unwrap()).unwrap();
    fs::hard_link(stage.root.path().join("a"), outside.path().join("a")).unwrap();
    let (changes, _) = stage.run("chmod 777 a").await;
    assert_eq!(changes.total, 0, "{changes:?}");
    assert_eq!(
        names(changes.dropped.iter().map(|one| one.path.as_str())),
        BTreeSet::from(["a"])
    );
}

#[tokio::test]
async fn other_links_of_a_changed_file_keep_their_content() {
    let stage = Stage::new().await;
    let outside = tempfile::tempdir_in(stage.root.path().parent().unwrap()).unwrap();
    fs::hard_link(stage.root.path().join("a"), outside.path().join("a")).unwrap();
    let (changes, _) = stage.run("echo more >> a; echo x > n").await;
    apply(&stage.worker, json!({ "id": changes.id }))
        .await
        .unwrap();
    let text = |dir: &Path| fs::read_to_string(dir.join("a")).unwrap();
    assert_eq!(text(outside.path()), "text\n");
    assert_eq!(text(stage.root.path()), "text\nmore\n");
}

#[tokio::test]
async fn extended_attributes_are_reported() {
    let stage = Stage::new().await;
    let script = "import os
os.setxattr('a', 'user.note', b'x')
open('n', 'w').close()
os.setxattr('n', 'user.note', b'x')
os.setxattr('d', 'user.note', b'x')
try: os.setxattr('b', 'user.overlay.origin', b'x')
except OSError: pass";
    let arguments = json!({ "argv": ["python3", "-c", script], "cwd": "/repo", "mode": "overlay" });
    let output = crate::commands::run(&stage.worker, arguments)
        .await
        .unwrap();
    assert_eq!(output.exit_code, Some(0), "{output:?}");
    let changes = output.changes.unwrap();
    let listed = names(changes.files.iter().map(|file| file.path.as_str()));
    assert_eq!(listed, BTreeSet::from(["n"]), "{changes:?}");
    let dropped = names(changes.dropped.iter().map(|one| one.path.as_str()));
    assert_eq!(dropped, BTreeSet::from(["a", "d", "n"]), "{changes:?}");
}

#[tokio::test]
async fn reply_and_question_say_how_permissions_change() {
    let stage = Stage::new().await;
    let script = "chmod 755 a; chmod 600 b; echo x >> b; echo x > n; chmod 640 n; chmod 700 d";
    let argv = ["sh", "-c", script];
    let arguments = json!({ "argv": argv, "cwd": "/repo", "mode": "overlay" });
    let outcome = stage.worker.call("run_command", arguments).await.unwrap();
    let text = outcome.text();
    for line in [
        "changed permissions of /repo/a (mode 755)",
        "changed /repo/b (mode 600)",
        "/repo/d: changed permissions of a directory",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let output = outcome.output::<bailiwick_exec::CommandOutput>().unwrap();
    let id = output.changes.as_ref().unwrap().id.clone();
    let preview = stage.worker.preview("apply_changes", json!({ "id": id }));
    let preview = preview.await.unwrap();
    let shown: Vec<_> = preview
        .resources
        .iter()
        .map(|change| (change.resource.as_str(), change.summary.as_str()))
        .collect();
    let expected = [
        ("/repo/a", "mode 644 -> 755"),
        ("/repo/b", "mode 644 -> 600"),
        ("/repo/n", "mode 640"),
    ];
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn reply_counts_one_change_and_several() {
    let stage = Stage::new().await;
    for (script, sentence) in [
        (
            "echo x > n",
            "Its 1 change is kept apart. To apply it, call",
        ),
        (
            "echo x > n; echo x > m",
            "Its 2 changes are kept apart. To apply them, call",
        ),
    ] {
        let argv = ["sh", "-c", script];
        let arguments = json!({ "argv": argv, "cwd": "/repo", "mode": "overlay" });
        let outcome = stage.worker.call("run_command", arguments).await.unwrap();
        assert!(outcome.text().contains(sentence), "{}", outcome.text());
    }
}
