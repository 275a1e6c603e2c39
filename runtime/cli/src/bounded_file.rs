//! Reads files that a command line names, up to a maximum size.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The permissions of the group and of others to write.
const OTHERS_WRITE: u32 = 0o022;

/// Why a file cannot be read. `what` is its role, such as `servers file`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("cannot read the {what} `{}`", .path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("the {what} `{}` is larger than {max} bytes", .path.display())]
    TooLarge {
        what: &'static str,
        path: PathBuf,
        max: u64,
    },
}

/// Reads a file of at most `max` bytes.
pub(crate) fn read(what: &'static str, path: &Path, max: u64) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| {
        if file.metadata()?.mode() & OTHERS_WRITE != 0 {
            let path = path.display();
            tracing::warn!(
                "other users can write the {what} `{path}`; `chmod go-w` takes that away"
            );
        }
        file.take(max + 1).read_to_end(&mut bytes)
    });
    let path = path.to_owned();
    match read {
        Err(source) => Err(ReadError::Io { what, path, source }),
        Ok(_) if bytes.len() as u64 > max => Err(ReadError::TooLarge { what, path, max }),
        Ok(_) => Ok(bytes),
    }
}

/// Reads a UTF-8 file of at most `max` bytes.
pub(crate) fn read_text(what: &'static str, path: &Path, max: u64) -> Result<String, ReadError> {
    String::from_utf8(read(what, path, max)?).map_err(|_| ReadError::Io {
        what,
        path: path.to_owned(),
        // As `Read::read_to_string`.
        source: io::Error::new(
            io::ErrorKind::InvalidData,
            "stream did not contain valid UTF-8",
        ),
    })
}
