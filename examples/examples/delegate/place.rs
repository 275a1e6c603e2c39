//! A directory in, the two folders and the line that the story is about out.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bailiwick::{Policy, Runtime, Worker, WorkerSpec};
use bailiwick_fs::GrepOutput;
use serde_json::{Value, json};

use super::{Failure, ensure};

/// The file that the editor asks for, outside its folder.
pub(crate) const NOTES: &str = "/repo/BAILIWICK-NOTES.md";
/// What the editor adds to a line.
pub(crate) const MARK: &str = " (seen by the editor)";

/// Copies this repository's sources, and puts a secret among them.
pub(crate) fn scratch_copy(to: &Path) -> Result<PathBuf, Failure> {
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

/// Where the story plays.
pub(crate) struct Place {
    pub(crate) host: PathBuf,
    /// The folder of the reader, and what it looks for there.
    pub(crate) reads: String,
    pub(crate) query: String,
    /// The folder of the editor, and the file and line that it changes there.
    pub(crate) edits: String,
    pub(crate) file: String,
    pub(crate) line: String,
    /// That file as it was.
    before: Vec<u8>,
}

impl Place {
    /// Chooses two folders with a line of plain text, looking through a worker that may only search.
    pub(crate) async fn survey(
        runtime: &Runtime,
        host: PathBuf,
        scratch: bool,
    ) -> Result<Self, Failure> {
        let policy = Policy::new().allow("read:file:/repo").tools(["grep"]);
        let spec = WorkerSpec::new("survey").policy(policy);
        let surveyor = runtime.spawn(spec).await?;
        let folders = if scratch {
            vec!["/repo/runtime".to_owned(), "/repo/fs-actor/src".to_owned()]
        } else {
            folders(&host)?
        };
        let mut found = Vec::new();
        for folder in folders {
            if found.len() < 2
                && let Some((file, line)) = first_line(&surveyor, &folder).await?
            {
                found.push((folder, file, line));
            }
        }
        surveyor.revoke().await;
        let none = "DIR has no folder that holds a text file";
        let (reads, _, query) = found.first().cloned().ok_or(none)?;
        let (edits, file, line) = found.pop().ok_or(none)?;
        let query = if scratch { "fn mint".to_owned() } else { query };
        let mut place = Self {
            host,
            reads,
            query,
            edits,
            file,
            line,
            before: Vec::new(),
        };
        place.before = place.on_disk(&place.file)?;
        ensure(
            place.on_disk(NOTES).is_err(),
            "DIR holds a BAILIWICK-NOTES.md already; move it away first",
        )?;
        Ok(place)
    }

    /// The file that nobody may read, be it there or not.
    pub(crate) fn secret(&self) -> String {
        format!("{}/.env", self.reads)
    }

    pub(crate) fn on_disk(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read(
            self.host
                .join(path.strip_prefix("/repo/").unwrap_or_default()),
        )
    }

    /// The two files that the story may change, as they are.
    pub(crate) fn state(&self) -> [Option<Vec<u8>>; 2] {
        [&self.file, NOTES].map(|path| self.on_disk(path).ok())
    }

    pub(crate) fn edit(&self, from: &str, to: &str) -> Value {
        json!({ "path": self.file, "edits": [{ "old_text": from, "new_text": to, "occurrence": 1 }] })
    }

    /// Restores what the story changed, by a worker that may change those two files and nothing else.
    pub(crate) async fn take_back(&self, runtime: &Runtime) -> Result<(), Failure> {
        let policy = Policy::new()
            .allow("read:file:/repo")
            .allow(&format!("write:file:{}", self.file))
            .allow(&format!("write:file:{NOTES}"));
        let undo = runtime
            .spawn(WorkerSpec::new("undo").policy(policy))
            .await?;
        if self.on_disk(&self.file)? != self.before {
            let edit = self.edit(&format!("{}{MARK}", self.line), &self.line);
            undo.call("edit_file", edit).await?;
        }
        if self.on_disk(NOTES).is_ok() {
            undo.call("delete", json!({ "path": NOTES })).await?;
        }
        ensure(
            self.on_disk(&self.file)? == self.before,
            "the edit was not taken back",
        )?;
        ensure(
            self.on_disk(NOTES).is_err(),
            "the notes were not taken back",
        )?;
        println!("\nYour files hold what they held: the edit and the note are taken back.");
        Ok(())
    }
}

/// The folders of `host` that are not hidden, as agents see them.
fn folders(host: &Path) -> io::Result<Vec<String>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(host)? {
        let entry = entry?;
        let name = entry.file_name().into_string().unwrap_or_default();
        if entry.file_type()?.is_dir() && !name.is_empty() && !name.starts_with('.') {
            folders.push(format!("/repo/{name}"));
        }
    }
    folders.sort();
    Ok(folders)
}

/// The first file of plain text beneath `folder`, and a line of it.
async fn first_line(worker: &Worker, folder: &str) -> Result<Option<(String, String)>, Failure> {
    let pattern = "^[[:print:]]{3,80}\r?$";
    let search = json!({ "path": folder, "pattern": pattern, "limit": 1 });
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
