//! File tools beside commands: their threads are confined, and those of commands are not.

use std::fs;
use std::path::{Path, PathBuf};

use bailiwick::worker::{ConfineFiles, LayerState};
use bailiwick::{
    Answer, CallError, Code, Policy, Reply, Runtime, Scripted, ToolSet, ToolSpec, Worker,
    WorkerSpec,
};
use serde_json::json;

use crate::commands::{commands, shell};

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct Naive {
    path: PathBuf,
}

/// A file tool that forgets to check its path.
fn naive() -> ToolSet {
    let spec = ToolSpec::new("naive", "Read", "Reads any file.");
    let read = |args: &Naive, _: &_| match fs::read_to_string(&args.path) {
        Ok(text) => Ok(Reply::text(text, ())),
        Err(error) => Err(CallError::new(Code::Io, error.to_string()).into()),
    };
    let tools = ToolSet::new().read_function(spec, |_, _| Ok(Vec::new()), read);
    tools.for_files()
}

async fn runtime(root: &Path, confine: ConfineFiles) -> Runtime {
    let tools = naive().and(bailiwick_fs::tools()).and(commands().tools());
    let builder = Runtime::builder().root("repo", root).tools(tools);
    let builder = builder.allow("execute:command").confine_files(confine);
    let builder = builder
        .grantable("read:file")
        .approver(Scripted::new().rule(|_| Some(Answer::ONCE)));
    builder.build().await.unwrap().0
}

async fn worker(runtime: &Runtime) -> Worker {
    let spec = WorkerSpec::new("main").policy(Policy::new());
    runtime.spawn(spec).await.unwrap()
}

#[tokio::test]
async fn naive_file_tool_cannot_leave_the_roots() {
    let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in [&root, &outside] {
        fs::write(folder.path().join("a"), "text").unwrap();
    }
    let read = async |confine, folder: &Path| {
        let runtime = runtime(root.path(), confine).await;
        let worker = worker(&runtime).await;
        let arguments = json!({ "path": folder.join("a") });
        worker
            .call("naive", arguments)
            .await
            .map(|outcome| outcome.text())
    };
    let required = ConfineFiles::Required;
    assert_eq!(read(required, root.path()).await.unwrap(), "text");
    let refused = read(required, outside.path()).await.unwrap_err();
    assert!(refused.message().contains("Permission denied"), "{refused}");
    // Without the second wall, the tool would leave the roots.
    let never = ConfineFiles::Never;
    assert_eq!(read(never, outside.path()).await.unwrap(), "text");
}

#[tokio::test]
async fn granted_file_outside_the_roots_is_read_on_another_thread() {
    let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = outside.path().join("a");
    fs::write(&file, "text\n").unwrap();
    fs::write(root.path().join("a"), "text\n").unwrap();
    let runtime = runtime(root.path(), ConfineFiles::Required).await;
    let worker = worker(&runtime).await;
    for path in [Path::new("/repo/a"), &file] {
        let read = worker
            .call("read_file", json!({ "path": path }))
            .await
            .unwrap();
        assert!(read.text().contains("text"), "{path:?}");
    }
}

#[tokio::test]
async fn command_after_file_calls_is_not_confined_like_file_tools() {
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime(root.path(), ConfineFiles::Required).await;
    let worker = worker(&runtime).await;
    for number in 0..20 {
        let arguments = json!({ "path": format!("/repo/{number}"), "content": "text" });
        worker.call("write_file", arguments).await.unwrap();
    }
    let output = shell(&worker, "cat /repo/7 && ls /usr > /dev/null").await;
    assert_eq!(
        (output.exit_code, output.stdout.as_str()),
        (Some(0), "text")
    );
}

#[tokio::test]
async fn status_shows_the_layers_of_file_tools_and_commands() {
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime(root.path(), ConfineFiles::IfSupported).await;
    let layers = worker(&runtime).await.status().layers;
    assert_eq!(layers, runtime.layers());
    let of = |confines: &str| {
        let mut layers = layers.clone();
        layers.retain(|layer| layer.confines == confines);
        layers
    };
    let files = of("file tools");
    assert_eq!((files.len(), &files[0].state), (1, &LayerState::Enforced));
    // The self-test was not run.
    assert_eq!(of("commands").len(), bailiwick_exec::Layer::ALL.len());
    assert!(
        of("commands")
            .iter()
            .all(|layer| layer.state == LayerState::NotTested)
    );
}

/// A command in the mode `live` exchanges a directory with a link to the outside, while file tools use its path.
#[tokio::test(flavor = "multi_thread")]
async fn links_of_a_running_command_do_not_lead_file_tools_outside() {
    let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(root.path().join("d")).unwrap();
    fs::write(root.path().join("d/f"), "inside").unwrap();
    fs::write(outside.path().join("f"), "the secret").unwrap();
    std::os::unix::fs::symlink(outside.path(), root.path().join("link")).unwrap();
    for confine in [ConfineFiles::Required, ConfineFiles::Never] {
        let tools = bailiwick_fs::tools().and(commands().tools());
        let builder = Runtime::builder().root("repo", root.path()).tools(tools);
        let builder = builder.allow("execute:command").confine_files(confine);
        let runtime = builder.build().await.unwrap().0;
        let (commander, worker) = (worker(&runtime).await, worker(&runtime).await);
        let script =
            "while [ ! -e stop ]; do mv -T d t; mv -T link d; mv -T d link; mv -T t d; done";
        let command = tokio::spawn(async move { shell(&commander, script).await });
        let (mut used, mut refused) = (0, 0);
        let turns = async {
            while used < 20 || refused < 20 {
                let read = worker
                    .call("read_file", json!({ "path": "/repo/d/f" }))
                    .await;
                match read {
                    Ok(read) => {
                        assert!(!read.text().contains("secret"), "{}", read.text());
                        used += 1;
                    }
                    Err(_) => refused += 1,
                }
                let write =
                    json!({ "path": "/repo/d/f", "content": "inside", "mode": "overwrite" });
                let _ = worker.call("write_file", write).await;
            }
        };
        let turns = tokio::time::timeout(std::time::Duration::from_secs(25), turns).await;
        fs::write(root.path().join("stop"), "").unwrap();
        command.await.unwrap();
        turns.unwrap();
        fs::remove_file(root.path().join("stop")).unwrap();
        let text = fs::read_to_string(outside.path().join("f")).unwrap();
        assert_eq!(text, "the secret");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }
}
