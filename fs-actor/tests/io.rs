//! File access of custom tools through `bailiwick_fs::io`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests create and check files directly"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Mutex;

use bailiwick::config::Namespace;
use bailiwick::journal::Journal;
use bailiwick::tool::{Interrupt, Prepared, ReadPermit, WritePermit};
use bailiwick::{
    Call, CallError, CallMeta, Code, Plan, Policy, ReadTool, Reply, Runtime, ToolSpec, VirtualPath,
    Worker, WorkerSpec, WriteTool,
};
use bailiwick_fs::Durability;
use bailiwick_fs::io::{Directory, File, FileWriter, OldFile, PlannedWrite, WalkControl};
use bailiwick_test_support::stage::started;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Deserialize, JsonSchema)]
struct PathArgs {
    path: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Text {
    text: String,
}

fn reply(text: String) -> Reply {
    Reply::text(text.clone(), Text { text })
}

/// Without needs, so that only the functions of the module judge the path.
fn unjudged(args: &PathArgs, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
    Ok(Prepared {
        needs: Vec::new(),
        job: names.path(&args.path)?,
    })
}

/// A tool that reads a path by a function.
struct Reads(
    &'static str,
    fn(&VirtualPath, &ReadPermit) -> Result<String, Interrupt>,
);

impl ReadTool for Reads {
    type Args = PathArgs;
    type Output = Text;
    type Job = VirtualPath;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(self.0, "Read", "Reads a path.")
    }

    fn prepare(
        &self,
        args: PathArgs,
        names: &Namespace,
    ) -> Result<Prepared<VirtualPath>, CallError> {
        unjudged(&args, names)
    }

    fn read(&self, path: &VirtualPath, permit: &ReadPermit) -> Result<Reply, Interrupt> {
        Ok(reply((self.1)(path, permit)?))
    }
}

/// Reads a file of at most 8 bytes.
fn read_one(path: &VirtualPath, permit: &ReadPermit) -> Result<String, Interrupt> {
    let file = File::open(permit, path)?;
    let bytes = file.read(permit, 8)?;
    Ok(format!(
        "{} {}",
        file.path(),
        String::from_utf8_lossy(&bytes)
    ))
}

/// Lists all entries, and reads the files.
fn names(path: &VirtualPath, permit: &ReadPermit) -> Result<String, Interrupt> {
    let mut found = Vec::new();
    Directory::open(permit, path)?.walk(permit, |entry| {
        let read = File::open_entry(permit, entry).and_then(|file| file.read(permit, 8));
        found.push(match read {
            Ok(bytes) => format!("{} {}", entry.path(), String::from_utf8_lossy(&bytes)),
            Err(error) => format!("{} {}", entry.path(), error.code()),
        });
        Ok(WalkControl::Enter)
    })?;
    found.sort();
    Ok(found.join("\n"))
}

/// A tool that appends `!` to a file.
struct Append {
    name: &'static str,
    writer: FileWriter,
    /// If set, the tool keeps the plan of its first call, and applies it in its second one.
    kept: Option<Mutex<Option<PlannedWrite>>>,
}

impl WriteTool for Append {
    type Args = PathArgs;
    type Output = Text;
    type Job = VirtualPath;
    type Steps = PlannedWrite;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(self.name, "Append", "Appends `!` to a file.")
    }

    fn prepare(
        &self,
        args: PathArgs,
        names: &Namespace,
    ) -> Result<Prepared<VirtualPath>, CallError> {
        unjudged(&args, names)
    }

    fn plan(
        &self,
        path: &VirtualPath,
        permit: &ReadPermit,
    ) -> Result<Plan<PlannedWrite>, Interrupt> {
        let old = OldFile::read(permit, path)?;
        let content = [old.content().unwrap_or_default(), b"!"].concat();
        let reply = reply(old.path().to_string());
        self.writer.plan(permit, old, content, reply)
    }

    fn apply(&self, planned: PlannedWrite, permit: WritePermit) -> Result<(), CallError> {
        let planned = match &self.kept {
            None => planned,
            Some(kept) => {
                let mut kept = kept.lock().unwrap();
                match kept.take() {
                    Some(earlier) => earlier,
                    None => {
                        *kept = Some(planned);
                        return Ok(());
                    }
                }
            }
        };
        let reached = self.writer.apply(planned, &permit)?;
        assert!(reached.is_some());
        Ok(())
    }
}

struct Stage {
    runtime: Runtime,
    worker: Worker,
    temp: tempfile::TempDir,
}

impl Stage {
    /// A root with an allowed, a denied and a read-only file, a FIFO, and links to the first two and out of the root.
    async fn new() -> Self {
        let policy = Policy::new()
            .allow("read:file")
            .allow("write:file")
            .deny_glob("**/secret")
            .deny("write:file:/r/kept");
        Self::with(policy).await
    }

    async fn with(policy: Policy) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("root");
        fs::create_dir(&root).unwrap();
        for name in ["open", "secret", "kept"] {
            fs::write(root.join(name), name).unwrap();
        }
        fs::write(temp.path().join("outside"), "outside").unwrap();
        symlink("open", root.join("to_open")).unwrap();
        symlink("secret", root.join("to_secret")).unwrap();
        symlink(temp.path().join("outside"), root.join("out")).unwrap();
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, root.join("fifo"), FileType::Fifo, mode, 0).unwrap();
        let tools = bailiwick_fs::tools()
            .reader(Reads("read_one", read_one))
            .reader(Reads("names", names))
            .writer(Append {
                name: "append",
                writer: FileWriter::new(Durability::Visible),
                kept: None,
            })
            .writer(Append {
                name: "append_later",
                writer: FileWriter::new(Durability::Visible),
                kept: Some(Mutex::default()),
            });
        let journal = Journal::open(temp.path().join("journal")).unwrap();
        let builder = Runtime::builder().root("r", &root).tools(tools);
        let undo = bailiwick_fs::undo_tools(Durability::Visible);
        let builder = builder.journal(journal).tools(undo);
        let (runtime, worker) = started(builder, policy).await;
        Self {
            runtime,
            worker,
            temp,
        }
    }

    async fn call(&self, tool: &str, path: &str) -> Result<String, Code> {
        let done = self.worker.call(tool, json!({"path": path})).await;
        done.map(|outcome| outcome.text())
            .map_err(|error| error.code())
    }

    fn content(&self, name: impl AsRef<Path>) -> String {
        fs::read_to_string(self.temp.path().join("root").join(name)).unwrap()
    }
}

#[tokio::test]
async fn open_refuses_denied_files_links_out_and_fifos() {
    let stage = Stage::new().await;
    let read = |path: &'static str| stage.call("read_one", path);
    assert_eq!(read("/r/open").await.unwrap(), "/r/open open");
    assert_eq!(read("/r/to_open").await.unwrap(), "/r/open open");
    assert_eq!(read("/r/secret").await, Err(Code::NotFound));
    assert_eq!(read("/r/to_secret").await, Err(Code::NotFound));
    assert_eq!(read("/r/out").await, Err(Code::NotFound));
    assert_eq!(read("/r/none").await, Err(Code::NotFound));
    assert_eq!(read("/r/fifo").await, Err(Code::NotRegular));
    assert_eq!(read("/r").await, Err(Code::NotRegular));
}

#[tokio::test]
async fn read_refuses_files_that_are_too_large() {
    let stage = Stage::new().await;
    let file = stage.temp.path().join("root/open");
    fs::write(&file, "12345678").unwrap();
    assert_eq!(
        stage.call("read_one", "/r/open").await.unwrap(),
        "/r/open 12345678"
    );
    fs::write(&file, "123456789").unwrap();
    assert_eq!(stage.call("read_one", "/r/open").await, Err(Code::TooLarge));
}

#[tokio::test]
async fn walk_omits_denied_entries_and_opens_only_regular_files() {
    let stage = Stage::new().await;
    let found = stage.call("names", "/r").await.unwrap();
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(
        lines,
        [
            "/r/fifo NOT_REGULAR",
            "/r/kept kept",
            "/r/open open",
            "/r/out NOT_FOUND",
            "/r/to_open NOT_FOUND",
            "/r/to_secret NOT_FOUND",
        ]
    );
    assert_eq!(
        stage.call("names", "/r/open").await,
        Err(Code::NotDirectory)
    );
}

#[tokio::test]
async fn write_refuses_denied_files_links_out_and_fifos() {
    let stage = Stage::new().await;
    let append = |path: &'static str| stage.call("append", path);
    assert_eq!(append("/r/to_open").await.unwrap(), "/r/open");
    assert_eq!(stage.content("open"), "open!");
    assert_eq!(append("/r/new").await.unwrap(), "/r/new");
    assert_eq!(stage.content("new"), "!");
    assert_eq!(append("/r/secret").await, Err(Code::NotFound));
    assert_eq!(append("/r/out").await, Err(Code::NotFound));
    assert_eq!(append("/r/fifo").await, Err(Code::NotRegular));
    assert_eq!(append("/r/kept").await, Err(Code::PermissionDenied));
    assert_eq!(append("/r/none/new").await, Err(Code::NotFound));
    assert_eq!(
        (stage.content("secret"), stage.content("kept")),
        ("secret".into(), "kept".into())
    );
    let outside = fs::read_to_string(stage.temp.path().join("outside")).unwrap();
    assert_eq!(outside, "outside");
}

#[tokio::test]
async fn preview_writes_nothing_and_is_stale_after_a_change() {
    let stage = Stage::new().await;
    let arguments = json!({"path": "/r/open"});
    let preview = stage.worker.preview("append", arguments.clone()).await;
    let preview = preview.unwrap();
    assert_eq!(preview.changes.len(), 1);
    assert_eq!(stage.content("open"), "open");
    fs::write(stage.temp.path().join("root/open"), "changed").unwrap();
    let call = Call::new("append", arguments).meta(CallMeta {
        preview_token: Some(preview.token),
        ..CallMeta::default()
    });
    let stale = stage.worker.submit(call).await.unwrap_err();
    assert_eq!(stale.code(), Code::StalePreview);
    assert_eq!(stage.content("open"), "changed");
}

#[tokio::test]
async fn change_of_which_a_tool_keeps_no_record_is_not_shown_as_undoable() {
    let stage = Stage::new().await;
    let arguments = json!({"path": "/r/open"});
    let preview = stage.worker.preview("append", arguments).await.unwrap();
    assert!(!preview.undoable);
    let arguments = json!({"path": "/r/open", "content": "x", "mode": "overwrite"});
    let preview = stage.worker.preview("write_file", arguments).await.unwrap();
    assert!(preview.undoable);
}

#[tokio::test]
async fn paths_without_declared_needs_still_need_approval() {
    let policy = Policy::new()
        .allow("read:file")
        .ask("read:file:/r/kept")
        .ask("write:file");
    let stage = Stage::with(policy).await;
    assert_eq!(
        stage.call("read_one", "/r/open").await.unwrap(),
        "/r/open open"
    );
    assert_eq!(
        stage.call("read_one", "/r/kept").await,
        Err(Code::ScopeRequired)
    );
    assert_eq!(
        stage.call("append", "/r/open").await,
        Err(Code::ScopeRequired)
    );
    assert_eq!(stage.content("open"), "open");
}

#[tokio::test]
async fn plan_is_not_applied_under_the_permit_of_another_call() {
    let stage = Stage::new().await;
    let planned = stage.call("append_later", "/r/open").await;
    assert_eq!(planned.unwrap(), "/r/open");
    let policy = Policy::new().allow("read:file").allow("write:file:/r/new");
    let other = WorkerSpec::new("other").policy(policy);
    let other = stage.runtime.spawn(other).await.unwrap();
    let applied = other.call("append_later", json!({"path": "/r/new"})).await;
    assert_eq!(applied.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(stage.content("open"), "open");

    stage.call("append_later", "/r/open").await.unwrap();
    stage.call("append_later", "/r/new").await.unwrap();
    assert_eq!(stage.content("open"), "open!");
}
