//! Grants outside all roots.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "tests create the directories around the roots"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use bailiwick_test_support::cases;
use proptest::prelude::*;

use bailiwick::permission::{AuthorityError, GrantHolder, Lifetime, NewGrant};
use bailiwick::scope::ScopePattern;
use bailiwick::{
    Call, CallError, Code, GrantAuthority, Policy, Runtime, Scope, Scripted, Verdict, Worker,
    WorkerSpec,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A worker with an empty root; reads and writes beneath `open` are grantable.
async fn worker(world: &TempDir, approver: Option<Scripted>) -> (Runtime, Worker) {
    let at = world.path().display();
    fs::create_dir(world.path().join("root")).unwrap();
    fs::create_dir_all(world.path().join("open/sub")).unwrap();
    fs::create_dir(world.path().join("closed")).unwrap();
    fs::write(world.path().join("open/file"), "beyond").unwrap();
    fs::write(world.path().join("closed/file"), "never").unwrap();
    symlink(world.path().join("closed"), world.path().join("open/link")).unwrap();
    let builder = Runtime::builder()
        .root("root", world.path().join("root"))
        .grantable(&format!("read:file:{at}/open"))
        .grantable(&format!("write:file:{at}/open"))
        .tools(bailiwick_fs::tools());
    let builder = match approver {
        Some(approver) => builder.approver(approver),
        None => builder,
    };
    let (runtime, _) = builder.build().await.unwrap();
    let worker = runtime
        .spawn(WorkerSpec::new("main").policy(Policy::new()))
        .await
        .unwrap();
    (runtime, worker)
}

fn yes() -> Scripted {
    Scripted::new().allow("*".parse().unwrap(), Lifetime::Once)
}

async fn read(worker: &Worker, path: &Path) -> Result<String, CallError> {
    let outcome = worker.call("read_file", json!({ "path": path })).await?;
    Ok(outcome.text())
}

#[tokio::test]
async fn only_grantable_paths_can_be_granted() {
    let world = tempfile::tempdir().unwrap();
    let (_runtime, worker) = worker(
        &world,
        Some(Scripted::new().rule(|_| Some(bailiwick::Answer::ONCE))),
    )
    .await;
    assert!(
        read(&worker, &world.path().join("open/file"))
            .await
            .unwrap()
            .contains("beyond")
    );
    let closed = read(&worker, &world.path().join("closed/file"))
        .await
        .unwrap_err();
    assert_eq!(closed.code(), Code::PermissionDenied);
    let through = read(&worker, &world.path().join("open/link/file"))
        .await
        .unwrap_err();
    assert!(!through.message().contains("closed"), "{through}");
}

#[tokio::test]
async fn granted_write_outside_the_roots_is_made() {
    let world = tempfile::tempdir().unwrap();
    let (_runtime, worker) = worker(
        &world,
        Some(Scripted::new().rule(|_| Some(bailiwick::Answer::ONCE))),
    )
    .await;
    let new = world.path().join("open/sub/new");
    worker
        .call("write_file", json!({ "path": new, "content": "granted" }))
        .await
        .unwrap();
    assert_eq!(fs::read_to_string(&new).unwrap(), "granted");
    let aside = world.path().join("closed/new");
    worker
        .call("write_file", json!({ "path": aside, "content": "x" }))
        .await
        .unwrap_err();
    assert!(!aside.exists());
}

#[tokio::test]
async fn paths_outside_the_roots_need_a_grant() {
    let world = tempfile::tempdir().unwrap();
    let (_runtime, worker) = worker(&world, None).await;
    let file = world.path().join("open/file");
    let error = read(&worker, &file).await.unwrap_err();
    assert_eq!(error.code(), Code::ScopeRequired);
    let absent = read(&worker, &world.path().join("open/absent"))
        .await
        .unwrap_err();
    assert_eq!(absent.message().replace("absent", "file"), error.message());
}

#[tokio::test]
async fn granted_top_level_path_is_opened_like_any_other() {
    let replay = Replay::new().await;
    let read = |path: &str| json!({ "path": path });
    let absent = read("/bailiwick-absent");
    let refused = replay.call("read_file", &absent, &[]).await.unwrap_err();
    assert_eq!(refused.code(), Code::ScopeRequired);
    let granted = refused.requested_scopes();
    let error = replay.call("read_file", &absent, granted).await;
    assert_eq!(error.unwrap_err().code(), Code::NotFound);
    // The grant of one path does not allow other paths in the same directory.
    let other = json!({ "paths": ["/bailiwick-absent", "/etc/hostname"] });
    let error = replay.call("read_file", &other, granted).await.unwrap_err();
    assert_eq!(error.code(), Code::ScopeRequired);
    let asked = error.requested_scopes();
    assert!(asked.contains(&"read:file:/etc/hostname".parse().unwrap()));
    let new = json!({ "path": "/bailiwick-absent", "content": "x" });
    let writing = ["write:file:/bailiwick-absent".parse().unwrap()];
    let error = replay.call("write_file", &new, &writing).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn broad_approval_allows_only_requested_needs() {
    let world = tempfile::tempdir().unwrap();
    let (_runtime, worker) = worker(&world, Some(yes())).await;
    let closed = read(&worker, &world.path().join("closed/file"))
        .await
        .unwrap_err();
    assert_eq!(closed.code(), Code::PermissionDenied);
}

/// A worker with the root `root`; everything outside is grantable, and there is no approver.
struct Replay {
    _runtime: Runtime,
    grants: GrantAuthority,
    worker: Worker,
    world: TempDir,
}

impl Replay {
    async fn new() -> Self {
        let world = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("root/inside", "inside"),
            ("open/file", "beyond"),
            ("open/dir/a/b", "deep"),
            ("closed/file", "elsewhere"),
        ] {
            let file = world.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        symlink("../closed", world.path().join("open/link")).unwrap();
        symlink(
            world.path().canonicalize().unwrap().join("closed"),
            world.path().join("open/absolute"),
        )
        .unwrap();
        let (runtime, grants) = Runtime::builder()
            .root("r", world.path().join("root"))
            .grantable("read:file")
            .grantable("write:file")
            .tools(bailiwick_fs::tools())
            .build()
            .await
            .unwrap();
        let spec = WorkerSpec::new("main").policy(Policy::new());
        let worker = runtime.spawn(spec).await.unwrap();
        Self {
            _runtime: runtime,
            grants,
            worker,
            world,
        }
    }

    fn host(&self, name: &str) -> String {
        let base = self.world.path().canonicalize().unwrap();
        base.join(name).to_str().unwrap().to_owned()
    }

    async fn call(
        &self,
        tool: &str,
        arguments: &Value,
        granted: &[Scope],
    ) -> Result<bailiwick::Outcome, CallError> {
        let granted = granted.iter().map(ScopePattern::of).collect();
        let call = Call::new(tool, arguments.clone());
        self.grants.submit(&self.worker, call, granted).await
    }

    /// Makes the call, and again with exactly the scopes of the refusal, which must be `expected`.
    async fn replayed(&self, tool: &str, arguments: Value, expected: &[String]) {
        let refused = self.call(tool, &arguments, &[]).await.unwrap_err();
        assert_eq!(refused.code(), Code::ScopeRequired, "{refused}");
        let asked: Vec<String> = refused
            .requested_scopes()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(asked, expected, "{tool}");
        let replayed = self
            .call(tool, &arguments, refused.requested_scopes())
            .await;
        replayed.unwrap_or_else(|error| panic!("{tool}: {error}"));
    }

    async fn denied(&self, tool: &str, arguments: Value) {
        let refused = self.call(tool, &arguments, &[]).await.unwrap_err();
        assert_eq!(
            refused.code(),
            Code::PermissionDenied,
            "{tool} {arguments}: {refused}"
        );
        assert_eq!(refused.requested_scopes(), []);
        let all = ["read:file:/", "write:file:/"].map(|all| all.parse().unwrap());
        let refused = self.call(tool, &arguments, &all).await.unwrap_err();
        assert_eq!(
            refused.code(),
            Code::PermissionDenied,
            "{tool} {arguments}: {refused}"
        );
    }
}

#[tokio::test]
async fn move_into_a_root_asks_once() {
    let replay = Replay::new().await;
    let from = replay.host("open/file");
    let arguments = json!({"from": from, "to": "moved"});
    let expected = [format!("read:file:{from}"), format!("write:file:{from}")];
    replay.replayed("move", arguments, &expected).await;
    assert!(!Path::new(&from).exists());
    assert_eq!(
        fs::read_to_string(replay.host("root/moved")).unwrap(),
        "beyond"
    );
}

#[tokio::test]
async fn explanation_lists_every_need_of_the_call() {
    let replay = Replay::new().await;
    let (file, to) = (replay.host("open/file"), replay.host("open/to"));
    for (tool, arguments) in [
        ("move", json!({"from": file, "to": "moved"})),
        ("move", json!({"from": "inside", "to": to})),
        ("copy", json!({"from": file, "to": to})),
        ("delete", json!({"path": file})),
        ("read_file", json!({"path": file})),
    ] {
        let explained = replay.worker.explain(&Call::new(tool, arguments.clone()));
        let explained = explained.unwrap();
        let asks = explained.iter().filter(|one| one.verdict == Verdict::Ask);
        let mut asks: Vec<Scope> = asks.map(|one| one.need.clone()).collect();
        asks.sort();
        let refused = replay.call(tool, &arguments, &[]).await.unwrap_err();
        assert_eq!(asks, refused.requested_scopes(), "{tool} {arguments}");
    }
}

#[tokio::test]
async fn move_out_of_a_root_asks_for_its_target() {
    let replay = Replay::new().await;
    let to = replay.host("open/moved");
    let arguments = json!({"from": "inside", "to": to});
    replay
        .replayed("move", arguments, &[format!("write:file:{to}")])
        .await;
    assert_eq!(fs::read_to_string(to).unwrap(), "inside");
}

#[tokio::test]
async fn parents_outside_the_roots_are_created_with_the_grant_of_the_file() {
    for (tool, more) in [
        ("write_file", json!({"content": "x"})),
        ("copy", json!({"from": "inside"})),
        ("move", json!({"from": "inside"})),
    ] {
        let replay = Replay::new().await;
        let path = replay.host("open/new/deep/file");
        let mut arguments = more;
        let key = if tool == "write_file" { "path" } else { "to" };
        arguments[key] = path.clone().into();
        arguments["create_parents"] = true.into();
        replay
            .replayed(tool, arguments, &[format!("write:file:{path}")])
            .await;
        assert!(Path::new(&path).exists());
    }
    let replay = Replay::new().await;
    let path = replay.host("open/made/deep");
    let arguments = json!({"path": path, "create_parents": true});
    let asked = [format!("write:file:{path}")];
    replay.replayed("make_directory", arguments, &asked).await;
    assert!(Path::new(&path).exists());
}

#[tokio::test]
async fn protected_parent_folder_needs_its_own_grant() {
    let replay = Replay::new().await;
    let path = replay.host("open/.git/x");
    let arguments = json!({"path": path, "content": "x", "create_parents": true});
    let granted = [format!("write:file:{path}").parse().unwrap()];
    let refused = replay
        .call("write_file", &arguments, &granted)
        .await
        .unwrap_err();
    let asked: Vec<String> = refused
        .requested_scopes()
        .iter()
        .map(ToString::to_string)
        .collect();
    let git = replay.host("open/.git");
    assert_eq!(
        asked,
        [format!("write:file:{git}"), format!("write:file:{path}")]
    );
    let asked = refused.requested_scopes();
    replay.call("write_file", &arguments, asked).await.unwrap();
    assert!(Path::new(&path).exists());
}

#[tokio::test]
async fn granted_directory_outside_the_roots_is_deleted_moved_and_copied() {
    let replay = Replay::new().await;
    let (dir, to) = (replay.host("open/dir"), replay.host("open/copy"));
    let read = |path: &str| format!("read:file:{path}");
    let write = |path: &str| format!("write:file:{path}");
    let arguments = json!({"from": dir, "to": to});
    replay
        .replayed("copy", arguments, &[read(&dir), write(&to)])
        .await;
    assert_eq!(
        fs::read_to_string(replay.host("open/copy/a/b")).unwrap(),
        "deep"
    );
    let moved = replay.host("closed/moved");
    let arguments = json!({"from": to, "to": moved});
    replay
        .replayed("move", arguments, &[write(&moved), write(&to)])
        .await;
    assert!(Path::new(&moved).exists() && !Path::new(&to).exists());
    let arguments = json!({"path": dir, "recursive": true});
    replay.replayed("delete", arguments, &[write(&dir)]).await;
    assert!(!Path::new(&dir).exists());
    let arguments = json!({"from": moved, "to": "kept"});
    replay
        .replayed("move", arguments, &[read(&moved), write(&moved)])
        .await;
    assert_eq!(
        fs::read_to_string(replay.host("root/kept/a/b")).unwrap(),
        "deep"
    );
}

#[tokio::test]
async fn approved_directory_outside_the_roots_is_moved_copied_and_deleted() {
    for (allows, done) in [(yes(), true), (Scripted::new(), false)] {
        let world = tempfile::tempdir().unwrap();
        let (runtime, worker) = worker(&world, Some(allows)).await;
        let host = |name: &str| world.path().join("open").join(name);
        fs::create_dir_all(host("dir/a")).unwrap();
        fs::write(host("dir/a/b"), "deep").unwrap();
        let moved = worker.call("move", json!({"from": host("dir"), "to": host("moved")}));
        assert_eq!(moved.await.is_ok(), done);
        assert_eq!(host("moved/a/b").exists(), done);
        let from = host(if done { "moved" } else { "dir" });
        let copied = worker.call("copy", json!({"from": from, "to": host("copied")}));
        assert_eq!(copied.await.is_ok(), done);
        assert_eq!(host("copied/a/b").exists(), done);
        let deleted = worker.call("delete", json!({"path": from, "recursive": true}));
        match deleted.await {
            // Entries that may not be read are not counted.
            Ok(outcome) => assert_eq!(outcome.structured().unwrap()["files"], Value::Null),
            Err(error) => assert_eq!(error.code(), Code::PermissionDenied),
        }
        assert_eq!(from.exists(), !done);
        runtime.shutdown().await;
    }
}

#[tokio::test]
async fn granted_directory_outside_the_roots_is_listed() {
    let replay = Replay::new().await;
    let dir = replay.host("open/dir");
    let asked = [format!("read:file:{dir}")];
    for tool in ["list_directory", "find", "grep"] {
        let arguments = match tool {
            "list_directory" => json!({"path": dir}),
            "find" => json!({"path": dir, "pattern": "**/*"}),
            _ => json!({"path": dir, "pattern": "deep"}),
        };
        replay.replayed(tool, arguments, &asked).await;
    }
}

#[tokio::test]
async fn ungrantable_paths_are_denied_without_asking() {
    let replay = Replay::new().await;
    let home = std::env::home_dir().unwrap();
    let home = home.to_str().unwrap();
    for path in [
        "/",
        "/proc/self/environ",
        "/proc",
        "/sys/kernel",
        "/dev/mem",
        home,
    ] {
        replay.denied("list_directory", json!({"path": path})).await;
        replay.denied("read_file", json!({"path": path})).await;
        replay
            .denied("delete", json!({"path": path, "recursive": true}))
            .await;
    }
    replay
        .denied("delete", json!({"path": "/srv", "recursive": true}))
        .await;
    replay
        .denied("write_file", json!({"path": "/new", "content": "x"}))
        .await;
    let inside = Path::new(home).join(".bailiwick-absent");
    let refused = replay
        .call("read_file", &json!({"path": inside}), &[])
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::ScopeRequired);
}

#[tokio::test]
async fn link_in_a_granted_folder_asks_for_its_target() {
    for link in ["open/link/file", "open/absolute/file"] {
        let replay = Replay::new().await;
        let folder: Scope = format!("read:file:{}", replay.host("open"))
            .parse()
            .unwrap();
        let arguments = json!({"path": replay.host(link)});
        let refused = replay
            .call("read_file", &arguments, &[folder])
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::ScopeRequired, "{refused}");
        let asked: Vec<String> = refused
            .requested_scopes()
            .iter()
            .map(ToString::to_string)
            .collect();
        let expected = ["closed/file", link].map(|name| format!("read:file:{}", replay.host(name)));
        assert_eq!(asked, expected);
        let asked = refused.requested_scopes();
        let read = replay.call("read_file", &arguments, asked).await.unwrap();
        assert!(read.text().contains("elsewhere"));
    }
}

#[tokio::test]
async fn link_in_a_granted_folder_to_an_ungrantable_path_is_denied() {
    let world = tempfile::tempdir().unwrap();
    let (_runtime, worker) = worker(&world, Some(yes())).await;
    // `open/link` leads to `closed`, which is not grantable.
    let through = read(&worker, &world.path().join("open/link/file"))
        .await
        .unwrap_err();
    assert_eq!(through.code(), Code::NotFound);
    assert!(!through.message().contains("closed"), "{through}");
}

#[tokio::test]
async fn root_is_not_accessible_by_its_host_path() {
    let replay = Replay::new().await;
    let inside = replay.host("root/inside");
    let granted = [format!("read:file:{inside}").parse().unwrap()];
    let refused = replay
        .call("read_file", &json!({"path": inside}), &granted)
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    let whole = replay.host("");
    let whole = whole.trim_end_matches('/');
    let granted = [format!("write:file:{whole}").parse().unwrap()];
    let arguments = json!({"path": whole, "recursive": true});
    let refused = replay.call("delete", &arguments, &granted).await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    assert!(Path::new(&inside).exists());
}

#[tokio::test]
async fn ungrantable_grant_is_refused_with_the_reason() {
    let world = tempfile::tempdir().unwrap();
    fs::create_dir(world.path().join("root")).unwrap();
    let (_runtime, grants) = Runtime::builder()
        .root("root", world.path().join("root"))
        .grantable("write:file:/tmp/x")
        .grantable("read:mcp:github")
        .build()
        .await
        .unwrap();
    let give = |pattern: &str| {
        grants.grant(NewGrant {
            pattern: pattern.parse().unwrap(),
            holder: GrantHolder::Agent("main".into()),
            lifetime: Lifetime::For(std::time::Duration::from_secs(60)),
            descendants: false,
        })
    };
    for pattern in [
        "read:file:/tmp/x",
        "write:file:/tmp/y",
        "execute:cli",
        "execute",
    ] {
        let refused = give(pattern).await.unwrap_err();
        assert!(
            matches!(refused, AuthorityError::NotGrantable(_)),
            "{pattern}: {refused}"
        );
        assert!(refused.to_string().contains(pattern), "{refused}");
    }
    for pattern in ["write:file:/tmp/x/deep", "write:file:/root/a", "write", "*"] {
        give(pattern).await.unwrap();
    }
}

/// Entries of generated trees: plain files, protected names, and markers of bare repositories.
const FILES: [&str; 12] = [
    "plain",
    "d/plain",
    "d/e/plain",
    ".mcp.json",
    "d/CLAUDE.md",
    ".git/config",
    "d/e/.git/hooks/post-commit",
    ".vscode/tasks.json",
    "bare/HEAD",
    "bare/objects/o",
    "bare/refs/r",
    "bare/config",
];

/// Repeats a call with the scopes of each refusal until it succeeds; returns the number of refusals.
async fn refusals(replay: &Replay, tool: &str, arguments: &Value) -> usize {
    let mut granted: Vec<Scope> = Vec::new();
    for refusals in 0..10 {
        let Err(refused) = replay.call(tool, arguments, &granted).await else {
            return refusals;
        };
        assert_eq!(refused.code(), Code::ScopeRequired, "{refused}");
        let asked = refused.requested_scopes();
        let kept = |scope| asked.contains(scope);
        assert!(granted.iter().all(kept), "{granted:?} in {asked:?}");
        granted = asked.to_vec();
    }
    panic!("{tool} {arguments} still asks with {granted:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(256)))]

    /// Each call is refused once for the needs it names, and once more for entries of trees that could not be read
    /// before. Moves between two paths outside the roots are excluded: they read nothing, so they cannot name what they
    /// find.
    #[test]
    fn readable_tree_needs_one_replay_and_others_two(
        files in proptest::sample::subsequence(&FILES[..], 1..=FILES.len()),
        (tool, from, to) in proptest::sample::select(vec![
            ("move", "root", "root"),
            ("move", "root", "open"),
            ("move", "open", "root"),
            ("copy", "root", "root"),
            ("copy", "root", "open"),
            ("copy", "open", "root"),
            ("copy", "open", "open"),
            ("delete", "root", "root"),
        ]),
        parents in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let replay = Replay::new().await;
            for file in &files {
                let file = replay.world.path().join(from).join("tree").join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, "text").unwrap();
            }
            // Paths in the root are virtual; host paths are outside.
            let at = |place: &str, name: &str| match place {
                "root" => format!("/r/{name}"),
                place => replay.host(&format!("{place}/{name}")),
            };
            let to_name = if parents { "new/.github/tree" } else { "copy" };
            let arguments = match tool {
                "delete" => json!({"path": at(from, "tree"), "recursive": true}),
                _ => json!({
                    "from": at(from, "tree"), "to": at(to, to_name), "create_parents": parents,
                }),
            };
            let most = if (from, to) == ("root", "root") { 1 } else { 2 };
            let refused = refusals(&replay, tool, &arguments).await;
            assert!(refused <= most, "{tool} {arguments}: refused {refused} times");
        });
    }
}
