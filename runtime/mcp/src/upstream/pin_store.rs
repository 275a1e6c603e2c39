//! Saves approved tool definitions in a file, to detect changes across restarts.
//!
//! The first line contains the format, its version and the hash of the rest; each further line is one server. The file
//! is small and is always replaced as a whole.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::pins::Fingerprint;
use crate::inotify::{Changes, Instance};
use bailiwick::effect::ContentHash;
use bailiwick::json::read_json;
use bailiwick::private_file::{Folder, PrivateFileError, StoreFile};
use rustix::io::Errno;

const FORMAT: &str = "bailiwick-pins";
const VERSION: u64 = 1;
/// The largest file size, in bytes.
const MAX_BYTES: u64 = 64 << 20;
/// The largest number of servers. A host has at most 64 at a time; the least recently changed servers are evicted.
const MAX_SERVERS: usize = 256;
/// How long to wait for another process that holds the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a pin store cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinStoreError {
    /// The file cannot be opened, created, read or written.
    #[error("cannot use the pin store `{}`", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file may have been written by another user.
    #[error("`{}` cannot be a pin store: {reason}", .file.display())]
    Unsafe {
        /// The file.
        file: PathBuf,
        /// What is wrong with the file or with a folder above it.
        reason: String,
    },
    /// Another process holds the lock.
    #[error("the pin store `{}` is locked by another process", .file.display())]
    InUse {
        /// The file.
        file: PathBuf,
    },
    /// The file was written by another program or by a later version.
    #[error("`{}` is not a pin store of a known version", .file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// The content was modified. Ignoring the file would approve all tools again, so it is left in place: review the
    /// tools of the servers, then delete it.
    #[error("the pin store `{}` is damaged; review the tools of your servers and delete it", .file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
    },
}

impl PinStoreError {
    fn of(file: &Path, error: PrivateFileError) -> Self {
        let file = file.to_owned();
        match error {
            PrivateFileError::Open(source) => Self::Io { file, source },
            PrivateFileError::Unsafe(reason) => Self::Unsafe { file, reason },
            PrivateFileError::InUse => Self::InUse { file },
        }
    }

    /// The blocking task that writes failed.
    pub(super) fn writer_lost() -> Self {
        Self::Io {
            file: PathBuf::new(),
            source: io::Error::other("the writing thread was lost"),
        }
    }

    /// The kind of the I/O error, or `Other`.
    pub(super) fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Io { source, .. } => source.kind(),
            _ => io::ErrorKind::Other,
        }
    }
}

type Fingerprints = BTreeMap<String, Fingerprint>;

/// A file that stores approved tool definitions, for
/// [`UpstreamsBuilder::pin_store`](super::UpstreamsBuilder::pin_store).
///
/// Several processes can share one store: each of them notices changes of the others at once. The file contains the
/// names of servers and tools, and hashes, but no secrets.
#[derive(Debug)]
pub struct PinStore {
    /// The absolute path.
    file: PathBuf,
    files: Vec<PathBuf>,
    servers: Mutex<Servers>,
}

/// The most recently changed server is last.
type Servers = Vec<StoredServer>;

/// The approved tools of a server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredServer {
    server: String,
    tools: Fingerprints,
}

/// The first line, after the format.
#[derive(Deserialize)]
struct Header {
    version: u64,
    sha256: Option<String>,
}

impl PinStore {
    /// Opens the file at `path`, or creates an empty one with mode 600. Symbolic links are not followed. The file, its
    /// folder and the folders above it must not be writable by other users, except for sticky folders such as `/tmp`.
    ///
    /// # Errors
    /// [`PinStoreError`]
    pub fn open(path: impl AsRef<Path>) -> Result<Self, PinStoreError> {
        let file = locked(path.as_ref())?;
        let servers = read(&file)?;
        if servers.is_none() {
            write(&file, &[])?;
        }
        Ok(Self {
            file: file.folder().place().to_owned(),
            files: file.folder().places(),
            servers: Mutex::new(servers.unwrap_or_default()),
        })
    }

    /// The approved fingerprints of a server that was connected before.
    pub(super) fn fingerprints(&self, server: &str) -> Option<Fingerprints> {
        let servers = self.servers.lock();
        let found = servers.iter().find(|stored| stored.server == server);
        found.map(|stored| stored.tools.clone())
    }

    /// Replaces the approved fingerprints of a server, durably. Blocks on file I/O.
    pub(super) fn save(
        &self,
        server: &str,
        fingerprints: &Fingerprints,
    ) -> Result<(), PinStoreError> {
        let mut servers = self.servers.lock();
        let file = locked(&self.file)?;
        // Another process may have saved other servers meanwhile.
        let mut next = read(&file)?.unwrap_or_default();
        next.retain(|stored| stored.server != server);
        next.push(StoredServer {
            server: server.to_owned(),
            tools: fingerprints.clone(),
        });
        next.drain(..next.len().saturating_sub(MAX_SERVERS));
        write(&file, &next)?;
        *servers = next;
        Ok(())
    }

    /// Watches for changes by other processes. Must be called within a tokio runtime.
    pub(super) fn changes(&self) -> Result<Changes, PinStoreError> {
        let watch = |folder: Folder| {
            let directory = folder.directory().try_clone();
            let directory = directory.map_err(PrivateFileError::Open)?.into();
            let name = folder.name().to_str().ok_or(Errno::ILSEQ)?;
            Ok(Instance::default().watch(&directory, name.to_owned())?)
        };
        let changes = Folder::of(&self.file).and_then(watch);
        changes.map_err(|error| PinStoreError::of(&self.file, error))
    }

    /// Reads the changes of other processes. Blocks on file I/O.
    pub(super) fn reload(&self) -> Result<(), PinStoreError> {
        let mut servers = self.servers.lock();
        let file = locked(&self.file)?;
        // If the file was deleted, the approvals are unchanged.
        if let Some(read) = read(&file)? {
            *servers = read;
        }
        Ok(())
    }

    /// All files of the store, which workers must not access.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }
}

/// Locks the file against other processes.
fn locked(path: &Path) -> Result<StoreFile, PinStoreError> {
    let file = Folder::of(path).and_then(|folder| folder.locked_within(LOCK_TIMEOUT));
    file.map_err(|error| PinStoreError::of(path, error))
}

fn read(file: &StoreFile) -> Result<Option<Servers>, PinStoreError> {
    let path = file.folder().place();
    let bytes = file.folder().read(MAX_BYTES);
    let bytes = bytes.map_err(|error| PinStoreError::of(path, error))?;
    bytes.map(|bytes| decode(path, &bytes)).transpose()
}

fn write(file: &StoreFile, servers: &[StoredServer]) -> Result<(), PinStoreError> {
    let written = encode(servers).and_then(|bytes| file.replace(&bytes));
    written.map_err(|source| PinStoreError::Io {
        file: file.folder().place().to_owned(),
        source,
    })
}

fn encode(servers: &[StoredServer]) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    for server in servers {
        serde_json::to_writer(&mut body, server)?;
        body.push(b'\n');
    }
    let hash = ContentHash::of(&body);
    let header = format!("{}{VERSION},\"sha256\":\"{hash}\"}}\n", prefix());
    let bytes = [header.into_bytes(), body].concat();
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

fn decode(file: &Path, bytes: &[u8]) -> Result<Servers, PinStoreError> {
    let file = file.to_owned();
    let prefix = prefix();
    if !bytes.starts_with(prefix.as_bytes()) && !prefix.as_bytes().starts_with(bytes) {
        return Err(PinStoreError::Foreign { file });
    }
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
    let header = lines.next().unwrap_or_default();
    let header = serde_json::from_slice::<Header>(header).ok();
    if header.as_ref().is_some_and(|it| it.version != VERSION) {
        return Err(PinStoreError::Foreign { file });
    }
    let body = lines.next().filter(|body| {
        let hash = header.and_then(|header| header.sha256);
        let fits = bytes.len() as u64 <= MAX_BYTES;
        fits && hash == Some(ContentHash::of(body).to_string())
    });
    let lines = body.map(|body| body.split_inclusive(|byte| *byte == b'\n'));
    let read = lines.map(|lines| lines.map(read_json).collect::<Result<Servers, _>>());
    match read {
        Some(Ok(servers)) => Ok(servers),
        _ => Err(PinStoreError::Damaged { file }),
    }
}

/// How files of every version begin.
fn prefix() -> String {
    format!(r#"{{"format":"{FORMAT}","version":"#)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "the tests damage the file")]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn fingerprints(names: &[&str]) -> Fingerprints {
        let fingerprint = |name: &&str| {
            let hash = ContentHash::of(name.as_bytes()).to_string();
            ((*name).to_owned(), hash.parse().unwrap())
        };
        names.iter().map(fingerprint).collect()
    }

    #[test]
    fn saved_pins_are_read_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pins");
        let store = PinStore::open(&path).unwrap();
        assert_eq!(store.fingerprints("s~1"), None);
        store.save("s~1", &fingerprints(&["s__a", "s__b"])).unwrap();
        store.save("t~2", &fingerprints(&[])).unwrap();
        store.save("s~1", &fingerprints(&["s__a"])).unwrap();
        drop(store);
        let store = PinStore::open(&path).unwrap();
        assert_eq!(store.fingerprints("s~1"), Some(fingerprints(&["s__a"])));
        assert_eq!(store.fingerprints("t~2"), Some(fingerprints(&[])));
        assert_eq!(store.fingerprints("u~3"), None);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn two_processes_share_a_pin_store() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pins");
        let (one, other) = (
            PinStore::open(&path).unwrap(),
            PinStore::open(&path).unwrap(),
        );
        one.save("s~1", &fingerprints(&["s__a"])).unwrap();
        other.save("t~2", &fingerprints(&["t__b"])).unwrap();
        let store = PinStore::open(&path).unwrap();
        assert_eq!(store.fingerprints("s~1"), Some(fingerprints(&["s__a"])));
        assert_eq!(store.fingerprints("t~2"), Some(fingerprints(&["t__b"])));
        let _held = Folder::of(&path).unwrap().locked().unwrap();
        let refused = Folder::of(&path).unwrap().locked_within(Duration::ZERO);
        assert!(matches!(refused, Err(PrivateFileError::InUse)));
    }

    #[test]
    fn damaged_pin_store_is_rejected_and_left_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pins");
        let store = PinStore::open(&path).unwrap();
        store.save("s~1", &fingerprints(&["s__a"])).unwrap();
        drop(store);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut other = whole.clone();
            other[at] ^= 1;
            for damaged in [&whole[..at], &other[..]] {
                assert!(decode(&path, damaged).is_err(), "byte {at}");
            }
        }
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        for _ in 0..2 {
            let refused = PinStore::open(&path).map(|_| ()).unwrap_err();
            assert!(
                matches!(refused, PinStoreError::Damaged { .. }),
                "{refused}"
            );
        }
        std::fs::write(&path, &whole).unwrap();
        assert!(PinStore::open(&path).is_ok());
        for foreign in [
            "{}\n".to_owned(),
            r#"{"format":"bailiwick-pins","version":2,"more":1}"#.to_owned(),
            String::from_utf8(whole)
                .unwrap()
                .replacen("\"version\":1", "\"version\":3", 1),
        ] {
            let refused = decode(&path, foreign.as_bytes());
            assert!(matches!(refused, Err(PinStoreError::Foreign { .. })));
        }
    }

    #[test]
    fn least_recently_changed_servers_are_evicted_first() {
        let folder = tempfile::tempdir().unwrap();
        let store = PinStore::open(folder.path().join("pins")).unwrap();
        let filled = (0..MAX_SERVERS).map(|n| StoredServer {
            server: format!("s~{n}"),
            tools: Fingerprints::new(),
        });
        let filled: Vec<_> = filled.collect();
        write(&locked(&store.file).unwrap(), &filled).unwrap();
        store.save("s~0", &fingerprints(&["a"])).unwrap();
        assert!(store.fingerprints("s~1").is_some());
        store.save("new~1", &fingerprints(&["a"])).unwrap();
        assert!(store.fingerprints("s~1").is_none());
        assert!(store.fingerprints("s~0").is_some() && store.fingerprints("s~2").is_some());
    }
}
