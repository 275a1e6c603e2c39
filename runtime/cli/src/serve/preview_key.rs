//! The key of preview tokens, shared by all processes of a user.
//!
//! Some clients start a process for each call. If previews are required, the process that applies a change must accept the token
//! of the process that previewed it.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::state;

/// The key and its file.
#[derive(Clone, Debug)]
pub(super) struct PreviewKey {
    pub(super) bytes: [u8; 32],
    pub(super) file: PathBuf,
}

/// Loads the key from the state directory, or creates it.
pub(super) fn load() -> io::Result<PreviewKey> {
    let folder = state::dir(|name| std::env::var_os(name).map(PathBuf::from));
    let unset = || io::Error::other("neither XDG_STATE_HOME nor HOME is set");
    let folder = folder.ok_or_else(unset)?;
    state::create(&folder)?;
    load_from(&folder.join("preview-key"))
}

fn load_from(path: &Path) -> io::Result<PreviewKey> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    file.lock()?;
    let metadata = file.metadata()?;
    if metadata.mode() & 0o077 != 0 {
        let reason = format!(
            "`{}` must be private: run `chmod 600` on it",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    let mut bytes = [0; 32];
    // A killed process may have written only a part of the key.
    if metadata.len() == 32 {
        file.read_exact(&mut bytes)?;
    } else {
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(&bytes)?;
        file.sync_all()?;
    }
    Ok(PreviewKey {
        bytes,
        file: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn key_is_created_once_and_read_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let made = load_from(&path).unwrap().bytes;
        assert_ne!(made, [0; 32]);
        assert_eq!(load_from(&path).unwrap().bytes, made);
    }

    #[test]
    fn incomplete_key_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        load_from(&path).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(7).unwrap();
        let made = load_from(&path).unwrap().bytes;
        assert_eq!(load_from(&path).unwrap().bytes, made);
    }

    #[test]
    fn key_that_others_can_read_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        load_from(&path).unwrap();
        set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let error = load_from(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
