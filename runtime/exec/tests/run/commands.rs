//! `run_command` with real workers and programs.

use std::fs;
use std::path::Path;

use bailiwick::permission::DenyAll;
use bailiwick::{CallError, Code, Policy, Runtime, ToolSet, Worker, WorkerSpec};
use bailiwick_exec::{CommandOutput, Commands, Helper};
use serde_json::{Value, json};

pub(crate) fn commands() -> Commands {
    Commands::new().helper(Helper::At(
        env!("CARGO_BIN_EXE_bailiwick-exec-helper").into(),
    ))
}

pub(crate) async fn runtime(root: &Path) -> Runtime {
    let tools = ToolSet::new().actor(commands());
    let builder = Runtime::builder().root("repo", root).tools(tools);
    let builder = builder.allow("execute:command");
    builder.approver(DenyAll).build().await.unwrap().0
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
    shell(&worker, "echo x > .git/hooks/pre-commit; echo x > .git/config; mv .git g; echo x > .git/other; echo x > file").await;
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
    assert!(root.path().join("file").exists());
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
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
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
