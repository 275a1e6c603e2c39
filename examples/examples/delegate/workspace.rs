//! The directory that the agents work in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bailiwick::{Policy, Runtime, Worker, WorkerSpec};
use bailiwick_fs::GrepOutput;
use serde_json::{Value, json};

use super::{BoxError, ensure};

/// The file that the editor may write only with approval.
pub(crate) const NOTES: &str = "/repo/BAILIWICK-NOTES.md";
/// The text that the editor appends to a line.
pub(crate) const MARK: &str = " (seen by the editor)";

/// Copies this repository's sources and adds a secret.
pub(crate) fn scratch_copy(to: &Path) -> Result<PathBuf, BoxError> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for part in ["runtime", "fs-actor"] {
        copy_tree(&repository.join(part), &to.join(part))?;
    }
    fs::write(to.join("runtime/.env"), "API_KEY=not-for-agents\n")?;
    Ok(to.canonicalize()?)
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), target)?;
        } else if entry.file_type()?.is_dir() && entry.file_name() != "target" {
            copy_tree(&entry.path(), &target)?;
        }
    }
    Ok(())
}

/// A directory with text files.
pub(crate) struct Workspace {
    pub(crate) dir: PathBuf,
    /// The directory that the reader may read, and the text that it searches for.
    pub(crate) read_dir: String,
    pub(crate) query: String,
    /// The directory that the editor may write, and the file and line that it edits.
    pub(crate) edit_dir: String,
    pub(crate) file: String,
    pub(crate) line: String,
    /// The original content of `file`.
    original: Vec<u8>,
}

impl Workspace {
    /// Chooses two directories that contain text, using a worker that can only search.
    pub(crate) async fn find(
        runtime: &Runtime,
        dir: PathBuf,
        scratch: bool,
    ) -> Result<Self, BoxError> {
        let policy = Policy::nothing().allow("read:file:/repo").tools(["grep"]);
        let spec = WorkerSpec::new("search").policy(policy);
        let worker = runtime.spawn(spec).await?;
        let dirs = if scratch {
            vec!["/repo/runtime".to_owned(), "/repo/fs-actor/src".to_owned()]
        } else {
            subdirectories(&dir)?
        };
        let mut found = Vec::new();
        for dir in dirs {
            if found.len() < 2
                && let Some((file, line)) = first_line(&worker, &dir).await?
            {
                found.push((dir, file, line));
            }
        }
        worker.revoke().await;
        let none = "DIR has no subdirectory with a text file";
        let (read_dir, _, query) = found.first().cloned().ok_or(none)?;
        let (edit_dir, file, line) = found.pop().ok_or(none)?;
        let query = if scratch { "fn mint".to_owned() } else { query };
        let mut workspace = Self {
            dir,
            read_dir,
            query,
            edit_dir,
            file,
            line,
            original: Vec::new(),
        };
        workspace.original = workspace.read(&workspace.file)?;
        ensure(
            workspace.read(NOTES).is_err(),
            "DIR already contains BAILIWICK-NOTES.md; move it away first",
        )?;
        Ok(workspace)
    }

    /// A path that no agent may read, whether it exists or not.
    pub(crate) fn secret(&self) -> String {
        format!("{}/.env", self.read_dir)
    }

    pub(crate) fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read(
            self.dir
                .join(path.strip_prefix("/repo/").unwrap_or_default()),
        )
    }

    /// The content of the two files that the agents may change.
    pub(crate) fn snapshot(&self) -> [Option<Vec<u8>>; 2] {
        [&self.file, NOTES].map(|path| self.read(path).ok())
    }

    pub(crate) fn edit(&self, from: &str, to: &str) -> Value {
        json!({ "path": self.file, "edits": [{ "old_text": from, "new_text": to, "occurrence": 1 }] })
    }

    /// Undoes all changes, using a worker that can write only the two changed files.
    pub(crate) async fn undo(&self, runtime: &Runtime) -> Result<(), BoxError> {
        let policy = Policy::nothing()
            .allow("read:file:/repo")
            .allow(&format!("write:file:{}", self.file))
            .allow(&format!("write:file:{NOTES}"));
        let worker = runtime
            .spawn(WorkerSpec::new("undo").policy(policy))
            .await?;
        if self.read(&self.file)? != self.original {
            let edit = self.edit(&format!("{}{MARK}", self.line), &self.line);
            worker.call("edit_file", edit).await?;
        }
        if self.read(NOTES).is_ok() {
            worker.call("delete", json!({ "path": NOTES })).await?;
        }
        ensure(
            self.read(&self.file)? == self.original,
            "the edit was not undone",
        )?;
        ensure(self.read(NOTES).is_err(), "the note was not removed")?;
        println!("\nAll changes in your directory are undone.");
        Ok(())
    }
}

/// The subdirectories of `dir` that are not hidden, as virtual paths.
fn subdirectories(dir: &Path) -> io::Result<Vec<String>> {
    let mut dirs = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().into_string().unwrap_or_default();
        if entry.file_type()?.is_dir() && !name.is_empty() && !name.starts_with('.') {
            dirs.push(format!("/repo/{name}"));
        }
    }
    dirs.sort();
    Ok(dirs)
}

/// The first text file below `dir`, and one of its lines.
async fn first_line(worker: &Worker, dir: &str) -> Result<Option<(String, String)>, BoxError> {
    let pattern = "^[[:print:]]{3,80}\r?$";
    let search = json!({ "path": dir, "pattern": pattern, "limit": 1 });
    let outcome = worker.call("grep", search).await?;
    let file = outcome
        .output::<GrepOutput>()
        .and_then(|found| found.files.first());
    let text = outcome.text();
    let line = text.lines().nth(1).and_then(|line| line.split_once(':'));
    Ok(file
        .zip(line)
        .map(|(file, (_, line))| (file.path.clone(), line.to_owned())))
}
