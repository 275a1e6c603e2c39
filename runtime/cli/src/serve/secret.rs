//! Hands secrets to the person who started the server, and to nobody else.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use bailiwick::Token;

use super::print_message;

/// A file with a secret that only this user can read. It is removed when this is dropped.
#[derive(Debug)]
pub(super) struct SecretFile(PathBuf);

impl SecretFile {
    /// Writes `text` to a new file whose name ends in `extension`.
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

/// The folder in which secrets are written.
pub(super) fn dir() -> PathBuf {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folder = folder.filter(|folder| folder.is_absolute() && folder.is_dir());
    folder.unwrap_or_else(std::env::temp_dir)
}

/// Whether secrets are written to files, as nobody but a person reads a terminal.
pub(super) fn uses_file() -> bool {
    !io::stderr().is_terminal()
}

impl Drop for SecretFile {
    #[expect(
        clippy::disallowed_methods,
        reason = "the file is this program's own, and no root holds it"
    )]
    fn drop(&mut self) {
        // Somebody else may have removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Prints a secret on a terminal. Where standard error is read by a client or kept in a log, prints the path of a file that
/// holds `text` instead.
pub(super) fn deliver(
    what: &str,
    secret: &str,
    extension: &str,
    text: &str,
) -> io::Result<Option<SecretFile>> {
    if !uses_file() {
        print_message(&format!("{what}: {secret}"));
        return Ok(None);
    }
    let file = SecretFile::create(extension, text)?;
    print_message(&format!("{what} in: {}", file.0.display()));
    Ok(Some(file))
}
