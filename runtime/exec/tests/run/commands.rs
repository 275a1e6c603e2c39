//! `run_command` with real workers and programs.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailiwick::call::Progress;
use bailiwick::config::RootConfig;
use bailiwick::effect::ContentHash;
use bailiwick::permission::DenyAll;
use bailiwick::worker::Budget;
use bailiwick::{
    Answer, Call, CallError, CallMeta, Code, MemoryAudit, Policy, Runtime, RuntimeBuilder,
    Scripted, ToolSet, VirtualPath, Worker, WorkerSpec,
};
use bailiwick_exec::{CommandOutput, Commands, Helper, LayerState, self_test};
use serde_json::{Value, json};

fn helper() -> Helper {
    Helper::At(env!("CARGO_BIN_EXE_bailiwick-exec-helper").into())
}

pub(crate) fn commands() -> Commands {
    Commands::new().helper(helper())
}

pub(crate) async fn runtime(root: &Path) -> Runtime {
    runtime_with(root, commands(), |builder| builder).await
}

pub(crate) async fn runtime_with(
    root: &Path,
    commands: Commands,
    configure: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
) -> Runtime {
    let builder = Runtime::builder().root("repo", root);
    let builder = builder.tools(commands.tools()).approver(DenyAll);
    configure(builder.allow("execute:command"))
        .build()
        .await
        .unwrap()
        .0
}

/// The details that were recorded about commands.
pub(crate) async fn records(runtime: &Runtime, audit: &MemoryAudit) -> Vec<Value> {
    runtime.flush_audit().await.unwrap();
    let records = audit.records();
    let events = records.iter().map(|record| {
        let line: Value = serde_json::from_str(record.line()).unwrap();
        line.pointer("/event/details").cloned().unwrap_or_default()
    });
    events.filter(Value::is_object).collect()
}

pub(crate) async fn worker(runtime: &Runtime, policy: Policy) -> Worker {
    let spec = WorkerSpec::new("tester").policy(policy);
    runtime.spawn(spec).await.unwrap()
}

pub(crate) fn everything() -> Policy {
    Policy::nothing()
        .allow("read:file")
        .allow("write:file")
        .allow("execute:command")
}

pub(crate) async fn run(worker: &Worker, arguments: Value) -> Result<CommandOutput, CallError> {
    let outcome = worker.call("run_command", arguments).await?;
    Ok(outcome.output::<CommandOutput>().unwrap().clone())
}

/// Runs a shell script in `/repo` and returns its output.
pub(crate) async fn shell(worker: &Worker, script: &str) -> CommandOutput {
    run(
        worker,
        json!({ "argv": ["sh", "-c", script], "cwd": "/repo" }),
    )
    .await
    .unwrap()
}

#[tokio::test]
async fn command_runs_with_the_rights_of_its_worker() {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("src/main.rs", "code"),
        ("secret/key", "the secret"),
        (".env", "the secret"),
        ("docs/a.md", "old"),
    ] {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let runtime = runtime(root.path()).await;
    let policy = Policy::nothing()
        .allow("read:file")
        .deny("read:file:/repo/secret")
        .deny_glob("*.env")
        .allow("write:file:/repo/docs")
        .allow("execute:command:sh");
    let worker = worker(&runtime, policy).await;
    let script = "cat src/main.rs; cat secret/key .env; echo new > docs/a.md; echo new > docs/b.md; echo x > src/main.rs; echo x > top; echo x > secret/other";
    let output = shell(&worker, script).await;
    assert_eq!(output.stdout, "code");
    assert!(!output.stderr.contains("the secret"), "{output:?}");
    assert_eq!(
        fs::read_to_string(root.path().join("docs/a.md")).unwrap(),
        "new\n"
    );
    assert_eq!(
        fs::read_to_string(root.path().join("docs/b.md")).unwrap(),
        "new\n"
    );
    assert_eq!(
        fs::read_to_string(root.path().join("src/main.rs")).unwrap(),
        "code"
    );
    assert!(!root.path().join("top").exists());
    assert_eq!(fs::read_dir(root.path().join("secret")).unwrap().count(), 1);
}

#[tokio::test]
async fn protected_names_cannot_be_changed_by_a_command() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join(".git/hooks")).unwrap();
    fs::write(root.path().join(".git/config"), "[core]").unwrap();
    let runtime = runtime(root.path()).await;
    let worker = worker(&runtime, everything()).await;
    shell(&worker, "echo x > .git/hooks/pre-commit; echo x > .git/config; mv .git g; echo x > .git/commondir; echo x > file").await;
    assert_eq!(
        fs::read_dir(root.path().join(".git/hooks"))
            .unwrap()
            .count(),
        0
    );
    assert_eq!(
        fs::read_to_string(root.path().join(".git/config")).unwrap(),
        "[core]"
    );
    // It does not exist, and makes Git read another configuration.
    assert!(!root.path().join(".git/commondir").exists());
    assert!(root.path().join("file").exists());
}

/// A repository is a directory with `HEAD`, `objects` and `refs`.
fn make_repository(root: &Path, name: &str) {
    for directory in ["objects", "refs", "hooks", "info"] {
        fs::create_dir_all(root.join(name).join(directory)).unwrap();
    }
    for file in ["HEAD", "config", "hooks/update", "info/attributes"] {
        fs::write(root.join(name).join(file), "old\n").unwrap();
    }
}

#[tokio::test]
async fn repository_of_any_name_is_protected_from_a_command() {
    let root = tempfile::tempdir().unwrap();
    make_repository(root.path(), "a/store");
    make_repository(root.path(), "notes");
    fs::remove_dir(root.path().join("notes/refs")).unwrap();
    let runtime = runtime(root.path()).await;
    let worker = worker(&runtime, everything()).await;
    let files = [
        "config",
        "hooks/update",
        "hooks/new",
        "info/attributes",
        "HEAD",
        "refs/new",
    ];
    let script = "for d in a/store notes; do for f in config hooks/update hooks/new info/attributes HEAD refs/new; do \
                  echo new > $d/$f; done; done; echo new > a/store/commondir; \
                  rm a/store/config; mv a/store/hooks a/store/h; mv a/store a/moved; mv a b; mv notes moved";
    let output = shell(&worker, script).await;
    let text = |path: String| fs::read_to_string(root.path().join(path)).ok();
    let texts = |name: &str| files.map(|file| text(format!("{name}/{file}")));
    let [old, new] = ["old\n", "new\n"].map(|text| Some(text.to_owned()));
    let expected = [&old, &old, &None, &old, &new, &new];
    assert_eq!(texts("a/store").each_ref(), expected, "{output:?}");
    let expected = [&new, &new, &new, &new, &new, &None];
    assert_eq!(texts("moved").each_ref(), expected, "{output:?}");
    // It did not exist before, and is reported.
    assert_eq!(output.created_protected, ["/repo/a/store/commondir"]);
    let output = shell(&worker, "cp -r a/store copy && echo new > copy/config").await;
    assert_eq!(text("copy/config".to_owned()), new);
    let mut created = output.created_protected;
    created.sort_unstable();
    let expected = ["commondir", "config", "hooks", "info/attributes"];
    assert_eq!(created, expected.map(|name| format!("/repo/copy/{name}")));
}

#[tokio::test]
async fn command_changes_the_configuration_of_a_repository_that_a_person_allowed() {
    let root = tempfile::tempdir().unwrap();
    make_repository(root.path(), "store");
    let configure =
        |builder: RuntimeBuilder| builder.approver(Scripted::new().rule(|_| Some(Answer::ONCE)));
    let runtime = runtime_with(root.path(), commands(), configure).await;
    let policy = Policy::nothing().allow("read:file").ask("write:file");
    let worker = worker(&runtime, policy.allow("execute:command")).await;
    let script = "echo new > store/config; echo new > store/hooks/update";
    let arguments = json!({
        "argv": ["sh", "-c", script], "cwd": "/repo", "mode": "live", "writes": ["/repo/store/config"],
    });
    run(&worker, arguments).await.unwrap();
    let text = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
    assert_eq!(text("store/config"), "new\n");
    assert_eq!(text("store/hooks/update"), "old\n");
}

#[tokio::test]
async fn directories_above_a_denied_path_cannot_be_renamed() {
    let root = tempfile::tempdir().unwrap();
    for directory in ["s/d/e", "free/d"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    fs::write(root.path().join("s/d/key"), "the secret").unwrap();
    fs::write(root.path().join("s/d/fixed"), "old").unwrap();
    let runtime = runtime(root.path()).await;
    let policy = everything()
        .deny_glob("s/d/key")
        .deny("write:file:/repo/s/d/fixed");
    let worker = worker(&runtime, policy).await;
    let script = "mv s t; mv s/d s/x; mkdir u; mv s/d u/d; cat */d/key s/x/key; echo x > s/x/fixed; echo x > t/d/fixed; \
                  mv free other; mv s/d/e s/d/f; echo new > s/d/f/new; mv s/d/f/new s/d/new";
    let output = shell(&worker, script).await;
    assert!(!output.stdout.contains("the secret"), "{output:?}");
    assert_eq!(fs::read(root.path().join("s/d/fixed")).unwrap(), b"old");
    // Other entries can be renamed.
    assert!(root.path().join("other/d").exists());
    assert!(root.path().join("s/d/new").exists(), "{output:?}");
}

#[tokio::test]
async fn directories_above_an_inner_root_cannot_be_renamed() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("s/inner")).unwrap();
    fs::create_dir(root.path().join("free")).unwrap();
    fs::write(root.path().join("s/inner/key"), "the secret").unwrap();
    let inner = root.path().join("s/inner");
    let mount = VirtualPath::parse("/repo/s/inner", None).unwrap();
    let configure =
        |builder: RuntimeBuilder| builder.root_with(RootConfig::new(mount), inner, false);
    let runtime = runtime_with(root.path(), commands(), configure).await;
    let policy = everything().deny("read:file:/repo/s/inner");
    let worker = worker(&runtime, policy).await;
    let output = shell(&worker, "mv s t; mv free other; cat */inner/key").await;
    assert!(!output.stdout.contains("the secret"), "{output:?}");
    let output = shell(&worker, "cat */inner/key").await;
    assert!(!output.stdout.contains("the secret"), "{output:?}");
    assert!(root.path().join("other").exists());
}

#[tokio::test]
async fn system_directory_shows_nothing_of_a_root_that_the_policy_hides() {
    let temp = tempfile::tempdir().unwrap();
    let system = fs::canonicalize(temp.path()).unwrap();
    for (path, text) in [
        ("tool", "tool"),
        ("r/.env", "the secret"),
        ("r/a", "the a"),
        ("r/sub/b", "the b"),
        ("r/bin/c", "the c"),
        ("r/bin/.env", "the secret"),
    ] {
        let path = system.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let path = |name: &str| system.join(name).to_str().unwrap().to_owned();
    let files = ["tool", "r/.env", "r/a", "r/sub/b", "r/bin/c", "r/bin/.env"].map(path);
    let argv: Vec<String> = std::iter::once("cat".to_owned()).chain(files).collect();
    let reads = |names: &[&str]| {
        let execute = Policy::nothing().allow("execute:command");
        names.iter().fold(execute, |policy, name| {
            policy.allow(&format!("read:file:{}", path(name)))
        })
    };
    // A directory in a root is subject to the policy, too.
    for directories in [&[""][..], &["", "r/bin"]] {
        let commands = directories.iter().fold(commands(), |commands, name| {
            commands.system(system.join(name))
        });
        let mut root = RootConfig::new(VirtualPath::parse(&path("r"), None).unwrap());
        root.deny = vec!["**/.env".to_owned()];
        let builder = Runtime::builder().root_with(root, system.join("r"), false);
        let builder = builder.tools(commands.tools()).allow("execute:command");
        let runtime = builder.approver(DenyAll).build().await.unwrap().0;
        for (policy, expected) in [
            (everything(), "toolthe athe bthe c"),
            (reads(&["r/sub"]), "toolthe b"),
            (reads(&["r/bin"]), "toolthe c"),
            (reads(&[]), "tool"),
            (everything().deny("read:file"), "tool"),
        ] {
            let worker = worker(&runtime, policy.clone()).await;
            for mode in ["live", "overlay"] {
                let arguments = json!({ "argv": argv, "cwd": "/", "mode": mode });
                let output = run(&worker, arguments).await.unwrap();
                assert_eq!(output.stdout, expected, "{mode} {policy:?}");
            }
        }
    }
}

#[tokio::test]
async fn system_directory_does_not_show_a_root_by_another_path() {
    let temp = tempfile::tempdir().unwrap();
    let system = fs::canonicalize(temp.path()).unwrap();
    fs::create_dir(system.join("r")).unwrap();
    for (name, text) in [("tool", "tool"), ("r/.env", "the secret"), ("r/a", "the a")] {
        fs::write(system.join(name), text).unwrap();
    }
    let commands = commands().system(&system);
    let runtime = runtime_with(&system.join("r"), commands, |builder| builder).await;
    let worker = worker(&runtime, everything().deny_glob(".env")).await;
    let script = format!("cat a; cd {} && cat tool r/.env r/a", system.display());
    assert_eq!(shell(&worker, &script).await.stdout, "the atool");
}

#[tokio::test]
async fn command_cannot_leave_files_that_run_with_the_rights_of_their_owner() {
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime(root.path()).await;
    let worker = worker(&runtime, everything()).await;
    let script = "cp /bin/true a; chmod 4755 a && echo hole; chmod u+s a && echo hole; chmod g+s a && echo hole; chmod 755 a && echo allowed; \
                  install -m 4755 /bin/true b && echo hole; mkdir -m 2755 c && echo hole; mkdir -m 755 d && echo allowed";
    let output = shell(&worker, script).await;
    assert_eq!(output.stdout, "allowed\nallowed\n", "{output:?}");
    use std::os::unix::fs::PermissionsExt as _;
    for entry in fs::read_dir(root.path()).unwrap() {
        let mode = entry.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o6000, 0, "{mode:o}");
    }
}

#[tokio::test]
async fn file_that_a_running_command_must_not_see_is_not_replaced() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("secret.key"), "old secret").unwrap();
    let with_file_tools = |builder: RuntimeBuilder| builder.tools(bailiwick_fs::tools());
    let runtime = runtime_with(root.path(), commands(), with_file_tools).await;
    let reader = worker(&runtime, everything().deny_glob("*.key")).await;
    let beside = worker(&runtime, everything().deny_glob("*.key")).await;
    let other = worker(&runtime, everything()).await;
    let (up, go) = (root.path().join("up"), root.path().join("go"));
    fifo(&up);
    fifo(&go);
    let write = async |name: &str| {
        let arguments =
            json!({ "path": format!("/repo/{name}"), "content": "new", "mode": "overwrite" });
        other.call("write_file", arguments).await
    };
    let running = shell(&reader, "echo up > up; read -r line < go; cat secret.key");
    let meanwhile = async {
        let read = tokio::task::spawn_blocking(move || fs::read_to_string(up));
        assert_eq!(read.await.unwrap().unwrap(), "up\n");
        let refused = write("secret.key").await.unwrap_err();
        assert_eq!(refused.code(), Code::Busy);
        assert!(
            refused.message().contains("`/repo/secret.key`"),
            "{refused}"
        );
        assert!(write("other.txt").await.is_ok());
        // Another command may run beside it.
        assert_eq!(
            shell(&beside, "cat secret.key; echo beside").await.stdout,
            "beside\n"
        );
        tokio::task::spawn_blocking(move || fs::write(go, "go\n"));
    };
    let (output, ()) = tokio::join!(running, meanwhile);
    assert!(!output.stdout.contains("new"), "{output:?}");
    assert!(write("secret.key").await.is_ok());
}

#[tokio::test]
async fn protected_names_that_a_command_creates_are_reported() {
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime(root.path()).await;
    let worker = worker(&runtime, everything()).await;
    let output = shell(
        &worker,
        "mkdir -p .git/hooks a; echo x > a/.env; echo x > file",
    )
    .await;
    assert_eq!(output.created_protected, ["/repo/.git"], "{output:?}");
    let denied = self::worker(&runtime, everything().deny_glob("*.key")).await;
    let output = shell(&denied, "echo x > a/b.key; echo x > file").await;
    assert_eq!(output.created_protected, ["/repo/a/b.key"], "{output:?}");
    assert!(
        shell(&worker, "echo x > file")
            .await
            .created_protected
            .is_empty()
    );
}

#[tokio::test]
async fn worker_without_execute_is_denied_and_told_the_scope() {
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime(root.path()).await;
    let without = Policy::nothing()
        .allow("read:file")
        .ask("execute:command:ls")
        .allow("execute:command:true");
    let worker = worker(&runtime, without).await;
    let code = |result: Result<CommandOutput, CallError>| result.unwrap_err().code();
    assert_eq!(
        code(run(&worker, json!({ "argv": ["cat", "/etc/passwd"] })).await),
        Code::PermissionDenied
    );
    assert_eq!(
        code(run(&worker, json!({ "argv": ["ls"] })).await),
        Code::PermissionDenied
    );
    assert_eq!(
        run(&worker, json!({ "argv": ["true"] }))
            .await
            .unwrap()
            .exit_code,
        Some(0)
    );
    assert_eq!(
        run(&worker, json!({ "argv": ["/usr/bin/true"] }))
            .await
            .unwrap()
            .exit_code,
        Some(0)
    );
    assert_eq!(
        code(run(&worker, json!({ "argv": ["no-such-program"] })).await),
        Code::NotFound
    );
    assert_eq!(
        code(run(&worker, json!({ "argv": [] })).await),
        Code::InvalidArguments
    );
    assert_eq!(
        code(run(&worker, json!({ "argv": ["true", "a\0b"] })).await),
        Code::InvalidArguments
    );
}

#[tokio::test]
async fn call_names_the_scope_that_a_person_may_allow() {
    let root = tempfile::tempdir().unwrap();
    let tools = ToolSet::new().actor(commands());
    let builder = Runtime::builder().root("repo", root.path()).tools(tools);
    let builder = builder.allow("execute:command");
    let runtime = builder.build().await.unwrap().0;
    let policy = Policy::nothing()
        .allow("read:file")
        .ask("execute:command:ls");
    let worker = worker(&runtime, policy).await;
    for (program, code, scopes) in [
        ("ls", Code::ScopeRequired, &["execute:command:ls"][..]),
        ("/usr/bin/ls", Code::ScopeRequired, &["execute:command:ls"]),
        ("cat", Code::PermissionDenied, &[]),
    ] {
        let error = run(&worker, json!({ "argv": [program] }))
            .await
            .unwrap_err();
        let requested = error.requested_scopes().iter().map(ToString::to_string);
        assert_eq!(requested.collect::<Vec<_>>(), scopes, "{program}");
        assert_eq!(error.code(), code, "{program}");
    }
}

/// A name in a scope is that of an installed program, whatever else has this name.
#[tokio::test]
async fn program_in_a_root_needs_a_scope_of_its_own() {
    use std::os::unix::fs::PermissionsExt as _;
    let root = tempfile::tempdir().unwrap();
    let program = root.path().join("true");
    fs::write(&program, "#!/bin/sh\necho own\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("/bin/true", root.path().join("link")).unwrap();
    let runtime = runtime(root.path()).await;
    let policy = Policy::nothing()
        .allow("read:file")
        .allow("execute:command:true");
    let named = worker(&runtime, policy.clone()).await;
    let call = |program: &str| json!({ "argv": [program], "cwd": "/repo" });
    for program in [
        "./true",
        "/repo/true",
        "/repo/../repo/true",
        "/repo/link",
        "/usr/bin/../bin/true",
        "/bin/../repo/true",
    ] {
        let error = run(&named, call(program)).await.unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied, "{program}: {error}");
    }
    assert_eq!(run(&named, call("true")).await.unwrap().stdout, "");
    let both = worker(&runtime, policy.allow("execute:command:/repo/true")).await;
    let output = run(&both, call("./true")).await.unwrap();
    assert_eq!(output.stdout, "own\n");
}

#[tokio::test]
async fn declared_directory_is_asked_about_and_can_be_read() {
    let root = tempfile::tempdir().unwrap();
    for name in ["src", "notes", "keys"] {
        fs::create_dir(root.path().join(name)).unwrap();
        fs::write(root.path().join(name).join("a"), name).unwrap();
    }
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let needs = Arc::clone(&asked);
    let approver = Scripted::new().rule(move |question| {
        let texts = question.request.needs.iter().map(ToString::to_string);
        needs.lock().unwrap().extend(texts);
        Some(Answer::ONCE)
    });
    let configure = |builder: RuntimeBuilder| builder.approver(approver);
    let runtime = runtime_with(root.path(), commands(), configure).await;
    let policy = Policy::nothing()
        .allow("read:file:/repo/src")
        .ask("read:file:/repo/notes")
        .allow("execute:command");
    let worker = worker(&runtime, policy).await;
    let call = |reads: &[&str]| {
        let argv = ["cat", "a", "../notes/a", "../keys/a"];
        json!({ "argv": argv, "cwd": "/repo/src", "reads": reads })
    };
    let output = run(&worker, call(&[])).await.unwrap();
    assert_eq!(output.stdout, "src");
    assert!(asked.lock().unwrap().is_empty());
    let output = run(&worker, call(&["/repo/notes"])).await.unwrap();
    assert_eq!(output.stdout, "srcnotes");
    assert_eq!(asked.lock().unwrap().len(), 1, "{asked:?}");
    assert!(asked.lock().unwrap()[0].starts_with("read:file:/repo/notes"));
    let denied = run(&worker, call(&["/repo/keys"])).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn arguments_and_input_are_bounded() {
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime(root.path()).await;
    let worker = worker(&runtime, everything()).await;
    let argv = |count: usize, length: usize| {
        let mut argv = vec!["true".to_owned()];
        argv.resize(count, "x".repeat(length));
        json!({ "argv": argv })
    };
    assert_eq!(
        run(&worker, argv(1_000, 200)).await.unwrap().exit_code,
        Some(0)
    );
    let stdin = |length: usize| json!({ "argv": ["wc", "-c"], "stdin": "x".repeat(length) });
    let output = run(&worker, stdin(1 << 20)).await.unwrap();
    assert_eq!(output.stdout, "1048576\n");
    for arguments in [argv(1_001, 1), argv(3, 200_000), stdin((1 << 20) + 1)] {
        let refused = run(&worker, arguments).await.unwrap_err();
        assert_eq!(refused.code(), Code::TooLarge);
    }
}

#[tokio::test]
async fn exit_status_signal_input_and_long_output_are_reported() {
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime(root.path()).await;
    let worker = worker(&runtime, everything()).await;
    let output = shell(&worker, "echo out; echo err >&2; exit 7").await;
    assert_eq!(
        (
            output.exit_code,
            output.stdout.as_str(),
            output.stderr.as_str()
        ),
        (Some(7), "out\n", "err\n")
    );
    assert_eq!(shell(&worker, "kill -TERM $$").await.signal, Some(15));
    let output = run(
        &worker,
        json!({ "argv": ["tr", "a-z", "A-Z"], "stdin": "text" }),
    )
    .await
    .unwrap();
    assert_eq!(output.stdout, "TEXT");
    let output = shell(&worker, "seq 1 1000000").await;
    assert_eq!(output.stdout_bytes, 6_888_896);
    assert!(output.stdout.starts_with("1\n2\n") && output.stdout.ends_with("999999\n1000000\n"));
    assert!(output.stdout.len() < 40_000);
    let output = run(
        &worker,
        json!({ "argv": ["sleep", "1000"], "timeout_ms": 50 }),
    )
    .await
    .unwrap();
    assert!(output.timed_out && output.exit_code.is_none());
}

#[tokio::test]
async fn revocation_returns_when_nothing_of_the_command_runs() {
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime(root.path()).await;
    let worker = worker(&runtime, everything()).await;
    let fifo = root.path().join("up");
    self::fifo(&fifo);
    let script = "(setsid sh -c 'while true; do echo x >> log; done' &) ; echo up > up; sleep 1000";
    let arguments = json!({ "argv": ["sh", "-c", script], "cwd": "/repo" });
    let call = {
        let worker = worker.clone();
        tokio::spawn(async move { run(&worker, arguments).await })
    };
    // Returns when the command has written to it.
    let up = tokio::task::spawn_blocking(move || fs::read_to_string(fifo))
        .await
        .unwrap();
    assert_eq!(up.unwrap(), "up\n");
    worker.revoke().await;
    let length = || fs::metadata(root.path().join("log")).map_or(0, |log| log.len());
    let (first, second) = (length(), length());
    assert_eq!(first, second);
    assert!(call.await.unwrap().is_err());
    assert_eq!(length(), first);
}

#[tokio::test]
async fn cancelled_call_kills_everything_that_the_command_started() {
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime(root.path()).await;
    let worker = worker(&runtime, everything()).await;
    let fifo = root.path().join("up");
    self::fifo(&fifo);
    let script = "exec > up; trap '' TERM HUP; (setsid sleep 1000 &); echo up; sleep 1000";
    let arguments = json!({ "argv": ["sh", "-c", script], "cwd": "/repo" });
    let call = tokio::spawn(async move { run(&worker, arguments).await });
    let opened = tokio::task::spawn_blocking(move || fs::File::open(fifo).unwrap());
    let mut output = opened.await.unwrap();
    let mut up = [0; 3];
    std::io::Read::read_exact(&mut output, &mut up).unwrap();
    call.abort();
    // The FIFO is at its end once no process has it open.
    let ended = tokio::task::spawn_blocking(move || std::io::Read::read(&mut output, &mut [0; 8]));
    let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
    assert_eq!(ended.expect("a process runs").unwrap().unwrap(), 0);
}

#[tokio::test]
async fn preview_describes_the_command_and_runs_nothing() {
    let root = tempfile::tempdir().unwrap();
    let commands = commands().tested(self_test(&helper()).await);
    let runtime = runtime_with(root.path(), commands, |builder| builder).await;
    let worker = worker(&runtime, everything()).await;
    let arguments = json!({
        "argv": ["touch", "a file"], "cwd": "/repo", "env": { "TOKEN": "secret value" }, "mode": "live",
        "reads": ["/repo/src"], "writes": ["/repo/target"],
    });
    let preview = worker.preview("run_command", arguments).await.unwrap();
    assert_eq!(preview.intent, "Run `touch 'a file'` in /repo");
    let [command, rights @ ..] = preview.resources.as_slice() else {
        panic!("{preview:?}");
    };
    let details = command.detail.as_deref().unwrap();
    let program = fs::canonicalize("/usr/bin/touch").unwrap();
    let hash = ContentHash::of(&fs::read(program).unwrap());
    for part in [
        r#"arguments: ["touch", "a file"]"#,
        "program: /usr/bin/touch",
        "working directory: /repo",
        "environment: HOME, LANG, PATH, TMPDIR, TOKEN",
        "scopes: execute:command:touch, read:file:/repo/src, write:file:/repo/target",
        "sandbox: namespaces, ",
        "time limit: 120 s",
        &format!("sha256 of the program: {hash}"),
    ] {
        assert!(details.contains(part), "{part}: {details}");
    }
    assert!(!preview.diff().contains("secret value"));
    let rights = rights
        .iter()
        .map(|one| format!("{}: {}", one.resource, one.summary));
    assert_eq!(
        rights.collect::<Vec<_>>(),
        [
            "Can read: /repo/src and /repo; also the programs and libraries of this computer",
            "Can change: /repo/target and /repo; this cannot be undone",
            "Can connect to: nothing: it has no network",
        ]
    );
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn preview_names_folders_and_hosts_and_says_what_is_confined() {
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime_with(root.path(), commands(), |builder| {
        builder.allow("execute:network")
    })
    .await;
    let reads = |folders: &[&str]| {
        let folders = folders.iter();
        let policy = folders.fold(Policy::nothing(), |policy, folder| {
            policy.allow(&format!("read:file:/repo/{folder}"))
        });
        policy.allow("execute:command")
    };
    let network = |policy: Policy, hosts: &[&str]| {
        let mut hosts = hosts.iter();
        hosts.try_fold(policy, |policy, host| {
            Some(policy.allow(&format!("execute:network{host}")))
        })
    };
    let (read, connect) = ("Can read", "Can connect to");
    let five = ["a", "b", "c", "d", "e", "f"];
    for (policy, line, expected, confined) in [
        (
            reads(&["src"]),
            read,
            "/repo/src; also the programs and libraries of this computer",
            true,
        ),
        (
            reads(&five),
            read,
            "/repo/a, /repo/b, /repo/c, /repo/d and 2 more; also the programs and libraries of this computer",
            true,
        ),
        (
            reads(&[]),
            read,
            "only the programs and libraries of this computer",
            true,
        ),
        (reads(&[]), connect, "nothing: it has no network", true),
        (
            network(reads(&[]), &[":crates.io:443", ":docs.rs"]).unwrap(),
            connect,
            "crates.io:443 and docs.rs",
            false,
        ),
        (
            network(reads(&[]), &[""]).unwrap(),
            connect,
            "every host",
            false,
        ),
    ] {
        let worker = worker(&runtime, policy).await;
        let arguments = json!({ "argv": ["true"], "cwd": "/repo" });
        let preview = worker.preview("run_command", arguments).await.unwrap();
        let mut lines = preview.resources.iter();
        let shown = lines.find(|one| one.resource == line).unwrap();
        assert_eq!((&*shown.summary, shown.confined), (expected, confined));
    }
}

#[tokio::test]
async fn missing_optional_layer_confines_nothing() {
    let root = tempfile::tempdir().unwrap();
    let mut tested = self_test(&helper()).await;
    let whole = tested.clone();
    tested.layers[1].1 = LayerState::Missing("it is forbidden here".to_owned());
    let optional = tested.layers[1].0;
    for (tested, confined) in [(tested, false), (whole, true)] {
        let commands = commands().tested(tested).optional(&[optional]);
        let runtime = runtime_with(root.path(), commands, |builder| builder).await;
        let worker = worker(&runtime, everything()).await;
        let arguments = json!({ "argv": ["true"], "cwd": "/repo" });
        let preview = worker.preview("run_command", arguments).await.unwrap();
        let mut lines = preview.resources.iter();
        let read = lines.find(|one| one.resource == "Can read").unwrap();
        assert_eq!(read.confined, confined);
    }
}

#[tokio::test]
async fn missing_layer_refuses_commands_unless_it_is_optional() {
    let root = tempfile::tempdir().unwrap();
    let mut tested = self_test(&helper()).await;
    let (layer, state) = &mut tested.layers[1];
    let layer = *layer;
    *state = LayerState::Missing("it is forbidden here".to_owned());
    let strict = commands().tested(tested.clone());
    let lenient = commands().tested(tested).optional(&[layer]);
    let arguments = json!({ "argv": ["true"] });
    let runtime = runtime_with(root.path(), strict, |builder| builder).await;
    let refused = run(&worker(&runtime, everything()).await, arguments.clone()).await;
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("it is forbidden here"), "{message}");
    let runtime = runtime_with(root.path(), lenient, |builder| builder).await;
    let worker = worker(&runtime, everything()).await;
    assert_eq!(run(&worker, arguments).await.unwrap().exit_code, Some(0));
}

/// The sentences of the questions that were asked.
type Asked = Arc<Mutex<Vec<String>>>;

/// An approver that allows everything once.
fn allows_all(asked: &Asked) -> Scripted {
    let asked = Arc::clone(asked);
    Scripted::new().rule(move |question| {
        let mut asked = asked.lock().unwrap();
        asked.push(question.request.intent.clone());
        Some(Answer::ONCE)
    })
}

#[tokio::test]
async fn first_use_of_a_program_asks_unless_the_policy_allows_it() {
    let root = tempfile::tempdir().unwrap();
    let asked = Asked::default();
    let approver = allows_all(&asked);
    let configure = |builder: RuntimeBuilder| builder.approver(approver);
    let runtime = runtime_with(root.path(), commands(), configure).await;
    let policy = Policy::nothing()
        .allow("read:file")
        .ask("execute:command:echo")
        .allow("execute:command:true");
    let worker = worker(&runtime, policy).await;
    run(&worker, json!({ "argv": ["true"] })).await.unwrap();
    assert!(asked.lock().unwrap().is_empty());
    let arguments = json!({ "argv": ["echo", "a b"], "cwd": "/repo" });
    let output = run(&worker, arguments).await.unwrap();
    assert_eq!(output.stdout, "a b\n");
    assert_eq!(*asked.lock().unwrap(), ["Run `echo 'a b'` in /repo"]);
}

#[tokio::test]
async fn program_that_is_replaced_after_its_preview_does_not_run() {
    let root = tempfile::tempdir().unwrap();
    // A command has a `/tmp` of its own.
    let tools = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let tool = tools.path().join("tool");
    let write = |path: &Path, text: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    write(&tool, "echo first");
    let replaced = Arc::new(Mutex::new(None));
    let commands = commands().system(tools.path()).search(tools.path());
    let approver = {
        let (tool, replaced) = (tool.clone(), Arc::clone(&replaced));
        Scripted::new().rule(move |_| {
            if let Some(text) = replaced.lock().unwrap().take() {
                write(&tool, text);
            }
            Some(Answer::ONCE)
        })
    };
    let configure = |builder: RuntimeBuilder| builder.approver(approver);
    let runtime = runtime_with(root.path(), commands, configure).await;
    let policy = Policy::nothing().allow("read:file").ask("execute:command");
    let worker = worker(&runtime, policy).await;
    let arguments = json!({ "argv": ["tool"] });
    let output = run(&worker, arguments.clone()).await.unwrap();
    assert_eq!(output.stdout, "first\n");
    *replaced.lock().unwrap() = Some("echo second");
    let stale = run(&worker, arguments.clone()).await.unwrap_err();
    assert_eq!(stale.code(), Code::StalePreview);
    // The next question is about the new program.
    let output = run(&worker, arguments).await.unwrap();
    assert_eq!(output.stdout, "second\n");
}

#[tokio::test]
async fn audit_records_the_program_the_layers_and_the_end() {
    let root = tempfile::tempdir().unwrap();
    let audit = MemoryAudit::new(100);
    let sink = audit.clone();
    let configure = |builder: RuntimeBuilder| builder.audit(sink);
    let runtime = runtime_with(root.path(), commands(), configure).await;
    fs::create_dir(root.path().join("target")).unwrap();
    let policy = Policy::nothing()
        .allow("read:file")
        .allow("write:file:/repo/target")
        .allow("execute:command");
    let worker = worker(&runtime, policy).await;
    for name in ["old", "unchanged"] {
        fs::write(root.path().join("target").join(name), "old").unwrap();
    }
    wait_for_the_next_time_of_files();
    let script = "echo out; echo new > target/new; echo more >> target/old; mkdir target/d; \
                  head -c 17000000 /dev/zero > target/z; exit 3";
    shell(&worker, script).await;
    let records = records(&runtime, &audit).await;
    let [started, ended] = records.as_slice() else {
        panic!("{records:?}");
    };
    let (started, ended) = (&started["started"], &ended["ended"]);
    assert_eq!(started["argv"][1], "-c");
    assert_eq!(started["cwd"], "/repo");
    assert_eq!(started["writable"], json!(["/repo/target"]));
    assert_eq!(
        started["environment"],
        json!(["HOME", "LANG", "PATH", "TMPDIR"])
    );
    let program = fs::canonicalize("/usr/bin/sh").unwrap();
    let hash = ContentHash::of(&fs::read(program).unwrap());
    assert_eq!(started["program_sha256"], hash.to_string());
    assert_eq!(started["layers"].as_array().unwrap().len(), 7);
    assert_eq!(
        (&ended["exit_code"], &ended["stdout_bytes"]),
        (&json!(3), &json!(4))
    );
    let mut changed = ended["changed_files"].clone();
    changed["files"]
        .as_array_mut()
        .unwrap()
        .sort_by_key(|file| file["path"].to_string());
    let hash = |text: &str| ContentHash::of(text.as_bytes()).to_string();
    // A large file has no hash.
    let files = json!([
        { "path": "/repo/target/new", "sha256": hash("new\n") },
        { "path": "/repo/target/old", "sha256": hash("oldmore\n") },
        { "path": "/repo/target/z" },
    ]);
    assert_eq!(changed, json!({ "files": files, "total": 3 }));
    assert_eq!(ended["without_result"], false);
    assert!(ended["duration_ms"].is_u64());
}

#[tokio::test]
async fn audit_records_what_a_killed_command_changed() {
    let root = tempfile::tempdir().unwrap();
    let audit = MemoryAudit::new(100);
    let sink = audit.clone();
    let configure = |builder: RuntimeBuilder| builder.audit(sink);
    let runtime = runtime_with(root.path(), commands(), configure).await;
    let budget = Budget {
        output_bytes: Some(1000),
        ..Budget::default()
    };
    let spec = WorkerSpec::new("tester")
        .policy(everything())
        .budget(budget);
    let worker = runtime.spawn(spec).await.unwrap();
    let argv = ["sh", "-c", "echo new > file; yes"];
    let killed = run(&worker, json!({ "argv": argv, "cwd": "/repo" })).await;
    assert_eq!(killed.unwrap_err().code(), Code::Budget);
    let ended = &records(&runtime, &audit).await[1]["ended"];
    assert_eq!(ended["without_result"], true);
    let sha256 = ContentHash::of(b"new\n").to_string();
    let files = json!([{ "path": "/repo/file", "sha256": sha256 }]);
    assert_eq!(ended["changed_files"]["files"], files);
}

#[tokio::test]
async fn audit_records_what_a_revoked_or_cancelled_command_changed() {
    for is_revoked in [true, false] {
        let root = tempfile::tempdir().unwrap();
        let audit = MemoryAudit::new(100);
        let sink = audit.clone();
        let configure = |builder: RuntimeBuilder| builder.audit(sink);
        let runtime = runtime_with(root.path(), commands(), configure).await;
        let worker = worker(&runtime, everything()).await;
        let up = root.path().join("up");
        fifo(&up);
        let script = "echo new > file; echo up > up; exec sleep 1000";
        let argv = ["sh", "-c", script];
        let call = {
            let worker = worker.clone();
            tokio::spawn(async move {
                let arguments = json!({ "argv": argv, "cwd": "/repo" });
                run(&worker, arguments).await
            })
        };
        let is_up = tokio::task::spawn_blocking(move || fs::read_to_string(up));
        assert_eq!(is_up.await.unwrap().unwrap(), "up\n");
        if !is_revoked {
            call.abort();
            assert!(call.await.unwrap_err().is_cancelled());
        }
        // This waits until nothing of the command runs.
        worker.revoke().await;
        let records = records(&runtime, &audit).await;
        let ended = &records[1]["ended"];
        assert_eq!(ended["without_result"], true);
        let sha256 = ContentHash::of(b"new\n").to_string();
        let files = json!([{ "path": "/repo/file", "sha256": sha256 }]);
        assert_eq!(ended["changed_files"]["files"], files, "{is_revoked}");
    }
}

#[tokio::test]
async fn command_that_leaves_entries_that_cannot_be_listed_keeps_its_result() {
    let is_root = rustix::process::getuid().is_root();
    let deep = "i=0; while [ $i -lt 300 ]; do mkdir d; cd d; i=$((i+1)); done";
    for (script, is_incomplete, is_refused_by_globs) in [
        ("touch $(printf 'b\\377')", true, true),
        ("touch \"$(printf 'a\\nb')\"", true, false),
        (deep, true, false),
        ("mkdir d; touch d/f; chmod 444 d", !is_root, false),
        ("mkdir d; touch d/f; chmod 0 d", !is_root, false),
        ("touch ordinary", false, false),
    ] {
        let root = tempfile::tempdir().unwrap();
        let audit = MemoryAudit::new(100);
        let sink = audit.clone();
        let configure = |builder: RuntimeBuilder| builder.audit(sink);
        let runtime = runtime_with(root.path(), commands(), configure).await;
        let worker = worker(&runtime, everything()).await;
        let script = format!("({script}); echo out; touch last; exit 3");
        let output = shell(&worker, &script).await;
        assert_eq!(output.stdout, "out\n", "{script}: {output:?}");
        assert_eq!(output.exit_code, Some(3), "{script}: {output:?}");
        let incomplete = &output.incomplete;
        assert_eq!(incomplete.is_some(), is_incomplete, "{script}: {output:?}");
        let ended = &records(&runtime, &audit).await[1]["ended"];
        assert_eq!(ended["exit_code"], 3, "{script}");
        let changed = &ended["changed_files"];
        assert!(
            changed.to_string().contains("/repo/last"),
            "{script}: {ended}"
        );
        assert_eq!(changed["incomplete"], json!(incomplete), "{script}");
        // Later commands run, unless a glob may match what cannot be judged.
        let output = shell(&worker, "echo again").await;
        assert_eq!(output.stdout, "again\n", "{script}: {output:?}");
        assert_eq!(output.incomplete, None, "{script}");
        let other = self::worker(&runtime, everything().deny_glob("*.key")).await;
        let arguments = json!({ "argv": ["echo", "again"], "cwd": "/repo" });
        match run(&other, arguments).await {
            Ok(_) => assert!(!is_refused_by_globs, "{script}"),
            Err(error) => {
                assert!(is_refused_by_globs, "{script}: {error}");
                assert_eq!(error.code(), Code::NotText);
                assert!(error.message().contains("rename or remove it"), "{error}");
            }
        }
        make_removable(root.path());
    }
}

/// Makes a directory that a command closed removable.
fn make_removable(root: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    for name in ["d", ".git", "s"] {
        // Not all tests have all of them.
        let _ = fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o755));
    }
}

#[tokio::test]
async fn rules_hold_in_directories_that_a_command_has_closed() {
    let root = tempfile::tempdir().unwrap();
    for directory in [".git/hooks", "s", "free"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    for (file, text) in [
        (".git/config", "the secret"),
        ("s/key", "the secret"),
        ("free/file", "open"),
    ] {
        fs::write(root.path().join(file), text).unwrap();
    }
    let runtime = runtime(root.path()).await;
    let policy = everything().deny("read:file:/repo/s/key");
    let worker = worker(&runtime, policy).await;
    let path = |name: &str| root.path().join(name);
    for permissions in ["0", "444"] {
        shell(&worker, &format!("chmod {permissions} .git s")).await;
        let script = "chmod 755 .git s free; cat s/key; cat free/file; echo x > .git/hooks/pre-commit; \
                      echo x > .git/config; echo x > free/other";
        for mode in ["overlay", "live"] {
            let argv = ["sh", "-c", script];
            let arguments = json!({ "argv": argv, "cwd": "/repo", "mode": mode });
            let output = run(&worker, arguments).await.unwrap();
            assert_eq!(output.stdout, "open", "{permissions} {mode}: {output:?}");
        }
        make_removable(root.path());
        assert_eq!(fs::read(path(".git/config")).unwrap(), b"the secret");
        assert!(!path(".git/hooks/pre-commit").exists(), "{permissions}");
        assert!(path("free/other").exists(), "{permissions}");
    }
}

/// A script that creates 120 files with long paths, whose names end with `suffix`.
fn many_long_paths(suffix: &str) -> String {
    let name = "n".repeat(200);
    format!(
        "d={name}/{name}/{name}; mkdir -p $d; \
         i=0; while [ $i -lt 120 ]; do echo x > $d/$i{suffix}; i=$((i+1)); done; "
    )
}

#[tokio::test]
async fn end_of_a_command_is_recorded_however_long_the_paths_are_that_it_created() {
    let root = tempfile::tempdir().unwrap();
    let audit = MemoryAudit::new(100);
    let sink = audit.clone();
    let configure = |builder: RuntimeBuilder| builder.audit(sink);
    let runtime = runtime_with(root.path(), commands(), configure).await;
    let worker = worker(&runtime, everything().deny_glob("*.key")).await;
    let (denied, allowed) = (many_long_paths(".key"), many_long_paths(".txt"));
    let both = denied.clone() + &allowed;
    let mut ends = Vec::new();
    for (mode, script) in [("overlay", denied), ("overlay", allowed), ("live", both)] {
        let argv = ["sh", "-c", &(script + "exit 3")];
        let arguments = json!({ "argv": argv, "cwd": "/repo", "mode": mode });
        run(&worker, arguments).await.unwrap();
        let ended = records(&runtime, &audit).await.last().unwrap()["ended"].clone();
        assert_eq!(ended["exit_code"], 3, "{mode}");
        ends.push(ended);
    }
    let [dropped, kept, live] = ends.as_slice() else {
        panic!("{ends:?}");
    };
    let length = |list: &Value| list.as_array().unwrap().len();
    let is_cut = |list: &Value| (1..100).contains(&length(list));
    assert_eq!(dropped["changes"]["dropped_total"], 120);
    assert!(is_cut(&dropped["changes"]["dropped"]));
    assert_eq!(kept["changes"]["total"], 123);
    assert!(is_cut(&kept["changes"]["files"]));
    assert_eq!(live["created_protected_total"], 100);
    assert!(is_cut(&live["created_protected"]));
    assert!(is_cut(&live["changed_files"]["files"]));
    // Short lists are whole.
    shell(&worker, "echo x > a.key").await;
    let ended = records(&runtime, &audit).await.last().unwrap()["ended"].clone();
    assert_eq!(ended["created_protected"], json!(["/repo/a.key"]));
}

#[tokio::test]
async fn command_with_arguments_that_are_long_as_json_runs_and_is_recorded() {
    let root = tempfile::tempdir().unwrap();
    let audit = MemoryAudit::new(100);
    let sink = audit.clone();
    let configure = |builder: RuntimeBuilder| builder.audit(sink);
    let runtime = runtime_with(root.path(), commands(), configure).await;
    let worker = worker(&runtime, everything()).await;
    for (argument, recorded) in [("\u{1}".repeat(15 << 10), 1), ("\u{1}".repeat(1 << 10), 2)] {
        let output = run(&worker, json!({ "argv": ["true", argument] })).await;
        assert_eq!(output.unwrap().exit_code, Some(0));
        let records = records(&runtime, &audit).await;
        let started = &records[records.len() - 2]["started"];
        assert_eq!(started["arguments"], 2);
        assert_eq!(started["argv"].as_array().unwrap().len(), recorded);
    }
}

/// Waits until files that change get a later time than those that have changed, which takes milliseconds.
fn wait_for_the_next_time_of_files() {
    let coarse = || rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    let now = coarse();
    while coarse() == now {
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn output_that_was_cut_is_an_artifact_for_people() {
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime(root.path()).await;
    let worker = worker(&runtime, everything()).await;
    let outputs = async |script: &str| {
        let arguments = json!({ "argv": ["sh", "-c", script] });
        let outcome = worker.call("run_command", arguments).await.unwrap();
        let artifacts = outcome.artifacts.into_iter();
        let mut streams = artifacts.filter(|it| ["stdout", "stderr"].contains(&it.name));
        let texts = streams.by_ref().map(|it| {
            let artifact = runtime.artifact(&it.uri).unwrap();
            assert_eq!(artifact.mime, "text/plain");
            (it.name, String::from_utf8(artifact.bytes.to_vec()).unwrap())
        });
        texts.collect::<Vec<_>>()
    };
    assert!(outputs("echo short; echo short >&2").await.is_empty());
    let long = outputs("seq 1 20000").await;
    let [("stdout", text)] = long.as_slice() else {
        panic!("{long:?}");
    };
    let whole: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
    assert!(*text == whole);
    // It is bounded.
    let longer = outputs("seq 1 1000000 >&2").await;
    let [("stderr", text)] = longer.as_slice() else {
        panic!("{longer:?}");
    };
    assert!(text.len() < (1 << 20) + 100 && text.ends_with("\n1000000\n"));
    assert!(text.contains("bytes left out"));
}

#[tokio::test]
async fn progress_has_the_last_line_of_the_output() {
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime(root.path()).await;
    let worker = worker(&runtime, everything()).await;
    let progress = Progress::default();
    let arguments = json!({ "argv": ["printf", "first\nlast \u{1b}[1mline\n\n"] });
    let call = Call::new("run_command", arguments).meta(CallMeta {
        progress: Some(progress.clone()),
        ..CallMeta::default()
    });
    worker.submit(call).await.unwrap();
    assert_eq!(&*progress.message().unwrap(), "last \\u{1b}[1mline");
    assert!(progress.done() > 0);
}

#[tokio::test]
async fn progress_is_seen_while_the_command_runs() {
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime(root.path()).await;
    let worker = worker(&runtime, everything()).await;
    let go = root.path().join("go");
    fifo(&go);
    let progress = Progress::default();
    let argv = ["sh", "-c", "echo working; cat go; echo done"];
    let call = Call::new("run_command", json!({ "argv": argv, "cwd": "/repo" }));
    let call = call.meta(CallMeta {
        progress: Some(progress.clone()),
        ..CallMeta::default()
    });
    let seen = async {
        while progress.message().as_deref() != Some("working") {
            tokio::task::yield_now().await;
        }
        // The command ends only now.
        tokio::task::spawn_blocking(move || fs::write(go, "").unwrap())
            .await
            .unwrap();
    };
    let both = async { tokio::join!(worker.submit(call), seen).0 };
    let both = tokio::time::timeout(Duration::from_secs(60), both).await;
    both.expect("no progress").unwrap();
    assert_eq!(progress.message().as_deref(), Some("done"));
}

#[tokio::test]
async fn command_ends_before_the_time_limit_of_its_call_with_its_output() {
    let root = tempfile::tempdir().unwrap();
    let configure = |builder: RuntimeBuilder| builder.call_limit(Duration::from_secs(2));
    let runtime = runtime_with(root.path(), commands(), configure).await;
    let worker = worker(&runtime, everything()).await;
    let output = shell(&worker, "echo out; sleep 1000").await;
    assert!(output.timed_out, "{output:?}");
    assert_eq!(output.stdout, "out\n");
}

#[tokio::test]
async fn missing_directory_of_a_command_is_named() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file"), "").unwrap();
    let runtime = runtime(root.path()).await;
    let worker = worker(&runtime, everything()).await;
    let at = async |cwd: &str| run(&worker, json!({ "argv": ["pwd"], "cwd": cwd })).await;
    assert_eq!(at("/repo").await.unwrap().stdout, "/repo\n");
    for (cwd, why) in [
        ("/repo/none", "No such file"),
        ("/repo/file", "Not a directory"),
    ] {
        let error = at(cwd).await.unwrap_err();
        assert_eq!(error.code(), Code::Io);
        let text = error.message();
        assert!(
            text.contains(&format!("`{cwd}`")) && text.contains(why),
            "{text}"
        );
    }
}

#[tokio::test]
async fn command_that_does_not_start_is_not_reported_as_begun_and_its_end_is_recorded() {
    let root = tempfile::tempdir().unwrap();
    let audit = MemoryAudit::new(100);
    let sink = audit.clone();
    let configure = |builder: RuntimeBuilder| builder.audit(sink);
    let runtime = runtime_with(root.path(), commands(), configure).await;
    let budget = Budget {
        output_bytes: Some(1000),
        ..Budget::default()
    };
    let spec = WorkerSpec::new("tester").policy(everything());
    let worker = runtime.spawn(spec.budget(budget)).await.unwrap();
    for (argv, cwd, mode, has_begun) in [
        (["true"], "/repo/none", "live", false),
        (["true"], "/repo/none", "overlay", false),
        (["yes"], "/repo", "live", true),
    ] {
        let arguments = json!({ "argv": argv, "cwd": cwd, "mode": mode });
        let error = run(&worker, arguments).await.unwrap_err();
        let is_begun = error.details().contains_key("begun");
        assert_eq!(is_begun, has_begun, "{argv:?} {mode}: {error}");
        let records = records(&runtime, &audit).await;
        let [.., started, ended] = records.as_slice() else {
            panic!("{records:?}");
        };
        assert_eq!(started["started"]["cwd"], cwd);
        assert_eq!(ended["ended"]["without_result"], true, "{argv:?} {mode}");
    }
}

/// Creates a FIFO.
pub(crate) fn fifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
}

#[tokio::test]
async fn command_beyond_the_limit_waits_and_its_worker_can_be_revoked() {
    let root = tempfile::tempdir().unwrap();
    let commands = commands().max_concurrent(1);
    let runtime = runtime_with(root.path(), commands, |builder| builder).await;
    let (up, go) = (root.path().join("up"), root.path().join("go"));
    fifo(&up);
    fifo(&go);
    let call = |worker: &Worker, script: &'static str| {
        let worker = worker.clone();
        tokio::spawn(async move {
            let arguments = json!({ "argv": ["sh", "-c", script], "cwd": "/repo" });
            run(&worker, arguments).await
        })
    };
    let [running, revoked, last] = [
        worker(&runtime, everything()).await,
        worker(&runtime, everything()).await,
        worker(&runtime, everything()).await,
    ];
    let running = call(&running, "echo up > up; cat go; touch first");
    let is_up = tokio::task::spawn_blocking(move || fs::read_to_string(up));
    assert_eq!(is_up.await.unwrap().unwrap(), "up\n");
    let waiting = call(&revoked, "touch revoked");
    let last = call(&last, "test -e first");
    revoked.revoke().await;
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), Code::Cancelled);
    assert!(!last.is_finished() && !running.is_finished());
    fs::write(go, "").unwrap();
    assert_eq!(running.await.unwrap().unwrap().exit_code, Some(0));
    // It ran after the first.
    assert_eq!(last.await.unwrap().unwrap().exit_code, Some(0));
    assert!(!root.path().join("revoked").exists());
}

#[tokio::test]
async fn entries_beneath_a_protected_name_have_their_own_rights() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join(".git/objects")).unwrap();
    fs::create_dir_all(root.path().join(".git/hooks")).unwrap();
    let runtime = runtime(root.path()).await;
    let worker = worker(&runtime, everything()).await;
    let script = "echo x > .git/objects/a; echo x > .git/hooks/b";
    shell(&worker, script).await;
    assert!(root.path().join(".git/objects/a").exists());
    assert!(!root.path().join(".git/hooks/b").exists());
}
