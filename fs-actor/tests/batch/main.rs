//! The tool `apply_batch`: several changes as one transaction.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes its files itself"
)]

mod law;
mod planned;
mod raced;
mod refused;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use bailiwick::journal::{Journal, JournalLimits};
use bailiwick::{
    CallError, GrantAuthority, Outcome, Policy, Runtime, RuntimeBuilder, Worker, WorkerSpec,
};
use bailiwick_fs::Durability;
use bailiwick_test_support::temp_files::{Tree, tree};
use serde_json::{Value, json};

/// Two writable roots, `r` and `s`, and a read-only one, `o`, with a journal.
struct World {
    temp: tempfile::TempDir,
    runtime: Runtime,
    grants: GrantAuthority,
    worker: Worker,
}

impl World {
    async fn new() -> Self {
        Self::with(JournalLimits::default(), Policy::new(), |builder| builder).await
    }

    async fn with(
        limits: JournalLimits,
        policy: Policy,
        adjust: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Self {
        let temp = tempfile::tempdir().unwrap();
        plant(temp.path());
        let builder = adjust(builder(temp.path(), limits));
        let (runtime, grants) = builder.build().await.unwrap();
        let spec = WorkerSpec::new("main").policy(policy);
        let worker = runtime.spawn(spec).await.unwrap();
        Self {
            temp,
            runtime,
            grants,
            worker,
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.at(name)).ok()
    }

    /// Everything but the journal.
    fn tree(&self) -> Tree {
        let mut tree = tree(self.temp.path());
        tree.retain(|name, _| !name.starts_with("journal"));
        tree
    }

    async fn batch(&self, operations: Value) -> Result<Outcome, CallError> {
        batch(&self.worker, operations).await
    }

    /// A batch that is refused and changes nothing.
    async fn refused(&self, operations: Value) -> CallError {
        let before = self.tree();
        let error = self.batch(operations).await.unwrap_err();
        assert_eq!(self.tree(), before, "{error:#?}");
        error
    }

    async fn undo(&self) {
        self.worker.call("undo", json!({})).await.unwrap();
    }
}

async fn batch(worker: &Worker, operations: Value) -> Result<Outcome, CallError> {
    let arguments = json!({ "operations": operations });
    worker.call("apply_batch", arguments).await
}

fn builder(temp: &Path, limits: JournalLimits) -> RuntimeBuilder {
    let journal = Journal::open_with(temp.join("journal"), limits).unwrap();
    Runtime::builder()
        .root("r", temp.join("r"))
        .root("s", temp.join("s"))
        .root_read_only("o", temp.join("o"))
        .journal(journal)
        .tools(bailiwick_fs::tools_with(Durability::Visible))
        .tools(bailiwick_fs::undo_tools(Durability::Visible))
}

/// The files of the tests: text, binary content, and modes.
fn plant(temp: &Path) {
    for dir in ["r/d/e", "s", "o"] {
        fs::create_dir_all(temp.join(dir)).unwrap();
    }
    for (name, content, mode) in [
        ("r/a", &b"one\ntwo\n"[..], 0o640),
        ("r/d/a", b"\x00\xff binary", 0o755),
        ("r/d/e/a", b"foo\r\nboo", 0o600),
        ("s/b", b"of s\n", 0o644),
        ("o/f", b"read only\n", 0o644),
    ] {
        fs::write(temp.join(name), content).unwrap();
        set_mode(&temp.join(name), mode);
    }
    set_mode(&temp.join("r/d"), 0o775);
    set_mode(&temp.join("r/d/e"), 0o750);
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn link(target: &str, at: &Path) {
    symlink(target, at).unwrap();
}
