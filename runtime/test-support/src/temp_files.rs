//! A temporary directory in which a program runs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A temporary directory with files. It is deleted when this is dropped.
#[derive(Debug)]
pub struct TempFiles(tempfile::TempDir);

impl TempFiles {
    /// Creates the directory with these files, given as paths and contents.
    pub fn new(files: &[(&str, &str)]) -> Self {
        let temp = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            temp.write(name, text);
        }
        temp
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        self.0.path()
    }

    /// The path of an entry.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// Creates a directory with its parents, and returns its path.
    pub fn create_dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Writes a file, and creates the directories above it.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The content of a file.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// A command that runs `program` in the directory, without environment variables.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().current_dir(self.dir());
        command
    }
}

/// All entries of a directory by their relative paths: the content of files, the target of links, and the word
/// `directory` or `other`.
pub fn snapshot(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut entries = BTreeMap::new();
    let mut pending = vec![dir.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let content = if kind.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_vec()
            } else if kind.is_dir() {
                pending.push(path.clone());
                b"directory".to_vec()
            } else if kind.is_file() {
                fs::read(&path).unwrap()
            } else {
                b"other".to_vec()
            };
            entries.insert(path.strip_prefix(dir).unwrap().to_owned(), content);
        }
    }
    entries
}

/// The mode of each entry of a directory and, of files, the content, by the relative path.
pub type Tree = BTreeMap<String, (u32, Option<Vec<u8>>)>;

/// All entries of a directory. Unlike [`snapshot`], it has their modes, but not the targets of links.
pub fn tree(dir: &Path) -> Tree {
    let mut entries = Tree::new();
    let mut pending = vec![dir.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
            let content = meta.is_file().then(|| fs::read(&path).unwrap());
            entries.insert(name, (meta.permissions().mode(), content));
            if meta.is_dir() {
                pending.push(path);
            }
        }
    }
    entries
}

/// What a successful command wrote to standard output.
///
/// # Panics
/// If the command fails or writes to standard error.
#[track_caller]
pub fn stdout(output: Output) -> String {
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""));
    String::from_utf8(output.stdout).unwrap()
}

/// Checks that a command failed with this exit code and wrote one line to standard error, which contains `parts`.
#[track_caller]
pub fn assert_fails(output: Output, code: i32, parts: &[&str]) {
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(output.stdout.is_empty(), "{:?}", output.stdout);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    for part in parts {
        assert!(stderr.contains(part), "`{part}` is not in: {stderr}");
    }
}
