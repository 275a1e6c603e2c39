//! A directory like the one in the examples, served as `/repo`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bailiwick::tool::ToolInfo;
use bailiwick::{CallError, Outcome, Policy, Runtime, Worker, WorkerSpec};
use bailiwick_test_support::temp_files::snapshot;
use serde_json::Value;

pub(crate) struct Repo {
    _runtime: Runtime,
    worker: Worker,
    temp: tempfile::TempDir,
}

impl Repo {
    pub(crate) async fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        for (name, content) in [
            ("README.md", b"# Demo\n".as_slice()),
            ("notes.txt", b"one\ntwo\nthree\n"),
            ("src/main.rs", b"fn main() {\n    println!(\"hi\");\n}\n"),
            ("twice", b"same\nsame\n"),
            ("bytes", b"\xff\0\xfe"),
        ] {
            let path = temp.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let builder = Runtime::builder().root("repo", temp.path());
        let (runtime, _grants) = builder.tools(bailiwick_fs::tools()).build().await.unwrap();
        let spec = WorkerSpec::new("main").policy(Policy::new());
        let worker = runtime.spawn(spec).await.unwrap();
        Self {
            _runtime: runtime,
            worker,
            temp,
        }
    }

    pub(crate) fn host(&self) -> &Path {
        self.temp.path()
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<Outcome, CallError> {
        self.worker.call(tool, arguments).await
    }

    /// Makes a call and returns the structured content.
    pub(crate) async fn ask(&self, tool: &str, arguments: Value) -> Value {
        let outcome = self.call(tool, arguments.clone()).await;
        let outcome = outcome.unwrap_or_else(|error| panic!("{tool} {arguments}: {error}"));
        outcome.structured().unwrap()
    }

    /// All files and directories, with the content of files.
    pub(crate) fn tree(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        snapshot(self.host())
    }
}

pub(crate) fn tools() -> Vec<ToolInfo> {
    bailiwick_fs::tools().infos()
}

pub(crate) fn tool(name: &str) -> ToolInfo {
    tools()
        .into_iter()
        .find(|tool| tool.spec.name == name)
        .unwrap()
}
