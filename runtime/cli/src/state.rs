//! The directory in which the program keeps what it remembers between runs.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Its path, from the variables `XDG_STATE_HOME` or `HOME`; none if neither has an absolute path.
pub(crate) fn dir(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(state?.join("bailiwick"))
}

/// Creates it if it does not exist, for this user alone.
pub(crate) fn create(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}
