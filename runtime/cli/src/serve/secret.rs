//! Delivers secrets to the person who started the server.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use bailiwick_mcp::gateway::Token;

use super::print_message;

/// A file with a secret that only this user can read. It is removed on drop.
#[derive(Debug)]
pub(super) struct SecretFile(PathBuf);

impl SecretFile {
    /// Writes `text` to a new file with this extension.
    fn create(extension: &str, text: &str) -> io::Result<Self> {
        let random = Token::random().map_err(io::Error::other)?;
        let random = random.reveal().get(..16).unwrap_or_default();
        let path = dir().join(format!("bailiwick-{random}.{extension}"));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        let secret_file = Self(path);
        file.write_all(text.as_bytes())?;
        Ok(secret_file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

/// The directory for files with secrets.
pub(crate) fn dir() -> PathBuf {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folder = folder.filter(|folder| folder.is_absolute() && folder.is_dir());
    folder.unwrap_or_else(std::env::temp_dir)
}

/// Whether secrets are written to files. They are printed only on a terminal.
pub(super) fn uses_file() -> bool {
    !io::stderr().is_terminal()
}

impl Drop for SecretFile {
    #[expect(
        clippy::disallowed_methods,
        reason = "the file was created by this program and is in no root"
    )]
    fn drop(&mut self) {
        // It may have been removed already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Prints a secret on a terminal. Otherwise, since standard error may be logged or read by a client, writes `text` to a file and
/// prints its path.
pub(super) fn deliver(
    label: &str,
    secret: &str,
    extension: &str,
    text: &str,
) -> io::Result<Option<SecretFile>> {
    if !uses_file() {
        print_message(&format!("{label}: {secret}"));
        return Ok(None);
    }
    let file = SecretFile::create(extension, text)?;
    print_message(&format!("{label} in: {}", file.0.display()));
    Ok(Some(file))
}
